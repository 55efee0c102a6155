"""Converts a number of the caller's, such as an initial value, to a scalar of a type that can hold it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowlevel_reduce.arguments import not_masked, shown

__all__ = ["is_nan", "number_of", "scalar_of"]

_USERS_OWN = 2  # `dtype.isbuiltin` of a type that is not part of NumPy, such as those of ml_dtypes


def number_of(value: Any, what: str) -> Any:
    """Return a number as a NumPy scalar; an integer of more than 64 bits stays a Python int.

    Raises
    ------
    ValueError
        If it is not a single number; `what` names it in the message.
    """
    scalar = np.asarray(not_masked(value))
    if scalar.dtype.isbuiltin == _USERS_OWN:
        scalar = scalar.astype(np.float64)  # exact
    if type(value) is int and scalar.dtype.hasobject:
        return value
    if scalar.shape or scalar.dtype.kind not in "iufcb":
        raise ValueError(f"{what} is a number, not {shown(value)}")
    return scalar[()]


def scalar_of(value: Any, dtype: np.dtype[Any], what: str) -> Any:
    """Return a number as a scalar of a type: truncated for integers, rounded for floats, "is not 0" for bool.

    Raises
    ------
    ValueError
        If it is not a number, if it is complex and the type is not, or if the type is an integer and the number is out
        of its range, where NumPy would wrap it, or NaN, where NumPy's result is arbitrary.
    """
    number = number_of(value, what)
    if isinstance(number, np.complexfloating) and dtype.kind != "c":
        raise ValueError(f"{what} {shown(value)} is complex, and {dtype} is not")
    refusal = ValueError(f"{what} {shown(value)} is not a value of {dtype}")
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
    with np.errstate(all="ignore"):  # a number that is too large becomes infinite, as in NumPy
        return np.asarray(number).astype(dtype)[()]


def is_nan(value: Any) -> bool:
    """Tell whether a number of any type is NaN."""
    return bool(value != value)  # noqa: PLR0124 - numpy.isnan does not take an integer of more than 64 bits
