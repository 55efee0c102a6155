"""How many rows, or columns, are mapped to a device: a pure function of the problem and the device's facts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowlevel_reduce.dtypes import LANES, STEPS, VECTOR_BYTES
from lowlevel_reduce.layout import Problem
from lowlevel_reduce.policy import HEADER_BYTES, MAX_GRID, DeviceFacts, power_of_two, slot_bytes

__all__ = ["ROW_STRATEGIES", "RowStrategy", "choose_rows"]

ROW_STRATEGIES = ("short_rows", "rows", "batch", "columns")

WARPS = 8
"""Warps in a block."""

# Blocks that a multiprocessor shall hold, which bounds a thread's registers to 80 and 128: as few as the compiler
# needs not to spill (tests/compile watches it).
_RESIDENT = {"short_rows": 3, "rows": 3, "batch": 3, "columns": 2}
_RESIDENT_HEAVY = 2

WARPS_TO_FILL = 16
"""Warps of a multiprocessor that keep its share of the memory busy, each with 4 KiB in flight."""

MAX_LEVELS = 10
"""Digits of the binary counter that a block of columns keeps in shared memory: 2^9 turns of one leaf or more."""


@dataclass(frozen=True)
class RowStrategy:
    """One way to launch the reduction of rows.

    Attributes
    ----------
    name : str
        One of `ROW_STRATEGIES`.
    blocks : int
        The grid.
    parts : int
        Blocks that share a row; their partials meet in the workspace.
    tickets : int
        Groups of rows whose blocks count themselves in the workspace; 0 where no row is shared.
    tile : int
        Leaves that a block of columns folds.
    template : tuple of int
        The kernel's template arguments after operator and warps.
    contiguous : bool
        Whether each row's elements lie one after the other.
    one_axis : bool
        Whether the rows lie along one axis.
    """

    name: str
    blocks: int
    template: tuple[int, ...]
    parts: int = 1
    tickets: int = 0
    tile: int = 1
    contiguous: bool = True
    one_axis: bool = True
    warps: int = WARPS
    resident_blocks: int = _RESIDENT_HEAVY

    @property
    def block_threads(self) -> int:
        """Threads in a block."""
        return self.warps * LANES

    @property
    def partials(self) -> int:
        """Values of one row that meet in the workspace; 0 where they meet in shared memory."""
        return self.parts if self.tickets else 0

    def workspace_bytes(self, rows: int, accumulator_bytes: int) -> int:
        """Return the workspace's size: 256 + 4 * tickets up to a multiple of 256 + s * rows * parts; 0 without."""
        if not self.tickets:
            return 0
        tickets = -(-4 * self.tickets // HEADER_BYTES) * HEADER_BYTES
        return HEADER_BYTES + tickets + slot_bytes(accumulator_bytes) * rows * self.parts


def choose_rows(
    problem: Problem,
    facts: DeviceFacts,
    *,
    itemsize: int,
    accumulator_bytes: int,
    heavy: bool = False,
    strategy: str | None = None,
) -> RowStrategy:
    """Choose how to reduce the rows of a problem.

    Parameters
    ----------
    problem : Problem
        What `layout.problem_of` returned.
    facts : DeviceFacts
        The device, as the context shows it.
    itemsize, accumulator_bytes : int
        Bytes of an element and of an accumulator.
    heavy : bool
        Whether the operator needs many registers.
    strategy : str, optional
        What to force: "rows" or "batch" for rows of any length, "short_rows" for those of one leaf, "columns".

    Raises
    ------
    ValueError
        If there is no strategy of that name, it does not go with the problem, or the grid becomes too large.
    """
    vector = VECTOR_BYTES // itemsize
    leaf = LANES * STEPS * vector
    leaves = max(1, -(-problem.length // leaf))
    name = strategy or _fastest(problem, facts, leaves)
    if name not in ROW_STRATEGIES:
        raise ValueError(f"there is no strategy {name!r} for rows; there is {', '.join(ROW_STRATEGIES)}")
    if (name == "columns") != (problem.kind == "columns") or (name == "short_rows" and leaves > 1):
        raise ValueError(f"strategy {name!r} does not go with {problem.rows} rows of {problem.length} ({problem.kind})")
    if name == "columns":
        chosen = _columns(problem, facts, vector, leaves, _side_by_side(itemsize, accumulator_bytes))
    else:
        chosen = _rows(name, problem, facts, vector, leaves)
    light = not heavy and _is_light(chosen, itemsize, accumulator_bytes)
    chosen = replace(
        chosen,
        resident_blocks=_RESIDENT[name] if light else _RESIDENT_HEAVY,
        one_axis=len(problem.kept) <= 1,
    )
    if chosen.blocks > MAX_GRID:
        raise ValueError(f"{problem.rows} rows need {chosen.blocks} blocks; a grid has at most {MAX_GRID}")
    return chosen


def _is_light(chosen: RowStrategy, itemsize: int, accumulator_bytes: int) -> bool:
    if chosen.name == "batch":
        return accumulator_bytes <= 16
    if itemsize <= 2 or not (chosen.contiguous or chosen.name == "rows"):
        return False
    # Where a warp folds one row at a time it holds fewer accumulators.
    return accumulator_bytes <= (16 if chosen.name == "short_rows" and chosen.template[0] == LANES else 8)


def _fastest(problem: Problem, facts: DeviceFacts, leaves: int) -> str:
    if problem.kind == "columns":
        return "columns"
    if leaves == 1:
        return "short_rows"
    enough = facts.multiprocessors * WARPS_TO_FILL
    return "batch" if leaves > WARPS and problem.rows * WARPS < enough else "rows"


def _rows(name: str, problem: Problem, facts: DeviceFacts, vector: int, leaves: int) -> RowStrategy:
    contiguous = problem.kind != "strided"
    if name == "batch":
        tiles = -(-leaves // WARPS)
        return RowStrategy("batch", problem.rows * tiles, (), tiles, problem.rows, contiguous=contiguous)
    if name == "short_rows":
        vectors = max(1, -(-problem.length // vector))
        group = min(LANES, power_of_two(vectors))
        row_steps = power_of_two(-(-vectors // LANES)) if group == LANES else 1
        a_block = WARPS * (STEPS // row_steps) * (LANES // group)
        return RowStrategy("short_rows", -(-problem.rows // a_block), (group, row_steps), contiguous=contiguous)
    warps = _warps_of_a_row(problem.rows, leaves, facts)
    return RowStrategy("rows", -(-problem.rows // (WARPS // warps)), (warps,), contiguous=contiguous)


def _warps_of_a_row(rows: int, leaves: int, facts: DeviceFacts) -> int:
    """Return as many warps as leave few of them idle in the last turn, more where there are few rows."""
    widest = min(WARPS, power_of_two(leaves))
    if rows * widest <= facts.multiprocessors * WARPS_TO_FILL:
        return widest
    sizes = [warps for warps in (8, 4, 2, 1) if warps <= widest]
    return next((warps for warps in sizes if leaves >= 0.8 * warps * -(-leaves // warps)), 1)


def _side_by_side(itemsize: int, accumulator_bytes: int) -> int:
    """Return how many columns a thread has: at most 16 bytes of elements and 32 of accumulators."""
    return max(1, min(VECTOR_BYTES // itemsize, power_of_two(32 // accumulator_bytes)))


def _columns(problem: Problem, facts: DeviceFacts, vector: int, leaves: int, width: int) -> RowStrategy:
    inner = problem.kept[0].size
    outer = problem.rows // inner
    threads = -(-inner // width)  # side by side, in all
    vectors = max(1, -(-problem.length // vector))
    tree_lanes = min(LANES, power_of_two(vectors))
    tree_steps = min(STEPS, power_of_two(-(-vectors // LANES)))
    block = WARPS * LANES
    if leaves == 1 and (tree_lanes * tree_steps <= STEPS or outer * threads >= 2 * facts.multiprocessors * block):
        beside = min(block, power_of_two(threads)) if tree_lanes * tree_steps <= LANES else LANES
    else:
        beside = min(8, power_of_two(threads))  # 128 bytes for the 4-byte types
    depth = block // beside
    at_once = max(1, depth // tree_lanes)
    groups = outer * -(-threads // beside)
    wanted = max(1, 4 * facts.multiprocessors // groups)
    tile = max(at_once, power_of_two(-(-leaves // wanted)))
    tile = min(tile, at_once << (MAX_LEVELS - 1))
    parts = -(-leaves // tile)
    levels = 1 if tile == at_once else MAX_LEVELS
    return RowStrategy(
        "columns",
        groups * parts,
        (beside, width, tree_lanes, tree_steps, levels),
        parts,
        groups if parts > 1 else 0,
        tile,
    )
