"""What rows of few elements cost if they are loaded one by one, and what they cost otherwise: a model, in microseconds.

It was fitted to the times of some sixty small and large shapes on an H100: benchmarks/NOTES.md, "Few elements to a
thread". What it says of other devices follows from their multiprocessors.
"""

from __future__ import annotations

from collections.abc import Mapping

from lowlevel_reduce.dtypes import LANE_BITS, LANES, VECTOR_BYTES
from lowlevel_reduce.layout import SECTOR_BYTES
from lowlevel_reduce.strategy.base import WARPS, Task
from lowlevel_reduce.strategy.whole import power_of_two

__all__ = ["is_light", "pairs_anywhere", "time_by_elements", "time_otherwise"]

_MEMORY, _L2, _L2_BYTES = 24e3, 38e3, 2e5
"""Bytes that a multiprocessor reads of its share of the memory in a microsecond, and of the L2, which holds so many
bytes for each."""

_START, _MORE, _MORE_OF_MOMENTS = 1.15, 0.5, 0.25
"""From one launch to the next, with nothing to wait for but one round of loads; and more for wide accumulators, or for
two arrays. The third is for moments, and places of words, which are wide, but not heavy."""

_WORD_BYTES = 4
"""Elements of more have heavier accumulators."""

_LANE_LEVEL, _WARP_LEVEL, _DIVISION = 0.03, 0.08, 0.04
"""A level of the tree between lanes, one between warps, and the division of an index by an axis."""

_INSTRUCTIONS = 6.8e3
"""Instructions that a multiprocessor issues in a microsecond; it has a quarter as many cycles."""

_FIXED, _EACH_ELEMENT, _EACH_RUN, _EACH_STEP, _EACH_LEVEL = 105.0, 19.0, 34.0, 9.0, 12.0
"""Instructions of a warp for its rows; for each element, as many again for each eight bytes more of an accumulator; for
each kept axis but the innermost; for each element and reduced axis but the innermost; for each level between lanes."""

_MOMENTS_TOGETHER, _MOMENTS_BYTES = 15.0, 16
"""For each element of moments where a load brings a vector of a row: their accumulators have so many bytes at least."""

_LIGHT_FIXED, _LIGHT_ELEMENT, _LIGHT_TOGETHER, _LIGHT_BYTES, _LIGHT_ROW = 95.0, 11.0, 9.0, 4, 256
"""The first two for elements of two bytes with accumulators of no more than so many bytes, and the second of them where
a load brings several elements of a row; of rows that are no whole vectors, and have no more than so many elements."""

_LINE_BYTES = 128
"""Bytes that the memory, and those that a load of a warp, take at a time."""

# What the other kernels take.
_ALIGNED_ROWS, _WIDE_ROWS, _A_WARP_EACH, _ROWS_ANYWHERE, _STRIDED_ROWS = 1.28, 0.12, 1.0, 2.2, 4.0
"""The start of short rows in aligned vectors, and more with wide accumulators; of those that are few enough for a warp
each; of those at any address; and of those whose elements lie apart."""

_VECTOR_ANYWHERE, _ROW_ANYWHERE, _WIDE_VECTOR, _STRIDED_ELEMENT = 0.6e-3, 0.8e-3, 1.4e-3, 0.27e-3
"""And what a multiprocessor takes: for a vector of a row at any address, for such a row at least, for a vector with a
wide accumulator, and for an element of those that lie apart."""

_NARROW_VECTOR, _PAIR_VECTOR = 0.9e-3, 1.25e-3
"""The same for a vector of light elements of short rows at any address, of as many as a row's threads have room for;
and where accumulators are a maximum and a sum beside it, whose exponentials idle threads have as well."""

_LIGHT_FEW, _LONGER_ROWS, _LONGER_PAIRS = 32, 0.7, 1.0
"""What both start later by, of more elements than so many."""

_VECTOR_OF_TWO = 6e-3
"""The same for a vector of one- or two-byte elements at any address that go with a second array's: those are loaded one
after the other."""

_JOINED_VECTOR_OF_TWO, _JOINED_BYTES = 1.4e-3, 2
"""The same for rows of more vectors than a warp has lanes, of elements of so many bytes that follow each other in both
arrays: both arrays' vectors are joined (cuda_src/rows/wide_rows.cuh). dot of bfloat16 20,000 x 1,045 takes 30.1 us."""

_COLUMNS, _OF_SEVERAL_AXES, _OF_SEVERAL_RUNS, _OF_TWO = 1.6, 1.8, 0.3, 0.3
"""The start of columns, and more where several axes are reduced, where several are not, and for columns of two arrays
that are no shorter than `_LONG_COLUMN`."""

_OF_FEW_BYTES: Mapping[int, float] = {1: -0.18, 2: 0.2}
"""And by the bytes of an element."""

_OF_SHORT_BYTES = 0.3
"""And for columns of fewer bytes than a vector."""

_OF_ODD_BYTES = 0.6
"""And where columns of two bytes are no whole words, so that some are loaded one by one."""

_LONG_COLUMN = 128
"""Elements."""

_WIDE_COLUMNS, _LONG_MOMENTS, _WIDE_CUT_COLUMNS, _WIDE_CUT_ELEMENT = 0.6, 0.6, 1.4, 0.8e-4
"""More for columns with wide accumulators; for moments of columns longer than `_LONG_COLUMN`; where vectors do not hold
whole columns side by side; and what a multiprocessor takes there for an element, those that a column lacks of its last
vector included."""

_OF_PAIRS, _PAIR_BYTES = 0.3, 8
"""More for columns and aligned rows of two bytes where accumulators have so many: a maximum, and a sum beside it."""

_OF_MOMENTS, _ROW_OF_MOMENTS, _SUCH_ROWS = -0.05, 0.9e-3, 1200
"""More for aligned rows of moments, and what a multiprocessor takes for the end of each of one vector, which has two
divisions; of no more rows than so many, for that was fitted to fewer."""

_WIDE_STEP = 0.45
"""The least that a row at any address with a wide accumulator takes for each step, of so many vectors as a warp has
lanes: it loads two at a time."""

_SHORT_COLUMN, _NARROW_SHORT_COLUMN, _WIDE_SHORT_COLUMN = 6.4, 16.0, 10.0
"""By how much longer columns take than their bytes: this, by bytes of an element and elements of a column; the same for
elements of one or two bytes; and with wide accumulators, by elements of a column alone."""


def time_by_elements(of: Task, thread_bits: int, beside_bits: int, behind: bool, of_a_thread: int) -> float:
    """Return about how long the kernel takes that loads elements one by one.

    A row has 2^thread_bits threads with `of_a_thread` elements each, at most, a warp 2^beside_bits rows beside each
    other, and lanes that follow each other have neighbouring rows, or else parts of a row: `behind`.
    """
    problem, itemsize = of.problem, of.itemsize
    kept, reduced = problem.kept, problem.reduced
    each = min(problem.length, of_a_thread) * (1 + of.two_arrays)
    runs, turns = max(len(kept) - 1, 0), max(len(reduced) - 1, 0)
    lane_bits, warp_bits = LANE_BITS - beside_bits, max(thread_bits + beside_bits - LANE_BITS, 0)
    fixed, each_element = _instructions(of)
    instructions = fixed + each_element * each
    instructions += _EACH_RUN * runs + _EACH_STEP * turns * each + _EACH_LEVEL * lane_bits
    stride = abs(kept[0].stride) if kept else itemsize
    step = abs(reduced[0].stride) if reduced else itemsize
    # The lines that a load of a warp touches, one a cycle; and how much of each sector is wanted.
    across = max(step * each if behind and thread_bits else stride, itemsize)
    lines = min(LANES, max(1.0, LANES * across / _LINE_BYTES))
    beside = itemsize << beside_bits if stride <= itemsize else itemsize
    along = itemsize * reduced[0].size if reduced and step <= itemsize else itemsize
    apart = max(1.0, min(SECTOR_BYTES, max(stride, itemsize), max(step, itemsize)) / max(beside, along))
    warps = (problem.rows << thread_bits) / LANES / of.facts.multiprocessors
    busy = max(warps * max(instructions, 4 * each * lines) / _INSTRUCTIONS, _reading(of, apart))
    light = _is_wide(of) and not of.heavy and itemsize <= _WORD_BYTES
    more = _MORE_OF_MOMENTS if light else _MORE * (_is_wide(of) or of.two_arrays)
    start = _START + more + _DIVISION * (runs + turns)
    return start + _LANE_LEVEL * lane_bits + _WARP_LEVEL * warp_bits + busy


def time_otherwise(of: Task) -> float:
    """Return about how long the kernels for columns, or those for short rows, take."""
    problem, more = of.problem, _MORE * _is_wide(of)
    if problem.kind == "columns":
        start = _COLUMNS + _OF_FEW_BYTES.get(of.itemsize, 0.0) + _MORE * (_is_wide(of) or of.two_arrays)
        start += _OF_SEVERAL_AXES * (len(problem.reduced) > 1) + _OF_SEVERAL_RUNS * (len(problem.kept) > 1)
        start += _OF_TWO * (of.two_arrays and problem.length >= _LONG_COLUMN)
        start += _OF_PAIRS * _has_pairs(of)
        start += _OF_SHORT_BYTES * (of.itemsize == 1 and problem.length < VECTOR_BYTES)
        start += _wide_columns(of) if _are_several(of) else 0.0
        start += _OF_ODD_BYTES * (of.itemsize == 2 and _are_odd(of))
        between = min(abs(problem.kept[0].stride), SECTOR_BYTES) / of.itemsize  # what lies there is read as well
        return start + _reading(of, max(between, 1.0) * (1 + _short_column(of)))
    rows, bytes_of_a_row = problem.rows / of.facts.multiprocessors, max(problem.length, 1) * of.itemsize
    if problem.kind == "rows" and problem.aligned:
        few = 2 * bytes_of_a_row > LANES * VECTOR_BYTES and not _is_wide(of) and rows <= WARPS
        start = _ALIGNED_ROWS + _WIDE_ROWS * _is_wide(of) + _OF_PAIRS * _has_pairs(of)
        if _are_moments(of):
            start = _ALIGNED_ROWS + _OF_MOMENTS
            start += _ROW_OF_MOMENTS * min(rows, _SUCH_ROWS) * (bytes_of_a_row <= VECTOR_BYTES)
        return (_A_WARP_EACH if few else start) + more + _reading(of, 1.0)
    vectors = -(-bytes_of_a_row // VECTOR_BYTES)
    if problem.kind == "rows":
        each = _WIDE_VECTOR * vectors if _is_wide(of) else max(_ROW_ANYWHERE, _VECTOR_ANYWHERE * vectors)
        if of.two_arrays and of.itemsize <= 2:
            each = (_JOINED_VECTOR_OF_TWO if _are_joined(of, vectors) else _VECTOR_OF_TWO) * vectors
        if is_light(of):
            each = max(each, _NARROW_VECTOR * power_of_two(vectors))
        elif pairs_anywhere(of):
            each = max(each, _PAIR_VECTOR * power_of_two(vectors))
        if problem.length > _LIGHT_FEW:
            more += _LONGER_ROWS * is_light(of) + _LONGER_PAIRS * pairs_anywhere(of)
        least = _WIDE_STEP * -(-vectors // LANES) if _are_several(of) else 0.0
        return _ROWS_ANYWHERE + more + max(_reading(of, 1.0), rows * each, least)
    each, run = _STRIDED_ELEMENT * problem.length, problem.reduced[0]
    if run.stride == of.itemsize and run.size * of.itemsize % VECTOR_BYTES == 0:  # a load brings a vector
        each = _VECTOR_ANYWHERE * vectors
    return _STRIDED_ROWS + max(_reading(of, 1.0), rows * each)


def _are_joined(of: Task, vectors: int) -> bool:
    seconds = [axis.second_stride for axis in of.problem.reduced]
    return vectors > LANES and of.itemsize == _JOINED_BYTES and seconds == [of.itemsize]


def _is_wide(of: Task) -> bool:
    return of.accumulator_bytes > 8 or (of.heavy and not of.two_arrays)


def _are_moments(of: Task) -> bool:
    is_small = of.itemsize <= _WORD_BYTES
    return is_small and of.accumulator_bytes >= _MOMENTS_BYTES and not of.heavy and not of.two_arrays


def _are_several(of: Task) -> bool:
    """Return whether accumulators are moments or places; complex and compensated ones are heavy, of sixteen bytes."""
    return _is_wide(of) and not of.two_arrays and not (of.heavy and of.accumulator_bytes == _MOMENTS_BYTES)


def pairs_anywhere(of: Task) -> bool:
    """Return whether rows at any address, of no more vectors than a warp has lanes, have a maximum and a sum."""
    problem = of.problem
    return problem.kind == "rows" and not problem.aligned and problem.length <= _LIGHT_ROW and _has_pairs(of)


def _has_pairs(of: Task) -> bool:
    return of.itemsize == 2 and of.accumulator_bytes == _PAIR_BYTES and not of.heavy


def _wide_columns(of: Task) -> float:
    """Return how much longer columns take where accumulators are wide."""
    problem, vector = of.problem, of.vector
    others = any([axis.stride % VECTOR_BYTES for axis in (*problem.kept[1:], *problem.reduced)])  # noqa: C419
    if problem.kept[0].size % vector == 0 and not others:
        return _WIDE_COLUMNS + _LONG_MOMENTS * (_are_moments(of) and problem.length > _LONG_COLUMN)
    elements = problem.rows / of.facts.multiprocessors * -(-problem.length // vector) * vector
    return _WIDE_COLUMNS + _WIDE_CUT_COLUMNS + _WIDE_CUT_ELEMENT * elements


def is_light(of: Task) -> bool:
    """Return whether an element takes few instructions."""
    problem = of.problem
    if problem.kind == "rows" and (problem.aligned or problem.length > _LIGHT_ROW):
        return False
    return of.itemsize == 2 and of.accumulator_bytes <= _LIGHT_BYTES and not of.two_arrays


def _instructions(of: Task) -> tuple[float, float]:
    """Return the instructions for a row, or what a thread has of it, and for each element."""
    if _are_moments(of) and of.problem.aligned:
        return _FIXED, _MOMENTS_TOGETHER
    if not is_light(of):
        return _FIXED, _EACH_ELEMENT * max(1.0, of.accumulator_bytes / 8)
    problem, itemsize = of.problem, of.itemsize
    together = problem.kind == "rows" and problem.length * itemsize % _LIGHT_BYTES == 0
    return _LIGHT_FIXED, _LIGHT_TOGETHER if together else _LIGHT_ELEMENT


def _are_odd(of: Task) -> bool:
    """Return whether columns that lie side by side do not begin or end at whole words."""
    inner, *outer = of.problem.kept
    bits = inner.size * of.itemsize
    for axis in (*outer, *of.problem.reduced):
        bits |= axis.stride
    return inner.stride == of.itemsize and bits % _LIGHT_BYTES != 0


def _short_column(of: Task) -> float:
    length = max(of.problem.length, 1)
    if _is_wide(of):
        return _WIDE_SHORT_COLUMN / length
    return (_NARROW_SHORT_COLUMN if of.itemsize <= 2 else _SHORT_COLUMN) / (of.itemsize * length)


def _reading(of: Task, slower: float) -> float:
    """Return how long the elements take to read, so many times as long as they might, and the results to write."""
    problem, itemsize = of.problem, of.itemsize
    read = problem.rows * problem.length * itemsize * (1 + of.two_arrays)
    result_bytes = of.accumulator_bytes if itemsize <= 2 else itemsize
    share = (read * slower + problem.rows * min(max(result_bytes, 4), 8)) / of.facts.multiprocessors
    return share / (_L2 if share <= _L2_BYTES else _MEMORY)
