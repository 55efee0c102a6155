"""The command line, ``python -m lowlevel_reduce info | reduce | ladder``; it needs typer and rich, extra ``cli``."""

from __future__ import annotations

import io
import sys

__all__ = ["main"]

_NEEDED = ("typer", "rich")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : list of str, optional
        The arguments after the program's name; by default those of this process.

    Returns
    -------
    int
        The exit status: 0 for success; 1 for a wrong result, or if the reader of the output has gone; 2 for wrong
        usage, bad input, output that cannot be written, or if the extra ``cli`` is not installed.
    """
    try:
        from lowlevel_reduce.cli.app import app  # noqa: PLC0415 - the extra may not be installed
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        print(f'the command line needs {missing}: pip install "lowlevel-reduce[cli]"', file=sys.stderr)
        return 2
    _replace_what_cannot_be_encoded()
    try:
        app(arguments, prog_name="python -m lowlevel_reduce")
    except SystemExit as end:  # typer always ends by it
        return end.code if isinstance(end.code, int) else 0
    return 0


def _replace_what_cannot_be_encoded() -> None:
    """Write ? for a sign that the output's encoding lacks, as of µ and dashes in ASCII, rather than nothing at all."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
