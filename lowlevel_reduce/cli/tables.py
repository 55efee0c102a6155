"""The ladder's results as tables: times on a GPU, counters on a simulated one, and system B as its source prints it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from lowlevel_reduce.cli.output import NONE, number
from lowlevel_reduce.cli.rungs import Options, Result
from lowlevel_reduce.ladder.registry import published_text

__all__ = ["BESIDE", "COUNTED", "TIMED", "Column", "columns", "faults", "rows", "source_b", "speed_up", "system_table"]

Cell = Callable[[Result, Sequence[Result]], str]


class Column:
    """A column: its heading, broken into lines, and the function for the cell of a result among those of its system.

    A column of counts names the counter that they are of.
    """

    def __init__(self, heading: str, cell: Cell, *, left: bool = False, counter: str | None = None) -> None:
        self.heading = heading
        self.cell = cell
        self.left = left
        self.counter = counter


def _outcome(result: Result) -> str:
    record = result.record
    if result.as_expected:
        return "right" if record.correct else "wrong, on purpose"
    return "RIGHT, but meant to be wrong" if record.correct else "WRONG"


def speed_up(result: Result, among: Sequence[Result]) -> float | None:
    """Return how many times faster a rung is than its system's first; None if either was not timed.

    A rung that is wrong on purpose is not a baseline: the first one is the first that is meant to be right.
    """
    first = next((other.record for other in among if other.record.expected_correct), None)
    if first is None or not first.microseconds or not result.record.microseconds:
        return None
    return float(first.microseconds) / float(result.record.microseconds)


def ratio(counters: Mapping[str, Any] | None, over: str, under: str) -> float | None:
    """Return one counter divided by another; None if nothing was counted."""
    if not counters or not counters.get(under):
        return None
    return float(counters[over]) / float(counters[under])


def _counter(heading: str, name: str) -> Column:
    return Column(heading, lambda result, _: number((result.record.counters or {}).get(name), ",d"), counter=name)


_RUNG = Column("rung", lambda result, _: result.rung.id, left=True)
_TIME = Column("time, µs", lambda result, _: number(result.record.microseconds, ",.1f"))
_SOURCE = Column("the\nsource's %", lambda result, _: published_text(result.rung.published) or NONE)
_ERROR = Column("relative\nerror", lambda result, _: number(result.record.relative_error, ".1e"))
_OUTCOME = Column("result", lambda result, _: _outcome(result), left=True)

TIMED = (
    _RUNG,
    _TIME,
    Column("GB/s", lambda result, _: number(result.record.gb_per_s, ",.0f")),
    Column("% of\nthe peak", lambda result, _: number(result.record.percent_of_peak, ".1f")),
    _SOURCE,
    Column("speed-up", lambda result, among: number(speed_up(result, among), ",.2f")),
    _ERROR,
    _OUTCOME,
)
"""The columns on a GPU."""

COUNTED = (
    _RUNG,
    _counter("load\nrequests", "global_loads"),
    Column(
        "sectors a\nrequest",
        lambda result, _: number(ratio(result.record.counters, "global_load_sectors", "global_loads"), ".2f"),
        counter="global_load_sectors",
    ),
    _counter("bank\nconflicts", "bank_conflicts"),
    _counter("divergent\nbranches", "divergent_branches"),
    _counter("atomics", "atomics"),
    _SOURCE,
    _ERROR,
    _OUTCOME,
)
"""The columns on a simulated device, which has counters but no times."""

BESIDE = COUNTED[1:-3]
"""The columns of counters that a report has behind the times of a GPU."""


def columns(*, simulated: bool) -> tuple[Column, ...]:
    """Return the columns of a table of results."""
    return COUNTED if simulated else TIMED


def rows(results: Sequence[Result], layout: Sequence[Column]) -> list[list[str]]:
    """Return the cells of a system's results."""
    return [[column.cell(result, results) for column in layout] for result in results]


def system_table(title: str, results: Sequence[Result], *, simulated: bool) -> Table:
    """Return the table of one system."""
    layout = columns(simulated=simulated)
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in layout:
        table.add_column(column.heading, justify="left" if column.left else "right", no_wrap=True)
    for cells in rows(results, layout):
        table.add_row(*cells)
    return table


def faults(results: Sequence[Result]) -> list[str]:
    """Return one line for each kernel that did something wrong on a simulated device, where a GPU reports nothing."""
    return [f"{result.rung.id}: {result.record.fault}" for result in results if result.record.fault]


def source_b(results: Sequence[Result], options: Options) -> str:
    """Return what the source of system B prints: the reference, kernel times, speed-ups, results, absolute errors.

    Parameters
    ----------
    results : sequence of Result
        The results of system B, or some of them.
    options : Options
        The options of the run.
    """
    records = {result.rung.id: result.record for result in results}
    times = {name: record.microseconds for name, record in records.items()}
    width = max(map(len, records))
    lines = [
        f"N = {options.n}, block size {options.block}, repeat {options.repeat}",
        f"CPU reference (double): {results[0].record.reference:.6f}",
        "kernel times",
        *(f"  {name:<{width}}  {_milliseconds(time)}" for name, time in times.items()),
        "speed-ups",
    ]
    for faster, slower in (("shared", "atomic"), ("shuffle", "atomic"), ("shuffle", "shared")):
        fast, slow = times.get(faster), times.get(slower)
        lines.append(f"  {faster}/{slower}: {NONE if not fast or not slow else f'{slow / fast:.2f}x'}")
    lines.append("results and absolute errors")
    for name, record in records.items():
        error = None if record.value is None else abs(record.value - record.reference)
        lines.append(f"  {name:<{width}}  {number(record.value, '.6f')}  {number(error, '.6g')}")
    return "\n".join(lines)


def _milliseconds(microseconds: float | None) -> str:
    return NONE if microseconds is None else f"{microseconds / 1e3:.4f} ms"
