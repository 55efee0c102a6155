"""From an array's shape, strides and axes to the reduction problem: the rows, their length and their memory layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from lowlevel_reduce.arguments import chosen_axes, integer, listed
from lowlevel_reduce.dtypes import VECTOR_BYTES
from lowlevel_reduce.errors import UnsupportedError

__all__ = [
    "MAX_AXES",
    "MAX_BYTES",
    "MAX_WALKED_AXES",
    "SECTOR_BYTES",
    "Axis",
    "Kind",
    "Problem",
    "contiguous_strides",
    "given_strides",
    "is_contiguous",
    "lengths_of",
    "matrix_of",
    "matrix_problem",
    "problem_of",
]

MAX_BYTES = 1 << 40
"""Size of the largest array that the kernels and their workspace are designed for."""

MAX_AXES = 8
"""The most axes that the rows, and the elements of a row, may have after joining: `max_axes` in columns/shape.cuh."""

MAX_STRIDE = (1 << 63) - 1
"""The farthest in bytes that strides may reach in either direction."""

MAX_WALKED_AXES = 3
"""The most reduced axes along which kernels for columns go from one element of a second array to the next:
`Walk::most_axes` in columns/column_loads.cuh. The first array's are looked for one by one where there are more."""

SECTOR_BYTES = 32
"""What the memory is read in: elements that lie closer than this share some of it."""

_Fields = tuple[int, int, int, int]
"""The fields of an `Axis`."""

Kind = Literal["whole", "rows", "columns", "strided"]

_LAST = (1, -1)
"""The last axis of a matrix."""


class Axis(NamedTuple):
    """One axis.

    Attributes
    ----------
    size : int
        Its elements.
    stride, second_stride : int
        Bytes from one element to the next in the first and in the second array.
    result_stride : int
        Results from one row to the next along a kept axis.
    """

    size: int
    stride: int
    second_stride: int = 0
    result_stride: int = 0


class Problem(NamedTuple):
    """`rows` reductions of `length` elements each.

    Attributes
    ----------
    kind : str
        "whole": one contiguous row; "rows": each row is contiguous; "columns": rows lie side by side in memory, or runs
        of them do, or closer to each other than their elements and than a sector; "strided": anything else.
    length, rows : int
        Elements in a row, and the number of rows. A row's elements are in C order of the reduced axes, the results in C
        order of the others.
    result_shape : tuple of int
        The shape of the results.
    kept, reduced : tuple of Axis
        The kept and the reduced axes, the innermost first, with neighbours joined where the arrays and the results
        allow it. Rows are numbered in the order of `kept`: that of the results, unless in another one they are columns.
    low, high : int
        Offsets in bytes from the first element: of the array's lowest byte, and of the byte past its highest.
    aligned : bool
        Whether, in arrays that begin at multiples of 16 bytes, all rows lie in whole vectors of 16 bytes at such
        multiples (a whole array's last vector may be cut), and the second array's elements that go with a vector follow
        each other at a multiple of their size.
    """

    kind: Kind
    length: int
    rows: int
    result_shape: tuple[int, ...]
    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    low: int
    high: int
    aligned: bool = False


def problem_of(
    shape: Sequence[int],
    itemsize: int,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    strides_bytes: Sequence[int] | None = None,
    second_strides_bytes: Sequence[int] | None = None,
    second_itemsize: int = 0,
) -> Problem:
    """Return the problem of reducing an array over some of its axes.

    Parameters
    ----------
    shape : sequence of int
        Elements along each axis; () is one element.
    itemsize : int
        Bytes of an element.
    axis : int, sequence of int or None
        The axes to reduce; negative ones count from the last. None for all, an empty sequence for none.
    keepdims : bool
        Whether the reduced axes stay in the results' shape, with length 1.
    strides_bytes : sequence of int, optional
        Bytes from one element to the next along each axis, of any sign; None if the array is contiguous in C order.
    second_strides_bytes : sequence of int, optional
        The same for a second array of this shape.
    second_itemsize : int
        Bytes of an element of the second array; 0 if there is none.

    Raises
    ------
    TypeError
        If a length, a stride or an axis is not an integer.
    ValueError
        If a length is negative, an axis does not exist or is named twice, the array is larger than `MAX_BYTES`, there
        is not one stride for each axis, or strides reach farther than `MAX_STRIDE`.
    UnsupportedError
        If more than `MAX_AXES` kept or reduced axes remain after joining.
    """
    lengths = lengths_of(shape)
    elements = math.prod(lengths)
    if elements * itemsize > MAX_BYTES:
        raise ValueError(f"shape {lengths} needs {elements * itemsize} bytes; at most {MAX_BYTES} can be reduced")
    dimensions = len(lengths)
    chosen = chosen_axes(axis, dimensions)
    if strides_bytes is None:
        strides = contiguous_strides(lengths, itemsize)
    else:
        strides = given_strides(strides_bytes, lengths, "strides_bytes")
    seconds = (0,) * dimensions
    if second_strides_bytes is not None:
        seconds = given_strides(second_strides_bytes, lengths, "second_strides_bytes")
    kept_axes, reduced_axes, length, low, high = _divided(lengths, strides, seconds, chosen)
    kept, reduced = _joined(kept_axes), _joined(reduced_axes)
    if len(kept) > MAX_AXES or len(reduced) > MAX_AXES:
        raise UnsupportedError(
            f"shape {lengths} with strides of {strides} bytes has {len(kept)} axes of rows and {len(reduced)} of "
            f"elements that cannot be joined; at most {MAX_AXES} of each are supported: copy the array first, with the "
            "reduced axes last"
        )
    rows = elements // length if length else math.prod([size for i, size in enumerate(lengths) if i not in chosen])
    kind = "whole" if rows == 1 and length == 0 else _kind(kept, reduced, rows, itemsize, second_itemsize)
    if kind == "strided":
        kept_axes.sort(key=lambda axis: _apart(axis[1], itemsize))
        side_by_side = _joined(kept_axes)
        beside = _kind(side_by_side, reduced, rows, itemsize, second_itemsize) == "columns"
        if beside or (rows and _are_close(side_by_side, reduced)):
            kind, kept = "columns", side_by_side
    aligned = kind == "whole" or (kind == "rows" and _in_vectors(kept, reduced, length, itemsize, second_itemsize))
    if keepdims:
        result_shape = tuple([1 if i in chosen else n for i, n in enumerate(lengths)])
    else:
        result_shape = tuple([n for i, n in enumerate(lengths) if i not in chosen])
    reach = (low, high + itemsize) if elements else (0, 0)
    return Problem(kind, length, rows, result_shape, kept, reduced, *reach, aligned)


def matrix_of(
    shape: tuple[int, ...], itemsize: int, axis: int, strides_bytes: tuple[int, ...] | None
) -> tuple[int, int, int, int] | None:
    """Return rows and their length, and the bytes from row to row and from element to element, along a matrix's axis.

    None stands for a matrix that `problem_of` must look at. Shape and strides are of an array that is there.
    """
    outer, inner = shape
    outer_stride, stride = strides_bytes or (inner * itemsize, itemsize)
    if axis in _LAST:
        rows, length, apart, step = outer, inner, outer_stride, stride
    else:
        rows, length, apart, step = inner, outer, stride, outer_stride
    if length < 2 or rows < 2 or step <= 0 or apart <= 0 or length * rows * itemsize > MAX_BYTES:
        return None
    return rows, length, apart, step


def matrix_in(problem: Problem) -> tuple[int, int, int, int] | None:
    """Return what `matrix_of` does, of rows and a length that joining left one axis each, of one array; else None."""
    if len(problem.kept) != 1 or len(problem.reduced) != 1 or not problem.length * problem.rows:
        return None
    apart, step = problem.kept[0].stride, problem.reduced[0].stride
    return (problem.rows, problem.length, apart, step) if step > 0 and apart > 0 else None


def matrix_problem(
    rows: int, length: int, apart: int, step: int, itemsize: int, result_shape: tuple[int, ...]
) -> Problem:
    """Return what `problem_of` does, of what `matrix_of` returned."""
    kept, reduced = (Axis(rows, apart, 0, 1),), (Axis(length, step),)
    kind: Kind = "columns" if apart == itemsize else "rows" if step == itemsize else "strided"
    if kind == "strided" and _are_close(kept, reduced):
        kind = "columns"
    aligned = kind == "rows" and not (length * itemsize | apart) % VECTOR_BYTES
    high = (length - 1) * step + (rows - 1) * apart + itemsize
    return Problem(kind, length, rows, result_shape, kept, reduced, 0, high, aligned)


def _divided(
    lengths: tuple[int, ...], strides: tuple[int, ...], seconds: tuple[int, ...], chosen: tuple[int, ...]
) -> tuple[list[_Fields], list[_Fields], int, int, int]:
    """Return the fields of the kept and of the reduced axes, innermost first, without those of one element.

    After them come the elements of a row, and the offsets of the lowest and of the highest of all elements in bytes.
    """
    kept: list[_Fields] = []
    reduced: list[_Fields] = []
    low, high, results, length = 0, 0, 1, 1
    for i in range(len(lengths) - 1, -1, -1):
        size, stride = lengths[i], strides[i]
        if size != 1:
            if i in chosen:
                reduced.append((size, stride, seconds[i], 0))
                length *= size
            else:
                kept.append((size, stride, seconds[i], results))
                results *= size or 1
        if stride < 0:
            low += stride * (size - 1)
        else:
            high += stride * (size - 1)
    return kept, reduced, length, low, high


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of an array that is contiguous in C order."""
    if len(shape) == 1:  # what most have is seen at once
        return (itemsize,)
    if len(shape) == 2:
        return (shape[1] or 1) * itemsize, itemsize
    strides = []
    step = itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length or 1
    strides.reverse()
    return tuple(strides)


def is_contiguous(shape: Sequence[int], strides_bytes: Sequence[int] | None, itemsize: int) -> bool:
    """Tell whether an array is contiguous in C order; the strides of axes of length 1 do not matter."""
    if strides_bytes is None or 0 in shape:
        return True
    wanted = contiguous_strides(shape, itemsize)
    return all(size == 1 or a == b for size, a, b in zip(shape, strides_bytes, wanted, strict=True))


def lengths_of(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of Python integers; a bare length stands for a shape of one axis.

    Raises
    ------
    TypeError, ValueError
        If a length is not an integer, or negative.
    """
    if type(shape) is tuple:
        for length in shape:
            if type(length) is not int or length < 0:
                break
        else:  # what an array has is seen at once
            return shape
    else:
        try:
            shape = tuple(shape)
        except TypeError:
            shape = (shape,)
    lengths = tuple([_plain(length, "a shape holds integers") for length in shape])
    if lengths and min(lengths) < 0:
        raise ValueError(f"shape {lengths} has a negative length")
    return lengths


def _plain(value: Any, rule: str) -> int:
    """Return what `integer` returns; what is a Python int is seen at once."""
    return value if type(value) is int else integer(value, rule)


def given_strides(given: Any, lengths: tuple[int, ...], what: str) -> tuple[int, ...]:
    """Return the strides, checked: there is one for each axis, and what they reach fits into the kernels' 64 bits."""
    each = given if type(given) is tuple else listed(given, f"{what} is a sequence of integers, one an axis")
    strides = tuple([_plain(stride, f"{what} holds integers") for stride in each])
    if len(strides) != len(lengths):
        raise ValueError(f"{what} has {len(strides)} strides; the shape has {len(lengths)} axes")
    reach = 0
    for stride, size in zip(strides, lengths, strict=True):
        far = abs(stride)
        if far > MAX_STRIDE:
            reach = far
        elif size > 1:
            reach += far * (size - 1)
    if reach > MAX_STRIDE:
        raise ValueError(f"{what} {strides} of shape {lengths} does not fit into 64 bits")
    return strides


def _joined(axes: Sequence[_Fields]) -> tuple[Axis, ...]:
    """Return the fields of axes, innermost first, as axes; neighbours that can be traversed as one are joined."""
    found: list[Axis] = []
    for outer in axes:
        if found:
            size, stride, second_stride, result_stride = found[-1]
            if outer[1:] == (stride * size, second_stride * size, result_stride * size):
                found[-1] = Axis(size * outer[0], stride, second_stride, result_stride)
                continue
        found.append(Axis(*outer))
    return tuple(found)


def _apart(stride: int, itemsize: int) -> tuple[bool, bool, int]:
    """Return what orders axes, innermost first: one of neighbours in memory, then others by strides, then broadcast."""
    return stride != itemsize, stride == 0, abs(stride)


def _are_close(kept: tuple[Axis, ...], reduced: tuple[Axis, ...]) -> bool:
    """Return whether rows lie closer to each other than a row's elements do, and so close that they share sectors."""
    if not kept or len(reduced) > MAX_WALKED_AXES:
        return False
    apart = abs(kept[0].stride)
    return 0 < apart < SECTOR_BYTES and not any([0 < abs(axis.stride) <= apart for axis in reduced])  # noqa: C419


def _kind(kept: tuple[Axis, ...], reduced: tuple[Axis, ...], rows: int, itemsize: int, second_itemsize: int) -> Kind:
    in_order = _in_order(reduced, itemsize)
    # If two axes were not joined although the first array's elements follow each other, the second array's do not,
    # whatever its strides are: both may be an element's size, as with a window that slides over an array.
    if rows == 1 and in_order and len(reduced) <= 1 and (not reduced or reduced[0].second_stride == second_itemsize):
        return "whole"
    is_walked = not second_itemsize or len(reduced) <= MAX_WALKED_AXES
    if rows and kept and kept[0].stride == itemsize and is_walked:
        return "columns"
    # Such elements of the second array are loaded one by one, and so are those of the first.
    return "rows" if in_order and len(reduced) <= 1 else "strided"


def _in_vectors(
    kept: tuple[Axis, ...], reduced: tuple[Axis, ...], length: int, itemsize: int, second_itemsize: int
) -> bool:
    """Tell whether contiguous rows are aligned, as `Problem` says."""
    vector = max(1, VECTOR_BYTES // itemsize)
    follow = len(reduced) == 1 and reduced[0].second_stride == second_itemsize
    if length * itemsize % VECTOR_BYTES or (second_itemsize and not follow):
        return False
    for axis in kept:
        if axis.stride % VECTOR_BYTES or axis.second_stride % (vector * second_itemsize or 1):
            return False
    return True


def _in_order(reduced: tuple[Axis, ...], itemsize: int) -> bool:
    """Tell whether the elements of a row of the first array are contiguous."""
    expected = itemsize
    for entry in reduced:
        if entry.stride != expected:
            return False
        expected *= entry.size
    return True
