"""Counters as a readable table: one column per kernel, one row per counter, and a dash where a time would be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["counters_table"]

_NO_TIME = "-"


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"


# The title of each row, and how its value is read from the counters.
_ROWS: tuple[tuple[str, Callable[[Any], int | str]], ...] = (
    ("branches", lambda c: c.branches),
    ("  divergent", lambda c: c.divergent_branches),
    ("global load requests", lambda c: c.global_loads),
    ("  sectors", lambda c: c.global_load_sectors),
    ("  sectors a request", lambda c: _ratio(c.global_load_sectors, c.global_loads)),
    ("global store requests", lambda c: c.global_stores),
    ("  sectors", lambda c: c.global_store_sectors),
    ("  sectors a request", lambda c: _ratio(c.global_store_sectors, c.global_stores)),
    ("shared requests", lambda c: c.shared_requests),
    ("  wavefronts", lambda c: c.shared_wavefronts),
    ("  bank conflicts", lambda c: c.bank_conflicts),
    ("atomics", lambda c: c.atomics),
    ("  collisions", lambda c: c.atomic_collisions),
    ("barriers", lambda c: c.barriers),
    ("bytes read", lambda c: c.bytes_read),
    ("bytes written", lambda c: c.bytes_written),
)


def counters_table(counters: Mapping[str, Any]) -> str:
    """Return the counters of some kernels as text with aligned columns, without a newline at the end.

    Parameters
    ----------
    counters : mapping
        The `machine.Counters` of each kernel, by its name.
    """
    if not counters:
        return "no kernel ran"
    classes = sorted({name for counted in counters.values() for name in counted.instructions_by_class})
    rows = [("", list(counters)), ("time", [_NO_TIME] * len(counters))]
    rows.append(("instructions", [_shown(counted.instructions) for counted in counters.values()]))
    for name in classes:
        cells = [_shown(counted.instructions_by_class.get(name, 0)) for counted in counters.values()]
        rows.append((f"  {name}", cells))
    rows += [(label, [_shown(read(counted)) for counted in counters.values()]) for label, read in _ROWS]
    return _aligned(rows)


def _shown(value: int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def _aligned(rows: list[tuple[str, list[str]]]) -> str:
    first = max(len(label) for label, _ in rows)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in rows), strict=True)]
    lines = []
    for label, cells in rows:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append("  ".join([label.ljust(first), *padded]))
    return "\n".join(lines)
