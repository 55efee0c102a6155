"""The table of launch attributes: what each is, since when, whether this device has it, and its observed effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from lowlevel_reduce.cli.output import NONE

__all__ = ["COLUMNS", "as_objects", "render"]

COLUMNS = ("id", "name", "field", "since", "supported", "observed", "purpose", "measured")
"""The keys of a row, in order."""


def as_objects(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with exactly the keys of `COLUMNS`, as ``--json`` prints them.

    Raises
    ------
    KeyError
        If a row lacks one of them.
    """
    return [{name: row[name] for name in COLUMNS} for row in rows]


def render(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return the rows as a table, one for each attribute, with a dash for what was not observed."""
    table = Table()
    for name in COLUMNS:
        table.add_column(name, justify="right" if name == "id" else "left", overflow="fold")
    for row in as_objects(rows):
        table.add_row(*(_text(row[name]) for name in COLUMNS))
    return table


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NONE if value is None else str(value)
