"""Checks of arguments that many take, in the same words; what they return is plain, so that it may stand in a key.

Keys take True, 1 and 1.0 for the same, and an array has no place in one.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["chosen_axes", "instance", "integer", "not_masked", "plain_axes"]


def integer(value: Any, rule: str) -> int:
    """Return what is an integer as one of Python's; NumPy's are, also as an array of no axes.

    Raises
    ------
    TypeError
        With the rule, which says what is an integer, and the value. A bool is none.
    """
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{rule}, not {value!r}")


def instance(value: Any, kind: type, what: str) -> None:
    """Refuse what is not of a class, by what it is for; raises TypeError."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{what} is {article} {kind.__name__}, not {type(value).__name__}")


def plain_axes(axis: Any) -> int | tuple[int, ...] | None:
    """Return an axis, or a sequence of them, in Python's integers; whether they exist is not looked at.

    Raises
    ------
    TypeError
        If one is no integer.
    """
    if type(axis) is tuple:  # the hot path: what most write is what comes back
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
    """Return the axes to reduce in ascending order: all for None, negative ones from the last.

    Raises
    ------
    TypeError
        If one is no integer.
    ValueError
        If an array of so many dimensions lacks one (``numpy.exceptions.AxisError``), or one is named twice.
    """
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
    """Return `x`, which is no masked array.

    Raises
    ------
    TypeError
        If it is one: its memory says nothing of what is masked.
    """
    masked = sys.modules.get("numpy.ma")  # without an import: who has a masked array has it
    if masked is not None and isinstance(x, masked.MaskedArray):
        raise TypeError("the mask of a masked array would be lost: pass x.data, and where=~x.mask if that makes sense")
    return x
