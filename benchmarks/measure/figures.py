"""The arithmetic of comparisons: medians, spreads, ratios, and the rows of suites. Pure."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "AFTER",
    "ALONE",
    "BACK_TO_BACK",
    "BARE",
    "CONSUMED",
    "OURS",
    "REPRODUCIBLE",
    "SITUATIONS",
    "FileError",
    "best_peer",
    "digest",
    "figure",
    "geometric_mean",
    "median_us",
    "name_of",
    "row_at",
    "row_of",
    "stored",
    "us_at",
]

OURS = "one tree"
"""The name of this library's entry in a row."""

BARE = "bare cuLaunchKernelEx"
"""The name of the driver's own call in a row: a limit, not a competitor."""

SUITES = ("flat", "types", "axes", "stats", "operators", "segments", "shapes", "small", "host", "cold", "parts")

REPRODUCIBLE = ("CUB gpu_to_gpu", "torch deterministic", "Triton inner tree")
"""The competitors that promise the same bits at least from run to run on a GPU: a class of their own."""

AFTER, ALONE, BACK_TO_BACK, CONSUMED = "after", "alone", "rotated", "consumed"

SITUATIONS: Mapping[str, str] = {
    AFTER: "after its producer",
    ALONE: "alone",
    BACK_TO_BACK: "back to back",
    CONSUMED: "between its producer and a consumer",
}
"""What the mode of a row is called. "Back to back" is a throughput: launches overlap, their code is in the caches."""

Row = dict[str, Any]


class FileError(ValueError):
    """A result file is missing, or does not have the form that the commands write."""


def figure(samples_us: Sequence[float]) -> dict[str, Any]:
    """Return the median of samples in microseconds, their spread in percent of it, and how many rounds they are of.

    The spread is the range of the middle half: one round that something else disturbed is not all of it. In files
    of an H200 of up to 2026-11-25 it is the range of all.
    """
    median = statistics.median(samples_us)
    low, _, high = statistics.quantiles(samples_us, n=4) if len(samples_us) > 1 else (median, median, median)
    spread = 100 * (high - low) / median if median else 0.0
    return {"us": round(median, 4), "spread_percent": round(spread, 2), "rounds": len(samples_us)}


def median_us(row: Mapping[str, Any], name: str) -> float | None:
    """Return an entry's median in a row; None if the row has no such entry or it failed."""
    return (row["entries"].get(name) or {}).get("us")


def best_peer(row: Mapping[str, Any]) -> str | None:
    """Return the name of the fastest competitor of a row; None if no competitor has a figure."""
    peers = {name: entry["us"] for name, entry in row["entries"].items() if name not in (OURS, BARE) and "us" in entry}
    return min(peers, key=lambda name: peers[name]) if peers else None


def row_at(rows: Iterable[Mapping[str, Any]], cell: str) -> Row:
    """Return the row of a cell.

    Raises
    ------
    FileError
        If there is none.
    """
    for row in rows:
        if row["cell"] == cell:
            return dict(row)
    raise FileError(f"no row has the cell {cell!r}")


def us_at(rows: Iterable[Mapping[str, Any]], cell: str, name: str = OURS) -> float:
    """Return an entry's median in the row of a cell.

    Raises
    ------
    FileError
        If there is no such row, or it has no figure of that name.
    """
    value = median_us(row_at(rows, cell), name)
    if value is None:
        raise FileError(f"{cell!r} has no figure of {name}")
    return float(value)


def row_of(cell: str, entries: Mapping[str, dict[str, Any]], *, size_bytes: int | None = None, **facts: Any) -> Row:
    """Return the row of a cell.

    Parameters
    ----------
    cell : str
        Its name.
    entries : mapping
        For each contender by name, what `figure` returned, or ``{"error": text}`` if it failed.
    size_bytes : int, optional
        Bytes that the cell moves; if given, the row has our bandwidth.
    **facts
        Other items of the row.
    """
    row: Row = {"cell": cell, **facts, "size_bytes": size_bytes, "entries": dict(entries)}
    ours, peer = median_us(row, OURS), best_peer(row)
    row["best_peer"] = peer
    theirs = None if peer is None else median_us(row, peer)
    # With enough digits to tell any two times apart: with four, 0.99996 would become 1, which for goals is not slower.
    row["ratio"] = None if ours is None or theirs is None else round(theirs / ours, 9)
    row["gb_per_s"] = None if ours is None or size_bytes is None else round(size_bytes / ours / 1e3, 1)
    return row


def stored(row: Mapping[str, Any]) -> Row:
    """Return a row as a file holds it: without what `row_of` works out from the rest."""
    return {key: value for key, value in row.items() if key not in ("best_peer", "ratio", "gb_per_s")}


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits that differ if two JSON values do."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def name_of(n: int) -> str:
    """Return a number in readable form: ``2^20``, ``1,000,003``."""
    power = n.bit_length() - 1
    return f"2^{power}" if n == 1 << power and n >= 256 else f"{n:,}"


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of at least one number."""
    return statistics.geometric_mean(values)
