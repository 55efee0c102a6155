"""Which elements a wrong sum lacks, or has several times: found by a bisection over runs of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Weights", "wrong_elements"]

Run = Callable[[npt.NDArray[Any]], float]


@dataclass(frozen=True)
class Weights:
    """How a kernel weights the elements, where not by 1.

    Attributes
    ----------
    first, last : int
        The first and the last element that is not added exactly once.
    weight : float
        How often the first of them is added.
    """

    first: int
    last: int
    weight: float

    def __str__(self) -> str:
        often = {0.0: "never added", 1.0: "added once", 2.0: "added twice"}
        what = f"element {self.first} is {often.get(self.weight, f'added {self.weight:g} times')}"
        if self.first == self.last:
            return what
        return f"{what}, and element {self.last} is the last that is not added once"


def wrong_elements(run: Run, n: int, dtype: Any) -> Weights | None:
    """Return which of `n` elements a kernel does not add exactly once, in about ``2 log2(n)`` runs.

    The kernel must add each element some number of times. The elements are 1 to 7 in a part of the array, drawn so that
    errors at several places hardly cancel, and 0 elsewhere: their sums are exact in any order. Returns None if every
    element is added once.

    Parameters
    ----------
    run : callable
        Runs the kernel over elements and returns its sum.
    n : int
        Number of elements.
    dtype : dtype-like
        Type of the elements.
    """
    drawn = np.random.default_rng(n).integers(1, 8, n)

    def of(start: int, end: int) -> float:
        values = np.zeros(n, dtype)
        values[start:end] = drawn[start:end]
        return run(values)

    def wrong(start: int, end: int) -> bool:
        return bool(of(start, end) != drawn[start:end].sum())

    if n == 0 or not wrong(0, n):
        return None
    first = _first(lambda end: wrong(0, end), n)
    last = n - _first(lambda count: wrong(n - count, n), n) - 1
    return Weights(first, last, of(first, first + 1) / float(drawn[first]))


def _first(wrong_up_to: Callable[[int], bool], n: int) -> int:
    """Return the place of the first wrong element: the shortest beginning that is wrong has it at its end."""
    low, high = 0, n  # a beginning of `low` elements is right, one of `high` is wrong
    while high - low > 1:
        middle = (low + high) // 2
        if wrong_up_to(middle):
            high = middle
        else:
            low = middle
    return high - 1
