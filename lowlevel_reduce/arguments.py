"""Checks of common arguments, with the same error messages everywhere; what they return can be used in a key.

In a key, True, 1 and 1.0 would be the same, and an array could not be in one at all.
"""

from __future__ import annotations

import numbers
import operator
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = [
    "chosen_axes",
    "flag",
    "handle_of",
    "instance",
    "integer",
    "listed",
    "not_masked",
    "plain_axes",
    "real",
    "retold",
    "shown",
]

_MOST_SHOWN = 200  # letters of a value in a message


def integer(value: Any, rule: str) -> int:
    """Return an integer as a Python int; NumPy's integers are accepted, and so are 0-d arrays of them.

    Raises
    ------
    TypeError
        If it is not an integer; a bool is not. The message is the rule, which says what must be one, and the value.
    """
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{rule}, not {shown(value)}")


def flag(value: Any, name: str) -> bool:
    """Return whether a value is true; raises TypeError for one that is neither, as an array of several elements."""
    try:
        return bool(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is True or False, not {shown(value)}") from error


def listed(values: Any, what: str) -> list[Any]:
    """Return what a sequence holds; raises TypeError, which calls the values `what`, if it is no sequence."""
    try:
        return list(values)
    except TypeError as error:
        raise TypeError(f"{what}, not {shown(values)}") from error


def shown(value: Any) -> str:
    """Return a value for an error's message, which must not fail, nor fill the screen."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - whatever it raises, the message is about something else
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


_KINDS = (TypeError, ValueError, BufferError)


def retold(error: Exception, text: str) -> Exception:
    """Return an error with another text, which is a TypeError, ValueError or BufferError as the given one is.

    An error's own class need not take a text alone, as UnicodeError's children do not.
    """
    return next(kind for kind in _KINDS if isinstance(error, kind))(text)


def real(value: Any, rule: str) -> int | float:
    """Return a real number as a Python int or float; NumPy's numbers are accepted, and so are 0-d arrays of them.

    Raises
    ------
    TypeError
        If it is no such number; a bool is not. The message is the rule, which says what must be one, and the value.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (numbers.Real, np.floating)) and not isinstance(value, (numbers.Integral, np.bool_)):
        return float(value)
    return integer(value, rule)


def handle_of(value: Any, noun: str) -> int:
    """Return the driver's handle of a `noun` as a Python int; one of the bindings is taken, too.

    Raises
    ------
    TypeError, ValueError
        If it is no integer, or has more than 64 bits or is negative.
    """
    number = value if type(value) is int else integer(value, f"the handle of a {noun} is an integer")
    if not 0 <= number < 1 << 64:
        raise ValueError(f"the handle of a {noun} has 64 bits and is not negative: {number}")
    return number


def instance(value: Any, kind: type, what: str) -> None:
    """Raise TypeError if a value is not an instance of a class; `what` names its purpose in the message."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{what} is {article} {kind.__name__}, not {type(value).__name__}")


def plain_axes(axis: Any) -> int | tuple[int, ...] | None:
    """Return an axis, or a sequence of axes, as Python integers, without checking that the axes exist.

    Raises
    ------
    TypeError
        If an axis is not an integer.
    """
    if type(axis) is tuple:  # the hot path: what most callers pass is returned as it is
        for entry in axis:
            if type(entry) is not int:
                break
        else:
            return axis
    if axis is None:
        return None
    if isinstance(axis, Sequence) and not isinstance(axis, str):
        return tuple(integer(entry, "an axis is an integer") for entry in axis)
    return integer(axis, "an axis is an integer")


def chosen_axes(axis: Any, dimensions: int) -> tuple[int, ...]:
    """Return the axes to reduce in ascending order: all for None; negative ones count from the last.

    Raises
    ------
    TypeError
        If an axis is not an integer.
    ValueError
        If an array of that many dimensions lacks an axis (``numpy.exceptions.AxisError``), or one is named twice.
    """
    if type(axis) is int and -dimensions <= axis < dimensions:  # what most ask for is seen at once
        return (axis % dimensions,)
    plain = plain_axes(axis)
    if plain is None:
        return tuple(range(dimensions))
    asked = plain if isinstance(plain, tuple) else (plain,)
    chosen = []
    for entry in asked:
        if dimensions == 0 and entry in (0, -1):
            continue  # as NumPy does, for a single element
        if not -dimensions <= entry < dimensions:
            raise np.exceptions.AxisError(entry, dimensions)
        chosen.append(entry % dimensions)
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"axis {asked} names an axis twice")
    return tuple(sorted(chosen))


def not_masked(x: Any) -> Any:
    """Return `x` if it is not a masked array.

    Raises
    ------
    TypeError
        If it is one: its memory does not show what is masked.
    """
    masked = sys.modules.get("numpy.ma")  # not imported here: where there is a masked array, it has been imported
    if masked is not None and isinstance(x, masked.MaskedArray):
        raise TypeError("the mask of a masked array would be lost: pass x.data, and where=~x.mask if that makes sense")
    return x
