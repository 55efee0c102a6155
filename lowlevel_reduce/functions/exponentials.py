"""Sums of exponentials without overflow, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from lowlevel_reduce.calls.reduce import reduce
from lowlevel_reduce.functions.keywords import own_keywords

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lowlevel_reduce.arrays.allocator import Allocator
    from lowlevel_reduce.arrays.device_array import DeviceArray
    from lowlevel_reduce.functions.annotations import ArrayLike, Out, SoftmaxStats, StreamLike
    from lowlevel_reduce.operators import ElementMap

__all__ = ["logsumexp", "softmax_stats"]


# fmt: off
@overload
def logsumexp(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
    stream: StreamLike | None = None, where: ArrayLike | None = None, second: ArrayLike | None = None,
    map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
) -> DeviceArray: ...
@overload
def logsumexp(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: Out, stream: StreamLike | None = None,
    where: ArrayLike | None = None, second: ArrayLike | None = None, map: str | ElementMap | None = None,
    strategy: str | None = None, allocator: Allocator | None = None,
) -> Out: ...
# fmt: on
@own_keywords
def logsumexp(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    dtype: npt.DTypeLike | None = None,
    accumulate: str | None = None,
    out: Any = None,
    stream: StreamLike | None = None,
    where: ArrayLike | None = None,
    second: ArrayLike | None = None,
    map: str | ElementMap | None = None,
    strategy: str | None = None,
    allocator: Allocator | None = None,
) -> Any:
    """Return log(sum(exp(x))), in one pass and without overflow; minus infinity over no elements.

    Parameters
    ----------
    x : array
        A `DeviceArray`, anything with ``__dlpack__`` or ``__cuda_array_interface__`` on the device, or a NumPy array,
        which is copied there. Any shape, strides and byte alignment.
    axis : int, sequence of int or None
        Axes to reduce; None for all. The elements of a row are taken in C order of the reduced axes.
    keepdims : bool
        Whether the reduced axes stay in the result's shape, with length 1.
    dtype : dtype, optional
        Type of the result; by default what NumPy's function gives.
    accumulate : str, optional
        Type in which the elements are accumulated, as for `lowlevel_reduce.tree.reduce`.
    out : array, optional
        Where to write the result: a contiguous device array of the result's shape and type.
    stream : Stream or object with ``__cuda_stream__``, optional
        Where to run; the call works in its context. By default a `DeviceArray` is reduced in its own stream, an array
        of PyTorch or CuPy in the library's current stream, in the primary context, and any other, as NumPy's, in the
        legacy default stream of the current context or, if none is current, of the primary context of device 0.
    where : array of bool, optional
        Mask of the elements that take part; broadcast to `x`.
    second : array, optional
        Second array, for a `map` that takes two; broadcast to `x`. Not together with `where`.
    map : str or ElementMap, optional
        A CUDA C++ expression in ``x`` (and ``y``, from the second array) whose value is reduced in place of each
        element.
    strategy : str, optional
        As for `lowlevel_reduce.plan`; all give the same bits.
    allocator : Allocator, optional
        Supplies the memory of workspace and result, instead of the driver.

    Returns
    -------
    DeviceArray or object
        The logarithms, of the shape of the kept axes; `out` if that was given. The content is available in the order of
        the stream: the host does not wait for it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an array, has the wrong shape or type, or is on the host or on another device or context;
        if an axis or option does not make sense.
    UnsupportedError
        If the operator does not take the type, or the device lacks what the strategy needs.
    BufferError
        From the library of an array, if it does not export it by DLPack, e.g. a sparse tensor.
    NoDriverError, NoCompilerError, CompileError, CacheError, CudaError
        From the driver, the compiler or the cache.
    """
    return reduce(
        x,
        "logsumexp",
        axis=axis,
        keepdims=keepdims,
        dtype=dtype,
        accumulate=accumulate,
        out=out,
        stream=stream,
        where=where,
        second=second,
        map=map,
        strategy=strategy,
        allocator=allocator,
    )


# fmt: off
@overload
def softmax_stats(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
    stream: StreamLike | None = None, where: ArrayLike | None = None, second: ArrayLike | None = None,
    map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
) -> SoftmaxStats: ...
@overload
def softmax_stats(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: Out, stream: StreamLike | None = None,
    where: ArrayLike | None = None, second: ArrayLike | None = None, map: str | ElementMap | None = None,
    strategy: str | None = None, allocator: Allocator | None = None,
) -> Out: ...
# fmt: on
@own_keywords
def softmax_stats(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    dtype: npt.DTypeLike | None = None,
    accumulate: str | None = None,
    out: Any = None,
    stream: StreamLike | None = None,
    where: ArrayLike | None = None,
    second: ArrayLike | None = None,
    map: str | ElementMap | None = None,
    strategy: str | None = None,
    allocator: Allocator | None = None,
) -> Any:
    """Return the maximum and the sum of exp(x - max), in one pass, as a named tuple ``(max, sum)``.

    They are what a softmax divides by, and what partial softmaxes are joined by. Over no elements they are minus
    infinity and 0.

    Parameters
    ----------
    x : array
        A `DeviceArray`, anything with ``__dlpack__`` or ``__cuda_array_interface__`` on the device, or a NumPy array,
        which is copied there. Any shape, strides and byte alignment.
    axis : int, sequence of int or None
        Axes to reduce; None for all. The elements of a row are taken in C order of the reduced axes.
    keepdims : bool
        Whether the reduced axes stay in the result's shape, with length 1.
    dtype : dtype, optional
        Type of the result; by default what NumPy's function gives.
    accumulate : str, optional
        Type in which the elements are accumulated, as for `lowlevel_reduce.tree.reduce`.
    out : array, optional
        Where to write both results: a contiguous device array of shape ``(2, *shape)`` and of the results' type.
    stream : Stream or object with ``__cuda_stream__``, optional
        Where to run; the call works in its context. By default a `DeviceArray` is reduced in its own stream, an array
        of PyTorch or CuPy in the library's current stream, in the primary context, and any other, as NumPy's, in the
        legacy default stream of the current context or, if none is current, of the primary context of device 0.
    where : array of bool, optional
        Mask of the elements that take part; broadcast to `x`.
    second : array, optional
        Second array, for a `map` that takes two; broadcast to `x`. Not together with `where`.
    map : str or ElementMap, optional
        A CUDA C++ expression in ``x`` (and ``y``, from the second array) whose value is reduced in place of each
        element.
    strategy : str, optional
        As for `lowlevel_reduce.plan`; all give the same bits.
    allocator : Allocator, optional
        Supplies the memory of workspace and result, instead of the driver.

    Returns
    -------
    named tuple of DeviceArray, or object
        Maxima and sums, each of the shape of the kept axes; `out` if that was given. The content is available in the
        order of the stream: the host does not wait for it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an array, has the wrong shape or type, or is on the host or on another device or context;
        if an axis or option does not make sense.
    UnsupportedError
        If the operator does not take the type, or the device lacks what the strategy needs.
    BufferError
        From the library of an array, if it does not export it by DLPack, e.g. a sparse tensor.
    NoDriverError, NoCompilerError, CompileError, CacheError, CudaError
        From the driver, the compiler or the cache.
    """
    return reduce(
        x,
        "softmax_stats",
        axis=axis,
        keepdims=keepdims,
        dtype=dtype,
        accumulate=accumulate,
        out=out,
        stream=stream,
        where=where,
        second=second,
        map=map,
        strategy=strategy,
        allocator=allocator,
    )
