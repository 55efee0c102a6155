"""What the rungs reduce, what is right, and how far a right result may be off. Pure.

The elements are ``k / 256``, with `k` drawn evenly from -255 to 255 without 0 by NumPy's ``default_rng(SEED)``. They
are exact in float16, and so is every sum of them in float32 that stays below 2^16, in whatever order it is made:
a sum of n of them is of the size of ``sqrt(n / 3)``, and at n = 2^28 it would take seven standard deviations to leave
that range. No element is 0, so that a lost one shows. For a maximum the last element is 2: the tail is what gets lost.
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
"""Elements up to which every partial sum in float32 is exact."""

_DEVIATIONS = 6.0
_STEPS = 256
_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11}
_HALF_ULP_OF_SUBNORMALS = 2.0**-25  # of float16

Values = npt.NDArray[Any]


def elements(n: int, dtype: str, operation: str) -> Values:
    """Return `n` elements of type `dtype` for an operation, the same ones at each call."""
    k = np.random.default_rng(SEED).integers(1 - _STEPS, _STEPS - 1, n, dtype=np.int16)
    k += k >= 0
    values = k.astype(dtype)
    values /= np.asarray(_STEPS, dtype)
    if operation == "max" and n:
        values[-1] = 2.0
    return values


@dataclass(frozen=True)
class Verdict:
    """A result, summed up to one number where it is many, beside what it should be."""

    value: float
    reference: float
    relative_error: float
    correct: bool


def judge(operation: str, values: Values, got: Values, shape: Shape, accumulator: str) -> Verdict:
    """Compare a result with the one that float64 gives.

    Parameters
    ----------
    operation : str
        The rung's.
    values : numpy.ndarray
        The elements, of the shape ``shape.shape``.
    got : numpy.ndarray
        The result, 1-d.
    shape : Shape
        How it ran: its additions decide how far a sum that is not exact may be off.
    accumulator : str
        Type in which sums were made: "float32" or "float16".

    Returns
    -------
    Verdict
        For sums along an axis the values are totals, and the error that of the worst sum. For a transpose they are
        checksums weighted by the row, and right means equal in every element.
    """
    if operation == "transpose":
        return _judge_transpose(values, got)
    if operation == "max":
        return _judge_max(values, got)
    reference = _sums(operation, values)
    result = got.astype(np.float64)
    errors = np.abs(result - reference)
    # A NaN is never below the bound, and its error is a NaN: the worst there is.
    correct = bool((errors <= _bound(values, max(reference.size, 1), shape, accumulator)).all())
    sizes = np.where(reference == 0, 1.0, np.abs(reference))
    return Verdict(float(result.sum()), float(reference.sum()), float((errors / sizes).max(initial=0.0)), correct)


def _sums(operation: str, values: Values) -> Values:
    axis = {"sum": None, "inner": 1, "outer": 0}[operation]
    return np.atleast_1d(np.sum(values, axis=axis, dtype=np.float64))


def _bound(values: Values, sums: int, shape: Shape, accumulator: str) -> float:
    """Return how far a right sum may be from the exact one.

    Nothing, where each addition is exact. Else roundings of either sign add up like a walk: with `levels` additions
    between an element and the result, each of them rounding a sum of the size of the square root of its elements'
    squares, the error has the standard deviation ``u * sqrt(levels * sum(x^2))``, of which six are allowed. Halving
    into the subnormal numbers of float16 adds half a unit there a level, which the reader's scale makes large again.
    """
    count = values.size // sums
    if accumulator == "float32" and count <= EXACT_UP_TO:
        return 0.0
    squares = 2 * count / 3  # twice what is expected of these elements
    levels = shape.levels if accumulator == "float16" else max(count, 1)
    deviation = _ROUNDOFF[accumulator] * math.sqrt(levels * squares)
    if shape.scale > 1:
        deviation += _HALF_ULP_OF_SUBNORMALS * math.sqrt(2.0) * shape.scale
    return _DEVIATIONS * deviation


def _judge_max(values: Values, got: Values) -> Verdict:
    # All bits set: what the result was before the first element, of which there is none.
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
