"""``ladder --source``: one's own kernel, examined on the simulator, counted beside a rung, and timed on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from lowlevel_reduce import simulator
from lowlevel_reduce.cli.output import number, show, write_json
from lowlevel_reduce.cli.session import Session
from lowlevel_reduce.driver import Context
from lowlevel_reduce.ladder import RUNGS, Record, Rung
from lowlevel_reduce.ladder import run as run_rungs
from lowlevel_reduce.workbench import Examined, Finding, LaunchOptions, OwnKernel, OwnSource, examine, read_source
from lowlevel_reduce.workbench.examine import time_us

__all__ = ["EXAMINED_N", "TIMED_N", "Wanted", "nearest", "run"]

EXAMINED_N = 4099
"""Elements that a kernel is examined over on the simulator: several blocks, and a rest that no vector divides."""

TIMED_N = 100_000_000

_ROWS = (
    ("instructions of warps", "instructions"),
    ("global load requests", "global_loads"),
    ("  sectors", "global_load_sectors"),
    ("global store requests", "global_stores"),
    ("shared requests", "shared_requests"),
    ("  bank conflicts", "bank_conflicts"),
    ("branches of warps", "branches"),
    ("  divergent", "divergent_branches"),
    ("atomics", "atomics"),
    ("barriers of warps", "barriers"),
    ("bytes read", "bytes_read"),
)


@dataclass(frozen=True)
class Wanted:
    """What the options of the command name.

    Attributes
    ----------
    source : Path
        The file.
    entry, then, signature : str, optional
        The kernel, the one that folds its partials, and the types of its parameters.
    beside : str, optional
        A rung.
    options : LaunchOptions
        How it is launched.
    n : int, optional
        Elements.
    repeat : int
        Replays on a GPU.
    """

    source: Path
    entry: str | None
    then: str | None
    signature: str | None
    beside: str | None
    options: LaunchOptions
    n: int | None
    repeat: int


@dataclass(frozen=True)
class _Timed:
    microseconds: float
    gb_per_s: float
    right: bool


def run(wanted: Wanted, session: Session, *, as_json: bool) -> bool:
    """Examine, count and time a kernel, print what was found, and return whether nothing is wrong.

    Raises
    ------
    ValueError
        If there is no such rung.
    UnsupportedError, CompileError, OSError
        If the source cannot be read, compiled, understood or launched.
    """
    rung = _rung(wanted.beside)
    name = _simulated_name(session)
    major, minor = simulator.by_name(name).compute_capability
    source = read_source(wanted.source, f"sm_{major}{minor}")
    kernel, then = _kernels(source, wanted)
    n = wanted.n if session.simulated and wanted.n is not None else EXAMINED_N
    found = examine(source, kernel, then, n, wanted.options, name)
    beside = None if rung is None else _beside(rung, n, wanted.options.block, name)
    times = {} if session.simulated or not found.right else _times(wanted, kernel, then, rung, session)
    if as_json:
        write_json(_as_objects(found, beside, times))
    else:
        _render(found, kernel, beside, times, wanted, name)
    return found.right and all(time.right for time in times.values())


def _rung(name: str | None) -> Rung | None:
    if name is None:
        return None
    if name not in RUNGS:
        raise ValueError(f"no rung {name!r}; there are {', '.join(RUNGS)}")
    return RUNGS[name]


def _kernels(source: OwnSource, wanted: Wanted) -> tuple[OwnKernel, OwnKernel | None]:
    kernel = source.kernel(wanted.entry, wanted.signature)
    return kernel, None if wanted.then is None else source.kernel(wanted.then)


def _simulated_name(session: Session) -> str:
    """Return the name of the simulated device: the session's, or on a GPU the one that is most like it.

    That is the one of its name, else of its compute capability, else the next lower one.
    """
    if session.simulated:
        return simulator.selected().device.key
    device = session.context.device
    return nearest(device.name, device.compute_capability)


def nearest(name: str, capability: tuple[int, int]) -> str:
    """Return the simulated device that is most like a GPU of that name and compute capability."""
    named = [key for key in simulator.device_names() if key in name]
    if named:
        return named[0]
    known = {key: simulator.by_name(key).compute_capability for key in simulator.device_names()}
    not_above = {key: value for key, value in known.items() if value <= capability}
    return max(not_above or known, key=lambda key: known[key] if not_above else tuple(-part for part in known[key]))


def _beside(rung: Rung, n: int, block: int, device: str) -> Record:
    with simulator.use(device), Context.primary() as context, context.pushed():
        return run_rungs([rung], n=n, dtype=rung.dtype("float32"), block=block, context=context)[0]


def _times(
    wanted: Wanted, kernel: OwnKernel, then: OwnKernel | None, rung: Rung | None, session: Session
) -> dict[str, _Timed]:
    """Return the times on a GPU by name, one's own first."""
    n, device = TIMED_N if wanted.n is None else wanted.n, session.context.device
    code = read_source(wanted.source, device.architecture, output="cubin")
    microseconds, value, reference = time_us(code, kernel, then, n, wanted.options, session.context, wanted.repeat)
    size = n * _itemsize(kernel.convention.dtype)
    found = {kernel.name: _Timed(microseconds, size / microseconds / 1e3, value == reference)}
    if rung is not None and rung.lacking(device) is None:
        options: dict[str, Any] = {
            "n": n,
            "dtype": rung.dtype("float32"),
            "block": wanted.options.block,
            "repeat": wanted.repeat,
        }
        record = run_rungs([rung], context=session.context, **options)[0]
        if record.microseconds is not None and record.gb_per_s is not None:
            found[rung.id] = _Timed(record.microseconds, record.gb_per_s, record.correct == record.expected_correct)
    return found


def _itemsize(dtype: str) -> int:
    return int("".join(filter(str.isdigit, dtype))) // 8


def _render(
    found: Examined, kernel: OwnKernel, beside: Record | None, times: Mapping[str, _Timed], wanted: Wanted, device: str
) -> None:
    roles = ", ".join(kernel.convention.roles)
    # A kernel that was stopped in its first run has told of no grid.
    grids = f"grids of {' then '.join(map(str, found.grids))} " if found.grids else ""
    typer.echo(f"{kernel.name}({roles}) of {wanted.source}, simulated {device}, N = {found.n:,}")
    typer.echo(f"{grids}blocks of {wanted.options.block} threads")
    for finding in found.findings:
        typer.echo(_told(finding))
    if found.right:
        typer.echo(f"the sum is right: {found.value!r}, in every order of blocks and warps that was tried")
    if found.counters is not None:
        show(_counters(kernel.name, asdict(found.counters), beside))
    if times:
        show(_timed(times, TIMED_N if wanted.n is None else wanted.n))


def _told(finding: Finding) -> str:
    """Return a finding as compilers print theirs: place, kind, message, and the line below."""
    level = "error" if finding.wrong else "cost"
    head = f"{finding.place}: {level}: {finding.kind}: {finding.message}"
    return f"{head}\n    {finding.text}" if finding.text else head


def _counters(name: str, mine: Mapping[str, Any], beside: Record | None) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("counted")
    table.add_column(name, justify="right", overflow="fold")
    if beside is not None:
        table.add_column(beside.rung, justify="right", overflow="fold")
    for title, key in _ROWS:
        cells = [number(mine[key], ",d")]
        if beside is not None:
            cells.append(number((beside.counters or {}).get(key), ",d"))
        table.add_row(title, *cells)
    return table


def _timed(times: Mapping[str, _Timed], n: int) -> Table:
    table = Table(title=f"N = {n:,}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("kernel", "time, µs", "GB/s", "result"):
        table.add_column(heading, justify="left" if heading in ("kernel", "result") else "right")
    for name, time in times.items():
        cells = (number(time.microseconds, ",.1f"), number(time.gb_per_s, ",.0f"))
        table.add_row(name, *cells, "right" if time.right else "WRONG")
    return table


def _as_objects(found: Examined, beside: Record | None, times: Mapping[str, _Timed]) -> dict[str, Any]:
    return {
        **found.as_dict(),
        "beside": None if beside is None else beside.as_dict(),
        "times": {name: asdict(time) for name, time in times.items()} or None,
    }
