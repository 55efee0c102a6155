"""One call of a row operation: arrays in, arrays out, the plan looked up or made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.arguments import instance, integer
from lowlevel_reduce.arrays.allocator import Allocator
from lowlevel_reduce.arrays.device_array import ArrayView, DeviceArray, order_after, view_array
from lowlevel_reduce.calls.threads import here
from lowlevel_reduce.driver import binding
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.layout import contiguous_strides, is_contiguous
from lowlevel_reduce.operators import result_tuple
from lowlevel_reduce.rowops.operation import RowOperation
from lowlevel_reduce.rowops.plan import RowPlan, parameter_words, row_plan

if TYPE_CHECKING:
    from lowlevel_reduce.driver import Stream
    from lowlevel_reduce.rowops.launch import RowLaunch

__all__ = ["row_operation"]


def row_operation(
    operation: RowOperation,
    x: Any,
    *,
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
    """Apply a row operation to an array's last axis.

    Parameters
    ----------
    operation : RowOperation
        What to do.
    x : array
        A `DeviceArray`, anything with ``__dlpack__`` or ``__cuda_array_interface__``, or a NumPy array, which is copied
        to the device. Any strides along all axes but the last, whose elements are contiguous; any address.
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
        Columns and row inputs, contiguous arrays, and parameters, by name.

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
    if allocator is not None:
        instance(allocator, Allocator, "the allocator")
    if block is not None:
        block = integer(block, "block is an integer")
    if (second is not None) != operation.second:
        raise TypeError(f"{operation.name} takes {'a second array' if operation.second else 'one array'}")
    names = (*operation.columns, *operation.rows)
    for name in names:
        if given.get(name) is None:
            raise TypeError(f"{operation.name} needs {name}=")
    parameters = {name: value for name, value in given.items() if name not in names}
    words = parameter_words(operation, parameters)
    thread = here()
    stream = thread.stream_of(stream, x)
    with stream.context.pushed():
        given_rows = view_array(x, stream)
        inputs = [given_rows, *([_rows_like(second, given_rows, stream)] if operation.second else [])]
        inputs = [_in_blocks(each, block) for each in inputs]
        source = inputs[0]
        shape = tuple(source.shape)
        beside = {name: _flat(given[name], name, shape[-1:], stream) for name in operation.columns}
        beside |= {name: _flat(given[name], name, shape[:-1], stream) for name in operation.rows}
        outs = _outs(operation, out, stream)
        whole = tuple(given_rows.shape)
        for name in outs.keys() & operation.write.keys():
            array, view = outs[name]
            if tuple(view.shape) != whole:
                raise ValueError(f"{name} has shape {tuple(view.shape)}; the result's is {whole}")
            outs[name] = (array, _in_blocks(view, block))
        dtypes = _dtypes(operation, dtype, outs)
        key = (
            operation, words, shape, source.dtype, strategy, cluster,
            *(_strides(each) for each in inputs), *((each.dtype, ) for each in beside.values()),
            *((name, each.dtype, _strides(each)) for name, (_, each) in outs.items()), *dtypes.items(),
        )  # fmt: skip

        def make() -> RowPlan:
            return row_plan(
                operation,
                shape=shape,
                dtype=source.dtype,
                strides_bytes=source.strides_bytes,
                second_strides_bytes=inputs[1].strides_bytes if operation.second else None,
                output_strides_bytes={
                    name: view.strides_bytes
                    for name, (_, view) in outs.items()
                    if name in operation.write and view.strides_bytes is not None
                },
                columns={name: beside[name].dtype for name in operation.columns},
                rows={name: beside[name].dtype for name in operation.rows},
                outputs=dtypes,
                parameters=parameters,
                context=stream.context,
                strategy=strategy,
                cluster=cluster,
            )

        place, known = thread.place_of(stream), ("row operation", *key)
        found = thread.prepared(place, known)
        if found is None or not found[1].is_free:  # none, or that of a call which a signal's handler has interrupted
            plan = make()
            found = plan, plan.bind(stream)
            thread.prepare(place, known, found)
        plan, launch = found
        return _run(plan, launch, [*inputs, *beside.values()], outs, stream, allocator, whole)


def _run(
    plan: RowPlan,
    launch: RowLaunch,
    inputs: list[ArrayView],
    outs: Mapping[str, tuple[Any, ArrayView]],
    stream: Stream,
    allocator: Allocator | None,
    whole: tuple[int, ...],
) -> Any:
    """Allocate, check every address, launch once, and return the outputs."""
    operation = plan.operation
    results, pointers = [], [view.pointer for view in inputs]
    for name, dtype in zip((*operation.write, *operation.keep), plan.output_dtypes, strict=True):
        shape = plan.shape if name in operation.write else plan.shape[:-1]
        if name in outs:
            array, view = outs[name]
            _check_out(name, view, dtype, shape, strided=name in operation.write)
            results.append(array)
            pointers.append(view.pointer)
        else:
            made = DeviceArray.allocated(whole if name in operation.write else shape, dtype, stream, allocator)
            results.append(made)
            pointers.append(made.pointer)
    launch.check(*pointers)
    if stream.is_capturing:  # a graph may use the kernels, and nothing tells when it ends
        launch.keep_loaded(binding.selected().kept.setdefault("kernels of graphs", {}))
    launch(*pointers)
    order_after(stream, *results, *(view.owner for view in inputs))
    if len(results) == 1:
        return results[0]
    return result_tuple(operation.name, (*operation.write, *operation.keep))(*results)


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


def _rows_like(second: Any, source: ArrayView, stream: Stream) -> ArrayView:
    view = view_array(second, stream)
    if tuple(view.shape) != tuple(source.shape) or view.dtype != source.dtype:
        raise ValueError(
            f"the second array is of shape {tuple(view.shape)} and {view.dtype}; the first of {tuple(source.shape)} "
            f"and {source.dtype}"
        )
    return view


def _flat(array: Any, name: str, shape: tuple[int, ...], stream: Stream) -> ArrayView:
    view = view_array(array, stream)
    if tuple(view.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(view.shape)}, not {shape}")
    if math.prod(shape) > 1 and not is_contiguous(shape, view.strides_bytes, view.dtype.itemsize):
        raise ValueError(f"{name} is not contiguous in C order")
    return view


def _outs(operation: RowOperation, out: Any, stream: Stream) -> dict[str, tuple[Any, ArrayView]]:
    """Return the caller's arrays for outputs, and their memory, by name."""
    names = (*operation.write, *operation.keep)
    if out is None:
        return {}
    if not isinstance(out, Mapping):
        if len(names) > 1:
            raise TypeError(f"{operation.name} writes {', '.join(names)}: out is a mapping of these names to arrays")
        out = {names[0]: out}
    found = {}
    for name, array in out.items():
        if name not in names:
            raise TypeError(f"{operation.name} writes {', '.join(names)}, not {name!r}")
        if isinstance(array, (np.ndarray, np.generic)):  # which `view_array` would copy there
            raise TypeError(f"{name} is a NumPy array; it is written on the device: pass a device array, or none")
        if array is not None:
            found[name] = (array, view_array(array, stream))
    return found


def _dtypes(operation: RowOperation, dtype: Any, outs: Mapping[str, tuple[Any, ArrayView]]) -> dict[str, Any]:
    """Return the dtypes of outputs that the caller asks for: by `dtype`, else by the arrays given for them."""
    asked = dict(dtype) if isinstance(dtype, Mapping) else dict.fromkeys(operation.write, dtype)
    for name in asked:
        if name not in operation.output_types:
            raise TypeError(f"{operation.name} writes no {name!r}")
    named = {name: numpy_dtype(each) for name, each in asked.items() if each is not None}
    own = {name: view.dtype for name, (_, view) in outs.items() if operation.output_types[name] is None}
    return {**own, **named}


def _check_out(name: str, view: ArrayView, dtype: Any, shape: tuple[int, ...], *, strided: bool) -> None:
    if view.dtype != dtype:
        raise TypeError(f"{name} is of {view.dtype}; the result is {dtype}")
    if tuple(view.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(view.shape)}; the result's is {shape}")
    strides = view.strides_bytes or contiguous_strides(shape, dtype.itemsize)
    if not strided and math.prod(shape) > 1 and not is_contiguous(shape, strides, dtype.itemsize):
        raise ValueError(f"{name} is not contiguous in C order")
    if view.readonly:
        raise ValueError(f"{name} is read-only")
