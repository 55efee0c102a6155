"""How columns are mapped to a device: a pure function of the problem and the device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from lowlevel_reduce.dtypes import LANES, STEPS, VECTOR_BYTES
from lowlevel_reduce.layout import Problem
from lowlevel_reduce.policy import DeviceFacts, power_of_two
from lowlevel_reduce.row_strategy import RESIDENT_HEAVY, WARP_FOLDS, WARPS, RowStrategy

__all__ = ["choose_columns", "folders", "is_early", "shared_bytes"]

_LOADED_BYTES = 128
"""Bytes that a thread has in flight when it loads columns."""

_RESIDENT_NARROW, _RESIDENT_WIDE = 4, 3
"""How many blocks must fit on a multiprocessor: with 64 registers per thread for accumulators of up to 12 bytes, with
80 for up to 24."""

_LINE_BYTES = 128
"""Bytes of a memory line. If all columns together fill less than one, no thread loads sixteen bytes of them."""

_LEAST_BESIDE, _MOST_BESIDE = 4, 2 * LANES
"""The fewest and the most threads of a block that stand side by side; the former holds where several blocks do so.

`column_tile` in cuda_src/reduce_columns.cuh gives every block a multiple of four.
"""

_LANES_OF_BROKEN_LINES, _WIDE_LANES_OF_BROKEN_LINES = 4, 2
"""The most lanes of the tree that a thread has where neighbours share memory lines; the second is for threads that load
sixteen bytes of elements of four or more bytes.

Few lanes make neighbours load the lines that they share at about the same time.
"""

_LANES_OF_WIDE_ACCUMULATORS = 16
"""The most lanes of the tree that a thread has if accumulators have more than 8 bytes: the lanes of a block's columns
are combined in shared memory, which holds one level for each power of two."""

_NARROW_COLUMNS = 128
"""Up to this many columns that are each loaded on their own stay in one block, which then shares its lines with no
other."""

_FOLDERS = 512
"""The most blocks that fold the partials of columns: `most_folders` in cuda_src/reduce_columns.cuh."""

_SHARED_BYTES, _PLACES_ALIGNMENT = 48 << 10, 128
"""Shared memory that a block has without opting in to more; alignment of the places that elements are copied to."""

_EARLY, _EARLY_COPIES = 4.0, 1.8
"""With more blocks per multiprocessor than this, they let the next launch's blocks in at once, and read ahead.

The second number holds where elements are copied and a thread has few lanes. Four blocks are what there is room for: in
shorter grids the next launch's blocks may crowd where there is room (benchmarks/NOTES.md, "How columns are cut").
"""

_FEW_LANES = 2
"""The most lanes of a thread for that."""

# What a mapping of columns costs. The unit is the time that a full wave of blocks takes to load `_LOADED_BYTES` per
# thread. The numbers were not measured one by one but fitted to the times of 46 shapes by copies and 33 by sixteen
# bytes per thread (benchmarks/NOTES.md, "How columns are cut").
_ENOUGH_BLOCKS = 1.15
"""Blocks per multiprocessor that keep its share of the memory busy."""

_FOLD_ROUNDS = 0.7
"""Time from the last partial to the results."""

_UNEVEN = 0.01
"""By how much multiprocessors differ in speed: the loss if each works on one block for the whole time."""

_READ_AHEAD_ROUNDS = 0.65
"""What reading ahead saves where elements are copied and a thread has one lane, of which it reads half.

Fitted to the times of 19 shapes (benchmarks/NOTES.md, "How columns are cut").
"""

_CROWD_COST = 0.2
"""The cost if more than one block per multiprocessor waits for partials beside the blocks that compute them."""


class _Costs(NamedTuple):
    """The costs that depend on how elements are loaded.

    Attributes
    ----------
    start_rounds : float
        Time that a block takes to start and to end.
    slot : float
        Time to write and fold a partial, relative to the time to load one lane of the tree for it.
    lines : Mapping[int, float]
        How many bytes side by side the threads of a block may load together, and what each choice costs relative to
        the most bytes; the best first.
    doubled_lanes : float
        The cost of each doubling of a thread's lanes.
    uneven : float
        If some multiprocessors have one block fewer than others in the last wave: which fraction of the blocks that
        they lack counts as if it were there.
    """

    start_rounds: float
    slot: float
    lines: Mapping[int, float]
    doubled_lanes: float = 0.0
    uneven: float = 0.0


_COPIES = _Costs(0.35, 1.0, {256: 0.0, 128: 0.013, 64: 0.06, 32: 0.25})
_WIDE = _Costs(0.35, 1.0, {256: 0.0, 128: 0.013, 64: 0.15, 32: 0.3}, uneven=0.12)
_WIDE_BROKEN = _Costs(0.25, 0.5, {512: 0.0, 256: 0.03, 128: 0.08, 64: 0.25, 32: 0.4}, doubled_lanes=0.03, uneven=0.12)
"""The costs of copies and of sixteen bytes per thread if elements have two bytes; of sixteen bytes per thread if they
have more; and of the latter where neighbours share lines."""

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
    width = wide if loaded_bytes(wide) <= _LOADED_BYTES else narrow
    threads = problem.rows // inner * -(-inner // width)
    block = WARPS * LANES
    enough = threads >= resident * facts.multiprocessors * block
    if vectors <= LANES and (loaded_bytes(width) <= _LOADED_BYTES or enough):
        template = (block, width, tree_lanes, tree_steps, 0)
        return RowStrategy("columns", -(-threads // block), template, resident_blocks=resident)
    # Elements of two bytes fill the registers: few blocks with the widest possible loads are fastest.
    half = itemsize == 2 and all(stride % 8 == 0 for stride in _strides_of_elements(problem))
    width = max(_side_by_side(problem, itemsize, accumulator_bytes, 16 if half else 8), 4 // itemsize)
    resident = RESIDENT_HEAVY if half else resident
    tree = tree_lanes, tree_steps
    ways = [
        _columns_together(problem, facts, width, tree, itemsize, accumulator_bytes, resident, slower)
        for width, slower in _widths(problem, width, itemsize, accumulator_bytes, two_arrays=two_arrays).items()
    ]
    return min(ways, key=lambda way: way[0])[1]


def _widths(
    problem: Problem, width: int, itemsize: int, accumulator_bytes: int, *, two_arrays: bool
) -> dict[int, float]:
    """Return how many columns a thread may have, besides or instead of `width`, and by which factor each is slower."""
    slower = _SLOWER_COPIES.get((itemsize, max(4, accumulator_bytes)))
    if slower is None:
        return {width: 1.0}
    copied = 1 if itemsize >= 4 else width  # with elements of four bytes, two columns per thread are slower than one
    if two_arrays or not _fills_vectors(problem, itemsize):
        return {copied: 1.0}
    if accumulator_bytes > 4:
        if not _has_whole_lines(problem):
            slower = max(slower, _SLOWER_COPIES_OF_BROKEN_LINES)
        elif problem.kept[0].size * itemsize <= _FEW_BYTES:
            return {copied: 1.0}
    return {copied: slower, VECTOR_BYTES // itemsize: 1.0}


def _is_wide(width: int, itemsize: int) -> bool:
    """Return whether a thread loads sixteen bytes of several columns at once, of elements of four or more bytes."""
    return itemsize >= 4 and width > 1 and width * itemsize == VECTOR_BYTES


def _costs(problem: Problem, width: int, itemsize: int) -> _Costs:
    if not _is_wide(width, itemsize):
        return _COPIES
    return _WIDE if _has_whole_lines(problem) else _WIDE_BROKEN


def _side_by_side(problem: Problem, itemsize: int, accumulator_bytes: int, held_bytes: int) -> int:
    """Return how many columns a thread has: at most 16 bytes of elements and `held_bytes` of accumulators.

    Elements of four or more bytes are loaded together only where they lie at multiples of the loaded size. Otherwise
    each load is of one column, and neighbouring threads load neighbouring elements.
    """
    width = max(1, min(VECTOR_BYTES // itemsize, power_of_two(held_bytes // accumulator_bytes)))
    strides = _strides_of_elements(problem)
    while itemsize >= 4 and width > 1 and any(stride % (width * itemsize) for stride in strides):
        width //= 2
    return width


def _fills_vectors(problem: Problem, itemsize: int) -> bool:
    """Return whether columns may be loaded sixteen bytes at a time, so that neighbouring threads load a line."""
    few = problem.kept[0].size * itemsize < _LINE_BYTES
    return not few and all(stride % VECTOR_BYTES == 0 for stride in _strides_of_elements(problem))


def _strides_of_elements(problem: Problem) -> list[int]:
    """Return the strides in bytes of a column's elements, and of the columns that do not lie side by side."""
    return [axis.stride for axis in (*problem.reduced, *problem.kept[1:])]


def _resident_blocks_of_columns(itemsize: int, accumulator_bytes: int, *, heavy: bool) -> int:
    """Return how many blocks leave each thread enough registers for its elements in flight and its accumulators."""
    if heavy or itemsize == 1 or accumulator_bytes > 24:
        return RESIDENT_HEAVY
    return _RESIDENT_NARROW if accumulator_bytes <= 12 else _RESIDENT_WIDE


def _columns_together(
    problem: Problem, facts: DeviceFacts, width: int, tree: tuple[int, int], itemsize: int, accumulator_bytes: int,
    resident: int, slower: float,
) -> tuple[float, RowStrategy]:  # fmt: skip
    """Return the cost and the strategy if the threads of a block divide the lanes of the tree among themselves."""
    inner = problem.kept[0].size
    lanes, steps = tree
    all_lanes = max(1, -(-problem.length * itemsize // (LANES * STEPS * VECTOR_BYTES))) * lanes
    threads = -(-inner // width)  # side by side, in all
    costs = _costs(problem, width, itemsize)
    rounds_of_a_lane = max(1, width * itemsize // 4) * 4 * (VECTOR_BYTES // itemsize) * steps / _LOADED_BYTES
    places = facts.multiprocessors * resident

    def shape(beside: int, lanes_of_a_thread: int) -> tuple[int, int, int]:
        """Return the lanes of a tile, the tiles of a row, and how many blocks there are that share no row."""
        tile = WARPS * LANES // beside * lanes_of_a_thread
        return tile, -(-all_lanes // tile), problem.rows // inner * -(-threads // beside)

    def cost(beside: int, lanes_of_a_thread: int) -> float:
        tile, parts, groups = shape(beside, lanes_of_a_thread)
        full = inner / (-(-threads // beside) * beside * width)  # the fraction of the threads that have columns
        rounds = lanes_of_a_thread * rounds_of_a_lane + costs.start_rounds
        waves, rest = divmod(groups * parts, places)
        filled = (rest + costs.uneven * (-rest % facts.multiprocessors)) / places
        last = max(filled, min(1.0, _ENOUGH_BLOCKS / resident) / full) if rest else 0.0
        loads = rounds * (waves + last) * (1 + _UNEVEN / max(1, waves))
        loads *= slower * (1 + costs.lines.get(beside * width * itemsize, 0.0))
        loads *= 1 + costs.doubled_lanes * math.log2(lanes_of_a_thread)
        waiting = folders(problem.rows, parts)
        if min(waiting, places - groups * parts) > facts.multiprocessors:
            loads *= 1 + _CROWD_COST
        early = is_early(groups * parts + waiting, facts, width, itemsize, lanes_of_a_thread)
        if early and parts > 1 and lanes_of_a_thread * rounds_of_a_lane <= 1:
            loads -= _READ_AHEAD_ROUNDS * min(1.0, groups * parts / places)
        return loads * (1 + costs.slot / tile) + _FOLD_ROUNDS if parts > 1 else loads

    most = min(lanes, _lanes_of_a_thread(problem, threads, width, itemsize, accumulator_bytes))
    ways = [
        (beside, min(each, most))
        for beside in _besides(problem, threads, width, itemsize)
        for each in (32, 16, 8, 4, 2, 1)
    ]
    fitting = [way for way in ways if shared_bytes(*way, width, accumulator_bytes) <= _SHARED_BYTES]
    beside, each = min(fitting or [(LANES, 1)], key=lambda way: cost(*way))
    _, parts, groups = shape(beside, each)
    last = folders(problem.rows, parts)
    blocks, template = groups * parts + last, (beside, width, lanes, steps, each)
    early = is_early(blocks, facts, width, itemsize, each)
    return cost(beside, each), RowStrategy(
        "columns", blocks, template, parts, folders=last, resident_blocks=resident, early=early
    )


def shared_bytes(beside: int, lanes_of_a_thread: int, width: int, accumulator_bytes: int) -> int:
    """Return the most bytes of shared memory that a block takes.

    In cuda_src it is the sum of `ColumnCopies::Places`, at a multiple of its alignment, `ColumnMeeting::Shared` and
    `BlockSlots`. `WideColumns::Shared`, used in place of the first, has half its size.
    """
    threads, held = WARPS * LANES, width * accumulator_bytes
    places = threads * (_LOADED_BYTES // 2 if held > 32 else _LOADED_BYTES)
    brought = (threads if beside >= LANES else WARPS * beside) * (held if held <= 32 else accumulator_bytes)
    counters = lanes_of_a_thread.bit_length() * beside * held
    return places + brought + counters + 2 * WARPS * accumulator_bytes + _PLACES_ALIGNMENT


def is_early(blocks: int, facts: DeviceFacts, width: int, itemsize: int, lanes_of_a_thread: int) -> bool:
    """Return whether so many blocks let the next launch's blocks in at once, and read ahead."""
    few = not _is_wide(width, itemsize) and lanes_of_a_thread <= _FEW_LANES
    return blocks > (_EARLY_COPIES if few else _EARLY) * facts.multiprocessors


def _is_narrow(threads: int, width: int, itemsize: int) -> bool:
    return width == 1 and itemsize >= 4 and threads <= _NARROW_COLUMNS


def _has_whole_lines(problem: Problem) -> bool:
    return all(stride % _LINE_BYTES == 0 for stride in _strides_of_elements(problem))


def _lanes_of_a_thread(problem: Problem, threads: int, width: int, itemsize: int, accumulator_bytes: int) -> int:
    """Return the most lanes of the tree that a thread may have."""
    if not _is_narrow(threads, width, itemsize) and not _has_whole_lines(problem):
        return _WIDE_LANES_OF_BROKEN_LINES if _is_wide(width, itemsize) else _LANES_OF_BROKEN_LINES
    return _LANES_OF_WIDE_ACCUMULATORS if accumulator_bytes > 8 else LANES


def _besides(problem: Problem, threads: int, width: int, itemsize: int) -> list[int]:
    """Return how many threads of a block may stand side by side: powers of two, the best first."""
    if _is_narrow(threads, width, itemsize) and not _has_whole_lines(problem):
        return [power_of_two(threads)]
    most = min(_MOST_BESIDE, power_of_two(threads))
    besides = [loaded // (width * itemsize) for loaded in _costs(problem, width, itemsize).lines]
    return [beside for beside in besides if _LEAST_BESIDE <= beside <= most] or [most]


def folders(rows: int, parts: int) -> int:
    """Return how many blocks fold the partials of `rows` rows that have `parts` partials each."""
    if parts == 1:
        return 0
    return min(rows if parts > WARP_FOLDS else -(-rows // WARPS), _FOLDERS)
