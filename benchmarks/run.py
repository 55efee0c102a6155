"""Run suites next to every competitor, print their rows, and save each cell as soon as it is measured.

python -m benchmarks.run [--suite flat|types|axes|stats|operators|segments|small|host|cold ...] [--cell PATTERN ...]
                         [--mode rotated|hot|events] [--budget-seconds S] --json FILE
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from benchmarks import records, runs, suites
from benchmarks.figures import OURS, SUITES, Row, geometric_mean, median_us
from benchmarks.harness import Harness, Mode
from benchmarks.session import Session, plan_lines
from benchmarks.suites.cell import Cell
from benchmarks.timing import conditions, opened

__all__ = ["line_of", "main", "summary_of"]

ROUNDS, QUICK_ROUNDS = 5, 3


def line_of(row: Row) -> str:
    """Return a row as one line: our time, bandwidth, the best peer and the ratio, then the other peers."""
    ours = row["entries"].get(OURS, {})
    start = f"{row['cell'][:34]:34} "
    if "us" not in ours:
        return f"{start}FAILED {ours.get('error', '')[:110]}"
    text = f"{start}{ours['us']:10.2f} us"
    if row["gb_per_s"] is not None:
        text += f" {row['gb_per_s']:7.1f} GB/s"
    if row["best_peer"] is not None:
        text += f" x{row['ratio']:.3f} of {row['best_peer']}"
    others = [
        f"{name} {median_us(row, name):.2f}" if "us" in entry else f"{name} failed"
        for name, entry in row["entries"].items()
        if name not in (OURS, row["best_peer"])
    ]
    return f"{text} | {', '.join(others)}"[:190] if others else text


def summary_of(rows: Sequence[Row]) -> str:
    """Return a suite's summary in one line: the mean ratio and every cell in which a peer is faster."""
    ratios = {row["cell"]: row["ratio"] for row in rows if row["ratio"] is not None}
    failed = [row["cell"] for row in rows if median_us(row, OURS) is None]
    behind = [f"{cell} ({ratio:.3f})" for cell, ratio in ratios.items() if ratio < 1]
    text = f"geometric mean x{geometric_mean(ratios.values()):.3f} of the best peer" if ratios else "no peer"
    text += f"; behind in {len(behind)} of {len(ratios)}: {', '.join(behind)}" if behind else "; behind in none"
    return text + (f"; FAILED: {', '.join(failed)}" if failed else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if this library failed in a cell, or a cell raised an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", action="append", choices=SUITES, help="may be given several times; by default all")
    parser.add_argument(
        "--cell", action="append", metavar="PATTERN", type=_pattern,
        help="only the cells in whose name this regular expression is found; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--mode", choices=get_args(Mode), default="rotated",
        help="of whole arrays to segments: over inputs that were not in the L2 (rotated), that were (hot), or between "
        "events without a graph; the pages quote the first alone",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--quick", action="store_true", help="a few cells of each suite, and fewer rounds")
    parser.add_argument(
        "--budget-seconds", type=float, metavar="S",
        help="measure what goals name first, and begin nothing that would not end in this time",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print what would be measured and about how long it takes")
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    arguments = parser.parse_args(argv)
    cells = {
        name: runner(quick=arguments.quick)
        for name, runner in suites.SUITES.items()
        if name in (arguments.suite or suites.SUITES)
    }
    wanted = functools.partial(_wanted, patterns=arguments.cell)
    # The session gets whole suites and measures the wanted cells, so that the file can list those that were left out.
    cells = {name: some for name, some in cells.items() if any(map(wanted, some))}
    if not cells:
        parser.error("no cell has such a name")
    if arguments.list:
        print("\n".join(plan_lines({name: list(filter(wanted, some)) for name, some in cells.items()})))
        return 0
    if arguments.json is None or not arguments.json.parent.is_dir():
        parser.error("--json FILE is needed, in a directory that is there")
    with opened() as stream:
        facts = conditions(stream.context.device, arguments.commit)
        records.begin(arguments.json, runs.KIND, facts, quick=arguments.quick)
        harness = Harness(stream, QUICK_ROUNDS if arguments.quick else ROUNDS)
        setting = suites.Setting(harness, arguments.quick, arguments.mode)
        session = Session(
            cells, arguments.json, setting,
            wanted=wanted, budget_seconds=arguments.budget_seconds, show=_show,
        )  # fmt: skip
        session.run(line_of)
        harness.release()
    for suite in cells:
        left_out = session.left_out(suite)
        _show(f"== {suite}: {summary_of(session.rows(suite))}" + (f"; {len(left_out)} left out" if left_out else ""))
    for name, why in setting.missing.items():
        _show(f"   missing: {name}: {why}")
    return int(session.failed)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def _wanted(cell: Cell, patterns: Sequence[re.Pattern[str]] | None) -> bool:
    """Return whether a pattern is found in a cell's name, or no pattern was given."""
    return not patterns or any(pattern.search(cell.name) for pattern in patterns)


def _show(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
