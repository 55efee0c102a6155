"""Mean and variance in one pass, about each row's first element; ``operator_moments.cuh`` says what that cancels."""

from __future__ import annotations

import numpy as np

from lowlevel_reduce.dtypes import ElementType
from lowlevel_reduce.operators.arithmetic import round_to, widen
from lowlevel_reduce.operators.base import Array, Fields, Items, Reduction, Row, TypeRule, Types
from lowlevel_reduce.operators.sums import float_rule

__all__ = ["mean_var", "std", "var"]


def _rule(name: str, element: ElementType) -> TypeRule:
    return float_rule(name)(element)._replace(accumulators=("float64",))


def _pivot(first: Array, types: Types) -> Array:
    x = widen(first, "float64")
    return np.where(np.isfinite(x), x, 0.0)  # infinity - infinity would hide what the mean is


def _map(items: Items, types: Types) -> Fields:
    d = widen(items.x, "float64") - items.pivot
    return d, d * d


def _mean(fields: Fields, row: Row) -> Array:
    mean: Array = row.pivot + fields[0] / np.float64(row.length)
    return mean


def _variance(fields: Fields, row: Row, ddof: int) -> Array:
    total, squares = fields
    rest = squares - total * (total / np.float64(row.length))
    rest = np.where(rest < 0.0, 0.0, rest)
    variance: Array = rest / np.float64(max(row.length - ddof, 0))
    return variance


def _moments(name: str, struct: str, ddof: int, *, names: tuple[str, ...], root: bool = False) -> Reduction:
    def finish(fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
        variance = _variance(fields, row, ddof)
        results = {"mean": _mean(fields, row), "var": variance, "result": np.sqrt(variance) if root else variance}
        return tuple(round_to(results[each], types.result_dtype) for each in names)

    def c_type(types: Types) -> str:
        return f"{struct}<{types.element.c_name}, float64, {types.result}, {ddof}>"

    return Reduction(
        name=name,
        label=f"{name}_{ddof}",
        struct=c_type,
        rule=lambda element: _rule(name, element),
        identity=lambda types: (-0.0, -0.0),
        map=_map,
        combine=lambda a, b, types: (a[0] + b[0], a[1] + b[1]),
        finish=finish,
        empty=(np.nan,) * len(names),
        size=lambda types: 16,
        result_names=names,
        pivot=_pivot,
    )


def var(ddof: int) -> Reduction:
    """Return the variance: the sum of squared deviations from the mean, divided by n - `ddof`."""
    return _moments("var", "Variance", ddof, names=("result",))


def std(ddof: int) -> Reduction:
    """Return the standard deviation, the root of `var`."""
    return _moments("std", "Deviation", ddof, names=("result",), root=True)


def mean_var(ddof: int) -> Reduction:
    """Return mean and variance from one pass."""
    return _moments("mean_var", "MeanVariance", ddof, names=("mean", "var"))
