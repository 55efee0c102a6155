"""The goals of the library's speed, over suites, situations and seeds: each a function of a suite's rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from benchmarks.measure.figures import (
    AFTER,
    ALONE,
    BACK_TO_BACK,
    BARE,
    OURS,
    REPRODUCIBLE,
    SITUATIONS,
    FileError,
    geometric_mean,
    median_us,
    row_at,
    us_at,
)

__all__ = ["GOALS", "RANDOM_CELLS", "Goal", "Outcome", "behind", "of_mode"]

RANDOM_CELLS = 300
"""How many random cells a run must have for a goal about them."""

Rows = Sequence[Mapping[str, Any]]
Judge = Callable[[Rows], "Outcome"]


class FailedError(FileError):
    """A cell that a goal needs has no time, because our result was wrong or the call failed."""


@dataclass(frozen=True)
class Outcome:
    """Whether a goal was met, and as text what was reached and by how much the goal was missed or exceeded.

    It is not `final` if there are fewer cells than the goal asks for.
    """

    met: bool
    reached: str
    margin: str
    final: bool = True


@dataclass(frozen=True)
class Goal:
    """A goal.

    Attributes
    ----------
    suite, text : str
        The suite that it is about, and what it asks for.
    judge : callable
        Returns the outcome for the suite's rows; raises `FileError` if they lack what it needs.
    scope : {"cells", "every"}
        Whether it is about certain cells or every cell. If only part of the suite's rows are there, they can refute a
        goal about every cell but not confirm it.
    by_seed : bool
        Whether it is about cells that are drawn: then a run counts if its seed was not used before.
    """

    suite: str
    text: str
    judge: Judge
    scope: Literal["cells", "every"] = "every"
    by_seed: bool = False

    def outcome(self, rows: Rows) -> Outcome:
        """Return the outcome; a goal is not met if a cell that it needs failed."""
        try:
            return self.judge(rows)
        except FailedError as error:
            return Outcome(False, str(error), "")

    def verdict(self, outcome: Outcome, *, partial: bool, used_seed: bool = False) -> str:
        """Return the verdict as text.

        `partial` says that the outcome is of a part of the suite's rows only, `used_seed` that an earlier run had the
        same seed.
        """
        if not outcome.met:
            return "**not met**"
        short = (partial and self.scope == "every") or not outcome.final
        return "met so far" if short else "met, seed used before" if self.by_seed and used_seed else "met"


def of_mode(rows: Rows, mode: str) -> list[Mapping[str, Any]]:
    """Return the rows of a mode; rows of before 2026-11-22 name none, and were measured back to back."""
    return [row for row in rows if row.get("mode", BACK_TO_BACK) == mode]


def spread(row: Mapping[str, Any], *names: str) -> float:
    """Return the largest spread of some entries of a row, in percent of their medians."""
    return max(float(row["entries"][name].get("spread_percent", 0.0)) for name in names)


def behind(row: Mapping[str, Any]) -> float:
    """Return by what part of its time a peer is faster in a row, beyond the spreads of both figures; 0 if it is not."""
    if row["ratio"] is None:
        return 0.0
    excess = 1 - row["ratio"] - spread(row, OURS, row["best_peer"]) / 100
    return max(0.0, float(excess))


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


def _chosen(rows: Rows, mode: str | None, kind: str | None) -> Rows:
    """Return the rows of a mode and a kind, of which this library failed in none; raise if there are none."""
    found = _there(rows, mode, kind)
    if failed := _failed(found):
        raise FailedError(failed)
    return found


def _there(rows: Rows, mode: str | None, kind: str | None) -> Rows:
    found = [row for row in (rows if mode is None else of_mode(rows, mode)) if kind in (None, row.get("kind"))]
    if not found:
        raise FileError(f"no row {SITUATIONS.get(str(mode), mode or kind or 'of this kind')}")
    return found


def _failed(rows: Rows) -> str:
    """Return as text in which rows this library failed; nothing if in none."""
    failed = [str(row["cell"]) for row in rows if median_us(row, OURS) is None]
    more = f" and {len(failed) - 5} more" if failed[5:] else ""
    return f"failed: {', '.join(failed[:5])}{more}" if failed else ""


def _with_failed(outcome: Outcome, rows: Rows) -> Outcome:
    """Return the outcome of those rows in which this library has a time; it is not met if it failed in any."""
    failed = _failed(rows)
    return replace(outcome, met=False, reached=f"{outcome.reached}; {failed}") if failed else outcome


def _rated(rows: Rows) -> Rows:
    found = [row for row in rows if row["ratio"] is not None]
    if not found:
        raise FailedError(failed) if (failed := _failed(rows)) else FileError("no peer was there")
    return found


def _lacking(rows: Rows) -> str:
    """Return as text in how many cells each competitor failed, and how many have no competitor at all."""
    failed = Counter(
        name for row in rows for name, entry in row["entries"].items() if name != OURS and "error" in entry
    )
    timed = {name for row in rows for name, entry in row["entries"].items() if "us" in entry}
    lacking = "".join(_without(many, name) for name, many in failed.items() if name in timed)
    never = [name for name in failed if name not in timed]
    lacking += f"; without {', '.join(never)}" if never else ""
    return lacking + _without(sum(row["best_peer"] is None for row in rows), "any peer")


def _without(cells: int, name: str) -> str:
    return f"; {cells} cell{'s' if cells > 1 else ''} without {name}" if cells else ""


def none_behind(mode: str | None, *, kind: str | None = None, least: int = 0) -> Judge:
    """Return the judge of whether a peer is faster in a cell by more than the spread of both figures."""

    def judge(rows: Rows) -> Outcome:
        found = _there(rows, mode, kind)
        rated = _rated(found)
        late = [row for row in rated if behind(row) > 0]
        slower = sum(row["ratio"] < 1 for row in rated)
        worst = min(rated, key=lambda row: row["ratio"])
        mean = geometric_mean(row["ratio"] for row in rated)
        reached = (
            f"{worst['ratio']:.4g} times at worst ({worst['cell']}); {len(late)} of {len(rated)} cells behind by more "
            f"than the spread, {slower} at all; geometric mean {mean:.3f}{_lacking(found)}"
        )
        outcome = Outcome(not late, reached, f"{100 * (worst['ratio'] - 1):+.1f} %", final=len(found) >= least)
        return _with_failed(outcome, found)

    return judge


def _beside(names: Sequence[str], limit: float, without: str) -> Judge:
    """Return the judge of the time of the fastest of some competitors by ours, of arrays from 2^16 elements on."""

    def judge(rows: Rows) -> Outcome:
        found = _chosen([row for row in of_mode(rows, BACK_TO_BACK) if _size(row) >= 1 << 16], None, None)
        ratios, spreads = {}, {}
        for row in found:
            times = {name: us for name in names if (us := median_us(row, name)) is not None}
            if times:
                best = min(times, key=lambda name: times[name])
                ratios[row["cell"]] = times[best] / us_at([row], row["cell"])
                spreads[row["cell"]] = spread(row, OURS, best)
        if not ratios:
            raise FileError(f"{without} was there")
        worst = min(ratios, key=lambda cell: ratios[cell])
        unit = f"times at worst ({worst}){_without(len(found) - len(ratios), ' or '.join(names))}"
        return at_least(ratios[worst], limit, unit, spreads[worst])

    return judge


def _size(row: Mapping[str, Any]) -> int:
    total = 1
    for size in row["shape"]:
        total *= size
    return total


def _narrow_types(rows: Rows) -> Outcome:
    """Judge the bytes a second of narrow types in the longest arrays, beside those of float32."""
    narrow = ("float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
    plain = of_mode(rows, BACK_TO_BACK)
    found = {name: row_at(plain, f"{name} 2^30") for name in ("float32", *narrow)}
    _chosen(list(found.values()), None, None)
    rates = {name: row["size_bytes"] / us_at([row], row["cell"]) for name, row in found.items()}
    worst = min(narrow, key=lambda name: rates[name])
    spreads = max(spread(found[name], OURS) for name in (worst, "float32"))
    return at_least(100 * rates[worst] / rates["float32"], 93, f"% at worst ({worst})", spreads)


def _unaligned(rows: Rows) -> Outcome:
    """Judge the bandwidth of arrays that begin at an odd element, beside those of as many that do not."""
    plain = of_mode(rows, BACK_TO_BACK)
    shares, spreads = {}, {}
    for row in _chosen([row for row in plain if row.get("shift")], None, None):
        same = next((each for each in plain if each["shape"] == row["shape"] and not each.get("shift")), None)
        if same is not None:
            shares[row["cell"]] = 100 * us_at([same], same["cell"]) / us_at([row], row["cell"])
            spreads[row["cell"]] = max(spread(row, OURS), spread(same, OURS))
    if not shares:
        raise FileError("no aligned array of that length")
    worst = min(shares, key=lambda cell: shares[cell])
    return at_least(shares[worst], 95, f"% of the aligned one at worst ({worst})", spreads[worst])


def _every_form(rows: Rows) -> Outcome:
    """Judge the host time of every form of a call, beside the best form that another library has for the same."""
    found = _there(rows, None, "form")
    rated = _rated(found)
    times = {row["cell"]: 1 / row["ratio"] for row in rated}
    late = sum(value > 1.2 for value in times.values())
    worst = max(times, key=lambda cell: times[cell])
    row = row_at(rated, worst)
    outcome = at_most(times[worst], 1.2, f"times {row['best_peer']} at worst ({worst})", spread(row, OURS))
    return _with_failed(replace(outcome, reached=f"{outcome.reached}; {late} of {len(times)} above 1.2"), found)


def _new_shapes(rows: Rows) -> Outcome:
    """Judge the median host time of calls of new shapes."""
    rated = _rated(_chosen(rows, None, "new shapes"))
    times = {row["cell"]: 1 / row["ratio"] for row in rated}
    worst = max(times, key=lambda cell: times[cell])
    row = row_at(rated, worst)
    return at_most(times[worst], 3.0, f"times {row['best_peer']} at worst ({worst})", spread(row, OURS))


def _no_compilation(rows: Rows) -> Outcome:
    found = _chosen(rows, None, "new shapes")
    compiled = {row["cell"]: row["entries"][OURS].get("compilations", 0) for row in found}
    worst = max(found, key=lambda row: row["entries"][OURS].get("worst_us", 0.0))
    reached = f"{sum(compiled.values())} compilations in {len(found)} kinds of call"
    longest = worst["entries"][OURS].get("worst_us", 0.0) / 1e3
    return Outcome(not any(compiled.values()), f"{reached}; the longest call {longest:.3g} ms ({worst['cell']})", "")


def _bound(rows: Rows) -> Outcome:
    times = {row["cell"]: us_at([row], row["cell"]) / us for row in rows if (us := median_us(row, BARE)) is not None}
    if not times:
        raise FileError("no bare launch was timed")
    worst = max(times, key=lambda cell: times[cell])
    return at_most(times[worst], 1.1, "times the bare driver call", spread(row_at(rows, worst), OURS, BARE))


def _compiles(prefix: str) -> Judge:
    def judge(rows: Rows) -> Outcome:
        found = _chosen([row for row in rows if row["cell"].startswith(prefix)], None, None)
        times = {row["cell"]: us_at([row], row["cell"]) / 1e3 for row in found}
        worst = max(times, key=lambda cell: times[cell])
        return at_most(
            times[worst], 60, f"ms at most ({worst.removeprefix(prefix)})", spread(row_at(rows, worst), OURS)
        )

    return judge


def _times_of(cell: str, peer: str, limit: float) -> Judge:
    """Return the judge of our time in a cell by a competitor's."""

    def judge(rows: Rows) -> Outcome:
        times = us_at(rows, cell) / us_at(rows, cell, peer)
        return at_most(times, limit, f"times {peer}'s", spread(row_at(rows, cell), OURS, peer))

    return judge


def _headers(op: str, kind: str, limit: float) -> Judge:
    """Return the judge of the slowest kernel's compilation by that of its headers."""

    def judge(rows: Rows) -> Outcome:
        slowest, headers = (f"processor time, {what}: {op}, {kind}" for what in ("slowest kernel", "headers alone"))
        return at_most(us_at(rows, slowest) / us_at(rows, headers), limit, "times", spread(row_at(rows, slowest), OURS))

    return judge


def _families(rows: Rows) -> Outcome:
    """Return by how much the compilation of the slowest other family takes longer than that of the sum's."""
    of_sum = us_at(rows, "processor time: sum, the whole family")
    others = ("mean_var", "argmax", "logsumexp")
    times = {op: us_at(rows, f"processor time: {op}, the whole family") / of_sum for op in others}
    worst = max(others, key=lambda op: times[op])
    return at_most(times[worst], 1.5, f"times the sum's ({worst})")


def _ms_below(cell: str, limit: float) -> Judge:
    return lambda rows: at_most(us_at(rows, cell) / 1e3, limit, "ms", spread(row_at(rows, cell), OURS))


_NONE_BEHIND = "no peer faster by more than the spread"

GOALS: tuple[Goal, ...] = (
    *(
        Goal("shapes", f"{SITUATIONS[mode]}: {_NONE_BEHIND} in {RANDOM_CELLS} cells of a new seed",
             none_behind(mode, kind="random", least=RANDOM_CELLS), by_seed=True)
        for mode in (AFTER, ALONE, BACK_TO_BACK)
    ),
    *(
        Goal("shapes", f"of models, {SITUATIONS[mode]}: {_NONE_BEHIND}", none_behind(mode, kind="model"))
        for mode in (AFTER, ALONE, BACK_TO_BACK)
    ),
    *(
        Goal(suite, f"{SITUATIONS[mode]}: {_NONE_BEHIND}", none_behind(mode))
        for suite in ("flat", "types", "axes", "stats", "segments")
        for mode in (AFTER, ALONE, BACK_TO_BACK)
    ),
    Goal("small", f"device time, in the L2: {_NONE_BEHIND}", none_behind("hot")),
    Goal("small", f"from the call to the value: {_NONE_BEHIND}", none_behind("host")),
    Goal("flat", "not slower than the fastest of those whose bits are reproducible, from 2^16 on",
         _beside(REPRODUCIBLE, 1.0, "no competitor whose bits are reproducible")),
    Goal("flat", "reproducible: at least 1.5 times CUB's gpu_to_gpu from 2^16 on",
         _beside(REPRODUCIBLE[:1], 1.5, "no gpu_to_gpu")),
    Goal("flat", "an array that is not aligned to 16 bytes: within 5 % of one that is", _unaligned, "cells"),
    Goal("types", "16- and 8-bit types: 93 % of float32's bytes per second at 2^30", _narrow_types, "cells"),
    Goal("host", "every form of a call at most 1.2 times PyTorch's, CuPy's or JAX's", _every_form),
    Goal("host", "a new shape at most 3 times PyTorch's or CuPy's call, in the median", _new_shapes),
    Goal("host", "no new shape compiles anything", _no_compilation),
    Goal("host", "bound launch at most 1.1 times the bare driver call", _bound, "cells"),
    Goal("cold", "first result within 120 ms if the cache is full",
         _ms_below("first result, warm cache", 120), "cells"),
    Goal("cold", "60 ms per kernel compiled", _compiles("plan compiled: ")),
    Goal("cold", "60 ms of processor time per kernel compiled", _compiles("processor time compiled: ")),
    Goal("cold", "import at most 40 ms longer than numpy and cuda.bindings alone", _ms_below("import", 40), "cells"),
    Goal("cold", "first result, empty cache: at most 1.5 times CuPy's",
         _times_of("first result, empty cache", "CuPy", 1.5), "cells"),
    Goal("cold", "first result with the wheel: at most CuPy's, and no NVRTC loaded",
         _times_of("first result, with the wheel", "CuPy", 1.0), "cells"),
    Goal("cold", "second operator, empty cache: at most CuPy's",
         _times_of("second operator, empty cache", "CuPy", 1.0), "cells"),
    Goal("cold", "a sum's kernel for whole arrays: 2.5 times the headers' processor time",
         _headers("sum", "whole arrays", 2.5), "cells"),
    Goal("cold", "a sum's other kernels: 4 times the headers' processor time", _headers("sum", "others", 4.0), "cells"),
    Goal("cold", "families of mean_var, argmax and logsumexp: 1.5 times the processor time of the sum's",
         _families, "cells"),
    Goal("cold", "no first result, with empty caches or full ones, later than the first of the others",
         none_behind("process")),
    Goal("parts", "one GPU or two, one process or two: no slower than PyTorch's sums", none_behind("host")),
)  # fmt: skip
"""All goals, in the order of the page's table."""
