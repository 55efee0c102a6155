"""What the library set out to reach, each goal a function of a suite's rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.figures import BARE, OURS, FileError, Row, geometric_mean, median_us

__all__ = ["GOALS", "Goal", "Outcome", "row_at"]

Rows = Sequence[Mapping[str, Any]]


class FailedError(FileError):
    """A cell that a goal needs was not right, and so was not timed."""


@dataclass(frozen=True)
class Outcome:
    """Whether a goal was met, what was reached, and by how much it was missed or exceeded, in words."""

    met: bool
    reached: str
    margin: str


@dataclass(frozen=True)
class Goal:
    """A goal.

    Attributes
    ----------
    suite, text : str
        Its suite, and what it asks.
    judge : callable
        Reads the outcome off the suite's rows; it raises `FileError` where they lack what it needs.
    scope : {"cells", "every", "mean"}
        Whether it asks something of certain cells, of every cell, or of a mean over all. Rows that are not all of the
        suite's can refute a goal of every cell and confirm none; of a mean they say nothing final.
    """

    suite: str
    text: str
    judge: Callable[[Rows], Outcome]
    scope: Literal["cells", "every", "mean"] = "cells"

    def outcome(self, rows: Rows) -> Outcome:
        """Return the outcome; a cell that it needs and that failed is a goal that is not met."""
        try:
            return self.judge(rows)
        except FailedError as error:
            return Outcome(False, str(error), "")

    def verdict(self, outcome: Outcome, *, partial: bool) -> str:
        """Return what is to be said of an outcome, of all rows of the suite or of a part of them."""
        word = "met" if outcome.met else "**not met**"
        final = not partial or self.scope == "cells" or (self.scope == "every" and not outcome.met)
        return word if final else f"{word} so far"


def row_at(rows: Rows, cell: str) -> Row:
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


def _us(rows: Rows, cell: str, name: str = OURS) -> float:
    row = row_at(rows, cell)
    value = median_us(row, name)
    if value is None and name == OURS and OURS in row["entries"]:
        raise FailedError(f"failed: {cell}")
    if value is None:
        raise FileError(f"{cell!r} has no figure of {name}")
    return value


def at_least(value: float, limit: float, unit: str) -> Outcome:
    """Return the outcome of a goal that something reach a limit."""
    return Outcome(value >= limit, f"{value:.4g} {unit}".strip(), f"{100 * (value / limit - 1):+.1f} %")


def at_most(value: float, limit: float, unit: str) -> Outcome:
    """Return the outcome of a goal that something stay below a limit; a positive margin is what is to spare."""
    return Outcome(value <= limit, f"{value:.4g} {unit}".strip(), f"{100 * (1 - value / limit):+.1f} %")


def _speed(rows: Rows, cell: str) -> float:
    """Return our bytes a microsecond."""
    return float(row_at(rows, cell)["size_bytes"] / _us(rows, cell))


def _tera(cell: str, limit: float) -> Callable[[Rows], Outcome]:
    return lambda rows: at_least(_speed(rows, cell) / 1e6, limit, "TB/s")


def _against(cell: str, peer: str, limit: float) -> Callable[[Rows], Outcome]:
    return lambda rows: at_least(_us(rows, cell, peer) / _us(rows, cell), limit, f"times {peer}'s speed")


def _us_below(cell: str, limit: float) -> Callable[[Rows], Outcome]:
    return lambda rows: at_most(_us(rows, cell), limit, "µs")


def _never_behind(limit: float = 1.0, largest: int | None = None) -> Callable[[Rows], Outcome]:
    """Judge the smallest ratio to the best peer over the cells (of up to `largest` elements)."""

    def judge(rows: Rows) -> Outcome:
        small = [row for row in rows if largest is None or _size(row) <= largest]
        ratios = {row["cell"]: row["ratio"] for row in small if row["ratio"] is not None}
        failed = [row["cell"] for row in small if median_us(row, OURS) is None]
        if failed:
            return Outcome(False, f"failed: {', '.join(failed)}", "")
        if not ratios:
            raise FileError("no peer was there")
        behind = [cell for cell, ratio in ratios.items() if ratio < limit]
        worst = min(ratios, key=lambda cell: ratios[cell])
        outcome = at_least(ratios[worst], limit, f"times at worst ({worst})")
        return Outcome(outcome.met, f"{outcome.reached}; {len(behind)} of {len(ratios)} cells below", outcome.margin)

    return judge


def _size(row: Mapping[str, Any]) -> int:
    total = 1
    for size in row["shape"]:
        total *= size
    return total


def _mean_ratio(limit: float) -> Callable[[Rows], Outcome]:
    def judge(rows: Rows) -> Outcome:
        ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
        if not ratios:
            raise FileError("no peer was there")
        return at_least(geometric_mean(ratios), limit, f"times the best peer over {len(ratios)} cells")

    return judge


def _of_float32(rows: Rows) -> Outcome:
    narrow = ("float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
    base = _speed(rows, "float32 2^30")
    shares = {name: 100 * _speed(rows, f"{name} 2^30") / base for name in narrow}
    worst = min(shares, key=lambda name: shares[name])
    return at_least(shares[worst], 93, f"% at worst ({worst})")


def _reproducible(rows: Rows) -> Outcome:
    ratios = {
        row["cell"]: theirs / ours
        for row in rows
        if _size(row) >= 1 << 16
        and (theirs := median_us(row, "CUB gpu_to_gpu")) is not None
        and (ours := median_us(row, OURS)) is not None
    }
    if not ratios:
        raise FileError("CUB gpu_to_gpu was not there")
    worst = min(ratios, key=lambda cell: ratios[cell])
    return at_least(ratios[worst], 1.5, f"times at worst ({worst})")


def _worst_against(cells: Sequence[str], peer: str, limit: float) -> Callable[[Rows], Outcome]:
    def judge(rows: Rows) -> Outcome:
        ratios = {cell: _us(rows, cell, peer) / _us(rows, cell) for cell in cells}
        worst = min(ratios, key=lambda cell: ratios[cell])
        return at_least(ratios[worst], limit, f"times {peer} at worst ({worst})")

    return judge


def _share(
    cells: Sequence[str], base: Callable[[Rows, str], float], percent: float, of: str
) -> Callable[[Rows], Outcome]:
    """Judge the smallest share of a bandwidth that our cells reach."""

    def judge(rows: Rows) -> Outcome:
        shares = {cell: 100 * _speed(rows, cell) / base(rows, cell) for cell in cells}
        worst = min(shares, key=lambda cell: shares[cell])
        return at_least(shares[worst], percent, f"% of {of} at worst ({worst})")

    return judge


def _fastest(rows: Rows, _: str) -> float:
    """Return the most bytes a microsecond that anyone reached in any of the rows."""
    return max(
        float(row["size_bytes"]) / us for row in rows for name in row["entries"] if (us := median_us(dict(row), name))
    )


def _of_sum(rows: Rows, cell: str) -> float:
    return _speed(rows, "sum " + cell.split(" ", 1)[1])


def _bound(rows: Rows) -> Outcome:
    cell = "bound launch, block"
    return at_most(_us(rows, cell) / _us(rows, cell, BARE), 1.1, "times the bare driver call")


def _one_shot(rows: Rows) -> Outcome:
    return at_most(_us(rows, "one-shot") / _us(rows, "one-shot", "torch"), 1.0, "times torch's call")


def _compiles(rows: Rows) -> Outcome:
    times = {row["cell"]: _us(rows, row["cell"]) / 1e3 for row in rows if row["cell"].startswith("plan compiled: ")}
    if not times:
        raise FileError("no kernel's compile time was measured")
    worst = max(times, key=lambda cell: times[cell])
    return at_most(times[worst], 60, f"ms at most ({worst.removeprefix('plan compiled: ')})")


def _ms_below(cell: str, limit: float) -> Callable[[Rows], Outcome]:
    return lambda rows: at_most(_us(rows, cell) / 1e3, limit, "ms")


GOALS: tuple[Goal, ...] = (
    Goal("flat", "N = 1e8: at least 4.50 TB/s", _tera("100,000,000", 4.50)),
    Goal("flat", "N = 1e8: 1.02 times CUB's speed or better", _against("100,000,000", "CUB", 1.02)),
    Goal("flat", "N = 2^30: at least 4.65 TB/s", _tera("2^30", 4.65)),
    Goal("flat", "every N: not slower than the fastest peer", _never_behind(), "every"),
    Goal("flat", "up to 4 M: 1.2 times the fastest peer or better", _never_behind(1.2, 1 << 22), "every"),
    Goal(
        "flat",
        "an array at no multiple of 16 bytes within 5 % of one that is",
        _share(("100,000,000, from element 1 on",), lambda rows, _: _speed(rows, "100,000,000"), 95, "the aligned one"),
    ),
    Goal("types", "not slower than any peer", _never_behind(), "every"),
    Goal("types", "16 and 8 bits at 93 % of float32's bytes per second at 2^30", _of_float32),
    Goal("axes", "not slower than any peer in any cell", _never_behind(), "every"),
    Goal("axes", "geometric mean at least 2 times the best peer", _mean_ratio(2.0), "mean"),
    Goal(
        "axes",
        "rows of 4, 8 and 32: 85 % of the suite's best bandwidth",
        _share(
            tuple(f"sum {shape}, axis 1" for shape in ("2^26 x 4", "2^25 x 8", "2^23 x 32")), _fastest, 85, "the best"
        ),
    ),
    Goal(
        "axes",
        "2^20 x 2^8 along axis 0: 90 % of the suite's best bandwidth",
        _share(("sum 2^20 x 2^8, axis 0",), _fastest, 90, "the best"),
    ),
    Goal("axes", "8 x 2^20 along axis 1: 1.5 times torch", _worst_against(("sum 8 x 2^20, axis 1",), "torch", 1.5)),
    Goal(
        "stats",
        "logsumexp and mean_var at 90 % of the sum's speed",
        _share(("logsumexp 2^14 x 2^14, axis 1", "mean_var 2^20 x 2^8, axis 1"), _of_sum, 90, "the sum's speed"),
    ),
    Goal("stats", "argmax at 95 % of the sum's speed", _share(("argmax 2^28",), _of_sum, 95, "the sum's speed")),
    Goal(
        "segments",
        "a million of about 100, and 8 of 2^25: 80 % of the suite's best bandwidth",
        _share(("1,000,000 of about 100", "8 of 2^25"), _fastest, 80, "the best"),
    ),
    Goal(
        "stats",
        "logsumexp at least 6 times torch",
        _worst_against(("logsumexp 2^14 x 2^14, axis 1", "logsumexp 2^22 x 32, axis 1"), "torch", 6.0),
    ),
    Goal(
        "stats",
        "mean_var at least 1.5 times torch",
        _worst_against(("mean_var 2^20 x 2^8, axis 1", "mean_var 2^22 x 32, axis 1"), "torch", 1.5),
    ),
    Goal("stats", "argmax not slower than CUB", _worst_against(("argmax 2^28",), "CUB ArgMax", 1.0)),
    Goal("flat", "reproducible: at least 1.5 times CUB's gpu_to_gpu from 2^16 on", _reproducible, "every"),
    Goal("small", "256 elements in 0.85 µs", _us_below("2^8, device", 0.85)),
    Goal("small", "64 K elements in 2.1 µs", _us_below("2^16, device", 2.1)),
    Goal("small", "1 M elements in 2.7 µs", _us_below("2^20, device", 2.7)),
    Goal("host", "bound launch at most 1.1 times the bare driver call", _bound),
    Goal("host", "one-shot at most torch's", _one_shot),
    Goal("cold", "first result of a warm process within 120 ms", _ms_below("first result, warm cache", 120)),
    Goal("cold", "60 ms per kernel compiled", _compiles, "every"),
    Goal("cold", "import at most 40 ms on top of numpy and cuda.bindings", _ms_below("import", 40)),
)
"""The table of goals, in its order."""
