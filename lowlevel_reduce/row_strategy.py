"""One way to launch the reduction of rows, or of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lowlevel_reduce.dtypes import LANES
from lowlevel_reduce.policy import HEADER_BYTES, power_of_two, slot_bytes

__all__ = ["RESIDENT_HEAVY", "ROW_STRATEGIES", "WARPS", "WARP_FOLDS", "CopiedBy", "FoldedBy", "RowStrategy",
           "rows_of_a_warp"]  # fmt: skip

ROW_STRATEGIES = ("short_rows", "rows", "batch", "columns")

WARPS = 8
"""Warps in a block, unless there is a reason for another number."""

RESIDENT_HEAVY = 2
"""Blocks of `WARPS` warps that fit on a multiprocessor if a thread may need 128 registers."""

WARP_FOLDS = 4 * LANES
"""The most partials of a row that one warp folds: `warp_folds` in cuda_src/row_partials.cuh."""


FoldedBy = Literal["nobody", "cluster", "warps", "blocks"]
"""Who folds the partials of columns: `FoldedBy` in cuda_src/reduce_columns.cuh."""

CopiedBy = Literal["nobody", "warps", "teams"]
"""Who copies columns to shared memory: `CopiedBy` in cuda_src/column_loads.cuh."""


def rows_of_a_warp(parts: int) -> int:
    """Return how many rows a warp folds at once: four registers hold their partials, of which each row has `parts`."""
    return 4 // power_of_two(-(-parts // LANES))


@dataclass(frozen=True)
class RowStrategy:
    """One way to launch the reduction of rows.

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
    template : tuple of int
        The kernel's template arguments after the operator and the warps.
    contiguous : bool
        Whether each row's elements lie one after the other.
    aligned : bool
        Whether rows lie in whole vectors at multiples of sixteen bytes if the array begins at one: `Problem.aligned`.
    one_axis : bool
        Whether columns lie along one axis.
    levels : int
        For short rows, log2 of the vectors of one, rounded up: the tree's levels in lanes and then in steps.
    warps : int
        Warps in a block.
    cluster : int
        Blocks in a cluster.
    resident_blocks : int
        How many blocks must fit on a multiprocessor at once.
    early : bool
        Whether blocks of threads that share columns let the next launch's blocks in at once.
    folded_by : {"nobody", "cluster", "warps", "blocks"}
        Who folds the partials of columns: the first block of the cluster that makes them, a warp those of a column, or
        of some, or a block those of a column.
    copied_by : {"nobody", "warps", "teams"}
        Who copies columns where the array's address allows it: each warp its own, or a team those of the whole tile.
    """

    name: str
    blocks: int
    template: tuple[int, ...]
    parts: int = 1
    folders: int = 0
    contiguous: bool = True
    aligned: bool = False
    one_axis: bool = True
    levels: int = 0
    warps: int = WARPS
    cluster: int = 1
    resident_blocks: int = RESIDENT_HEAVY
    early: bool = False
    folded_by: FoldedBy = "nobody"
    copied_by: CopiedBy = "nobody"

    @property
    def block_threads(self) -> int:
        """Threads in a block."""
        return self.warps * LANES

    @property
    def partials(self) -> int:
        """Partials of one row in the workspace; 0 if they are exchanged through shared memory."""
        return self.parts if self.folders else 0

    def workspace_bytes(self, rows: int, accumulator_bytes: int) -> int:
        """Return the workspace's size in bytes: 256 + s * rows * parts with slots of s bytes; 0 without partials."""
        return HEADER_BYTES + slot_bytes(accumulator_bytes) * rows * self.parts if self.partials else 0
