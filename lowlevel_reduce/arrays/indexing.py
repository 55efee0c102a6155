"""Which part of an array in C order an index means, if that lies in one piece, and which shapes it may have instead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

from lowlevel_reduce.arguments import integer, listed, shown

__all__ = ["part_of", "reshaped"]

_RULE = "an index is an integer, a slice or an ellipsis"
_COPY = "an array on the device is contiguous: numpy()[...], or torch.from_dlpack and cupy.asarray, give what is not"


def part_of(shape: tuple[int, ...], index: Any) -> tuple[int, tuple[int, ...]]:
    """Return the part of an array that an index means: its first element's number in C order, and its shape.

    Raises
    ------
    IndexError
        If there is no such index or axis, or if the part does not lie in one piece.
    TypeError
        If it is not made of integers, slices and one ellipsis.
    """
    first, lengths, whole = 0, [], True  # whole: as far as seen, every later element of the part follows the one before
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for length, step, entry in zip(shape, steps, _entries(shape, index), strict=True):
        if isinstance(entry, slice):
            start, stop, stride = entry.indices(length)
            count = len(range(start, stop, stride))
            whole = whole and (stride == 1 or count <= 1)
            lengths.append((count, length))
        else:
            start = integer(entry, _RULE)
            if not -length <= start < length:
                raise IndexError(f"index {start} is out of range for an axis of length {length}")
            start %= length
            lengths.append((-1, length))
        first += start * step
    kept = tuple(count for count, _ in lengths if count >= 0)
    if not math.prod(kept):
        return 0, kept
    if not whole or not _in_one_piece([(abs(count), length) for count, length in lengths]):
        raise IndexError(f"the part {shown(index)} of shape {shape} does not lie in one piece; {_COPY}")
    return first, kept


def _entries(shape: tuple[int, ...], index: Any) -> list[Any]:
    """Return one entry of an index for each axis."""
    entries = list(index) if isinstance(index, tuple) else [index]
    ellipses = [place for place, entry in enumerate(entries) if isinstance(entry, EllipsisType)]
    for entry in entries:
        if not isinstance(entry, (slice, EllipsisType)):
            integer(entry, _RULE)
    missing = len(shape) - len(entries) + len(ellipses)
    if missing < 0:
        raise IndexError(f"an array of shape {shape} has no {len(entries) - len(ellipses)} axes to index")
    if len(ellipses) > 1:
        raise IndexError(f"an index has one ellipsis at most: {shown(index)}")
    place = ellipses[0] if ellipses else len(entries)
    return [*entries[:place], *[slice(None)] * missing, *entries[place + len(ellipses) :]]


def _in_one_piece(taken: list[tuple[int, int]]) -> bool:
    """Tell whether so many of so many indices of each axis follow each other: single ones, then some, then all."""
    partial = [axis for axis, (count, length) in enumerate(taken) if count != length]
    return not partial or all(count == 1 for count, _ in taken[: partial[-1]])


def reshaped(shape: tuple[int, ...], wanted: Sequence[Any]) -> tuple[int, ...]:
    """Return a shape of as many elements: integers, or one sequence of them, of which one may be -1.

    Raises
    ------
    ValueError
        If there are not as many elements.
    TypeError
        If a length is no integer.
    """
    rule = "a length is an integer"
    asked = wanted[0] if len(wanted) == 1 and not hasattr(wanted[0], "__index__") else wanted
    lengths = [integer(length, rule) for length in listed(asked, "a shape is a sequence of integers")]
    size, known = math.prod(shape), math.prod(length for length in lengths if length != -1)
    if lengths.count(-1) == 1 and known and size % known == 0:
        lengths[lengths.index(-1)] = size // known
    if any(length < 0 for length in lengths) or math.prod(lengths) != size:
        raise ValueError(f"an array of shape {shape} cannot have the shape {shown(tuple(lengths))}")
    return tuple(lengths)
