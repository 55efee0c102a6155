"""A cell of a suite: what it is called, how it is measured, whether a goal names it, and about how long it takes. Pure.

The times are estimates to plan a session by (``benchmarks.run --list``), and are no measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Row
from benchmarks.problems import Case

if TYPE_CHECKING:
    from benchmarks.harness import Mode
    from benchmarks.suites.setting import Setting

__all__ = ["Cell", "array_cell", "some"]

CELL_SECONDS, CONTENDER_SECONDS = 0.2, 0.1
"""Of 2^28 elements and 3 competitors in all, a cell took 0.1 to 0.8 s where none of them was very slow."""

COMPILER_SECONDS = {"torch.compile": 1.0, "Numba": 1.0}
"""What else a competitor that compiles for each case takes, about.

Cells with torch.compile took 0.7 to 1.6 s where like ones took 0.1 to 0.8 (`2026-11-22-h200-suites.json`), but for the
first one of a run: see `session.START_SECONDS`. What Numba takes is not known: there it failed.
"""

COLUMNS_SECONDS = 1.0
"""What CuPy takes more along an axis that is not the last one, where a launch of it is slow."""

BYTES_A_SECOND = 20e9
"""Of elements that are made and results that are checked."""

VARIANTS = {"CUB": 3}
"""Contenders of a competitor, if more than one, at most."""


@dataclass(frozen=True)
class Cell:
    """One cell, or several rows that are measured together.

    Attributes
    ----------
    name : str
        What it is called.
    measure : callable
        Returns its rows.
    seconds : float
        About how long that takes.
    goal : bool
        Whether a goal names it, so that it is measured before others.
    case : Case, optional
        What is reduced, for competitors that can prepare for it.
    peers : tuple of str
        Those competitors.
    """

    name: str
    measure: Callable[[Setting], Sequence[Row]]
    seconds: float
    goal: bool = False
    case: Case | None = None
    peers: tuple[str, ...] = ()


def array_cell(name: str, case: Case, peers: Sequence[str], *, goal: bool = False, mode: Mode | None = None) -> Cell:
    """Return the cell in which the harness compares a case with competitors by name, in a mode or the setting's."""

    def measure(setting: Setting) -> Sequence[Row]:
        return [setting.harness.compare(name, case, setting.peers(*peers), mode=mode or setting.mode)]

    contenders = 1 + sum(VARIANTS.get(peer, 1) for peer in peers)
    seconds = CELL_SECONDS + CONTENDER_SECONDS * contenders + case.nbytes / BYTES_A_SECOND
    seconds += sum(COMPILER_SECONDS.get(peer, 0.0) for peer in peers)
    if "CuPy" in peers and case.axis is not None and case.axis < len(case.shape) - 1:
        seconds += COLUMNS_SECONDS
    return Cell(name, measure, seconds, goal, case, tuple(peers))


def some(cells: Sequence[Any], places: Sequence[int], *, quick: bool) -> list[Any]:
    """Return the cells, or, if it has to be quick, those at these places."""
    return [cells[i] for i in places] if quick else list(cells)
