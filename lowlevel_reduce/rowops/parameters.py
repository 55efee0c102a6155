"""The scalars of a row operation as words of its kernels' argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowlevel_reduce.arguments import integer, real
from lowlevel_reduce.rowops.operation import RowOperation

__all__ = ["parameter_words"]


def parameter_words(operation: RowOperation, given: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the values of an operation's parameters in order, as float64.

    Raises
    ------
    TypeError, ValueError
        If one is missing, unknown, not a number, or a whole number of more than 53 bits.
    """
    words = []
    for each in operation.scalars:
        value = given.get(each.name)
        if type(value) is not float or each.kind != "number":
            break
        words.append(value)
    else:
        if len(given) == len(words):  # all are there, and plain: this is a hot path
            return tuple(words)
    names = [each.name for each in operation.scalars]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise TypeError(f"{operation.name} has no parameter {unknown[0]!r}; it has {', '.join(names) or 'none'}")
    words = []
    for each in operation.scalars:
        if each.name not in given:
            raise TypeError(f"{operation.name} needs {each.name}=")
        value = given[each.name]
        if each.kind == "int64":
            value = integer(value, f"{each.name} of {operation.name} is an integer")
            if abs(value) > 1 << 53:
                raise ValueError(f"{each.name} of {operation.name} has at most 53 bits, not {value}")
        words.append(float(real(value, f"{each.name} of {operation.name} is a real number")))
    return tuple(words)
