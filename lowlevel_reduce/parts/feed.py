"""The way of pieces to the device: threads read shares into page-locked memory, out of which the caller copies them."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from types import TracebackType
from typing import NamedTuple

from lowlevel_reduce.arrays import page_locked
from lowlevel_reduce.driver import Buffer, Event, Stream
from lowlevel_reduce.parts.driver_calls import raising
from lowlevel_reduce.parts.sources import Source

__all__ = ["READERS", "SHARE_BYTES", "Feed", "Step", "readers_here"]

READERS = 10
"""Threads that read, at most. On an H200's host with 16 processors eight read 56 GB/s out of the page cache, twelve 69
and sixteen 78, and the link copies 55.4; a file was reduced at 47.9 by eight, 50.8 by nine, 51.2 by ten, 51.0 by eleven
and 50.8 by twelve, since more of them fight with the calling thread for the interpreter's lock."""

SHARE_BYTES = 4 << 20
"""What a thread reads at a time, which is copied to the device by itself. Each costs the calling thread some 50 us, and
all together are to fit the last cache of the host: with two of 4 MiB a thread a file was reduced at 48 GB/s, with two
of 8 at 39, with three of 4 at 45, with four of 2 at 28, on an H200's host."""

_TURNS = 2
"""Shares that a thread has memory for: one is read while the other is copied."""

LEAST_PIECE_BYTES = 8 << 20
"""The least bytes of a piece with which two take turns: its copy then takes longer than what one more piece costs."""

_ALIGNED = 4096
"""What a piece's bytes are a multiple of, where two take turns."""

Step = tuple[list[tuple[int, int]], Callable[[int], object]]
"""A piece: runs of elements, each a first number and a count, one behind the other; and what is called with its device
address once all of it is in the stream. It may launch what reads the piece, and is not to wait for it."""


class _Share(NamedTuple):
    """What is read at once: for each run its place here, its first element, and a count; and where that belongs."""

    runs: list[tuple[int, int, int]]
    elements: int
    place: int  # elements of the piece before
    piece: int  # the piece's number
    number: int  # this one's in the piece
    use: Callable[[int], object] | None  # of the last share of a piece: what uses it


def readers_here() -> int:
    """Return how many threads read: no more than this process has processors."""
    of_process = getattr(os, "sched_getaffinity", None)  # not on every system
    return min(READERS, len(of_process(0)) if of_process is not None else os.cpu_count() or 1)


class _Slot:
    """Page-locked memory for a share, and the event behind the copy out of it.

    Its driver calls are as few as can be, in the context that is current: at each the calling thread lets others run,
    and may wait for them.
    """

    def __init__(self, size_bytes: int, stream: Stream) -> None:
        self._host = page_locked.take(size_bytes, stream.context)
        self._event = Event.create(stream.context, timing=False)
        self.view = self._host.host_view()
        self._there, self._size = ctypes.c_uint64(), ctypes.c_uint64()  # of each copy
        self.wait = raising("cuEventSynchronize", self._event.handle)
        self._copy = raising("cuMemcpyAsync", self._there, self._host.pointer, self._size, stream.handle)
        self._record = raising("cuEventRecord", self._event.handle, stream.handle)
        self.go_on: SimpleQueue[bool] = SimpleQueue()
        """Tells the thread that reads here that its copy is in the stream; or, with False, that it is to end."""

    def copy_to(self, pointer: int, size_bytes: int) -> None:
        """Put the copy to the device into the stream."""
        self._there.value, self._size.value = pointer, size_bytes
        self._copy()
        self._record()

    def close(self) -> None:
        """Let go of it, after the copy."""
        page_locked.give_back(self._host)
        self._event.close()


class _Rooms:
    """Device memory for one piece, or for two that take turns, and the stream of the copies to it.

    Attributes
    ----------
    pointer : int
        Where the piece is that is being copied.
    copies : Stream
        The stream for its copies.
    """

    def __init__(self, pointer: int, piece_bytes: int, stream: Stream, rooms: int) -> None:
        self.pointer, self.copies = pointer, stream
        self._closed_last: list[Event | Stream] = []
        self._turns: itertools.cycle[tuple[Callable[[], None], int, Callable[[], None]]] | None = None
        if rooms < 2:
            return
        self.copies = Stream.create(stream.context)
        copied, *used = events = [Event.create(stream.context, timing=False) for _ in range(1 + rooms)]
        self._closed_last = [*events, self.copies]
        self._copied = raising("cuEventRecord", copied.handle, self.copies.handle)
        self._follow = raising("cuStreamWaitEvent", stream.handle, copied.handle, 0)
        # At a piece's end: what says that it is used; then the other's place, and what waits until that one is used.
        ends = [raising("cuEventRecord", each.handle, stream.handle) for each in used]
        waits = [raising("cuStreamWaitEvent", self.copies.handle, each.handle, 0) for each in used]
        places = [pointer + number * piece_bytes for number in range(rooms)]
        self._turns = itertools.cycle(zip(ends, places[1:] + places[:1], waits[1:] + waits[:1], strict=True))

    def use(self, use: Callable[[int], object]) -> None:
        """Have a piece used, all of which is in the stream of copies, and go to where the next one comes."""
        if self._turns is None:
            use(self.pointer)
            return
        self._copied()
        self._follow()
        use(self.pointer)
        end, self.pointer, wait = next(self._turns)
        end()
        wait()  # until the one before the last is used; at first there is none, and nothing to wait for

    def close(self) -> None:
        """Destroy the stream and its events, after their last use."""
        for each in self._closed_last:
            each.close()


class Feed:
    """Pieces of a source in device memory, one after the other.

    Threads, each with page-locked memory for a share, take shares in turn, also those of the next pieces; the calling
    thread copies what is read, in any order within a piece. The device has room for one piece: what is launched for it
    runs before the next is copied, in the order of the stream, and takes a fraction of the copy's time. Sources that
    are not random are read by the calling thread, and so are all in a green context, which may be current on only one.

    Parameters
    ----------
    source : Source
        What is read.
    memory_bytes : int
        Device memory for pieces.
    stream : Stream
        Where; its context must be current.
    told : callable, optional
        Called with the bytes read so far, after each piece.
    side_by_side : bool
        Whether pieces lie one behind the other, and stay, instead of taking turns; what uses each is called with the
        address of the first.

    Attributes
    ----------
    piece_bytes : int
        The most bytes of a piece.
    """

    def __init__(
        self,
        source: Source,
        memory_bytes: int,
        stream: Stream,
        told: Callable[[int], object] | None = None,
        *,
        side_by_side: bool = False,
    ) -> None:
        self._source, self._stream, self._told = source, stream, told
        self._itemsize = source.dtype.itemsize
        half = memory_bytes // 2 // _ALIGNED * _ALIGNED
        self.piece_bytes = half if half >= LEAST_PIECE_BYTES and not side_by_side else memory_bytes
        self._most = max(min(SHARE_BYTES, self.piece_bytes) // self._itemsize, 1)
        is_by_threads = source.is_random and not stream.context.is_green
        self._readers = min(readers_here(), -(-math.prod(source.shape) // self._most)) if is_by_threads else 0
        self._there = Buffer.allocate(memory_bytes, stream.context)
        self._rooms = _Rooms(self._there.pointer, self.piece_bytes, stream, memory_bytes // self.piece_bytes)
        self._lock, self._slots, self._ended = Lock(), list[_Slot](), False
        self._tasks: SimpleQueue[_Share | None] = SimpleQueue()
        self._found: SimpleQueue[tuple[_Share, _Slot] | BaseException] = SimpleQueue()
        self._threads = [Thread(target=self._work, name="read a file", daemon=True) for _ in range(self._readers)]
        self._done = self._begin = 0  # bytes copied; and of pieces that stay, those of the ones before this
        self._side_by_side = side_by_side

    def run(self, steps: Iterable[Step]) -> None:
        """Bring all pieces to the device, one after the other, and call what uses each.

        Later steps are asked for while earlier pieces are on their way. Called once.
        """
        shares = _shares(self._told_of(steps), self._most)
        if self._readers:
            self._by_threads(shares)
            return
        for number, share in enumerate(shares):
            if number < _TURNS:
                self._slots.append(_Slot(self._most * self._itemsize, self._rooms.copies))
            slot = self._slots[number % _TURNS]
            slot.wait()  # until the copy out of it, a turn ago, is done
            self._read(share, slot)
            self._copy(share, slot)
            if share.use is not None:
                self._finish(share.use)

    def _told_of(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Yield the steps, and tell the source if the first is one run: then all are, one behind the other."""
        for number, step in enumerate(steps):
            if number == 0 and len(step[0]) == 1:
                self._source.in_order()
            yield step

    def _by_threads(self, shares: Iterator[_Share]) -> None:
        """Hand out shares to threads, and copy what they have read."""
        ends: dict[int, _Share] = {}  # by piece: its last share, once that is handed out
        waiting: defaultdict[int, list[tuple[_Share, _Slot]]] = defaultdict(list)
        out = piece = copied = 0
        for thread in self._threads:
            thread.start()
        while True:
            while out < (_TURNS + 1) * self._readers and (share := next(shares, None)) is not None:
                if share.use is not None:
                    ends[share.piece] = share
                self._tasks.put(share)
                out += 1
            if not out:
                return
            share, slot = self._next()
            out -= 1
            waiting[share.piece].append((share, slot))
            while waiting[piece]:
                for each, place in waiting.pop(piece):
                    self._copy(each, place)
                    place.go_on.put(True)
                    copied += 1
                end = ends.get(piece)
                if end is None or end.use is None or copied <= end.number:
                    break
                self._finish(end.use)
                del ends[piece]
                piece, copied = piece + 1, 0

    def _next(self) -> tuple[_Share, _Slot]:
        """Wait until a thread has read a share; raise what one raised."""
        found = self._found.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def _work(self) -> None:
        """Read shares until there are no more."""
        slots: list[_Slot] = []
        try:
            with self._stream.context.pushed():
                for turn in itertools.count():
                    if len(slots) == _TURNS and not self._is_free(slots[turn % _TURNS]):
                        return
                    if (share := self._tasks.get()) is None:
                        return
                    if len(slots) < _TURNS:
                        if (new := self._new_slot()) is None:
                            return
                        slots.append(new)
                    slot = slots[turn % _TURNS]
                    self._read(share, slot)
                    self._found.put((share, slot))
        except BaseException as error:  # noqa: BLE001 - the calling thread raises it
            self._found.put(error)

    def _is_free(self, slot: _Slot) -> bool:
        """Wait until the copy out of a thread's memory is done; False if nothing is read any more."""
        if not slot.go_on.get():
            return False
        slot.wait()
        return True

    def _new_slot(self) -> _Slot | None:
        """Return memory for a share, which takes a millisecond for each MiB; None if nothing is read any more."""
        slot = _Slot(self._most * self._itemsize, self._rooms.copies)
        with self._lock:
            if not self._ended:
                self._slots.append(slot)
                return slot
        slot.close()
        return None

    def _read(self, share: _Share, slot: _Slot) -> None:
        elements = slot.view.view(self._source.dtype)
        for place, start, count in share.runs:
            self._source.read(elements[place : place + count], start)

    def _copy(self, share: _Share, slot: _Slot) -> None:
        size_bytes = share.elements * self._itemsize
        if size_bytes:
            slot.copy_to(self._rooms.pointer + self._begin + share.place * self._itemsize, size_bytes)
        self._done += size_bytes

    def _finish(self, use: Callable[[int], object]) -> None:
        """Have a piece used, all of which is in the stream."""
        self._rooms.use(use)
        if self._side_by_side:
            self._begin = self._done
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
            for each in self._slots:
                each.go_on.put(False)
        with contextlib.suppress(Empty):
            while True:
                self._tasks.get_nowait()  # what nobody is to read any more
        for _ in self._threads:
            self._tasks.put(None)
        try:
            for thread in self._threads:
                if thread.ident is not None:  # it was started
                    thread.join()
        finally:  # also where an interrupt came: then objects go as threads end, and their memory with them
            self._rooms.copies.synchronize()
            self._stream.synchronize()
        for each in self._slots:
            each.close()
        self._rooms.close()
        self._there.close()


def _shares(steps: Iterable[Step], most: int) -> Iterator[_Share]:
    """Yield the shares of all pieces, each of at most so many elements: one at least for each piece."""
    for piece, (runs, use) in enumerate(steps):
        parts: list[tuple[int, int, int]] = []
        place = filled = number = 0
        for first, length in runs:
            start, end = first, first + length
            while start < end:
                if filled == most:
                    yield _Share(parts, filled, place, piece, number, None)
                    place, filled, parts, number = place + filled, 0, [], number + 1
                count = min(end - start, most - filled)
                parts.append((filled, start, count))
                start, filled = start + count, filled + count
        yield _Share(parts, filled, place, piece, number, use)
