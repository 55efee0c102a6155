"""Sums, operators that are a sum of something (mean, norms, dot), and the product of all elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lowlevel_reduce.dtypes import COMPENSATED, ElementType, numpy_dtype
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators.arithmetic import (
    add_compensated,
    magnitude,
    nonzero,
    parts,
    quotient,
    root,
    round_parts,
    template,
    two_product,
    widen,
)
from lowlevel_reduce.operators.base import Array, Fields, Items, Reduction, Row, TypeRule, Types, sum_number_type
from lowlevel_reduce.operators.rounding import in_two_parts, round_pair
from lowlevel_reduce.operators.scalars import scalar_of

__all__ = ["COUNT_NONZERO", "DOT", "MEAN", "NORM1", "NORM2", "PROD", "SUM", "SUM_SQUARES", "float_rule", "mean_of"]

_LARGE = ("int64", "uint64")


def _sum_rule(element: ElementType) -> TypeRule:
    return TypeRule(element.accumulators, element.result, element.results, wraps=True)


def _plain_rule(element: ElementType) -> TypeRule:
    """Return the rule of a sum, without the compensated accumulator."""
    accumulators = tuple(name for name in element.accumulators if name != COMPENSATED)
    return _sum_rule(element)._replace(accumulators=accumulators)


def float_rule(name: str, *, compensated: bool = False, complex_as: str | None = None) -> Callable[..., TypeRule]:
    """Return the rule of operators whose result is a floating-point number, which is float64 for integers.

    Parameters
    ----------
    name : str
        The operator.
    compensated : bool
        Whether the operator can use the compensated accumulator.
    complex_as : str, optional
        The accumulator of complex elements; without it, they are refused.
    """

    def rule(element: ElementType) -> TypeRule:
        if element.is_complex:
            if complex_as is None:
                raise UnsupportedError(f"{name} of {element.name} is not defined here")
            if complex_as == "complex128":
                return TypeRule((complex_as,), element.name, element.results)
            return TypeRule((complex_as,), "float32" if element.name == "complex64" else "float64", _REALS)
        if not element.is_float:
            return TypeRule(("float64",), "float64", _REALS)
        accumulators = (n for n in element.accumulators if compensated or n != COMPENSATED)
        return TypeRule(tuple(accumulators), element.result, element.results)

    return rule


_REALS = ("float32", "float64")


def _mean_rule(element: ElementType) -> TypeRule:
    """Return the rule: as for other float results, but integers of fewer than 64 bits are summed exactly, as integers.

    The sum of 32-bit integers is exact for up to 2**32 elements.
    """
    rule = float_rule("mean", compensated=True, complex_as="complex128")(element)
    if element.dtype.kind in "iub" and element.name not in _LARGE:
        return rule._replace(accumulators=(element.accumulators[0], "float64"))
    return rule


def _norm_rule(name: str) -> Callable[[ElementType], TypeRule]:
    return float_rule(name, complex_as="float64")


def _real_sum_rule(element: ElementType) -> TypeRule:
    if element.is_complex:
        raise UnsupportedError(f"sum_squares of {element.name} is not defined here; norm2 takes it")
    return _plain_rule(element)


def _count_rule(element: ElementType) -> TypeRule:
    return TypeRule(("int64",), "int64", ("int64", "uint64", "int32", "uint32", "float64"))


def _dot_rule(element: ElementType) -> TypeRule:
    """Return the rule: as for a sum, but integers and bool keep their type, as in numpy.dot."""
    if element.dtype.kind in "iub":
        return _sum_rule(element)._replace(result=element.name, results=(*element.results, element.name))
    return _sum_rule(element)


def _identity(types: Types) -> tuple[Any, ...]:
    """Return negative zeros for floats: x + -0.0 is x, even if x is -0.0."""
    if types.accumulator == COMPENSATED:
        return (-0.0, 0.0)
    if types.accumulator == "complex128":
        return (-0.0, -0.0)
    return (0,) if numpy_dtype(types.accumulator).kind in "iu" else (-0.0,)


def _skipped(types: Types) -> tuple[Any, ...]:
    """Return positive zeros: if all elements are left out, the sum is +0.0, as in NumPy."""
    return tuple(0 * value if isinstance(value, int) else 0.0 for value in _identity(types))


def _combine(a: Fields, b: Fields, types: Types) -> Fields:
    if types.accumulator == COMPENSATED:
        return add_compensated(a, b)
    return (a[0] + b[0],) if len(a) == 1 else (a[0] + b[0], a[1] + b[1])


def _initial(value: Any, types: Types) -> tuple[Any, ...]:
    """Return the fields of an initial value, which must be a scalar that the accumulator can hold."""
    accumulator = np.dtype(np.float64) if types.accumulator == COMPENSATED else numpy_dtype(types.accumulator)
    scalar = np.asarray(scalar_of(value, accumulator, "the initial value"))
    return tuple(field[0] for field in parts(scalar.reshape(1), types.accumulator))


def _additive(name: str, struct: str, map_: Callable[[Items, Types], Fields], **changes: Any) -> Reduction:
    options: dict[str, Any] = {
        "rule": _sum_rule,
        "finish": lambda fields, row, types: (round_parts(fields, types),),
        "empty": (0.0,),
    }
    return Reduction(
        name=name,
        label=name,
        struct=template(struct),
        identity=_identity,
        skipped=_skipped,
        map=map_,
        combine=_combine,
        **{**options, **changes},
    )


def _divide(fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
    """Divide the sum by the length in float64, whatever the accumulator is."""
    n = np.asarray(row.length, np.float64)
    if types.accumulator == COMPENSATED:
        return (round_pair(quotient(fields, n), types.result_dtype),)
    if types.accumulator != "complex128":
        return (mean_of(fields[0], n, types.result_dtype),)
    z = np.empty(np.shape(fields[0]), types.result_dtype)
    z.real, z.imag = (mean_of(field, n, z.real.dtype) for field in fields)
    return (z,)


def mean_of(total: Array, n: Any, dtype: np.dtype[Any]) -> Array:
    """Return a sum of any type divided by the length, as a result."""
    return round_pair(quotient(in_two_parts(total), n), dtype)


def _norm2(items: Items, types: Types) -> Fields:
    if types.element.is_complex:
        re, im = items.x.real.astype(np.float64), items.x.imag.astype(np.float64)
        return (re * re + im * im,)
    return _squares(items, types)


def _squares(items: Items, types: Types) -> Fields:
    x = widen(items.x, types.accumulator)
    return (x * x,)


def _complex_product(a: Fields, b: Fields) -> Fields:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _dot(items: Items, types: Types) -> Fields:
    assert items.y is not None  # noqa: S101 - whoever calls map has looked at `second`
    x, y = parts(items.x, types.accumulator), parts(items.y, types.accumulator)
    if types.accumulator == COMPENSATED:
        return two_product(x[0], y[0])
    return _complex_product(x, y) if len(x) == 2 else (x[0] * y[0],)


def _multiply(a: Fields, b: Fields, types: Types) -> Fields:
    if len(a) == 1:
        return (a[0] * b[0],)
    # Multiplying by the identity 1 - 0i would change signs of zeros and turn infinities into NaN, so it is skipped.
    none_a, none_b = (np.asarray((f[0] == 1.0) & (f[1] == 0.0) & np.signbit(f[1])) for f in (a, b))
    product = _complex_product(a, b)
    return tuple(np.where(none_a, y, np.where(none_b, x, z)) for x, y, z in zip(a, b, product, strict=True))


SUM = _additive(
    "sum",
    "Sum",
    lambda items, types: parts(items.x, types.accumulator),
    initial=_initial,
    fits_full_block=lambda types: types.element.is_complex,
)
MEAN = _additive(
    "mean",
    "Mean",
    SUM.map,
    finish=_divide,
    rule=_mean_rule,
    empty=(np.nan,),
    least=0,
    fits_full_block=SUM.fits_full_block,
)
COUNT_NONZERO = _additive(
    "count_nonzero",
    "CountNonzero",
    lambda items, types: (nonzero(items.x).astype(np.int64),),
    rule=_count_rule,
    number=sum_number_type,
)
SUM_SQUARES = _additive("sum_squares", "SumSquares", _squares, rule=_real_sum_rule)
NORM1 = _additive(
    "norm1", "Norm1", lambda items, types: (magnitude(items.x, types.accumulator),), rule=_norm_rule("norm1")
)
NORM2 = _additive(
    "norm2",
    "Norm2",
    _norm2,
    rule=_norm_rule("norm2"),
    finish=lambda fields, row, types: (round_pair(root(fields[0].astype(np.float64)), types.result_dtype),),
)
DOT = _additive("dot", "Dot", _dot, rule=_dot_rule, second="operand")
PROD = Reduction(
    name="prod",
    label="prod",
    struct=template("Product"),
    rule=_plain_rule,
    identity=lambda types: (1.0, -0.0) if types.accumulator == "complex128" else (1,),
    map=SUM.map,
    combine=_multiply,
    finish=SUM.finish,
    empty=(1,),
    initial=_initial,
)
