"""The suites: what is measured, one function a suite that yields rows as they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from benchmarks.figures import Row
from benchmarks.suites import arrays, cold, host
from benchmarks.suites.setting import Setting

__all__ = ["SUITES", "Setting"]

SUITES: Mapping[str, Callable[[Setting], Iterator[Row]]] = {
    "flat": arrays.flat,
    "types": arrays.types,
    "axes": arrays.axes,
    "stats": arrays.stats,
    "segments": arrays.segments,
    "small": host.small,
    "host": host.host,
    "cold": cold.cold,
}
"""Every suite by its name."""
