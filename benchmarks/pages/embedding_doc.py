"""Fill the tables and figures of docs/embedding.md from the measurements, or check that they agree with them.

python -m benchmarks.pages.embedding_doc [--check]

They come from the newest ``benchmarks/results/*-embedding*.jsonl``, written by `benchmarks.profile.embedding`. The
table of a suite is between ``<!-- table SUITE -->`` and ``<!-- end -->``, and the conditions of the measurement are
between ``<!-- conditions -->`` and ``<!-- end -->``. A figure in a sentence is between
``<!-- figure KEY: SUITE: NAME -->`` and ``<!-- . -->``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import records
from benchmarks.measure.figures import FileError
from benchmarks.pages.filling import ROOT, fill

__all__ = ["PAGE", "filled", "main"]

PAGE = ROOT / "docs" / "embedding.md"

_TABLE = re.compile(r"(<!-- table ([^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_CONDITIONS = re.compile(r"(<!-- conditions -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_FIGURE = re.compile(r"(<!-- figure (\w+): ([^:>]+): ([^>]+?) -->)(.*?)(<!-- \. -->)", re.DOTALL)

# For each suite, how to split its names into row and column, and the title of the rows. The table of any other suite
# has a row for each name, with the time and its ratio to the first row's.
_PIVOTS = {
    "back to back, 65536 float32": (r"(?P<row>.+), (?P<column>.+)", "strategy"),
    "beside torch": (r"(?P<column>.+) of (?P<row>\d+)", "float32 elements"),
}

Row = Mapping[str, Any]


def filled(text: str, results: Path) -> str:
    """Return the page with every table and figure filled in from the newest file in `results`.

    Raises
    ------
    FileError
        If there is no file, it is malformed, or it lacks a row or value that the page needs.
    """
    file, conditions, rows = _newest(results)

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n{_table(file, rows, match[2])}\n\n{match[4]}"

    def figure(match: re.Match[str]) -> str:
        (row,) = _rows(file, rows, match[3], match[4])
        return f"{match[1]}{_value(file, row, match[2]):,}{match[6]}"

    text = _CONDITIONS.sub(lambda match: f"{match[1]}\n{_conditions(file, conditions)}\n\n{match[3]}", text)
    return _FIGURE.sub(figure, _TABLE.sub(table, text))


def _newest(results: Path) -> tuple[Path, Row, list[Row]]:
    read = [_read(file) for file in sorted(results.glob("*-embedding*.jsonl"))]
    if not read:
        raise FileError(f"there is no *-embedding.jsonl in {results}")
    return max(read, key=lambda each: str(each[1].get("measured", "")))


def _read(file: Path) -> tuple[Path, Row, list[Row]]:
    document = records.read(file, "embedding")
    if not all("suite" in row and "name" in row for row in document.records):
        raise FileError(f"{file.name}: a row has no suite or no name")
    return file, document.conditions, list(document.records)


def _rows(file: Path, rows: Sequence[Row], suite: str, name: str | None = None) -> list[Row]:
    found = [row for row in rows if row["suite"] == suite and name in (None, row["name"])]
    if not found or (name is not None and len(found) > 1):
        raise FileError(f"{file.name} has {len(found)} rows {suite}: {name or 'of any name'}")
    return found


def _value(file: Path, row: Row, key: str) -> float:
    if key not in row:
        raise FileError(f"{file.name}: {row['suite']}: {row['name']} has no {key}")
    return row[key]  # type: ignore[no-any-return]


def _conditions(file: Path, conditions: Row) -> str:
    lacking = {"device", "nvidia_smi", "python", "packages", "measured", "commit"} - conditions.keys()
    if lacking:
        raise FileError(f"{file.name}: its conditions lack {', '.join(sorted(lacking))}")
    driver, packages = conditions["nvidia_smi"].split(",")[0], conditions["packages"]
    versions = ", ".join(f"{name} {packages[name]}" for name in ("cuda-bindings", "torch") if name in packages)
    return (
        f"{conditions['device']}, driver {driver}, Python {conditions['python']}, {versions}, "
        f"{conditions['measured'][:10]}, commit {conditions['commit']}; medians: `{file.name}`."
    )


def _table(file: Path, rows: Sequence[Row], suite: str) -> str:
    times = {str(row["name"]): float(_value(file, row, "us")) for row in _rows(file, rows, suite)}
    if suite in _PIVOTS:
        return _pivot(f"{file.name}: {suite}", times, *_PIVOTS[suite])
    first = next(iter(times))
    lines = [f"| call | µs | × {first} |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {us:.2f} | {us / times[first]:.2f} |" for name, us in times.items()]
    return "\n".join(lines)


def _pivot(where: str, times: Mapping[str, float], pattern: str, what: str) -> str:
    cells: dict[str, dict[str, float]] = {}
    for name, us in times.items():
        match = re.fullmatch(pattern, name)
        if match is None:
            raise FileError(f"{where}: {name!r} is no name of this suite")
        cells.setdefault(match["row"], {})[match["column"]] = us
    columns = list(next(iter(cells.values())))
    lines = [
        "| " + " | ".join([what, *(f"{name}, µs" for name in columns)]) + " |",
        "| --- |" + " ---: |" * len(columns),
    ]
    for name, line in cells.items():
        if list(line) != columns:
            raise FileError(f"{where}: {name} has {', '.join(line)}, not {', '.join(columns)}")
        shown = f"{int(name):,}" if name.isdecimal() else f"`{name}`"
        lines.append("| " + " | ".join([shown, *(f"{us:.2f}" for us in line.values())]) + " |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Fill or check; return 1 if the page differs from the file, 2 if the file is malformed."""
    return fill("embedding_doc", __doc__, PAGE, filled, argv)


if __name__ == "__main__":
    sys.exit(main())
