"""Arrays of other libraries: their memory, by attributes or a protocol, and the order of their streams and ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lowlevel_reduce.driver import Context, Stream
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.layout import contiguous_strides
from lowlevel_reduce.producers import Producer

__all__ = ["ArrayView", "foreign_view", "produced_view", "strided_memory_view"]


class ArrayView(NamedTuple):
    """Somebody's array on the device: what a launch needs to know, and what keeps the memory alive.

    `strides_bytes` is None where the array is contiguous in C order.
    """

    pointer: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...] | None
    dtype: np.dtype[Any]
    readonly: bool
    owner: Any


def produced_view(x: Any, producer: Producer, stream: Stream) -> ArrayView:
    """Return the memory of a known library's array, ordered after the stream that the library works in."""
    ordinal = producer.key(x)[0]
    shape, strides_bytes, dtype = producer.facts(x)
    element_type(dtype)
    handle = producer.stream(ordinal)
    working = Stream.from_handle(handle)
    if working.is_default:  # of the primary context, in which these libraries work
        working = Stream.from_handle(handle, context=Context.primary(ordinal))
    if not stream.is_same(working):
        stream.follow(working)
    contiguous = strides_bytes == contiguous_strides(shape, dtype.itemsize)
    return ArrayView(producer.pointer(x), shape, None if contiguous else strides_bytes, dtype, readonly=False, owner=x)


def foreign_view(x: Any, stream: Stream) -> ArrayView:
    """Return the memory of an array by one of its protocols, ordered after its producer's work."""
    if getattr(x, "is_neg", bool)():
        raise ValueError("the tensor is negated lazily, and its memory holds other values: call resolve_neg()")
    view = strided_memory_view().from_any_interface(x, stream_ptr=stream.handle or 1)
    if not view.is_device_accessible:
        raise ValueError(f"{type(x).__name__} is in host memory; move it to the device, or pass it as a NumPy array")
    dtype = view.dtype
    strides = view.strides  # in elements
    return ArrayView(
        pointer=view.ptr,
        shape=tuple(view.shape),
        strides_bytes=None if strides is None else tuple(stride * dtype.itemsize for stride in strides),
        dtype=dtype,
        readonly=view.readonly,
        owner=(x, view),
    )


_strided: Callable[..., Any] | None = None


def strided_memory_view() -> Any:
    """Return cuda.core's StridedMemoryView, imported at the first need: it costs 85 ms."""
    global _strided  # noqa: PLW0603
    if _strided is None:
        try:
            from cuda.core.utils import StridedMemoryView  # noqa: PLC0415
        except ImportError as error:
            raise ReduceError(
                'DLPack and __cuda_array_interface__ need cuda-core: pip install "lowlevel-reduce[cu12]" or "[cu13]"'
            ) from error
        _strided = StridedMemoryView
    return _strided
