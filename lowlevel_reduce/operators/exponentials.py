"""Sums of exponentials relative to the largest element, in one pass over the elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lowlevel_reduce.dtypes import ElementType, numpy_dtype
from lowlevel_reduce.operators.arithmetic import template, widen
from lowlevel_reduce.operators.base import Array, Fields, Items, Reduction, Row, TypeRule, Types
from lowlevel_reduce.operators.rounding import round_to
from lowlevel_reduce.operators.sums import float_rule

__all__ = ["LOGSUMEXP", "SOFTMAX_REST", "SOFTMAX_STATS"]

LOG2_E = 1.4426950408889634


def _map(items: Items, types: Types) -> Fields:
    x = widen(items.x, types.accumulator)
    return x, np.zeros_like(x)  # the sum of the others' terms: that of the largest, which is 1, is not lost in them


def _combine(a: Fields, b: Fields, types: Types) -> Fields:
    swap = a[0] > b[0]
    low, high = np.where(swap, b[1], a[1]), np.where(swap, a[1], b[1])
    # The difference of two equal infinities is NaN, which fmin replaces by 0; a NaN element survives in the maximum.
    difference = np.fmin(-np.abs(a[0] - b[0]), a[0].dtype.type(0.0))
    if types.accumulator == "float32":
        e = np.exp2(difference * np.float32(LOG2_E))
        e = np.where(e < np.finfo(np.float32).tiny, np.float32(0.0), e)
    else:
        e = np.exp(difference)
    return np.maximum(a[0], b[0]), high + (low * e + e)


def _logsumexp(fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
    return (round_to(fields[0] + np.log1p(fields[1]), types.result_dtype),)


def _softmax_stats(fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
    nan = np.isnan(fields[0]) | np.isnan(fields[1])  # if an element is NaN, so is one of the two
    largest, total = (np.where(nan, field.dtype.type(np.nan), field) for field in fields)
    largest = largest + largest.dtype.type(0.0)  # zero becomes +0.0: which zero is the maximum depends on the order
    return round_to(largest, types.result_dtype), round_to(total + total.dtype.type(1.0), types.result_dtype)


def _softmax_rest(fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
    nan = np.isnan(fields[0]) | np.isnan(fields[1])
    largest, rest = (np.where(nan, field.dtype.type(np.nan), field) for field in fields)
    return round_to(largest + largest.dtype.type(0.0), types.result_dtype), round_to(rest, types.result_dtype)


def _rule(name: str) -> Callable[[ElementType], TypeRule]:
    """Return the rule: types up to float32 accumulate in float32, for which the hardware has exponentials."""
    plain = float_rule(name)

    def rule(element: ElementType) -> TypeRule:
        given = plain(element)
        if "float32" not in given.accumulators:
            return given
        others = tuple(each for each in given.accumulators if each != "float32")
        return given._replace(accumulators=("float32", *others))

    return rule


def _exponentials(name: str, struct: str, **options: Any) -> Reduction:
    return Reduction(
        name=name,
        label=name,
        struct=template(struct),
        rule=_rule(name),
        identity=lambda types: (-np.inf, -1.0),  # no element, so no term of 1 either
        map=_map,
        combine=_combine,
        size=lambda types: 2 * numpy_dtype(types.accumulator).itemsize,
        is_heavy=lambda types: types.accumulator == "float64",
        exact=False,
        **options,
    )


# The error bounds. A level of the tree turns sums a and b of relative error r into a + b e, where b e <= a + b is at
# most half of it unless b is the larger sum. The device's e differs from NumPy's by 2 ulp of ex2 and 1 ulp of NumPy's
# exp2; the roundings of the product and of the sum add one each: at most 5 epsilon per level. The logarithm turns a
# relative error into an absolute one, and is itself accurate to 2 ulp.
LOGSUMEXP = _exponentials("logsumexp", "LogSumExp", finish=_logsumexp, empty=(-np.inf,), ulps=2.0, absolute=5.0)
SOFTMAX_STATS = _exponentials(
    "softmax_stats",
    "SoftmaxStats",
    finish=_softmax_stats,
    empty=(-np.inf, 0.0),
    result_names=("max", "sum"),
    ulps=2.0,
    relative=5.0,
)

SOFTMAX_REST = _exponentials(
    "softmax_rest",
    "SoftmaxRest",
    finish=_softmax_rest,
    empty=(-np.inf, -1.0),
    result_names=("max", "rest"),
    ulps=2.0,
    relative=5.0,
)
"""As `SOFTMAX_STATS`, with the sum of the others' exponentials alone: the largest element's 1 is not added, by which a
small sum would lose digits. It is for row operations, and has no function of its own."""
