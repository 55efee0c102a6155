"""How the elements of a golden case lie: whole arrays, rows, columns, axes apart, segments and parts of an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lowlevel_reduce.dtypes import LANES, ElementType
from lowlevel_reduce.operators import Array

__all__ = ["LAYOUTS", "Layout", "levels", "segment_lengths"]

Fill = Callable[..., Array]
"""``fill(*shape)`` returns a contiguous array of elements."""
Built = tuple[Array, tuple[int, ...] | None]
"""An array as it lies, and the axes to reduce."""


class Layout(NamedTuple):
    """A way for rows of about a given length to lie.

    Attributes
    ----------
    family : str
        "array", "rows", "columns", "axes", "segments" or "parts".
    build : callable
        ``build(fill, length, vector)`` returns the array and the axes to reduce. Where `length` is divided among
        several axes it is rounded up.
    leaves : float
        The longest row, in leaves, so that no case takes long on a simulated device.
    off : str
        Where the array begins in memory: at a "vector", or past one by an "element" or a "byte".
    parts : int
        Of segments the size of an offset in bytes, of chunks the leaves of each, of shards their number.
    """

    family: str
    build: Callable[[Fill, int, int], Built]
    leaves: float
    off: str = "vector"
    parts: int = 0


_SHORT, _SOME, _LONG, _LONGEST = 0.13, 1.01, 9.0, 70.1


def _split(length: int, first: int) -> int:
    return -(-length // first)


def _flat(fill: Fill, n: int, vector: int) -> Built:
    return fill(n), None


def _segments(fill: Fill, n: int, vector: int) -> Built:
    return fill(sum(segment_lengths(n, vector))), None


LAYOUTS = {
    "array": Layout("array", _flat, _LONGEST),
    "array off a vector": Layout("array", _flat, _LONG, "element"),
    "array off an element": Layout("array", _flat, _SOME, "byte"),
    "array reversed": Layout("array", lambda fill, n, v: (fill(n)[::-1], None), _LONG),
    "every other element": Layout("array", lambda fill, n, v: (fill(2 * n)[::2], None), _LONG),
    "array of three axes": Layout("array", lambda fill, n, v: (fill(2, 3, _split(n, 6)), None), _LONG),
    "array transposed": Layout("array", lambda fill, n, v: (fill(3, _split(n, 3)).T, None), _LONG),
    "rows": Layout("rows", lambda fill, n, v: (fill(5, n), (1,)), _LONG),
    "many rows": Layout("rows", lambda fill, n, v: (fill(150, n), (1,)), _SHORT),
    "rows off a vector": Layout("rows", lambda fill, n, v: (fill(5, n), (1,)), _LONG, "element"),
    "rows off an element": Layout("rows", lambda fill, n, v: (fill(3, n), (1,)), _SOME, "byte"),
    "rows apart": Layout("rows", lambda fill, n, v: (fill(5, n + 3)[:, 2 : n + 2], (1,)), _LONG),
    "rows reversed": Layout("rows", lambda fill, n, v: (fill(3, n)[::-1, ::-1], (1,)), _LONG),
    "rows of every other element": Layout("rows", lambda fill, n, v: (fill(3, 2 * n)[:, ::2], (1,)), _LONG),
    "rows of two axes": Layout("rows", lambda fill, n, v: (fill(2, 2, 3, _split(n, 3)), (2, 3)), _LONG),
    "one row several times": Layout("rows", lambda fill, n, v: (np.broadcast_to(fill(n), (4, n)), (1,)), _LONG),
    "one element all along": Layout("rows", lambda fill, n, v: (np.broadcast_to(fill(3, 1), (3, n)), (1,)), _LONG),
    "three columns": Layout("columns", lambda fill, n, v: (fill(n, 3), (0,)), _LONG),
    "many columns": Layout("columns", lambda fill, n, v: (fill(n, 150), (0,)), _SHORT),
    "vectors of columns": Layout("columns", lambda fill, n, v: (fill(n, 2 * v), (0,)), _SOME),
    "columns off a vector": Layout("columns", lambda fill, n, v: (fill(n, 7), (0,)), _SOME, "element"),
    "columns reversed": Layout("columns", lambda fill, n, v: (fill(n, 5)[::-1, ::-1], (0,)), _SOME),
    "every other column": Layout("columns", lambda fill, n, v: (fill(n, 10)[:, ::2], (0,)), _SOME),
    "every third row": Layout("columns", lambda fill, n, v: (fill(3 * n, 4)[::3], (0,)), _SOME),
    "middle axis": Layout("columns", lambda fill, n, v: (fill(2, n, 5), (1,)), _SOME),
    "middle axis of vectors": Layout("columns", lambda fill, n, v: (fill(2, n, 2 * v), (1,)), _SOME),
    "columns that are rows": Layout("columns", lambda fill, n, v: (fill(4, n).T, (0,)), _LONG),
    "outer and inner axes": Layout("axes", lambda fill, n, v: (fill(3, 4, _split(n, 3)), (0, 2)), _LONG),
    "every other axis": Layout("axes", lambda fill, n, v: (fill(2, 3, 2, _split(n, 3)), (1, 3)), _LONG),
    "outer and middle axes": Layout("axes", lambda fill, n, v: (fill(3, 2, _split(n, 3), 5), (0, 2)), _SOME),
    "axes in another order": Layout(
        "axes", lambda fill, n, v: (fill(_split(n, 4), 3, 4).transpose(2, 1, 0), (0, 2)), _LONG
    ),
    "segments by int32": Layout("segments", _segments, _LONG, parts=4),
    "segments by int64": Layout("segments", _segments, 2 * _LONG, parts=8),
    "chunks of 1 leaf": Layout("parts", _flat, _LONG, parts=1),
    "chunks of 2 leaves": Layout("parts", _flat, 2 * _LONG, parts=2),
    "chunks of 4 leaves": Layout("parts", _flat, 2 * _LONG, parts=4),
    "three shards": Layout("parts", _flat, 2 * _LONG, parts=3),
}


def segment_lengths(n: int, vector: int) -> list[int]:
    """Return the lengths of segments: three about `n`, and short ones around them."""
    return [1, n, vector, max(n - 1, 1), 3, n + 1, vector + 1, LANES * vector + 1, 2]


def levels(element: ElementType) -> dict[str, int]:
    """Return lengths of rows at and around the borders of the tree's levels, by name."""
    vector, leaf = element.vector, element.leaf
    step = LANES * vector
    return {
        "0": 0,
        "1": 1,
        "vector - 1": vector - 1,
        "vector": vector,
        "vector + 1": vector + 1,
        "3 vectors": 3 * vector,
        "step - 1": step - 1,
        "step": step,
        "step + 1": step + 1,
        "4 steps - 1": 4 * step - 1,
        "leaf - 1": leaf - 1,
        "leaf": leaf,
        "leaf + 1": leaf + 1,
        "3 leaves + 5": 3 * leaf + 5,
        "5 leaves": 5 * leaf,
        "8 leaves - 1": 8 * leaf - 1,
        "8 leaves": 8 * leaf,
        "8 leaves + 1": 8 * leaf + 1,
        "17 leaves + 3": 17 * leaf + 3,
        "40 leaves": 40 * leaf,
        "70 leaves": 70 * leaf - 1,
    }
