"""Tables that are wider than the terminal, in parts below each other that each repeat the columns that name a row."""

from __future__ import annotations

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

__all__ = ["needed_width", "stacked"]

_MEASURED = 10_000
"""A width that no table has, in which tables are measured."""

_READABLE = 30
"""A column of text may be folded down to this width; figures and names are never folded."""


def stacked(table: Table, out: Console) -> list[Table]:
    """Return a table in parts that fit the console; the table alone if it fits, or has no columns to spare.

    The leading columns up to the first left-justified one, which name a row, come again in each part.
    """
    if needed_width(table, out) <= out.width:
        return [table]
    keys = _keys(table.columns)
    parts: list[list[int]] = []
    for place in range(len(keys), len(table.columns)):
        wider = [*parts[-1], place] if parts else []
        if not wider or needed_width(_part(table, [*keys, *wider]), out) > out.width:
            parts.append([place])
        else:
            parts[-1] = wider
    found = [_part(table, [*keys, *part]) for part in parts] or [table]
    for part in found[1:]:
        part.title = None
    return found


def _keys(columns: list[Column]) -> list[int]:
    first = next((place for place, column in enumerate(columns) if column.justify == "left"), 0)
    return list(range(first + 1))


def needed_width(table: Table, out: Console) -> int:
    """Return the width that a table needs, with its columns of text folded as far as they may be."""
    narrowed = _part(table, list(range(len(table.columns))))
    narrowed.title = None
    for column in narrowed.columns:
        if column.overflow == "fold" and not column.no_wrap:
            column.max_width = _READABLE
    return Measurement.get(out, out.options.update(max_width=_MEASURED), narrowed).maximum


def _part(table: Table, places: list[int]) -> Table:
    """Return a table of some columns, which looks like the whole."""
    part = Table(
        title=table.title,
        title_justify=table.title_justify,
        title_style=table.title_style,
        box=table.box,
        pad_edge=table.pad_edge,
        show_header=table.show_header,
        show_edge=table.show_edge,
        padding=table.padding,
    )
    for place in places:
        column = table.columns[place]
        part.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap, overflow=column.overflow)
    cells = [list(table.columns[place].cells) for place in places]
    for row in zip(*cells, strict=True):
        part.add_row(*row)
    return part
