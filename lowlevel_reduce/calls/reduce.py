"""The one-shot reduction: an array in, a `DeviceArray` out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce import layout
from lowlevel_reduce.arguments import flag, plain_axes, real, shown
from lowlevel_reduce.arrays.device_array import ArrayView
from lowlevel_reduce.calls.execute import Made, execute
from lowlevel_reduce.calls.options import forced_strategy, key_options

if TYPE_CHECKING:
    from lowlevel_reduce.arrays.allocator import Allocator
    from lowlevel_reduce.calls.forms import Form
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.calls.threads import Thread
    from lowlevel_reduce.operators import ElementMap

__all__ = ["reduce"]

# The last axes that were looked at. A literal in a loop is one object, so it is looked at once: 0.1 us a call.
_plain_axes: Any = ()


def reduce(
    x: Any,
    op: Any = "sum",
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    accumulate: str | None = None,
    out: Any = None,
    stream: Any = None,
    nan: str = "propagate",
    where: Any = None,
    initial: Any = None,
    second: Any = None,
    ddof: float = 0,
    last: bool = False,
    map: str | ElementMap | None = None,
    strategy: str | None = None,
    allocator: Allocator | None = None,
) -> Any:
    """Reduce an array over some of its axes, in the order of the one tree.

    Parameters
    ----------
    x : array
        A `DeviceArray`, anything with ``__dlpack__`` or ``__cuda_array_interface__`` on the device, or a NumPy array,
        which is copied there. Any shape, strides and byte alignment; nothing on the device is copied. A masked array
        is refused, since its mask would be lost: pass ``x.data`` and ``where=~x.mask``. A NumPy array may be changed
        once the call returns; one in page-locked memory, and in C order, not before the stream has passed the copy.
    op : str or Operator
        The operator, or its name.
    axis : int, sequence of int or None
        Axes to reduce; None for all. The elements of a row are taken in C order of the reduced axes.
    keepdims : bool
        Whether the reduced axes stay in the result's shape, with length 1.
    dtype : dtype, optional
        Type of the result; by default what NumPy's function gives.
    accumulate : str, optional
        The accumulator, as for `lowlevel_reduce.tree.reduce`.
    out : array, optional
        Where to write the result: a contiguous device array of the result's shape and type. For an operator with two
        results, its shape is ``(2, *shape)``.
    stream : Stream or object with ``__cuda_stream__``, optional
        Where to run; the call works in its context. By default a `DeviceArray` is reduced in its own stream, an array
        of PyTorch or CuPy in the library's current stream, in the primary context, and any other, as NumPy's, in the
        legacy default stream of the current context or, if none is current, of the primary context of device 0.
    nan : {"propagate", "ignore"}
        Whether NaN elements propagate to the result or are left out. "ignore" is for sum, mean, min and max.
    where : array of bool, optional
        Mask of the elements that take part; broadcast to `x`.
    initial : scalar, optional
        Start value, for sum, prod, min and max; it is combined at the root of the tree. For integer elements, its
        whole part must fit the accumulator of a sum or product, and its exact value the element type of min and max.
        With ``nan="ignore"``, min and max leave out an initial value that is NaN.
    second : array, optional
        Second array, for an operator that takes two; broadcast to `x`.
    ddof : float
        Subtracted from the number of elements in the divisor of var, std and mean_var: any real number from 0 on.
    last : bool
        Whether argmin and argmax return the last of equal values instead of the first.
    map : str or ElementMap, optional
        A CUDA C++ expression in ``x`` (and ``y``, from the second array) whose value is reduced in place of each
        element; for all built-in operators but dot. For var, std and mean_var it may use one array only.
    strategy : str, optional
        As for `lowlevel_reduce.plan`; all give the same bits.
    allocator : Allocator, optional
        Supplies the memory of workspace and result, instead of the driver. The workspace is given back before the
        call returns, the result when the last reference to it goes.

    Returns
    -------
    DeviceArray, named tuple of them, or object
        The result, or a named tuple of the operator's results; `out` if that was given. The content is available in
        the order of the stream: the host does not wait for it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an array, has the wrong shape or type, or is on the host or on another device or context;
        if an axis or option does not make sense; if rows are empty and the operator has no result for empty rows.
    UnsupportedError
        If the operator does not take the type, or the device lacks what the strategy needs.
    BufferError
        From the library of an array, if it does not export it by DLPack, e.g. a sparse tensor.
    NoDriverError, NoCompilerError, CompileError, CacheError, CudaError
        From the driver, the compiler or the cache. The context that was current before the call is current after it.
    """
    if where is not None and second is not None:
        raise ValueError("a reduction takes a mask or a second array, not both")
    global _plain_axes  # noqa: PLW0603 - whichever thread's it is, it is plain
    # Keys take True, 1 and 1.0 for the same. What most write is seen to be plain at once: this is a hot path.
    if axis is not None and axis is not _plain_axes and type(axis) is not int:
        axis = _plain_axes = plain_axes(axis)
    if type(ddof) is not int:
        ddof = real(ddof, "ddof is a real number")
    masked = where is not None
    options = ("reduce", axis, keepdims, dtype, accumulate, nan, ddof, last, map, strategy, masked)

    # By their places: keywords are one more thing to sort out in every call.
    return execute(x, op, options, _described, where if masked else second, out, stream, initial, allocator)


def _described(
    thread: Thread, place: Place, views: tuple[ArrayView, ...], op: Any, options: tuple[Any, ...], initial: Any
) -> tuple[tuple[Any, ...], Made]:
    """Return the key of a reduction of these arrays in a place, and what prepares it."""
    source, other = views[0], views[1] if len(views) > 1 else None
    kinds = (source.dtype, None if other is None else other.dtype)
    key = (place, op, options, *kinds, initial is None, forced_strategy())
    form = thread.form(key, _form, place, *kinds, op, options, initial is not None)
    shape, strides, beside = source.shape, source.strides_bytes, None if other is None else _spread(other, source)
    return (form, shape, strides, beside), functools.partial(form.prepared, shape, strides, beside, initial)


def _form(
    place: Place,
    element: np.dtype[Any],
    second: np.dtype[Any] | None,
    op: Any,
    options: tuple[Any, ...],
    has_initial: bool,
) -> Form:
    from lowlevel_reduce.calls.forms import Form  # noqa: PLC0415 - with the first of them

    _, axis, keepdims, dtype, accumulate, nan, ddof, last, map, strategy, masked = options
    if strategy is not None and not isinstance(strategy, str):
        raise TypeError(f"a strategy is a name, not {shown(strategy)}")
    plain = key_options(op, dtype=dtype, accumulate=accumulate, nan=nan, last=last, map=map)
    given = {"where": masked, "initial": has_initial, "ddof": ddof, **plain}
    return Form(op, place, element, second, axis=axis, keepdims=flag(keepdims, "keepdims"), strategy=strategy, **given)


def _spread(view: ArrayView, source: ArrayView) -> tuple[int, ...]:
    """Return the strides in bytes of a mask or second array that is broadcast to the first."""
    strides = view.strides_bytes or layout.contiguous_strides(view.shape, view.dtype.itemsize)
    if view.shape == source.shape:
        return strides
    missing = len(source.shape) - len(view.shape)
    sizes = (1,) * missing + view.shape
    if missing < 0 or any(size not in (1, length) for size, length in zip(sizes, source.shape, strict=True)):
        raise ValueError(f"shape {view.shape} cannot be broadcast to {source.shape}")
    return tuple(
        0 if size == 1 else stride for size, stride in zip(sizes, (0,) * missing + tuple(strides), strict=True)
    )
