"""How columns are cut into tiles whose threads share the lanes of the tree, and what each way costs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lowlevel_reduce.dtypes import LANES, STEPS, VECTOR_BYTES
from lowlevel_reduce.layout import Problem
from lowlevel_reduce.policy import DeviceFacts, largest_cluster, power_of_two
from lowlevel_reduce.row_strategy import RESIDENT_HEAVY, WARP_FOLDS, WARPS, CopiedBy, FoldedBy, RowStrategy

__all__ = [
    "LINE_BYTES",
    "LOADED_BYTES",
    "Together",
    "Way",
    "folders",
    "folding",
    "has_whole_lines",
    "is_wide",
    "shared_bytes",
    "strides_of_elements",
]

LOADED_BYTES = 128
"""Bytes that a thread has in flight when it loads columns."""

LINE_BYTES = 128
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
"""The most blocks that fold the partials of columns: the same number as in `folders_of` in cuda_src."""

_FEW_PARTIALS = 8
"""Up to this many partials of a column are folded by a warp even if each column can have a block instead."""

_MOST_IN_CLUSTER, _BARRIER_BYTES = 8, 16
"""For how many blocks a block of a cluster has room, for an accumulator of each column: `ColumnCluster::most` in
cuda_src; and bytes of its barrier, with what precedes the accumulators."""

_CLUSTER_BLOCKS = 1.0
"""The most blocks per multiprocessor if the tiles of a column are a cluster: with two, 2^10 x 2^11 gains 8 percent, and
2^11 x 2^11 loses 8 (benchmarks/NOTES.md, "Columns in clusters")."""

_SHARED_BYTES, _PLACES_ALIGNMENT = 48 << 10, 128
"""Shared memory that a block has without opting in to more; alignment of the places that elements are copied to."""

_EARLY, _EARLY_COPIES = 4.0, 1.8
"""With more blocks per multiprocessor than this, they let the next launch's blocks in at once.

The second number holds where elements are copied and a thread has few lanes. Four blocks are what there is room for: in
shorter grids the next launch's blocks may crowd where there is room (benchmarks/NOTES.md, "How columns are cut").
"""

_FEW_LANES = 2
"""The most lanes of a thread for that."""

# What a mapping of columns costs. The unit is the time that a full wave of blocks takes to load `LOADED_BYTES` per
# thread. The numbers were not measured one by one but fitted to the times of 46 shapes by copies and 33 by sixteen
# bytes per thread (benchmarks/NOTES.md, "How columns are cut").
_ENOUGH_BLOCKS = 1.15
"""Blocks per multiprocessor that keep its share of the memory busy."""

_FOLD_ROUNDS, _UNCROWDED_ROUNDS = {"nobody": 0.0, "cluster": 0.1, "warps": 0.7, "blocks": 0.75}, 0.1
"""Time from the last partial to the results, by who folds them; and what blocks that fold them save if the next
launch's blocks are let in early: these cannot crowd where there is room as long as others of this launch wait for a
place."""

_UNEVEN = 0.01
"""By how much multiprocessors differ in speed: the loss if each works on one block for the whole time."""

_READ_AHEAD_ROUNDS, _EARLY_ROUNDS, _READ_AHEAD_ROUNDS_WIDE = 0.85, 0.65, 0.4
"""What reading ahead saves where elements are copied and a thread has one lane, of which it reads half; what letting
the next launch's blocks in early saves there alone, where rows are no whole vectors; and what both save where a thread
loads sixteen bytes of elements of four or more bytes.

They were fitted to the times of 23, 19 and three shapes (benchmarks/NOTES.md, "How columns are cut"), when blocks read
ahead of the wait, which they no longer do; not fitted anew.
"""

_CROWD_COST, _CROWD_ROUNDS = 0.2, 1.5
"""The cost if more than one block per multiprocessor waits for partials beside the blocks that compute them, and the
least time of these for which it holds."""


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


class Way(NamedTuple):
    """A way to cut columns: threads side by side, lanes of the tree for each thread, and who folds the partials."""

    beside: int
    lanes: int
    folded_by: FoldedBy


class _Cut(NamedTuple):
    """What comes of it: the lanes of a tile, the tiles of a row, blocks that fold partials, and all blocks."""

    tile: int
    parts: int
    folders: int
    blocks: int


@dataclass(frozen=True)
class Together:
    """Columns of which the threads of a block divide the lanes of the tree among themselves.

    Attributes
    ----------
    problem, facts
        What to reduce, and the device.
    width : int
        Columns of a thread.
    tree : tuple of int
        Lanes and steps of the tree.
    itemsize, accumulator_bytes : int
        Bytes of an element and of an accumulator.
    resident : int
        For how many blocks on a multiprocessor columns are cut.
    slower : float
        By which factor loads take longer than they might.
    round_length : float
        How long a round takes, relative to those in which the fold of the partials is counted: longer with two arrays,
        and shorter for fewer blocks, where columns may be cut for different numbers of them.
    """

    problem: Problem
    facts: DeviceFacts
    width: int
    tree: tuple[int, int]
    itemsize: int
    accumulator_bytes: int
    resident: int
    slower: float
    round_length: float = 1.0

    @property
    def threads(self) -> int:
        """How many threads all columns of an outer row take, side by side."""
        return -(-self.problem.kept[0].size // self.width)

    def cut(self, way: Way) -> _Cut:
        """Return what comes of a way."""
        rows, leaf_bytes = self.problem.rows, LANES * STEPS * VECTOR_BYTES
        lanes = max(1, -(-self.problem.length * self.itemsize // leaf_bytes)) * self.tree[0]
        tile = WARPS * LANES // way.beside * way.lanes
        parts, groups = -(-lanes // tile), rows // self.problem.kept[0].size * -(-self.threads // way.beside)
        last = folders(rows, way.folded_by)
        return _Cut(tile, parts, last, groups * parts + last)

    def cost(self, way: Way) -> float:
        """Return about how long a way takes, in rounds."""
        tile, parts, waiting, blocks = self.cut(way)
        tiles, places = blocks - waiting, self.facts.multiprocessors * self.resident
        costs = _costs(self.problem, self.width, self.itemsize)
        rounds_of_a_lane = max(1, self.width * self.itemsize // 4) * 4 * (VECTOR_BYTES // self.itemsize) * self.tree[1]
        loaded = way.lanes * rounds_of_a_lane / LOADED_BYTES
        full = self.problem.kept[0].size / (-(-self.threads // way.beside) * way.beside * self.width)  # threads' part
        waves, rest = divmod(tiles, places)
        filled = (rest + costs.uneven * (-rest % self.facts.multiprocessors)) / places
        last = max(filled, min(1.0, _ENOUGH_BLOCKS / self.resident) / full) if rest else 0.0
        loads = (loaded + costs.start_rounds) * (waves + last) * (1 + _UNEVEN / max(1, waves))
        loads *= self.slower * (1 + costs.lines.get(way.beside * self.width * self.itemsize, 0.0))
        loads *= 1 + costs.doubled_lanes * math.log2(way.lanes)
        if loads > _CROWD_ROUNDS and min(waiting, places - tiles) > self.facts.multiprocessors:
            loads *= 1 + _CROWD_COST
        early = self.is_early(way, blocks)
        if early and parts > 1:
            loads -= self.saved_early(loaded) * min(1.0, tiles / places)
        fold = _FOLD_ROUNDS[way.folded_by] - (_UNCROWDED_ROUNDS if early and way.folded_by == "blocks" else 0.0)
        return loads * (1 + costs.slot / tile if waiting else 1.0) * self.round_length + fold

    def is_early(self, way: Way, blocks: int) -> bool:
        """Return whether so many blocks let the next launch's blocks in at once, and read ahead."""
        few = not is_wide(self.width, self.itemsize) and way.lanes <= _FEW_LANES
        return blocks > (_EARLY_COPIES if few else _EARLY) * self.facts.multiprocessors

    def saved_early(self, loaded: float) -> float:
        """Return how many rounds blocks save that read ahead, if each loads so many."""
        if is_wide(self.width, self.itemsize):
            return _READ_AHEAD_ROUNDS_WIDE
        row_bytes = self.problem.kept[0].size * self.itemsize
        vectors = all(size % VECTOR_BYTES == 0 for size in (row_bytes, *strides_of_elements(self.problem)))
        return (_READ_AHEAD_ROUNDS if vectors else _EARLY_ROUNDS) if loaded <= 1 else 0.0

    def ways(self) -> Iterator[Way]:
        """Yield the ways for which a block has enough shared memory."""
        most = min(self.tree[0], _lanes_of_a_thread(self.problem, self.threads, self.width, self.itemsize,
                                                    self.accumulator_bytes))  # fmt: skip
        shapes = [
            (beside, min(each, most))
            for beside in _besides(self.problem, self.threads, self.width, self.itemsize)
            for each in (32, 16, 8, 4, 2, 1)
        ]
        fitting = [way for way in shapes if shared_bytes(*way, self.width, self.accumulator_bytes) <= _SHARED_BYTES]
        for shape in fitting or [(LANES, 1)]:
            yield from self.ways_to_fold(*shape)

    def ways_to_fold(self, beside: int, lanes: int) -> Iterator[Way]:
        """Yield a way for each who may fold the partials."""
        parts = self.cut(Way(beside, lanes, "nobody")).parts
        for folded_by in folding(self.problem.rows, parts, self.resident):
            yield Way(beside, lanes, folded_by)
        if self.fits_clusters(Way(beside, lanes, "cluster")):
            yield Way(beside, lanes, "cluster")

    def fits_clusters(self, way: Way) -> bool:
        """Return whether the tiles of a column can be a cluster, and are few enough."""
        _, parts, _, blocks = self.cut(way)
        shared = shared_bytes(way.beside, way.lanes, self.width, self.accumulator_bytes, in_cluster=True)
        few = 1 < parts <= largest_cluster(self.facts) and blocks <= _CLUSTER_BLOCKS * self.facts.multiprocessors
        return few and shared <= _SHARED_BYTES

    def strategy(self, way: Way, resident: int) -> RowStrategy:
        """Return the strategy of a way, for a kernel of which so many blocks must fit on a multiprocessor."""
        _, parts, last, blocks = self.cut(way)
        template, early = (way.beside, self.width, *self.tree, way.lanes), self.is_early(way, blocks)
        one_axis, copied_by = len(self.problem.kept) <= 1, self.copied_by(way.beside)
        cluster = parts if way.folded_by == "cluster" else 1
        return RowStrategy("columns", blocks, template, parts, last, one_axis=one_axis, cluster=cluster,
                           resident_blocks=resident, early=early, folded_by=way.folded_by,
                           copied_by=copied_by)  # fmt: skip

    def copied_by(self, beside: int) -> CopiedBy:
        """Return who copies columns, with so many threads side by side, if the array's address allows it.

        Warps do where all elements of a column lie alike relative to sixteen bytes, and a warp's threads load as many
        side by side; teams where rows are contiguous and one tile has all of them. Loads of sixteen bytes need no
        copies, whatever is returned.
        """
        stride = self.problem.reduced[0].stride
        if stride % VECTOR_BYTES == 0 and min(beside, LANES) * self.width * self.itemsize >= VECTOR_BYTES:
            return "warps"
        return "teams" if self.threads <= beside and stride == self.problem.kept[0].size * self.itemsize else "nobody"


def shared_bytes(
    beside: int, lanes_of_a_thread: int, width: int, accumulator_bytes: int, *, in_cluster: bool = False
) -> int:
    """Return the most bytes of shared memory that a block takes.

    In cuda_src it is the sum of `ColumnCopies::Places`, at a multiple of its alignment, `ColumnMeeting::Shared`,
    `BlockSlots` and, in a cluster, `ColumnCluster::Shared`. `WideColumns::Shared`, used in place of the first, is
    smaller.
    """
    threads, held = WARPS * LANES, width * accumulator_bytes
    places = threads * (LOADED_BYTES // 2 if held > 32 else LOADED_BYTES)
    brought = (threads if beside >= LANES else WARPS * beside) * (held if held <= 32 else accumulator_bytes)
    counters = lanes_of_a_thread.bit_length() * beside * held
    together = _BARRIER_BYTES + _MOST_IN_CLUSTER * beside * held if in_cluster else 0
    return places + brought + counters + together + 2 * WARPS * accumulator_bytes + _PLACES_ALIGNMENT


def _is_narrow(threads: int, width: int, itemsize: int) -> bool:
    return width == 1 and itemsize >= 4 and threads <= _NARROW_COLUMNS


def has_whole_lines(problem: Problem) -> bool:
    """Return whether memory lines that begin in a row of columns end in it too."""
    return all(stride % LINE_BYTES == 0 for stride in strides_of_elements(problem))


def _lanes_of_a_thread(problem: Problem, threads: int, width: int, itemsize: int, accumulator_bytes: int) -> int:
    """Return the most lanes of the tree that a thread may have."""
    if not _is_narrow(threads, width, itemsize) and not has_whole_lines(problem):
        return _WIDE_LANES_OF_BROKEN_LINES if is_wide(width, itemsize) else _LANES_OF_BROKEN_LINES
    return _LANES_OF_WIDE_ACCUMULATORS if accumulator_bytes > 8 else LANES


def _besides(problem: Problem, threads: int, width: int, itemsize: int) -> list[int]:
    """Return how many threads of a block may stand side by side: powers of two, the best first."""
    if _is_narrow(threads, width, itemsize) and not has_whole_lines(problem):
        return [power_of_two(threads)]
    most = min(_MOST_BESIDE, power_of_two(threads))
    besides = [loaded // (width * itemsize) for loaded in _costs(problem, width, itemsize).lines]
    return [beside for beside in besides if _LEAST_BESIDE <= beside <= most] or [most]


def folding(rows: int, parts: int, resident: int) -> tuple[FoldedBy, ...]:
    """Return who may fold `parts` partials of each row, where so many blocks fit on a multiprocessor.

    If these are few, blocks that wait for partials would take the places of those that make them.
    """
    if parts == 1:
        return ("nobody",)
    if parts > WARP_FOLDS:
        return ("blocks",)
    if parts > _FEW_PARTIALS and rows <= _FOLDERS and resident > RESIDENT_HEAVY:
        return "warps", "blocks"
    return ("warps",)


def folders(rows: int, folded_by: FoldedBy) -> int:
    """Return how many blocks fold the partials of so many rows: the same number as `folders_of` in cuda_src."""
    wanted = {"nobody": 0, "cluster": 0, "warps": -(-rows // WARPS), "blocks": rows}
    return min(wanted[folded_by], _FOLDERS)


def is_wide(width: int, itemsize: int) -> bool:
    """Return whether a thread loads sixteen bytes of several columns at once, of elements of four or more bytes."""
    return itemsize >= 4 and width > 1 and width * itemsize == VECTOR_BYTES


def _costs(problem: Problem, width: int, itemsize: int) -> _Costs:
    if not is_wide(width, itemsize):
        return _COPIES
    return _WIDE if has_whole_lines(problem) else _WIDE_BROKEN


def strides_of_elements(problem: Problem) -> list[int]:
    """Return the strides in bytes of a column's elements, and of the columns that do not lie side by side."""
    return [axis.stride for axis in (*problem.reduced, *problem.kept[1:])]
