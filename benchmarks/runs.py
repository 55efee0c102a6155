"""The measured suites in a directory of results, with their file and conditions, and whether complete. Pure."""

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
"""Rows in these modes are ignored by goals and pages, except those of the suite of small arrays, which are hot."""


@dataclass(frozen=True)
class Suite:
    """One suite, as measured in one run.

    Attributes
    ----------
    content : mapping
        Its rows and the competitors that were missing.
    file : str
        The file that holds it.
    conditions : mapping
        The conditions of the measurement.
    partial : bool
        Whether it lacks cells of the suite, because the run was a quick one or was cut short.
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
        """The competitors that have a figure, in order of appearance, and in how many rows each has one."""
        return {
            name: many for name in self._others if (many := sum(median_us(row, name) is not None for row in self.rows))
        }

    @property
    def failures(self) -> dict[str, list[str]]:
        """The competitors that failed in every row in which they were tried, each with its errors."""
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
        """When it was measured: as the run recorded it, else the date at the beginning of the file's name."""
        return str(self.conditions.get("measured") or self.file[:10])


def load(directory: Path) -> dict[str, list[Suite]]:
    """Return the runs of every suite: its newest complete run alone or, without one, all partial runs, newest first.

    Raises
    ------
    FileError
        If there is no file, or one is malformed.
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
