"""Fill the tables and figures of docs/lesson.md and docs/sources.md from the records, or check that they agree.

python -m benchmarks.pages.lesson_doc [--check]

It knows what `benchmarks.pages.ladder_doc` knows, and tables of its own, each up to ``<!-- end -->``:

    <!-- roofs -->        what bounds the GPUs
    <!-- standings -->    where the rungs stand under an H200's roofs
    <!-- copies -->       the newest ``*-copies.jsonl`` of `benchmarks.profile.copies`
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measure import records
from benchmarks.measure.figures import FileError
from benchmarks.pages import ladder_doc
from benchmarks.pages.filling import ROOT, fill
from benchmarks.pages.roofline import GPUS, newest, standings
from benchmarks.profile.copies import NAMES
from benchmarks.profile.ladder_counters import COUNTERS

__all__ = ["PAGES", "filled", "main"]

PAGES = (ROOT / "docs" / "lesson.md", ROOT / "docs" / "sources.md")

_TABLE = re.compile(r"(<!-- (roofs|standings|copies) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def filled(text: str, results: Path, counters: Path = COUNTERS) -> str:
    """Return the page with its tables and figures from the files; raises FileError as `ladder_doc.filled` does."""

    def table(match: re.Match[str]) -> str:
        made: dict[str, Callable[[], str]] = {
            "roofs": _roofs,
            "standings": lambda: _standings(results, counters),
            "copies": lambda: _copies(results),
        }
        return f"{match[1]}\n{made[match[2]]()}\n\n{match[4]}"

    return ladder_doc.filled(_TABLE.sub(table, text), results, counters)


def _roofs() -> str:
    lines = [
        "| GPU | memory, GB/s | additions of float32 a second | ridge, additions a byte |",
        "| --- | ---: | ---: | ---: |",
    ]
    for gpu in GPUS:
        lines.append(f"| {gpu.name} | {gpu.gb_per_s:,.0f} | {gpu.gops_per_s / 1e3:.1f}e12 | {gpu.ridge:.1f} |")
    return "\n".join(lines)


def _standings(results: Path, counters: Path) -> str:
    by_device = newest(results)
    device = next((name for name in by_device if "H200" in name), None)
    if device is None:
        raise FileError(f"there is no run a-1e8 of the ladder on an H200 in {results}")
    file, timed = by_device[device]
    gpu = GPUS[-1]
    lines = [
        "| rung | additions a byte | instructions of threads a byte | % of the peak they allow | reached |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for each in standings(timed, counters):
        if each.gb_per_s is None:
            continue
        allowed = 100 * min(1.0, gpu.ridge / each.issued)
        reached = 100 * each.gb_per_s / gpu.gb_per_s
        cells = f"{each.intensity:.3f} | {each.issued:.1f} | {allowed:.0f} | {reached:.1f}"
        lines.append(f"| [`{each.rung}`](rungs.md#{each.rung}) | {cells} |")
    return "\n".join([*lines, "", f"Counted on a simulated H200, reached on {device}: `{file}`."])


def _copies(results: Path) -> str:
    files = sorted(results.glob("*-copies.jsonl"))
    if not files:
        return ladder_doc.NOT_MEASURED
    document = records.read(files[-1], "copies")
    us = {(row["n"], row["name"]): row["us"] for row in document.records}
    lines = ["| float32 | " + " | ".join(f"{name}, µs" for name in NAMES) + " |", "| ---: |" + " ---: |" * len(NAMES)]
    for n in dict.fromkeys(row["n"] for row in document.records):
        lines.append(f"| {n:,} | " + " | ".join(f"{us[n, name]:,.1f}" for name in NAMES) + " |")
    return "\n".join([*lines, "", f"{document.conditions['device']}, times on the host: `{files[-1].name}`."])


def main(argv: Sequence[str] | None = None) -> int:
    """Fill or check; return 1 if a page differs from the files, 2 if one is malformed."""
    return max(fill("lesson_doc", __doc__, page, filled, argv) for page in PAGES)


if __name__ == "__main__":
    sys.exit(main())
