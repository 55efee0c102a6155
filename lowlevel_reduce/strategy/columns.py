"""How columns are mapped to a device: a pure function of the problem and the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from lowlevel_reduce.dtypes import LANES, STEPS, VECTOR_BYTES
from lowlevel_reduce.layout import Problem
from lowlevel_reduce.strategy.base import (
    MOST_THREADS,
    RESIDENT_HEAVY,
    WARP_FOLDS,
    WARPS,
    FoldedBy,
    Loads,
    RowStrategy,
    Tile,
)
from lowlevel_reduce.strategy.column_costs import FOLD, MOST_BROKEN_BYTES, block_times, least_cost, total
from lowlevel_reduce.strategy.whole import DeviceFacts, largest_cluster, power_of_two

__all__ = ["Columns", "Way", "choose_columns", "cost", "folders", "loads_of", "strategy_of", "ways"]

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

_NARROW_LOADS, _APART_LOADS = 1.05, 1.2
"""By how much longer narrow loads take; and wide ones where elements have to be loaded one by one."""

_MANY, _MANY_ELEMENTS = 1 << 20, 2 * _MOST_LOADS
"""From so many columns on, and from so many elements of a column on, more make no difference to cuts and blocks."""

_REMEMBERED = 512
"""For so many kinds of columns are their cuts remembered: most lengths and numbers of columns between two powers of two
are of one kind."""


@lru_cache(maxsize=_REMEMBERED)
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
    itemsize, accumulator_bytes : int
        Bytes of an element and of an accumulator.
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
    accumulator_bytes: int
    vectors: int
    loads: Loads
    slower: float
    resident: int

    @property
    def threads(self) -> int:
        """Threads that load all columns side by side."""
        inner = self.problem.kept[0].size
        return -(-inner // self.loads.width) * (self.problem.rows // inner)


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


class _Kind(NamedTuple):
    """What decides how columns can be cut, and how long blocks take: powers of two and few more numbers.

    Attributes
    ----------
    kernels : tuple
        `loads` and `slower` of each `Columns`.
    itemsize, accumulator_bytes, resident, multiprocessors : int
        As of `Columns` and the device.
    vectors, rows : int
        The powers of two from `Columns.vectors` and from the number of columns on.
    inner, length : int
        The same of columns side by side, and the elements of each; the number from which on more change nothing.
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


class _Cut(NamedTuple):
    """A tile that a block may have, the block's threads, and what `_priced` needs of both.

    Attributes
    ----------
    covered : int
        The vectors of a column in all turns of the block.
    beside : int
        Its threads that lie side by side.
    times : tuple of float
        What `block_times` returns.
    """

    tile: Tile
    threads: int
    columns: int
    covered: int
    beside: int
    times: tuple[float, ...]


_Bound = tuple[float, float, float]
"""What `least_cost` returns."""


class _Limits(NamedTuple):
    """What `_priced` needs of columns and the device, the same for all kernels.

    Attributes
    ----------
    vectors, places : int
        As of `Columns`, and for how many folds of columns a block has room.
    most_in_cluster : int
        The most blocks of a cluster.
    together, few : int
        The most blocks in all that are taken of clusters, and of small blocks.
    multiprocessors : int
        Of the device.
    """

    vectors: int
    places: int
    most_in_cluster: int
    together: int
    few: int
    multiprocessors: int


def cost(way: Way, of: Columns) -> float:
    """Return about how long a way takes, in microseconds."""
    broken = way.tile.columns < of.problem.kept[0].size
    times = block_times(
        way.tile, way.threads, of.loads, of.itemsize,
        length=of.problem.length, slower=of.slower, resident=of.resident, broken=broken,
    )  # fmt: skip
    return total(times, way.making, way.parts, FOLD[way.folded_by], way.tile.columns, of.facts.multiprocessors)


def choose_columns(
    problem: Problem, facts: DeviceFacts, itemsize: int, accumulator_bytes: int, *, heavy: bool, two_arrays: bool
) -> RowStrategy:
    """Choose the first of `ways` whose `cost` is the least: which columns a block has, and how many vectors of each.

    Of most cuts only a lower bound of what they cost is computed, from numbers that are remembered. Those whose bounds
    are least come first, until what is found costs less than the next bound.
    """
    kernels = _kernels(problem, facts, itemsize, accumulator_bytes, heavy=heavy, two_arrays=two_arrays)
    limits, cuts, bounds = _limits_of(kernels[0]), *_cuts_of(_kind_of(kernels))
    threads = [of.threads for of in kernels]
    lows: list[float] = []
    for each, of_kernel in zip(threads, bounds, strict=True):
        work = each * limits.vectors
        lows += [low if (low := slope * work + rest) > least else least for slope, rest, least in of_kernel]
    narrow = len(bounds[0])  # so many cuts are for narrow loads, the others for wide ones
    least, chosen = math.inf, 0
    for i in sorted(range(len(lows)), key=lows.__getitem__):
        if lows[i] > least:
            break
        price = _priced(cuts[i], threads[i >= narrow], limits)
        if price < least or (price == least and i < chosen):
            least, chosen = price, i
    of = kernels[chosen >= narrow]
    return strategy_of(next(_ways_of(cuts[chosen], of)), of)


def ways(
    problem: Problem, facts: DeviceFacts, itemsize: int, accumulator_bytes: int, *, heavy: bool, two_arrays: bool
) -> Iterator[tuple[Way, Columns]]:
    """Yield the ways to reduce columns, each with what `cost` and `strategy_of` need besides; there is always one.

    The parameters are those of `rows.choose_rows`, for problems of the kind "columns".
    """
    kernels = _kernels(problem, facts, itemsize, accumulator_bytes, heavy=heavy, two_arrays=two_arrays)
    cuts, bounds = _cuts_of(_kind_of(kernels))
    for i, cut in enumerate(cuts):
        of = kernels[i >= len(bounds[0])]
        for way in _ways_of(cut, of):
            yield way, of


def _kernels(
    problem: Problem, facts: DeviceFacts, itemsize: int, accumulator_bytes: int, *, heavy: bool, two_arrays: bool
) -> list[Columns]:
    """Return what the ways by narrow loads have in common, and those by wide loads, if such are wider."""
    vectors = max(1, -(-problem.length * itemsize // VECTOR_BYTES))
    vectors = power_of_two(vectors) if vectors <= _LEAF else -(-vectors // _LEAF) * _LEAF
    resident = RESIDENT_HEAVY if heavy or accumulator_bytes > _LIGHT_BYTES else _RESIDENT
    found = []
    for wide in (False, True):
        loads = loads_of(itemsize, accumulator_bytes, wide=wide, two_arrays=two_arrays)
        narrow = loads.width * itemsize <= _NARROW_BYTES
        if not (wide and narrow):
            slower = _NARROW_LOADS if narrow else 1.0 if _are_aligned(problem, loads, itemsize) else _APART_LOADS
            found.append(Columns(problem, facts, itemsize, accumulator_bytes, vectors, loads, slower, resident))
    return found


def strategy_of(way: Way, of: Columns) -> RowStrategy:
    """Return the strategy of a way."""
    straight, wide = len(of.problem.reduced) <= 1, of.loads.width > 1 and of.loads.width * of.itemsize > _NARROW_BYTES
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


def _kind_of(kernels: list[Columns]) -> _Kind:
    problem, facts, itemsize, accumulator_bytes, vectors, _, _, resident = kernels[0]
    inner = problem.kept[0].size
    return _Kind(
        tuple([(of.loads, of.slower) for of in kernels]),
        itemsize,
        accumulator_bytes,
        resident,
        facts.multiprocessors,
        power_of_two(vectors),
        min(power_of_two(problem.rows), _MANY),
        min(power_of_two(inner), 2 * MOST_BROKEN_BYTES // itemsize),
        min(problem.length, _MANY_ELEMENTS),
        inner * itemsize >= _LINE_BYTES,
    )


def _limits_of(of: Columns) -> _Limits:
    places, multiprocessors = _places(of.accumulator_bytes), of.facts.multiprocessors
    most_in_cluster = min(_MOST_IN_CLUSTER, largest_cluster(of.facts))
    together = (of.resident - 1) * multiprocessors
    return _Limits(of.vectors, places, most_in_cluster, together, 2 * multiprocessors, multiprocessors)


@lru_cache(maxsize=_REMEMBERED)
def _cuts_of(kind: _Kind) -> tuple[tuple[_Cut, ...], tuple[tuple[_Bound, ...], ...]]:
    """Return the cuts for all kernels, and for each kernel bounds of what they cost for the work of all threads.

    Work is counted in vectors, those of all columns of a thread together being one.
    """
    found = [[_cut(kind, *each, *kernel) for each in dict.fromkeys(_tiles(kind, kernel[0]))] for kernel in kind.kernels]
    cuts = tuple(cut for of_kernel in found for cut, _ in of_kernel)
    return cuts, tuple(tuple(bound for _, bound in of_kernel) for of_kernel in found)


def _cut(kind: _Kind, tile: Tile, threads: int, loads: Loads, slower: float) -> tuple[_Cut, _Bound]:
    covered = tile.vectors * tile.turns
    parts = 1.0 if covered == kind.vectors else max(2.0, kind.vectors / 2 / covered)
    broken, itemsize, places = tile.columns < kind.inner, kind.itemsize, kind.multiprocessors
    return _cut_of(tile, threads, loads, slower, itemsize, kind.length, kind.resident, broken, parts, places)


@lru_cache(maxsize=8 * _REMEMBERED)
def _cut_of(
    tile: Tile,
    threads: int,
    loads: Loads,
    slower: float,
    itemsize: int,
    length: int,
    resident: int,
    broken: bool,
    parts: float,
    multiprocessors: int,
) -> tuple[_Cut, _Bound]:
    beside, covered = tile.columns // loads.width, tile.vectors * tile.turns
    times = block_times(tile, threads, loads, itemsize, length=length, slower=slower, resident=resident, broken=broken)
    by: FoldedBy = "cluster" if 1 < parts <= _MOST_IN_CLUSTER else _without_clusters(parts)
    bound = least_cost(times, tile.columns, 1 / (beside * covered), parts, FOLD[by], multiprocessors)
    return _Cut(tile, threads, tile.columns, covered, beside, times), bound


def _tiles(kind: _Kind, loads: Loads) -> Iterator[tuple[Tile, int]]:
    """Yield the tiles that a block may have, each with the block's threads; some of them more than once."""
    (width, at_once), all_vectors, itemsize = loads, kind.vectors, kind.itemsize
    places = _places(kind.accumulator_bytes)
    most = max(width, min(MOST_THREADS * width, kind.rows))
    rounds = _ROUNDS if width * kind.accumulator_bytes <= _HELD_BYTES else _FEW_ROUNDS
    most_each = min(rounds * at_once, _LEAF, all_vectors)
    if not kind.are_lines:  # threads behind each other then load what lies in the same lines
        most_each = min(most_each, max(STEPS, at_once))
    for across in _powers(max(width, min(most, _LEAST_BESIDE_BYTES // itemsize)), most):
        beside = across // width
        for each in _powers(min(at_once, all_vectors), most_each):
            depth = min(MOST_THREADS // beside, all_vectors // each)
            threads = max(LANES, beside * depth)
            if threads < MOST_THREADS and kind.rows >= 4 * kind.multiprocessors * across:
                continue  # of more than half as many columns there would be too many such blocks: `Way.is_possible`
            in_a_turn = min(threads // beside * each, all_vectors)
            most_turns = _MOST_TURNS if each == most_each and across <= threads else 1  # else more in a turn are better
            for turns in _powers(1, min(most_turns, all_vectors // in_a_turn)):
                if turns > 1 and across * turns.bit_length() > places:
                    break
                yield Tile(across, in_a_turn, turns), threads


def _ways_of(cut: _Cut, of: Columns) -> Iterator[Way]:
    """Yield the ways to fold what blocks make of a cut, the cheapest first."""
    parts = -(-of.vectors // cut.covered)
    making = -(-of.threads // cut.beside) * parts
    fit = cut.columns <= _places(of.accumulator_bytes) // parts
    for by in _folding(of.problem.rows, parts, fit, of.facts, of.resident):
        way = Way(cut.tile, cut.threads, making, parts, by)
        if way.is_possible(of.resident, of.facts.multiprocessors):
            yield way


def _priced(cut: _Cut, all_threads: int, limits: _Limits) -> float:
    """Return what the first of `_ways_of` costs, infinity if there is none; `all_threads` lie side by side."""
    _, threads, columns, covered, beside, times = cut
    vectors, places, most_in_cluster, together, few, multiprocessors = limits
    parts = -(-vectors // covered)
    making = -(-all_threads // beside) * parts
    if 1 < parts <= most_in_cluster and making <= together and columns <= places // parts:
        fold = FOLD["cluster"]
    elif threads < MOST_THREADS and making > few:
        return math.inf
    else:
        fold = FOLD[_without_clusters(parts)]
    return total(times, making, parts, fold, columns, multiprocessors)


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


def _without_clusters(parts: float) -> FoldedBy:
    """Return who folds so many partials in the least time, but for clusters."""
    return "nobody" if parts == 1 else "warps" if parts <= WARP_FOLDS else "blocks"


def folders(rows: int, folded_by: FoldedBy) -> int:
    """Return how many blocks fold the partials of so many rows: the same number as `ColumnCut::folders` in cuda_src."""
    wanted = {"nobody": 0, "cluster": 0, "warps": -(-rows // WARPS), "blocks": rows}
    return min(wanted[folded_by], _FOLDERS)
