"""The way of pieces to the device: threads read shares into page-locked memory, and copy them out of it."""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Event as Mark
from threading import Lock, Thread
from types import TracebackType
from typing import NamedTuple

from lowlevel_reduce.driver import Buffer, Event, Stream, binding
from lowlevel_reduce.driver.event import ready
from lowlevel_reduce.parts.driver_calls import raising
from lowlevel_reduce.parts.sources import Source

__all__ = ["READERS", "ROOMS", "SHARE_BYTES", "Feed", "Step", "readers_here"]

READERS = 12
"""Threads that read, at most. On an H100's host with 16 processors, out of the page cache and on to the device by
threads in C: eight 44 GB/s, twelve 52, sixteen 51, where the link copies 54."""

SHARE_BYTES = 4 << 20
"""What a thread reads at a time, which is copied to the device by itself. By twelve threads in C: 19 GB/s with shares
of 256 KiB, 43 with 1 MiB, 52 with 4 and 35 with 16."""

_TURNS = 2
"""Shares of a thread: one is read while another is copied. With one, twelve threads in C bring 45 GB/s instead of 52.
The second is made when it is needed: page-locked memory takes a millisecond for each MiB."""

_LANES = 2
"""Streams of the copies. With one the link waits between two copies: 50 GB/s instead of 52."""

ROOMS = 3
"""Pieces that device memory has room for, if threads read: one is reduced, one copied, and shares of the next are
copied already."""

Step = tuple[list[tuple[int, int]], Callable[[int], object]]
"""A piece: runs of elements, each a first number and a count, one behind the other; and what is called with its device
address once all of it is in the stream. It may launch what reads the piece, and is not to wait for it."""


class _Piece:
    """A piece on its way: how much of it is missing, and whether its room is free.

    Attributes
    ----------
    number, room, place : int
        Its number, its room's, and the device address of that.
    use : callable
        What uses it.
    is_first : bool
        Whether nothing used the room before. Else `is_free` is set once what did is in the stream.
    lanes : set of int
        The streams that its copies are in, each of which waited for `after`.
    left : int
        How many shares are not in a stream yet, and one more until all are handed out.
    shares, size_bytes : int
        How many were handed out, and their bytes.
    """

    def __init__(self, number: int, place: int, use: Callable[[int], object]) -> None:
        self.number, self.room, self.place, self.use = number, number % ROOMS, place, use
        self.is_first, self.is_free, self.lanes = number < ROOMS, Mark(), set[int]()
        self.left, self.shares, self.size_bytes = 1, 0, 0


class _Share(NamedTuple):
    """What is read at once: for each run its place here, its first element, and a count; and where that belongs."""

    runs: list[tuple[int, int, int]]
    elements: int
    place: int  # elements of the piece before


def readers_here() -> int:
    """Return how many threads read: no more than this process has processors."""
    of_process = getattr(os, "sched_getaffinity", None)  # not on every system
    return min(READERS, len(of_process(0)) if of_process is not None else os.cpu_count() or 1)


class _Slot:
    """Page-locked memory for a share, and the event behind the copy out of it.

    Its driver calls are as few as can be, in the context that is current: at each a thread lets others run, and may
    wait for them.
    """

    def __init__(self, size_bytes: int, stream: Stream) -> None:
        self._host, self._event = Buffer.pinned(size_bytes, stream.context), Event.create(stream.context, timing=False)
        self.view, self._pointer, self._stream = self._host.host_view(), self._host.pointer, stream.handle
        self.wait = raising("cuEventSynchronize", self._event.handle)
        self._record = raising("cuEventRecord", self._event.handle, self._stream)

    def is_done(self) -> bool:
        """Tell whether the copy out of it is done."""
        return ready("cuEventQuery", self._event.handle)

    def copy_to(self, pointer: int, size_bytes: int) -> None:
        """Put the copy to the device into the stream."""
        binding.call("cuMemcpyAsync", pointer, self._pointer, size_bytes, self._stream)
        self._record()

    def close(self) -> None:
        """Free it, after the copy."""
        self._host.close()
        self._event.close()


class _Signal:
    """What some streams wait for another's work by, in the context that is current.

    Attributes
    ----------
    give : callable
        Marks what the one stream has now.
    waits : list of callable
        Make each of the others wait for what was marked.
    """

    def __init__(self, stream: Stream, others: Sequence[Stream]) -> None:
        self._event = Event.create(stream.context, timing=False)
        self.give = raising("cuEventRecord", self._event.handle, stream.handle)
        self.waits = [raising("cuStreamWaitEvent", other.handle, self._event.handle, 0) for other in others]

    def close(self) -> None:
        """Free it."""
        self._event.close()


class Feed:
    """Pieces of a source in device memory, one after the other.

    Threads, each with page-locked memory for two shares, take shares in turn, also those of the next pieces, and copy
    them in streams of the feed's own. The calling thread has each piece used, in the order of its stream, which waits
    for the piece's copies. The device has room for some pieces: a room is filled again behind what used it before.
    Sources that are not random are read by the calling thread, in its stream, into one room.

    Parameters
    ----------
    source : Source
        What is read.
    piece_bytes : int
        The most bytes of a piece; device memory has room for `ROOMS` of them.
    stream : Stream
        Where; its context must be current.
    told : callable, optional
        Called with the bytes read so far, after each piece.
    """

    def __init__(
        self, source: Source, piece_bytes: int, stream: Stream, told: Callable[[int], object] | None = None
    ) -> None:
        self._source, self._stream, self._told = source, stream, told
        self._itemsize, self._piece_bytes = source.dtype.itemsize, piece_bytes
        self._most = max(min(SHARE_BYTES, piece_bytes) // self._itemsize, 1)
        self._readers = min(readers_here(), -(-math.prod(source.shape) // self._most)) if source.is_random else 0
        self._rooms = [Buffer.allocate(piece_bytes, stream.context)]
        self._lanes = [Stream.create(stream.context) for _ in range(min(_LANES, self._readers))]
        self._behind = [_Signal(stream, self._lanes) for _ in range(ROOMS)] if self._lanes else []  # who used a room
        self._copied = [_Signal(lane, [stream]) for lane in self._lanes]
        self._lock, self._slots, self._ended = Lock(), list[_Slot](), False
        self._tasks: SimpleQueue[tuple[_Piece, _Share] | None] = SimpleQueue()
        self._found: SimpleQueue[_Piece | BaseException] = SimpleQueue()
        self._threads = [
            Thread(target=self._work, args=(number % _LANES,), name="read a file", daemon=True)
            for number in range(self._readers)
        ]
        self._on_the_way: deque[_Piece] = deque()
        self._handed = self._out = self._done = 0  # pieces handed out, shares of those on the way, bytes

    def run(self, steps: Iterable[Step]) -> None:
        """Bring all pieces to the device, one after the other, and call what uses each.

        Later steps are asked for while earlier pieces are on their way. Called once.
        """
        steps = self._told_of(steps)
        if self._readers:
            self._by_threads(steps)
            return
        number = 0
        for runs, use in steps:
            for share in _shares(runs, self._most):
                if number < _TURNS:
                    self._slots.append(_Slot(self._most * self._itemsize, self._stream))
                slot = self._slots[number % _TURNS]
                slot.wait()  # until the copy out of it, a turn ago, is done
                self._read(share, slot)
                self._copy(share, slot, self._rooms[0].pointer)
                self._done, number = self._done + share.elements * self._itemsize, number + 1
            self._finish(use, self._rooms[0].pointer)

    def _told_of(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Yield the steps, and tell the source if the first is one run: then all are, one behind the other."""
        for number, step in enumerate(steps):
            if number == 0 and len(step[0]) == 1:
                self._source.in_order()
            yield step

    def _by_threads(self, steps: Iterator[Step]) -> None:
        """Hand out pieces to threads, and have those used that have come."""
        for thread in self._threads:
            thread.start()
        come = set[int]()
        while True:
            # So many that threads read for the next rooms while these are filled.
            while len(self._on_the_way) <= ROOMS or self._out < 2 * self._readers:
                step = next(steps, None)
                if step is None:
                    break
                self._hand_out(*step)
            if not self._on_the_way:
                return
            come.add(self._next().number)
            while self._on_the_way and self._on_the_way[0].number in come:
                self._use(self._on_the_way.popleft())

    def _hand_out(self, runs: list[tuple[int, int]], use: Callable[[int], object]) -> None:
        """Make a piece of a step, and its shares what threads take next."""
        room = self._handed % ROOMS
        if room == len(self._rooms):
            self._rooms.append(Buffer.allocate(self._piece_bytes, self._stream.context))
        piece = _Piece(self._handed, self._rooms[room].pointer, use)
        if len(self._on_the_way) < ROOMS:  # what used the room before is not among these
            piece.is_free.set()
        self._on_the_way.append(piece)
        self._handed += 1
        for share in _shares(runs, self._most):
            with self._lock:
                piece.left += 1
            piece.shares, piece.size_bytes = piece.shares + 1, piece.size_bytes + share.elements * self._itemsize
            self._tasks.put((piece, share))
        self._out += piece.shares
        self._put_in(piece)

    def _put_in(self, piece: _Piece) -> None:
        """Count a share that is in a stream, or that all are handed out; tell of the piece if that was the last."""
        with self._lock:
            piece.left -= 1
            is_there = piece.left == 0
        if is_there:
            self._found.put(piece)

    def _use(self, piece: _Piece) -> None:
        """Have a piece used, whose copies are all in the feed's streams; its room is free behind that."""
        for lane in piece.lanes:
            self._copied[lane].give()
            self._copied[lane].waits[0]()
        self._out, self._done = self._out - piece.shares, self._done + piece.size_bytes
        self._finish(piece.use, piece.place)
        self._behind[piece.room].give()
        if len(self._on_the_way) >= ROOMS:
            self._on_the_way[ROOMS - 1].is_free.set()

    def _next(self) -> _Piece:
        """Wait until a piece has come; raise what a thread raised."""
        found = self._found.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def _work(self, lane: int) -> None:
        """Read shares and copy them until there are no more."""
        slots: deque[_Slot] = deque()  # the one that was used last is the last
        try:
            with self._stream.context.pushed():
                while (task := self._tasks.get()) is not None:
                    piece, share = task
                    slot = self._slot(slots, self._lanes[lane])
                    if slot is None:
                        return
                    self._read(share, slot)
                    if not self._is_open(piece, lane):
                        return
                    self._copy(share, slot, piece.place)
                    slots.append(slot)
                    self._put_in(piece)
        except BaseException as error:  # noqa: BLE001 - the calling thread raises it
            self._found.put(error)

    def _slot(self, slots: deque[_Slot], stream: Stream) -> _Slot | None:
        """Return memory of a thread for a share, out of which nothing is copied; None if nothing is read any more."""
        if len(slots) == _TURNS:
            slots[0].wait()
        elif not slots or not slots[0].is_done():
            return self._new_slot(stream)
        return slots.popleft()

    def _new_slot(self, stream: Stream) -> _Slot | None:
        """Make memory for a share, which takes a millisecond for each MiB."""
        slot = _Slot(self._most * self._itemsize, stream)
        with self._lock:
            if not self._ended:
                self._slots.append(slot)
                return slot
        slot.close()
        return None

    def _is_open(self, piece: _Piece, lane: int) -> bool:
        """Wait until a stream may fill a piece's room, behind what used it before; False if nothing is read now."""
        piece.is_free.wait()
        with self._lock:
            if self._ended:
                return False
            if lane not in piece.lanes:
                if not piece.is_first:
                    self._behind[piece.room].waits[lane]()
                piece.lanes.add(lane)
        return True

    def _read(self, share: _Share, slot: _Slot) -> None:
        elements = slot.view.view(self._source.dtype)
        for place, start, count in share.runs:
            self._source.read(elements[place : place + count], start)

    def _copy(self, share: _Share, slot: _Slot, room: int) -> None:
        size_bytes = share.elements * self._itemsize
        if size_bytes:
            slot.copy_to(room + share.place * self._itemsize, size_bytes)

    def _finish(self, use: Callable[[int], object], room: int) -> None:
        """Have a piece used, all of which is in the stream, or which that waits for."""
        use(room)
        if self._told is not None:
            self._told(self._done)

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the threads, wait for the copies that still use the memory, and free everything."""
        with self._lock:
            self._ended = True
        for piece in self._on_the_way:
            piece.is_free.set()
        with contextlib.suppress(Empty):
            while True:
                self._tasks.get_nowait()  # what nobody is to read any more
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            if thread.ident is not None:  # it was started
                thread.join()
        for stream in (*self._lanes, self._stream):
            stream.synchronize()
        closing: tuple[Buffer | Stream | _Slot | _Signal, ...]
        closing = (*self._slots, *self._rooms, *self._behind, *self._copied, *self._lanes)
        for each in closing:
            each.close()


def _shares(runs: list[tuple[int, int]], most: int) -> Iterator[_Share]:
    """Yield the shares of a piece, each of at most so many elements: at least one."""
    parts: list[tuple[int, int, int]] = []
    place = filled = 0
    for first, length in runs:
        start, end = first, first + length
        while start < end:
            if filled == most:
                yield _Share(parts, filled, place)
                place, filled, parts = place + filled, 0, []
            count = min(end - start, most - filled)
            parts.append((filled, start, count))
            start, filled = start + count, filled + count
    yield _Share(parts, filled, place)
