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
# needs not to spill (tests/compile watches it). Those of columns: `_resident_blocks_of_columns`.
_RESIDENT = {"short_rows": 3, "rows": 3, "batch": 3}
_RESIDENT_HEAVY = 2

WARPS_TO_FILL = 16
"""Warps of a multiprocessor that keep its share of the memory busy, each with 4 KiB in flight."""

MAX_LEVELS = 10
"""Digits of the binary counter that a block of columns keeps in shared memory: 2^9 turns of one leaf or more."""

_LOADED_WORDS = 32
"""Registers that a thread of columns has for elements in flight."""

_LINE_BYTES = 128
"""What the threads side by side of a block of columns load of each element, if there are so many columns."""

_ENOUGH_IN_FLIGHT = 0.625
"""The part of a full wave of blocks of columns that still keeps the memory busy. Not measured."""

_START_TURNS = 0.5
"""What a block of columns takes to start and to end, in turns of one leaf. Not measured."""


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
        chosen = _columns(problem, facts, itemsize, accumulator_bytes, heavy=heavy)
    else:
        chosen = _rows(name, problem, facts, vector, leaves)
        light = not heavy and _is_light(chosen, itemsize, accumulator_bytes)
        chosen = replace(chosen, resident_blocks=_RESIDENT[name] if light else _RESIDENT_HEAVY)
    chosen = replace(chosen, one_axis=len(problem.kept) <= 1)
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


def _side_by_side(itemsize: int, accumulator_bytes: int, held_bytes: int) -> int:
    """Return how many columns a thread has: at most 16 bytes of elements and `held_bytes` of accumulators."""
    return max(1, min(VECTOR_BYTES // itemsize, power_of_two(held_bytes // accumulator_bytes)))


def _columns(
    problem: Problem, facts: DeviceFacts, itemsize: int, accumulator_bytes: int, *, heavy: bool
) -> RowStrategy:
    inner = problem.kept[0].size
    vector = VECTOR_BYTES // itemsize
    vectors = max(1, -(-problem.length // vector))
    tree_lanes = min(LANES, power_of_two(vectors))
    tree_steps = min(STEPS, power_of_two(-(-vectors // LANES)))
    resident = _resident_blocks_of_columns(itemsize, accumulator_bytes, heavy=heavy)

    def loaded_words(width: int) -> int:
        return tree_lanes * tree_steps * vector * max(1, width * itemsize // 4)

    # A thread that has all its elements in flight at once holds no other accumulators than those it makes.
    wide = _side_by_side(itemsize, accumulator_bytes, 32)
    narrow = wide if itemsize == 1 else _side_by_side(itemsize, accumulator_bytes, 16)
    width = wide if loaded_words(wide) <= _LOADED_WORDS else narrow
    threads = problem.rows // inner * -(-inner // width)
    block = WARPS * LANES
    enough = threads >= resident * facts.multiprocessors * block
    if vectors <= LANES and (loaded_words(width) <= _LOADED_WORDS or enough):
        template = (block, width, tree_lanes, tree_steps, 0)
        return RowStrategy("columns", -(-threads // block), template, resident_blocks=resident)
    return _columns_together(problem, facts, width, (tree_lanes, tree_steps), itemsize, resident)


def _resident_blocks_of_columns(itemsize: int, accumulator_bytes: int, *, heavy: bool) -> int:
    """Return as many blocks as leave each thread the registers for its elements in flight and its accumulators."""
    if heavy or itemsize == 1 or accumulator_bytes > 24:
        return _RESIDENT_HEAVY
    return 4 if accumulator_bytes <= 12 else 3


def _columns_together(
    problem: Problem, facts: DeviceFacts, width: int, tree: tuple[int, int], itemsize: int, resident: int
) -> RowStrategy:
    """Return the strategy where the threads of a block divide the lanes of the tree among them."""
    inner = problem.kept[0].size
    leaves = max(1, -(-problem.length * itemsize // (LANES * STEPS * VECTOR_BYTES)))
    threads = -(-inner // width)  # side by side, in all
    beside = min(LANES, _LINE_BYTES // (width * itemsize), power_of_two(threads))
    at_once = max(1, WARPS * LANES // beside // tree[0])
    groups = problem.rows // inner * -(-threads // beside)
    tile = _tile(leaves, at_once, groups, facts.multiprocessors * resident)
    parts = -(-leaves // tile)
    return RowStrategy(
        "columns",
        groups * parts,
        (beside, width, *tree, 1 if tile == at_once else MAX_LEVELS),
        parts,
        groups if parts > 1 else 0,
        tile,
        resident_blocks=resident,
    )


def _tile(leaves: int, at_once: int, groups: int, resident: int) -> int:
    """Return how many leaves a block has: a power of two of turns, so that all end together, with few blocks."""

    def cost(tile: int) -> float:
        waves, rest = divmod(groups * -(-leaves // tile), resident)
        last = max(rest / resident, _ENOUGH_IN_FLIGHT) if rest else 0.0
        return (-(-min(tile, leaves) // at_once) + _START_TURNS) * (waves + last)

    tiles = [at_once << level for level in range(MAX_LEVELS) if level == 0 or at_once << (level - 1) < leaves]
    return min(reversed(tiles), key=cost)
