"""Attacks as plain functions with a seed and a count, for tests of a second and for the soak of many minutes.

Each returns `Counts`; what is lost fails the caller. Importing them needs neither a compiler nor a device.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Counts"]


class Counts(NamedTuple):
    """What an attack did.

    Attributes
    ----------
    tried : int
        How many inputs or faults were tried.
    refused : int
        How many of them ended in a typed error, or in a miss that was mended.
    lost : tuple of str
        What went wrong, each with what is needed to try it again.
    """

    tried: int
    refused: int
    lost: tuple[str, ...] = ()

    def __add__(self, other: Counts) -> Counts:  # type: ignore[override]  # sums of counts, not longer tuples
        return Counts(self.tried + other.tried, self.refused + other.refused, self.lost + other.lost)
