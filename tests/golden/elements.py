"""The elements of golden cases: bits drawn by a hash of the index, the same with every version of NumPy.

Numbers are composed of sign, exponent and significand as integers, so that no conversion and no generator of a library
has a part in them.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.dtypes import ElementType
from lowlevel_reduce.operators import Array

__all__ = ["FLOAT_KINDS", "INTEGER_KINDS", "elements", "mask"]

FLOAT_KINDS = ("plain", "ties", "tiny", "infinite", "nan")
"""Any; few different ones, and zeros of both signs; subnormal ones; with infinities and zeros; with NaN."""

INTEGER_KINDS = ("plain", "ties", "extreme")
"""Any; few different ones; the type's smallest and largest among small ones."""

Words = npt.NDArray[np.uint64]

# Bits, significand bits and exponent bias of the floating-point types, and the exponents of ordinary numbers: so far
# apart that sums in a type's accumulators round, and so small that those in its own width rarely overflow.
_FORMATS = {
    "float8_e4m3fn": (8, 3, 7, -6, 7),
    "float8_e5m2": (8, 2, 15, -14, 10),
    "float16": (16, 10, 15, -14, 1),
    "bfloat16": (16, 7, 127, -20, 20),
    "float32": (32, 23, 127, -20, 20),
    "float64": (64, 52, 1023, -30, 30),
}
_PARTS = {"complex64": "float32", "complex128": "float64"}
_CHOICES = 0x5851F42D4C957F2D  # of a second, independent sequence


def elements(element: ElementType, shape: tuple[int, ...], *, op: str, kind: str, length: int, seed: int) -> Array:
    """Return a contiguous array whose rows of `length` elements have results that say something of all of them.

    Sums of floats of the kind "plain" depend on the order of the additions. A product stays near 1, any and all are
    decided by single elements, and half of what count_nonzero counts is zero.
    """
    parts = 2 if element.is_complex else 1
    count = math.prod(shape) * parts
    bits, choice = _hashed(seed, count), _hashed(seed ^ _CHOICES, count)
    if element.name == "bool":
        wide = (bits >> _u(63)) ^ np.uint64(kind == "ties")
    elif element.dtype.kind in "iu":
        wide = _integer(bits, choice, 8 * element.itemsize, kind)
        wide = wide | _u(1) if op == "prod" else wide  # of even ones the product is soon zero
    else:
        name = _PARTS.get(element.name, element.name)
        wide = _near_one(name, bits, choice, length, parts) if op == "prod" else _float(name, bits, choice, kind)
        if kind in ("infinite", "nan"):
            wide = np.where(choice % _u(2 * max(length, 1) * parts) == 0, _special(name, bits, kind), wide)
    whole = np.repeat(choice[::parts], parts)  # both parts of a complex zero are zero
    rare = whole % _u(2 * max(length, 1)) == 0
    zero = {"any": ~rare, "all": rare, "count_nonzero": whole >> _u(62) < 2}.get(op)
    if op == "prod" and element.name == "bool":
        zero = rare
    if zero is not None:
        wide = np.where(zero, _u(0), wide if op == "count_nonzero" else wide | _u(1))
    size = element.itemsize // parts
    flat: Array = wide.astype(f"u{size}").view(element.dtype)
    return flat.reshape(shape)


def mask(shape: tuple[int, ...], seed: int) -> Array:
    """Return a mask that lets three quarters of the elements take part."""
    taken: Array = _hashed(seed, math.prod(shape)) & _u(3) != 0
    return taken.reshape(shape)


def _u(value: int) -> np.uint64:
    word: np.uint64 = np.uint64(value)
    return word


def _hashed(seed: int, count: int) -> Words:
    """Return a word for each index: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) from the seed's state on."""
    z: Words = np.arange(1, count + 1, dtype=np.uint64) * _u(0x9E3779B97F4A7C15) + _u(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        z = (z ^ (z >> _u(shift))) * _u(factor)
    return z


def _integer(bits: Words, choice: Words, width: int, kind: str) -> Words:
    if kind == "plain":
        return bits >> _u(64 - width)
    few = bits >> _u(61)
    if kind == "ties":
        return few
    least, most = _u(1 << (width - 1)), _u((1 << (width - 1)) - 1)  # of the signed type; both are large if unsigned
    return np.where(choice & _u(7) == 0, least, np.where(choice & _u(7) == 1, most, few))


def _float(name: str, bits: Words, choice: Words, kind: str) -> Words:
    """Return numbers of both signs with exponents in the type's range, or what the kind says."""
    _, significand, bias, least, most = _FORMATS[name]
    fraction = bits & _u((1 << significand) - 1)
    steps = (bits >> _u(52)) & _u(0x7FF)
    exponent = _u(bias + least) + (steps * _u(most - least + 1) >> _u(11))
    if kind == "ties":
        fraction = fraction & _u(1 << (significand - 1))
        exponent = _u(bias - 1) + (steps * _u(3) >> _u(11))
    if kind == "tiny":
        exponent = steps >> _u(10)  # 0 is that of subnormal numbers
    wide = exponent << _u(significand) | fraction
    if kind in ("ties", "infinite"):
        wide = np.where(choice & _u(7) == 0, _u(0), wide)
    return _signed(name, wide, bits)


def _near_one(name: str, bits: Words, choice: Words, length: int, parts: int) -> Words:
    """Return factors whose product is near 1: of long rows seven eighths are 1 or -1, others at most 1/4 beside it."""
    width, significand, bias, _, _ = _FORMATS[name]
    below = bits & _u((1 << significand) - 1) >> _u(min(4, significand - 1))
    one = _u(bias << significand)
    high, low = one | below, _u((bias << significand) - 1) - below
    wide = np.where(choice & _u(1 << 40) == 0, high, low)
    if length >= (16 if width == 8 else 1024):
        wide = np.where((choice >> _u(41)) & _u(7) == 0, wide, one)
    if parts == 2:  # one part of a complex number is large, the other 2**-6 or so
        small = _u(bias - 6) << _u(significand) | bits & _u((1 << significand) - 1)
        first = np.repeat(choice[0::2] & _u(1 << 45) == 0, 2)
        wide = np.where(first == (np.arange(wide.size) % 2 == 0), wide, small)
    return _signed(name, wide, bits)


def _signed(name: str, wide: Words, bits: Words) -> Words:
    return wide | (bits >> _u(63)) << _u(_FORMATS[name][0] - 1)


def _special(name: str, bits: Words, kind: str) -> Words:
    """Return an infinity or a NaN, of either sign."""
    width, significand, _, _, _ = _FORMATS[name]
    not_a_number = (1 << (width - 1)) - 1
    infinity = not_a_number >> significand << significand
    if name == "float8_e4m3fn":  # which has no infinity: its largest number
        infinity = not_a_number - 1
    value = not_a_number if kind == "nan" else infinity
    return _signed(name, np.full(bits.size, value, np.uint64), bits)
