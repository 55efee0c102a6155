"""`Record`: what one run of a rung gave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Record"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one run of a rung gave. Immutable; None where something is not available.

    Attributes
    ----------
    rung, system : str
        Which rung.
    n : int
        Elements that took part: fewer than were asked for where the input is a matrix.
    dtype : str
        Type of the elements.
    value, reference : float
        The result and what float64 gives; totals for many sums, checksums for a transpose. The value is None where a
        simulated kernel faulted.
    relative_error : float
        Their distance by the size of the reference (by 1 if that is 0).
    correct, expected_correct : bool
        Whether the result is within the bound of its additions (see `ladder.data`), and whether it is meant to be.
    microseconds : float
        Device time of one run, all of its launches, the median of the replays.
    gb_per_s : float
        Bytes of the input (of input and output for a transpose) by that time, in 1e9 bytes a second.
    percent_of_peak : float
        The same by the peak of the memory's clock and width, ``Device.peak_bandwidth``.
    counters : mapping
        What a simulated device counted, the sum over all launches.
    fault : str
        What a simulated kernel did wrong, in one line. Not among the keys of `as_dict`.
    """

    rung: str
    system: str
    n: int
    dtype: str
    value: float | None
    reference: float
    relative_error: float | None
    correct: bool
    expected_correct: bool
    microseconds: float | None = None
    gb_per_s: float | None = None
    percent_of_peak: float | None = None
    counters: Mapping[str, Any] | None = None
    fault: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold: the record's keys in order, None for what is not finite."""
        return {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self) if entry.name != "fault"}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return dict(value) if isinstance(value, Mapping) else value
