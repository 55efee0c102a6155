"""Write docs/performance.md and its plots from the measured suites in benchmarks/results.

python -m benchmarks.report [--results DIR] [--docs DIR] [--complete | --check]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.figures import BARE, OURS, SUITES, FileError, Row, geometric_mean, median_us
from benchmarks.goals import GOALS, Goal, Outcome
from benchmarks.pages import RESULTS, ROOT, put
from benchmarks.runs import Suite, load

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
    "[benchmarks/shapes.py](../benchmarks/shapes.py) states, and what models reduce.",
    "small": "Sums of float32 that stay in the L2. *Device* is device time, back to back; *call to value* is the time "
    "from a call until its value is on the host.",
    "host": "The time that one call keeps the host busy, with 4,096 float32. `bare cuLaunchKernelEx` is the driver's "
    "call alone, all arguments prepared: a limit, not a competitor. *One-shot* is `sum(x)`, with `out=` into memory "
    "that is there already.",
    "cold": "Fresh processes, with an empty cache of compiled kernels and with a full one. *Plan compiled* is the time "
    "to make a plan whose kernel is compiled; *plan loaded* takes the kernel from the cache.",
    "parts": "Sums of float32 on one GPU or two, in one process or two, from the call to the value on the host.",
}
"""What the page says of each suite under its title."""


PLOTTED = ("flat", "types", "axes", "stats")
FEWEST_POINTS = 3
"""Suites with fewer lengths or cells get no picture."""

NOT_MEASURED = "not measured"

Suites = Mapping[str, Sequence[Suite]]


def page(suites: Suites) -> str:
    """Return docs/performance.md."""
    parts = [
        "# Performance",
        "",
        "`python -m benchmarks.report` writes this page from the files in `benchmarks/results`. Do not edit it: a test "
        "fails if it differs from what the files say.",
        "",
        "- Device times are of CUDA-graph replays, back to back. Inputs of 8 MiB and more rotate through a ring of "
        "buffers, so that they are not in the L2; smaller ones stay in it.",
        "- In each row, this library and its competitors take turns in one process. Each result is checked before it "
        "is timed, and a figure is the median of the rounds.",
        "- *One tree* is this library. *GB/s* is its bandwidth, with elements, borders of segments and results each "
        "counted once. *Best peer* is the fastest competitor of the row, and *ratio* is the competitor's time divided "
        "by this library's: above 1, this library is faster; below 1, the ratio is bold. A competitor's cell is empty "
        "where it was not tried.",
        "- Since 2026-11-23 the turn of each contender begins with a launch of its own, without a graph. Files before "
        "`2026-11-23-h200-suites-5.jsonl` used a smaller ring, of which the L2 still held a part, mostly for inputs of "
        "50 to 300 MB. [benchmarks/NOTES.md](../benchmarks/NOTES.md) says why both matter.",
        "",
        "## Runs",
        "",
        *_runs(suites),
        "",
        "## Goals",
        "",
        "*So far* means that the run did not cover every cell of the suite. The margin is by how much a goal is "
        "exceeded or, where it is negative, missed. *Within a spread* means that the samples of the row differ by more "
        "than the margin, from the smallest to the largest. A goal is not met if this library failed in a cell that "
        "the goal needs.",
        "",
        *_goals(suites),
    ]
    for name in SUITES:
        parts += ["", f"## {TITLES[name]}", "", ABOUT[name], ""]
        if name not in suites:
            parts += ["Not measured yet."]
        for number, suite in enumerate(suites.get(name, [])):
            parts += ([""] if number else []) + _suite(name, number, suite)
    return "\n".join(parts) + "\n"


def _runs(suites: Suites) -> list[str]:
    by_file: dict[str, tuple[Suite, list[str]]] = {}
    for name in SUITES:
        for suite in suites.get(name, []):
            by_file.setdefault(suite.file, (suite, []))[1].append(name + (" (in part)" if suite.partial else ""))
    lines = ["| file | suites | measured | commit | device | driver, clocks | CUDA | Python, packages |"]
    lines += ["| --- " * 8 + "|"]
    for file, (suite, names) in sorted(by_file.items(), key=lambda item: item[1][0].measured, reverse=True):
        facts = suite.conditions
        packages = [f"{name} {version}" for name, version in facts.get("packages", {}).items()]
        packages += [f"CUB {facts['cub']}"] if facts.get("cub") else []
        cells = [
            f"`{file}`", ", ".join(names), suite.measured, _commit(facts), _told(facts.get("device")),
            _told(facts.get("nvidia_smi")), _told(facts.get("cuda_driver")),
            ", ".join([_told(facts.get("python")), *packages]),
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return lines


def _told(value: object) -> str:
    return "not recorded" if value is None else str(value)


def _commit(facts: Mapping[str, object]) -> str:
    sources = f", sources {facts['sources']}" if facts.get("sources") else ""
    return _told(facts.get("commit")) + sources


def _goals(suites: Suites) -> list[str]:
    lines = ["| suite | goal | | reached | margin | run |", "| --- | --- | --- | --- | --- | --- |"]
    for goal in GOALS:
        cells = [goal.suite, goal.text, *_judged(goal, suites.get(goal.suite, []))]
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return lines


def _judged(goal: Goal, candidates: Sequence[Suite]) -> tuple[str, str, str, str]:
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
    return goal.verdict(outcome, partial=suite.partial), outcome.reached, outcome.margin, f"`{suite.file}`"


def _suite(name: str, number: int, suite: Suite) -> list[str]:
    rows, peers = suite.rows, suite.peers
    ratios = [row["ratio"] for row in rows if row.get("ratio") is not None]
    lines = [_source_line(suite), ""]
    if ratios:
        behind = sum(ratio < 1 for ratio in ratios)
        mean = geometric_mean(ratios)
        slower = f"slower than the best peer in {behind} of {len(ratios)} cells"
        lines += [f"Geometric mean of the ratios {mean:.2f}; {slower}.", ""]
    if _drawn(name, suite):
        lines += [f"![{TITLES[name]}, {suite.file}](plots/{_picture(name, number)})", ""]
    lines += [
        f"| | {OURS}, µs | GB/s | best peer | ratio |" + "".join(f" {peer} |" for peer in peers),
        "| --- | --- | --- | --- | --- |" + " --- |" * len(peers),
        *(_line(row, peers) for row in rows),
    ]
    timed = [
        (row["cell"], key, entry["timed"]) for row in rows for key, entry in row["entries"].items() if "timed" in entry
    ]
    if timed:
        lines += ["", "Timed in another way, which measures the host where it is slower than the device:", ""]
        lines += [f"- {cell}, {key}: {how}" for cell, key, how in timed]
    failed = [
        (row["cell"], key, entry["error"]) for row in rows for key, entry in row["entries"].items() if "error" in entry
    ]
    if failed:
        lines += ["", "Failed, and so not timed:", ""]
        lines += [f"- {cell}, {key}: {_cell(error)}" for cell, key, error in failed]
    if suite.content.get("broke_off"):
        lines += ["", "Stopped by an error, and so without a row:", ""]
        lines += [f"- {cell}: {_cell(error)}" for cell, error in suite.content["broke_off"].items()]
    return lines


def _source_line(suite: Suite) -> str:
    text = f"`{suite.file}`, measured {suite.measured}, commit {_told(suite.conditions.get('commit'))}"
    text += ", a part of the suite's cells." if suite.partial else "."
    rivals = {peer: many for peer, many in suite.peers.items() if peer != BARE}
    listed = ", ".join(f"{peer} ({many})" for peer, many in rivals.items())
    text += f" Competitors, and in how many of {len(suite.rows)} cells each was timed: {listed}." if rivals else ""
    text += "" if rivals or suite.failures else " No competitors."
    if suite.failures:
        told = (f"{peer} ({len(errors)}: {_cell(errors[0])})" for peer, errors in suite.failures.items())
        text += f" Failed wherever they were tried: {'; '.join(told)}."
    if suite.content["missing"]:
        text += " Missing: " + "; ".join(f"{key} ({why})" for key, why in suite.content["missing"].items()) + "."
    return text


def _line(row: Row, peers: Iterable[str]) -> str:
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


def _picture(name: str, number: int) -> str:
    return f"performance-{name}{f'-{number + 1}' if number else ''}.svg"


def _drawn(name: str, suite: Suite) -> bool:
    if name == "flat":
        return len({row["shape"][0] for row in suite.rows if row["gb_per_s"] is not None}) >= FEWEST_POINTS
    return name in PLOTTED and sum(row["ratio"] is not None for row in suite.rows) >= FEWEST_POINTS


def pictures(suites: Suites) -> dict[str, tuple[str, Suite]]:
    """Return the page's pictures: for each file name the suite that it shows and the run it is from."""
    return {
        _picture(name, number): (name, suite)
        for name, found in suites.items()
        for number, suite in enumerate(found)
        if _drawn(name, suite)
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and the plots; return 2, with a line on stderr, if a file is missing or malformed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--complete", action="store_true", help="refuse if a suite has no full run")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page differs from the files")
    arguments = parser.parse_args(argv)
    try:
        suites = load(arguments.results)
        if arguments.complete:
            _need_all(suites)
        text = page(suites)
    except FileError as error:
        print(f"benchmarks.report: {error}", file=sys.stderr)
        return 2
    if not arguments.check:
        _draw(suites, arguments.docs / "plots")
    return put("report", arguments.docs / "performance.md", text, check=arguments.check)


def _need_all(suites: Suites) -> None:
    lacking = [name for name in SUITES if all(suite.partial for suite in suites.get(name, []))]
    if lacking:
        raise FileError(f"no full run of the suite {', '.join(lacking)}")


def _draw(suites: Suites, folder: Path) -> None:
    from benchmarks.plots import plot  # noqa: PLC0415  matplotlib is slow to import, and an extra

    wanted = pictures(suites)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("performance-*.svg"):
        if old.name not in wanted:
            old.unlink()
    for name, (kind, suite) in wanted.items():
        plot(kind, suite.rows, suite.conditions.get("peak_bandwidth_gb_per_s"), folder / name)


if __name__ == "__main__":
    sys.exit(main())
