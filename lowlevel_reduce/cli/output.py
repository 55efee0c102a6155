"""The output of the commands: tables, notes, JSON, progress bars, and errors in one line."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import sys
from collections.abc import Iterator
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from lowlevel_reduce.cli.stacking import needed_width, stacked
from lowlevel_reduce.errors import ReduceError

__all__ = [
    "BAD_INPUT",
    "NONE",
    "WRONG_RESULT",
    "clean_errors",
    "console",
    "need",
    "note",
    "number",
    "progress",
    "show",
    "write_json",
]

WRONG_RESULT, BAD_INPUT = 1, 2  # exit statuses

NONE = "–"
"""What a table shows in a cell without content."""

_PIPE_COLUMNS = 200  # a pipe has no width, and tables must not be folded to 80 columns there


def console(*, stderr: bool = False, no_color: bool = False) -> Console:
    """Return a console on this process's current stdout or stderr; the variable NO_COLOR takes its colours, too."""
    found = Console(stderr=stderr, highlight=False, markup=False, emoji=False, no_color=no_color or None)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found.width = _PIPE_COLUMNS
    return found


def show(table: Table) -> None:
    """Print a table on stdout; if the terminal is too narrow, in parts below each other, and no figure is cut off."""
    out = console()
    for part in stacked(table, out):
        out.width = max(out.width, needed_width(part, out))
        out.print(part)


def note(text: str, *, as_json: bool) -> None:
    """Print a line that is not part of the result: on stderr if stdout must contain only JSON."""
    typer.echo(text, err=as_json)


def progress(*, counted: bool = False) -> Progress:
    """Return a progress bar on stderr that vanishes at the end; nothing is drawn if stderr is not a terminal.

    Parameters
    ----------
    counted : bool
        Show the number of completed items and the total, instead of a percentage.
    """
    errors = console(stderr=True)
    amount = MofNCompleteColumn() if counted else TextColumn("{task.percentage:>3.0f} %")
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeElapsedColumn(), TimeRemainingColumn())
    errors.quiet = not errors.is_terminal  # before 15, Rich ends even a disabled bar with an empty line
    return Progress(*columns, console=errors, transient=True, disable=errors.quiet)


@contextlib.contextmanager
def clean_errors() -> Iterator[None]:
    """Turn errors that the library raises in the block into one line and exit status 2.

    Output errors are treated so too, and a number of elements for which the host lacks the memory.
    """
    try:
        yield
    except BrokenPipeError:  # the reader of the output has seen enough, as head does: Typer ends silently
        raise
    except (ReduceError, OSError, MemoryError, TypeError, ValueError) as error:
        typer.echo(f"{type(error).__name__}: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(BAD_INPUT) from error


def need(module: str, purpose: str) -> None:
    """Import a package of the extra ``plot``, so that a missing package is reported before anything runs.

    Raises
    ------
    ReduceError
        If it is not installed; the message says what needs it and how to install it.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ReduceError(f'{purpose} {package}: pip install "lowlevel-reduce[plot]"') from error


def write_json(value: Any) -> None:
    """Print a value as JSON on stdout; a float that is not finite becomes a string that ``float`` converts back."""
    json.dump(_plain(value), sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")
    sys.stdout.flush()  # here an error is still reported, unlike at the interpreter's exit


def number(value: float | None, spec: str) -> str:
    """Return a formatted number, or `NONE` if there is no number."""
    return NONE if value is None else format(value, spec)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    if hasattr(value, "item"):  # a NumPy scalar, including those of ml_dtypes
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
