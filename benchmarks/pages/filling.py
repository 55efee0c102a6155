"""Shared by the commands that fill a page from measured files, or check that it agrees with them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measure.figures import FileError

__all__ = ["RESULTS", "ROOT", "fill", "put"]

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def fill(
    module: str, about: str | None, page: Path, make: Callable[[str, Path], str], argv: Sequence[str] | None
) -> int:
    """Run the command `module` and return its exit code.

    Parameters
    ----------
    module, about : str
        The command's name under ``benchmarks``, and what ``--help`` says.
    page : Path
        The page unless ``--page`` names another.
    make : callable
        Takes the page's text and the directory of the measured files, and returns the text that the page should have.
    argv : sequence of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        1 if ``--check`` finds that the page differs from the files, 2 if a file is malformed, else 0.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if something would be changed")
    parser.add_argument("--page", type=Path, default=page)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args(argv)
    text = arguments.page.read_text(encoding="utf-8")
    try:
        wanted = make(text, arguments.results)
    except FileError as error:
        print(f"benchmarks.pages.{module}: {error}", file=sys.stderr)
        return 2
    return put(module, arguments.page, wanted, check=arguments.check)


def put(module: str, page: Path, wanted: str, *, check: bool) -> int:
    """Write a page if its text is not as wanted; with `check`, report that instead and return 1."""
    if page.is_file() and page.read_text(encoding="utf-8") == wanted:
        return 0
    if check:
        print(f"{page} differs from what the results say: run python -m benchmarks.pages.{module}", file=sys.stderr)
        return 1
    page.write_text(wanted, encoding="utf-8")
    return 0
