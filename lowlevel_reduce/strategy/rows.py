"""How rows are mapped to a device: a pure function of the problem and the device; `columns` maps columns."""

from __future__ import annotations

import math

from lowlevel_reduce.dtypes import LANE_BITS, LANES, STEPS, VECTOR_BYTES
from lowlevel_reduce.layout import Problem
from lowlevel_reduce.strategy.base import (
    ROW_STRATEGIES,
    SMALL_BYTES,
    WARP_FOLDS,
    WARPS,
    RowStrategy,
    Task,
    rows_of_a_warp,
    short_row_bits,
)
from lowlevel_reduce.strategy.element_costs import pairs_anywhere
from lowlevel_reduce.strategy.elements import choose_elements, faster_elements, takes_elements
from lowlevel_reduce.strategy.joined_columns import are_columns, choose_columns, suits, why_columns
from lowlevel_reduce.strategy.row_bounds import RESIDENT_LIGHTEST, bounded
from lowlevel_reduce.strategy.row_times import have_warps_anywhere, row_time
from lowlevel_reduce.strategy.staged_rows import staged_rows
from lowlevel_reduce.strategy.whole import (
    MAX_GRID,
    DeviceFacts,
    check_cluster,
    choose,
    folding_blocks,
    largest_cluster,
    power_of_two,
)

__all__ = ["are_aligned", "choose_rows", "why_rows"]

WARPS_TO_FILL = 16
"""Warps per multiprocessor that keep its share of the memory bandwidth busy, each with 4 KiB in flight."""

# Rows of which each warp folds only one leaf (benchmarks/NOTES.md, "A warp a leaf").
_MOST_LEAVES = 10
"""A row of at most this many leaves gets a block with as many warps; three or more such blocks fit on a
multiprocessor."""

_ROWS_OF_A_BLOCK = 2
"""Rows in a block, if each has two leaves."""

_WARPS_AT_ONCE = 8
"""Up to so many rows of at most a leaf per multiprocessor, and of more than 256 bytes, have a warp each, in the kernel
for rows of a few leaves, if accumulators are narrow: it has less code than that for short rows of all lengths
(benchmarks/NOTES.md, "One kernel for short rows")."""

_FEW_WARPS, _FEW_WIDE_WARPS = 2, 8
"""Up to so many warps of a multiprocessor, those of short rows have half as many rows each: what a warp executes is
what such launches wait for. The latter where accumulators are wide."""

_PAIRS = 32
"""So many times as many where elements are at any address and take exponentials: 20,000 x 151 of bfloat16 8.76 us
instead of 9.55, 40,000 x 151 15.8 instead of 16.3."""

_FEW_IN_TURN = 32
"""Up to so many warps of a multiprocessor have one short row each, of those that a warp takes one after the other."""

_LITTLE_OF_A_LEAF = 0.5
"""If no more than this fraction of a second leaf is filled, it gets a warp of its own even in rows at any address."""

_MOST_UNALIGNED_LEAVES = 2 * WARPS
"""Rows of words at any address, of more than one leaf but at most this many, get a warp for each leaf, if there are
enough rows to fill the device (benchmarks/NOTES.md, "Rows at any address")."""

# Long rows that are cut into tiles however many there are (benchmarks/NOTES.md, "Long rows in tiles").
_LONGEST_ROW = 96
"""Leaves from which on that is faster than a block for each row. The last tile of a row, which may lack leaves, matters
less then."""

_LONG_ROW, _UNEVEN_ROWS = 64, 0.1
"""Rows of at least this many leaves are cut into tiles if, with a block for each row, all blocks would run at once and
leave more than this fraction of the device idle, because multiprocessors would have different numbers of them. 300 x
2^18 takes 70 us in tiles and 108 with a block for each row."""

_FEW_GATHERED, _SMALL_TILE = 4, 4
"""Rows of so few leaves stay in one block where elements are loaded one by one; and from so many warps on, a tile has
more only where multiprocessors would have more than two tiles."""

_FOLDED_BY_BLOCKS = 3
"""Up to this many rows per multiprocessor each have folding blocks of their own; of more rows each warp of a folding
block folds some, if their partials are few. The blocks of 1,024 rows would keep the device busy for some microseconds
after the last tile."""


def choose_rows(of: Task, *, strategy: str | None = None, cluster: int | None = None) -> RowStrategy:
    """Choose how to reduce the rows of a task.

    Parameters
    ----------
    of : Task
        The task.
    strategy : str, optional
        The strategy to force: "rows" or "batch" for rows of any length, "short_rows" for rows of one leaf, "columns",
        or "elements" for rows of one leaf and columns of as many elements.
    cluster : int, optional
        The number of blocks in a cluster to force, for "batch": 1, 2, 4, 8 or 16.

    Raises
    ------
    ValueError
        If there is no strategy of that name, if it does not suit the problem or the cluster, or if the grid would be
        too large.
    UnsupportedError
        If the device has no clusters.
    """
    problem, facts = of.problem, of.facts
    found = faster_elements(of) if strategy is None and cluster is None else None
    if found is not None:
        return found
    leaves = max(1, -(-problem.length // (LANES * STEPS * of.vector)))
    filled = _filled_leaves(of)
    name = _fastest(of, filled)[0] if strategy is None else strategy
    if name not in ROW_STRATEGIES:
        raise ValueError(f"there is no strategy {name!r} for rows; there is {', '.join(ROW_STRATEGIES)}")
    if not _suits(name, problem, leaves, of.itemsize):
        raise ValueError(f"strategy {name!r} does not go with {problem.rows} rows of {problem.length} ({problem.kind})")
    if cluster is not None:
        check_cluster(name, cluster, facts, ("batch",))
    if name == "elements":
        chosen = choose_elements(of)
    elif name == "columns":
        chosen = choose_columns(of)
    else:
        if name == "short_rows":
            chosen = _short_rows(of)
        elif name == "batch":
            warps, fastest = _tiles_of_a_row(of, leaves)
            staged = staged_rows(of) if cluster is None else None
            chosen = staged or _batch(of, leaves, warps, fastest if cluster is None else cluster)
        else:
            chosen = _rows(of, filled)
        _, _, *sizes, heavy, two_arrays, _ = of
        chosen = bounded(chosen, *sizes, heavy=heavy, two_arrays=two_arrays, newer=facts.more_registers)
        chosen = chosen._replace(programmatic=facts.programmatic, aligned=problem.aligned)
    if chosen.blocks > MAX_GRID:
        raise ValueError(f"{problem.rows} rows need {chosen.blocks} blocks; a grid has at most {MAX_GRID}")
    return chosen


def _filled_leaves(of: Task) -> float:
    """Return the leaves of a row, the last of which counts by its steps: one takes as long if not all lanes load."""
    return -(-of.problem.length // (LANES * of.vector)) / STEPS


def _suits(name: str, problem: Problem, leaves: int, itemsize: int) -> bool:
    """Return whether a strategy can serve a problem whose rows have so many leaves."""
    if name == "elements":
        return takes_elements(problem, itemsize)
    return suits(name, problem, itemsize) and not (name == "short_rows" and leaves > 1)


def why_rows(of: Task) -> str:
    """Return in words why `choose_rows` takes the strategy that it takes unasked."""
    if faster_elements(of) is not None:
        return "by the model of strategy/element_costs.py, a load for each of a row's few elements takes the least time"
    return _fastest(of, _filled_leaves(of))[1]


def are_aligned(problem: Problem, vector: int) -> bool:
    """Return whether sixteen-byte vectors begin at the same places in all rows, and in all runs of strided ones."""
    others = problem.kept
    if problem.kind == "strided":
        run = problem.reduced[0]
        if run.stride * vector != VECTOR_BYTES or run.size % vector:
            return False
        others += problem.reduced[1:]
    for axis in others:  # noqa: SIM110 - a generator takes three times as long
        if axis.stride % VECTOR_BYTES:
            return False
    return True


def _most_leaves(of: Task) -> int:
    """Return up to how many leaves a row has a warp for each."""
    return WARPS if of.facts.more_registers and not of.narrow else _MOST_LEAVES  # eight give a thread 255 registers


def _are_few(rows: int, leaves: int, facts: DeviceFacts) -> bool:
    """Return whether rows of a few leaves leave multiprocessors idle."""
    return rows <= 4 * facts.multiprocessors and rows * leaves <= facts.multiprocessors * WARPS_TO_FILL


def _are_many_at_any_address(of: Task) -> bool:
    """Return whether rows of words begin at different places between vectors, and are enough to fill the device.

    Elements of contiguous rows are loaded one by one then, because vectors do not fit them.
    """
    problem, vector = of.problem, of.vector
    if problem.rows < of.facts.multiprocessors * WARPS_TO_FILL or problem.kind == "strided" or of.two_arrays:
        return False
    return vector in (2, 4) and not are_aligned(problem, vector)


def _are_uneven(rows: int, leaves: int, facts: DeviceFacts) -> bool:
    """Return whether a block for each long row would give some multiprocessors more blocks than others, all at once."""
    of_a_multiprocessor = -(-rows // facts.multiprocessors)
    idle = 1 - rows / (facts.multiprocessors * max(1, of_a_multiprocessor))
    return leaves >= _LONG_ROW and of_a_multiprocessor <= RESIDENT_LIGHTEST and idle > _UNEVEN_ROWS


def _have_a_warp_each(of: Task) -> bool:
    """Return whether rows of at most a leaf are long enough for a whole warp, and few enough to run all at once."""
    problem, long = of.problem, of.problem.length > LANES // 2 * of.vector
    return problem.kind == "rows" and long and problem.rows <= _WARPS_AT_ONCE * of.facts.multiprocessors


def _why_cut(of: Task, leaves: int) -> str | None:
    """Return why rows of several leaves are cut into tiles; None if they are not."""
    problem, facts, narrow = of.problem, of.facts, of.narrow
    if 2 * problem.rows <= facts.multiprocessors and _are_gathered(of, leaves):
        return "elements are loaded one by one, and rows are so few that each may have several multiprocessors"
    if leaves <= WARPS:
        return None
    if problem.rows * WARPS < facts.multiprocessors * WARPS_TO_FILL:
        return "the rows are too few to fill the device with a block each, so each is cut into tiles"
    if narrow and leaves >= _LONGEST_ROW and are_aligned(problem, of.vector) and not of.two_arrays:
        return "rows of that many leaves are faster in tiles, however many there are"
    if narrow and _are_uneven(problem.rows, leaves, facts):
        return "a block for each row would leave part of the device idle, so each is cut into tiles"
    return None


def _fastest(of: Task, leaves: float) -> tuple[str, str]:
    """Return the strategy that is taken unasked, and why, in words."""
    if are_columns(of.problem, of.itemsize):
        return "columns", why_columns(of.problem)
    if leaves <= 1:
        if of.narrow and _have_a_warp_each(of):
            return "rows", "rows of no more than one leaf are few enough for a warp each"
        return "short_rows", "a row is no more than one leaf of 4 KiB"
    whole = math.ceil(leaves)
    cut = _why_cut(of, whole)
    return _fastest_uncut(of, leaves) if cut is None else ("batch", cut)


def _fastest_uncut(of: Task, leaves: float) -> tuple[str, str]:
    """Return the same for rows of several leaves that are not cut for being few, long or uneven."""
    problem, facts, narrow = of.problem, of.facts, of.narrow
    rows, whole = problem.rows, math.ceil(leaves)
    by_leaves = whole <= _most_leaves(of) and are_aligned(problem, of.vector)
    if by_leaves and not (narrow and _are_few(rows, whole, facts)):
        together = whole == 2 and not of.two_arrays and problem.kind != "strided"
        return "rows" if together else "batch", "short aligned rows take a warp for each leaf"
    alone = have_warps_anywhere(of, leaves)
    if alone or (leaves <= _MOST_UNALIGNED_LEAVES and _are_many_at_any_address(of)):
        return "rows", f"there are enough rows at any address for a warp {'each' if alone else 'to a leaf'}"
    if not narrow or whole > 2 * WARPS:
        long = "rows are longer than a tile, and enough to fill the device"
        because = long if narrow else "the accumulator is wide"
        return "rows", f"{because}: warps of a block take a row's leaves in turns"
    if whole <= WARPS:
        few = _are_few(rows, whole, facts)
        return ("batch", "few rows of few leaves: a block for each") if few else ("rows", "many rows of few leaves")
    by_tiles = row_time(rows, leaves, 2 * WARPS, facts)
    if by_tiles <= row_time(rows, leaves, _warps_of_a_row(rows, leaves, facts), facts):
        return "batch", "tiles of 16 warps take less time than turns of fewer, by the model of strategy/row_times.py"
    return "rows", "turns of few warps take less time than tiles of 16, by the model of strategy/row_times.py"


def _short_rows(of: Task) -> RowStrategy:
    problem = of.problem
    levels = (max(1, -(-problem.length // of.vector)) - 1).bit_length()
    bits = short_row_bits(levels, two_arrays=of.two_arrays)
    few = (_FEW_WARPS if of.narrow else _FEW_WIDE_WARPS) * of.facts.multiprocessors
    few *= _PAIRS if pairs_anywhere(of) else 1
    halved = int(not of.two_arrays and bits > 0 and levels > 0 and problem.rows <= few << bits)
    if _are_one_after_the_other(of, levels):
        few = _FEW_IN_TURN * of.facts.multiprocessors
        halved = next(k for k in range(bits + 1) if k == bits or problem.rows > few << bits - k)
    needed = -(-problem.rows // (1 << bits - halved))
    warps = _warps_of_a_block(needed, 1, of.facts)
    contiguous = problem.kind != "strided"
    return RowStrategy(
        "short_rows", -(-needed // warps), contiguous=contiguous, levels=levels, halved=halved, warps=warps
    )


def _are_one_after_the_other(of: Task, levels: int) -> bool:
    """Return whether a warp takes its short rows so: each is a round trip to memory (cuda_src/rows/wide_rows.cuh)."""
    small = of.narrow and of.itemsize <= SMALL_BYTES
    if of.two_arrays and [axis.second_stride for axis in of.problem.reduced] != [SMALL_BYTES]:  # such as masks
        return False
    return small and levels > LANE_BITS and of.problem.kind == "rows" and not are_aligned(of.problem, of.vector)


def _rows(of: Task, leaves: float) -> RowStrategy:
    problem, facts = of.problem, of.facts
    contiguous, many = problem.kind != "strided", _are_many_at_any_address(of)
    by_leaves = many and of.narrow and 1 < leaves <= _MOST_UNALIGNED_LEAVES
    little = 1.0 if by_leaves or are_aligned(problem, of.vector) else _LITTLE_OF_A_LEAF
    if contiguous and 0 < leaves <= 1:
        warps_of_a_row, rows_of_a_block, in_one_turn = 1, WARPS // 2, True
    elif contiguous and not of.two_arrays and 0 < leaves - 1 <= little:
        warps_of_a_row, rows_of_a_block, in_one_turn = 2, _ROWS_OF_A_BLOCK, True
    elif by_leaves:
        warps_of_a_row, rows_of_a_block, in_one_turn = math.ceil(leaves), 1, True
    else:
        alone = (many and leaves <= WARPS) or have_warps_anywhere(of, leaves)
        warps_of_a_row = 1 if alone else _warps_of_a_row(problem.rows, leaves, facts)
        warps = _warps_of_a_block(problem.rows * warps_of_a_row, warps_of_a_row, facts)
        rows_of_a_block, in_one_turn = warps // warps_of_a_row, False
    return RowStrategy(
        "rows",
        -(-problem.rows // rows_of_a_block),
        warps_of_a_row=warps_of_a_row,
        in_one_turn=in_one_turn,
        contiguous=contiguous,
        warps=warps_of_a_row * rows_of_a_block,
    )


def _warps_of_a_block(needed: int, least: int, facts: DeviceFacts) -> int:
    """Return the warps of a block: as few as possible if there would otherwise be fewer blocks than multiprocessors.

    2^8 x 2^8 takes 1.11 us in 64 blocks of one warp, where torch.compile takes 1.38; eight blocks of eight warps took
    1.48, where it took 1.39 (benchmarks/NOTES.md).
    """
    return WARPS if needed >= facts.multiprocessors * WARPS else least


def _batch(of: Task, leaves: int, warps: int, cluster: int) -> RowStrategy:
    problem, parts = of.problem, -(-leaves // (warps * cluster))
    shared = parts > 1  # a cluster that has a row to itself needs no other one to fold it
    if shared and parts <= WARP_FOLDS and problem.rows > _FOLDED_BY_BLOCKS * of.facts.multiprocessors:
        folders = -(-problem.rows // (warps * rows_of_a_warp(parts)))
    else:
        folders = problem.rows * folding_blocks(parts, warps)
    return RowStrategy(
        "batch",
        (problem.rows * parts + folders) * cluster,
        parts=parts,
        folders=folders,
        warps_of_a_row=warps,
        in_one_turn=True,
        contiguous=problem.kind != "strided",
        warps=warps,
        cluster=cluster,
    )


def _are_gathered(of: Task, leaves: int) -> bool:
    """Return whether a load brings one element, of rows that are long enough for small tiles to be worth it."""
    return leaves > _FEW_GATHERED and of.problem.kind == "strided" and not are_aligned(of.problem, of.vector)


def _tiles_of_a_row(of: Task, leaves: int) -> tuple[int, int]:
    """Return the warps of a tile and the tiles of a cluster: one, or all tiles of a row.

    Warps that load elements one by one wait for each other's loads: where multiprocessors would have no tile, tiles are
    smaller, and clusters of them are slower than partials (benchmarks/NOTES.md, "Elements that are not neighbours").
    """
    rows, multiprocessors = of.problem.rows, of.facts.multiprocessors
    warps, cluster = _large_tiles_of_a_row(of, leaves)
    if not _are_gathered(of, leaves) or rows * -(-leaves // warps) >= multiprocessors:
        return warps, cluster
    warps = 1
    while rows * -(-leaves // warps) > multiprocessors * (1 if warps < _SMALL_TILE else 2):
        warps *= 2
    return warps, 1


def _large_tiles_of_a_row(of: Task, leaves: int) -> tuple[int, int]:
    """Return the same where multiprocessors may be idle if their number is no matter.

    For narrow accumulators a tile is as large as for a whole array of as many leaves: `policy` has the measurements.
    If a multiprocessor can be had for each tile, and a portable cluster holds a row, there are no partials: 16 rows of
    2^17 floats take 3.60 us instead of 4.15, 32 of 2^16 3.71 instead of 4.13, 8 of 2^15 1.60 instead of 1.84
    (benchmarks/NOTES.md). With more tiles than multiprocessors, 64 of 2^16 take 6.30 instead of 5.21.
    """
    rows, facts = of.problem.rows, of.facts
    if leaves <= _most_leaves(of) and not _are_few(rows, leaves, facts):
        return leaves, 1
    if not of.narrow:
        return WARPS, 1
    warps = max(WARPS, choose(rows * leaves, facts, strategy="tiles").warps)
    tiles = power_of_two(-(-leaves // warps))
    fits = tiles <= largest_cluster(facts) and rows * tiles <= facts.multiprocessors
    together = facts.clusters and (fits or tiles == 2)  # 132 rows of 2^15: 5.03 us instead of 5.98
    return warps, tiles if together else 1


def _warps_of_a_row(rows: int, leaves: float, facts: DeviceFacts) -> int:
    """Return how many warps take the least time for a row of `leaves` leaves, the last of which may be partial."""
    widest = min(WARPS, power_of_two(math.ceil(leaves)))
    if widest == 1:  # of no leaves no time can be told
        return 1
    least, found = math.inf, 1
    for warps in (8, 4, 2, 1):
        if warps <= widest and (time := row_time(rows, leaves, warps, facts)) < least:
            least, found = time, warps
    return found
