"""Eight-bit floats: e4m3 (no infinity, one NaN for each sign, largest 448) and e5m2 (IEEE-like, largest 57344)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lowlevel_reduce.simulator.machine.memory.storage import Array

__all__ = ["EIGHT_BIT_KINDS", "narrow8", "widen8"]


@dataclass(frozen=True)
class _Format:
    """Number of fraction bits, exponent of the smallest subnormal, bits of the largest finite value and of the NaN."""

    fraction: int
    least: int
    largest: int
    nan: int


_FORMATS = {"e4m3": _Format(3, -9, 0x7E, 0x7F), "e5m2": _Format(2, -16, 0x7B, 0x7F)}
EIGHT_BIT_KINDS = frozenset(_FORMATS)
"""The names of the eight-bit types."""


def _value(code: int, form: _Format) -> float:
    """Return the value of a bit pattern without its sign bit."""
    if code > form.largest:
        return np.inf if form.fraction == 2 and code == 0x7C else np.nan
    exponent, fraction = code >> form.fraction, code & ((1 << form.fraction) - 1)
    if exponent:
        return float(np.ldexp(fraction + (1 << form.fraction), form.least + exponent - 1))
    return float(np.ldexp(fraction, form.least))


_VALUES = {
    kind: np.array([_value(code & 0x7F, form) * (-1.0 if code & 0x80 else 1.0) for code in range(256)])
    for kind, form in _FORMATS.items()
}


def widen8(bits: Array, kind: str) -> Array:
    """Return the values of bit patterns as float64."""
    values: Array = _VALUES[kind][bits.astype(np.uint8)]
    return values


def narrow8(x: Array, kind: str, *, relu: bool = False) -> Array:
    """Round float64 values to nearest, ties to even, and return bit patterns.

    Conversions to these types always saturate: values that are too large, even infinity, become the largest finite one.
    `relu` makes negative values zero. NaN stays NaN.
    """
    form = _FORMATS[kind]
    nan = np.isnan(x)
    if relu:
        x = np.where(x < 0, 0.0, x)
    magnitude = np.minimum(np.abs(np.where(nan, 0.0, x)), _VALUES[kind][form.largest])
    exponent = np.maximum(np.frexp(magnitude)[1] - 1 - form.fraction, form.least)
    rounded = np.ldexp(np.rint(np.ldexp(magnitude, -exponent)), exponent)
    code = np.searchsorted(_VALUES[kind][: form.largest + 1], rounded).astype(np.uint8)
    signed = code | np.where(np.signbit(x) & ~nan, 0x80, 0).astype(np.uint8)
    found: Array = np.where(nan, np.uint8(form.nan), signed)
    return found
