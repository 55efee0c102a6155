"""The elements of cases, and the expected results. Pure.

The elements repeat a block of 2^22. They are small integers divided by a power of two, so every partial sum is exact in
every accumulator that is compared, whatever the order. So the sum of any length is known without adding it up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measure.cases import BLOCK, Case
from lowlevel_reduce import ReduceError
from lowlevel_reduce.dtypes import numpy_dtype

__all__ = ["BLOCK", "LAG", "Case", "Pattern", "check"]

LAG = 1 << 10
"""So many elements later in the pattern does the second array of a dot product begin, so that the two differ."""

SAMPLED = 48
"""How many results are checked if a case has many rows."""

SAMPLED_ELEMENTS = 1 << 24

Array = npt.NDArray[Any]


class Pattern:
    """The block of elements of one type: integers `k`, their divisor, and `values`, which are k / divisor."""

    def __init__(self, dtype: str) -> None:
        self.dtype = numpy_dtype(dtype)
        rng = np.random.default_rng(22)
        self.divisor = 1
        if self.dtype.kind == "b":
            self.k = rng.integers(0, 2, BLOCK, dtype=np.int16)
        elif self.dtype.kind == "u":
            self.k = rng.integers(0, 4, BLOCK, dtype=np.int16)  # 2^30 of them stay below 2^32
        else:
            largest = {"float8_e4m3fn": 15, "float8_e5m2": 7}.get(
                self.dtype.name, 100 if self.dtype.kind == "i" else 255
            )
            self.divisor = 1 if self.dtype.kind == "i" else largest + 1
            self.k = rng.integers(-largest, largest + 1, BLOCK, dtype=np.int16)
            # A block's values add up to 64: totals are not near zero, and exact in float32 up to 2^32 elements.
            self._lower_to(64 * self.divisor)
        self.values = (self.k / self.divisor).astype(self.dtype) if self.divisor > 1 else self.k.astype(self.dtype)

    def _lower_to(self, total: int) -> None:
        excess = int(self.k.sum(dtype=np.int64)) - total
        step = 1 if excess > 0 else -1
        places = np.flatnonzero(self.k * step > 0)[: abs(excess)]
        self.k[places] -= step

    def counts(self, size: int, first: int = 0) -> tuple[Array, Array]:
        """Return the distinct values of `size` elements from `first` on, as float64, and how often each occurs."""
        return self._present(self._counted(first + size) - self._counted(first))

    def counts_of_places(self, places: Array) -> tuple[Array, Array]:
        """Return the same of elements of which so many are at each place of the block (`Case.places`)."""
        values, inverse = self._distinct
        return self._present(np.bincount(inverse, places, len(values)).astype(np.int64))

    def _present(self, counts: Array) -> tuple[Array, Array]:
        values, _ = self._distinct
        present = counts > 0
        return values[present] / self.divisor, counts[present]

    def _counted(self, size: int) -> Array:
        values, inverse = self._distinct
        repeats, rest = divmod(size, BLOCK)
        counts: Array = np.bincount(inverse[:rest], minlength=len(values))
        return counts + repeats * np.bincount(inverse, minlength=len(values)) if repeats else counts

    @cached_property
    def _distinct(self) -> tuple[Array, Array]:
        values, inverse = np.unique(self.k, return_inverse=True)
        return values.astype(np.float64), inverse

    def dot(self, size: int, first: int = 0) -> float:
        """Return the dot product of `size` elements from `first` on with the elements `LAG` further on."""
        products = self.k.astype(np.int64) * np.roll(self.k, -LAG)
        repeats, rest = divmod(first + size, BLOCK)
        return int(repeats * products.sum() + products[:rest].sum() - products[:first].sum()) / self.divisor**2

    def dot_of_places(self, places: Array) -> float:
        """Return the same of elements of which so many are at each place of the block."""
        products = self.k.astype(np.int64) * np.roll(self.k, -LAG)
        return int(places @ products) / self.divisor**2

    def at(self, numbers: Array) -> Array:
        """Return the elements with these indices as float64."""
        taken: Array = self.k[numbers % BLOCK] / self.divisor
        return taken


@lru_cache(maxsize=2)
def pattern(dtype: str) -> Pattern:
    """Return the pattern of a type, made once."""
    return Pattern(dtype)


def _mean_var(values: Array, counts: Array) -> tuple[float, ...]:
    mean = float(values @ counts) / counts.sum()
    return (mean, float((values - mean) ** 2 @ counts) / counts.sum())


def _softmax_stats(values: Array, counts: Array) -> tuple[float, ...]:
    top = float(values.max())
    return top, float(np.exp(values - top) @ counts)


def _logsumexp(values: Array, counts: Array) -> tuple[float, ...]:
    top, total = _softmax_stats(values, counts)
    return (top + math.log(total),)


def _prod(values: Array, counts: Array) -> tuple[float, ...]:
    if not values.all():
        return (0.0,)
    raise ValueError("of a product only those with a zero are known")


_REDUCED: Mapping[str, Callable[[Array, Array], tuple[float, ...]]] = {
    "sum": lambda values, counts: (float(values @ counts),),
    "mean": lambda values, counts: (float(values @ counts) / counts.sum(),),
    "prod": _prod,
    "min": lambda values, _: (float(values.min()),),
    "max": lambda values, _: (float(values.max()),),
    "minmax": lambda values, _: (float(values.min()), float(values.max())),
    "any": lambda values, _: (float((values != 0).any()),),
    "all": lambda values, _: (float((values != 0).all()),),
    "count_nonzero": lambda values, counts: (float(counts[values != 0].sum()),),
    "norm1": lambda values, counts: (float(np.abs(values) @ counts),),
    "norm2": lambda values, counts: (math.sqrt(float(values**2 @ counts)),),
    "norm_inf": lambda values, _: (float(np.abs(values).max()),),
    "sum_squares": lambda values, counts: (float(values**2 @ counts),),
    "var": lambda values, counts: _mean_var(values, counts)[1:],
    "std": lambda values, counts: (math.sqrt(_mean_var(values, counts)[1]),),
    "mean_var": _mean_var,
    "logsumexp": _logsumexp,
    "softmax_stats": _softmax_stats,
}


def reduced(op: str, values: Array, counts: Array) -> tuple[float, ...]:
    """Return the results over values of which each occurs `counts` times, in float64."""
    if op not in _REDUCED:
        raise ValueError(f"no results are known for {op!r}")
    return _REDUCED[op](values, counts)


def check(case: Case, planes: list[Array], *, exact: bool, known: dict[int, tuple[float, ...]] | None = None) -> None:
    """Raise if results are wrong: exact sums by a bit, all others by more than 1e-3 and one rounding to their type.

    Parameters
    ----------
    case : Case
        What was reduced.
    planes : list of numpy.ndarray
        Its results, one 1-d array for each value that a row reduces to.
    exact : bool
        Whether sums must be those of exact arithmetic, rounded once to the result's type.
    known : dict, optional
        A cache of this case's expected results by row, shared by its contenders.

    Raises
    ------
    ReduceError
        Says which result is wrong, what it is and what it should be.
    """
    chosen, expected = pattern(case.dtype), {} if known is None else known
    if any(plane.size != case.rows for plane in planes):
        raise ReduceError(f"{case.rows} results are due, not {[plane.size for plane in planes]}: not timed")
    for index in _sampled(case):
        if case.op in ("argmin", "argmax"):
            _check_index(case, int(planes[0][index]), index, chosen)
            continue
        if index not in expected:
            expected[index] = _expected(case, index, chosen)
        size = math.sqrt(max(1, case.size // case.rows))
        for plane, right in zip(planes, expected[index], strict=True):
            got = plane[index]
            with np.errstate(over="ignore"):  # in float16 some results over 2^28 elements are infinite
                same = bool(np.asarray(right).astype(plane.dtype) == got)
            if not (exact and case.op == "sum" and _is_exact(case)):
                near = 1e-3 * max(abs(right), size if case.op in ("sum", "dot") else 1e-3)
                near = max(near, _rounding(case) * max(abs(right), 1.0))
                same = same or _near(got, right, near)
            if not same:
                raise ReduceError(f"result {index} of {case.op} is {got}, not {right}: not timed")


def _is_exact(case: Case) -> bool:
    """Return whether every partial sum is exact: of 16 bits in float32, only if the elements are neighbours.

    Those of a step of the block need not be near zero in sum, and 2^28 of them may exceed 24 bits.
    """
    return case.strides is None or numpy_dtype(case.dtype).itemsize >= 4


def _rounding(case: Case) -> float:
    """Return the relative error of a competitor that rounds to 16 bits a few times on the way, 0 for other types."""
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(case.dtype, 0.0)
    return 4 * eps if case.op in ("logsumexp", "var", "std", "mean_var", "norm2") else 0.0


def _near(got: Any, right: float, near: float) -> bool:
    """Return whether a result is a value within `near` of the right one, rounded once to the result's type.

    For example, a sum that is 610.4 in float32 is 612 in bfloat16, where neighbouring numbers are 4 apart.
    """
    value, dtype = float(np.real(got)), np.asarray(got).dtype
    if not abs(float(np.imag(got))) <= near:  # the elements are real numbers
        return False
    if abs(value - right) <= near or dtype.kind in "biu":
        return abs(value - right) <= near
    with np.errstate(over="ignore"):
        least, most = (float(np.real(np.asarray(edge).astype(dtype))) for edge in (right - near, right + near))
    return least <= value <= most


def _expected(case: Case, index: int, chosen: Pattern) -> tuple[float, ...]:
    if case.op == "dot":
        if _is_dense(case):
            return (chosen.dot(case.size, case.shift),)
        if _is_long(case):
            return (chosen.dot_of_places(case.places(index)),)
        row = case.row(index)
        return (float(chosen.at(row) @ chosen.at(row + LAG)),)
    values, counts = _values(case, index, chosen)
    return reduced(case.op, values, counts) if values.size else (0.0,)


def _values(case: Case, index: int, chosen: Pattern) -> tuple[Array, Array]:
    """Return the values of a row, and how often each occurs."""
    if _is_dense(case):
        return chosen.counts(case.size, case.shift)
    if _is_long(case):
        return chosen.counts_of_places(case.places(index))
    values = chosen.at(case.row(index))
    return values, np.ones(values.size, np.int64)


def _is_dense(case: Case) -> bool:
    """Return whether the only row consists of neighbours in memory, in whatever order."""
    return case.rows == 1 and case.offsets is None and case.span == case.size and 0 not in case.element_strides


def _is_long(case: Case) -> bool:
    return case.offsets is None and case.size // max(case.rows, 1) > BLOCK


def _sampled(case: Case) -> list[int]:
    length = max(1, case.size // max(case.rows, 1))
    elements = SAMPLED_ELEMENTS if case.is_plain else SAMPLED_ELEMENTS // 4
    many = int(min(case.rows, max(1, min(SAMPLED, elements // length))))
    return sorted({int(index) for index in np.linspace(0, case.rows - 1, many)})


def _check_index(case: Case, got: int, index: int, chosen: Pattern) -> None:
    best = np.min if case.op == "argmin" else np.max
    values, _ = _values(case, index, chosen)
    right, length = best(values), case.size // case.rows if case.offsets is None else values.size
    there = chosen.at(np.asarray([case.number(index, got)]))[0] if 0 <= got < length else math.nan
    if there != right:
        raise ReduceError(f"element {got} of row {index} is {there}, that of {case.op} is {right}: not timed")
