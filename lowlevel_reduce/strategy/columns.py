"""How columns are mapped to a device: a pure function of the problem and the device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lowlevel_reduce.dtypes import LANES, STEPS, VECTOR_BYTES
from lowlevel_reduce.layout import Problem
from lowlevel_reduce.strategy.base import MOST_THREADS, RESIDENT_HEAVY, WARP_FOLDS, WARPS, FoldedBy, RowStrategy, Tile
from lowlevel_reduce.strategy.whole import DeviceFacts, largest_cluster, power_of_two

__all__ = ["Columns", "Loads", "Way", "choose_columns", "cost", "folders", "loads_of", "strategy_of",
           "ways"]  # fmt: skip

_RESIDENT, _LIGHT_BYTES = 3, 16
"""How many blocks must fit on a multiprocessor, which leaves a thread 80 registers; heavy operators, and those with
accumulators of more than so many bytes, take `RESIDENT_HEAVY`."""

_NARROW_BYTES, _WIDE_BYTES = 4, VECTOR_BYTES
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

_LEAF = LANES * STEPS
"""Vectors of a leaf."""

_LINE_BYTES = 128
"""Bytes of a memory line."""

_FOLDERS = 512
"""The most blocks that fold the partials of columns: the same number as in `ColumnCut::folders` in cuda_src."""

_FEW_PARTIALS = 8
"""Up to this many partials of a column are folded by a warp even if each column can have a block instead."""

_MOST_IN_CLUSTER = 8
"""Blocks that a cluster has at most: `ColumnMeeting::most` in cuda_src."""

# What a way to cut columns costs, in microseconds, on an H100 (benchmarks/NOTES.md, "Columns by few kernels").
_BYTES = 24e3
"""Bytes that a multiprocessor reads of its share of the memory in a microsecond."""

_LATENCY, _GAP = 1.2, 0.35
"""The least time of a round of loads; and what comes between two rounds of a block, while others may load."""

_MEETING, _BLOCK, _EACH_BLOCK = 0.6, 1.0, 1e-5
"""What a block does in a turn besides; what it does before and after its turns; and a little for each block, which
decides between ways that cost the same."""

_FEW_WAVES = 4
"""From so many waves of blocks on, a last one that is not full costs only its part."""

_FOLD, _EACH_PARTIAL = {"nobody": 0.0, "cluster": 0.6, "warps": 1.0, "blocks": 1.1}, 0.002
"""From the last partial to the results, by who folds them; and more for each partial of a column."""

_BROKEN_LINES = {128: 1.02, 64: 1.05, 32: 1.3}
"""By how much longer reading takes if a block reads so many bytes side by side, where there are more."""

_NARROW_LOADS, _APART_LOADS = 1.05, 1.2
"""By how much longer narrow loads take; and wide ones where elements have to be loaded one by one."""


class Loads(NamedTuple):
    """What a kernel for columns is compiled for.

    Attributes
    ----------
    width : int
        Columns of a thread, whose elements come in one load.
    at_once : int
        Vectors of each of them that a thread loads in a round.
    """

    width: int
    at_once: int


def loads_of(itemsize: int, accumulator_bytes: int, *, wide: bool, two_arrays: bool = False) -> Loads:
    """Return what the kernel for columns is compiled for."""
    width = max(1, (_WIDE_BYTES if wide else _NARROW_BYTES) // itemsize)
    while width > 1 and width * accumulator_bytes > _HELD_BYTES:
        width //= 2
    few = two_arrays or accumulator_bytes > min(8, 2 * itemsize)  # registers
    in_flight = _IN_FLIGHT if few or not wide else 2 * _IN_FLIGHT
    loads = min(_MOST_LOADS, max(1, in_flight // (width * itemsize)))
    return Loads(width, max(1, loads // (VECTOR_BYTES // itemsize)))


class Columns(NamedTuple):
    """What all ways to reduce some columns have in common.

    Attributes
    ----------
    problem, facts
        What to reduce, and the device.
    itemsize : int
        Bytes of an element.
    vectors : int
        Vectors of a column that threads divide among themselves: those of whole leaves, if there are several.
    loads : Loads
        The kernel.
    slower : float
        By which factor its loads take longer than they might.
    resident : int
        How many of its blocks must fit on a multiprocessor.
    """

    problem: Problem
    facts: DeviceFacts
    itemsize: int
    vectors: int
    loads: Loads
    slower: float
    resident: int

    @property
    def load_bytes(self) -> int:
        """Bytes of a load."""
        return self.loads.width * self.itemsize


class Way(NamedTuple):
    """A way to cut columns.

    Attributes
    ----------
    tile : Tile
        What a block has.
    threads : int
        The threads of a block.
    making, parts : int
        Blocks that fold elements, and those of them that share a column.
    folded_by : {"nobody", "cluster", "warps", "blocks"}
        Who folds what several blocks make of a column.
    """

    tile: Tile
    threads: int
    making: int
    parts: int
    folded_by: FoldedBy

    def is_possible(self, resident: int, multiprocessors: int) -> bool:
        """Return whether a cluster's blocks run at once, and whether small blocks are too few to be a loss."""
        if self.folded_by == "cluster":
            return self.making <= (resident - 1) * multiprocessors
        return self.threads == MOST_THREADS or self.making <= 2 * multiprocessors


def cost(way: Way, of: Columns) -> float:
    """Return about how long a way takes, in microseconds."""
    tile, width, places = way.tile, of.loads.width, of.facts.multiprocessors
    at_once = min(-(-way.making // places), of.resident * MOST_THREADS // way.threads, 32)  # of a multiprocessor
    waves = way.making / (places * at_once)
    if waves < _FEW_WAVES:
        waves = math.ceil(waves)
    vectors = max(1, tile.vectors * tile.columns // width // way.threads)  # of a thread, in a turn
    rounds = -(-vectors // of.loads.at_once)
    elements = min(vectors / rounds * (VECTOR_BYTES // of.itemsize), of.problem.length)
    reading = way.threads * of.load_bytes * elements / _BYTES * of.slower  # a round, of a block alone
    if tile.columns < of.problem.kept[0].size:
        reading *= _BROKEN_LINES.get(tile.columns * of.itemsize, 1.0)
    hidden = at_once**2  # what others hide of a block's own work, about
    turn = rounds * max(_LATENCY, at_once * reading + _GAP / hidden) + _MEETING / hidden
    block = turn * tile.turns + _BLOCK * MOST_THREADS / way.threads / at_once
    partials = way.making * tile.columns * 2 * VECTOR_BYTES / places / _BYTES if way.parts > 1 else 0.0
    return (
        waves * block + partials + _BLOCK + _FOLD[way.folded_by] + _EACH_PARTIAL * way.parts + _EACH_BLOCK * way.making
    )


def choose_columns(found: Iterable[tuple[Way, Columns]]) -> RowStrategy:
    """Choose among what `ways` yields: which columns a block has, and how many vectors of each."""
    return strategy_of(*min(found, key=lambda each: cost(*each)))


def ways(
    problem: Problem, facts: DeviceFacts, itemsize: int, accumulator_bytes: int, *, heavy: bool, two_arrays: bool
) -> Iterator[tuple[Way, Columns]]:
    """Yield the ways to reduce columns, each with what `cost` and `strategy_of` need besides; there is always one.

    The parameters are those of `row_policy.choose_rows`, for problems of the kind "columns".
    """
    vectors = max(1, -(-problem.length * itemsize // VECTOR_BYTES))
    vectors = power_of_two(vectors) if vectors <= _LEAF else -(-vectors // _LEAF) * _LEAF
    resident = RESIDENT_HEAVY if heavy or accumulator_bytes > _LIGHT_BYTES else _RESIDENT
    for wide in (False, True):
        loads = loads_of(itemsize, accumulator_bytes, wide=wide, two_arrays=two_arrays)
        narrow = loads.width * itemsize <= _NARROW_BYTES
        if wide and narrow:
            return
        slower = _NARROW_LOADS if narrow else 1.0 if _are_aligned(problem, loads, itemsize) else _APART_LOADS
        of = Columns(problem, facts, itemsize, vectors, loads, slower, resident)
        for way in _ways(of, accumulator_bytes):
            yield way, of


def strategy_of(way: Way, of: Columns) -> RowStrategy:
    """Return the strategy of a way."""
    straight, wide = len(of.problem.reduced) <= 1, of.loads.width > 1 and of.load_bytes > _NARROW_BYTES
    last = folders(of.problem.rows, way.folded_by)
    return RowStrategy(
        "columns",
        way.making + last,
        of.loads,
        way.parts,
        last,
        aligned=straight and wide and _are_aligned(of.problem, of.loads, of.itemsize),
        warps=way.threads // LANES,
        cluster=way.parts if way.folded_by == "cluster" else 1,
        resident_blocks=of.resident,
        wide=wide,
        straight=straight,
        tile=way.tile,
        folded_by=way.folded_by,
    )


def _are_aligned(problem: Problem, loads: Loads, itemsize: int) -> bool:
    """Return whether loads are aligned to their size if the array is."""
    strides = [axis.stride for axis in (*problem.reduced, *problem.kept[1:])]
    return problem.kept[0].size % loads.width == 0 and not any(stride % (loads.width * itemsize) for stride in strides)


def _ways(of: Columns, accumulator_bytes: int) -> Iterator[Way]:
    """Yield the ways to cut columns for a kernel."""
    problem, width, at_once = of.problem, of.loads.width, of.loads.at_once
    inner, all_vectors = problem.kept[0].size, power_of_two(of.vectors)
    all_threads = -(-inner // width) * (problem.rows // inner)  # side by side
    places = _places(accumulator_bytes)
    most = max(width, min(MOST_THREADS * width, power_of_two(problem.rows)))
    rounds = _ROUNDS if width * accumulator_bytes <= _HELD_BYTES else _FEW_ROUNDS
    most_each = min(rounds * at_once, _LEAF, all_vectors)
    if inner * of.itemsize < _LINE_BYTES:  # threads behind each other then load what lies in the same lines
        most_each = min(most_each, max(STEPS, at_once))
    for across in _powers(max(width, min(most, _LEAST_BESIDE_BYTES // of.itemsize)), most):
        beside = across // width
        tiles = -(-all_threads // beside)
        for each in _powers(min(at_once, all_vectors), most_each):
            depth = min(MOST_THREADS // beside, all_vectors // each)
            threads = max(LANES, beside * depth)
            in_a_turn = min(threads // beside * each, all_vectors)
            most_turns = _MOST_TURNS if each == most_each and across <= threads else 1  # else more in a turn are better
            for turns in _powers(1, min(most_turns, all_vectors // in_a_turn)):
                if turns > 1 and across * turns.bit_length() > places:
                    break
                parts = -(-of.vectors // (in_a_turn * turns))
                for by in _folding(problem.rows, parts, across <= places // parts, of.facts, of.resident):
                    way = Way(Tile(across, in_a_turn, turns), threads, tiles * parts, parts, by)
                    if way.is_possible(of.resident, of.facts.multiprocessors):
                        yield way


def _places(accumulator_bytes: int) -> int:
    """Return for how many folds of columns a block has room: `ColumnMeeting::places` in cuda_src."""
    return 512 if accumulator_bytes <= 8 else 256 if accumulator_bytes <= _HELD_BYTES else 64


def _powers(first: int, last: int) -> Iterator[int]:
    """Yield the powers of two from `first`, which is one, to `last`."""
    while first <= last:
        yield first
        first *= 2


def _folding(rows: int, parts: int, fit: bool, facts: DeviceFacts, resident: int) -> tuple[FoldedBy, ...]:
    """Return who may fold `parts` partials of each row; `fit` is whether a block has room for those of a cluster.

    If blocks that wait for partials are few on a multiprocessor, they would take the places of those that make them.
    """
    if parts == 1:
        return ("nobody",)
    in_cluster = fit and parts <= min(_MOST_IN_CLUSTER, largest_cluster(facts))
    cluster: tuple[FoldedBy, ...] = ("cluster",) if in_cluster else ()
    if parts > WARP_FOLDS:
        return ("blocks",)
    if parts > _FEW_PARTIALS and rows <= _FOLDERS and resident > RESIDENT_HEAVY:
        return (*cluster, "warps", "blocks")
    return (*cluster, "warps")


def folders(rows: int, folded_by: FoldedBy) -> int:
    """Return how many blocks fold the partials of so many rows: the same number as `ColumnCut::folders` in cuda_src."""
    wanted = {"nobody": 0, "cluster": 0, "warps": -(-rows // WARPS), "blocks": rows}
    return min(wanted[folded_by], _FOLDERS)
