"""A caller's allocator: two functions from which workspaces and results are taken, and to which they go back once."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from lowlevel_reduce.bound import check_pointer
from lowlevel_reduce.driver import Buffer, Context, Stream, binding, captures
from lowlevel_reduce.driver.handle import Life, within
from lowlevel_reduce.driver.stream import ThreadStream

__all__ = ["Allocator", "StreamOrdered"]


class Allocator:
    """Where workspaces and results come from instead of the driver: two functions of the caller's.

    Parameters
    ----------
    alloc : callable
        ``alloc(size_bytes, stream_handle) -> pointer``: an address of device memory of the stream's context, aligned to
        16 bytes, which work put into that stream from now on may use. Never called for zero bytes.
    free : callable
        ``free(pointer, size_bytes, stream_handle)``: called once for each address that `alloc` returned, with the same
        numbers, when nothing more will be put into the stream that uses it; what was put there may still run.
    """

    __slots__ = ("alloc", "free")

    def __init__(self, alloc: Callable[[int, int], int], free: Callable[[int, int, int], object]) -> None:
        for name, function in (("alloc", alloc), ("free", free)):
            if not callable(function):
                raise TypeError(f"{name} is a function, not {type(function).__name__}")
        self.alloc = alloc
        self.free = free

    def allocate(self, size_bytes: int, stream: Stream, *, what: str = "the memory") -> Buffer:
        """Return memory of the caller's in a stream's order; closing it, or letting go of it, frees it.

        Parameters
        ----------
        size_bytes : int
            How much; 0 calls nothing.
        stream : Stream
            In whose order it is used.
        what : str
            What it is for, in messages.

        Raises
        ------
        TypeError
            If `alloc` returns no integer.
        ValueError
            If it returns null, or what is not `size_bytes` of device memory of the stream's context, aligned to 16
            bytes; this is given back to `free`.
        """
        stream = stream.fixed()
        context = stream.context
        if not size_bytes:
            return Buffer.from_pointer(0, 0, context=context)
        handle = stream.handle
        if isinstance(stream, ThreadStream):  # by which its release finds the end; now, while there is nothing to lose
            context.life.note(binding.selected(), context.handle)
        pointer = operator.index(self.alloc(size_bytes, handle))
        if not pointer:
            raise ValueError(f"{what}: alloc returned a null pointer for {size_bytes} bytes")
        memory = _Lent.of(pointer, size_bytes, stream, functools.partial(self.free, pointer, size_bytes, handle))
        try:
            with context.pushed():
                check_pointer(pointer, size_bytes, context, what=f"{what} of alloc", alignment=16)
        except BaseException:
            memory.close()
            raise
        return memory

    def __repr__(self) -> str:
        return f"<Allocator {self.alloc!r} {self.free!r}>"


class StreamOrdered(Allocator):
    """The driver's own: memory of the device's current pool, taken and given back in the order of a stream."""

    __slots__ = ()

    def __init__(self) -> None:
        """Take none of the caller's functions."""

    def allocate(self, size_bytes: int, stream: Stream, *, what: str = "the memory") -> Buffer:
        """Return memory in a stream's order; during a capture of that it is the graph's, from here to its close."""
        del what  # the driver's memory is what it should be
        return Buffer.allocate_async(size_bytes, stream)

    def __repr__(self) -> str:
        return "<StreamOrdered>"


class _Lent(Buffer):
    """Memory of a caller's allocator, which its release gives back."""

    __slots__ = ()

    @classmethod
    def of(cls, pointer: int, size_bytes: int, stream: Stream, release: Callable[[], object]) -> _Lent:
        self = cls.__new__(cls)
        if isinstance(stream, ThreadStream):
            implementation, context = binding.selected(), stream.context
            release = functools.partial(_free_in_thread, implementation, context.life, context.handle, stream, release)
        # The stream is kept: the caller's function is given its handle.
        self._fill_in(pointer, size_bytes, context=stream.context, kind="device", release=release, owner=stream)
        return self


def _free_in_thread(
    implementation: binding.Implementation,
    life: Life,
    context: int,
    stream: ThreadStream,
    free: Callable[[], object],
) -> None:
    """Free in the order of the calling thread's default stream, which the handle that `free` gets means by now."""
    if not stream.is_here and not life.ended(implementation, context):
        legacy = Stream.legacy(Context.from_handle(context))
        with within(implementation, context):
            if captures.take(implementation, legacy.handle):
                later = functools.partial(_free_in_thread, implementation, life, context, stream, free)
                captures.put_off(implementation, later)
                return
        try:
            Stream.per_thread(legacy.context).follow(legacy)
        finally:
            free()
    else:
        free()
