"""Floating-point arithmetic that NumPy lacks: fused and directed rounding, and the GPU's NaN, minimum and maximum.

Each result is rounded once in effect. Single and half precision are computed in float64 rounded to odd (Boldo and
Melquiond, 2008), so that the second rounding does no harm. Fused float64 operations use sums and products with their
errors (also there). Only near the ends of the range they use rational numbers, element by element; so do operations
with directed rounding, which are rare.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from lowlevel_reduce.simulator.machine.memory.flags import any_of
from lowlevel_reduce.simulator.machine.memory.storage import Array

__all__ = [
    "canonical",
    "exact64",
    "float_max",
    "float_min",
    "flush",
    "fused_odd",
    "narrow",
    "product_odd",
    "quotient_odd",
    "sum_odd",
    "to_bfloat16",
    "widen",
]

NAN_BITS = {"f32": 0x7FFF_FFFF, "f16": 0x7FFF, "bf16": 0x7FFF}
"""The only NaN that arithmetic of each type returns; float64 keeps the payload instead."""

_FRACTION_BITS = {"f32": 24, "f16": 11, "bf16": 8, "f64": 53}
_LEAST_EXPONENT = {"f32": -149, "f16": -24, "bf16": -133, "f64": -1074}
_LARGEST = {
    "f32": float(np.finfo(np.float32).max),
    "f16": 65504.0,
    "bf16": float.fromhex("0x1.fep127"),
    "f64": float(np.finfo(np.float64).max),
}


def widen(bits: Array, kind: str) -> Array:
    """Return the values of a type's bit patterns, given as unsigned integers, as float64."""
    if kind == "bf16":
        found: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return found
    return bits.view({"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]).astype(np.float64)


def _odd(rounded: Array, error: Array) -> Array:
    """Return the sum rounded to odd, given the sum rounded to nearest and its error."""
    wrong = error != 0
    if not any_of(wrong):
        return rounded
    bits = np.ascontiguousarray(rounded).view(np.int64)
    even = (bits & 1) == 0
    inexact = wrong & np.isfinite(rounded) & np.isfinite(error) & even
    grows = (error > 0) == (rounded > 0)
    adjusted: Array = np.where(inexact, np.where(grows, bits + 1, bits - 1), bits).view(np.float64)
    return adjusted


def _sum_and_error(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a + b rounded to nearest, and the rounding error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def sum_odd(a: Array, b: Array) -> Array:
    """Return a + b rounded to odd."""
    return _odd(*_sum_and_error(a, b))


def product_odd(a: Array, b: Array) -> Array:
    """Return a * b, exact for operands of at most 26 bits."""
    return a * b


def fused_odd(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c rounded to odd, for a and b of at most 26 bits."""
    return sum_odd(a * b, c)


def quotient_odd(a: Array, b: Array) -> Array:
    """Return a / b rounded to odd, for operands of at most 24 bits."""
    q = a / b
    high = (q.view(np.int64) & ~np.int64(0x7FF_FFFF)).view(np.float64)
    remainder = (a - high * b) - (q - high) * b
    return _odd(q, np.where(b < 0, -remainder, remainder))


def _round_pattern(scaled: Array, mode: str) -> Array:
    roundings: dict[str, Callable[[Array], Array]] = {
        "rn": np.rint,
        "rz": np.trunc,
        "rm": np.floor,
        "rp": np.ceil,
        "rna": _away,
    }
    return roundings[mode](scaled)


def _away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def narrow(x: Array, kind: str, mode: str = "rn", *, saturate: bool = False) -> Array:
    """Round float64 values to a type and return its bit patterns as unsigned integers.

    Parameters
    ----------
    x : numpy.ndarray
        Values in float64, exact or rounded to odd.
    kind : str
        "f16", "bf16", "f32" or "f64".
    mode : str
        "rn", "rz", "rm", "rp" or "rna".
    saturate : bool
        Whether to clamp to [0, 1], NaN to 0.
    """
    if saturate:
        x = np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)) + 0.0  # adding 0.0 turns -0 into +0
    if kind == "f64":
        return np.ascontiguousarray(x).view(np.uint64)
    if mode == "rn" and kind != "bf16":
        rounded = x.astype(np.float32 if kind == "f32" else np.float16)
        return canonical(rounded.view(f"u{rounded.itemsize}"), np.isnan(x), kind)
    value = _to_grid(x, kind, mode)
    bits: Array
    if kind == "bf16":
        bits = (value.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    else:
        rounded = value.astype(np.float32 if kind == "f32" else np.float16)
        bits = rounded.view(f"u{rounded.itemsize}")
    return canonical(bits, np.isnan(x), kind)


def _to_grid(x: Array, kind: str, mode: str) -> Array:
    """Round to a multiple of the type's spacing, in float64."""
    finite = np.isfinite(x)
    safe = np.where(finite, x, 0.0)
    exponent = np.maximum(np.frexp(safe)[1] - _FRACTION_BITS[kind], _LEAST_EXPONENT[kind])
    value = np.ldexp(_round_pattern(np.ldexp(safe, -exponent), mode), exponent)
    largest = _LARGEST[kind]
    above = np.abs(value) > largest
    inward = (mode == "rz") | ((mode == "rm") & (x > 0)) | ((mode == "rp") & (x < 0))
    value = np.where(above, np.copysign(np.where(inward, largest, np.inf), value), value)
    return np.where(finite, np.copysign(value, x), x)


def to_bfloat16(x: Array) -> Array:
    """Round float64 values to nearest bfloat16, as bit patterns."""
    return narrow(x, "bf16")


def canonical(bits: Array, nan: Array, kind: str) -> Array:
    """Replace the bit patterns for which `nan` is true by the type's NaN in `NAN_BITS`."""
    if any_of(nan):
        bits = np.where(nan, bits.dtype.type(NAN_BITS[kind]), bits)
    return bits


def flush(x: Array, kind: str) -> Array:
    """Replace subnormal values of a type by zeros of the same sign."""
    smallest = {"f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126, "f64": 2.0**-1022}[kind]
    small = np.abs(x) < smallest
    return np.where(small, np.copysign(x.dtype.type(0), x), x) if any_of(small) else x


def float_min(a: Array, b: Array) -> Array:
    """Return the smaller operand, or the other one if one is NaN; -0 is below +0."""
    lower = np.where(np.signbit(a), a, b)
    return np.where(a == b, lower, np.fmin(a, b))


def float_max(a: Array, b: Array) -> Array:
    """Return the larger operand, or the other one if one is NaN; +0 is above -0."""
    upper = np.where(np.signbit(a), b, a)
    return np.where(a == b, upper, np.fmax(a, b))


_PLAIN: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
}
"""Exact for rational numbers, rounded for arrays."""


def exact64(operation: str, mode: str) -> Callable[..., Array]:
    """Return a float64 operation on arrays that rounds once, in any mode."""

    def apply(*arguments: Array) -> Array:
        results = _PLAIN[operation](*arguments)
        flat = [np.broadcast_to(argument, results.shape).ravel() for argument in arguments]
        out = np.ascontiguousarray(results).copy()
        left: Array = np.arange(out.size)
        if operation == "fma" and mode == "rn":
            in_range = _products_keep_their_errors(*flat)
            out[in_range] = _fused(*(column[in_range] for column in flat))
            # If the product is exact, only the sum is rounded. Operands that are not finite need no rounding at all.
            left = np.flatnonzero(~in_range & ~_products_are_exact(*flat[:2]) & np.isfinite(flat).all(axis=0))
        for i, values in zip(left.tolist(), zip(*(column[left].tolist() for column in flat), strict=True), strict=True):
            out[i] = _exact_one(operation, mode, values, float(results[i]))
        found: Array = out
        return found

    return apply


def _products_keep_their_errors(a: Array, b: Array, c: Array) -> Array:
    """Return where no intermediate result of `_fused` overflows, or loses digits because it is subnormal."""
    found: Array = np.ones(a.size, np.bool_)
    for factor in (a, b):
        found &= (np.abs(factor) > 2.0**-450) & (np.abs(factor) < 2.0**450)
    found &= (c == 0) | ((np.abs(c) > 2.0**-900) & (np.abs(c) < 2.0**900))
    return found


def _products_are_exact(a: Array, b: Array) -> Array:
    """Return where a factor is zero, or one is a power of two and the product neither overflows nor is subnormal."""
    size = np.abs(a * b)
    scales = (np.abs(np.frexp(a)[0]) == 0.5) | (np.abs(np.frexp(b)[0]) == 0.5)
    found: Array = (a == 0) | (b == 0) | (scales & (size >= 2.0**-1022) & np.isfinite(size))
    return found


def _fused(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c rounded once to nearest, from the exact product as a sum of two, and rounding to odd."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    low, lowest = _sum_and_error(c, error)
    high, rest = _sum_and_error(product, low)
    return high + sum_odd(lowest, rest)


def _halves(x: Array) -> tuple[Array, Array]:
    """Return two numbers of 26 bits whose sum is x."""
    spread = x * (2.0**27 + 1)
    high = spread - (spread - x)
    return high, x - high


def _exact_one(operation: str, mode: str, values: tuple[float, ...], rounded: float) -> float:
    if not all(map(math.isfinite, values)) or (operation == "div" and values[1] == 0):
        return rounded
    exact = _PLAIN[operation](*map(Fraction, values))
    if exact == 0:
        return _exact_zero(operation, mode, values)
    return round_fraction(exact, mode)


def _exact_zero(operation: str, mode: str, values: tuple[float, ...]) -> float:
    signs = [math.copysign(1.0, value) for value in values]
    if operation in {"mul", "div"}:
        return math.copysign(0.0, signs[0] * signs[1])
    left = signs[0] * signs[1] if operation == "fma" else signs[0]
    right = -signs[1] if operation == "sub" else signs[-1]
    if left == right:
        return math.copysign(0.0, left)
    return -0.0 if mode == "rm" else 0.0


def round_fraction(exact: Fraction, mode: str) -> float:
    """Round a rational number that is not zero to float64."""
    sign = 1.0 if exact > 0 else -1.0
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** max(exponent - 52, -1074)
    count = magnitude / step
    below = count.numerator // count.denominator
    up = {"rn": round(count) > below, "rz": False, "rm": sign < 0, "rp": sign > 0}[mode]
    whole = below + (1 if up and count != below else 0)
    try:
        result = float(whole * step)
    except OverflowError:
        inward = mode == "rz" or (mode == "rm" and sign > 0) or (mode == "rp" and sign < 0)
        result = _LARGEST["f64"] if inward else math.inf
    return math.copysign(result, sign)
