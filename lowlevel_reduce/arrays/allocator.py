"""A caller's allocator: two functions, from which workspaces and results come and to which each goes back once."""

from __future__ import annotations

import functools
from collections.abc import Callable

from lowlevel_reduce.driver import Buffer, Context, Stream, binding, captures
from lowlevel_reduce.driver.handle import Life, within
from lowlevel_reduce.driver.held import Held
from lowlevel_reduce.driver.pointers import check_pointer
from lowlevel_reduce.driver.stream import ThreadStream

__all__ = ["Allocator", "StreamOrdered"]


class Allocator:
    """Two functions of the caller's that supply the memory of workspaces and results, instead of the driver.

    Parameters
    ----------
    alloc : callable
        ``alloc(size_bytes, stream_handle) -> pointer`` returns the address of device memory of the stream's context,
        aligned to 16 bytes, that work put into that stream from now on may use. It is never called for zero bytes.
    free : callable
        ``free(pointer, size_bytes, stream_handle)`` is called once for each address that `alloc` returned, with the
        same numbers. From then on no more work that uses the memory is put into the stream, but work that is already
        there may still run: the memory may be reused in the order of the stream.

    Raises
    ------
    TypeError
        If one of them is not callable.
    """

    __slots__ = ("alloc", "free")

    def __init__(self, alloc: Callable[[int, int], int], free: Callable[[int, int, int], object]) -> None:
        for name, function in (("alloc", alloc), ("free", free)):
            if not callable(function):
                raise TypeError(f"{name} is a function, not {type(function).__name__}")
        self.alloc = alloc
        self.free = free

    def allocate(self, size_bytes: int, stream: Stream, *, what: str = "the memory") -> Buffer:
        """Return memory of the caller's, for use in a stream's order; it is freed when closed or garbage-collected.

        Parameters
        ----------
        size_bytes : int
            Size of the memory; for 0, neither function is called.
        stream : Stream
            The stream in whose order the memory is used.
        what : str
            What the memory is for, in error messages.

        Raises
        ------
        TypeError
            If `alloc` does not return an integer.
        ValueError
            If it returns null, or an address that is not `size_bytes` of device memory of the stream's context, aligned
            to 16 bytes; such an address is passed to `free`.
        """
        stream = stream.fixed()
        context = stream.context
        if not size_bytes:
            return Buffer.from_pointer(0, 0, context=context)
        handle = stream.handle
        if isinstance(stream, ThreadStream):  # lets its release detect the context's end; nothing can be lost yet
            context.life.note(binding.selected(), context.handle)
        memory, held = _Lent.of(size_bytes, stream, self.free)
        pointer = held.take_from(self.alloc, size_bytes, handle)
        if not pointer:
            held.forget()
            raise ValueError(f"{what}: alloc returned a null pointer for {size_bytes} bytes")
        memory._handle = pointer
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
    """The driver's own allocator: memory of the device's current pool, allocated and freed in the order of a stream."""

    __slots__ = ()

    def __init__(self) -> None:
        """Make one; it needs no functions of the caller's."""

    def allocate(self, size_bytes: int, stream: Stream, *, what: str = "the memory") -> Buffer:
        """Return memory in a stream's order; if that is captured, it is the graph's, from here to its close."""
        del what  # the driver's memory needs no check
        return Buffer.allocate_async(size_bytes, stream)

    def __repr__(self) -> str:
        return "<StreamOrdered>"


class _Lent(Buffer):
    """Memory of a caller's allocator; releasing it gives it back."""

    __slots__ = ()

    @classmethod
    def of(cls, size_bytes: int, stream: Stream, free: Callable[[int, int, int], object]) -> tuple[_Lent, Held]:
        """Return the memory, and what is to hold its address, which the caller's function is asked for next."""
        self, held = cls.__new__(cls), Held(binding.selected())
        release = functools.partial(_free, held, free, size_bytes, stream.handle)
        if isinstance(stream, ThreadStream):
            context = stream.context
            release = functools.partial(_free_in_thread, context.life, context.handle, stream, held, release)
        # The stream is kept alive: the caller's function gets its handle.
        self._fill_in(size_bytes, context=stream.context, kind="device", release=(held, release), owner=stream)
        return self, held


def _free(held: Held, free: Callable[[int, int, int], object], size_bytes: int, stream: int) -> None:
    held.give_back_by(free, held.handle, size_bytes, stream)


def _free_in_thread(life: Life, context: int, stream: ThreadStream, held: Held, free: Callable[[], None]) -> None:
    """Free in the order of the calling thread's default stream: that is what the handle that `free` gets means now."""
    implementation = held.implementation
    if held.handle is None:
        return
    if not stream.is_here and not life.ended(implementation, context):
        legacy = Stream.legacy(Context.from_handle(context))
        if within(implementation, context, lambda: captures.take(implementation, legacy.handle)):
            captures.put_off(implementation, functools.partial(_free_in_thread, life, context, stream, held, free))
            return
        try:
            Stream.per_thread(legacy.context).follow(legacy)
        except Exception:
            free()
            raise
    free()
