"""How columns may be cut, whatever their number and length exactly: tiles, and the times of their blocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from lowlevel_reduce.dtypes import LANES, STEPS, VECTOR_BYTES
from lowlevel_reduce.strategy.base import MOST_THREADS, Loads, Tile
from lowlevel_reduce.strategy.column_costs import BLOCK, block_times

__all__ = ["LEAF", "LINE_BYTES", "MOST_IN_CLUSTER", "NARROW_BYTES", "Cut", "Kind", "cuts_of", "loads_of", "places_of"]

NARROW_BYTES, _WIDE_BYTES = 4, VECTOR_BYTES
"""Bytes of neighbouring columns that one load takes, at most: for short latency, and for much to reduce."""

_HELD_BYTES = 32
"""Bytes of accumulators that a thread holds at a time, at most, if it has several columns."""

_IN_FLIGHT, _MOST_LOADS = 64, 16
"""Bytes that a thread loads at once, twice as many if its loads are wide and registers are left for that; and in how
many loads at most."""

_ROUNDS, _FEW_ROUNDS = 8, 2
"""Rounds of loads of a thread in a turn at most, the latter with wider accumulators than `_HELD_BYTES`: two to the
power `round_levels` in cuda_src/columns/column_meeting.cuh."""

_MOST_TURNS = 32
"""The most turns of a block."""

_LEAST_BESIDE_BYTES = 32
"""Bytes that the threads of a block load side by side, at least, if there are as many columns: a sector."""

LEAF = LANES * STEPS
"""Vectors of a leaf."""

LINE_BYTES = 128
"""Bytes of a memory line."""

MOST_IN_CLUSTER = 8
"""Blocks that a cluster has at most: `ColumnMeeting::most` in cuda_src."""

_REMEMBERED = 512
"""For so many kinds of columns are their cuts remembered. Lengths and numbers of columns between two powers of two are
of one kind, if columns are not short."""


class Kind(NamedTuple):
    """What decides how columns can be cut, and how long blocks take.

    Attributes
    ----------
    kernels : tuple
        `loads` and `slower` of each `Columns`.
    itemsize, accumulator_bytes, resident, multiprocessors : int
        As of `Columns` and the device.
    vectors, rows, inner : int
        The powers of two from `Columns.vectors` on, from the number of columns on, and from that of those which lie
        side by side on.
    length : int
        Elements of a column. From some number on, more make no difference, here as of rows and inner.
    are_lines : bool
        Whether columns side by side fill a memory line.
    """

    kernels: tuple[tuple[Loads, float], ...]
    itemsize: int
    accumulator_bytes: int
    resident: int
    multiprocessors: int
    vectors: int
    rows: int
    inner: int
    length: int
    are_lines: bool


class Cut(NamedTuple):
    """A tile that a block may have.

    Attributes
    ----------
    tile, threads
        The tile, and the block's threads.
    columns, covered : int
        The columns of the tile, and the vectors of each in all turns.
    beside : int
        Threads that lie side by side.
    times : tuple of float
        What `block_times` returns.
    each, shortest : float
        What each block takes of the device at least, which is the less the more run at once, and what a way costs at
        least. They are a little smaller than they might be, so that rounding makes neither larger than a cost.
    """

    tile: Tile
    threads: int
    columns: int
    covered: int
    beside: int
    times: tuple[float, ...]
    each: float
    shortest: float


@lru_cache(maxsize=_REMEMBERED)
def loads_of(itemsize: int, accumulator_bytes: int, *, wide: bool, two_arrays: bool = False) -> Loads:
    """Return what the kernel for columns is compiled for."""
    width = max(1, (_WIDE_BYTES if wide else NARROW_BYTES) // itemsize)
    while width > 1 and width * accumulator_bytes > _HELD_BYTES:
        width //= 2
    few = two_arrays or accumulator_bytes > min(8, 2 * itemsize)  # registers
    in_flight = _IN_FLIGHT if few or not wide else 2 * _IN_FLIGHT
    loads = min(_MOST_LOADS, max(1, in_flight // (width * itemsize)))
    return Loads(width, max(1, loads // (VECTOR_BYTES // itemsize)))


def places_of(accumulator_bytes: int) -> int:
    """Return for how many folds of columns a block has room: `ColumnMeeting::places` in cuda_src."""
    return 512 if accumulator_bytes <= 8 else 256 if accumulator_bytes <= _HELD_BYTES else 64


@lru_cache(maxsize=_REMEMBERED)
def cuts_of(kind: Kind) -> tuple[tuple[Cut, ...], ...]:
    """Return the cuts for each kernel."""
    return tuple(
        tuple(_cut(kind, *each, *kernel) for each in dict.fromkeys(_tiles(kind, kernel[0]))) for kernel in kind.kernels
    )


def _cut(kind: Kind, tile: Tile, threads: int, loads: Loads, slower: float) -> Cut:
    length = min(kind.length, loads.at_once * (VECTOR_BYTES // kind.itemsize))  # more are loaded in further rounds
    broken = tile.columns < kind.inner
    times = block_times(tile, threads, loads, kind.itemsize, length, slower, broken, kind.resident)
    beside, less = tile.columns // loads.width, 1 - 1e-9
    each, shortest = times[-1] / len(times) / kind.multiprocessors * less, (min(times) + BLOCK) * less
    return Cut(tile, threads, tile.columns, tile.vectors * tile.turns, beside, times, each, shortest)


def _tiles(kind: Kind, loads: Loads) -> Iterator[tuple[Tile, int]]:
    """Yield the tiles that a block may have, each with the block's threads; some of them more than once."""
    (width, at_once), all_vectors, itemsize = loads, kind.vectors, kind.itemsize
    places = places_of(kind.accumulator_bytes)
    most = max(width, min(MOST_THREADS * width, kind.rows))
    rounds = _ROUNDS if width * kind.accumulator_bytes <= _HELD_BYTES else _FEW_ROUNDS
    most_each = min(rounds * at_once, LEAF, all_vectors)
    if not kind.are_lines:  # threads behind each other then load what lies in the same lines
        most_each = min(most_each, max(STEPS, at_once))
    for across in _powers(max(width, min(most, _LEAST_BESIDE_BYTES // itemsize)), most):
        beside = across // width
        for each in _powers(min(at_once, all_vectors), most_each):
            depth = min(MOST_THREADS // beside, all_vectors // each)
            threads = max(LANES, beside * depth)
            if threads < MOST_THREADS and kind.rows >= 4 * kind.multiprocessors * across:
                continue  # of more than half as many columns there would be too many such blocks: `columns._folded_by`
            in_a_turn = min(threads // beside * each, all_vectors)
            most_turns = _MOST_TURNS if each == most_each and across <= threads else 1  # else more in a turn are better
            for turns in _powers(1, min(most_turns, all_vectors // in_a_turn)):
                if turns > 1 and across * turns.bit_length() > places:
                    break
                yield Tile(across, in_a_turn, turns), threads


def _powers(first: int, last: int) -> Iterator[int]:
    """Yield the powers of two from `first`, which is one, to `last`."""
    while first <= last:
        yield first
        first *= 2
