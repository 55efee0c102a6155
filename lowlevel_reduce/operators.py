"""The operators: what each means in NumPy, and which CUDA C++ struct says the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.dtypes import COMPENSATED, ElementType, c_name, numpy_dtype
from lowlevel_reduce.errors import UnsupportedError

__all__ = ["OPERATORS", "Array", "Fields", "Operator", "operator"]

Array = npt.NDArray[Any]
Fields = tuple[Array, ...]
"""An array of accumulators: one NumPy array a field, all of one shape."""


@dataclass(frozen=True)
class Operator:
    """A reduction, as `tree.reduce` computes it.

    Attributes
    ----------
    name : str
        The public name.
    struct : str
        The template in ``cuda_src/operators.cuh``, over input, accumulator and result type.
    identity : callable
        ``identity(accumulator)``: the fields' values that, combined with any accumulator, return it bit for bit.
    map : callable
        ``map(x, accumulator)``: elements to accumulators.
    combine : callable
        ``combine(a, b)``: two arrays of accumulators to one, elementwise; commutative bit for bit.
    finish : callable
        ``finish(fields, result_dtype)``: accumulators to results.
    empty : float
        The result over no elements.
    """

    name: str
    struct: str
    identity: Callable[[str], tuple[Any, ...]]
    map: Callable[[Array, str], Fields]
    combine: Callable[[Fields, Fields], Fields]
    finish: Callable[[Fields, np.dtype[Any]], Array]
    empty: float

    def c_type(self, element: ElementType, accumulator: str, result: str) -> str:
        """Return the operator as a CUDA C++ type."""
        return f"{self.struct}<{element.c_name}, {c_name(accumulator)}, {c_name(result)}>"


def two_sum(a: Array, b: Array) -> Fields:
    """Return a + b rounded, and its error (Knuth, The Art of Computer Programming 2, 4.2.2, theorem B)."""
    high = a + b
    t = high - a
    return high, (a - (high - t)) + (b - t)


def add_compensated(x: Fields, y: Fields) -> Fields:
    """Add pairs of float64: AccurateDWPlusDW of Joldes, Muller and Popescu (ACM TOMS 44, 2, 2017), error < 3 * 2**-106.

    Where the sum of the high parts is zero, infinite or NaN, it is the result: signs and overflow stay float64's.
    """
    s_high, s_low = two_sum(x[0], y[0])
    t_high, t_low = two_sum(x[1], y[1])
    c = s_low + t_high
    v = s_high + c
    w = t_low + (c - (v - s_high))
    high = v + w
    low = w - (high - v)
    high = np.where(high == 0.0, s_high, high)
    finite = np.isfinite(s_high)
    return np.where(finite, high, s_high), np.where(finite, low, 0.0)


def _map_sum(x: Array, accumulator: str) -> Fields:
    if accumulator == COMPENSATED:
        high = x.astype(np.float64)
        return high, np.zeros_like(high)
    if x.dtype.kind == "b":  # any nonzero byte is true
        x = x.view(np.uint8) != 0
    return (x.astype(numpy_dtype(accumulator)),)


def _identity_sum(accumulator: str) -> tuple[Any, ...]:
    if accumulator == COMPENSATED:
        return (-0.0, 0.0)
    return (0,) if numpy_dtype(accumulator).kind in "iu" else (-0.0,)  # x + -0.0 is x, also where x is -0.0


def _combine_sum(a: Fields, b: Fields) -> Fields:
    return add_compensated(a, b) if len(a) == 2 else (a[0] + b[0],)


def round_to(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert to a result type: floats to nearest, integers modulo 2**bits; every NaN becomes numpy.nan."""
    if x.dtype.kind == "f" and dtype.name == "bfloat16":
        x = x.astype(np.float32)  # ml_dtypes rounds float64 in these two steps; said here since the kernels do the same
    y = x.astype(dtype)
    if x.dtype.kind == "f":
        y = np.where(np.isnan(x), np.array(np.nan, dtype), y)
    return y


SUM = Operator(
    name="sum",
    struct="Sum",
    identity=_identity_sum,
    map=_map_sum,
    combine=_combine_sum,
    finish=lambda fields, dtype: round_to(fields[0], dtype),
    empty=0.0,
)

OPERATORS = {SUM.name: SUM}
"""The built-in operators by name."""


def operator(name: str) -> Operator:
    """Return a built-in operator.

    Raises
    ------
    UnsupportedError
        If there is none of that name.
    """
    if name not in OPERATORS:
        raise UnsupportedError(f"there is no operator {name!r}; there is {', '.join(OPERATORS)}")
    return OPERATORS[name]
