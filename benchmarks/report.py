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
    "axes": "Axes",
    "stats": "Other operators",
    "operators": "Every operator beside the sum",
    "segments": "Segments",
    "small": "Small arrays",
    "host": "The host's time of a call",
    "cold": "Cold starts",
}


PLOTTED = ("flat", "types", "axes", "stats")
FEWEST_POINTS = 3
"""Fewer lengths or cells are no picture."""

NOT_MEASURED = "not measured"

Suites = Mapping[str, Sequence[Suite]]


def page(suites: Suites) -> str:
    """Return docs/performance.md."""
    parts = [
        "# Performance",
        "",
        "Written by `python -m benchmarks.report` from the files in `benchmarks/results`; not to be edited, and a test "
        "fails when it is not what they say. Each ratio is of figures of one run, in one process: competitors "
        "take turns, each result is checked before it is timed, and a figure is the median of the rounds. "
        "Device time is that of CUDA-graph replays, back to back, over inputs that were not in the L2 unless they are "
        "below 8 MiB. Since 2026-11-23 a contender's turn begins with a launch of its own, without a graph; files "
        "before `2026-11-23-h200-suites-5.json` rotated inputs of which the L2 still had a part, mostly where they are "
        "of 50 to 300 MB. A ratio "
        "above 1 says that this library is faster than the fastest of the others in that run.",
        "",
        "## Runs",
        "",
        *_runs(suites),
        "",
        "## Goals",
        "",
        '"So far" says that the run did not cover every cell of the suite. A margin is by how much a goal is '
        "exceeded, or missed where it is negative; it is within a spread where the samples of the row, from the least "
        "to the largest, differ by more than that. A cell in which this library failed fails the goal.",
        "",
        *_goals(suites),
    ]
    for name in SUITES:
        parts += ["", f"## {TITLES[name]}", ""]
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
    return "not told" if value is None else str(value)


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
    """Return verdict, what was reached, margin, and the file: of the newest run that has what the goal needs.

    Of partial runs one that refutes a goal of every cell goes before those that do not.
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
        lines += [f"Geometric mean {mean:.2f} times the best peer; behind in {behind} of {len(ratios)} cells.", ""]
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
        lines += ["", "Timed in another way, with the host's time where that is longer:", ""]
        lines += [f"- {cell}, {key}: {how}" for cell, key, how in timed]
    failed = [
        (row["cell"], key, entry["error"]) for row in rows for key, entry in row["entries"].items() if "error" in entry
    ]
    if failed:
        lines += ["", "Failed, and so not timed:", ""]
        lines += [f"- {cell}, {key}: {_cell(error)}" for cell, key, error in failed]
    if suite.content.get("broke_off"):
        lines += ["", "Broke off, and so have no row:", ""]
        lines += [f"- {cell}: {_cell(error)}" for cell, error in suite.content["broke_off"].items()]
    return lines


def _source_line(suite: Suite) -> str:
    text = f"`{suite.file}`, measured {suite.measured}, commit {_told(suite.conditions.get('commit'))}"
    text += ", a part of the suite's cells." if suite.partial else "."
    rivals = {peer: many for peer, many in suite.peers.items() if peer != BARE}
    listed = ", ".join(f"{peer} ({many})" for peer, many in rivals.items())
    text += f" Competitors, and in how many of {len(suite.rows)} cells each was timed: {listed}." if rivals else ""
    text += "" if rivals or suite.failures else " No competitor."
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
    """Return the pictures of the page by their files' names: which suite each shows, and its run."""
    return {
        _picture(name, number): (name, suite)
        for name, found in suites.items()
        for number, suite in enumerate(found)
        if _drawn(name, suite)
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and the plots; 2, with a line on stderr, if a file is missing or malformed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--complete", action="store_true", help="refuse if a suite has no full run")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if the page is not what the files say")
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
