"""A cell of a suite: its name, how it is measured, whether a goal names it, and about how long it takes. Pure.

The times are estimates for planning a session (``benchmarks.run --list``), not measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from benchmarks.measure.figures import Row
from benchmarks.measure.problems import Case

if TYPE_CHECKING:
    from benchmarks.measure.harness import Mode
    from benchmarks.suites.setting import Setting

__all__ = ["Cell", "array_cell", "some"]

CELL_SECONDS, CONTENDER_SECONDS = 0.2, 0.1
"""A cell of 2^28 elements with 3 competitors took 0.1 to 0.8 s in all if none of them was very slow."""

COMPILER_SECONDS = {"torch.compile": 0.5, "Numba": 1.0, "quack": 0.1}
"""About how much longer a cell takes with a competitor that compiles for each case.

Cells with torch.compile took 0.7 to 1.6 s where similar ones took 0.1 to 0.8, on 2026-11-22, before most of its work
was done ahead (`peers.inductor`). For Numba it is not known: it failed in that run. quack compiles the rows that it
has, which few cells are.
"""

COLUMNS_SECONDS = 1.0
"""How much longer a cell takes with CuPy along an axis that is not the last one, where its launches are slow."""

SITUATION_SECONDS, SITUATION_PASSES, MEMORY_BYTES_A_SECOND = 0.11, 400, 3e12
"""How much longer for each contender a cell takes in two more situations: graphs of 2 ms, each replayed 9 times behind
another replay. Graphs of large arrays hold three launches at least, beside copies of them, for a few contenders."""

BYTES_A_SECOND = 20e9
"""How fast elements are made and results are checked."""

VARIANTS = {"CUB": 3}
"""How many contenders a competitor has at most, if more than one."""


@dataclass(frozen=True)
class Cell:
    """One cell, or several rows that are measured together.

    Attributes
    ----------
    name : str
        Its name.
    measure : callable
        Measures it and returns its rows.
    seconds : float
        About how long that takes.
    goal : bool
        Whether a goal needs it, so that it is measured before others.
    case : Case, optional
        The case that competitors can prepare for.
    peers : tuple of str
        The competitors that it needs.
    """

    name: str
    measure: Callable[[Setting], Sequence[Row]]
    seconds: float
    goal: bool = False
    case: Case | None = None
    peers: tuple[str, ...] = ()


def array_cell(
    name: str,
    case: Case,
    peers: Sequence[str],
    *,
    goal: bool = False,
    mode: Mode | None = None,
    around: bool = False,
    consumed: bool = False,
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> Cell:
    """Return the cell that compares the named competitors on a case, in a mode, by default that of the setting.

    With `around`, it is measured after its producer and alone, too, and with `consumed` before a consumer as well.
    Its rows have the `facts`.
    """

    def measure(setting: Setting) -> Sequence[Row]:
        neighbours = setting.neighbours(case, consumed=consumed) if around else None
        contenders = setting.peers(*peers)
        chosen = mode or setting.mode
        return setting.harness.compare(name, case, contenders, mode=chosen, neighbours=neighbours, **facts)

    contenders = 1 + sum(VARIANTS.get(peer, 1) for peer in peers)
    seconds = CELL_SECONDS + CONTENDER_SECONDS * contenders + case.nbytes / BYTES_A_SECOND
    if around:
        seconds += SITUATION_SECONDS * contenders + SITUATION_PASSES * case.nbytes / MEMORY_BYTES_A_SECOND
    seconds += sum(COMPILER_SECONDS.get(peer, 0.0) for peer in peers)
    if "CuPy" in peers and case.axis is not None and case.axes != (len(case.shape) - 1,):
        seconds += COLUMNS_SECONDS
    return Cell(name, measure, seconds, goal, case, tuple(peers))


def some(cells: Sequence[Any], places: Sequence[int], *, quick: bool) -> list[Any]:
    """Return the cells; in a quick run only those at these places."""
    return [cells[i] for i in places] if quick else list(cells)
