"""Time the reduction of a file larger than the device may hold, beside what bounds it: the copy and the reading.

python -m benchmarks.profile.large [--gigabytes 40] [--limit-gigabytes 8] [--file PATH] [--written] [--cold] [--sweep]

The file is sparse, with a million ones in each of eight places, so that its reading costs memory and not a disk, unless
``--written`` fills it. It is read through the page cache, without O_DIRECT: reduced once before anything is timed, so
that all of it is there, or with ``--cold`` after the cache has dropped it, before each reading. Printed are GB/s of
`lr.reduce_large` of the file, of copies from page-locked memory alone, and of reading the file alone into such memory,
by 8 to 16 threads in shares as the library's, or of 2 MiB into 64 MiB; and the first over the slower of the copies and
the fastest reading: the goal is 0.9. Then where the time of one more reduction went: in the threads that read, and in
the calling one. ``--sweep`` also reduces the file with other numbers of threads and other shares. 40 GB need as much
free memory for the cache, and about a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np

import lowlevel_reduce as lr
from lowlevel_reduce.parts import feed, large
from lowlevel_reduce.parts.sources import source_of

__all__ = ["main", "make"]

GOAL = 0.9
COPY_BYTES = 64 << 20  # of each copy from page-locked memory alone
ROUNDS = 3  # of reductions, of which the median counts
PLACES, ONES = 8, 1_000_000
READERS = (8, 12, 16)
SMALL = 2 << 20
SWEEP = tuple((readers, share << 20) for readers in (8, 12, 14, 16) for share in (2, 4, 8))


def make(path: Path, elements: int, *, written: bool) -> None:
    """Make a ``.npy`` file of zeros, sparse, with ones in some places; or written with numbers."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(elements,))
    if written:
        block = np.random.default_rng(0).standard_normal(1 << 24, dtype=np.float32)
        for start in range(0, elements, len(block)):
            array[start : start + len(block)] = block[: elements - start]
    else:
        for place in range(PLACES):
            start = elements // PLACES * place
            array[start : min(start + ONES, elements // PLACES * (place + 1))] = 1
    array.flush()


def expected_sum(elements: int) -> float:
    """Return the sum of a file that `make` leaves sparse."""
    return float(PLACES * min(ONES, elements // PLACES))


def drop_cached(path: Path, *, asked: bool) -> None:
    """Let the page cache drop a file, once all its pages are on the disk, if that is asked for."""
    if not asked:
        return
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copy_seconds(size_bytes: int, stream: lr.Stream) -> float:
    """Return how long copies of pieces take, from page-locked memory to the device, for as many bytes."""
    with lr.Buffer.pinned(COPY_BYTES) as host, lr.Buffer.allocate(COPY_BYTES) as there:
        there.copy_from(host, stream=stream)
        stream.synchronize()
        begin = time.perf_counter()
        for _ in range(size_bytes // COPY_BYTES):
            there.copy_from(host, stream=stream)
        stream.synchronize()
        return time.perf_counter() - begin


def read_seconds(path: Path, readers: int, share_bytes: int, ring_bytes: int) -> float:
    """Return how long the reading of the file takes, in shares by as many threads, into a ring of page-locked memory.

    Nothing waits for what was read.
    """
    source = source_of(path)
    source.in_order()
    elements, share = source.shape[0], share_bytes // source.dtype.itemsize
    with lr.Buffer.pinned(ring_bytes) as host, ThreadPoolExecutor(readers) as pool:
        ring = host.host_view().view(source.dtype)
        places = len(ring) // share * share
        starts = iter(range(0, elements, share))  # from which threads take turns, each by one step of the interpreter

        def read() -> None:
            for start in starts:
                place = start % places
                source.read(ring[place : place + min(share, elements - start)], start)

        begin = time.perf_counter()
        for each in [pool.submit(read) for _ in range(readers)]:
            each.result()  # raises what a thread raised
        took = time.perf_counter() - begin
    source.close()
    return took


def readings(path: Path, *, cold: bool) -> dict[str, float]:
    """Return how long readings alone take, by their threads and memory."""
    found = {}
    for readers in READERS:
        for share, ring in ((feed.SHARE_BYTES, 2 * readers * feed.SHARE_BYTES), (SMALL, COPY_BYTES)):
            drop_cached(path, asked=cold)
            name = f"{readers} threads, shares of {share >> 20} MiB into {ring >> 20}"
            found[name] = read_seconds(path, readers, share, ring)
    return found


def reduced(path: Path, *, cold: bool, **options: Any) -> tuple[float, float]:
    """Return the sum of the file, and how long it took."""
    drop_cached(path, asked=cold)
    begin = time.perf_counter()
    value = float(lr.reduce_large(path, **options))
    return value, time.perf_counter() - begin


class WatchedFeed(feed.Feed):
    """A feed that adds up what its steps take: in the threads that read together, and in the calling one."""

    seconds: ClassVar[defaultdict[str, float]] = defaultdict(float)

    def _timed(self, name: str, call: Callable[..., Any], *given: Any) -> Any:
        begin = time.perf_counter()
        try:
            return call(*given)
        finally:
            self.seconds[name] += time.perf_counter() - begin

    def run(self, steps: Any) -> None:
        self._timed("all of it", super().run, steps)

    def _read(self, *given: Any) -> None:
        self._timed("threads: reading", super()._read, *given)

    def _new_slot(self, *given: Any) -> Any:
        return self._timed("threads: making page-locked memory", super()._new_slot, *given)

    def _is_free(self, *given: Any) -> Any:
        return self._timed("threads: waiting for copies", super()._is_free, *given)

    def _next(self) -> Any:
        return self._timed("caller: waiting for threads", super()._next)

    def _copy(self, *given: Any) -> None:
        self._timed("caller: starting copies", super()._copy, *given)

    def _finish(self, *given: Any) -> None:
        self._timed("caller: having pieces used", super()._finish, *given)


def watched(path: Path, *, cold: bool, **options: Any) -> dict[str, float]:
    """Return what the steps of a reduction take."""
    WatchedFeed.seconds.clear()
    with mock.patch.object(large, "Feed", WatchedFeed):
        _, took = reduced(path, cold=cold, **options)
    return {"with its beginning and end": took, **WatchedFeed.seconds}


def swept(path: Path, value: float, *, cold: bool, **options: Any) -> dict[str, float]:
    """Return how long the file takes with other numbers of threads and other shares."""
    found, kept = {}, (feed.READERS, feed.SHARE_BYTES)
    for feed.READERS, feed.SHARE_BYTES in SWEEP:
        again, took = reduced(path, cold=cold, **options)
        check(again, value)
        found[f"{feed.READERS} threads, shares of {feed.SHARE_BYTES >> 20} MiB"] = took
    feed.READERS, feed.SHARE_BYTES = kept
    return found


def check(value: float, expected: float) -> None:
    """Refuse a wrong sum."""
    if value != expected:
        raise lr.ReduceError(f"the sum is {value}, not {expected}: not timed")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=40.0)
    parser.add_argument("--limit-gigabytes", type=float, default=8.0)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--written", action="store_true")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--sweep", action="store_true", help="also with other numbers of threads and other shares")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    elements = int(arguments.gigabytes * 1e9) // 4
    size_bytes, limit = 4 * elements, int(arguments.limit_gigabytes * 1e9)
    with tempfile.TemporaryDirectory() as folder, lr.Context.primary() as context, context.pushed():
        path = arguments.file or Path(folder) / "large.npy"
        if not path.exists():
            make(path, elements, written=arguments.written)
        with lr.Stream.create(context) as stream:
            options = {"stream": stream, "max_device_bytes": limit}
            copying = copy_seconds(size_bytes, stream)
            value, _ = reduced(path, cold=False, **options)  # compiles, and leaves the file in the page cache
            if not (arguments.written or arguments.file):
                check(value, expected_sum(elements))
            reading = readings(path, cold=arguments.cold)
            times = []
            for _ in range(ROUNDS):
                again, took = reduced(path, cold=arguments.cold, **options)
                check(again, value)
                times.append(took)
            took = statistics.median(times)
            steps = watched(path, cold=arguments.cold, **options)
            others = swept(path, value, cold=arguments.cold, **options) if arguments.sweep else {}
    fastest = min(reading.values())
    ratio = max(copying, fastest) / took
    seconds = {"reduce_large": took, "pinned copy": copying}
    seconds |= {f"reading by {name}": each for name, each in reading.items()}
    seconds |= {f"reduce_large by {name}": each for name, each in others.items()}
    speeds = {name: round(size_bytes / each / 1e9, 2) for name, each in seconds.items()}
    cache = "not in the page cache" if arguments.cold else "in the page cache"
    print(f"{size_bytes / 1e9:.1f} GB {cache}, sum {value}: {ratio:.3f} of the slower, goal {GOAL}")
    for name, speed in speeds.items():
        print(f"{speed:8.2f} GB/s  {name}")
    for name, each in steps.items():
        print(f"{each:8.3f} s     {name}")
    if arguments.json:
        facts = {
            "bytes": size_bytes,
            "cold": arguments.cold,
            "written": arguments.written,
            "limit_bytes": limit,
            "readers": feed.readers_here(),
            "share_bytes": feed.SHARE_BYTES,
            "gb_per_s": speeds,
            "seconds": steps,
            "ratio": ratio,
            "goal": GOAL,
        }
        arguments.json.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
