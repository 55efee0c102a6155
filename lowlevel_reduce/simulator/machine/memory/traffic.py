"""What the accesses of warps ask of memory: sectors of global memory, and passes over the banks of shared memory."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.memory.flags import any_of, indices_of
from lowlevel_reduce.simulator.machine.memory.storage import Array, distinct

__all__ = ["sectors", "wavefronts"]

PATTERNS_KEPT, LARGEST_KEPT = 1024, 1024
"""How many patterns of accesses to shared memory are remembered, and of how many accesses at most: 16 MiB."""


def _distinct(keys: Array) -> int:
    """Return how many different keys there are; the keys must be in ascending order."""
    return int(np.count_nonzero(keys[1:] != keys[:-1])) + 1


def _starts(keys: Array) -> Array:
    """Return where each run of equal keys starts."""
    return np.concatenate((_FIRST, indices_of(keys[1:] != keys[:-1]) + 1))


_FIRST = np.zeros(1, np.int64)


def sectors(threads: Array, addresses: Array) -> tuple[int, int]:
    """Return how many warp requests these accesses make, and how many 32-byte sectors the requests touch in total.

    The threads must be in ascending order.
    """
    warps, touched = threads // WARP, addresses >> np.uint64(5)
    another = warps[1:] != warps[:-1]
    if any_of((touched[1:] < touched[:-1]) & ~another):
        order = np.lexsort((touched, warps))
        warps, touched = warps[order], touched[order]
        another = warps[1:] != warps[:-1]
    different = another | (touched[1:] != touched[:-1])
    return int(np.count_nonzero(another)) + 1, int(np.count_nonzero(different)) + 1


def wavefronts(threads: Array, local: Array, size: int) -> tuple[int, int, int]:
    """Return the number of warp requests, their passes over the banks, and the passes that conflict-free ones need.

    Accesses of 8 and 16 bytes are served for half and a quarter of a warp at a time. In one pass a bank delivers one
    word, to any number of lanes.

    Of five patterns four have been met before, in another turn of a loop, warp or launch.
    """
    threads = threads - threads[:1] // WARP * WARP
    if threads.size > LARGEST_KEPT:
        return _wavefronts(threads, local, size)
    return _remembered(threads.tobytes(), local.tobytes(), size)


@lru_cache(PATTERNS_KEPT)
def _remembered(threads: bytes, local: bytes, size: int) -> tuple[int, int, int]:
    """Return `wavefronts` of arrays of int64 given as bytes."""
    return _wavefronts(np.frombuffer(threads, np.int64), np.frombuffer(local, np.int64), size)


def _wavefronts(threads: Array, local: Array, size: int) -> tuple[int, int, int]:
    """Return `wavefronts`."""
    words = max(1, size // 4)
    lanes_at_once = WARP // min(words, 4)
    parts = threads // lanes_at_once
    word = (local[:, None] // 4 + np.arange(words)).ravel()
    part = np.repeat(parts, words)
    keys = distinct((part << 24) + word)
    banks = np.sort((keys >> 24) * WARP + (keys & (WARP - 1)))
    firsts = _starts(banks)
    starts = _starts(banks[firsts] // WARP)
    counts = np.diff(firsts, append=banks.size)
    passes = int(np.maximum.reduceat(counts, starts).sum())
    return _distinct(threads // WARP), passes, starts.size
