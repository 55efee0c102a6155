"""From an array's shape and strides to the reduction problem: how many rows, how long, how far apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lowlevel_reduce.errors import UnsupportedError

__all__ = ["Problem", "whole_array"]

MAX_BYTES = 1 << 40
"""Largest array that the kernels and their workspace are made for."""


@dataclass(frozen=True)
class Problem:
    """`outer` rows of `length` elements, each row's elements `inner` elements apart."""

    outer: int
    length: int
    inner: int


def whole_array(shape: Sequence[int], itemsize: int, strides_bytes: Sequence[int] | None = None) -> Problem:
    """Return the problem of reducing all elements of an array in C order to one.

    Parameters
    ----------
    shape : sequence of int
        Elements along each axis; () is one element.
    itemsize : int
        Bytes of an element.
    strides_bytes : sequence of int, optional
        Bytes from one element to the next along each axis; None where the array is contiguous in C order.

    Raises
    ------
    TypeError
        If a length is not an integer.
    ValueError
        If a length is negative, or the array is larger than `MAX_BYTES`.
    UnsupportedError
        If the elements are not contiguous in C order.
    """
    for length in shape:
        if isinstance(length, bool) or not hasattr(length, "__index__"):
            raise TypeError(f"a shape holds integers, not {length!r}")
        if length < 0:
            raise ValueError(f"shape {tuple(shape)} has a negative length")
    size = math.prod(int(length) for length in shape)
    if size * itemsize > MAX_BYTES:
        raise ValueError(f"shape {tuple(shape)} needs {size * itemsize} bytes; at most {MAX_BYTES} can be reduced")
    if size and strides_bytes is not None and not _contiguous(shape, itemsize, strides_bytes):
        raise UnsupportedError(
            f"shape {tuple(shape)} with strides of {tuple(strides_bytes)} bytes is not contiguous in C order; copy it"
        )
    return Problem(outer=1, length=size, inner=1)


def _contiguous(shape: Sequence[int], itemsize: int, strides_bytes: Sequence[int]) -> bool:
    expected = itemsize
    for length, stride in zip(reversed(shape), reversed(strides_bytes), strict=True):
        if length != 1 and stride != expected:  # the stride of an axis of one element is never used
            return False
        expected *= length
    return True
