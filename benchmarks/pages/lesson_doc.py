"""Fill the tables and figures of docs/lesson.md and docs/sources.md from the records, or check that they agree.

python -m benchmarks.pages.lesson_doc [--check]

It knows what `benchmarks.pages.ladder_doc` knows, and tables of its own, each up to ``<!-- end -->``:

    <!-- roofs -->        what bounds the GPUs
    <!-- standings -->    where the rungs stand under an H200's roofs
    <!-- copies -->       the newest ``*-copies.jsonl`` of `benchmarks.profile.copies`
    <!-- torch -->        the cells of a source's table beside PyTorch, from the newest complete suites
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measure import records
from benchmarks.measure.figures import AFTER, BACK_TO_BACK, FileError, us_at
from benchmarks.measure.runs import load_cards
from benchmarks.pages import ladder_doc
from benchmarks.pages.filling import ROOT, fill
from benchmarks.pages.roofline import GPUS, newest, standings
from benchmarks.profile.copies import NAMES
from benchmarks.profile.ladder_counters import COUNTERS

__all__ = ["PAGES", "filled", "main"]

PAGES = (ROOT / "docs" / "lesson.md", ROOT / "docs" / "sources.md")

_TABLE = re.compile(r"(<!-- (roofs|standings|copies|torch) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

_BESIDE_TORCH = (
    ("sum, 256 x 256", "2.12", "flat", "2^16"),
    ("sum, 256 x 256, axis 0", "1.87", "axes", "sum 2^8 x 2^8, axis 0"),
    ("sum, 256 x 256, axis 1", "–", "axes", "sum 2^8 x 2^8, axis 1"),
    ("sum, 1024 x 1024", "–", "flat", "2^20"),
    ("max, 1024 x 1024", "0.16", "flat", "max 2^20"),
)
"""What source D's table has, and its neighbours: with the source's figure, the suite and its cell."""


def filled(text: str, results: Path, counters: Path = COUNTERS) -> str:
    """Return the page with its tables and figures from the files; raises FileError as `ladder_doc.filled` does."""

    def table(match: re.Match[str]) -> str:
        made: dict[str, Callable[[], str]] = {
            "roofs": _roofs,
            "standings": lambda: _standings(results, counters),
            "copies": lambda: _copies(results),
            "torch": lambda: _torch(results),
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


def _torch(results: Path) -> str:
    """Return the cells of the source's table, of the newest complete runs of each kind of GPU."""
    cards = load_cards(results)
    heads = [f"{card}: one tree, µs | PyTorch, µs | ×" for card in cards]
    lines = [f"| what | the source, × PyTorch | {' | '.join(heads)} |", "| --- | ---: |" + " ---: |" * 3 * len(cards)]
    used = set()
    for what, theirs, suite_name, cell in _BESIDE_TORCH:
        cells = []
        for suites in cards.values():
            suite = next((each for each in suites.get(suite_name, []) if not each.partial), None)
            if suite is None or not any(row["cell"] == cell for row in suite.rows):
                cells.append("– | – | –")
                continue
            mode = AFTER if AFTER in suite.modes else BACK_TO_BACK
            used.add(f"`{suite.file}` ({'after the kernel that wrote the input' if mode == AFTER else 'back to back'})")
            found = (suite.of(mode) if len(suite.modes) > 1 else suite).rows
            ours, torch = us_at(found, cell), us_at(found, cell, "torch")
            cells.append(f"{ours:.2f} | {torch:.2f} | {torch / ours:.2f}")
        lines.append(f"| {what} | {theirs} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"From {' and '.join(sorted(used))}; a dash is not measured."])


def main(argv: Sequence[str] | None = None) -> int:
    """Fill or check; return 1 if a page differs from the files, 2 if one is malformed."""
    return max(fill("lesson_doc", __doc__, page, filled, argv) for page in PAGES)


if __name__ == "__main__":
    sys.exit(main())
