"""The measured suites in a directory of results: which file, under what conditions, and whether in full. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import OURS, FileError, Row, checked_document, median_us

__all__ = ["PATTERN", "Suite", "load"]

PATTERN = "*-suites*.json"

_OTHER_MODES = ("hot", "events")
"""Rows of arrays in these modes are not what goals and pages speak of, except small arrays, which are hot."""


@dataclass(frozen=True)
class Suite:
    """A suite of one run.

    Attributes
    ----------
    content : mapping
        Its rows and the competitors that were missing.
    file : str
        The file that holds it.
    conditions : mapping
        What it was measured under.
    partial : bool
        Whether cells of the suite are not in it: of a quick run, or of one that was cut short.
    """

    content: Mapping[str, Any]
    file: str
    conditions: Mapping[str, Any]
    partial: bool = False

    @property
    def rows(self) -> list[Row]:
        """Its rows."""
        return list(self.content["rows"])

    @property
    def peers(self) -> dict[str, int]:
        """Whoever has a figure besides the library, in the order of the rows, and in how many of them."""
        return {
            name: many for name in self._others if (many := sum(median_us(row, name) is not None for row in self.rows))
        }

    @property
    def failures(self) -> dict[str, list[str]]:
        """Whoever has no figure in any row, and so is no competitor: what went wrong in each row it was in."""
        return {
            name: [row["entries"][name]["error"] for row in self.rows if name in row["entries"]]
            for name in self._others
            if name not in self.peers
        }

    @property
    def _others(self) -> list[str]:
        return list(dict.fromkeys(key for row in self.rows for key in row["entries"] if key != OURS))

    @property
    def measured(self) -> str:
        """When: as the run says it, else the date that the file's name begins with."""
        return str(self.conditions.get("measured") or self.file[:10])


def load(directory: Path) -> dict[str, list[Suite]]:
    """Return what there is of every suite: its newest full run alone, or else every partial one, the newest first.

    Raises
    ------
    FileError
        If there is no file, or one is not what was written.
    """
    found: dict[str, list[Suite]] = {}
    for name, suite in _all(directory):
        found.setdefault(name, []).append(suite)
    if not found:
        raise FileError(f"{directory} holds no {PATTERN}: run benchmarks.run")
    return {name: _current(suites) for name, suites in found.items()}


def _current(suites: list[Suite]) -> list[Suite]:
    newest_first = sorted(suites, key=lambda suite: (suite.measured, suite.file), reverse=True)
    return next(([suite] for suite in newest_first if not suite.partial), newest_first)


def _all(directory: Path) -> Iterator[tuple[str, Suite]]:
    for file in sorted(directory.glob(PATTERN)):
        document = checked_document(_read(file), file.name)
        for name, content in document["suites"].items():
            rows = [row for row in content["rows"] if name == "small" or row.get("mode") not in _OTHER_MODES]
            if content["rows"] and not rows:
                continue
            partial = bool(document.get("quick")) or not content.get("complete", True)
            partial = partial or len(rows) < len(content["rows"])
            yield name, Suite({**content, "rows": rows}, file.name, document["conditions"], partial)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise FileError(f"{file.name} is no JSON: {error}") from error
