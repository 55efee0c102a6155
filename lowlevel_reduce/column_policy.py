"""How columns are mapped to a device: a pure function of the problem and the device."""

from __future__ import annotations

from lowlevel_reduce.column_tiles import (
    LINE_BYTES,
    LOADED_BYTES,
    Together,
    has_whole_lines,
    is_wide,
    strides_of_elements,
)
from lowlevel_reduce.dtypes import LANES, STEPS, VECTOR_BYTES
from lowlevel_reduce.layout import Problem
from lowlevel_reduce.policy import DeviceFacts, power_of_two
from lowlevel_reduce.row_strategy import RESIDENT_HEAVY, WARPS, RowStrategy

__all__ = ["choose_columns"]

_RESIDENT_NARROW, _RESIDENT_WIDE = 4, 3
"""How many blocks must fit on a multiprocessor: with 64 registers per thread for accumulators of up to 12 bytes, with
80 for up to 24, or for those of four bytes if elements have one."""

_CUT_FOR_TWO_WIDE = 4
"""For how many blocks on a multiprocessor columns are cut if a thread loads sixteen bytes of several at once, of two
arrays. The kernel takes 114 registers, so that two fit: tiles come in two turns (benchmarks/NOTES.md, "Two arrays")."""

_SLOWER_COPIES = {(2, 4): 1.8, (4, 4): 1.2, (4, 8): 1.03, (8, 8): 1.0}
"""How much longer copies take than loading sixteen bytes of neighbouring columns to registers
(cuda_src/columns_wide.cuh), by the bytes of an element and of an accumulator, which counts as four at least."""

_SLOWER_COPIES_OF_BROKEN_LINES = 1.2
"""The least that this factor is where neighbours share lines."""

_FEW_BYTES = 256
"""If all columns together have at most this many bytes, in whole lines, copies take less time for accumulators of more
than four bytes."""


def choose_columns(
    problem: Problem,
    facts: DeviceFacts,
    itemsize: int,
    accumulator_bytes: int,
    *,
    heavy: bool,
    two_arrays: bool = False,
) -> RowStrategy:
    """Choose how to reduce the columns of a problem: each thread takes whole columns, or a block's threads share them.

    The parameters are those of `row_policy.choose_rows`, which calls this for problems of the kind "columns".
    """
    inner = problem.kept[0].size
    vector = VECTOR_BYTES // itemsize
    vectors = max(1, -(-problem.length // vector))
    tree_lanes = min(LANES, power_of_two(vectors))
    tree_steps = min(STEPS, power_of_two(-(-vectors // LANES)))
    resident = _resident_blocks_of_columns(itemsize, accumulator_bytes, heavy=heavy)

    def loaded_bytes(width: int) -> int:
        return tree_lanes * tree_steps * vector * max(4, width * itemsize)

    # A thread that has all its elements in flight at once holds no accumulators besides those that it is computing.
    wide = _side_by_side(problem, itemsize, accumulator_bytes, 32)
    narrow = wide if itemsize == 1 else _side_by_side(problem, itemsize, accumulator_bytes, 16)
    width = wide if loaded_bytes(wide) <= LOADED_BYTES else narrow
    threads = problem.rows // inner * -(-inner // width)
    block = WARPS * LANES
    # Where a thread has whole columns, eight of one byte at that, they fill the registers.
    alone = RESIDENT_HEAVY if itemsize == 1 else resident
    enough = threads >= alone * facts.multiprocessors * block
    if vectors <= LANES and (loaded_bytes(width) <= LOADED_BYTES or enough):
        template = (block, width, tree_lanes, tree_steps, 0)
        return RowStrategy("columns", -(-threads // block), template, resident_blocks=alone)
    # Elements of two bytes fill the registers: few blocks with the widest possible loads are fastest.
    half = itemsize == 2 and all(stride % 8 == 0 for stride in strides_of_elements(problem))
    width = max(_side_by_side(problem, itemsize, accumulator_bytes, 16 if half else 8), 4 // itemsize)
    resident = RESIDENT_HEAVY if half else resident
    tree = tree_lanes, tree_steps
    found = []
    for columns, slower in _widths(problem, width, itemsize, accumulator_bytes, two_arrays=two_arrays).items():
        cut_for = _CUT_FOR_TWO_WIDE if two_arrays and is_wide(columns, itemsize) else resident
        round_length = 2 * cut_for / _CUT_FOR_TWO_WIDE if two_arrays and itemsize == 4 else 1.0
        together = Together(problem, facts, columns, tree, itemsize, accumulator_bytes, cut_for, slower, round_length)
        found += [(together.cost(way), together, way) for way in together.ways()]
    _, together, way = min(found, key=lambda each: each[0])
    return together.strategy(way, resident)


def _widths(
    problem: Problem, width: int, itemsize: int, accumulator_bytes: int, *, two_arrays: bool
) -> dict[int, float]:
    """Return how many columns a thread may have, besides or instead of `width`, and by which factor each is slower."""
    slower = _SLOWER_COPIES.get((itemsize, max(4, accumulator_bytes)))
    if slower is None:
        return {width: 1.0}
    copied = 1 if itemsize >= 4 else width  # with elements of four bytes, two columns per thread are slower than one
    if not _fills_vectors(problem, itemsize) or (two_arrays and not _second_fills_vectors(problem, itemsize)):
        return {copied: 1.0}
    if accumulator_bytes > 4:
        if not has_whole_lines(problem):
            slower = max(slower, _SLOWER_COPIES_OF_BROKEN_LINES)
        elif problem.kept[0].size * itemsize <= _FEW_BYTES:
            return {copied: 1.0}
    return {copied: slower, VECTOR_BYTES // itemsize: 1.0}


def _side_by_side(problem: Problem, itemsize: int, accumulator_bytes: int, held_bytes: int) -> int:
    """Return how many columns a thread has: at most 16 bytes of elements and `held_bytes` of accumulators.

    Elements of four or more bytes are loaded together only where they lie at multiples of the loaded size. Otherwise
    each load is of one column, and neighbouring threads load neighbouring elements.
    """
    width = max(1, min(VECTOR_BYTES // itemsize, power_of_two(held_bytes // accumulator_bytes)))
    strides = strides_of_elements(problem)
    while itemsize >= 4 and width > 1 and any(stride % (width * itemsize) for stride in strides):
        width //= 2
    return width


def _fills_vectors(problem: Problem, itemsize: int) -> bool:
    """Return whether columns may be loaded sixteen bytes at a time, so that neighbouring threads load a line."""
    few = problem.kept[0].size * itemsize < LINE_BYTES
    return not few and all(stride % VECTOR_BYTES == 0 for stride in strides_of_elements(problem))


def _second_fills_vectors(problem: Problem, itemsize: int) -> bool:
    """Return whether a second array, with elements of the same size, may be loaded like the first."""
    strides = [axis.second_stride for axis in (*problem.reduced, *problem.kept[1:])]
    beside = itemsize >= 4 and problem.kept[0].second_stride == itemsize  # elements of two bytes are faster by copies
    return beside and all(stride % VECTOR_BYTES == 0 for stride in strides)


def _resident_blocks_of_columns(itemsize: int, accumulator_bytes: int, *, heavy: bool) -> int:
    """Return how many blocks leave each thread enough registers for its elements in flight and its accumulators."""
    if heavy or accumulator_bytes > (4 if itemsize == 1 else 24):
        return RESIDENT_HEAVY
    if itemsize == 1:
        return _RESIDENT_WIDE
    return _RESIDENT_NARROW if accumulator_bytes <= 12 else _RESIDENT_WIDE
