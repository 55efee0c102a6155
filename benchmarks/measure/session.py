"""A measuring session: the cells of several suites, goals first if the time is limited, each saved at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.measure import records
from benchmarks.measure.figures import OURS, Row, median_us, stored
from benchmarks.suites import Cell, Setting

__all__ = ["START_SECONDS", "Session", "ordered", "plan_lines"]

START_SECONDS = 50.0
"""About how long it takes to import the competitors and compile all of CUB before the first cell.

The first cell once waited 18 s for a part of CUB. Also included is torch.compile's first kernel of a process: the cell
that had it took 8 to 13 s in each of the measured suites.
"""

MOST_BROKEN = 3
"""The session ends when so many cells in a row raise: then the cause is the device, not the cells."""

Cells = Mapping[str, Sequence[Cell]]


def ordered(cells: Cells) -> list[tuple[str, Cell]]:
    """Return the cells in a session's order: first those that goals name, suite by suite, then the others."""
    named = [(suite, cell) for suite, found in cells.items() for cell in found]
    return [each for each in named if each[1].goal] + [each for each in named if not each[1].goal]


def plan_lines(cells: Cells) -> list[str]:
    """Return the plan as text: of each suite the number of cells, how many come first, and the estimated time."""
    lines = [f"{'suite':10} {'cells':>6} {'first':>6} {'seconds':>8}"]
    for suite, found in cells.items():
        first = sum(cell.goal for cell in found)
        lines.append(f"{suite:10} {len(found):6} {first:6} {sum(cell.seconds for cell in found):8.0f}")
    total = START_SECONDS + sum(cell.seconds for found in cells.values() for cell in found)
    goals = START_SECONDS + sum(cell.seconds for _, cell in ordered(cells) if cell.goal)
    return [*lines, f"about {total:.0f} s in all, {goals:.0f} s for what comes first"]


class Session:
    """One run.

    Parameters
    ----------
    cells : mapping
        All cells of each suite; the file lists those that were not measured as left out.
    file : Path
        Where the results go: a file that `records.begin` has begun. Each cell is appended as soon as it is measured.
    setting : Setting
        The setting that cells are measured in.
    wanted : callable, optional
        Says whether to measure a cell; by default all are.
    done : mapping, optional
        What the file holds already, as `runs.suites_in` returns it: cells that have rows there are not measured again.
    budget_seconds : float, optional
        No cell is begun that would, by its estimate, end later than this after the session's beginning.
    show : callable
        Prints a line.
    clock : callable
        Returns a time in seconds.
    """

    def __init__(
        self,
        cells: Cells,
        file: Path,
        setting: Setting,
        *,
        wanted: Callable[[Cell], bool] = lambda cell: True,
        done: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        budget_seconds: float | None = None,
        show: Callable[[str], object] = print,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._cells = cells
        self._file = file
        self._setting = setting
        self._wanted = wanted
        self._budget = budget_seconds
        self._show, self._clock = show, clock
        self._begin = clock()
        self._rows: dict[str, dict[str, list[Row]]] = {suite: {} for suite in cells}
        self._broken: dict[str, dict[str, str]] = {suite: {} for suite in cells}
        self._seconds = {suite: float(done.get(suite, {}).get("seconds", 0.0)) for suite in cells}
        for suite, found in cells.items():
            content = done.get(suite, {"rows": [], "places": []})
            for place, row in zip(content["places"], content["rows"], strict=True):
                self._rows[suite].setdefault(found[place].name, []).append(row)

    @property
    def failed(self) -> bool:
        """Whether a cell stopped with an error, or a result of this library was wrong or missing."""
        rows = [row for suite in self._cells for row in self.rows(suite)]
        return any(self._broken.values()) or any(median_us(row, OURS) is None for row in rows)

    def rows(self, suite: str) -> list[Row]:
        """Return the rows of a suite measured so far, in the order of its cells."""
        found = self._rows[suite]
        return [row for cell in self._cells[suite] for row in found.get(cell.name, ())]

    def left_out(self, suite: str) -> list[str]:
        """Return the names of a suite's cells that have no row yet."""
        return [cell.name for cell in self._cells[suite] if cell.name not in self._rows[suite]]

    def run(self, line_of: Callable[[Row], str]) -> None:
        """Measure until all cells are done, the time is up, or the device is lost."""
        order = ordered(self._cells) if self._budget is not None else [
            (suite, cell) for suite, found in self._cells.items() for cell in found
        ]  # fmt: skip
        order = [each for each in order if self._wanted(each[1]) and each[1].name not in self._rows[each[0]]]
        self._setting.prepare([cell for _, cell in order])
        if versions := self._setting.versions():
            records.add(self._file, {"conditions": versions})
        current, in_a_row = "", 0
        for suite, cell in order:
            if self._budget is not None and self._clock() - self._begin + cell.seconds > self._budget:
                continue
            if suite != current:
                self._show(f"== {suite}")
                current = suite
            in_a_row = 0 if self._measure(suite, cell, line_of) else in_a_row + 1
            if in_a_row == MOST_BROKEN:
                self._show(f"== {MOST_BROKEN} cells in a row broke off: no more is tried")
                break
        self._end()

    def _measure(self, suite: str, cell: Cell, line_of: Callable[[Row], str]) -> bool:
        begin = self._clock()
        try:
            rows = list(cell.measure(self._setting))
            self._rows[suite][cell.name] = rows
        except Exception as error:  # noqa: BLE001  what was measured before must not be lost
            self._broken[suite][cell.name] = told = f"{type(error).__name__}: {error}"[:200]
            records.add(self._file, {"suite": suite, "cell": cell.name, "broke_off": told})
            self._show(f"{cell.name} broke off: {told}")
            return False
        finally:
            self._seconds[suite] += self._clock() - begin
        # With its place, because what goals name is measured first.
        at = {"suite": suite, "place": self._cells[suite].index(cell)}
        records.add(self._file, *({**at, **stored(row)} for row in rows))
        for row in rows:
            self._show(line_of(row))
        return True

    def _end(self) -> None:
        """Write the end of every suite that was begun."""
        for suite in self._cells:
            left_out = self.left_out(suite)
            if len(left_out) == len(self._cells[suite]) and not self._broken[suite]:
                continue
            end = {"seconds": round(self._seconds[suite], 1), "complete": not left_out, "left_out": left_out}
            records.add(self._file, {"suite": suite, **end, "missing": dict(self._setting.missing)})
