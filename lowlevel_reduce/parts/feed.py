"""The way of pieces to the device: read into one of two page-locked buffers while the other's piece is copied."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import numpy as np

from lowlevel_reduce.driver import Buffer, Event, Stream
from lowlevel_reduce.parts.sources import Source

__all__ = ["Feed"]

_READERS = 4
"""Threads that read a piece: one copies some 10 GB/s out of the page cache, a link takes several times that."""

_SHARE_BYTES = 4 << 20
"""What is worth a thread of its own."""


class Feed:
    """Pieces of a source in device memory, one after the other.

    The host fills one page-locked buffer while the link copies the other. The device has room for one piece: what is
    launched for it runs before the next is copied, in the order of the stream, and takes a fraction of the copy's time.

    Parameters
    ----------
    source : Source
        What is read.
    piece_bytes : int
        The most bytes of a piece: of device memory once, of page-locked memory twice.
    stream : Stream
        Where; its context must be current.
    told : callable, optional
        Called with the bytes read so far, after each piece.
    """

    def __init__(
        self, source: Source, piece_bytes: int, stream: Stream, told: Callable[[int], object] | None = None
    ) -> None:
        self._source, self._stream, self._told = source, stream, told
        context = stream.context
        self._there = Buffer.allocate(piece_bytes, context)
        self._hosts = [Buffer.pinned(piece_bytes, context) for _ in range(2)]
        self._events = [Event.create(context, timing=False) for _ in range(2)]
        self._readers = ThreadPoolExecutor(_READERS) if source.is_random else None
        self._turn = self._done = 0

    def piece(self, runs: list[tuple[int, int]]) -> int:
        """Read runs of elements, each a first number and a count, one behind the other; return their device address.

        They are there for what is put into the stream before the next call.
        """
        host, event = self._hosts[self._turn], self._events[self._turn]
        self._turn = 1 - self._turn
        event.synchronize()  # until the copy out of this buffer, two pieces ago, is done
        itemsize = self._source.dtype.itemsize
        size_bytes = itemsize * sum(count for _, count in runs)
        if size_bytes:
            elements = host.host_view()[:size_bytes].view(self._source.dtype)
            self._read(elements, runs)
            self._there.copy_from(host, stream=self._stream, size_bytes=size_bytes)
            event.record(self._stream)
        self._done += size_bytes
        if self._told is not None:
            self._told(self._done)
        return self._there.pointer

    def _read(self, out: np.ndarray[Any, Any], runs: list[tuple[int, int]]) -> None:
        share = max(_SHARE_BYTES // self._source.dtype.itemsize, 1)
        jobs, place = [], 0
        for start, count in runs:
            for first in range(0, count, share):
                size = min(share, count - first)
                jobs.append((out[place + first : place + first + size], start + first))
            place += count
        if self._readers is None or len(jobs) == 1:
            for part, start in jobs:
                self._source.read(part, start)
            return
        for _ in self._readers.map(lambda job: self._source.read(*job), jobs):  # raises what a thread raised
            pass

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the copies that still read the buffers, and free everything."""
        if self._readers is not None:
            self._readers.shutdown()
        self._stream.synchronize()
        for each in (*self._hosts, self._there, *self._events):
            each.close()
