"""Time the reduction of a file larger than the device may hold, beside what bounds it: the copy and the reading.

python -m benchmarks.profile.large [--gigabytes 40] [--limit-gigabytes 8] [--file PATH] [--written] [--cold]

The file is sparse, with a million ones in each of eight places, so that its reading costs memory and not a disk, unless
``--written`` fills it. It is read through the page cache, without O_DIRECT: reduced once before anything is timed, so
that all of it is there, or with ``--cold`` after the cache has dropped it, before each of the two readings. Printed are
GB/s of `lr.reduce_large` of the file, of copies from page-locked memory alone, and of reading the file alone into such
memory by as many threads, and the first over the slower of the others: the goal is 0.9. 40 GB need as much free memory
for the cache, and about a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import lowlevel_reduce as lr
from lowlevel_reduce.parts.large import PIECE_BYTES
from lowlevel_reduce.parts.sources import source_of

__all__ = ["main", "make"]

GOAL = 0.9
PLACES, ONES = 8, 1_000_000
READERS, SHARE = 4, 1 << 20  # as of parts.feed: threads, and elements that one reads at a time


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
    with lr.Buffer.pinned(PIECE_BYTES) as host, lr.Buffer.allocate(PIECE_BYTES) as there:
        there.copy_from(host, stream=stream)
        stream.synchronize()
        begin = time.perf_counter()
        for _ in range(size_bytes // PIECE_BYTES):
            there.copy_from(host, stream=stream)
        stream.synchronize()
        return time.perf_counter() - begin


def read_seconds(path: Path) -> float:
    """Return how long the reading of the file takes, into page-locked memory."""
    source = source_of(path)
    elements = source.shape[0]
    with lr.Buffer.pinned(PIECE_BYTES) as host, ThreadPoolExecutor(READERS) as pool:
        piece = host.host_view().view(np.float32)
        begin = time.perf_counter()
        for start in range(0, elements, len(piece)):
            count = min(len(piece), elements - start)
            shares = [(piece[k : min(k + SHARE, count)], start + k) for k in range(0, count, SHARE)]
            list(pool.map(lambda share: source.read(*share), shares))
        took = time.perf_counter() - begin
        del piece
    source.close()
    return took


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=40.0)
    parser.add_argument("--limit-gigabytes", type=float, default=8.0)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--written", action="store_true")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    elements = int(arguments.gigabytes * 1e9) // 4
    size_bytes, limit = 4 * elements, int(arguments.limit_gigabytes * 1e9)
    with tempfile.TemporaryDirectory() as folder, lr.Context.primary() as context, context.pushed():
        path = arguments.file or Path(folder) / "large.npy"
        if not path.exists():
            make(path, elements, written=arguments.written)
        with lr.Stream.create(context) as stream:
            copying = copy_seconds(size_bytes, stream)
            # Compiles, and leaves the file in the page cache.
            value = float(lr.reduce_large(path, stream=stream, max_device_bytes=limit))
            drop_cached(path, asked=arguments.cold)
            reading = read_seconds(path)
            drop_cached(path, asked=arguments.cold)
            begin = time.perf_counter()
            again = float(lr.reduce_large(path, stream=stream, max_device_bytes=limit))
            took = time.perf_counter() - begin
            if again != value or not (arguments.written or arguments.file or value == expected_sum(elements)):
                raise lr.ReduceError(f"the sum is {value}, then {again}, not {expected_sum(elements)}")
    speeds = {name: size_bytes / seconds / 1e9 for name, seconds in
              (("reduce_large", took), ("pinned copy", copying), ("file", reading))}  # fmt: skip
    ratio = max(copying, reading) / took
    rates = ", ".join(f"{name} {speed:.1f} GB/s" for name, speed in speeds.items())
    cache = "not in the page cache" if arguments.cold else "in the page cache"
    print(f"{size_bytes / 1e9:.1f} GB {cache}, sum {value}: {rates}; {ratio:.3f} of the slower, goal {GOAL}")
    if arguments.json:
        facts = {
            "bytes": size_bytes,
            "cold": arguments.cold,
            "written": arguments.written,
            "limit_bytes": limit,
            "gb_per_s": speeds,
            "ratio": ratio,
            "goal": GOAL,
        }
        arguments.json.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
