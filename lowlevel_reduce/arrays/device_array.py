"""Arrays in and out: the memory of any array as input; `DeviceArray`, which exports the array protocols, as output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

import numpy as np

from lowlevel_reduce.arguments import instance, integer, not_masked, shown
from lowlevel_reduce.arrays.allocator import Allocator
from lowlevel_reduce.arrays.exchange import ArrayView, foreign_view, produced_view
from lowlevel_reduce.arrays.exports import Exported
from lowlevel_reduce.arrays.libraries import producer_of
from lowlevel_reduce.arrays.protocols import has_member
from lowlevel_reduce.arrays.results import Cell, Part
from lowlevel_reduce.arrays.values import Value
from lowlevel_reduce.driver import Buffer, Context, Device, Stream, binding, readback
from lowlevel_reduce.dtypes import element_type, numpy_dtype, understood
from lowlevel_reduce.layout import contiguous_strides, is_contiguous, lengths_of

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["ArrayView", "DeviceArray", "order_after", "view_array", "view_output"]


class DeviceArray(Value, Exported):
    """An array in device memory, contiguous in C order: what a reduction returns.

    It exports ``__dlpack__`` and ``__cuda_array_interface__`` (version 3), both ordered after the stream that computes
    it, and converts to a host value, which waits for that stream. So do ``print``, format specifications, comparisons
    and arithmetic of a single value: see `Value`. ``repr`` describes the array, and never waits.
    Indices, slices and `reshape` give arrays in the same memory, which they keep alive.

    Attributes
    ----------
    shape : tuple of int
        () for a single value.
    dtype : numpy.dtype
        Type of the elements; bfloat16 is that of ml_dtypes.
    stream : Stream
        The stream in whose order the content is available. It is resolved when the array is made, so it is the same
        stream whatever is current later and on every thread: a default stream stays that of the context that was
        current, and a per-thread one that of the thread that made the array. See `Stream.fixed`.
    """

    __slots__ = ("__weakref__", "_home", "_memory", "dtype", "shape", "stream")

    _home: int | None  # the context's number, where the memory is known to be whole and of that context
    _memory: Buffer | Cell
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    stream: Stream

    def __init__(self, buffer: Buffer, dtype: npt.DTypeLike, shape: tuple[int, ...], stream: Stream) -> None:
        instance(buffer, Buffer, "a DeviceArray's memory")
        instance(stream, Stream, "a DeviceArray's stream")
        self.dtype = _kept_dtype(dtype)
        self.shape = lengths_of(shape)
        self.stream = stream.fixed()
        self._home = None
        self._memory = buffer
        if buffer.size_bytes < self.nbytes:
            raise ValueError(
                f"{self.shape} of {self.dtype} needs {self.nbytes} bytes; the buffer has {buffer.size_bytes}"
            )

    @classmethod
    def empty(
        cls, shape: tuple[int, ...], dtype: npt.DTypeLike, stream: Stream, allocator: Allocator | None = None
    ) -> DeviceArray:
        """Allocate an array in a stream's order, from the driver or an allocator; its content is undefined."""
        resolved, shape, stream = _kept_dtype(dtype), lengths_of(shape), Stream.of(stream).fixed()
        size_bytes = math.prod(shape) * resolved.itemsize
        if size_bytes >= 1 << 63:
            raise ValueError(f"shape {shown(shape)} of {resolved} needs {size_bytes} bytes, which no device has")
        if allocator is not None:
            instance(allocator, Allocator, "the allocator")
            return cls(allocator.allocate(size_bytes, stream, what="the result"), resolved, shape, stream)
        self = cls(Buffer.allocate_async(size_bytes, stream), resolved, shape, stream)
        self._home = stream.context.id
        return self

    @classmethod
    def of_cell(cls, dtype: np.dtype[Any], shape: tuple[int, ...], cell: Cell, stream: Stream) -> DeviceArray:
        """Return an array in a cell, which it fits, in a fixed stream; nothing is checked: this is a hot path."""
        self = cls.__new__(cls)
        self._home = cell.pool.context_id
        self._memory = cell
        self.dtype = dtype
        self.shape = shape
        self.stream = stream
        return self

    @property
    def _buffer(self) -> Buffer:
        memory = self._memory
        if isinstance(memory, Cell):
            # Borrowed: the cell goes back when neither this nor the array needs it.
            return Buffer.from_pointer(memory.pointer, self.nbytes, context=memory.pool.context, owner=memory)
        return memory

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any], stream: Stream) -> DeviceArray:
        """Copy a NumPy array of any strides to the device in a stream's order.

        `array` may be changed once the call returns, unless it is page-locked and C-contiguous: then not before the
        stream has passed the copy.

        Raises
        ------
        TypeError
            If it is not a NumPy array, holds Python objects, or is masked: its mask would be lost.
        ValueError
            If the stream is being captured: a replay would read host memory that may be gone by then.
        """
        if not isinstance(array, (np.ndarray, np.generic)):
            raise TypeError(f"what is copied to the device is a NumPy array, not {type(array).__name__}")
        stream = Stream.of(stream)
        if stream.is_capturing:
            raise ValueError(
                "a NumPy array cannot be copied to the device in a capture, whose replays would read it again: "
                "copy it before, with DeviceArray.from_numpy"
            )
        array = np.ascontiguousarray(not_masked(array)).reshape(array.shape)  # a host copy where it lies otherwise
        copy = cls.empty(array.shape, array.dtype, stream)
        if array.nbytes:
            copy._buffer.copy_from(array, stream=stream)
        return copy

    @property
    def pointer(self) -> int:
        """Device address of the first element; 0 for an array of no elements.

        Raises
        ------
        ValueError
            If the memory was closed, or its context has ended.
        """
        memory = self._memory
        pointer = memory.pointer
        context = memory.pool.context if isinstance(memory, Cell) else memory._context
        if pointer and context is not None and context.has_ended:
            raise ValueError("the context of the array's memory has ended")
        return pointer

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
    def strides(self) -> tuple[int, ...]:
        """Bytes from one index of each axis to the next, as NumPy gives them: those of C order."""
        return contiguous_strides(self.shape, self.dtype.itemsize)

    @property
    def context(self) -> Context:
        """The context of the memory."""
        memory = self._memory
        return memory.pool.context if isinstance(memory, Cell) else memory.context

    @property
    def device(self) -> Device:
        """The device of the memory."""
        return self.context.device

    def __len__(self) -> int:
        """Return the length of the first axis; raises TypeError for a single value without axes."""
        if not self.shape:
            raise TypeError("a single value has no len()")
        return self.shape[0]

    def __iter__(self) -> Iterator[DeviceArray]:
        """Return the parts at each index of the first axis, without copies; each of them waits when it is converted."""
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: Any) -> DeviceArray:
        """Return a part that lies in one piece, without a copy: integers, then a slice of step 1, then all of the rest.

        Raises
        ------
        IndexError
            If there is no such index or axis, or the part does not lie in one piece.
        TypeError
            If it is no integer, slice or ellipsis.
        """
        from lowlevel_reduce.arrays.indexing import part_of  # noqa: PLC0415 - few take parts

        first, shape = part_of(self.shape, index)
        size = math.prod(shape) * self.dtype.itemsize
        pointer = self.pointer + first * self.dtype.itemsize if size else 0
        memory = Buffer.from_pointer(pointer, size, context=self.context, owner=self._memory)
        part = DeviceArray(memory, self.dtype, shape, self.stream)
        part._home = self._home
        return part

    def reshape(self, *shape: int | Sequence[int]) -> DeviceArray:
        """Return an array of another shape in the same memory, without a copy; one length may be -1, to be found.

        Raises
        ------
        ValueError
            If it has another number of elements.
        TypeError
            If a length is no integer.
        """
        from lowlevel_reduce.arrays.indexing import reshaped  # noqa: PLC0415 - as above

        made = DeviceArray.__new__(DeviceArray)
        made.shape = reshaped(self.shape, shape)
        made.dtype, made.stream = self.dtype, self.stream
        made._home, made._memory = self._home, self._memory
        return made

    def ravel(self) -> DeviceArray:
        """Return an array of one axis in the same memory, without a copy."""
        return self.reshape(self.size)

    def plane(self, index: int) -> DeviceArray:
        """Return the part of an array at one index of its first axis, without a copy; it keeps the whole alive."""
        shape, index = self.shape[1:], integer(index, "a plane's index is an integer")
        if not self.shape or not 0 <= index < self.shape[0]:
            raise IndexError(f"an array of shape {self.shape} has no plane {index}")
        size = math.prod(shape) * self.dtype.itemsize
        if isinstance(self._memory, Cell):
            return DeviceArray.of_cell(self.dtype, shape, Part(self._memory, index * size), self.stream)
        part = Buffer.from_pointer(self.pointer + index * size, size, context=self.context, owner=self._buffer)
        return DeviceArray(part, self.dtype, shape, self.stream)

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy on the host; waits for the array's stream.

        Raises
        ------
        CudaError
            If the driver refuses, or reports an error of earlier work. During a capture of any stream that is not
            "relaxed", the wait is refused and invalidates the capture: see `Graph.capture`.
        """
        if 0 < self.nbytes <= readback.MAX_BYTES:
            content = readback.read(self._memory.pointer, self.nbytes, self.stream)
            return np.array(np.frombuffer(content, self.dtype).reshape(self.shape))
        array: npt.NDArray[Any] = np.empty(self.shape, self.dtype)
        if array.nbytes and isinstance(self._memory, Cell):
            address, handle = array.__array_interface__["data"][0], self.stream.handle
            with self.stream.context.pushed():
                binding.call("cuMemcpyAsync", address, self._memory.pointer, array.nbytes, handle)
                binding.call("cuStreamSynchronize", handle)
        elif array.nbytes:
            self._buffer.copy_to(array, stream=self.stream, size_bytes=array.nbytes)
            self.stream.synchronize()
        return array

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return a copy on the host, for ``numpy.asarray``."""
        if copy is False:
            raise ValueError("a device array cannot become a NumPy array without a copy")
        wanted = self.dtype if dtype is None else understood(dtype)
        return self.numpy().astype(wanted, copy=False)

    def item(self) -> Any:
        """Return the only element as a Python number; waits for the array's stream, and raises as `numpy` does."""
        if self.shape and self.size != 1:
            raise ValueError(f"an array of shape {self.shape} is not a single value")
        content = readback.read(self._memory.pointer, self.dtype.itemsize, self.stream)
        return np.frombuffer(content, self.dtype).item()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse ``copy`` and ``pickle``, whose copy would be the same memory, or another process's; see `numpy`."""
        raise TypeError("DeviceArray objects are neither copied nor pickled: numpy() returns an array that is")

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype} on {self.stream!r}>"


def _kept_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return the dtype of elements that device memory can hold; raises TypeError for objects of Python's."""
    resolved = numpy_dtype(dtype)
    if resolved.hasobject:
        raise TypeError(f"{resolved} is of Python's objects, which the device cannot hold")
    return resolved


def view_array(x: Any, stream: Stream) -> ArrayView:
    """Return an array's memory on the device, ready for work in `stream`.

    Parameters
    ----------
    x : DeviceArray, numpy.ndarray or scalar, or object with ``__dlpack__`` or ``__cuda_array_interface__``
        NumPy data is copied to the device. `stream` is made to wait for the work in the producer's stream, by an event.
    stream : Stream
        Where the array will be used. Its context must be current.

    Raises
    ------
    TypeError
        If `x` is none of these.
    ValueError
        If the array's memory is on the host.
    UnsupportedError
        If its element type is not supported.
    BufferError
        From its library, if that does not export it.
    """
    if isinstance(x, (np.ndarray, np.generic)):
        not_masked(x)
        element_type(x.dtype)
        x = DeviceArray.from_numpy(np.asarray(x), stream)
    if isinstance(x, DeviceArray):
        if not stream.is_same(x.stream):
            stream.follow(x.stream)
        return ArrayView(x.pointer, x.shape, None, x.dtype, readonly=False, owner=x)
    producer = producer_of(type(x))
    if producer is not None and producer.plain(x):
        return produced_view(x, producer, stream)
    if not has_member(x, "__dlpack__") and not has_member(x, "__cuda_array_interface__"):
        raise TypeError(
            f"{type(x).__name__} is no array: neither NumPy's, nor with __dlpack__ or __cuda_array_interface__"
        )
    return foreign_view(x, stream)


def order_after(stream: Stream, *used: Any) -> None:
    """Let the stream of each `DeviceArray` in `used` wait for the work that `stream` has with the arrays so far.

    That is needed because an output's content is promised in the order of the array's own stream, and an input is
    overwritten, or freed and reused, in that order. A stream that is not being captured does not wait for one that is,
    since it would become part of the graph.
    """
    waiting: list[Stream] = []
    for array in used:
        if isinstance(array, DeviceArray) and not any(array.stream.is_same(each) for each in (stream, *waiting)):
            waiting.append(array.stream)
    if waiting and stream.is_capturing:
        waiting = [each for each in waiting if each.is_capturing]
    for each in waiting:
        each.follow(stream)


def view_output(out: Any, dtype: np.dtype[Any], shape: tuple[int, ...], stream: Stream) -> ArrayView:
    """Return the memory of an array for results, ready for work in `stream`.

    Raises
    ------
    TypeError
        If `out` is not a device array, or its element type is not `dtype`.
    ValueError
        If it has another shape (a single result may go into any array of one element), or is not contiguous, read-only,
        or on the host.
    """
    if isinstance(out, (np.ndarray, np.generic)):  # which `view_array` would copy there
        kind = "array" if isinstance(out, np.ndarray) else "scalar"
        raise TypeError(f"out is a NumPy {kind}; the result is written on the device: pass a device array, or none")
    view = view_array(out, stream)
    if view.dtype != dtype:
        raise TypeError(f"out is of {view.dtype}; the result is {dtype}")
    if tuple(view.shape) != shape and not math.prod(shape) == math.prod(view.shape) == 1:
        raise ValueError(f"out has shape {tuple(view.shape)}; the result's is {shape}")
    if math.prod(shape) > 1 and not is_contiguous(shape, view.strides_bytes, dtype.itemsize):
        raise ValueError("out is not contiguous in C order")
    if view.readonly:
        raise ValueError("out is read-only")
    return view
