"""What rows cost whose warps take their leaves in turns: a model that tells how many warps a row is to have."""

from __future__ import annotations

from lowlevel_reduce.strategy.base import SMALL_BYTES, WARPS, Task
from lowlevel_reduce.strategy.whole import DeviceFacts

__all__ = ["have_warps_anywhere", "row_time"]

# A model of the time that rows take, fitted to the times of 60 shapes (benchmarks/NOTES.md, "Warps of a row").
_BUSY, _IDLE = 0.94, 2.2
"""The fraction of its warps that must be loading to keep a multiprocessor's share of the memory busy, and the factor of
what a smaller fraction costs: the square of what is missing, times this."""

_SECOND_TURN, _LATER_TURN = 30.0, 4.0
"""The cost of a second turn of a row's warps, and of each further one."""

_WARPS_BY_ROWS = 96
"""From so many rows per multiprocessor on, three for each warp that it runs at once, rows of two-byte elements at any
address have a warp each, of up to sixteen leaves: each shifts what it loaded while others load, and none waits at a
barrier (benchmarks/NOTES.md, "Rows at any address")."""


def have_warps_anywhere(of: Task, leaves: float) -> bool:
    """Return whether rows of two-byte elements begin at any address, and are enough for a warp each."""
    problem = of.problem
    if problem.kind != "rows" or problem.aligned or of.itemsize != SMALL_BYTES or of.two_arrays or not of.narrow:
        return False
    return leaves <= 2 * WARPS and problem.rows >= _WARPS_BY_ROWS * of.facts.multiprocessors


def row_time(rows: int, leaves: float, warps: int, facts: DeviceFacts) -> float:
    """Return the modelled time of rows with `warps` warps each; the unit is a multiprocessor's time to load a leaf.

    The warps of a row take its leaves in turns. In the last turn some of them may have no leaf, or only part of one is
    left: less is then in flight. More turns mean that a block spends more time with little in flight.
    """
    turns, rest = divmod(leaves, warps)
    missing = _BUSY - leaves / (warps * (turns + (rest if rest < 1.0 else 1.0)))
    all_turns = turns + (rest > 0)
    more = _SECOND_TURN + _LATER_TURN * (all_turns - 2) if all_turns > 1 else 0.0
    return rows * leaves / facts.multiprocessors * (1 + _IDLE * (missing if missing > 0.0 else 0.0) ** 2) + more
