"""Memory for small results: slots of larger allocations, each reused in the order of its stream."""

from __future__ import annotations

import functools
import operator

from lowlevel_reduce.driver import Buffer, Context, Stream

__all__ = ["SLOT_BYTES", "Slot", "Slots"]

SLOT_BYTES = 256
"""Size and alignment of a slot in bytes; ``cuMemAlloc`` aligns to as many."""

_SLOTS = 1024
"""Slots of a chunk of 256 KiB: one allocation by the driver (about 2 µs) serves a thousand results."""


_call = operator.methodcaller("__call__")


class Slot:
    """Device memory of `SLOT_BYTES`, given back when the last reference goes.

    The next user works in the same stream, and so after all earlier work of the stream: the guarantee of a
    stream-ordered free, without a driver call. Before the last reference goes, work of other streams that uses the slot
    must be done, or this stream must wait for it; the one-shot functions ensure that. ``cuMemFreeAsync`` requires the
    same.

    Attributes
    ----------
    pointer : int
        Its device address.
    slots : Slots
        Where it came from and goes back to.
    """

    __slots__ = ("pointer", "slots")

    def __init__(self, pointer: int, slots: Slots) -> None:
        self.pointer = pointer
        self.slots = slots

    def __del__(self) -> None:
        self.slots.free.append(self.pointer)


class Slots:
    """The slots of one stream. Any thread may take and give back slots; the memory lives until the last slot is gone.

    Attributes
    ----------
    stream : Stream
        The stream in whose order slots are used.
    context : Context
        The stream's context.
    context_id : int
        The context's number in the driver.
    free : list of int
        Addresses of the slots that are not in use; pop one for a `Slot`, or call `take`.
    """

    __slots__ = ("_chunks", "context", "context_id", "free", "stream")

    def __init__(self, stream: Stream, context: Context) -> None:
        self.stream = stream
        self.context = context
        self.context_id = context.id
        self.free: list[int] = []
        self._chunks: list[Buffer] = []

    def take(self) -> Slot:
        """Return a slot, from a new chunk if none is left.

        The stream must not be capturing: the chunk would belong to the graph.

        Raises
        ------
        CudaError
            If the driver has no memory.
        """
        while True:
            try:
                return Slot(self.free.pop(), self)
            except IndexError:
                self._add(Buffer.allocate_async(_SLOTS * SLOT_BYTES, self.stream))

    def _add(self, chunk: Buffer) -> None:
        first = chunk.pointer
        slots = range(first, first + _SLOTS * SLOT_BYTES, SLOT_BYTES)
        # Both at once, by C code: an interrupt in between would leave slots without memory, or memory without slots.
        steps = functools.partial(self._chunks.append, chunk), functools.partial(self.free.extend, slots)
        list(map(_call, steps))
