"""`Record`: the outcome of one run of a rung."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Record"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """The outcome of one run of a rung. Immutable; what is not available is None.

    Attributes
    ----------
    rung, system : str
        The id of the rung, and the letter of its system.
    n : int
        Elements that took part: fewer than requested if the input is a matrix.
    dtype : str
        Type of the elements.
    value, reference : float
        The result and that of float64; totals if there are many sums, checksums for a transpose. The value is None if a
        simulated kernel faulted.
    relative_error : float
        Their difference divided by the magnitude of the reference (by 1 if that is 0).
    correct, expected_correct : bool
        Whether the result is within the bound of its additions (see `ladder.data`), and whether it is meant to be.
    microseconds : float
        Device time of one run with all of its launches; the median of the replays.
    gb_per_s : float
        Bytes of the input (of input and output for a transpose) divided by that time, in 1e9 bytes per second.
    percent_of_peak : float
        The same as a percentage of the peak by the memory's clock and width, ``Device.peak_bandwidth``.
    counters : mapping
        The counters of a simulated device, added up over all launches.
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
        """Return the record in types of JSON, with its keys in order, and None for what is not finite."""
        return {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self) if entry.name != "fault"}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return dict(value) if isinstance(value, Mapping) else value
