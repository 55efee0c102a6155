"""Norms, squares and the dot product, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from lowlevel_reduce.arguments import shown
from lowlevel_reduce.calls.reduce import reduce
from lowlevel_reduce.functions.keywords import own_keywords

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lowlevel_reduce.arrays.allocator import Allocator
    from lowlevel_reduce.arrays.device_array import DeviceArray
    from lowlevel_reduce.functions.annotations import ArrayLike, Out, StreamLike
    from lowlevel_reduce.operators import ElementMap

__all__ = ["dot", "norm", "sum_squares"]


# fmt: off
@overload
def norm(
    x: ArrayLike, ord: float = 2, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
    stream: StreamLike | None = None, where: ArrayLike | None = None, second: ArrayLike | None = None,
    map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
) -> DeviceArray: ...
@overload
def norm(
    x: ArrayLike, ord: float = 2, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: Out, stream: StreamLike | None = None,
    where: ArrayLike | None = None, second: ArrayLike | None = None, map: str | ElementMap | None = None,
    strategy: str | None = None, allocator: Allocator | None = None,
) -> Out: ...
# fmt: on
@own_keywords
def norm(
    x: ArrayLike,
    ord: float = 2,
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
    """Return a vector norm of order 1, 2 or infinity; 0 over no elements.

    The order stands second, as in ``numpy.linalg.norm``, and the axis third.

    Parameters
    ----------
    x : array
        A `DeviceArray`, anything with ``__dlpack__`` or ``__cuda_array_interface__`` on the device, or a NumPy array,
        which is copied there. Any shape, strides and byte alignment.
    ord : float
        The order: 1 for the sum of magnitudes, 2 for the Euclidean norm, infinity for the largest magnitude.
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
        The norms, real numbers of the shape of the kept axes; `out` if that was given. The content is available in the
        order of the stream: the host does not wait for it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an array, has the wrong shape or type, or is on the host or on another device or context;
        if an axis or option does not make sense; if `ord` is anything else.
    UnsupportedError
        If the operator does not take the type, or the device lacks what the strategy needs.
    BufferError
        From the library of an array, if it does not export it by DLPack, e.g. a sparse tensor.
    NoDriverError, NoCompilerError, CompileError, CacheError, CudaError
        From the driver, the compiler or the cache.
    """
    return reduce(
        x,
        norm_name(ord),
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
def sum_squares(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
    stream: StreamLike | None = None, where: ArrayLike | None = None, second: ArrayLike | None = None,
    map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
) -> DeviceArray: ...
@overload
def sum_squares(
    x: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: Out, stream: StreamLike | None = None,
    where: ArrayLike | None = None, second: ArrayLike | None = None, map: str | ElementMap | None = None,
    strategy: str | None = None, allocator: Allocator | None = None,
) -> Out: ...
# fmt: on
@own_keywords
def sum_squares(
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
    """Return the sum of the squares, 0 over no elements.

    Integers and bool are summed in 64 bits.

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
        The sums, of the shape of the kept axes; `out` if that was given. The content is available in the order of the
        stream: the host does not wait for it.

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
        "sum_squares",
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
def dot(
    x: ArrayLike, y: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
    stream: StreamLike | None = None, strategy: str | None = None, allocator: Allocator | None = None,
) -> DeviceArray: ...
@overload
def dot(
    x: ArrayLike, y: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False,
    dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: Out, stream: StreamLike | None = None,
    strategy: str | None = None, allocator: Allocator | None = None,
) -> Out: ...
# fmt: on
@own_keywords
def dot(
    x: ArrayLike,
    y: ArrayLike,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    dtype: npt.DTypeLike | None = None,
    accumulate: str | None = None,
    out: Any = None,
    stream: StreamLike | None = None,
    strategy: str | None = None,
    allocator: Allocator | None = None,
) -> Any:
    """Return the sum of the products of two arrays' elements, 0 over no elements.

    Integers and bool are summed in 64 bits; complex numbers are multiplied as they are, not conjugated.

    Parameters
    ----------
    x : array
        A `DeviceArray`, anything with ``__dlpack__`` or ``__cuda_array_interface__`` on the device, or a NumPy array,
        which is copied there. Any shape, strides and byte alignment.
    y : array
        The second array, of the type of `x`; broadcast to it.
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
    strategy : str, optional
        As for `lowlevel_reduce.plan`; all give the same bits.
    allocator : Allocator, optional
        Supplies the memory of workspace and result, instead of the driver.

    Returns
    -------
    DeviceArray or object
        The sums of products, of the shape of the kept axes; `out` if that was given. The content is available in the
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
        "dot",
        second=y,
        axis=axis,
        keepdims=keepdims,
        dtype=dtype,
        accumulate=accumulate,
        out=out,
        stream=stream,
        strategy=strategy,
        allocator=allocator,
    )


def norm_name(ord: float) -> str:
    """Return the operator of a norm's order."""
    names = {1: "norm1", 2: "norm2", float("inf"): "norm_inf"}
    try:
        name = None if isinstance(ord, bool) else names.get(ord)
    except TypeError:  # not hashable
        name = None
    if name is None:
        raise ValueError(f"a norm is of order 1, 2 or inf, not {shown(ord)}")
    return name
