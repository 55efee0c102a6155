"""Result files: lines of JSON, the conditions of a measurement first, then a record a line, appended as it is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure.figures import FileError

__all__ = ["FORMAT", "Document", "add", "begin", "read"]

FORMAT = 2

_FIGURE = ("us", "spread_percent", "rounds")
"""What `figures.figure` returns: an entry of just these is a list in the file, of a half of the length."""


@dataclass(frozen=True)
class Document:
    """What a file holds.

    Attributes
    ----------
    file : str
        The file's name.
    conditions : dict
        The conditions of the measurement.
    facts : dict
        What else the first line says of all records.
    records : list of dict
        The records, in the order in which they were made.
    """

    file: str
    conditions: dict[str, Any]
    facts: dict[str, Any]
    records: list[dict[str, Any]]


def begin(file: Path, kind: str, conditions: Mapping[str, Any], **facts: Any) -> None:
    """Write a file's first line, in place of whatever the file held.

    Parameters
    ----------
    file : Path
        The file.
    kind : str
        What its records are, such as ``"suites"``.
    conditions : mapping
        The conditions of the measurement.
    **facts
        What else holds for all records.
    """
    file.write_text(_line({"format": FORMAT, "kind": kind, "conditions": dict(conditions), **facts}), encoding="utf-8")


def add(file: Path, *records: Mapping[str, Any]) -> None:
    """Append records to a file that was begun; one of nothing but ``"conditions"`` adds to those of the first line.

    Entries that are what `figures.figure` returns are shortened to the list of its values.
    """
    with file.open("a", encoding="utf-8") as lines:
        lines.write("".join(map(_line, map(_packed, records))))


def read(file: Path, kind: str) -> Document:
    """Return what a file of this kind holds.

    Raises
    ------
    FileError
        If it cannot be read, a line is malformed, or the file is of another kind.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"{file.name} cannot be read: {error}") from error
    first, *records = [_parsed(file, number, line) for number, line in enumerate(text.splitlines() or [""], 1)]
    if (first.pop("format", None), first.pop("kind", None)) != (FORMAT, kind):
        raise FileError(f"{file.name} does not begin as a file of {kind} in format {FORMAT} does")
    conditions = first.pop("conditions", None)
    if not isinstance(conditions, dict):
        raise FileError(f"{file.name} has no conditions")
    for record in records:
        conditions |= record["conditions"] if record.keys() == {"conditions"} else {}
    kept = [_unpacked(record) for record in records if record.keys() != {"conditions"}]
    return Document(file.name, conditions, first, kept)


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def _parsed(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise FileError(f"{file.name}, line {number} is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise FileError(f"{file.name}, line {number} is no JSON object")
    return record


def _packed(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return _with_entries(record, _short)


def _unpacked(record: Mapping[str, Any]) -> dict[str, Any]:
    return _with_entries(record, _long)


def _with_entries(record: Mapping[str, Any], form: Callable[[Any], Any]) -> dict[str, Any]:
    entries = record.get("entries")
    if not isinstance(entries, Mapping):
        return dict(record)
    return {**record, "entries": {name: form(entry) for name, entry in entries.items()}}


def _short(entry: Any) -> Any:
    plain = isinstance(entry, Mapping) and entry.keys() == set(_FIGURE)
    return [entry[key] for key in _FIGURE] if plain else entry


def _long(entry: Any) -> Any:
    plain = isinstance(entry, list) and len(entry) == len(_FIGURE)
    return dict(zip(_FIGURE, entry, strict=True)) if plain else entry
