"""Memory for small results: slots of a chunk, each used again in the order of its stream."""

from __future__ import annotations

from lowlevel_reduce.driver import Buffer, Context, Stream

__all__ = ["SLOT_BYTES", "Slot", "Slots"]

SLOT_BYTES = 256
"""Size and alignment of a slot: what ``cuMemAlloc`` aligns to."""

_SLOTS = 1024
"""Slots of a chunk: 256 KiB, so that an allocation by the driver (about 2 µs) is paid once in a thousand results."""


class Slot:
    """Device memory of `SLOT_BYTES`, given back when the last reference goes.

    Whoever takes it next uses it in the same stream, and so after all that the stream was given before: what a free in
    stream order promises, without a driver call. Work of other streams must have been waited for by this one, or be
    done, before the reference goes, as the one-shot functions see to; that is no different for ``cuMemFreeAsync``.

    Attributes
    ----------
    pointer : int
        Its address.
    slots : Slots
        Where it is from.
    """

    __slots__ = ("pointer", "slots")

    def __init__(self, pointer: int, slots: Slots) -> None:
        self.pointer = pointer
        self.slots = slots

    def __del__(self) -> None:
        self.slots.free.append(self.pointer)


class Slots:
    """The slots of one stream. Any thread may take and give back; its memory lives until the last slot has gone.

    Attributes
    ----------
    stream : Stream
        In whose order slots are used.
    context : Context
        The stream's.
    context_id : int
        The driver's number of it.
    free : list of int
        Addresses of slots that nobody has; pop one for a `Slot`, or call `take`.
    """

    __slots__ = ("_chunks", "context", "context_id", "free", "stream")

    def __init__(self, stream: Stream, context: Context) -> None:
        self.stream = stream
        self.context = context
        self.context_id = context.id
        self.free: list[int] = []
        self._chunks: list[Buffer] = []

    def take(self) -> Slot:
        """Return a slot, from a new chunk if there is none left.

        Raises
        ------
        CudaError
            If the driver has no memory. The stream must not be capturing: the chunk would be the graph's.
        """
        try:
            return Slot(self.free.pop(), self)
        except IndexError:
            chunk = Buffer.allocate_async(_SLOTS * SLOT_BYTES, self.stream)
        self._chunks.append(chunk)
        first = chunk.pointer
        self.free.extend(range(first + SLOT_BYTES, first + _SLOTS * SLOT_BYTES, SLOT_BYTES))
        return Slot(first, self)
