"""Arrays in and out: DLPack, __cuda_array_interface__ and NumPy in; `DeviceArray`, which speaks all three, out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.driver import Buffer, Context, Event, Stream
from lowlevel_reduce.dtypes import element_type, numpy_dtype
from lowlevel_reduce.errors import ReduceError

__all__ = ["ArrayView", "DeviceArray", "view_array", "view_output"]

_NO_SYNCHRONIZATION = -1  # what DLPack and StridedMemoryView take for "do not order the streams"


@dataclass(frozen=True)
class ArrayView:
    """Somebody's array on the device: what a launch needs to know, and what keeps the memory alive.

    `strides_bytes` is None where the array is contiguous in C order.
    """

    pointer: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...] | None
    dtype: np.dtype[Any]
    readonly: bool
    owner: Any


class DeviceArray:
    """An array in device memory: what a reduction returns.

    It exports ``__dlpack__`` and ``__cuda_array_interface__`` (version 3), both ordered after the stream that computes
    it, and converts to a host value, which waits for that stream.

    Attributes
    ----------
    shape : tuple of int
        () for a single value.
    dtype : numpy.dtype
        Type of the elements; bfloat16 is that of ml_dtypes.
    stream : Stream
        The stream in whose order the content is there.
    """

    __slots__ = ("__weakref__", "_buffer", "dtype", "shape", "stream")

    def __init__(self, buffer: Buffer, dtype: npt.DTypeLike, shape: tuple[int, ...], stream: Stream) -> None:
        self.dtype = numpy_dtype(dtype)
        self.shape = tuple(shape)
        self.stream = stream
        self._buffer = buffer
        if buffer.size_bytes < self.nbytes:
            raise ValueError(
                f"{self.shape} of {self.dtype} needs {self.nbytes} bytes; the buffer has {buffer.size_bytes}"
            )

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: npt.DTypeLike, stream: Stream) -> DeviceArray:
        """Allocate an array in a stream's order; its content is undefined."""
        resolved = numpy_dtype(dtype)
        return cls(Buffer.allocate_async(math.prod(shape) * resolved.itemsize, stream), resolved, shape, stream)

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any], stream: Stream) -> DeviceArray:
        """Copy a NumPy array, contiguous in C order, to the device in a stream's order.

        The driver has read `array` when the call returns, unless it is page-locked.
        """
        if not array.flags.c_contiguous:
            raise ValueError(f"a NumPy array of strides {array.strides} is not contiguous in C order")
        copy = cls.empty(array.shape, array.dtype, stream)
        if array.nbytes:
            copy._buffer.copy_from(array, stream=stream)
        return copy

    @property
    def pointer(self) -> int:
        """Device address of the first element; 0 for an array of no elements."""
        return self._buffer.pointer

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def context(self) -> Context:
        """The context of the memory."""
        return self._buffer.context

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy on the host; waits for the array's stream."""
        array: npt.NDArray[Any] = np.empty(self.shape, self.dtype)
        if array.nbytes:
            self._buffer.copy_to(array, stream=self.stream, size_bytes=array.nbytes)
            self.stream.synchronize()
        return array

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return a copy on the host, for ``numpy.asarray``."""
        if copy is False:
            raise ValueError("a device array cannot become a NumPy array without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def item(self) -> Any:
        """Return the only element as a Python number; waits for the array's stream."""
        if self.size != 1:
            raise ValueError(f"an array of shape {self.shape} is not a single value")
        return self.numpy().reshape(()).item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3; the consumer must order itself after ``stream``."""
        if self.dtype.name == "bfloat16":
            raise AttributeError("bfloat16 has no code in __cuda_array_interface__; use __dlpack__")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "strides": None,
            "version": 3,
            "stream": self.stream.handle or 1,  # 0 is not allowed there: 1 is the legacy stream
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (kDLCUDA, ordinal)."""
        return (2, self.context.device.ordinal)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the memory; it lives until the consumer lets go of it.

        Parameters
        ----------
        stream : int, optional
            The consumer's stream, which is made to wait, by an event, for this array's: None or 1 for the legacy
            default stream, 2 for the per-thread one, -1 for no ordering.
        max_version, dl_device, copy : optional
            As the array API standard defines them. Copies and other devices are refused.

        Raises
        ------
        BufferError
            If a copy or another device is asked for.
        """
        if copy:
            raise BufferError("a device array is exported without a copy")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the array is on device {self.__dlpack_device__()}, not on {tuple(dl_device)}")
        if stream is None or stream != _NO_SYNCHRONIZATION:
            self._order_before(1 if stream is None else stream)
        views = _strided_memory_view()
        with self.context.pushed():
            from cuda.core import Buffer as CoreBuffer  # noqa: PLC0415

            memory = CoreBuffer.from_handle(self.pointer, self.nbytes, owner=self)
            view = views.from_buffer(memory, self.shape, dtype=self.dtype)
            return view.__dlpack__(stream=_NO_SYNCHRONIZATION, max_version=max_version)

    def _order_before(self, consumer: int) -> None:
        if consumer != self.stream.handle:
            with self.context.pushed():
                _wait(Stream.from_handle(consumer, context=self.context), self.stream)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype} on {self.stream!r}>"


def _wait(consumer: Stream, producer: Stream) -> None:
    """Order what `consumer` does from now on after what `producer` has been given; the host does not wait."""
    with Event.create(producer.context, timing=False) as event:
        producer.record(event)
        consumer.wait(event)


def view_array(x: Any, stream: Stream) -> ArrayView:
    """Return an array's memory on the device, ready for work in `stream`.

    Parameters
    ----------
    x : DeviceArray, numpy.ndarray, or object with ``__dlpack__`` or ``__cuda_array_interface__``
        A NumPy array is copied to the device. Work of the producer's stream is waited for by `stream`, by an event.
    stream : Stream
        Where the array will be used. Its context must be current.

    Raises
    ------
    TypeError
        If `x` is none of these.
    ValueError
        If the array's memory is on the host.
    UnsupportedError
        If its type cannot be reduced.
    """
    if isinstance(x, np.ndarray):
        element_type(x.dtype)
        x = DeviceArray.from_numpy(x, stream)
    if isinstance(x, DeviceArray):
        if x.stream.handle != stream.handle:
            _wait(stream, x.stream)
        return ArrayView(x.pointer, x.shape, None, x.dtype, readonly=False, owner=x)
    if not hasattr(x, "__dlpack__") and not hasattr(x, "__cuda_array_interface__"):
        raise TypeError(
            f"{type(x).__name__} is no array: neither NumPy's, nor with __dlpack__ or __cuda_array_interface__"
        )
    return _foreign_view(x, stream)


def view_output(out: Any, dtype: np.dtype[Any], stream: Stream) -> ArrayView:
    """Return the memory of an array that shall hold one result, ready for work in `stream`.

    Raises
    ------
    TypeError
        If `out` is no device array, or of another type than `dtype`.
    ValueError
        If it is not one element, read-only, or on the host.
    """
    if isinstance(out, np.ndarray):
        raise TypeError("out is a NumPy array; the result is written on the device: pass a device array, or none")
    view = view_array(out, stream)
    if view.dtype != dtype:
        raise TypeError(f"out is of {view.dtype}; the result is {dtype}")
    if math.prod(view.shape) != 1:
        raise ValueError(f"out has shape {view.shape}; the result is one element")
    if view.readonly:
        raise ValueError("out is read-only")
    return view


def _foreign_view(x: Any, stream: Stream) -> ArrayView:
    view = _strided_memory_view().from_any_interface(x, stream_ptr=stream.handle or 1)
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


def _strided_memory_view() -> Any:
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
