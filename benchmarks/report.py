"""Write docs/performance.md and its plots from the JSON files of `benchmarks.run` in benchmarks/results.

python -m benchmarks.report [--results DIR] [--docs DIR] [--partial]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import OURS, SUITES, FileError, Row, checked_document, geometric_mean, median_us
from benchmarks.goals import GOALS

__all__ = ["Suite", "load", "main", "page"]

ROOT = Path(__file__).resolve().parent.parent
RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"
PATTERN = "*-suites*.json"

TITLES = {
    "flat": "Whole arrays of float32",
    "types": "Types",
    "axes": "Axes",
    "stats": "Other operators",
    "segments": "Segments",
    "small": "Small arrays",
    "host": "The host's time of a call",
    "cold": "Cold starts",
}


@dataclass(frozen=True)
class Suite:
    """A suite's newest run: its content, the file that holds it, and what it was measured under."""

    content: Mapping[str, Any]
    file: str
    conditions: Mapping[str, Any]

    @property
    def rows(self) -> list[Row]:
        """Its rows."""
        return list(self.content["rows"])


def load(directory: Path) -> dict[str, Suite]:
    """Return the newest thorough run of every suite that the files of a directory hold.

    Raises
    ------
    FileError
        If there is no file, or one is not what `benchmarks.run` writes.
    """
    files = sorted(directory.glob(PATTERN))
    if not files:
        raise FileError(f"{directory} holds no {PATTERN}: run benchmarks.run")
    found: dict[str, Suite] = {}
    for file in files:
        try:
            document = checked_document(json.loads(file.read_text(encoding="utf-8")), file.name)
        except json.JSONDecodeError as error:
            raise FileError(f"{file.name} is no JSON: {error}") from error
        if document.get("quick"):
            continue
        for name, content in document["suites"].items():
            suite = Suite(content, file.name, document["conditions"])
            if name not in found or _when(suite) >= _when(found[name]):
                found[name] = suite
    return found


def _need_all(suites: Mapping[str, Suite]) -> None:
    lacking = [name for name in SUITES if name not in suites]
    if lacking:
        raise FileError(f"no file of results has the suite {', '.join(lacking)}")


def _when(suite: Suite) -> str:
    return str(suite.conditions.get("measured") or "")


def page(suites: Mapping[str, Suite]) -> str:
    """Return docs/performance.md."""
    parts = [
        "# Performance",
        "",
        "Written by `python -m benchmarks.report` from the files in `benchmarks/results`; not to be edited. All "
        "competitors of a cell ran in turn in one process, each result was checked before it was timed, and a figure "
        "is the median of the rounds. Device time is that of CUDA-graph replays, back to back, over inputs that were "
        "not in the L2 unless they are below 8 MiB; a ratio above 1 says that this library is faster than the fastest "
        "of the others.",
        "",
        "## Goals",
        "",
        *_goals(suites),
    ]
    for name in SUITES:
        parts += ["", f"## {TITLES[name]}", ""]
        parts += _suite(name, suites[name]) if name in suites else ["Not measured yet."]
    return "\n".join(parts) + "\n"


def _goals(suites: Mapping[str, Suite]) -> list[str]:
    lines = ["| suite | goal | | reached | margin |", "| --- | --- | --- | --- | --- |"]
    for goal in GOALS:
        if goal.suite not in suites:
            lines.append(f"| {goal.suite} | {goal.text} | not measured yet | | |")
            continue
        suite = suites[goal.suite]
        try:
            outcome = goal.judge(suite.rows)
        except FileError as error:
            raise FileError(f"{suite.file}, suite {goal.suite!r}: {error}") from error
        word = "met" if outcome.met else "**not met**"
        lines.append(f"| {goal.suite} | {goal.text} | {word} | {outcome.reached} | {outcome.margin} |")
    return lines


def _suite(name: str, suite: Suite) -> list[str]:
    rows = suite.rows
    ratios = [row["ratio"] for row in rows if row.get("ratio") is not None]
    lines = [conditions_line(suite), ""]
    if ratios:
        behind = sum(ratio < 1 for ratio in ratios)
        mean = geometric_mean(ratios)
        lines += [f"Geometric mean {mean:.2f} times the best peer; behind in {behind} of {len(ratios)} cells.", ""]
    if name in PLOTTED:
        lines += [f"![{TITLES[name]}](plots/performance-{name}.svg)", ""]
    peers = list(dict.fromkeys(key for row in rows for key in row["entries"] if key != OURS))
    lines += [
        f"| | {OURS}, µs | GB/s | best peer | ratio |" + "".join(f" {peer} |" for peer in peers),
        "| --- | --- | --- | --- | --- |" + " --- |" * len(peers),
        *(_line(row, peers) for row in rows),
    ]
    failed = [
        (row["cell"], key, entry["error"]) for row in rows for key, entry in row["entries"].items() if "error" in entry
    ]
    if failed:
        lines += ["", "Failed, and so not timed:", ""]
        lines += [f"- {cell}, {key}: {_cell(error)}" for cell, key, error in failed]
    return lines


def conditions_line(suite: Suite) -> str:
    """Return what a suite was measured under, in a sentence."""
    facts = suite.conditions
    packages = ", ".join(f"{name} {version}" for name, version in facts.get("packages", {}).items())
    text = f"{facts.get('device')}, driver and clocks {facts.get('nvidia_smi')}, CUDA {facts.get('cuda_driver')}, "
    text += f"Python {facts.get('python')}, {packages}"
    text += f", CUB {facts['cub']}" if facts.get("cub") else ""
    text += f"; commit {facts.get('commit')}, {facts.get('measured')}, `{suite.file}`."
    if suite.content["missing"]:
        text += " Missing: " + "; ".join(f"{key} ({why})" for key, why in suite.content["missing"].items()) + "."
    return text


def _line(row: Row, peers: Sequence[str]) -> str:
    ours = median_us(row, OURS)
    cells = [
        row["cell"],
        _number(ours) if ours is not None else "failed",
        "" if row.get("gb_per_s") is None else f"{row['gb_per_s']:.0f}",
        row.get("best_peer") or "",
        "" if row.get("ratio") is None else (f"{row['ratio']:.2f}" if row["ratio"] >= 1 else f"**{row['ratio']:.3f}**"),
    ]
    for peer in peers:
        entry, value = row["entries"].get(peer), median_us(row, peer)
        cells.append("" if entry is None else "failed" if value is None else _number(value))
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _number(us: float) -> str:
    return f"{us:.2f}" if us < 1000 else f"{us:,.0f}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PLOTTED = ("flat", "types", "axes", "stats")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and the plots; 2, with a line on stderr, if a file is missing or malformed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument(
        "--partial", action="store_true", help="say of suites without a file that they are not measured yet"
    )
    arguments = parser.parse_args(argv)
    try:
        suites = load(arguments.results)
        if not arguments.partial:
            _need_all(suites)
        text = page(suites)
    except FileError as error:
        print(f"benchmarks.report: {error}", file=sys.stderr)
        return 2
    from benchmarks.plots import plot  # noqa: PLC0415  matplotlib is slow to import, and an extra

    folder = arguments.docs / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    for name in PLOTTED:
        if name in suites:
            peak = suites[name].conditions.get("peak_bandwidth_gb_per_s")
            plot(name, suites[name].rows, peak, folder / f"performance-{name}.svg")
    (arguments.docs / "performance.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
