"""How columns are mapped to a device: a pure function of the problem and the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from lowlevel_reduce.dtypes import LANES, VECTOR_BYTES
from lowlevel_reduce.layout import SECTOR_BYTES, Problem
from lowlevel_reduce.strategy.base import (
    MOST_THREADS,
    RESIDENT_HEAVY,
    WARP_FOLDS,
    WARPS,
    FoldedBy,
    Loads,
    RowStrategy,
    Task,
    Tile,
)
from lowlevel_reduce.strategy.column_costs import FOLD, MOST_BROKEN_BYTES, are_apart, block_times, total
from lowlevel_reduce.strategy.column_cuts import (
    LEAF,
    LINE_BYTES,
    MOST_IN_CLUSTER,
    NARROW_BYTES,
    Cut,
    Kind,
    cuts_of,
    loads_of,
    places_of,
)
from lowlevel_reduce.strategy.whole import largest_cluster, power_of_two

__all__ = ["MOST_FOLDERS", "Columns", "Way", "choose_columns", "cost", "folders", "is_wide", "resident_columns",
           "strategy_of", "ways"]  # fmt: skip

_RESIDENT, _LIGHT_BYTES = 3, 16
"""How many blocks must fit on a multiprocessor, which leaves a thread 80 registers; heavy operators, and those with
accumulators of more than so many bytes, take `RESIDENT_HEAVY`."""

MOST_FOLDERS = 512
"""The most blocks that fold the partials of columns: the same number as in `ColumnCut::folders` in cuda_src."""

_NARROW_LOADS, _APART_LOADS = 1.05, 1.2
"""By how much longer narrow loads take; and wide ones where elements have to be loaded one by one."""

_REMEMBERED = 256
"""So many choices are remembered; before there are more, all are forgotten."""

_chosen: dict[tuple[Any, ...], RowStrategy] = {}

BOUNDS = {"_chosen": _REMEMBERED}
"""The most entries of what is kept here, by its name: who watches for growth tells it from what has no bound."""

_MANY, _MANY_ELEMENTS = 1 << 20, 32
"""From so many columns on, and from so many elements of a column on, more make no difference to cuts and blocks."""


def is_wide(loads: Loads, itemsize: int) -> bool:
    """Return whether a thread has several columns that it loads more than four bytes of at a time."""
    return loads.width > 1 and loads.width * itemsize > NARROW_BYTES


def resident_columns(accumulator_bytes: int, *, heavy: bool) -> int:
    """Return how many blocks of a kernel for columns must fit on a multiprocessor."""
    return RESIDENT_HEAVY if heavy or accumulator_bytes > _LIGHT_BYTES else _RESIDENT


class Columns(NamedTuple):
    """What all ways to reduce some columns have in common.

    Attributes
    ----------
    task : Task
        What to reduce.
    vectors : int
        Vectors of a column that threads divide among themselves: those of whole leaves, if there are several.
    loads : Loads
        The kernel.
    slower : float
        By which factor its loads take longer than they might.
    resident : int
        How many of its blocks must fit on a multiprocessor.
    threads : int
        Its threads that load all columns side by side.
    """

    task: Task
    vectors: int
    loads: Loads
    slower: float
    resident: int
    threads: int


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


def cost(way: Way, of: Columns) -> float:
    """Return about how long a way takes, in microseconds."""
    problem, facts, itemsize = of.task[:3]
    broken = way.tile.columns < problem.kept[0].size
    times = block_times(way.tile, way.threads, of.loads, itemsize, problem.length, of.slower, broken, of.resident)
    apart = are_apart(way.tile, way.threads, of.loads)
    return total(times, way.making, way.parts, FOLD[way.folded_by], way.tile.columns, facts.multiprocessors, apart)


def choose_columns(of: Task) -> RowStrategy:
    """Choose the first of `ways` whose `cost` is the least: which columns a block has, and how many vectors of each.

    What was chosen is remembered by all that the choice depends on, which most lengths of long columns share.
    """
    problem, _, itemsize, accumulator_bytes, _, two_arrays, _ = of
    wide = loads_of(itemsize, accumulator_bytes, wide=True, two_arrays=two_arrays)
    by_ones = itemsize <= NARROW_BYTES or _are_aligned(problem, Loads(1, 1), itemsize)  # elements at least are aligned
    key = (
        *of[1:],
        problem.rows, *problem.kept[0][:2], len(problem.reduced) <= 1, _are_aligned(problem, wide, itemsize), by_ones,
        _vectors_of(of), min(problem.length, _MANY_ELEMENTS),
    )  # fmt: skip
    found = _chosen.get(key)
    if found is None:
        if len(_chosen) >= _REMEMBERED:
            _chosen.clear()
        found = _chosen[key] = _cheapest(_kernels(of))
    return found


def _cheapest(kernels: list[Columns]) -> RowStrategy:
    """Return the strategy of the first way that costs the least."""
    least, found = math.inf, None
    for of, cuts in zip(kernels, cuts_of(_kind_of(kernels)), strict=True):
        threads, vectors, multiprocessors = of.threads, of.vectors, of.task.facts.multiprocessors
        for cut in cuts:
            tile, block_threads, columns, covered, beside, times, each, shortest = cut
            if shortest > least:
                continue
            parts = -(-vectors // covered)
            making = -(-threads // beside) * parts
            if making * each > least:
                continue
            by = _folded_by(cut, of, parts, making)
            if by is not None:
                apart = are_apart(tile, block_threads, of.loads)
                price = total(times, making, parts, FOLD[by], columns, multiprocessors, apart)
                if price < least:
                    least, found = price, (Way(tile, block_threads, making, parts, by), of)
    if found is None:
        raise AssertionError("large blocks are possible, however many")
    return strategy_of(*found)


def ways(task: Task) -> Iterator[tuple[Way, Columns]]:
    """Yield the ways to reduce columns, each with what `cost` and `strategy_of` need besides; there is always one.

    Of each cut's, the one whose partials a cluster folds takes the least time, and comes first.
    """
    kernels = _kernels(task)
    for of, cuts in zip(kernels, cuts_of(_kind_of(kernels)), strict=True):
        for cut in cuts:
            parts = -(-of.vectors // cut.covered)
            making = -(-of.threads // cut.beside) * parts
            found = (_folded_by(cut, of, parts, making, in_cluster=in_cluster) for in_cluster in (True, False))
            for by in dict.fromkeys(found):
                if by is not None:
                    yield Way(cut.tile, cut.threads, making, parts, by), of


def strategy_of(way: Way, of: Columns) -> RowStrategy:
    """Return the strategy of a way."""
    problem, facts, itemsize = of.task[:3]
    straight, wide = len(problem.reduced) <= 1, is_wide(of.loads, itemsize)
    last = folders(problem.rows, way.folded_by)
    return RowStrategy(
        "columns",
        way.making + last,
        of.loads,
        way.parts,
        last,
        aligned=straight and wide and _are_aligned(problem, of.loads, itemsize),
        warps=way.threads // LANES,
        cluster=way.parts if way.folded_by == "cluster" else 1,
        resident_blocks=of.resident,
        programmatic=facts.programmatic,
        wide=wide,
        straight=straight,
        tile=way.tile,
        folded_by=way.folded_by,
    )


def _are_aligned(problem: Problem, loads: Loads, itemsize: int) -> bool:
    """Return whether loads are aligned to their size if the array is."""
    kept, load_bytes = problem.kept, loads.width * itemsize
    if kept[0].size % loads.width or (loads.width > 1 and kept[0].stride != itemsize):
        return False
    for axis in (*problem.reduced, *kept[1:]):  # noqa: SIM110 - a generator takes three times as long
        if axis.stride % load_bytes:
            return False
    return True


def _kernels(task: Task) -> list[Columns]:
    """Return what the ways by narrow loads have in common, and those by wide loads, if such are wider."""
    problem, _, itemsize, accumulator_bytes, heavy, two_arrays, _ = task
    vectors, resident = _vectors_of(task), resident_columns(accumulator_bytes, heavy=heavy)
    inner, stride = problem.kept[0].size, abs(problem.kept[0].stride)
    found = []
    for wide in (False, True) if stride == itemsize else (False,):
        loads = loads_of(itemsize, accumulator_bytes, wide=wide, two_arrays=two_arrays)
        narrow = loads.width * itemsize <= NARROW_BYTES
        if not (wide and narrow):
            slower = _NARROW_LOADS if narrow else 1.0 if _are_aligned(problem, loads, itemsize) else _APART_LOADS
            slower *= min(stride, SECTOR_BYTES) / itemsize  # what lies between the columns is read as well
            threads = -(-inner // loads.width) * (problem.rows // inner)
            found.append(Columns(task, vectors, loads, slower, resident, threads))
    return found


def _vectors_of(of: Task) -> int:
    """Return the vectors of a column that threads divide among themselves: a power of two, or those of whole leaves."""
    vectors = max(1, -(-of.problem.length * of.itemsize // VECTOR_BYTES))
    return power_of_two(vectors) if vectors <= LEAF else -(-vectors // LEAF) * LEAF


def _kind_of(kernels: list[Columns]) -> Kind:
    (problem, facts, itemsize, accumulator_bytes, *_), vectors, _, _, resident, _ = kernels[0]
    inner = problem.kept[0].size
    return Kind(
        tuple([(of.loads, of.slower) for of in kernels]),
        itemsize,
        accumulator_bytes,
        resident,
        facts.multiprocessors,
        power_of_two(vectors),
        min(power_of_two(problem.rows), _MANY),
        min(power_of_two(inner), 2 * MOST_BROKEN_BYTES // itemsize),
        min(problem.length, _MANY_ELEMENTS),
        inner * itemsize >= LINE_BYTES,
    )


def _folded_by(cut: Cut, of: Columns, parts: int, making: int, *, in_cluster: bool = True) -> FoldedBy | None:
    """Return who folds the partials of a cut in the least time; None if its blocks are small, and too many for that.

    The blocks of a cluster run at once, and its first one has room for the partials of all.
    """
    facts = of.task.facts
    if (
        in_cluster
        and 1 < parts <= MOST_IN_CLUSTER
        and making <= (of.resident - 1) * facts.multiprocessors
        and parts <= largest_cluster(facts)
        and cut.columns <= places_of(of.task.accumulator_bytes) // parts
    ):
        return "cluster"
    if cut.threads < MOST_THREADS and making > 2 * facts.multiprocessors:
        return None
    return "nobody" if parts == 1 else "warps" if parts <= WARP_FOLDS else "blocks"


def folders(rows: int, folded_by: FoldedBy) -> int:
    """Return how many blocks fold the partials of so many rows: the same number as `ColumnCut::folders` in cuda_src."""
    wanted = {"nobody": 0, "cluster": 0, "warps": -(-rows // WARPS), "blocks": rows}
    return min(wanted[folded_by], MOST_FOLDERS)
