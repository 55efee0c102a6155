"""What a way to cut columns costs: a model, in microseconds.

It was fitted on an H100: benchmarks/NOTES.md, "Columns by few kernels".
"""

from __future__ import annotations

import math
from functools import lru_cache

from lowlevel_reduce.dtypes import VECTOR_BYTES
from lowlevel_reduce.strategy.base import MOST_THREADS, FoldedBy, Loads, Tile

__all__ = ["BLOCK", "FOLD", "MOST_BROKEN_BYTES", "are_apart", "block_times", "total"]

_BYTES = 24e3
"""Bytes that a multiprocessor reads of its share of the memory in a microsecond."""

_LATENCY, _GAP = 1.2, 0.35
"""The least time of a round of loads; and what comes between two rounds of a block, while others may load."""

_MEETING, BLOCK, _EACH_BLOCK = 0.6, 1.0, 1e-5
"""What a block does in a turn besides; what it does before and after its turns; and a little for each block, which
decides between ways that cost the same."""

_FEW_WAVES = 4
"""From so many waves of blocks on, a last one that is not full costs only its part."""

FOLD: dict[FoldedBy, float] = {"nobody": 0.0, "cluster": 0.6, "warps": 1.0, "blocks": 1.1}
"""From the last partial to the results, by who folds them."""

_EACH_PARTIAL = 0.002
"""And more for each partial of a column."""

_BROKEN_LINES = {128: 1.02, 64: 1.05, 32: 1.3}
"""By how much longer reading takes if a block reads so many bytes side by side, where there are more."""

MOST_BROKEN_BYTES = max(_BROKEN_LINES)
"""The most of these bytes."""

_ENOUGH_IN_FLIGHT = 128
"""Bytes of a thread: with 64 a last wave of 76 blocks takes as long as one of 396."""

_AT_ONCE = 32
"""The most blocks that a multiprocessor runs at once."""


@lru_cache(maxsize=2048)
def block_times(
    tile: Tile, threads: int, loads: Loads, itemsize: int, length: int, slower: float, broken: bool, resident: int
) -> tuple[float, ...]:
    """Return how long a block takes where one, two, three… run on a multiprocessor at once, up to as many as fit.

    `length` are the elements of a column, `resident` how many of the largest blocks fit on a multiprocessor. Loads take
    `slower` times as long as they might; and `broken` says whether a block reads only some of the columns side by side.
    """
    vectors = max(1, tile.vectors * tile.columns // loads.width // threads)  # of a thread, in a turn
    rounds = -(-vectors // loads.at_once)
    elements = min(vectors / rounds * (VECTOR_BYTES // itemsize), length)
    reading = threads * loads.width * itemsize * elements / _BYTES * slower  # a round, of a block alone
    if broken:
        reading *= _BROKEN_LINES.get(tile.columns * itemsize, 1.0)

    meeting = 0.0 if are_apart(tile, threads, loads) else _MEETING

    def time(at_once: int) -> float:
        hidden = at_once**2  # what others hide of a block's own work, about
        turn = rounds * max(_LATENCY, at_once * reading + _GAP / hidden) + meeting / hidden
        return turn * tile.turns + BLOCK * MOST_THREADS / threads / at_once

    return tuple(map(time, range(1, 1 + min(resident * MOST_THREADS // threads, _AT_ONCE))))


def are_apart(tile: Tile, threads: int, loads: Loads) -> bool:
    """Return whether each thread of a block has columns of its own, so that none waits for another.

    And whether it has so many bytes in flight that a block or two use all that a multiprocessor may read.
    """
    in_flight = loads.width * loads.at_once * VECTOR_BYTES
    return tile.turns == 1 and tile.columns >= threads * loads.width and in_flight >= _ENOUGH_IN_FLIGHT


def total(
    times: tuple[float, ...], making: int, parts: int, fold: float, columns: int, multiprocessors: int, apart: bool
) -> float:
    """Return what a way costs.

    `times` are what `block_times` returned, `making` the blocks that fold elements, `parts` those of them that share a
    column, `fold` is of `FOLD`, `columns` are those of a tile. Of a block whose threads are `apart`, some end before
    others, and the next block takes their place, so that waves are not seen.
    """
    full = len(times) * multiprocessors
    waves = making / full
    if making <= full:
        reading = times[-(-making // multiprocessors) - 1]
    else:
        reading = (waves if waves >= _FEW_WAVES or (apart and parts == 1) else math.ceil(waves)) * times[-1]
    partials = making * columns * 2 * VECTOR_BYTES / multiprocessors / _BYTES if parts > 1 else 0.0
    return reading + partials + BLOCK + fold + _EACH_PARTIAL * parts + _EACH_BLOCK * making
