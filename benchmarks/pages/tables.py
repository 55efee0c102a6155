"""The tables of a suite for docs/performance.md: one for each situation, and summaries of many random cells. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.measure.figures import (
    AFTER,
    ALONE,
    BACK_TO_BACK,
    BARE,
    CONSUMED,
    OURS,
    REPRODUCIBLE,
    SITUATIONS,
    Row,
    geometric_mean,
    median_us,
)
from benchmarks.measure.runs import Suite
from benchmarks.pages.goals import behind

__all__ = ["WORST", "cell_text", "line_of", "lines_of", "own_ratio", "source_line", "told"]

WORST = 20
"""How many random cells are listed by name: those in which a peer is ahead by most."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_END = re.compile(r"\.\s|\sSearch for `")
"""The codes that colour an error in a terminal, and where its first sentence ends."""

_FIRST = (AFTER, ALONE, BACK_TO_BACK, CONSUMED)
"""The order of situations; other modes follow."""


def lines_of(suite: Suite, pictures: Mapping[str, str]) -> list[str]:
    """Return what the page says of a suite: where it is from, a table for each situation, and what failed.

    Parameters
    ----------
    suite : Suite
        The suite.
    pictures : mapping
        By mode, the file of the picture that goes with it.
    """
    lines = [source_line(suite), ""]
    modes = sorted(suite.modes, key=lambda mode: _FIRST.index(mode) if mode in _FIRST else len(_FIRST))
    several = any(mode in SITUATIONS and mode != BACK_TO_BACK for mode in modes)
    random = [row for row in suite.rows if row.get("kind") == "random"]
    if random:
        lines += _of_random(suite, random, pictures)
    for mode in modes if several else [None]:
        found = [row for row in (suite.rows if mode is None else suite.of(mode).rows) if row.get("kind") != "random"]
        if not found:
            continue
        name = SITUATIONS.get(str(mode), str(mode)).capitalize()
        what = " (a throughput)" if mode == BACK_TO_BACK else ""
        lines += [f"**{name}**{what}. {_mean(found)}" if several else _mean(found), ""]
        what = name if several else suite.file
        lines += [f"![{what}](plots/{pictures[str(mode)]})", ""] if not random and str(mode) in pictures else []
        lines += _folded(_table(found), len(found))
        lines += [""]
    return [*lines[:-1], *_remarks(suite)]


def _mean(rows: Sequence[Row]) -> str:
    """Return how the rows compare with the best peers, in a sentence; nothing without peers."""
    ratios = [row["ratio"] for row in rows if row.get("ratio") is not None]
    if not ratios:
        return "No competitor has a figure."
    slower = f"slower than the best peer in {sum(ratio < 1 for ratio in ratios)} of {len(ratios)} cells"
    late = sum(behind(row) > 0 for row in rows)
    more = f", by more than the spread in {late}" if late else ""
    return f"Geometric mean of the ratios {geometric_mean(ratios):.2f}; {slower}{more}."


def _of_random(suite: Suite, rows: Sequence[Row], pictures: Mapping[str, str]) -> list[str]:
    """Return the distribution of the ratios over random cells in each situation, and the worst of them by name."""
    modes = [mode for mode in _FIRST if mode in suite.modes]
    many = len({row["cell"] for row in rows})
    lines = [f"{many} random cells of seed {suite.seed}; ratios to the best peer, by how many cells are below:", ""]
    lines += ["| | 1 % | 10 % | 25 % | half | 75 % | 90 % | mean | behind | by more than the spread |"]
    lines += ["| --- |" + " --- |" * 9]
    for mode in modes:
        found = [row for row in rows if row["mode"] == mode and row["ratio"] is not None]
        if len(found) < 2:
            continue
        parts = statistics.quantiles([row["ratio"] for row in found], n=100, method="inclusive")
        cells = [SITUATIONS[mode], *(f"{parts[percent - 1]:.2f}" for percent in (1, 10, 25, 50, 75, 90))]
        late = sum(row["ratio"] < 1 for row in found), sum(behind(row) > 0 for row in found)
        cells += [f"{geometric_mean(row['ratio'] for row in found):.2f}", *(f"{each} of {len(found)}" for each in late)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", f"![Ratios of random cells](plots/{pictures['random']})", ""] if "random" in pictures else [""]
    for mode in [mode for mode in modes if mode != CONSUMED]:
        found = [row for row in rows if row["mode"] == mode and row["ratio"] is not None]
        worst = sorted(found, key=lambda row: row["ratio"])[:WORST]
        lines += [f"The worst {len(worst)}, {SITUATIONS[mode]}:", "", *_table(worst), ""]
    return [*lines, "What models reduce:", ""]


def _folded(table: list[str], cells: int) -> list[str]:
    """Return a table, if it is long behind a line that opens it."""
    if cells <= WORST:
        return table
    return ["<details>", f"<summary>{cells} cells</summary>", "", *table, "", "</details>"]


def _table(rows: Sequence[Row]) -> list[str]:
    """Return the table of rows: ours, the best peer, the best of those whose bits are reproducible, and all peers."""
    new = [row for row in rows if row.get("kind") == "new shapes"]
    rows = [row for row in rows if row.get("kind") != "new shapes"]
    return (
        [*_plain_table(rows), *([""] if rows and new else []), *(_new_shapes(new) if new else [])]
        if rows or new
        else []
    )


def _plain_table(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    peers = _peers(rows)
    shown = [("GB/s", _rate), ("best peer", lambda row: row.get("best_peer") or ""), ("ratio", own_ratio),
             ("driver calls", _driver_calls), ("to the reproducible", _to_the_reproducible)]  # fmt: skip
    columns = [(title, text) for title, text in shown if any(map(text, rows))]
    titles = ["", f"{OURS}, µs", *(title for title, _ in columns), *peers]
    lines = [f"| {' | '.join(titles)} |".replace("|  |", "| |"), "| --- " * len(titles) + "|"]
    return [*lines, *(line_of(row, peers, [text for _, text in columns]) for row in rows)]


def _peers(rows: Iterable[Row]) -> list[str]:
    """Return the competitors that have a figure in any of the rows, in order of appearance."""
    names = dict.fromkeys(name for row in rows for name in row["entries"] if name != OURS)
    return [name for name in names if any(median_us(row, name) is not None for row in rows)]


def line_of(row: Row, peers: Iterable[str], columns: Iterable[Callable[[Row], str]]) -> str:
    """Return a row of a table: our time, the text of each column, and the competitors' times."""
    ours = median_us(row, OURS)
    cells = [row["cell"], _number(ours) if ours is not None else "failed", *(text(row) for text in columns)]
    for peer in peers:
        entry, value = row["entries"].get(peer), median_us(row, peer)
        cells.append("" if entry is None else "failed" if value is None else _number(value))
    return "| " + " | ".join(map(cell_text, cells)) + " |"


def _rate(row: Row) -> str:
    rate = row.get("gb_per_s")
    return "" if rate is None else f"{rate:.0f}" if rate >= 1 else f"{rate:.2g}"


def own_ratio(row: Row) -> str:
    """Return the ratio of a row as text."""
    return _ratio(row.get("ratio"))


def _driver_calls(row: Row) -> str:
    return f"{row['driver_calls']:g}" if "driver_calls" in row else ""


def _to_the_reproducible(row: Row) -> str:
    """Return the ratio to the fastest of those that promise the same bits at least from run to run."""
    ours = median_us(row, OURS)
    theirs = [us for name in REPRODUCIBLE if (us := median_us(row, name)) is not None]
    return _ratio(None if ours is None or not theirs else min(theirs) / ours)


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.3f}**"


def _new_shapes(rows: Sequence[Row]) -> list[str]:
    """Return the table of calls whose shape is new each time: of each library the median, the slow and the longest."""
    names = [OURS, *_peers(rows)]
    lines = ["| | " + " | ".join(f"{name}, µs: median, 99 %, longest" for name in names) + " | compilations |"]
    lines += ["| --- |" + " --- |" * (len(names) + 1)]
    for row in rows:
        cells = [row["cell"]]
        for name in names:
            entry = row["entries"].get(name, {})
            figures = [entry.get(key) for key in ("us", "p99_us", "worst_us")]
            cells.append("" if None in figures else ", ".join(map(_number, figures)))
        lines.append("| " + " | ".join(map(cell_text, cells)) + f" | {row['entries'][OURS].get('compilations', '')} |")
    return lines


def _remarks(suite: Suite) -> Iterator[str]:
    """Yield what was timed in another way, what failed, and what broke off."""
    rows = suite.rows
    timed = _entries(rows, "timed")
    if timed:
        yield from ("", "Timed in another way, which measures the host where it is slower than the device:", "")
        yield from timed
    failed = _entries(rows, "error", without=suite.failures)
    if failed:
        yield from ("", "Failed, and so not timed:", "")
        yield from failed
    if suite.content.get("broke_off"):
        yield from ("", "Stopped by an error, and so without a row:", "")
        yield from (f"- {cell}: {cell_text(error)}" for cell, error in suite.content["broke_off"].items())


def _entries(rows: Iterable[Row], key: str, without: Collection[str] = ()) -> list[str]:
    """Return a line for each text under a key of an entry, with the cells that have it, of many only a few."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, entry in row["entries"].items():
            if key in entry and name not in without:
                cells = found.setdefault((name, _brief(entry[key])), [])
                cells += [row["cell"]] if row["cell"] not in cells else []
    lines = []
    for (name, text), cells in found.items():
        more = f" and {len(cells) - 3} more" if cells[3:] else ""
        lines.append(f"- {'; '.join(cells[:3])}{more}, {name}: {text}")
    return lines


def _brief(text: str) -> str:
    """Return the first sentence of an error, without the codes that colour it in a terminal."""
    plain = " ".join(_COLOURS.sub("", text).split())
    return cell_text(_END.split(plain, maxsplit=1)[0])


def source_line(suite: Suite) -> str:
    """Return which run a suite is of, who was compared, and who was missing."""
    text = f"`{suite.file}`, one {told(suite.conditions.get('device'))}, measured {suite.measured}, commit "
    text += told(suite.conditions.get("commit"))
    text += ", a part of the suite's cells." if suite.partial else "."
    rivals = {peer: many for peer, many in suite.peers.items() if peer != BARE}
    listed = ", ".join(f"{peer} ({many})" for peer, many in rivals.items())
    text += f" Competitors, and in how many of {len(suite.rows)} rows each was timed: {listed}." if rivals else ""
    text += "" if rivals or suite.failures else " No competitors."
    if suite.failures:
        said = (f"{peer} ({len(errors)}: {_brief(errors[0])})" for peer, errors in suite.failures.items())
        text += f" Failed wherever they were tried: {'; '.join(said)}."
    if suite.content["missing"]:
        text += " Missing: " + "; ".join(f"{key} ({why})" for key, why in suite.content["missing"].items()) + "."
    return text


def told(value: Any) -> str:
    """Return a condition as text."""
    return "not recorded" if value is None else str(value)


def cell_text(text: str) -> str:
    """Return a text as a cell of a table can have it."""
    return text.replace("|", "\\|").replace("\n", " ")


def _number(us: float) -> str:
    """Return a time as text: in microseconds, from ten milliseconds on in milliseconds, which it says."""
    if us < 10_000:
        return f"{us:.2f}" if us < 1000 else f"{us:,.0f}"
    return f"{us / 1000:.1f} ms" if us < 100_000 else f"{us / 1000:,.0f} ms"
