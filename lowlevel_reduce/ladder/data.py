"""The elements that the rungs reduce, the right results, and how far right results may differ from them. Pure.

The elements are ``k / 256``, where `k` is drawn uniformly from -255 to 255 without 0 by NumPy's ``default_rng(SEED)``.
They are exact in float16. Every sum of them that stays below 2^16 is exact in float32, in any order. The magnitude of a
sum of n elements is about ``sqrt(n / 3)``; at n = 2^28 it would take seven standard deviations to leave that range. No
element is 0, so that a lost one is noticed. For a maximum the last element is 2, because the tail is what gets lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.ladder.plans import Shape

__all__ = ["EXACT_UP_TO", "SEED", "Verdict", "elements", "judge"]

SEED = 20260
EXACT_UP_TO = 1 << 28
"""The number of elements up to which every partial sum in float32 is exact."""

_DEVIATIONS = 6.0
_STEPS = 256
_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11}
_HALF_ULP_OF_SUBNORMALS = 2.0**-25  # of float16

Values = npt.NDArray[Any]


def elements(n: int, dtype: str, operation: str) -> Values:
    """Return `n` elements of type `dtype` for an operation; they are the same at each call."""
    k = np.random.default_rng(SEED).integers(1 - _STEPS, _STEPS - 1, n, dtype=np.int16)
    k += k >= 0
    values = k.astype(dtype)
    values /= np.asarray(_STEPS, dtype)
    if operation == "max" and n:
        values[-1] = 2.0
    return values


@dataclass(frozen=True)
class Verdict:
    """A result, added up if there are several numbers, and what it should be."""

    value: float
    reference: float
    relative_error: float
    correct: bool


def judge(operation: str, values: Values, got: Values, shape: Shape, accumulator: str) -> Verdict:
    """Compare a result with that of float64.

    Parameters
    ----------
    operation : str
        The rung's operation.
    values : numpy.ndarray
        The elements, in the shape ``shape.shape``.
    got : numpy.ndarray
        The result, 1-d.
    shape : Shape
        How the rung ran: its additions determine how far a sum that is not exact may be off.
    accumulator : str
        Type in which sums were computed: "float32" or "float16".

    Returns
    -------
    Verdict
        For sums along an axis, the values are totals, and the error is that of the worst sum. For a transpose, they are
        checksums weighted by the row, and the result is right if every element is equal.
    """
    if operation == "transpose":
        return _judge_transpose(values, got)
    if operation == "max":
        return _judge_max(values, got)
    reference = _sums(operation, values)
    result = got.astype(np.float64)
    errors = np.abs(result - reference)
    # A NaN is never within the bound, and its error is NaN, which is the maximum.
    correct = bool((errors <= _bound(values, max(reference.size, 1), shape, accumulator)).all())
    sizes = np.where(reference == 0, 1.0, np.abs(reference))
    return Verdict(float(result.sum()), float(reference.sum()), float((errors / sizes).max(initial=0.0)), correct)


def _sums(operation: str, values: Values) -> Values:
    axis = {"sum": None, "inner": 1, "outer": 0}[operation]
    return np.atleast_1d(np.sum(values, axis=axis, dtype=np.float64))


def _bound(values: Values, sums: int, shape: Shape, accumulator: str) -> float:
    """Return how far a right sum may be from the exact one.

    That is 0 if every addition is exact. Otherwise the rounding errors, of either sign, add up like a random walk. With
    `levels` additions between an element and the result, each of which rounds a sum whose size is the square root of
    the sum of its elements' squares, the error's standard deviation is ``u * sqrt(levels * sum(x^2))``. Six of these
    are allowed. Halving into the subnormal numbers of float16 adds half a unit of these per level, which the scale
    that is applied to the result enlarges again.
    """
    count = values.size // sums
    if accumulator == "float32" and count <= EXACT_UP_TO:
        return 0.0
    squares = 2 * count / 3  # twice the expected value for these elements
    levels = shape.levels if accumulator == "float16" else max(count, 1)
    deviation = _ROUNDOFF[accumulator] * math.sqrt(levels * squares)
    if shape.scale > 1:
        deviation += _HALF_ULP_OF_SUBNORMALS * math.sqrt(2.0) * shape.scale
    return _DEVIATIONS * deviation


def _judge_max(values: Values, got: Values) -> Verdict:
    # All bits are set: the initial value of the result, so there was no element.
    empty = got.view(np.uint32)[0] == 0xFFFFFFFF
    value = -math.inf if empty else float(got[0])
    reference = float(values.max(initial=-np.inf))
    error = 0.0 if value == reference else abs(value - reference) / (abs(reference) or 1.0)
    return Verdict(value, reference, error, value == reference)


def _judge_transpose(values: Values, got: Values) -> Verdict:
    expected = values.T
    result = got.reshape(expected.shape)
    weights = np.arange(1, expected.shape[0] + 1) / max(expected.shape[0], 1)
    value, reference = (float(weights @ array.sum(axis=1, dtype=np.float64)) for array in (result, expected))
    correct = bool(np.array_equal(result, expected))
    return Verdict(value, reference, abs(value - reference) / (abs(reference) or 1.0), correct)
