"""Arithmetic that NumPy and the kernels must do alike: conversions, double-double sums and products, magnitudes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowlevel_reduce.dtypes import COMPENSATED, c_name, numpy_dtype
from lowlevel_reduce.operators.base import Array, Fields, Types
from lowlevel_reduce.operators.rounding import round_pair, round_to

__all__ = [
    "add_compensated",
    "magnitude",
    "nonzero",
    "parts",
    "quotient",
    "root",
    "round_parts",
    "template",
    "two_product",
    "two_sum",
    "widen",
]


def template(struct: str, *more: str) -> Any:
    """Return the function from types to a C++ struct's name with input, accumulator and result type, and `more`."""

    def name(types: Types) -> str:
        arguments = (types.element.c_name, c_name(types.accumulator), c_name(types.result), *more)
        return f"{struct}<{', '.join(arguments)}>"

    return name


def widen(x: Array, dtype: str) -> Array:
    """Convert elements to a real type; for bool, any nonzero byte is true."""
    if x.dtype.kind == "b":
        x = x.view(np.uint8) != 0
    return x.astype(numpy_dtype(dtype))


def parts(x: Array, accumulator: str) -> Fields:
    """Convert elements to the fields of a sum's accumulator."""
    if accumulator == COMPENSATED:
        high = x.astype(np.float64)
        return high, np.zeros_like(high)
    if accumulator == "complex128":
        z = x.astype(np.complex128)
        return z.real, z.imag
    return (widen(x, accumulator),)


def round_parts(fields: Fields, types: Types) -> Array:
    """Convert the fields of a sum's accumulator to its result."""
    if types.accumulator == COMPENSATED:
        return round_pair(fields, types.result_dtype)
    if types.accumulator != "complex128":
        return round_to(fields[0], types.result_dtype)
    z = np.empty(np.shape(fields[0]), types.result_dtype)
    z.real, z.imag = (round_to(field, z.real.dtype) for field in fields)
    return z


def quotient(a: Fields, n: Any) -> Fields:
    """Divide pairs of float64: the quotient, and what is left of it for `round_pair`, of which only the sign counts."""
    q = a[0] / n
    high, low = two_product(q, n)
    rest = (((a[0] - high) - low) + a[1]) / n
    rest = np.where(np.isfinite(rest), rest, 0.0)
    total = q + rest
    return np.where(a[1] == 0.0, q, total), np.where(a[1] == 0.0, rest, rest - (total - q))


def root(x: Array) -> Fields:
    """Return square roots of float64, and what is left of them for `round_pair`, of which only the sign counts."""
    r = np.sqrt(x)
    high, low = two_product(r, r)
    rest = (x - high) - low
    return r, np.where(np.isfinite(rest), rest, 0.0)


def nonzero(x: Array) -> Array:
    """Tell which elements are not zero; NaN is not zero."""
    if x.dtype.kind in "iub":
        truth: Array = (x.view(np.uint8) if x.dtype.kind == "b" else x) != 0
    else:
        truth = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) != 0
    return truth


def two_sum(a: Array, b: Array) -> Fields:
    """Return a + b rounded, and its rounding error: Dekker's FastTwoSum, with the larger operand first.

    Knuth's TwoSum needs no order, but near the largest double, in one order of the operands, an intermediate result
    overflows although the sum does not.
    """
    first = np.abs(a) >= np.abs(b)
    large, small = np.where(first, a, b), np.where(first, b, a)
    high = large + small
    return high, small - (high - large)


def add_compensated(x: Fields, y: Fields) -> Fields:
    """Add pairs of float64: AccurateDWPlusDW of Joldes, Muller and Popescu (ACM TOMS 44, 2, 2017), error < 3 * 2**-106.

    If the sum of the high parts is zero, infinite or NaN, it is the result, so that signs and overflow are those of
    float64. If only the low parts make the sum overflow, the result is infinite.
    """
    s_high, s_low = two_sum(x[0], y[0])
    t_high, t_low = two_sum(x[1], y[1])
    c = s_low + t_high
    v = s_high + c
    w = t_low + (c - (v - s_high))
    high = v + w
    low = w - (high - v)
    high = np.where(high == 0.0, s_high, high)
    finite = np.isfinite(v)
    return np.where(finite, high, np.where(np.isfinite(s_high), v, s_high)), np.where(finite, low, 0.0)


def two_product(x: Array, y: Array) -> Fields:
    """Return x * y rounded, and its error: Dekker's product (Numerische Mathematik 18, 1971) on the significands.

    The error is set to zero if the product is below 2**-900 in magnitude or not finite. The kernels do the same,
    although their fma does not need these limits.
    """
    high = x * y
    small_x, exponent_x = np.frexp(x)
    small_y, exponent_y = np.frexp(y)
    (xh, xl), (yh, yl) = _split(small_x), _split(small_y)
    product = small_x * small_y
    error = ((xh * yh - product) + xh * yl + xl * yh) + xl * yl
    low = np.ldexp(error, exponent_x + exponent_y)
    kept = (np.abs(high) >= 2.0**-900) & np.isfinite(high)
    return high, np.where(kept, low, 0.0)


def _split(x: Array) -> Fields:
    """Split float64 of magnitude below 1 into the sum of two that have 26 bits each (Veltkamp)."""
    t = x * 134217729.0
    high = t - (t - x)
    return high, x - high


def magnitude(x: Array, accumulator: str) -> Array:
    """Return the elements' absolute values; for complex numbers, intermediate results do not overflow."""
    if x.dtype.kind != "c":
        y: Array = np.abs(widen(x, accumulator))
        return y
    re, im = np.abs(x.real.astype(np.float64)), np.abs(x.imag.astype(np.float64))
    if x.dtype == np.complex64:
        y = np.sqrt(re * re + im * im)  # the parts are float32, so their squares are exact in float64
    else:
        large, small = np.maximum(re, im), np.minimum(re, im)
        ratio = small / large
        y = np.where(large == 0.0, 0.0, large * np.sqrt(1.0 + ratio * ratio))
        y = np.where(np.isfinite(re) & np.isfinite(im), y, re + im)
    return np.where(np.isinf(re) | np.isinf(im), np.inf, y)
