"""One number of the caller's, such as an initial value, as a scalar of a type that holds it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowlevel_reduce.arguments import not_masked

__all__ = ["is_nan", "number_of", "scalar_of"]

_USERS_OWN = 2  # `dtype.isbuiltin` of a type that is no part of NumPy: those of ml_dtypes


def number_of(value: Any, what: str) -> Any:
    """Return a number as a scalar of NumPy, an integer of more than 64 bits as that of Python.

    Raises
    ------
    ValueError
        If it is no number, or not a single one; `what` names it.
    """
    scalar = np.asarray(not_masked(value))
    if scalar.dtype.isbuiltin == _USERS_OWN:
        scalar = scalar.astype(np.float64)  # exact
    if type(value) is int and scalar.dtype.hasobject:
        return value
    if scalar.shape or scalar.dtype.kind not in "iufcb":
        raise ValueError(f"{what} is a number, not {value!r}")
    return scalar[()]


def scalar_of(value: Any, dtype: np.dtype[Any], what: str) -> Any:
    """Return a number as a scalar of a type: of integers its whole part, of floats the nearest, of bool if it is not 0.

    Raises
    ------
    ValueError
        If it is no number, or of integers not in the type's range: NumPy would wrap it, or take anything for a NaN.
    """
    number = number_of(value, what)
    if isinstance(number, np.complexfloating) and dtype.kind != "c":
        raise ValueError(f"{what} {value!r} is complex, and {dtype} is not")
    refusal = ValueError(f"{what} {value!r} is not a value of {dtype}")
    if dtype.kind in "iu":
        if isinstance(number, np.floating) and not np.isfinite(number):
            raise refusal
        whole, limits = int(number), np.iinfo(dtype)
        if not limits.min <= whole <= limits.max:
            raise refusal
        return dtype.type(whole)
    if isinstance(number, int) and dtype.kind != "b":
        try:
            number = float(number)
        except OverflowError:
            raise refusal from None
    with np.errstate(all="ignore"):  # too large a number is infinite there, as in NumPy
        return np.asarray(number).astype(dtype)[()]


def is_nan(value: Any) -> bool:
    """Tell whether a number of any type is NaN."""
    return bool(value != value)  # noqa: PLR0124 - numpy.isnan does not take an integer of more than 64 bits
