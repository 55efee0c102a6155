"""Write docs/performance.md and its plots from the measured suites in benchmarks/results.

python -m benchmarks.pages.report [--results DIR] [--docs DIR] [--complete | --check]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure.figures import AFTER, BACK_TO_BACK, SUITES, FileError
from benchmarks.measure.runs import Suite, load_cards, load_kernels
from benchmarks.pages.filling import RESULTS, ROOT, put
from benchmarks.pages.goals import GOALS, Goal, Outcome
from benchmarks.pages.source_table import beside_torch
from benchmarks.pages.tables import cell_text, lines_of, told

__all__ = ["main", "page", "pictures"]

DOCS = ROOT / "docs"

TITLES = {
    "flat": "Whole arrays of float32",
    "types": "Types",
    "axes": "Along one axis",
    "stats": "Other operators",
    "operators": "Every operator next to the sum",
    "segments": "Segments",
    "shapes": "Random shapes, and those of models",
    "small": "Small arrays",
    "host": "Host time of a call",
    "cold": "Cold starts",
    "parts": "Arrays in parts",
}

ABOUT = {
    "flat": "Sums. An array that begins at element 1 is not aligned to 16 bytes.",
    "types": "Sums of arrays of each element type.",
    "axes": "Sums of float32 along one axis. In a matrix, axis 1 adds up each row and axis 0 each column.",
    "stats": "Operators other than the sum, of float32 unless the row names another type; the sums of as many elements "
    "are there to compare them with.",
    "operators": "Every operator of one array over 2^28 elements of several types, without competitors.",
    "segments": "Sums of float32 segments whose borders are given (CSR), and of one array to compare them with.",
    "shapes": "Shapes, axes, strides, types and operators drawn from a seed, by the distribution that "
    "[benchmarks/measure/shapes.py](../benchmarks/measure/shapes.py) states, and what models reduce.",
    "small": "Sums of float32 that stay in the L2. *Device* is device time, back to back; *call to value* is the time "
    "from a call until its value is on the host.",
    "host": "The time that one call keeps the host busy. Launches and *one-shot* calls are of 4,096 float32; `bare "
    "cuLaunchKernelEx` is the driver's call alone, all arguments prepared: a limit, not a competitor. Every form of a "
    "call is of 512 x 1024 float32, beside what PyTorch, CuPy or JAX has for the same, with the number of driver calls "
    "behind it. *New shapes* are 600 calls, each of another length, in a process with an empty cache of kernels.",
    "cold": "Fresh processes, with an empty cache of compiled kernels and with a full one. *Plan compiled* is the time "
    "to make a plan whose kernel is compiled; *plan loaded* takes the kernel from the cache.",
    "parts": "Sums of float32 on one GPU or two, in one process or two, from the call to the value on the host.",
}
"""What the page says of each suite under its title."""

ABOUT_A_SOURCE = (
    "By how many times the Genesis framework's sums and maxima were faster than PyTorch's, as its authors measured "
    "them on an A100 ([source D](sources.md#d-genesis), its third version), and the same shapes of float32 here."
)

PLOTTED = ("flat", "types", "axes", "stats")
FEWEST_POINTS = 3
"""Suites with fewer lengths or cells get no picture."""

NOT_MEASURED = "not measured"

Suites = Mapping[str, Sequence[Suite]]
Cards = Mapping[str, Suites]


def page(
    cards: Cards, counted: tuple[str, list[dict[str, Any]]] | None = None, beside_a_source: Sequence[str] = ()
) -> str:
    """Return docs/performance.md, of the runs of each suite on each kind of GPU, and of the kernels that were counted.

    The latter as `runs.load_kernels` returns them; the lines beside a source are those of `source_table`.
    """
    parts = [
        "# Performance",
        "",
        "`python -m benchmarks.pages.report` writes this page from the files in `benchmarks/results`. Do not edit it: "
        "a test fails if it differs from what the files say.",
        "",
        "## Goals",
        "",
        "What is not met is bold. *So far* means that the run did not cover every cell. *The spread* is the larger of "
        "those of the figures that are compared, each the range of the middle half of the rounds, and in "
        "the files of an H200 of up to 2026-11-25 of all rounds. The margin is by how much a goal is exceeded or, "
        "where it is negative, missed; *within a spread* means that the samples differ by more than that. A goal is "
        "not met if this library failed in a cell that the goal needs. Figures of two kinds of GPU are never compared "
        "with each other.",
        "",
        *_goals(cards),
        "",
        "## How it is measured",
        "",
        "- *After its producer* and *alone* are times added to another kernel: a CUDA graph of many times [other "
        "kernel; reduction], less a graph of as many times [other kernel], by how many there are. After its producer, "
        "the other kernel is PyTorch's elementwise one and has just written the input, of which the L2 still holds a "
        "part. Alone, it has written 100 MB elsewhere: input and code come from memory. One cell of each suite is also "
        "followed by a kernel that reads the result.",
        "- *Back to back*, launches of the same reduction follow each other in a graph: a throughput. Inputs of 8 MiB "
        "and more rotate through a ring of buffers, so that they are not in the L2; smaller ones stay in it.",
        "- In each row, this library and its competitors take turns in one process. Each result is checked before it "
        "is timed, and a figure is the median of the rounds.",
        "- *One tree* is this library. *GB/s* is its bandwidth, with each element, the borders of segments and results "
        "counted once. *Best peer* is the fastest competitor of the row, and *ratio* is the competitor's time divided "
        "by this library's: above 1, this library is faster; below 1, the ratio is bold. *To the reproducible* is the "
        "ratio to the fastest of those that promise the same bits at least from run to run. A competitor's cell is "
        "empty where it was not tried.",
        "- Since 2026-11-23 the turn of each contender begins with a launch of its own, without a graph. Files before "
        "`2026-11-23-h200-suites-5.jsonl` used a smaller ring, of which the L2 still held a part, mostly for inputs of "
        "50 to 300 MB. [benchmarks/NOTES.md](../benchmarks/NOTES.md) says why both matter.",
        "",
        "## Runs",
        "",
        *_runs(cards),
    ]
    for name in SUITES:
        parts += ["", f"## {TITLES[name]}", "", ABOUT[name], ""]
        found = [suite for suites in cards.values() for suite in suites.get(name, [])]
        parts += [] if found else ["Not measured yet."]
        for number, suite in enumerate(found):
            files = {mode: file for file, (_, mode, shown) in pictures(cards).items() if shown is suite}
            parts += ([""] if number else []) + lines_of(suite, files)
    if beside_a_source:
        parts += ["", "## A source's table, beside PyTorch", "", ABOUT_A_SOURCE, "", *beside_a_source]
    parts += ["", "## Kernels", "", *(["Not counted yet."] if counted is None else _kernels(*counted))]
    return "\n".join(parts) + "\n"


def _kernels(file: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how many kernels random shapes meet, a line for each operator and a column for each type."""
    found = {(row["operator"], row["dtype"]): row["kernels"] for row in rows}
    operators, types = (list(dict.fromkeys(names)) for names in zip(*found, strict=True))
    return [
        f"How many kernels {rows[0]['shapes']:,} random shapes of seed {rows[0]['seed']} meet on an H200, for each "
        f"operator and type: each is compiled when it is first met. `{file}`, without a GPU.",
        "",
        "| | " + " | ".join(types) + " |",
        "| --- |" + " --- |" * len(types),
        *(f"| {op} | " + " | ".join(str(found.get((op, dtype), "")) for dtype in types) + " |" for op in operators),
    ]


def _runs(cards: Cards) -> list[str]:
    by_file: dict[str, tuple[Suite, list[str]]] = {}
    for name in SUITES:
        for suite in (each for suites in cards.values() for each in suites.get(name, [])):
            by_file.setdefault(suite.file, (suite, []))[1].append(name + (" (in part)" if suite.partial else ""))
    lines = ["| file | suites | seed | measured | commit | device | driver, clocks | CUDA | Python, packages |"]
    lines += ["| --- " * 9 + "|"]
    for file, (suite, names) in sorted(by_file.items(), key=lambda item: item[1][0].measured, reverse=True):
        facts = suite.conditions
        packages = [f"{name} {version}" for name, version in facts.get("packages", {}).items()]
        packages += [f"CUB {facts['cub']}"] if facts.get("cub") else []
        cells = [
            f"`{file}`", ", ".join(names), "" if suite.seed is None else str(suite.seed), suite.measured,
            _commit(facts), _device(facts), told(facts.get("nvidia_smi")), told(facts.get("cuda_driver")),
            ", ".join([told(facts.get("python")), *packages]),
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(cell_text, cells)) + " |")
    return lines


def _device(facts: Mapping[str, Any]) -> str:
    """Return a run's device, and if it was measured in parts, in how many and on how many cards."""
    parts = facts.get("parts", [])
    cards = len({part["card"] for part in [facts, *parts]}) if parts else 1
    more = f", {len(parts) + 1} parts" + (f" on {cards} cards" if cards > 1 else "") if parts else ""
    return told(facts.get("device")) + more


def _commit(facts: Mapping[str, object]) -> str:
    sources = f", sources {facts['sources']}" if facts.get("sources") else ""
    return told(facts.get("commit")) + sources


def _goals(cards: Cards) -> list[str]:
    """Return the table of goals, with columns for each kind of GPU, and which files it is of."""
    judged = {card: [judge(goal, suites.get(goal.suite, [])) for goal in GOALS] for card, suites in cards.items()}
    usual = {card: _most(file for *_, file in found if file) for card, found in judged.items()}
    lines = ["| suite | goal |" + "".join(f" {card} | reached | margin |" for card in cards)]
    lines += ["| --- | --- |" + " --- | --- | --- |" * len(cards)]
    for goal, *each in zip(GOALS, *judged.values(), strict=True):
        cells = [goal.suite, f"**{goal.text}**" if any(verdict == "**not met**" for verdict, *_ in each) else goal.text]
        for card, (verdict, reached, margin, file) in zip(cards, each, strict=True):
            other = f" ({file})" if file and file != usual[card] else ""
            cells += [verdict, reached + other, margin]
        lines.append("| " + " | ".join(map(cell_text, cells)) + " |")
    where = "; ".join(f"{card} of {file}" for card, file in usual.items() if file)
    return [*lines, "", f"Where no other file is named, {where}."] if where else lines


def _most(files: Iterable[str]) -> str:
    """Return the file that is named most often, of none nothing."""
    return next((file for file, _ in Counter(files).most_common(1)), "")


def judge(goal: Goal, candidates: Sequence[Suite]) -> tuple[str, str, str, str]:
    """Return verdict, what was reached, margin, and file, of the newest run that has the cells that the goal needs.

    If a goal is about every cell, a partial run that refutes it takes precedence over newer ones that do not.
    """
    judged: list[tuple[Suite, Outcome]] = []
    reason = "" if candidates else "no run of this suite"
    for suite in candidates:
        try:
            judged.append((suite, goal.outcome(suite.rows)))
        except FileError as error:
            reason = reason or str(error)
    if not judged:
        return NOT_MEASURED, reason, "", ""
    refuted = [each for each in judged if goal.scope == "every" and not each[1].met]
    suite, outcome = (refuted or judged)[0]
    verdict = goal.verdict(outcome, partial=suite.partial, used_seed=suite.used_seed)
    return verdict, outcome.reached, outcome.margin, f"`{suite.file}`"


def pictures(cards: Cards) -> dict[str, tuple[str, str, Suite]]:
    """Return the page's pictures: for each file name its kind, the mode or "random", and the suite that it is of."""
    found: dict[str, tuple[str, str, Suite]] = {}
    for place, suites in enumerate(cards.values()):
        for name, candidates in suites.items():
            for number, suite in enumerate(candidates):
                many = "".join(f"-{each + 1}" for each in (place, number) if each)
                if name == "shapes":
                    random = [row for row in suite.rows if row.get("kind") == "random" and row["ratio"] is not None]
                    if len(random) >= FEWEST_POINTS:
                        found[f"performance-shapes{many}.svg"] = ("shapes", "random", suite)
                    continue
                for mode in (AFTER, BACK_TO_BACK):
                    if _drawn(name, suite.of(mode)):
                        what = "" if mode == BACK_TO_BACK else f"-{mode}"
                        shown = mode if AFTER in suite.modes else "None"
                        kind = name if mode == BACK_TO_BACK else "ratios"
                        found[f"performance-{name}{what}{many}.svg"] = (kind, shown, suite)
    return found


def drawn_rows(kind: str, mode: str, suite: Suite) -> list[dict[str, object]]:
    """Return the rows that a picture shows."""
    if mode == "random":
        return [row for row in suite.rows if row.get("kind") == "random"]
    return suite.of(BACK_TO_BACK if mode == "None" else mode).rows


def _drawn(name: str, suite: Suite) -> bool:
    if name == "flat":
        return len({row["cell"] for row in suite.rows if row["gb_per_s"] is not None}) >= FEWEST_POINTS
    return name in PLOTTED and sum(row["ratio"] is not None for row in suite.rows) >= FEWEST_POINTS


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and the plots; return 2, with a line on stderr, if a file is missing or malformed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--complete", action="store_true", help="refuse if a suite has no full run")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page differs from the files")
    arguments = parser.parse_args(argv)
    try:
        cards = load_cards(arguments.results)
        if arguments.complete:
            _need_all(next(iter(cards.values())))
        text = page(cards, load_kernels(arguments.results), beside_torch(arguments.results))
    except FileError as error:
        print(f"benchmarks.pages.report: {error}", file=sys.stderr)
        return 2
    if not arguments.check:
        _draw(cards, arguments.docs / "plots")
    return put("report", arguments.docs / "performance.md", text, check=arguments.check)


def _need_all(suites: Suites) -> None:
    lacking = [name for name in SUITES if all(suite.partial for suite in suites.get(name, []))]
    if lacking:
        raise FileError(f"no full run of the suite {', '.join(lacking)}")


def _draw(cards: Cards, folder: Path) -> None:
    from benchmarks.pages.plots import plot  # noqa: PLC0415  matplotlib is slow to import, and an extra

    wanted = pictures(cards)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("performance-*.svg"):
        if old.name not in wanted:
            old.unlink()
    for name, (kind, mode, suite) in wanted.items():
        rows = drawn_rows(kind, mode, suite)
        plot(kind, rows, suite.conditions.get("peak_bandwidth_gb_per_s"), folder / name)


if __name__ == "__main__":
    sys.exit(main())
