"""Mean and variance of the elements that a mask leaves, by pairs: ``operator_masked_moments.cuh`` says why and how."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowlevel_reduce.operators.arithmetic import quotient, root, template, widen
from lowlevel_reduce.operators.base import Array, Fields, Items, Reduction, Row, Types
from lowlevel_reduce.operators.moments import constants_of, moment_rule
from lowlevel_reduce.operators.rounding import round_pair

__all__ = ["masked_moments"]

_STRUCTS = {"var": "MaskedVariance", "std": "MaskedDeviation", "mean_var": "MaskedMeanVariance"}


def _parts(types: Types) -> int:
    return 2 if types.element.is_complex else 1


def _map(items: Items, types: Types) -> Fields:
    """Return the elements, zeros as squares, or NaN where an element is not finite, and ones as counts."""
    if types.element.is_complex:
        sums: Fields = (items.x.real.astype(np.float64), items.x.imag.astype(np.float64))
    else:
        sums = (widen(items.x, "float64"),)
    zeros = sums[0] - sums[0]
    return *sums, zeros if len(sums) == 1 else zeros + (sums[1] - sums[1]), np.ones_like(sums[0])


def _between(a: Array, m: Array, b: Array, n: Array) -> Array:
    """Return what two sums of m and n elements add to the squares; nothing if one is of no element."""
    d = a / m - b / n
    return np.where((m == 0.0) | (n == 0.0), 0.0, d * d * (m * n / (m + n)))


def _combine(a: Fields, b: Fields, types: Types) -> Fields:
    (*sums_a, squares_a, m), (*sums_b, squares_b, n) = a, b
    between = [_between(x, m, y, n) for x, y in zip(sums_a, sums_b, strict=True)]
    squares = (squares_a + squares_b) + (between[0] if len(between) == 1 else between[0] + between[1])
    return *(x + y for x, y in zip(sums_a, sums_b, strict=True)), squares, m + n


def masked_moments(name: str, ddof: float) -> Reduction:
    """Return var, std or mean_var as it is computed with a mask."""
    names = ("mean", "var") if name == "mean_var" else ("result",)

    def finish(fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
        *sums, squares, count = fields
        pair = quotient((squares, np.zeros_like(squares)), np.maximum(count - ddof, 0.0))
        result = round_pair(root(pair[0]) if name == "std" else pair, types.result_dtype)
        if name != "mean_var":
            return (result,)
        return round_pair(quotient((sums[0], np.zeros_like(sums[0])), count), types.result_dtype), result

    def nothing(types: Types, zero: float) -> tuple[Any, ...]:
        return (*(zero,) * _parts(types), 0.0, 0.0)

    return Reduction(
        name=name,
        label=name,
        struct=template(_STRUCTS[name]),
        rule=lambda element: moment_rule(name, element),
        identity=lambda types: nothing(types, -0.0),
        skipped=lambda types: nothing(types, 0.0),
        map=_map,
        combine=_combine,
        finish=finish,
        empty=(np.nan,) * len(names),
        size=lambda types: 8 * (_parts(types) + 2),
        is_heavy=lambda types: True,
        result_names=names,
        constants=constants_of(ddof),
        least=ddof,
    )
