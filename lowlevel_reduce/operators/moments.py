"""Mean and variance in one pass, about each row's first element; ``operator_moments.cuh`` says what that cancels."""

from __future__ import annotations

import numpy as np

from lowlevel_reduce.dtypes import ElementType
from lowlevel_reduce.operators.arithmetic import round_to, widen
from lowlevel_reduce.operators.base import Array, Fields, Items, Reduction, Row, TypeRule, Types
from lowlevel_reduce.operators.sums import float_rule

__all__ = ["mean_var", "std", "var"]


def _rule(name: str, element: ElementType) -> TypeRule:
    # mean_var refuses complex elements: the variance is real and the mean is not, but both results must have one type.
    return float_rule(name, complex_as=None if name == "mean_var" else "float64")(element)._replace(
        accumulators=("float64",)
    )


def _finite_or_zero(x: Array) -> Array:
    return np.where(np.isfinite(x), x, 0.0)  # infinity - infinity would be NaN, whatever the mean is


def _pivot(first: Array, types: Types) -> Array:
    if not types.element.is_complex:
        return _finite_or_zero(widen(first, "float64"))
    pivot = np.empty(first.shape, np.complex128)
    pivot.real, pivot.imag = _finite_or_zero(first.real), _finite_or_zero(first.imag)
    return pivot


def _map(items: Items, types: Types) -> Fields:
    if types.element.is_complex:
        assert items.pivot is not None  # noqa: S101 - whoever calls map has looked at `pivot`
        re, im = (part.astype(np.float64) for part in (items.x.real, items.x.imag))
        re, im = re - items.pivot.real, im - items.pivot.imag
        return re, im, re * re + im * im
    d = widen(items.x, "float64") - items.pivot
    return d, d * d


def _fields(types: Types) -> int:
    """Return how many sums there are: of the deviations (for complex elements, of both parts) and of the squares."""
    return 3 if types.element.is_complex else 2


def _mean(fields: Fields, row: Row) -> Array:
    mean: Array = row.pivot + fields[0] / np.float64(row.length)
    return mean


def _variance(fields: Fields, row: Row, ddof: int) -> Array:
    *totals, squares = fields
    products = [total * (total / np.float64(row.length)) for total in totals]
    rest = squares - (products[0] if len(products) == 1 else products[0] + products[1])
    rest = np.where(rest < 0.0, 0.0, rest)
    variance: Array = rest / np.float64(max(row.length - ddof, 0))
    return variance


def _moments(name: str, struct: str, ddof: int, *, names: tuple[str, ...], root: bool = False) -> Reduction:
    def finish(fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
        variance = _variance(fields, row, ddof)
        results = {"var": variance, "result": np.sqrt(variance) if root else variance}
        if "mean" in names:
            results["mean"] = _mean(fields, row)
        return tuple(round_to(results[each], types.result_dtype) for each in names)

    def c_type(types: Types) -> str:
        kind = "Complex" if types.element.is_complex else ""
        return f"{kind}{struct}<{types.element.c_name}, float64, {types.result}, {ddof}>"

    return Reduction(
        name=name,
        label=f"{name}_{ddof}",
        struct=c_type,
        rule=lambda element: _rule(name, element),
        identity=lambda types: (-0.0,) * _fields(types),
        map=_map,
        combine=lambda a, b, types: tuple(x + y for x, y in zip(a, b, strict=True)),
        finish=finish,
        empty=(np.nan,) * len(names),
        size=lambda types: 8 * _fields(types),
        is_heavy=lambda types: types.element.is_complex,
        # A vector of bytes gives one accumulator, not sixteen.
        fits_full_block=lambda types: types.element.dtype.kind in "iu" and types.element.itemsize == 1,
        result_names=names,
        pivot=_pivot,
    )


def var(ddof: int) -> Reduction:
    """Return the variance: the sum of squared deviations from the mean, divided by n - `ddof`."""
    return _moments("var", "Variance", ddof, names=("result",))


def std(ddof: int) -> Reduction:
    """Return the standard deviation, the square root of `var`."""
    return _moments("std", "Deviation", ddof, names=("result",), root=True)


def mean_var(ddof: int) -> Reduction:
    """Return mean and variance from one pass."""
    return _moments("mean_var", "MeanVariance", ddof, names=("mean", "var"))
