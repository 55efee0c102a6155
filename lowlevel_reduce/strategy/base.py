"""One way to launch the reduction of rows, or of columns."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from lowlevel_reduce.dtypes import LANE_BITS, LANES, STEP_BITS, VECTOR_BYTES
from lowlevel_reduce.layout import Problem
from lowlevel_reduce.strategy.whole import HEADER_BYTES, DeviceFacts, power_of_two, slot_bytes

__all__ = ["MOST_THREADS", "RESIDENT_HEAVY", "ROW_STRATEGIES", "WARPS", "WARP_FOLDS", "ArgumentKind", "FoldedBy",
           "Loads", "RowStrategy", "Task", "Tile", "rows_of_a_warp", "short_row_bits"]  # fmt: skip

ROW_STRATEGIES = ("short_rows", "rows", "batch", "columns", "elements")

WARPS = 8
"""Warps in a block, unless there is a reason for another number."""

MOST_THREADS = WARPS * LANES
"""Threads in a block, at most, that kernels for short rows and for columns are compiled for: of the latter
`column_threads` in cuda_src/columns/column_meeting.cuh."""

SMALL_BYTES = 2
"""Elements of no more bytes are small: of such, long short rows at any address have code of their own, `may_be_wide` in
cuda_src/rows/wide_rows.cuh."""

RESIDENT_HEAVY = 2
"""Blocks of `WARPS` warps that fit on a multiprocessor if a thread may need 128 registers."""

WARP_FOLDS = 4 * LANES
"""The most partials of a row that one warp folds: `warp_folds` in cuda_src/rows/row_partials.cuh."""


ArgumentKind = Literal["whole", "shaped", "short_rows", "segments", "partials", "parts", "chunks"]
"""The kinds of entries' arguments, by what they contain besides `Problem`."""


FoldedBy = Literal["nobody", "cluster", "warps", "blocks"]
"""Who folds the partials of columns, in the order of `FoldedBy` in cuda_src/columns/column_tile.cuh."""


_NUMBERS: dict[FoldedBy, int] = {by: number for number, by in enumerate(get_args(FoldedBy))}


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


class Tile(NamedTuple):
    """The columns of a block, the vectors that it folds of each in a turn, and its turns: powers of two."""

    columns: int
    vectors: int
    turns: int


_NO_TILE = Tile(1, 1, 1)


class Task(NamedTuple):
    """What is reduced by what, and where: all that the choice for rows and columns depends on.

    Attributes
    ----------
    problem : Problem
        What `layout.problem_of` returned.
    facts : DeviceFacts
        The device, as the context shows it.
    itemsize, accumulator_bytes : int
        Bytes of an element and of an accumulator.
    heavy : bool
        Whether the operator needs many registers.
    two_arrays : bool
        Whether the operator also reads a second array.
    like_elements : bool
        Whether a row has one result, of as many bytes as an element.
    """

    problem: Problem
    facts: DeviceFacts
    itemsize: int
    accumulator_bytes: int
    heavy: bool = False
    two_arrays: bool = False
    like_elements: bool = True

    @property
    def vector(self) -> int:
        """Elements of a vector."""
        return VECTOR_BYTES // self.itemsize

    @property
    def narrow(self) -> bool:
        """Whether a thread needs few registers for its accumulators."""
        return not self.heavy and self.accumulator_bytes <= 8


def rows_of_a_warp(parts: int) -> int:
    """Return how many rows a warp folds at once: four registers hold their partials, of which each row has `parts`."""
    return 4 // power_of_two(-(-parts // LANES))


def short_row_bits(levels: int, *, two_arrays: bool, halved: int = 0) -> int:
    """Return log2 of the short rows that a warp takes; `levels` and `halved` are those of `RowStrategy`.

    As many as make eight vectors a lane, of both arrays together, or fewer: `reduce_short_rows` in cuda_src.
    """
    return max(STEP_BITS - two_arrays + LANE_BITS - max(levels, 1), 0) - halved


class RowStrategy(NamedTuple):
    """One way to launch the reduction of rows. Launches need of it what they need of a `Strategy`, by the same names.

    Attributes
    ----------
    name : str
        One of `ROW_STRATEGIES`.
    blocks : int
        Blocks in the grid.
    parts : int
        Clusters that share a row; if more than one, they exchange partials through the workspace.
    folders : int
        Clusters behind the others that fold the partials; 0 if no row is shared.
    loads : tuple of int
        Of columns, the `Loads` for which the kernel is compiled.
    warps_of_a_row : int
        Warps of a block that share a row, or its tile of one.
    in_one_turn : bool
        Whether each of them folds one leaf; else they take a row's leaves in turns, and are a power of two.
    most_warps : int
        For rows in one turn, the warps of the largest block that the kernel is compiled for.
    anywhere_bounds : tuple of int or None
        These and `resident_blocks` of the kernel that takes rows at any address; None if all kernels have the same.
    contiguous : bool
        Whether each row's elements lie one after the other; of "elements", whether neighbouring lanes have neighbouring
        elements, not neighbouring rows.
    aligned : bool
        Whether rows lie in whole vectors at multiples of sixteen bytes if the array begins at one: `Problem.aligned`.
    levels : int
        For short rows, log2 of the vectors of one, rounded up: the tree's levels in lanes and then in steps. Of
        "elements", those in steps.
    halved : int
        Of short rows, how often what a warp may have is halved, because warps are few.
    warps : int
        Warps in a block.
    cluster : int
        Blocks in a cluster.
    resident_blocks : int
        How many blocks must fit on a multiprocessor at once.
    programmatic : bool
        Whether the launch may start before its predecessor in the stream has ended.
    wide : bool
        Whether a thread loads sixteen bytes of neighbouring columns at a time, or as many as its accumulators allow.
    straight : bool
        Whether there is one reduced axis, or none.
    tile : Tile
        A block's tile of columns; of ones for rows. Of "elements", the rows that a warp has beside each other.
    folded_by : {"nobody", "cluster", "warps", "blocks"}
        Who folds the partials of columns: the first block of the cluster that makes them, a warp those of a column, or
        of some, or a block those of a column.
    together : int
        Of "elements", whether a thread takes several rows at once, and which: `Together` in
        cuda_src/rows/columns_together.cuh.
    direct : int
        Of "elements", how `reduce_directly` in cuda_src/rows/direct_rows.cuh serves rows, as `elements` says; 0 if it
        does not.
    joined, run : int
        Columns, one after the other, that are parts of a row; 1 if each is a row. Their partials are folded in runs of
        so many first, if that is more than 1: `JoinedFolders` in cuda_src/columns/reduce_columns.cuh.
    staged : int
        Of strided rows in tiles, how leaves are staged, `Staged.word` in strategy/staged_rows.py; 0 if they are not.
    """

    name: str
    blocks: int
    loads: tuple[int, ...] = ()
    parts: int = 1
    folders: int = 0
    warps_of_a_row: int = 1
    in_one_turn: bool = False
    most_warps: int = WARPS
    anywhere_bounds: tuple[int, int] | None = None
    contiguous: bool = True
    aligned: bool = False
    levels: int = 0
    halved: int = 0
    warps: int = WARPS
    cluster: int = 1
    resident_blocks: int = RESIDENT_HEAVY
    programmatic: bool = False
    wide: bool = False
    straight: bool = True
    tile: Tile = _NO_TILE
    folded_by: FoldedBy = "nobody"
    together: int = 0
    direct: int = 0
    joined: int = 1
    run: int = 1
    staged: int = 0

    @property
    def block_threads(self) -> int:
        """Threads in a block."""
        return self.warps * LANES

    @property
    def kernel(self) -> str:
        """The kernel: `name`, or "at_once" for contiguous rows in one turn that no two blocks share."""
        alone = self.in_one_turn and self.parts == self.cluster == 1
        return "at_once" if alone and self.contiguous else self.name

    @property
    def like(self) -> tuple[object, ...]:
        """What the kernel for an operator depends on, with a launch's blocks and clusters but not its grid."""
        of_rows = self.kernel, self.contiguous, self.most_warps, self.anywhere_bounds
        of_columns = self.loads, self.straight, self.wide
        return of_rows, of_columns, self.aligned, self.warps, self.cluster, self.resident_blocks

    @property
    def partials(self) -> int:
        """Partials of one row in the workspace; 0 if they are exchanged through shared memory."""
        return self.parts * self.joined if self.folders else 0

    @property
    def argument_kind(self) -> ArgumentKind:
        """What the kernel's argument is."""
        return "short_rows" if self.name == "short_rows" else "shaped"

    @property
    def counts(self) -> tuple[int, int]:
        """The fields `count` of the one kernel, and of none."""
        return self.count, 0

    @property
    def count(self) -> int:  # type: ignore[override] # nobody counts what this tuple holds
        """The kernel's field `count`: how rows or columns are cut, `RowCut`, `ColumnCut`, `ElementCut` in cuda_src."""
        if self.name == "elements":
            lane_bits = LANE_BITS - self.tile.columns.bit_length() + 1
            warp_bits, warps = self.warps_of_a_row.bit_length() - 1, self.warps.bit_length() - 1
            own_shift, part_shift = (lane_bits, 0) if self.contiguous else (0, LANE_BITS - lane_bits)
            shifts = own_shift << 32 | part_shift << 40 | self.together << 48 | self.direct << 50
            return self.levels | lane_bits << 8 | warp_bits << 16 | warps << 24 | shifts
        if self.name != "columns":
            several = self.warps > self.warps_of_a_row or not self.in_one_turn
            bits = self.warps_of_a_row.bit_length() - 1 if several else LANE_BITS
            return self.parts | self.warps_of_a_row << 32 | self.cluster << 40 | bits << 48 | LANES // self.warps << 56
        columns, vectors, turns = (size.bit_length() - 1 for size in self.tile)
        by = _NUMBERS[self.folded_by]
        return self.parts | columns << 32 | vectors << 40 | turns << 48 | by << 56

    def workspace_bytes(self, rows: int, accumulator_bytes: int) -> int:
        """Return the workspace's size in bytes: 256 + s * rows * parts with slots of s bytes; 0 without partials.

        Where columns are joined, there are as many parts of each, and slots for their runs.
        """
        if not self.partials:
            return 0
        slots = self.partials
        if self.run > 1:
            runs = -(-slots // self.run)
            slots = runs * self.run + runs
        return HEADER_BYTES + slot_bytes(accumulator_bytes) * rows * slots
