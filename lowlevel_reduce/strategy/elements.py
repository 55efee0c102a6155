"""Rows of few elements that are loaded one by one: which problems they may be, and how they are cut."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from lowlevel_reduce.dtypes import LANE_BITS, LANES, LEAF_BYTES, STEP_BITS, VECTOR_BYTES
from lowlevel_reduce.layout import SECTOR_BYTES, Problem
from lowlevel_reduce.strategy.base import RESIDENT_HEAVY, WARPS, RowStrategy, Task, Tile
from lowlevel_reduce.strategy.element_costs import is_light, pairs_anywhere, time_by_elements, time_otherwise

__all__ = [
    "ELEMENT_WARPS",
    "KERNEL_BOUNDS",
    "choose_elements",
    "elements_of_a_thread",
    "faster_elements",
    "takes_elements",
]  # fmt: skip

ELEMENT_WARPS = 16
"""The most warps of a block: `element_warps` in cuda_src/rows/reduce_elements.cuh."""

_REMEMBERED = 256
"""For so many problems is what was chosen remembered."""

_BLOCKS = 24
"""Blocks of a grid to a multiprocessor, at most, if a warp has all of a row: they take further rows in turns."""

KERNEL_BOUNDS: Mapping[str, Any] = {"most_warps": ELEMENT_WARPS, "resident_blocks": RESIDENT_HEAVY}
"""Of the kernel: they leave a thread 64 registers."""

_NARROW_THREADS = 128
"""Up to so many threads to a multiprocessor, rows side by side are fewer where a warp has all of a row then: to wait
for other warps takes longer than to load more sectors."""

_SMALL, _MARGIN, _LIGHT_MARGIN, _ROWS_MARGIN, _WORDS_MARGIN, _WORD_BYTES = 5.0, 1.08, 1.35, 1.15, 1.3, 4
"""Where the others take longer than this by the model, in microseconds, by what factor they must be slower: a small
kernel wins little there in the place where it is used. Light elements of large columns take longer than the model says;
rows have margins of their own, for those of words, of so many bytes, others load by words as well."""

_TOGETHER_BYTES, _NEAR_BYTES, _TOGETHER_THREADS = 8, 1 << 32, 128
"""Rows are taken several at once if an element's bytes times an accumulator's are no more than the first, rows are
fewer bytes apart than the second, and so many threads to a multiprocessor remain."""

_PAIR_BYTES = 8
"""Bytes of columns side by side, at least, that a thread takes at once; and of their accumulators, at most."""

_WHOLE_VECTORS = 4
"""Columns of no more elements are taken in vectors where those are aligned: more would not fit into registers."""

_ROWS, _WORDS, _VECTORS = 1, 2, 3
"""Which rows are taken several at once: `Together` in cuda_src/rows/columns_together.cuh."""

_LEAST_WARPS = 4
"""Warps of a block, if there are as many: one for each scheduler. To start more blocks takes longer, but of two arrays
they were slower."""

_DIRECT_THREADS, _DIRECT_AXES = 512, 2
"""Threads of a grid to a multiprocessor, and kept axes, at most, for `reduce_directly`."""

_MOST_ROWS, _FAR_BYTES = 1 << 31, 1 << 31
"""Rows are numbered, and a row's elements are counted from its first one, in fewer bits than this needs."""


def takes_elements(problem: Problem, itemsize: int) -> bool:
    """Tell whether the kernel can serve a problem: near elements, no more than a leaf, and not too many rows.

    Where elements are not contiguous, a row may have as many elements as a block has room for.
    """
    if problem.rows >= _MOST_ROWS or problem.kind == "whole":
        return False
    room = ELEMENT_WARPS * LANES * elements_of_a_thread(itemsize)
    if problem.length * itemsize > LEAF_BYTES and (problem.kind == "rows" or problem.length > room):
        return False
    reach = second_reach = 0
    for size, stride, second_stride, _ in problem.reduced:
        reach += (size - 1) * abs(stride)
        second_reach += (size - 1) * abs(second_stride)
    return reach < _FAR_BYTES and second_reach < _FAR_BYTES


def _bits(of: Task) -> tuple[int, int, bool]:
    """Return log2 of a row's threads and of the rows of a warp, and whether neighbouring lanes share a row."""
    problem, itemsize = of.problem, of.itemsize
    thread_bits = max(0, (max(problem.length, 1) - 1).bit_length() - elements_of_a_thread(itemsize).bit_length() + 1)
    kept, reduced = problem.kept, problem.reduced
    behind = not kept or not reduced or abs(kept[0].stride) >= abs(reduced[0].stride)
    if behind:
        return thread_bits, LANE_BITS - min(thread_bits, LANE_BITS), True
    narrow = thread_bits <= LANE_BITS and problem.rows << thread_bits <= _NARROW_THREADS * of.facts.multiprocessors
    side_by_side = 1 if narrow else min(kept[0].size, SECTOR_BYTES // itemsize)
    least = max((side_by_side - 1).bit_length(), LANE_BITS - thread_bits)
    return thread_bits, min(least, LANE_BITS, LANE_BITS + 4 - thread_bits), False


def elements_of_a_thread(itemsize: int) -> int:
    """Return how many elements a thread has, at most: `elements_of_a_thread` in cuda_src/rows/few_elements.cuh."""
    return 8 if itemsize <= 8 else 4


@lru_cache(maxsize=_REMEMBERED)
def faster_elements(of: Task) -> RowStrategy | None:
    """Return how rows of few elements are cut if that takes less time than others, by the model or as seen, or None."""
    problem, itemsize = of.problem, of.itemsize
    if not takes_elements(problem, itemsize) or (problem.length * itemsize > LEAF_BYTES and not _are_cut_small(of)):
        return None
    bits = _bits(of)
    if problem.kind == "rows" and not problem.aligned and _are_few(of, *bits):
        return _cut(of, *bits)
    if problem.kind == "columns" and bits[0] == 0 and _at_once(of)[0] > 1:
        return _cut(of, *bits)
    others = time_otherwise(of)
    if others > _SMALL:
        others /= _margin(of, others)
    faster = time_by_elements(of, *bits, elements_of_a_thread(itemsize)) < others
    return _cut(of, *bits) if faster else None


def _are_cut_small(of: Task) -> bool:
    """Return whether rows of several leaves are few, and come in no vectors: lanes of their own wait for many loads."""
    problem = of.problem
    if problem.kind != "strided" or problem.rows > of.facts.multiprocessors or of.heavy or of.accumulator_bytes > 8:
        return False
    run = problem.reduced[0]
    return run.stride != of.itemsize or run.size * of.itemsize % VECTOR_BYTES != 0


def _margin(of: Task, others: float) -> float:
    if of.problem.kind == "rows" and of.itemsize >= _WORD_BYTES:
        return _WORDS_MARGIN
    if not is_light(of):
        return _ROWS_MARGIN if pairs_anywhere(of) else _MARGIN
    return _ROWS_MARGIN if of.problem.kind == "rows" else _LIGHT_MARGIN if others > 2 * _SMALL else _MARGIN


def _at_once(of: Task) -> tuple[int, int]:
    """Return how many rows a thread takes at once that has whole ones, and the value of `RowStrategy.together`.

    They are several if rows are many, of two to eight small elements, and contiguous or side by side: `reduce_together`
    in cuda_src/rows/columns_together.cuh takes those.
    """
    problem = of.problem
    if of.heavy or of.two_arrays or problem.length < 2 or len(problem.reduced) != 1:
        return 1, 0
    if problem.reduced[0].stride != of.itemsize:
        return _columns_at_once(of)
    if of.itemsize * of.accumulator_bytes > _TOGETHER_BYTES or len(problem.kept) != 1:
        return 1, 0
    at_once = 4 if problem.length <= 4 else 2
    few = problem.rows < at_once * _TOGETHER_THREADS * of.facts.multiprocessors
    stride = problem.kept[0].stride
    are_near = not few and 0 < stride < _NEAR_BYTES and stride % of.itemsize == 0
    return (at_once, _ROWS) if are_near else (1, 0)


def _columns_at_once(of: Task) -> tuple[int, int]:
    """Return the same of columns: as many as lie in eight or sixteen bytes."""
    problem, itemsize = of.problem, of.itemsize
    if not of.like_elements or of.accumulator_bytes > _PAIR_BYTES:
        return 1, 0
    if itemsize > _WORD_BYTES or problem.length > elements_of_a_thread(itemsize):
        return 1, 0
    kept = problem.kept
    results = [axis.result_stride for axis in kept]
    if not kept or kept[0].stride != itemsize or results != sorted(results):
        return 1, 0
    bits = kept[0].size * itemsize
    for axis in (*problem.reduced, *kept[1:]):
        bits |= axis.stride
    whole = problem.length <= _WHOLE_VECTORS and bits % VECTOR_BYTES == 0
    at_once = (VECTOR_BYTES if whole else _PAIR_BYTES) // itemsize
    least = at_once * _TOGETHER_THREADS * of.facts.multiprocessors
    if problem.rows < least or bits % _PAIR_BYTES:
        return 1, 0
    return at_once, _VECTORS if whole else _WORDS


def _are_few(of: Task, thread_bits: int, *_: int) -> bool:
    """Return whether rows are less than a thread's, and taken several at once: 0.2 to 0.8 of others' time was seen."""
    return thread_bits == 0 and of.problem.length < elements_of_a_thread(of.itemsize) and _at_once(of)[0] > 1


def choose_elements(of: Task) -> RowStrategy:
    """Return how rows of few elements are cut: as many threads to a row as its elements need, and small blocks."""
    return _cut(of, *_bits(of))


def _direct(of: Task, threads: int) -> int:
    """Return what tells that `reduce_directly` in cuda_src/rows/direct_rows.cuh serves rows that a warp has, or 0.

    Bit 0 is for that, bit 1 for elements in whole vectors, bit 2 for two kept axes. `threads` are those of the grid.
    """
    problem, itemsize = of.problem, of.itemsize
    kept, reduced = problem.kept, problem.reduced
    if (
        of.two_arrays
        or threads > _DIRECT_THREADS * of.facts.multiprocessors
        or len(kept) > _DIRECT_AXES
        or len(reduced) > 1
    ):
        return 0
    strides = [axis.stride for axis in (*kept, *reduced)]
    if not problem.length or any(stride % itemsize or abs(stride) >= _FAR_BYTES for stride in strides):
        return 0
    if [axis.result_stride for axis in kept] != [1, *(axis.size for axis in kept)][: len(kept)]:
        return 0
    run = min(VECTOR_BYTES, elements_of_a_thread(itemsize) * itemsize)
    side_by_side = not reduced or reduced[0].stride == itemsize
    whole = side_by_side and problem.length * itemsize % run == 0 and all(axis.stride % run == 0 for axis in kept)
    return 1 | whole << 1 | (len(kept) > 1) << 2


def _cut(of: Task, thread_bits: int, beside_bits: int, behind: bool) -> RowStrategy:
    problem, facts = of.problem, of.facts
    warps_of_a_row = 1 << max(thread_bits + beside_bits - LANE_BITS, 0)
    groups = -(-problem.rows // (1 << beside_bits))
    all_warps = groups * warps_of_a_row
    least = 1 if of.two_arrays else min(all_warps, _LEAST_WARPS)
    wanted = max(1, least, min(WARPS, all_warps // facts.multiprocessors))
    warps = max(warps_of_a_row, 1 << (wanted.bit_length() - 1))
    at_once, together = (1, 0) if thread_bits else _at_once(of)
    step_bits = min(STEP_BITS, max(0, -(-problem.length * of.itemsize // (LANES * VECTOR_BYTES)) - 1).bit_length())
    needed = -(-groups // (warps // warps_of_a_row * at_once))
    turns = 1 if warps_of_a_row > 1 else max(1, -(-needed // (_BLOCKS * facts.multiprocessors)))  # there may be no rows
    blocks, alone = -(-needed // turns), warps_of_a_row == turns == at_once == 1 and step_bits == 0
    return RowStrategy(
        "elements",
        blocks,
        warps_of_a_row=warps_of_a_row,
        contiguous=behind,
        levels=step_bits,
        warps=warps,
        programmatic=facts.programmatic,
        tile=Tile(1 << beside_bits, 1, 1),
        together=together,
        direct=_direct(of, blocks * warps * LANES) if alone else 0,
        **KERNEL_BOUNDS,
    )
