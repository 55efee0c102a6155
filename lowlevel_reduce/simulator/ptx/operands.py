"""The operands of PTX instructions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Union

__all__ = ["Address", "Immediate", "Name", "Operand", "Pair", "Vector", "integer_of", "operands", "parts_of", "renamed"]


@dataclass(frozen=True, slots=True)
class Name:
    """A register, special register or variable, possibly negated; ``_`` is a destination that discards the value."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant: an integer, or the bits of a float of `float_bits` bits."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """A memory operand: an offset, and optionally a register or variable that it is added to."""

    base: str
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """Operands in braces."""

    elements: tuple[Name | Immediate, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations, separated by a vertical bar."""

    first: Name
    second: Name


Operand = Union[Name, Immediate, Address, Vector, Pair]  # noqa: UP007 - evaluated at run time, on Python 3.10 too

OPERANDS_KEPT = 1 << 14
"""How many parsed operands are kept: a kernel uses each of its registers several times, and others like it do."""

_NAME = r"[$%\w][$%\w.#]*"
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_REAL = re.compile(r"0([fFdD])([0-9a-fA-F]{8}|[0-9a-fA-F]{16})$")
_ADDRESS = re.compile(rf"\[\s*({_NAME})?\s*(?:([+-])\s*)?(-?\w+)?\s*\]$")
_SPLIT = re.compile(r",(?![^{\[]*[}\]])")


def operands(text: str) -> tuple[Operand, ...]:
    """Parse what follows an opcode.

    Raises
    ------
    ValueError
        If an operand has an unknown form.
    """
    if not text:
        return ()
    grouped = "{" in text or "[" in text
    return tuple([_operand(part.strip()) for part in (_SPLIT.split(text) if grouped else text.split(","))])


def renamed(operand: Operand, name: Callable[[str], str]) -> Operand:
    """Return the operand with each name replaced."""
    if isinstance(operand, Name):
        return _renamed(operand, name)
    if isinstance(operand, Address):
        return Address(name(operand.base), operand.offset)
    if isinstance(operand, Vector):
        return Vector(tuple(_renamed(e, name) if isinstance(e, Name) else e for e in operand.elements))
    if isinstance(operand, Pair):
        return Pair(_renamed(operand.first, name), _renamed(operand.second, name))
    return operand


def _renamed(operand: Name, name: Callable[[str], str]) -> Name:
    return Name(name(operand.name), operand.negated)


def parts_of(operand: Operand) -> tuple[Operand, ...]:
    """Return the elements of a vector; an operand that is not a vector is its own only element."""
    return operand.elements if isinstance(operand, Vector) else (operand,)


@lru_cache(OPERANDS_KEPT)
def _operand(text: str) -> Operand:
    if text.startswith("["):
        return _address(text)
    if text.startswith("{"):
        return Vector(tuple(_simple(part.strip()) for part in text.strip("{}").split(",")))
    if "|" in text:
        first, second = (Name(part.strip()) for part in text.split("|"))
        return Pair(first, second)
    return _simple(text)


def _simple(text: str) -> Name | Immediate:
    real = _REAL.match(text)
    if real:
        return Immediate(int(real.group(2), 16), 32 if real.group(1) in "fF" else 64)
    if _INTEGER.match(text):
        return Immediate(integer_of(text))
    negated = text.startswith("!")
    name = text.lstrip("! ")
    if not re.fullmatch(_NAME, name):
        raise ValueError(f"no operand has the form {text!r}")
    return Name(name, negated)


def integer_of(text: str) -> int:
    """Return the value of an integer: decimal, hexadecimal, binary, or octal by its leading zero."""
    digits = text.rstrip("U")
    return int(digits, 0) if not re.fullmatch(r"-?0\d+", digits) else int(digits, 8)


def _address(text: str) -> Address:
    match = _ADDRESS.match(text)
    if match is None:
        raise ValueError(f"no address has the form {text!r}")
    base, sign, offset = match.groups()
    if base is not None and _INTEGER.match(base) and offset is None:
        return Address("", integer_of(base))
    distance = integer_of(offset) if offset else 0
    return Address(base or "", -distance if sign == "-" else distance)
