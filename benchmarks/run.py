"""Run suites next to every competitor, print their rows, and save each cell as soon as it is measured.

python -m benchmarks.run [--suite flat|types|axes|stats|operators|segments|shapes|small|host|cold|parts ...]
                         [--cell PATTERN ...] [--seed N] [--cells 300] [--mode rotated|hot|events]
                         [--budget-seconds S] [--continue] --json FILE

A run may be measured in parts: each with ``--continue`` measures what the file lacks. The seed is that of the suite of
random shapes; without one, a new one is drawn. The file says which.
"""

from __future__ import annotations

import argparse
import functools
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from benchmarks import suites
from benchmarks.measure import records, runs, situations
from benchmarks.measure.figures import BACK_TO_BACK, OURS, SITUATIONS, SUITES, FileError, Row, geometric_mean, median_us
from benchmarks.measure.harness import Harness, Mode
from benchmarks.measure.session import Session, plan_lines
from benchmarks.measure.timing import conditions, opened
from benchmarks.suites import shapes
from benchmarks.suites.cell import Cell

__all__ = ["line_of", "main", "summary_of"]

ROUNDS, QUICK_ROUNDS = 5, 3

OF_A_PART = ("measured", "card", "nvidia_smi", "load_average")
"""What a file keeps of the conditions of each later part: what may differ from those of the first."""

NAMED = 12
"""How many cells a summary names."""


def line_of(row: Row) -> str:
    """Return a row as one line: our time, bandwidth, the best peer and the ratio, then the other peers."""
    ours = row["entries"].get(OURS, {})
    mode = row.get("mode")
    start = f"{row['cell'][:44]:44} {mode if mode in SITUATIONS and mode != BACK_TO_BACK else '':8} "
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
    return f"{text} | {', '.join(others)}"[:210] if others else text


def summary_of(rows: Sequence[Row]) -> str:
    """Return a summary of rows in one line: the mean ratio and the cells in which a peer is faster, the worst first."""
    ratios = {row["cell"]: row["ratio"] for row in rows if row["ratio"] is not None}
    failed = [row["cell"] for row in rows if median_us(row, OURS) is None]
    behind = sorted((cell for cell, ratio in ratios.items() if ratio < 1), key=lambda cell: ratios[cell])
    named = [f"{cell} ({ratios[cell]:.3f})" for cell in behind[:NAMED]] + ["…"] * (len(behind) > NAMED)
    text = f"geometric mean x{geometric_mean(ratios.values()):.3f} of the best peer" if ratios else "no peer"
    text += f"; behind in {len(behind)} of {len(ratios)}: {', '.join(named)}" if behind else "; behind in none"
    return text + (f"; FAILED: {', '.join(failed)}" if failed else "")


def table(suites_rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return a line for each suite and situation: how many rows, their mean ratio, how many are behind, the worst."""
    lines = [f"{'suite':9} {'situation':20} {'rows':>5} {'mean':>6} {'behind':>6} {'failed':>6}  worst"]
    for suite, rows in suites_rows.items():
        for mode in dict.fromkeys(row.get("mode") for row in rows):
            found = [row for row in rows if row.get("mode") == mode]
            rated = [row for row in found if row["ratio"] is not None]
            failed = sum(median_us(row, OURS) is None for row in found)
            line = f"{suite:9} {SITUATIONS.get(str(mode), str(mode))[:20]:20} {len(found):5}"
            if rated:
                worst = min(rated, key=lambda row: row["ratio"])
                behind = sum(row["ratio"] < 1 for row in rated)
                mean = geometric_mean(row["ratio"] for row in rated)
                line += f" {mean:6.2f} {behind:6} {failed:6}  {worst['ratio']:.3f} {worst['cell'][:60]}"
            lines.append(line if rated else f"{line} {'':6} {'':6} {failed:6}")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if this library failed in a cell, or a cell raised an error."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    done = None
    if arguments.json is not None and getattr(arguments, "continue"):
        try:
            done = records.read(arguments.json, runs.KIND)
        except FileError as error:
            parser.error(str(error))
    facts = _facts(arguments) | ({} if done is None else done.facts)
    cells = {name: _cells(name, facts) for name in suites.SUITES if name in (arguments.suite or suites.SUITES)}
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
        now = conditions(stream.context.device, arguments.commit)
        if done is None:
            records.begin(arguments.json, runs.KIND, now, **facts)
        else:
            _check_same(parser, done, now)
            part = {key: now[key] for key in OF_A_PART}
            records.add(arguments.json, {"conditions": {"parts": [*done.conditions.get("parts", []), part]}})
        quick = bool(facts["quick"])
        rounds = (QUICK_ROUNDS, situations.QUICK_ROUNDS) if quick else (ROUNDS, situations.ROUNDS)
        setting = suites.Setting(Harness(stream, *rounds), quick, arguments.mode, arguments.situations, facts["seed"])
        session = Session(
            cells, arguments.json, setting, wanted=wanted, done={} if done is None else runs.suites_in(done),
            budget_seconds=arguments.budget_seconds, show=_show,
        )  # fmt: skip
        session.run(line_of)
        setting.harness.release()
    rows = {suite: session.rows(suite) for suite in cells}
    for suite, found in rows.items():
        plain = [row for row in found if row.get("mode") not in SITUATIONS or row["mode"] == BACK_TO_BACK]
        left_out = session.left_out(suite)
        _show(f"== {suite}: {summary_of(plain)}" + (f"; {len(left_out)} left out" if left_out else ""))
    for name, why in setting.missing.items():
        _show(f"   missing: {name}: {why}")
    _show("\n".join([*table(rows), f"seed {facts['seed']}, {now['device']}, sources {now['sources']}"]))
    return int(session.failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", action="append", choices=SUITES, help="may be given several times; by default all")
    parser.add_argument(
        "--cell", action="append", metavar="PATTERN", type=_pattern,
        help="only the cells in whose name this regular expression is found; may be given several times",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="of random shapes; by default a new one")
    parser.add_argument("--cells", type=int, default=shapes.CELLS, help="how many random shapes")
    parser.add_argument(
        "--mode", choices=get_args(Mode), default="rotated",
        help="of whole arrays to segments: over inputs that were not in the L2 (rotated), that were (hot), or between "
        "events without a graph; the pages quote the first alone",
    )  # fmt: skip
    parser.add_argument(
        "--no-situations", dest="situations", action="store_false", help="back to back only, not beside other kernels"
    )
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--continue", action="store_true", help="measure what the file lacks of the run it holds")
    parser.add_argument("--quick", action="store_true", help="a few cells of each suite, and fewer rounds")
    parser.add_argument(
        "--budget-seconds", type=float, metavar="S",
        help="measure what goals name first, and begin nothing that would not end in this time",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print what would be measured and about how long it takes")
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    return parser


def _facts(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what a file says of all its records."""
    seed = secrets.randbelow(1_000_000) if arguments.seed is None else arguments.seed
    return {"quick": arguments.quick, "seed": seed, "cells": arguments.cells}


def _cells(name: str, facts: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of a suite."""
    if name == "shapes":
        return shapes.shapes(quick=facts["quick"], seed=facts["seed"], cells=facts["cells"])
    return suites.SUITES[name](quick=facts["quick"])


def _check_same(parser: argparse.ArgumentParser, done: records.Document, now: Mapping[str, Any]) -> None:
    """End the command if this is another card than that of the file, or other sources: no figures to be compared."""
    for what in ("device", "sources"):
        if done.conditions.get(what) != now[what]:
            parser.error(f"{done.file} is of the {what} {done.conditions.get(what)}, and this is {now[what]}")


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
