"""The table of operators: the element types that each takes, the accumulators and their sizes, the arrays read."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from lowlevel_reduce.cli.output import NONE
from lowlevel_reduce.dtypes import ELEMENT_TYPES, ElementType
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators import OPERATORS, Reduction

__all__ = ["CLASSES", "Line", "as_objects", "lines", "markdown", "render"]

CLASSES = ("8- and 16-bit floats", "float32", "float64", "signed, bool", "unsigned", "complex")
"""Classes of element types; each has a column."""

HEADINGS = ("operator", "arrays read", *CLASSES)


@dataclass(frozen=True)
class Line:
    """A line of the table: operators with the same cost.

    Attributes
    ----------
    names : tuple of str
        The operators.
    arrays : int
        How many arrays they read, each element once.
    cells : tuple of str
        For each of `CLASSES`, the default accumulator and its bytes, or all of them if the types of the class differ;
        empty if the operators take no type of the class.
    """

    names: tuple[str, ...]
    arrays: int
    cells: tuple[str, ...]


def lines() -> list[Line]:
    """Return the lines of the table, in the order of the operators."""
    alike: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for name, reduction in OPERATORS.items():
        arrays = 1 if reduction.second is None else 2
        alike.setdefault((arrays, tuple(_cell(reduction, each) for each in CLASSES)), []).append(name)
    return [Line(tuple(names), arrays, cells) for (arrays, cells), names in alike.items()]


def _class_of(element: ElementType) -> str:
    if element.is_complex:
        return "complex"
    if element.is_float:
        return element.name if element.name in CLASSES else "8- and 16-bit floats"
    return "unsigned" if element.dtype.kind == "u" else "signed, bool"


def _cell(reduction: Reduction, wanted: str) -> str:
    found: dict[str, None] = {}
    for element in ELEMENT_TYPES:
        if _class_of(element) != wanted:
            continue
        try:
            types = reduction.types(element)
        except UnsupportedError:
            continue
        found[f"{types.accumulator} {reduction.size(types)}"] = None
    return ", ".join(found)


def as_objects() -> list[dict[str, object]]:
    """Return the table as ``--json`` prints it, one object for each operator."""
    return [
        {"operator": name, "arrays_read": line.arrays, "accumulators": dict(zip(CLASSES, line.cells, strict=True))}
        for line in lines()
        for name in line.names
    ]


def render() -> Table:
    """Return the table for a console."""
    table = Table()
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for line in lines():
        table.add_row(" ".join(line.names), str(line.arrays), *(cell or NONE for cell in line.cells))
    return table


def markdown() -> str:
    """Return the table in Markdown, as in the README."""
    rows = [HEADINGS, tuple("---" for _ in HEADINGS)]
    rows += [
        (" ".join(f"`{name}`" for name in line.names), str(line.arrays), *(cell or NONE for cell in line.cells))
        for line in lines()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
