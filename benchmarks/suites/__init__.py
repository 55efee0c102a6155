"""The suites: what is measured. Each is a function that returns its cells, all of them or a few for a quick run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from benchmarks.suites import arrays, cold, host, parts, shapes
from benchmarks.suites.cell import Cell
from benchmarks.suites.setting import Setting

__all__ = ["SUITES", "Cell", "Setting"]


class Suite(Protocol):
    """Returns the cells of a suite, without touching a device."""

    def __call__(self, *, quick: bool = False) -> list[Cell]:
        """Return all of them, or a few."""


SUITES: Mapping[str, Suite] = {
    "flat": arrays.flat,
    "types": arrays.types,
    "axes": arrays.axes,
    "stats": arrays.stats,
    "operators": arrays.operator_costs,
    "segments": arrays.segments,
    "shapes": shapes.shapes,
    "small": host.small,
    "host": host.host,
    "cold": cold.cold,
    "parts": parts.parts,
}
"""Every suite by its name, in the order of a full run."""
