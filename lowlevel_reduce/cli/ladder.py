"""The ``ladder`` command: runs the chosen rungs, prints their tables, and writes the requested files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from lowlevel_reduce.cli import pictures, report
from lowlevel_reduce.cli.output import need, note, show, write_json
from lowlevel_reduce.cli.rungs import DEFAULT_N, SIMULATED_N, Options, Result, by_system, climb
from lowlevel_reduce.cli.session import Session
from lowlevel_reduce.cli.tables import faults, source_b, system_table
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.ladder import Rung

__all__ = ["Files", "able", "complete", "refuse", "run"]


@dataclass(frozen=True)
class Files:
    """Where pictures and report are written; None for one that was not requested."""

    plot: Path | None
    report: Path | None

    def check(self) -> None:
        """Refuse files that could not be written after the ladder has run.

        Raises
        ------
        ValueError
            If a file name has the wrong suffix.
        FileNotFoundError, IsADirectoryError
            If a file's directory does not exist, or the file is a directory itself.
        ReduceError
            If matplotlib or jinja2 is not installed.
        """
        _check_file(self.plot, pictures.SUFFIXES)
        _check_file(self.report, report.SUFFIXES)
        if self.plot or self.report:
            need("matplotlib.figure", "pictures need")
        if self.report:
            need("jinja2", "a report needs")
            need("pygments", "a report needs")

    def write(self, results: Sequence[Result], options: Options, session: Session) -> None:
        """Write the requested files."""
        if self.plot:
            pictures.save(pictures.of_session(results, session), self.plot)
        if self.report:
            self.report.write_text(report.page(results, options, session), encoding="utf-8")


def refuse(why: str, **given: object) -> None:
    """Refuse options, by name, that are given and would be passed over.

    Raises
    ------
    ValueError
        If one of them is true; the message says why.
    """
    names = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if names:
        raise ValueError(f"{', '.join(names)} {why}")


def complete(n: int | None, dtype: str, block: int, repeat: int, session: Session) -> Options:
    """Return the options; without `n`, the number of elements is a default that suits the device."""
    default = SIMULATED_N if session.simulated else DEFAULT_N
    return Options(n=default if n is None else n, dtype=dtype, block=block, repeat=repeat)


def able(rungs: Sequence[Rung], session: Session) -> tuple[list[Rung], list[str]]:
    """Return the rungs that the session's device can run, and for each other rung a line that says what is lacking.

    Raises
    ------
    UnsupportedError
        If the device can run none of them.
    """
    lacking = {rung.id: rung.lacking(session.context.device) for rung in rungs}
    left_out = [f"{name} is left out: {what}" for name, what in lacking.items() if what]
    if len(left_out) == len(rungs):
        raise UnsupportedError("; ".join(left_out))
    return [rung for rung in rungs if not lacking[rung.id]], left_out


def run(rungs: Sequence[Rung], options: Options, session: Session, *, as_json: bool) -> list[Result]:
    """Run the rungs that the device can run, and print their tables, or their records as JSON."""
    if session.simulated:
        note(f"it counts and tells no time; N = {options.n:,}", as_json=as_json)
    rungs, left_out = able(rungs, session)
    for line in left_out:
        note(line, as_json=as_json)
    results = climb(rungs, options, session)
    if as_json:
        write_json([result.record.as_dict() for result in results])
        return results
    where, repeat = session.context.device.name, "" if session.simulated else f", repeat {options.repeat}"
    for system, group in by_system(results):
        types = " and ".join(dict.fromkeys(result.record.dtype for result in group))
        what = f"{where}, N = {options.n:,} {types}, block {options.block}{repeat}"
        show(system_table(f"System {system}: {what}", group, simulated=session.simulated))
        for line in faults(group):
            typer.echo(line)
        if system == "B":
            typer.echo(source_b(group, options))
    return results


def _check_file(path: Path | None, suffixes: tuple[str, ...]) -> None:
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{path} ends in none of {', '.join(suffixes)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.parent}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")
