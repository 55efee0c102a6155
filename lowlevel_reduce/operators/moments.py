"""Mean and variance in one pass, about each row's first element; ``operator_moments.cuh`` says what that cancels.

With the mean: ``operator_mean_variance.cuh``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lowlevel_reduce.dtypes import ElementType
from lowlevel_reduce.operators.arithmetic import quotient, root, template, widen
from lowlevel_reduce.operators.base import Array, Fields, Items, Reduction, Row, TypeRule, Types
from lowlevel_reduce.operators.rounding import round_pair, round_to
from lowlevel_reduce.operators.sums import float_rule, mean_of

__all__ = ["constants_of", "mean_var", "moment_rule", "std", "var"]

_LARGE_SQUARE = 2.0**960
_FROM_UNITS, _TO_UNITS = 2.0**560, 2.0**-560


def moment_rule(name: str, element: ElementType) -> TypeRule:
    """Return what var, std or mean_var allows for an element type."""
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


def _total_type(types: Types) -> str | None:
    """Return the type of the elements' own sum that gives the mean; None if the sum of deviations does."""
    element = types.element
    if element.is_float:
        return "float64" if element.itemsize == 8 or types.result == "float64" else None
    if element.itemsize < 4:
        return None
    return element.accumulators[0] if element.itemsize == 4 else "float64"


def _has_units(types: Types) -> bool:
    return types.element.name in ("float64", "complex128")


def _map(items: Items, types: Types) -> Fields:
    """Return deviations and squares: negative, and in units of 2**560, where the square is not below 2**960."""
    assert items.pivot is not None  # noqa: S101 - whoever calls map has looked at `pivot`
    if types.element.is_complex:
        pairs = [
            (items.x.real.astype(np.float64), items.pivot.real),
            (items.x.imag.astype(np.float64), items.pivot.imag),
        ]
    else:
        pairs = [(widen(items.x, "float64"), items.pivot)]
    deviations = [x - pivot for x, pivot in pairs]
    squares = _squares(deviations)
    is_large = ~(squares < _LARGE_SQUARE)
    if not (_has_units(types) and is_large.any()):
        return *deviations, squares
    scaled = [x * _TO_UNITS - pivot * _TO_UNITS for x, pivot in pairs]
    before, after = (*deviations, squares), (*scaled, -_squares(scaled))
    return tuple(np.where(is_large, new, old) for new, old in zip(after, before, strict=True))


def _squares(deviations: list[Array]) -> Array:
    squares = deviations[0] * deviations[0]
    return squares if len(deviations) == 1 else squares + deviations[1] * deviations[1]


def _in_units(fields: Fields) -> Fields:
    *sums, squares = fields
    known = squares < 0.0
    changed = (*(each * _TO_UNITS for each in sums), -(squares * _TO_UNITS * _TO_UNITS))
    return tuple(np.where(known, before, after) for before, after in zip(fields, changed, strict=True))


def _combine(a: Fields, b: Fields, types: Types) -> Fields:
    if _has_units(types):
        any_known = (a[-1] < 0.0) | (b[-1] < 0.0)
        if any_known.any():
            a, b = (
                tuple(np.where(any_known, new, old) for new, old in zip(_in_units(each), each, strict=True))
                for each in (a, b)
            )
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _fields(types: Types) -> int:
    """Return how many sums there are: of the deviations (for complex elements, of both parts) and of the squares."""
    return 3 if types.element.is_complex else 2


def _mean(moments: Fields, total: Array | None, row: Row, types: Types) -> Array:
    assert row.pivot is not None  # noqa: S101 - as in _map
    n = np.asarray(row.length, np.float64)
    if total is not None:
        return mean_of(total, n, types.result_dtype)
    if types.element.is_float:
        return round_to(row.pivot + moments[0] / n, types.result_dtype)
    length = np.asarray(row.length).astype(np.int64)
    return mean_of(moments[0].astype(np.int64) + np.asarray(row.pivot).astype(np.int64) * length, n, types.result_dtype)


def _variance(moments: Fields, row: Row, ddof: float) -> Fields:
    """Return the sum of squared deviations from the mean, divided by n - `ddof`, in the accumulator's units."""
    *totals, squares = moments
    products = [total * (total / np.float64(row.length)) for total in totals]
    squares = np.where(squares < 0.0, -squares, squares)
    rest = squares - (products[0] if len(products) == 1 else products[0] + products[1])
    rest = np.where(rest < 0.0, 0.0, rest)
    return quotient((rest, np.zeros_like(rest)), np.maximum(np.asarray(row.length, np.float64) - ddof, 0.0))


def _from_units(pair: Fields, moments: Fields, times: int) -> Fields:
    high = pair[0]
    for _ in range(times):
        high = high * _FROM_UNITS
    known = moments[-1] < 0.0
    return np.where(known, high, pair[0]), np.where(known, 0.0, pair[1])


def _moments(
    name: str, struct: Any, ddof: float, *, names: tuple[str, ...], is_root: bool = False, in_parts: bool = False
) -> Reduction:
    with_mean = "mean" in names

    def total_type(types: Types) -> str | None:
        if not with_mean:
            return None
        return "float64" if in_parts and types.element.is_float else _total_type(types)

    def identity(types: Types) -> tuple[Any, ...]:
        total = total_type(types)
        nothing = () if total is None else (-0.0,) if total == "float64" else (0,)
        return (-0.0,) * (_fields(types) - 1) + (0.0, *nothing)

    def map_(items: Items, types: Types) -> Fields:
        total = total_type(types)
        return _map(items, types) + (() if total is None else (widen(items.x, total),))

    def combine(a: Fields, b: Fields, types: Types) -> Fields:
        if total_type(types) is None:
            return _combine(a, b, types)
        return *_combine(a[:-1], b[:-1], types), a[-1] + b[-1]

    def finish(fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
        moments, total = (fields, None) if total_type(types) is None else (fields[:-1], fields[-1])
        pair = _variance(moments, row, ddof)
        if is_root:
            pair = root(pair[0])
        if _has_units(types):
            pair = _from_units(pair, moments, 1 if is_root else 2)
        result = round_pair(pair, types.result_dtype)
        if _total_type(types) is None:
            total = None  # the mean of such results does not need it
        return (_mean(moments, total, row, types), result) if with_mean else (result,)

    def size(types: Types) -> int:
        return 8 * _fields(types) + (0 if total_type(types) is None else 8)

    return Reduction(
        name=name,
        label=name,
        struct=struct,
        rule=lambda element: moment_rule(name, element),
        identity=identity,
        map=map_,
        combine=combine,
        finish=finish,
        empty=(np.nan,) * len(names),
        size=size,
        is_heavy=lambda types: size(types) > 16,
        # A vector of bytes gives one accumulator, not sixteen.
        fits_full_block=lambda types: types.element.dtype.kind in "iu" and types.element.itemsize == 1,
        result_names=names,
        pivot=_pivot,
        constants=constants_of(ddof),
        least=ddof,
    )


def constants_of(ddof: float) -> tuple[int, int]:
    """Return the words in which a kernel is given `ddof`."""
    return int(np.float64(ddof).view(np.uint64)), 0


def var(ddof: float) -> Reduction:
    """Return the variance: the sum of squared deviations from the mean, divided by n - `ddof`."""
    return _moments("var", template("Variance"), ddof, names=("result",))


def std(ddof: float) -> Reduction:
    """Return the standard deviation, the square root of `var`."""
    return _moments("std", template("Deviation"), ddof, names=("result",), is_root=True)


def mean_var(ddof: float) -> Reduction:
    """Return mean and variance from one pass."""
    whole = _moments("mean_var", template("MeanVariance"), ddof, names=("mean", "var"))
    parts = _moments("mean_var", _struct_in_parts, ddof, names=("mean", "var"), in_parts=True)
    return replace(whole, in_parts=parts)


def _struct_in_parts(types: Types) -> str:
    """Return `mean_var` with the sum of the elements, which is used if the result has more than 24 bits."""
    text: str = template("MeanVariance", *(("true",) if types.element.is_float else ()))(types)
    return text
