"""The goals of the library's speed, each a function of a suite's rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from benchmarks.figures import BARE, OURS, FileError, geometric_mean, median_us, row_at, us_at

__all__ = ["GOALS", "Goal", "Outcome"]

Rows = Sequence[Mapping[str, Any]]


class FailedError(FileError):
    """A cell that a goal needs has no time, because our result was wrong or the call failed."""


@dataclass(frozen=True)
class Outcome:
    """Whether a goal was met, and as text what was reached and by how much the goal was missed or exceeded."""

    met: bool
    reached: str
    margin: str


@dataclass(frozen=True)
class Goal:
    """A goal.

    Attributes
    ----------
    suite, text : str
        The suite that it is about, and what it asks for.
    judge : callable
        Returns the outcome for the suite's rows; raises `FileError` if they lack a cell that it needs.
    scope : {"cells", "every", "mean"}
        Whether it is about certain cells, every cell, or a mean over all. If only part of the suite's rows are there,
        they can refute a goal about every cell but not confirm it, and a mean over them is not final.
    """

    suite: str
    text: str
    judge: Callable[[Rows], Outcome]
    scope: Literal["cells", "every", "mean"] = "cells"

    def outcome(self, rows: Rows) -> Outcome:
        """Return the outcome; a goal is not met if a cell that it needs failed."""
        try:
            return self.judge(rows)
        except FailedError as error:
            return Outcome(False, str(error), "")

    def verdict(self, outcome: Outcome, *, partial: bool) -> str:
        """Return the verdict as text; `partial` says that the outcome is of a part of the suite's rows only."""
        word = "met" if outcome.met else "**not met**"
        final = not partial or self.scope == "cells" or (self.scope == "every" and not outcome.met)
        return word if final else f"{word} so far"


def _us(rows: Rows, cell: str, name: str = OURS) -> float:
    row = row_at(rows, cell)
    if name == OURS and OURS in row["entries"] and median_us(row, OURS) is None:
        raise FailedError(f"failed: {cell}")
    return us_at(rows, cell, name)


def at_least(value: float, limit: float, unit: str, spread: float = 0.0) -> Outcome:
    """Return the outcome of the goal that a value reaches a limit; `spread` is that of its samples, in percent."""
    return _outcome(value >= limit, value, limit, unit, 100 * (value / limit - 1), spread)


def at_most(value: float, limit: float, unit: str, spread: float = 0.0) -> Outcome:
    """Return the outcome of the goal that a value does not exceed a limit; the margin is positive if it is below."""
    return _outcome(value <= limit, value, limit, unit, 100 * (1 - value / limit), spread)


def _outcome(met: bool, value: float, limit: float, unit: str, percent: float, spread: float) -> Outcome:
    """Return an outcome, with enough digits to tell the value from its limit and the margin from zero."""
    reached = _telling([f"{value:.{digits}g}" for digits in range(4, 10)], limit)
    margin = _telling([f"{percent:+.{digits}f}" for digits in range(1, 7)], 0.0)
    within = f", within a spread of {spread:.1f} %" if spread > abs(percent) else ""
    return Outcome(met, f"{reached} {unit}".strip(), f"{margin} %{within}")


def _telling(texts: Sequence[str], other: float) -> str:
    """Return the first of several texts of a number that does not equal `other`; the very first if all do."""
    return next((text for text in texts if float(text) != other), texts[0])


def _spread(rows: Rows, cell: str, *names: str) -> float:
    """Return the largest spread of entries of a row, by default of ours, in percent of their medians."""
    entries = row_at(rows, cell)["entries"]
    return max(float(entries[name].get("spread_percent", 0.0)) for name in names or (OURS,))


def _need_ours(rows: Rows) -> None:
    """Raise if this library failed in one of the rows."""
    failed = [row["cell"] for row in rows if median_us(row, OURS) is None]
    if failed:
        raise FailedError(f"failed: {', '.join(failed)}")


def _lacking(rows: Rows) -> str:
    """Return as text in how many cells each competitor failed, and how many have no competitor at all."""
    failed = Counter(name for row in rows for name, entry in row["entries"].items() if "error" in entry)
    alone = sum(row["best_peer"] is None for row in rows)
    return "".join(_without(many, name) for name, many in {**failed, "any peer": alone}.items())


def _without(cells: int, name: str) -> str:
    return f"; {cells} cell{'s' if cells > 1 else ''} without {name}" if cells else ""


def _speed(rows: Rows, cell: str) -> float:
    """Return our bandwidth in bytes per microsecond."""
    return float(row_at(rows, cell)["size_bytes"] / _us(rows, cell))


def _tera(cell: str, limit: float) -> Callable[[Rows], Outcome]:
    return lambda rows: at_least(_speed(rows, cell) / 1e6, limit, "TB/s", _spread(rows, cell))


def _against(cell: str, peer: str, limit: float) -> Callable[[Rows], Outcome]:
    return lambda rows: at_least(
        _us(rows, cell, peer) / _us(rows, cell), limit, f"times {peer}'s speed", _spread(rows, cell, OURS, peer)
    )


def _us_below(cell: str, limit: float) -> Callable[[Rows], Outcome]:
    return lambda rows: at_most(_us(rows, cell), limit, "µs", _spread(rows, cell))


def _never_behind(limit: float = 1.0, largest: int | None = None) -> Callable[[Rows], Outcome]:
    """Return the judge of the smallest ratio to the best peer over the cells (of up to `largest` elements)."""

    def judge(rows: Rows) -> Outcome:
        small = [row for row in rows if largest is None or _size(row) <= largest]
        _need_ours(small)
        ratios = {row["cell"]: row["ratio"] for row in small if row["ratio"] is not None}
        if not ratios:
            raise FileError("no peer was there")
        behind = [cell for cell, ratio in ratios.items() if ratio < limit]
        worst = min(ratios, key=lambda cell: ratios[cell])
        spread = _spread(rows, worst, OURS, row_at(rows, worst)["best_peer"])
        outcome = at_least(ratios[worst], limit, f"times at worst ({worst})", spread)
        below = f"; {len(behind)} of {len(ratios)} cells below"
        return replace(outcome, reached=f"{outcome.reached}{below}{_lacking(small)}")

    return judge


def _size(row: Mapping[str, Any]) -> int:
    total = 1
    for size in row["shape"]:
        total *= size
    return total


def _mean_ratio(limit: float) -> Callable[[Rows], Outcome]:
    def judge(rows: Rows) -> Outcome:
        _need_ours(rows)
        ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
        if not ratios:
            raise FileError("no peer was there")
        over = f"times the best peer over {len(ratios)} cells{_lacking(rows)}"
        return at_least(geometric_mean(ratios), limit, over)

    return judge


def _of_float32(rows: Rows) -> Outcome:
    narrow = ("float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
    base = _speed(rows, "float32 2^30")
    shares = {name: 100 * _speed(rows, f"{name} 2^30") / base for name in narrow}
    worst = min(shares, key=lambda name: shares[name])
    spread = max(_spread(rows, f"{name} 2^30") for name in (worst, "float32"))
    return at_least(shares[worst], 93, f"% at worst ({worst})", spread)


def _reproducible(rows: Rows) -> Outcome:
    peer = "CUB gpu_to_gpu"
    large = [row for row in rows if _size(row) >= 1 << 16]
    _need_ours(large)
    ratios = {
        row["cell"]: theirs / _us(rows, row["cell"]) for row in large if (theirs := median_us(row, peer)) is not None
    }
    if not ratios:
        raise FileError(f"{peer} was not there")
    worst = min(ratios, key=lambda cell: ratios[cell])
    unit = f"times at worst ({worst}){_without(len(large) - len(ratios), peer)}"
    return at_least(ratios[worst], 1.5, unit, _spread(rows, worst, OURS, peer))


def _worst_against(cells: Sequence[str], peer: str, limit: float) -> Callable[[Rows], Outcome]:
    def judge(rows: Rows) -> Outcome:
        ratios = {cell: _us(rows, cell, peer) / _us(rows, cell) for cell in cells}
        worst = min(ratios, key=lambda cell: ratios[cell])
        return at_least(ratios[worst], limit, f"times {peer} at worst ({worst})", _spread(rows, worst, OURS, peer))

    return judge


def _share(
    cells: Sequence[str], base: Callable[[Rows, str], float], percent: float, of: str
) -> Callable[[Rows], Outcome]:
    """Return the judge of the smallest share that our cells reach of the bandwidth that `base` returns."""

    def judge(rows: Rows) -> Outcome:
        shares = {cell: 100 * _speed(rows, cell) / base(rows, cell) for cell in cells}
        worst = min(shares, key=lambda cell: shares[cell])
        return at_least(shares[worst], percent, f"% of {of} at worst ({worst})", _spread(rows, worst))

    return judge


def _fastest(rows: Rows, _: str) -> float:
    """Return the highest bandwidth of any contender in any row, in bytes per microsecond."""
    return max(
        float(row["size_bytes"]) / us for row in rows for name in row["entries"] if (us := median_us(dict(row), name))
    )


def _of_sum(rows: Rows, cell: str) -> float:
    return _speed(rows, "sum " + cell.split(" ", 1)[1])


def _bound(rows: Rows) -> Outcome:
    cell = "bound launch, block"
    times = _us(rows, cell) / _us(rows, cell, BARE)
    return at_most(times, 1.1, "times the bare driver call", _spread(rows, cell, OURS, BARE))


def _one_shot(rows: Rows) -> Outcome:
    cell = "one-shot"
    return at_most(
        _us(rows, cell) / _us(rows, cell, "torch"), 1.0, "times torch's call", _spread(rows, cell, OURS, "torch")
    )


def _compiles(rows: Rows) -> Outcome:
    times = {row["cell"]: _us(rows, row["cell"]) / 1e3 for row in rows if row["cell"].startswith("plan compiled: ")}
    if not times:
        raise FileError("no kernel's compile time was measured")
    worst = max(times, key=lambda cell: times[cell])
    unit = f"ms at most ({worst.removeprefix('plan compiled: ')})"
    return at_most(times[worst], 60, unit, _spread(rows, worst))


def _ms_below(cell: str, limit: float) -> Callable[[Rows], Outcome]:
    return lambda rows: at_most(_us(rows, cell) / 1e3, limit, "ms", _spread(rows, cell))


GOALS: tuple[Goal, ...] = (
    Goal("flat", "N = 1e8: at least 4.50 TB/s", _tera("100,000,000", 4.50)),
    Goal("flat", "N = 1e8: 1.02 times CUB's speed or better", _against("100,000,000", "CUB", 1.02)),
    Goal("flat", "N = 2^30: at least 4.65 TB/s", _tera("2^30", 4.65)),
    Goal("flat", "every N: not slower than the fastest peer", _never_behind(), "every"),
    Goal("flat", "up to 4 M: 1.2 times the fastest peer or better", _never_behind(1.2, 1 << 22), "every"),
    Goal(
        "flat",
        "an array that is not aligned to 16 bytes: within 5 % of one that is",
        _share(("100,000,000, from element 1 on",), lambda rows, _: _speed(rows, "100,000,000"), 95, "the aligned one"),
    ),
    Goal("types", "not slower than any peer", _never_behind(), "every"),
    Goal("types", "16- and 8-bit types: 93 % of float32's bytes per second at 2^30", _of_float32),
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
    Goal("host", "one-shot call at most as long as torch's", _one_shot),
    Goal("cold", "first result within 120 ms if the cache is full", _ms_below("first result, warm cache", 120)),
    Goal("cold", "60 ms per kernel compiled", _compiles, "every"),
    Goal("cold", "import at most 40 ms longer than numpy and cuda.bindings alone", _ms_below("import", 40)),
)
"""All goals, in the order of the page's table."""
