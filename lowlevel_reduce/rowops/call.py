"""One call of a row operation: arrays in, arrays out, the plan looked up or made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lowlevel_reduce.arguments import instance, integer
from lowlevel_reduce.arrays.allocator import Allocator
from lowlevel_reduce.arrays.device_array import ArrayView
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.layout import contiguous_strides, is_contiguous
from lowlevel_reduce.rowops.execute import RowCall, Views, execute
from lowlevel_reduce.rowops.operation import RowOperation, axis_of
from lowlevel_reduce.rowops.parameters import parameter_words
from lowlevel_reduce.rowops.plan import RowPlan, row_plan
from lowlevel_reduce.rowops.types import only_known

if TYPE_CHECKING:
    from lowlevel_reduce.calls.places import Place

__all__ = ["apply", "row_operation"]


def row_operation(
    operation: RowOperation,
    x: Any,
    *,
    axis: int = -1,
    second: Any = None,
    out: Any = None,
    dtype: Any = None,
    stream: Any = None,
    allocator: Allocator | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
    block: int | None = None,
    **given: Any,
) -> Any:
    """Apply a row operation along one axis of an array.

    Parameters
    ----------
    operation : RowOperation
        What to do.
    x : array
        A `DeviceArray`, anything with ``__dlpack__`` or ``__cuda_array_interface__``, or a NumPy array, which is copied
        to the device. Any strides and any address that are multiples of an element's size.
    axis : int
        Along which rows lie.
    second : array, optional
        The second array, of the shape and type of `x`, with strides of its own.
    out : array or mapping, optional
        Where to write: a device array for an operation that writes one, else arrays by name; those that are missing
        are allocated. An output may be `x` or `second` itself: the operation then works in place.
    dtype : dtype or mapping, optional
        Types of the outputs: one for all arrays of rows, or by name.
    stream : Stream or object with ``__cuda_stream__``, optional
        Where to run; the call works in its context. By default a `DeviceArray` is reduced in its own stream, an array
        of PyTorch or CuPy in the library's current stream, in the primary context, and any other, as NumPy's, in the
        legacy default stream of the current context or, if none is current, of the primary context of device 0.
    allocator : Allocator, optional
        Supplies the memory of outputs in place of the driver.
    strategy, cluster : optional
        As for `row_plan`; all give the same bits.
    block : int, optional
        Cuts rows into blocks of as many elements, each a row of its own; what is kept has one element for each block.
    **given
        Columns, row inputs and tables, contiguous arrays, and parameters, by name. Row inputs, and what is kept, are of
        the shape of the other axes.

    Returns
    -------
    DeviceArray, named tuple of them, or the caller's arrays
        The outputs and what is kept, available in the order of the stream.

    Raises
    ------
    TypeError, ValueError
        If an argument is missing, unknown, no array, or of the wrong shape or type; if an output overlaps another array
        other than in place; if an array is on the host or on another device.
    UnsupportedError
        If a type or layout is not supported, or the device lacks what the strategy needs.
    NoDriverError, NoCompilerError, CompileError, CacheError, CudaError
        From the driver, the compiler or the cache.
    """
    instance(operation, RowOperation, "a row operation")
    return apply(
        operation, x, given, axis=axis, second=second, out=out, dtype=dtype, stream=stream, allocator=allocator,
        strategy=strategy, cluster=cluster, block=block,
    )  # fmt: skip


def apply(
    operation: RowOperation,
    x: Any,
    given: dict[str, Any],
    *,
    axis: int = -1,
    second: Any = None,
    out: Any = None,
    dtype: Any = None,
    stream: Any = None,
    allocator: Allocator | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
    block: int | None = None,
    groups: int | None = None,
) -> Any:
    """Do what `row_operation` does, with what is given by name in a dictionary, which is used up.

    With `groups` the second axis is cut into as many, and each of them and all axes behind it are a row.
    """
    if allocator is not None:
        instance(allocator, Allocator, "the allocator")
    if (second is not None) != operation.second:
        raise TypeError(f"{operation.name} takes {'a second array' if operation.second else 'one array'}")
    names = (*operation.columns, *operation.rows, *operation.tables)
    arrays = [x] if second is None else [x, second]
    for name in names:
        array = given.pop(name, None)
        if array is None:
            raise TypeError(f"{operation.name} needs {name}=")
        arrays.append(array)
    words: tuple[Any, ...] = parameter_words(operation, given)
    if not all(words):  # 0.0 and -0.0 are equal
        words = tuple(map(repr, words))
    axis = axis if type(axis) is int else integer(axis, "axis is an integer")
    if block is not None:
        block = integer(block, "block is an integer")
    targets = _targets(operation, out)
    types = dtype if dtype is None or not isinstance(dtype, Mapping) else tuple(dtype.items())
    form = _Form(axis, block, groups)
    options = (operation, words, form, types, strategy, cluster)
    call = RowCall(tuple(arrays), targets, options, stream, allocator)

    def describe(views: tuple[ArrayView, ...], into: Views, place: Place) -> Any:
        return _described(operation, views, into, place, form, words, given, dtype, strategy, cluster)

    return execute(call, describe)


class _Form(NamedTuple):
    """What of an array a row is: what lies along an axis, or a block of that, or a group of the second axis' parts."""

    axis: int
    block: int | None
    groups: int | None

    def of(self, view: ArrayView) -> ArrayView:
        """Return an array with rows along the last axis."""
        if self.groups is not None:
            return _in_groups(view, self.groups)
        return _in_blocks(_moved(view, self.axis), self.block)


def _described(
    operation: RowOperation,
    views: tuple[ArrayView, ...],
    into: Views,
    place: Place,
    form: _Form,
    words: tuple[Any, ...],
    parameters: dict[str, Any],
    dtype: Any,
    strategy: str | None,
    cluster: int | None,
) -> tuple[tuple[Any, ...], Any]:
    """Return the key of a call with these arrays, and what makes its plan."""
    whole = tuple(views[0].shape)
    if operation.second:
        _check_second(views[1], views[0])
    inputs = [form.of(each) for each in views[: operation.arrays]]
    source = inputs[0]
    shape = tuple(source.shape)
    beside = dict(zip((*operation.columns, *operation.rows, *operation.tables), views[operation.arrays :], strict=True))
    for names, due in ((operation.columns, shape[-1:]), (operation.rows, shape[:-1]), (operation.tables, None)):
        for name in names:
            _check_flat(beside[name], name, due)
    outs = dict(zip((*operation.write, *operation.keep), into, strict=True))
    dtypes = _dtypes(operation, dtype, outs)
    strides = {}
    for name in operation.write:
        view = outs[name]
        if view is None:
            own = np.dtype(dtypes.get(name) or operation.output_types[name] or source.dtype)
            view = ArrayView(0, whole, None, own, readonly=False, owner=None)
        elif tuple(view.shape) != whole:
            raise ValueError(f"{name} has shape {tuple(view.shape)}; the result's is {whole}")
        strides[name] = form.of(view).strides_bytes
    key = (
        operation, words, whole, form, source.dtype, strategy, cluster, *map(_strides, inputs),
        *((each.dtype, each.shape) for each in beside.values()), *strides.values(), *dtypes.items(),
        *(None if each is None else (each.dtype, each.shape, _strides(each), each.readonly) for each in into),
    )  # fmt: skip

    def make() -> tuple[RowPlan, tuple[int, ...]]:
        plan = row_plan(
            operation,
            shape=shape,
            dtype=source.dtype,
            strides_bytes=source.strides_bytes,
            second_strides_bytes=inputs[1].strides_bytes if operation.second else None,
            output_strides_bytes={name: each for name, each in strides.items() if each is not None},
            columns={name: beside[name].dtype for name in operation.columns},
            rows={name: beside[name].dtype for name in operation.rows},
            tables={name: (beside[name].dtype, beside[name].shape[0]) for name in operation.tables},
            outputs=dtypes,
            parameters=parameters,
            context=place.context,
            strategy=strategy,
            cluster=cluster,
        )
        for name, own in zip((*operation.write, *operation.keep), plan.output_dtypes, strict=True):
            view, kept = outs[name], name in operation.keep
            if view is not None:
                _check_out(name, view, own, plan.shape[:-1] if kept else whole)
                if kept:
                    _check_contiguous(name, view)
        return plan, whole

    return key, make


def _moved(view: ArrayView, axis: int) -> ArrayView:
    """Return an array whose axis of rows is the last one."""
    shape = tuple(view.shape)
    axis = axis_of(axis, len(shape))
    if axis == len(shape) - 1:
        return view
    strides = tuple(view.strides_bytes or contiguous_strides(shape, view.dtype.itemsize))
    return view._replace(
        shape=(*shape[:axis], *shape[axis + 1 :], shape[axis]),
        strides_bytes=(*strides[:axis], *strides[axis + 1 :], strides[axis]),
    )


def _in_groups(view: ArrayView, groups: int) -> ArrayView:
    """Return an array whose second axis is cut into groups, each of them one axis with all axes behind it."""
    shape, size = tuple(view.shape), view.dtype.itemsize
    strides = tuple(view.strides_bytes or contiguous_strides(shape, size))
    inner = [(length, stride) for length, stride in zip(shape[1:], strides[1:], strict=True) if length > 1]
    step = inner[-1][1] if inner else size
    if any(outer[1] != length * stride for outer, (length, stride) in pairwise(inner)):
        raise UnsupportedError("the axes of a group are one piece: its channels, and what each of them has, in C order")
    length = math.prod(shape[1:]) // groups
    return view._replace(shape=(shape[0], groups, length), strides_bytes=(strides[0], length * step, step))


def _in_blocks(view: ArrayView, block: int | None) -> ArrayView:
    """Return an array whose last axis is cut into blocks."""
    if block is None:
        return view
    shape, size = tuple(view.shape), view.dtype.itemsize
    if not shape or block < 1 or shape[-1] % block:
        raise ValueError(f"rows of shape {shape} do not divide into blocks of {block}")
    strides = tuple(view.strides_bytes or contiguous_strides(shape, size))
    step = strides[-1] if shape[-1] > 1 else size
    return view._replace(
        shape=(*shape[:-1], shape[-1] // block, block), strides_bytes=(*strides[:-1], block * step, step)
    )


def _strides(view: ArrayView) -> tuple[int, ...] | None:
    return None if view.strides_bytes is None else tuple(view.strides_bytes)


def _check_second(second: ArrayView, source: ArrayView) -> None:
    if tuple(second.shape) != tuple(source.shape) or second.dtype != source.dtype:
        raise ValueError(
            f"the second array is of shape {tuple(second.shape)} and {second.dtype}; "
            f"the first of {tuple(source.shape)} and {source.dtype}"
        )


def _check_flat(view: ArrayView, name: str, due: tuple[int, ...] | None) -> None:
    shape = tuple(view.shape)
    if due is None and len(shape) != 1:
        raise ValueError(f"{name} has one axis, not shape {shape}")
    if due is not None and shape != due:
        raise ValueError(f"{name} has shape {shape}, not {due}")
    _check_contiguous(name, view)


def _check_contiguous(name: str, view: ArrayView) -> None:
    if not is_contiguous(view.shape, view.strides_bytes, view.dtype.itemsize):
        raise ValueError(f"{name} is not contiguous in C order")


def _targets(operation: RowOperation, out: Any) -> tuple[Any, ...]:
    """Return the caller's array for each output and for what is kept, None where there is none."""
    names = (*operation.write, *operation.keep)
    if out is None:
        return (None,) * len(names)
    if not isinstance(out, Mapping):
        if len(names) > 1:
            raise TypeError(f"{operation.name} writes {', '.join(names)}: out is a mapping of these names to arrays")
        out = {names[0]: out}
    for name, array in out.items():
        if name not in names:
            raise TypeError(f"{operation.name} writes {', '.join(names)}, not {name!r}")
        if isinstance(array, (np.ndarray, np.generic)):  # of which a view is a copy there
            raise TypeError(f"{name} is a NumPy array; it is written on the device: pass a device array, or none")
    return tuple(out.get(name) for name in names)


def _dtypes(operation: RowOperation, dtype: Any, outs: Mapping[str, ArrayView | None]) -> dict[str, Any]:
    """Return the dtypes of outputs that the caller asks for: by `dtype`, else by the arrays given for them."""
    asked = dict(dtype) if isinstance(dtype, Mapping) else dict.fromkeys(operation.write, dtype)
    only_known(operation, operation.output_types, asked)
    named = {name: numpy_dtype(each) for name, each in asked.items() if each is not None}
    own = {name: view.dtype for name, view in outs.items() if view is not None and operation.output_types[name] is None}
    return {**own, **named}


def _check_out(name: str, view: ArrayView, dtype: Any, shape: tuple[int, ...]) -> None:
    if view.dtype != dtype:
        raise TypeError(f"{name} is of {view.dtype}; the result is {dtype}")
    if tuple(view.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(view.shape)}; the result's is {shape}")
    if view.readonly:
        raise ValueError(f"{name} is read-only")
