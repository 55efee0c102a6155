"""Checks what a user passes for an operator of their own when it is made: later, only the compiler would complain."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any

from lowlevel_reduce.arguments import shown
from lowlevel_reduce.dtypes import accumulator_bytes, element_type
from lowlevel_reduce.operators.scalars import number_of
from lowlevel_reduce.texts import check_text

__all__ = ["SCALARS", "STRUCT", "check_accumulator", "check_name", "check_texts", "element_names", "empty_key"]

SCALARS = ("float32", "float64", "int32", "int64", "uint32", "uint64")
"""The accumulators that are not structs."""

STRUCT = re.compile(r"\s*struct\s*\{(?P<members>.*)\}\s*;?\s*", re.DOTALL)

_MOST_ACCUMULATOR_BYTES = 64


def check_texts(texts: Mapping[str, Any]) -> None:
    """Refuse arguments, given by name, that are empty or no text of a compiler's; raises TypeError or ValueError."""
    for what, text in texts.items():
        if not isinstance(text, str):
            raise TypeError(f"{what} is CUDA C++ text, not {shown(text)}")
        check_text(text, f"an Operator's {what}")
        if not text.strip():
            raise ValueError(f"an Operator needs {what}=")


def check_name(name: str) -> None:
    """Refuse a name that C++, or the named tuple of several results, would not accept; raises ValueError."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise ValueError(f"an Operator's name is an identifier, not {shown(name)}")


def check_accumulator(accumulator: Any, size: Any) -> None:
    """Refuse an accumulator that is neither a scalar nor a struct, or a size that does not fit; raises an error."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int)):
        raise TypeError(f"accumulator_bytes is an integer, not {shown(size)}")
    if not isinstance(accumulator, str):
        raise TypeError(f"an accumulator is the name of a type or CUDA C++ text, not {shown(accumulator)}")
    if accumulator in SCALARS:
        if size not in (None, accumulator_bytes(accumulator)):
            raise ValueError(f"{accumulator} has not {size} bytes")
        return
    check_text(accumulator, "an Operator's accumulator")
    if not STRUCT.fullmatch(accumulator):
        raise ValueError(f'an accumulator is one of {", ".join(SCALARS)} or "struct {{ … }}", not {shown(accumulator)}')
    if size is None or size <= 0 or size % 4 or size > _MOST_ACCUMULATOR_BYTES:
        raise ValueError(
            "a struct accumulator needs accumulator_bytes=: its size, whole 4-byte words, "
            f"at most {_MOST_ACCUMULATOR_BYTES} bytes; not {shown(size)}"
        )


def element_names(elements: Any) -> tuple[str, ...]:
    """Return the names of the given element types, checked."""
    if isinstance(elements, str) or not isinstance(elements, (tuple, list, set, frozenset)):
        raise TypeError(f"elements are a tuple of types, not {shown(elements)}")
    if not elements:
        raise ValueError("an Operator takes some type of elements: elements= names none")
    return tuple(element_type(each).name for each in elements)


def empty_key(empty: Any) -> str:
    """Return a key for a result over no elements that differs even for values that compare equal, as 0.0 and -0.0."""
    if empty is None:
        return ""
    try:
        number_of(empty, "empty")
    except ValueError as error:
        raise TypeError(str(error)) from None
    return f"{type(empty).__name__} {empty!r}"  # with the type, since numbers of some types have the same repr
