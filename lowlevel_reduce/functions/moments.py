"""Variances and standard deviations, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from lowlevel_reduce.calls.reduce import reduce
from lowlevel_reduce.functions.keywords import own_keywords

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lowlevel_reduce.arrays.allocator import Allocator
    from lowlevel_reduce.arrays.device_array import DeviceArray
    from lowlevel_reduce.functions.annotations import ArrayLike, MeanVar, Out, StreamLike
    from lowlevel_reduce.operators import ElementMap

__all__ = ["mean_var", "std", "var"]


# fmt: off
@overload
def var(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, out: None = None, stream: StreamLike | None = None,
    where: ArrayLike | None = None, ddof: float = 0, correction: float | None = None,
    map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
) -> DeviceArray: ...
@overload
def var(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, out: Out, stream: StreamLike | None = None, where: ArrayLike | None = None,
    ddof: float = 0, correction: float | None = None, map: str | ElementMap | None = None, strategy: str | None = None,
    allocator: Allocator | None = None,
) -> Out: ...
# fmt: on
@own_keywords
def var(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    dtype: npt.DTypeLike | None = None,
    out: Any = None,
    stream: StreamLike | None = None,
    where: ArrayLike | None = None,
    ddof: float = 0,
    correction: float | None = None,
    map: str | ElementMap | None = None,
    strategy: str | None = None,
    allocator: Allocator | None = None,
) -> Any:
    """Return the variance, in one pass, with the number of elements less `ddof` as the divisor.

    It is real for complex elements, as in NumPy.

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
    out : array, optional
        Where to write the result: a contiguous device array of the result's shape and type.
    stream : Stream or object with ``__cuda_stream__``, optional
        Where to run; the call works in its context. By default a `DeviceArray` is reduced in its own stream, an array
        of PyTorch or CuPy in the library's current stream, in the primary context, and any other, as NumPy's, in the
        legacy default stream of the current context or, if none is current, of the primary context of device 0.
    where : array of bool, optional
        Mask of the elements that take part; broadcast to `x`.
    ddof : float
        Subtracted from the number of elements in the divisor: any real number from 0 on.
    correction : float, optional
        The array API's name of `ddof`; one of both is given.
    map : str or ElementMap, optional
        A CUDA C++ expression in ``x`` whose value is reduced in place of each element.
    strategy : str, optional
        As for `lowlevel_reduce.plan`; all give the same bits.
    allocator : Allocator, optional
        Supplies the memory of workspace and result, instead of the driver.

    Returns
    -------
    DeviceArray or object
        The variances, of the shape of the kept axes; `out` if that was given. The content is available in the order of
        the stream: the host does not wait for it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an array, has the wrong shape or type, or is on the host or on another device or context;
        if an axis or option does not make sense; if both `ddof` and `correction` are given.
    UnsupportedError
        If the operator does not take the type, or the device lacks what the strategy needs.
    BufferError
        From the library of an array, if it does not export it by DLPack, e.g. a sparse tensor.
    NoDriverError, NoCompilerError, CompileError, CacheError, CudaError
        From the driver, the compiler or the cache.
    """
    return reduce(
        x,
        "var",
        axis=axis,
        keepdims=keepdims,
        dtype=dtype,
        out=out,
        stream=stream,
        where=where,
        ddof=ddof if correction is None else divisor(ddof, correction),
        map=map,
        strategy=strategy,
        allocator=allocator,
    )


# fmt: off
@overload
def std(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, out: None = None, stream: StreamLike | None = None,
    where: ArrayLike | None = None, ddof: float = 0, correction: float | None = None,
    map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
) -> DeviceArray: ...
@overload
def std(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, out: Out, stream: StreamLike | None = None, where: ArrayLike | None = None,
    ddof: float = 0, correction: float | None = None, map: str | ElementMap | None = None, strategy: str | None = None,
    allocator: Allocator | None = None,
) -> Out: ...
# fmt: on
@own_keywords
def std(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    dtype: npt.DTypeLike | None = None,
    out: Any = None,
    stream: StreamLike | None = None,
    where: ArrayLike | None = None,
    ddof: float = 0,
    correction: float | None = None,
    map: str | ElementMap | None = None,
    strategy: str | None = None,
    allocator: Allocator | None = None,
) -> Any:
    """Return the standard deviation, in one pass: the root of the variance that `var` returns.

    It is real for complex elements, as in NumPy.

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
    out : array, optional
        Where to write the result: a contiguous device array of the result's shape and type.
    stream : Stream or object with ``__cuda_stream__``, optional
        Where to run; the call works in its context. By default a `DeviceArray` is reduced in its own stream, an array
        of PyTorch or CuPy in the library's current stream, in the primary context, and any other, as NumPy's, in the
        legacy default stream of the current context or, if none is current, of the primary context of device 0.
    where : array of bool, optional
        Mask of the elements that take part; broadcast to `x`.
    ddof : float
        Subtracted from the number of elements in the divisor: any real number from 0 on.
    correction : float, optional
        The array API's name of `ddof`; one of both is given.
    map : str or ElementMap, optional
        A CUDA C++ expression in ``x`` whose value is reduced in place of each element.
    strategy : str, optional
        As for `lowlevel_reduce.plan`; all give the same bits.
    allocator : Allocator, optional
        Supplies the memory of workspace and result, instead of the driver.

    Returns
    -------
    DeviceArray or object
        The standard deviations, of the shape of the kept axes; `out` if that was given. The content is available in the
        order of the stream: the host does not wait for it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an array, has the wrong shape or type, or is on the host or on another device or context;
        if an axis or option does not make sense; if both `ddof` and `correction` are given.
    UnsupportedError
        If the operator does not take the type, or the device lacks what the strategy needs.
    BufferError
        From the library of an array, if it does not export it by DLPack, e.g. a sparse tensor.
    NoDriverError, NoCompilerError, CompileError, CacheError, CudaError
        From the driver, the compiler or the cache.
    """
    return reduce(
        x,
        "std",
        axis=axis,
        keepdims=keepdims,
        dtype=dtype,
        out=out,
        stream=stream,
        where=where,
        ddof=ddof if correction is None else divisor(ddof, correction),
        map=map,
        strategy=strategy,
        allocator=allocator,
    )


# fmt: off
@overload
def mean_var(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, out: None = None, stream: StreamLike | None = None,
    where: ArrayLike | None = None, ddof: float = 0, correction: float | None = None,
    map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
) -> MeanVar: ...
@overload
def mean_var(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, out: Out, stream: StreamLike | None = None, where: ArrayLike | None = None,
    ddof: float = 0, correction: float | None = None, map: str | ElementMap | None = None, strategy: str | None = None,
    allocator: Allocator | None = None,
) -> Out: ...
# fmt: on
@own_keywords
def mean_var(
    x: ArrayLike,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    dtype: npt.DTypeLike | None = None,
    out: Any = None,
    stream: StreamLike | None = None,
    where: ArrayLike | None = None,
    ddof: float = 0,
    correction: float | None = None,
    map: str | ElementMap | None = None,
    strategy: str | None = None,
    allocator: Allocator | None = None,
) -> Any:
    """Return the mean and the variance, in one pass, as a named tuple ``(mean, var)``.

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
    out : array, optional
        Where to write both results: a contiguous device array of shape ``(2, *shape)`` and of the results' type.
    stream : Stream or object with ``__cuda_stream__``, optional
        Where to run; the call works in its context. By default a `DeviceArray` is reduced in its own stream, an array
        of PyTorch or CuPy in the library's current stream, in the primary context, and any other, as NumPy's, in the
        legacy default stream of the current context or, if none is current, of the primary context of device 0.
    where : array of bool, optional
        Mask of the elements that take part; broadcast to `x`.
    ddof : float
        Subtracted from the number of elements in the divisor: any real number from 0 on.
    correction : float, optional
        The array API's name of `ddof`; one of both is given.
    map : str or ElementMap, optional
        A CUDA C++ expression in ``x`` whose value is reduced in place of each element.
    strategy : str, optional
        As for `lowlevel_reduce.plan`; all give the same bits.
    allocator : Allocator, optional
        Supplies the memory of workspace and result, instead of the driver.

    Returns
    -------
    named tuple of DeviceArray, or object
        Means and variances, each of the shape of the kept axes; `out` if that was given. The content is available in
        the order of the stream: the host does not wait for it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an array, has the wrong shape or type, or is on the host or on another device or context;
        if an axis or option does not make sense; if both `ddof` and `correction` are given.
    UnsupportedError
        If the operator does not take the type, or the device lacks what the strategy needs.
    BufferError
        From the library of an array, if it does not export it by DLPack, e.g. a sparse tensor.
    NoDriverError, NoCompilerError, CompileError, CacheError, CudaError
        From the driver, the compiler or the cache.
    """
    return reduce(
        x,
        "mean_var",
        axis=axis,
        keepdims=keepdims,
        dtype=dtype,
        out=out,
        stream=stream,
        where=where,
        ddof=ddof if correction is None else divisor(ddof, correction),
        map=map,
        strategy=strategy,
        allocator=allocator,
    )


def divisor(ddof: float, correction: float) -> float:
    """Return what is subtracted in a divisor, `correction`, where it was not given by its other name, too."""
    if ddof != 0:
        raise TypeError("correction= is the array API's name of ddof=: pass one of them")
    return correction
