"""Accumulator -> result, rounded once: ``rounding.cuh`` in NumPy, which says how."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowlevel_reduce.operators.base import Array, Fields

__all__ = ["in_two_parts", "round_pair", "round_to"]


def round_to(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert to a result type: floats round to nearest, integers wrap modulo 2**bits; every NaN becomes numpy.nan.

    A float is converted to an integer by truncation. Out of range it becomes the type's smallest or largest value, and
    NaN becomes 0, as on a GPU; NumPy's own conversion of such values depends on the processor.
    """
    if dtype.kind in "iu" and x.dtype.kind not in "iubc":
        return _whole_part(x.astype(np.float64), dtype)
    if x.dtype.kind in "iu" and dtype.name in ("float16", "bfloat16"):
        return round_pair(in_two_parts(x), dtype)
    if x.dtype == np.float64 and dtype.name == "bfloat16":
        x = _odd_float32(x)  # ml_dtypes would round to float32 first, to nearest
    y = x.astype(dtype)
    if x.dtype.kind == "f" and dtype.kind not in "iub":
        y = np.where(np.isnan(x), np.array(np.nan, dtype), y)
    return y


def round_pair(pair: Fields, dtype: np.dtype[Any]) -> Array:
    """Convert high + low to a floating-point type, where `high` is that sum rounded; of `low` only the sign counts."""
    high, low = pair
    return round_to(high if dtype.itemsize == 8 else _odd(high, low), dtype)


def in_two_parts(x: Array) -> Fields:
    """Return numbers as pairs of float64 whose sums they are: all bits of 64-bit integers, the low eleven apart."""
    if x.dtype.kind not in "iu" or x.dtype.itemsize < 8:
        high = x.astype(np.float64)
        return high, np.zeros_like(high)
    end = x & x.dtype.type(0x7FF)
    start, added = (x - end).astype(np.float64), end.astype(np.float64)
    high = start + added
    return high, added - (high - start)


def _whole_part(x: Array, dtype: np.dtype[Any]) -> Array:
    limits = np.iinfo(dtype)
    low, high = x <= float(limits.min), x >= float(limits.max + 1)  # powers of two, so exact
    inside = np.where(low | high | np.isnan(x), 0.0, x).astype(dtype)
    return np.where(low, dtype.type(limits.min), np.where(high, dtype.type(limits.max), inside))


def _odd(x: Array, rest: Array) -> Array:
    """Return x + rest rounded to odd; what is not finite stays."""
    return np.where(np.isfinite(x), _moved_to_odd(x, rest, np.int64), x)


def _odd_float32(x: Array) -> Array:
    """Return float64 rounded to odd in float32."""
    y = x.astype(np.float32)
    return _moved_to_odd(y, x - y.astype(np.float64), np.int32)


def _moved_to_odd(x: Array, rest: Array, integer: type[Any]) -> Array:
    """Return the neighbour on the side of `rest`, if that is not zero and the last bit of `x` is."""
    bits = np.asarray(x).view(integer)
    moved = np.where(np.signbit(x) == np.signbit(rest), bits + integer(1), bits - integer(1))
    inexact = (rest < 0.0) | (rest > 0.0)
    result: Array = np.where(inexact & (bits & integer(1) == 0), moved, bits).view(np.asarray(x).dtype)
    return result
