"""The way of pieces to the device: threads read shares into a ring of page-locked memory, copies follow in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

from lowlevel_reduce.driver import Buffer, Event, Stream, binding
from lowlevel_reduce.parts.driver_calls import raising
from lowlevel_reduce.parts.sources import Source

__all__ = ["READERS", "SHARE_BYTES", "Feed", "Step", "readers_here"]

READERS = 8
"""Threads that read, at most: one copies 3 to 5 GB/s out of the page cache, a link takes more than 50."""

SHARE_BYTES = 8 << 20
"""What a thread reads at a time, which is copied to the device by itself. Each costs the calling thread 150 to 230 us
on an H100's host, whatever its size: with shares of 1 MiB a file was reduced at 6 GB/s, of 2 at 10, of 4 at 18 to 22,
where eight threads alone read 25."""

_COPYING = 2
"""Shares whose copies run: each takes a fraction of the time in which as much is read."""

Step = tuple[list[tuple[int, int]], Callable[[int], object]]
"""A piece: runs of elements, each a first number and a count, one behind the other; and what is called with its device
address once all of it is in the stream. It may launch what reads the piece, and is not to wait for it."""


class _Share(NamedTuple):
    """What is read at once: for each run its place here, its first element, and a count; and where that belongs."""

    runs: list[tuple[int, int, int]]
    elements: int
    place: int  # elements of the piece before
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
        self._host, self._event = Buffer.pinned(size_bytes, stream.context), Event.create(stream.context, timing=False)
        self.view, self._pointer, self._stream = self._host.host_view(), self._host.pointer, stream.handle
        self.wait = raising("cuEventSynchronize", self._event.handle)
        self._record = raising("cuEventRecord", self._event.handle, self._stream)

    def copy_to(self, pointer: int, size_bytes: int) -> None:
        """Put the copy to the device into the stream."""
        binding.call("cuMemcpyAsync", pointer, self._pointer, size_bytes, self._stream)
        self._record()

    def close(self) -> None:
        """Free it, after the copy."""
        self._host.close()
        self._event.close()


class Feed:
    """Pieces of a source in device memory, one after the other.

    Threads read shares into page-locked memory, some ahead, also those of the next pieces, while the link copies what
    is read. The device has room for one piece: what is launched for it runs before the next is copied, in the order of
    the stream, and takes a fraction of the copy's time. Sources that are not random are read by the calling thread.

    Parameters
    ----------
    source : Source
        What is read.
    piece_bytes : int
        The most bytes of a piece, which device memory has room for.
    stream : Stream
        Where; its context must be current.
    told : callable, optional
        Called with the bytes read so far, after each piece.
    """

    def __init__(
        self, source: Source, piece_bytes: int, stream: Stream, told: Callable[[int], object] | None = None
    ) -> None:
        self._source, self._stream, self._told = source, stream, told
        context, itemsize = stream.context, source.dtype.itemsize
        readers = readers_here() if source.is_random else 1
        self._most = max(min(SHARE_BYTES, piece_bytes) // itemsize, 1)
        # So many shares are being read or wait for a thread, so that none waits for the caller to see what is read.
        # The others' copies run. Who reads by himself reads one.
        self._ahead = readers + (readers + 1) // 2 if source.is_random else 1
        self._slots = self._ahead + (_COPYING if source.is_random else 1)
        self._there = Buffer.allocate(piece_bytes, context)
        self._made: list[_Slot] = []
        self._readers = ThreadPoolExecutor(readers) if source.is_random else None
        self._started = self._done = 0

    def run(self, steps: Iterable[Step]) -> None:
        """Bring all pieces to the device, one after the other, and call what uses each.

        Later steps are asked for while earlier pieces are on their way.
        """
        shares = _shares(self._told_of(steps), self._most)
        pending: deque[tuple[_Share, int, Future[None] | None]] = deque()
        while True:
            while len(pending) < self._ahead and (share := next(shares, None)) is not None:
                pending.append((share, *self._start(share)))
            if not pending:
                return
            self._arrive(*pending.popleft())

    def _told_of(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Yield the steps, and tell the source if the first is one run: then all are, one behind the other."""
        for number, step in enumerate(steps):
            if number == 0 and len(step[0]) == 1:
                self._source.in_order()
            yield step

    def _start(self, share: _Share) -> tuple[int, Future[None] | None]:
        """Have a share read into the next slot; return which that is."""
        slot = self._started % self._slots
        if self._started < self._slots:  # made when it is first needed, while others are read into
            self._made.append(_Slot(self._most * self._source.dtype.itemsize, self._stream))
        self._started += 1
        self._made[slot].wait()  # until the copy out of this slot, a ring ago, is done
        if self._readers is not None:
            return slot, self._readers.submit(self._read, share, slot)
        self._read(share, slot)
        return slot, None

    def _read(self, share: _Share, slot: int) -> None:
        elements = self._made[slot].view.view(self._source.dtype)
        for place, start, count in share.runs:
            self._source.read(elements[place : place + count], start)

    def _arrive(self, share: _Share, slot: int, reading: Future[None] | None) -> None:
        """Copy a share once it is read and, with the last of a piece, have that used."""
        if reading is not None:
            self._wait(reading)
        self._copy(share, slot)
        if share.use is not None:
            share.use(self._there.pointer)
            if self._told is not None:
                self._told(self._done)

    def _wait(self, reading: Future[None]) -> None:
        reading.result()  # raises what the thread raised

    def _copy(self, share: _Share, slot: int) -> None:
        itemsize = self._source.dtype.itemsize
        size_bytes = share.elements * itemsize
        if size_bytes:
            self._made[slot].copy_to(self._there.pointer + share.place * itemsize, size_bytes)
        self._done += size_bytes

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the threads and copies that still use the memory, and free everything."""
        if self._readers is not None:
            self._readers.shutdown(cancel_futures=True)
        self._stream.synchronize()
        for each in self._made:
            each.close()
        self._there.close()


def _shares(steps: Iterable[Step], most: int) -> Iterator[_Share]:
    """Yield the shares of all pieces, each of at most so many elements: one at least for each piece."""
    for runs, use in steps:
        parts: list[tuple[int, int, int]] = []
        place = filled = 0
        for first, number in runs:
            start, end = first, first + number
            while start < end:
                if filled == most:
                    yield _Share(parts, filled, place, None)
                    place, filled, parts = place + filled, 0, []
                count = min(end - start, most - filled)
                parts.append((filled, start, count))
                start, filled = start + count, filled + count
        yield _Share(parts, filled, place, use)
