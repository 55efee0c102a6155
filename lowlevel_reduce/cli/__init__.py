"""The command line, ``python -m lowlevel_reduce info | reduce | ladder``; it needs typer and rich, extra ``cli``."""

from __future__ import annotations

import sys

__all__ = ["main"]

_NEEDED = ("typer", "rich")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : list of str, optional
        What follows the program's name; by default that of this process.

    Returns
    -------
    int
        The exit status: 0 fine, 1 a wrong result or nobody left to read it, 2 wrong usage, bad input, output that
        cannot be written, or the extra ``cli`` not installed.
    """
    try:
        from lowlevel_reduce.cli.app import app  # noqa: PLC0415 - the extra may not be installed
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        print(f'the command line needs {missing}: pip install "lowlevel-reduce[cli]"', file=sys.stderr)
        return 2
    try:
        app(arguments, prog_name="python -m lowlevel_reduce")
    except SystemExit as end:  # how typer ends
        return end.code if isinstance(end.code, int) else 0
    return 0
