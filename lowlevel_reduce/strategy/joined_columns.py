"""Rows whose neighbours in memory are far from each other in the tree's order: parts of rows are reduced as columns."""

from __future__ import annotations

import math
from functools import lru_cache

from lowlevel_reduce.dtypes import LEAF_BYTES, VECTOR_BYTES
from lowlevel_reduce.layout import MAX_AXES, MAX_WALKED_AXES, SECTOR_BYTES, Axis, Problem
from lowlevel_reduce.strategy import columns
from lowlevel_reduce.strategy.base import WARP_FOLDS, WARPS, Loads, RowStrategy, Task
from lowlevel_reduce.strategy.columns import MOST_FOLDERS, Columns, Way, cost, strategy_of, ways

__all__ = ["are_columns", "choose_columns", "groups_of_tiles", "in_memory", "parts_of_rows", "suits", "why_columns"]

_LEAST_BYTES = 1 << 19
"""Of fewer bytes in all, gathering takes less time than what folds partials twice; not measured."""

_TOO_FEW = 2
"""Of so many columns, no tile divides parts of an odd number of leaves among blocks without a rest."""

_FEW = WARPS * WARP_FOLDS
"""Up to so many partials of a row are folded at once, by one block."""

_LONG_COLUMN, _LINE_BYTES = 64, 128
"""Columns that memory alone has as one axis are taken as one from so many elements of a column on, and where a run of
them has fewer bytes than so many, and no whole vectors. 600 x 172,032 of bfloat16 in runs of seven take 73 us instead
of 288, 70 x 18,816 of int8 in runs of 21 2.95 instead of 6.95; but 24 x 5,226,496 in runs of eight 91 instead of 62,
and mean_var of 16 x 270,144 in runs of 536 15.1 instead of 13.5: a thread writes each result by itself then."""

_HELD_BYTES = 1 << 24
"""Of sectors that are read again after no more bytes than so many, some cache still holds most: 1,001 neighbours with
50,001 elements each are read in 336 us in the order of the tree, 37 with 2,228,949 in 1,518, and in turn in 543."""

_MOST_GROUPS = 1 << 16
"""A kernel counts groups in half a word: `tile_of_group` in cuda_src/rows/reduce_batch.cuh."""

_BATCH, _SECOND_FOLD = 1.0, 1.2
"""Microseconds that a block takes for each `_FEW` partials, and that runs of them take before."""


@lru_cache(maxsize=256)
def parts_of_rows(problem: Problem, itemsize: int) -> tuple[Problem, int] | None:
    """Return the parts of a problem's rows as columns, and how many of them are a row; None if they are none.

    Where the elements that lie side by side in memory are along a reduced axis which is not the innermost, what is
    inside that axis is a part of the row for each index of it and of the axes outside. Parts are columns then. If they
    have whole leaves, all their subtrees are subtrees of the row, in the order of the columns.
    """
    if problem.kind != "strided" or problem.length * problem.rows * itemsize < _LEAST_BYTES:
        return None
    reduced = problem.reduced
    fast = _fastest(reduced)
    inner, outer = reduced[:fast], reduced[fast:]
    if not inner or not 0 < abs(outer[0].stride) < SECTOR_BYTES:
        return None
    length = 1
    for axis in inner:
        length *= axis.size
    if length * itemsize % LEAF_BYTES or len(inner) > MAX_WALKED_AXES or len(outer) + len(problem.kept) > MAX_AXES:
        return None
    joined = problem.length // length
    if problem.rows * joined == _TOO_FEW and length * itemsize // LEAF_BYTES % 2:
        return None
    kept = (*[Axis(axis.size, axis.stride, axis.second_stride) for axis in outer], *problem.kept)
    found = problem._replace(kind="columns", length=length, rows=problem.rows * joined, kept=kept, reduced=inner)
    return found, joined


def are_columns(problem: Problem, itemsize: int) -> bool:
    """Return whether a problem's rows, or parts of them, are reduced as columns, if no other way is forced."""
    return problem.kind == "columns" or (problem.kind == "strided" and parts_of_rows(problem, itemsize) is not None)


def suits(name: str, problem: Problem, itemsize: int) -> bool:
    """Return whether a strategy goes with a problem: of rows whose parts are columns, those of other rows do, too."""
    return are_columns(problem, itemsize) if name == "columns" else problem.kind != "columns"


def why_columns(problem: Problem) -> str:
    """Return in words why `are_columns` holds."""
    if problem.kind == "columns":
        return "rows lie side by side in memory"
    return "parts of a row lie side by side in memory, so each is a column"


def groups_of_tiles(problem: Problem, tiles: int) -> int:
    """Return from how many groups a kernel takes the tiles of strided rows in turn; 1 if in the order of the tree.

    As for `parts_of_rows`, but leaves do not fit: what lies side by side in memory is in tiles a group apart, and would
    be read from the memory again for each of them.
    """
    if problem.kind != "strided":
        return 1
    reduced = problem.reduced
    fast = _fastest(reduced)
    inner = math.prod([axis.size for axis in reduced[:fast]])
    if not fast or not 0 < abs(reduced[fast].stride) < SECTOR_BYTES:
        return 1
    if inner * min(abs(reduced[0].stride), SECTOR_BYTES) <= _HELD_BYTES:
        return 1
    groups = problem.length // inner * problem.rows
    return groups if groups <= tiles and groups < _MOST_GROUPS else 1


def _fastest(reduced: tuple[Axis, ...]) -> int:
    """Return the number of the axis along which elements are the closest to each other."""
    return min(range(len(reduced)), key=lambda i: abs(reduced[i].stride) or SECTOR_BYTES)


def in_memory(problem: Problem, itemsize: int) -> Problem:
    """Return columns with kept axes joined wherever both arrays allow it; the problem itself if that gains nothing.

    The results need not allow it: their axes then stand behind the joined ones in the kernel's argument, if it has the
    room. So 32 x 8 x 7 x 96 columns that memory holds as 32 x 8 x 96 x 7 are 172,032 side by side.
    """
    kept = problem.kept
    if problem.kind != "columns" or len(kept) < 2 or problem.length < _LONG_COLUMN:
        return problem
    run_bytes = kept[0].size * itemsize
    if run_bytes >= _LINE_BYTES or run_bytes % VECTOR_BYTES == 0:
        return problem
    found = list(kept[:1])
    for axis in kept[1:]:
        last = found[-1]
        if (axis.stride, axis.second_stride) == (last.stride * last.size, last.second_stride * last.size):
            found[-1] = Axis(last.size * axis.size, last.stride, last.second_stride)
        else:
            found.append(axis)
    if len(found) == len(kept) or len(found) + len(kept) > MAX_AXES:
        return problem
    return problem._replace(kept=tuple(found))


def choose_columns(of: Task) -> RowStrategy:
    """Choose what takes the least time for columns, or for rows whose parts are columns."""
    divided = None if of.problem.kind == "columns" else parts_of_rows(of.problem, of.itemsize)
    if divided is None:
        return columns.choose_columns(of._replace(problem=in_memory(of.problem, of.itemsize)))
    parts, joined = divided
    return _choose_joined(of._replace(problem=parts), joined)


@lru_cache(maxsize=256)
def _choose_joined(of: Task, joined: int) -> RowStrategy:
    """Choose the way that takes the least time to reduce `parts_of_rows`, of those whose blocks have whole subtrees.

    Kernels for several reduced axes alone join columns, so that those for one need no registers for it.
    """
    rows = of.problem.rows // joined
    candidates = {  # whoever else would fold: here all partials are folded alike
        (way._replace(folded_by="warps"), kernel.loads): kernel
        for way, kernel in ways(of)
        if _has_subtrees(way, kernel)
    }

    def price(candidate: tuple[Way, Loads]) -> float:
        partials = joined * candidate[0].parts
        return cost(candidate[0], candidates[candidate]) + _folding(partials, _run(rows, partials))

    least = min(candidates, key=price)
    way, partials = least[0], joined * least[0].parts
    run = _run(rows, partials)
    last = _folders(rows, partials, run)
    chosen = strategy_of(way._replace(folded_by="blocks"), candidates[least])._replace(straight=False, aligned=False)
    return chosen._replace(blocks=way.making + last, folders=last, joined=joined, run=run)


def _has_subtrees(way: Way, of: Columns) -> bool:
    """Return whether blocks divide a part of a row among themselves without a rest: each then has a subtree."""
    return of.vectors % (way.tile.vectors * way.tile.turns) == 0


def _run(rows: int, partials: int) -> int:
    """Return the length of the runs in which so many partials of each row are folded first, a power of two."""
    if partials <= _FEW:
        return 1
    return WARP_FOLDS if rows == 1 else min(WARP_FOLDS, partials & -partials)


def _folding(partials: int, run: int) -> float:
    """Return how long it takes to fold so many partials of a row, in microseconds."""
    return _BATCH * -(-partials // run // _FEW) + _SECOND_FOLD * (run > 1)


def _folders(rows: int, partials: int, run: int) -> int:
    """Return how many blocks fold the partials of rows: the same number as `JoinedFolders` in cuda_src."""
    runs = -(-partials // run)
    last = min(-(-rows // WARPS) if runs <= WARP_FOLDS else rows, MOST_FOLDERS)
    return last + (min(-(-rows * runs // WARPS), MOST_FOLDERS) if run > 1 else 0)
