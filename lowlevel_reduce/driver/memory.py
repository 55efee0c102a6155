"""Device and pinned memory: allocated, borrowed, copied and filled, with every byte count checked."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.arguments import instance, integer, shown
from lowlevel_reduce.driver import binding, captures
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.frees import free_async
from lowlevel_reduce.driver.handle import Handle
from lowlevel_reduce.driver.held import Held
from lowlevel_reduce.driver.pointers import PointerInfo, pointer_info
from lowlevel_reduce.driver.stream import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lowlevel_reduce.driver.pool import MemoryPool

__all__ = ["Buffer", "PointerInfo", "pointer_info"]

_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for every context, not only the one that asked
_KINDS = ("device", "pinned")


class Buffer(Handle):
    """A run of bytes that the GPU can address. Make one with `allocate`, `allocate_async`, `pinned` or `from_pointer`.

    A buffer of zero bytes is legal: its pointer is 0, and nothing is allocated.
    """

    __slots__ = ("_context", "_kind", "_size_bytes", "_stream")

    _noun = "buffer"
    _makers = ("allocate", "allocate_async", "pinned", "from_pointer")

    _size_bytes: int
    _context: Context | None
    _kind: str
    _stream: Stream | None

    @classmethod
    def allocate(cls, size_bytes: int, context: Context | None = None) -> Buffer:
        """Allocate device memory, aligned to at least 256 bytes; its content is undefined.

        Parameters
        ----------
        size_bytes : int
            How much.
        context : Context, optional
            Where; without one the current context, else the primary one of device 0.
        """
        context, size_bytes = Context.of(context), _checked_size(size_bytes)
        return cls._allocate(size_bytes, context, kind="device", allocate="cuMemAlloc", options=(), free="cuMemFree")

    @classmethod
    def pinned(cls, size_bytes: int, context: Context | None = None) -> Buffer:
        """Allocate page-locked host memory, which every context can copy to and from without staging."""
        context, size_bytes = Context.of(context), _checked_size(size_bytes)
        return cls._allocate(
            size_bytes, context, kind="pinned", allocate="cuMemHostAlloc", options=(_PORTABLE,), free="cuMemFreeHost"
        )

    @classmethod
    def allocate_async(cls, size_bytes: int, stream: Stream, *, pool: MemoryPool | None = None) -> Buffer:
        """Allocate device memory from a pool, in the order of `stream`; returns at once.

        The memory may be used by work that is put into `stream` from now on, and in other streams after they waited for
        `stream`. It is also freed in the order of `stream`, or of the stream that ``close(stream=...)`` names. If that
        is being captured, and the memory was not allocated in the capture, it is kept until the capture has ended.

        Parameters
        ----------
        size_bytes : int
            How much.
        stream : Stream
            In whose order.
        pool : MemoryPool, optional
            The pool; without one the current pool of the stream's device.

        Raises
        ------
        ValueError
            If the pool is closed, or of another device than the stream.
        """
        size_bytes = _checked_size(size_bytes)
        stream = Stream.of(stream).fixed()  # the free comes later, whatever is current then, on whichever thread
        context, home = stream.context, 0
        device = context.device.handle
        implementation, of_graph = binding.selected(), False
        captures.free_put_off(implementation)
        self, held = cls.__new__(cls), Held(implementation)
        with context.pushed() if size_bytes else contextlib.nullcontext():
            if size_bytes:
                context.life.note(implementation, context.handle)
                # A default stream is that of what is current; for any other a green context need not be, which may be
                # so in one thread alone, while the collector runs in any.
                home = context.handle if stream.is_default else context.home
                of_graph = captures.take(implementation, stream.handle)
            # The partial holds the stream: a stream that is still owned must not be destroyed before the free.
            release = functools.partial(free_async, held, context.life, context.handle, home, device, of_graph, stream)
            self._fill_in(size_bytes, context=context, kind="device", release=(held, release) if size_bytes else None)
            self._stream = stream
            if size_bytes:
                self._handle = pointer = _from_pool(size_bytes, stream, pool, held)
                if of_graph:
                    captures.note(implementation, pointer, size_bytes, context.device.ordinal)
        return self

    @classmethod
    def from_pointer(
        cls, pointer: int, size_bytes: int, *, context: Context | None = None, owner: Any = None, kind: str = "device"
    ) -> Buffer:
        """Borrow somebody's memory; `owner` is kept alive, and the memory is never freed here.

        Parameters
        ----------
        pointer : int
            Its address.
        size_bytes : int
            How much of it.
        context : Context, optional
            Its context; without one the current context at each use, else the primary one of device 0.
        owner : object, optional
            Whatever holds the memory.
        kind : str
            "device" or "pinned".
        """
        if not isinstance(kind, str) or kind not in _KINDS:
            raise ValueError(f'kind is "device" or "pinned", not {shown(kind)}')
        pointer, size_bytes = integer(pointer, "a buffer's address is an integer"), _checked_size(size_bytes)
        if context is not None:
            instance(context, Context, "the context")
        if not 0 <= pointer < 2**64 or (size_bytes and not pointer):
            raise ValueError(f"{pointer:#x} is not the address of {size_bytes} bytes")
        self = cls.__new__(cls)
        self._fill_in(size_bytes, context=context, kind=kind, owner=owner)
        self._handle = pointer
        return self

    @classmethod
    def _allocate(
        cls, size_bytes: int, context: Context, *, kind: str, allocate: str, options: tuple[int, ...], free: str
    ) -> Buffer:
        self, held = cls.__new__(cls), Held(binding.selected())
        with context.pushed() if size_bytes else contextlib.nullcontext():
            release = context.holder.releasing(free, held, inside=True) if size_bytes else None
            self._fill_in(size_bytes, context=context, kind=kind, release=release)
            if size_bytes:
                self._handle = int(held.take(allocate, size_bytes, *options))
        return self

    def _fill_in(
        self,
        size_bytes: int,
        *,
        context: Context | None,
        kind: str,
        release: Any = None,
        owner: Any = None,
    ) -> None:
        self._size_bytes = size_bytes
        self._context = context
        self._kind = kind
        self._stream = None
        self._adopt(0 if release is None else None, release, owner)

    def close(self, *, stream: Stream | None = None) -> None:
        """Free the memory if it is owned; a second call does nothing.

        Parameters
        ----------
        stream : Stream, optional
            For memory of `allocate_async` only: free it in the order of this stream instead of its own. A default
            stream without a context is that of the memory's context.
        """
        if stream is not None:
            if self._stream is None:
                raise ValueError("only memory allocated in stream order can be freed in a stream's order")
            owned = self._owned
            if owned is not None and isinstance(owned.release, functools.partial) and not self.is_closed:
                owned.release = self._freed_in(Stream.of(stream), owned.release)
        super().close()

    def _freed_in(self, stream: Stream, release: functools.partial[None]) -> functools.partial[None]:
        """Return a release of `allocate_async` in the order of another stream."""
        held, life, context, home, device, of_graph, _ = release.args
        if not stream.is_closed and stream.is_default:
            own = stream._context or self.context  # what must be current, for the handle to mean this stream
            stream = Stream.from_handle(stream.handle, context=own).fixed()
            own.life.note(held.implementation, own.handle)
            life, context, home = own.life, own.handle, own.handle
        return functools.partial(release.func, held, life, context, home, device, of_graph, stream)

    @property
    def pointer(self) -> int:
        """The address of the first byte.

        Raises
        ------
        ValueError
            If the buffer is closed.
        """
        return self.handle

    @property
    def size_bytes(self) -> int:
        """How many bytes it has."""
        return self._size_bytes

    @property
    def kind(self) -> str:
        """Either "device" or "pinned"."""
        return self._kind

    @property
    def context(self) -> Context:
        """The context it was made in or borrowed with, else the current one, else the primary one of device 0."""
        return self._context or Context.current_or_primary()

    def __len__(self) -> int:
        return self._size_bytes

    def host_view(self) -> NDArray[np.uint8]:
        """Return pinned memory as an array of bytes that shares it and keeps it alive; ``close()`` still frees it.

        Raises
        ------
        ValueError
            If it is device memory, which the host cannot address.
        """
        if self._kind != "pinned":
            raise ValueError("device memory has no host view: copy it with copy_to")
        if not self._size_bytes:
            return np.empty(0, np.uint8)
        array = (ctypes.c_uint8 * self._size_bytes).from_address(self.pointer)
        array._buffer = self  # type: ignore[attr-defined]
        return np.frombuffer(memoryview(array), np.uint8)

    def copy_from(self, source: Any, *, stream: Stream | None = None, size_bytes: int | None = None) -> None:
        """Copy `source` into the beginning of this buffer.

        Parameters
        ----------
        source : Buffer, array or object with the buffer protocol
            Host objects must be contiguous.
        stream : Stream, optional
            Without one the copy is done when the call returns. It is then made in the legacy stream of this buffer's
            context, behind the work of that context's blocking streams alone: synchronise any other stream whose work
            it needs, such as one of `Stream.create`, which is non-blocking, or of another device. With one it is only
            put into the stream: the source must then not change until the stream has passed the copy. From pageable
            host memory, however, the driver stages the copy before it returns, so that nothing overlaps: use pinned
            memory for overlap.
        size_bytes : int, optional
            How much; without it source and buffer must have the same size.

        Raises
        ------
        ValueError
            If the sizes differ, `size_bytes` exceeds one of them, or a host object is not contiguous.
        """
        pointer, available, keep = _span(source, writable=False)
        size_bytes = _agreed(size_bytes, available, self._size_bytes)
        self._copy(self.pointer, pointer, size_bytes, stream, _contexts_apart(self, source))
        del keep  # held until the copy was made, or put into the stream

    def copy_call(self, source: Buffer, stream: Stream) -> tuple[Any, ...]:
        """Return the name and arguments of the driver call by which `copy_from` puts a copy into a stream.

        For callers that make it again and again, in the stream's context, while buffers and stream are open. It copies
        all of `source`, which must not be empty, nor larger than this buffer.
        """
        size_bytes = _agreed(source.size_bytes, source.size_bytes, self._size_bytes)
        apart = _contexts_apart(self, source)
        return *_copy_call(self.pointer, source.pointer, size_bytes, apart), stream.handle

    def copy_to(self, destination: Any, *, stream: Stream | None = None, size_bytes: int | None = None) -> None:
        """Copy the beginning of this buffer into `destination`, which if on the host must be contiguous and writable.

        Parameters and errors are those of `copy_from`. With a stream, the destination must live until the stream has
        passed the copy; a copy into pageable host memory does not return before that anyway.
        """
        pointer, available, keep = _span(destination, writable=True)
        size_bytes = _agreed(size_bytes, self._size_bytes, available)
        self._copy(pointer, self.pointer, size_bytes, stream, _contexts_apart(destination, self))
        del keep

    def fill(self, byte: int, *, stream: Stream | None = None) -> None:
        """Set every byte to `byte`, 0 to 255: in the order of `stream`, or without one before the call returns."""
        byte = integer(byte, "a byte is an integer")
        if not 0 <= byte <= 255:
            raise ValueError(f"a byte is 0 to 255, not {byte}")
        if self.pointer and self._size_bytes:
            self._enqueue(stream, "cuMemsetD8Async", self.pointer, byte, self._size_bytes)

    def _copy(self, to: int, of: int, size_bytes: int, stream: Stream | None, apart: tuple[int, ...]) -> None:
        if size_bytes:
            self._enqueue(stream, *_copy_call(to, of, size_bytes, apart))

    def _enqueue(self, stream: Stream | None, name: str, *args: int) -> None:
        # Without a stream: the legacy one, waited for. The driver's own synchronous calls do not wait for every pair
        # of memories (a copy within the device returns at once).
        target = Stream.legacy(self.context) if stream is None else Stream.of(stream)
        with target.context.pushed():
            binding.call(name, *args, target.handle)
            if stream is None:
                binding.call("cuStreamSynchronize", target.handle)


def _from_pool(size_bytes: int, stream: Stream, pool: MemoryPool | None, held: Held) -> int:
    if pool is None:
        return int(held.take("cuMemAllocAsync", size_bytes, stream.handle))
    from lowlevel_reduce.driver.pool import MemoryPool  # noqa: PLC0415 - which imports this module

    instance(pool, MemoryPool, "the pool")
    if pool.device != stream.context.device:
        raise ValueError(f"the pool is of {pool.device}, the stream of {stream.context.device}")
    return int(held.take("cuMemAllocFromPoolAsync", size_bytes, pool.handle, stream.handle))


def _checked_size(size_bytes: int) -> int:
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, (int, np.integer)):
        raise TypeError(f"size_bytes is an int, not {type(size_bytes).__name__}")
    if not 0 <= size_bytes < 1 << 63:
        raise ValueError(f"size_bytes is not negative, and less than 2^63: {size_bytes}")
    return int(size_bytes)


def _agreed(size_bytes: int | None, source: int, destination: int) -> int:
    if size_bytes is None:
        if source != destination:
            raise ValueError(f"the source has {source} bytes, the destination {destination}: pass size_bytes")
        return source
    if _checked_size(size_bytes) > min(source, destination):
        raise ValueError(f"{size_bytes} bytes exceed the source's {source} or the destination's {destination}")
    return size_bytes


def _copy_call(to: int, of: int, size_bytes: int, apart: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the name of a copy's driver call, and its arguments but the stream."""
    if apart:
        return "cuMemcpyPeerAsync", to, apart[0], of, apart[1], size_bytes
    # Addresses are unified, so one call serves every other pair of memories: the driver knows which is which.
    return "cuMemcpyAsync", to, of, size_bytes


def _contexts_apart(destination: Any, source: Any) -> tuple[int, ...]:
    """Return both contexts of memory of two devices, else none: a pool's is not reached by its address alone."""
    if not all(isinstance(each, Buffer) and each.kind == "device" for each in (destination, source)):
        return ()
    to, of = destination.context, source.context
    return () if to.device == of.device else (to.handle, of.handle)


def _span(obj: Any, *, writable: bool) -> tuple[int, int, Any]:
    """Return the address and byte count of a buffer or host object, and what keeps them valid."""
    if isinstance(obj, Buffer):
        return obj.pointer, obj.size_bytes, obj
    # ml_dtypes arrays export no buffer, so an array is taken as it is; np.asarray of a list would silently copy.
    array = obj if isinstance(obj, np.ndarray) else np.asarray(memoryview(obj))
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError(f"a host array must be contiguous; this one has strides {array.strides}")
    if writable and not array.flags.writeable:
        raise ValueError("the destination is read-only")
    return int(array.ctypes.data), array.nbytes, array
