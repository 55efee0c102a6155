"""The two files of results older than `benchmarks.run`, as suites: whole arrays and calls, and shapes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import BARE, OURS, FileError, Row, figure, name_of, row_of

__all__ = ["EARLY", "suites_of"]

EARLY = ("*-foundation.json", "*-shapes.json")
"""What their names match."""

Found = dict[str, list[Row]]

_CUB = "CUB DeviceReduce::Sum"
_COLD = {"import lowlevel_reduce": "import", "context": "context", "first result": "first result"}
_AXIS = {"rows": 1, "columns": 0, "middle": 1}


def suites_of(document: Any, name: str) -> dict[str, dict[str, Any]]:
    """Return the suites of a file, each with the rows that `benchmarks.run` would have written.

    Raises
    ------
    FileError
        If the file is of another format.
    """
    rows = document.get("rows") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not isinstance(document.get("conditions"), dict):
        raise FileError(f"{name} has no rows or no conditions")
    try:
        found = _foundation(rows) if any("suite" in row for row in rows) else _shapes(rows)
    except (KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{name} is not what was written then: {error!r}") from error
    return {suite: {"missing": {}, "rows": made} for suite, made in found.items()}


def _power(text: str) -> int:
    base, _, exponent = text.partition("^")
    return int(base) ** int(exponent) if exponent else int(float(text))


def _foundation(rows: Sequence[Mapping[str, Any]]) -> Found:
    found: Found = {}
    for title in dict.fromkeys(row["suite"] for row in rows):
        mine = {row["name"]: row for row in rows if row["suite"] == title}
        if title.startswith("flat float32 "):
            n = _power(title.split()[-1])
            # Of the lengths with every strategy, the one that was chosen; of the others there is one.
            ours = mine.get("chosen") or next(row for name, row in mine.items() if name != _CUB)
            entries = {OURS: _entry(ours), "CUB": _entry(mine[_CUB])}
            found.setdefault("flat", []).append(row_of(name_of(n), entries, size_bytes=4 * n, shape=[n]))
        elif title.startswith("types "):
            found["types"] = [
                row_of(f"{name.split()[0]}, {title.removeprefix('types ')}", {OURS: _entry(row)},
                       size_bytes=256 << 20, shape=[])
                for name, row in mine.items()
            ]  # fmt: skip
        elif title == "host":
            found["host"] = _host(mine)
    found["flat"].sort(key=lambda row: row["shape"][0])
    found["cold"] = _cold([row for row in rows if row["suite"] == "first result"])
    return found


def _host(mine: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    cells = {"lr.sum(x)": "one-shot", "lr.sum(x, out=)": "one-shot, out="}
    bare = mine["bare cuLaunchKernelEx, block"]
    made = []
    for name, row in mine.items():
        if row is bare:
            continue
        entries = {OURS: _entry(row)} | ({BARE: _entry(bare)} if name == "bound launch, block" else {})
        made.append(row_of(cells.get(name, name), entries, shape=[]))
    return made


def _entry(row: Mapping[str, Any]) -> dict[str, Any]:
    return figure(row.get("samples_us") or [row["us"]])


def _cold(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    cells: dict[str, list[float]] = {}
    for row in rows:
        for part, milliseconds in row["ms"].items():
            if part not in _COLD or (row["name"] == "empty cache" and part != "first result"):
                continue
            cell = f"first result, {row['name']}" if part == "first result" else _COLD[part]
            cells.setdefault(cell, []).append(1e3 * milliseconds)
    return [row_of(cell, {OURS: figure(times)}, shape=[]) for cell, times in sorted(cells.items())]


def _shapes(rows: Sequence[Mapping[str, Any]]) -> Found:
    found: Found = {}
    for row in rows:
        suite, cell, shape = _place(row["name"])
        entries = {OURS: _entry(row)}
        if row["torch_us"] is not None:
            entries["torch"] = figure([row["torch_us"]])
        size = round(row["gb_per_s"] * row["us"] * 1e3)
        found.setdefault(suite, []).append(row_of(cell, entries, size_bytes=size, shape=shape))
    return found


def _place(name: str) -> tuple[str, str, list[int]]:
    """Return the suite, cell and shape of a row of the shapes."""
    op, rest = name.split(" ", 1)
    if op == "segments":
        lengths = re.sub(r"\d{4,}", lambda digits: f"{int(digits[0]):,}", rest)
        return "segments", lengths.replace("~", "about "), []
    words = rest.split(",")[0].split()
    axis = _AXIS.get(words[0])
    shape = [_power(word) for word in words if word[0].isdigit()]
    if axis is None and len(shape) > 1:
        axis = 1
    cell = " x ".join(map(name_of, shape)) + ("" if axis is None else f", axis {axis}")
    cell += ", 4 bytes off" if rest.endswith("off") else ""
    if op == "sum":
        return ("flat", cell, shape) if axis is None else ("axes", f"{op} {cell}", shape)
    return "stats", f"{op} {cell}", shape
