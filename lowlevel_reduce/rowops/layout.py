"""Where the rows of an operation's arrays lie: the words of its kernels' argument, checked and without a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from lowlevel_reduce.dtypes import VECTOR_BYTES
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.layout import MAX_AXES, contiguous_strides, given_strides
from lowlevel_reduce.strategy.fields import reciprocal

__all__ = ["MOST_ELEMENTS", "RowLayout", "Spread", "alignment_of", "row_layout", "spread_of"]

MOST_ELEMENTS = 1 << 30
"""The most elements of a row: kernels number them, and as many again, with 32 bits."""


class Spread(NamedTuple):
    """How one array of rows lies: its strides in bytes, one an axis, and the size of an element."""

    strides: tuple[int, ...]
    itemsize: int


class RowLayout(NamedTuple):
    """`rows` rows of `length` elements in several arrays of one shape.

    Attributes
    ----------
    length, rows : int
        Elements of a row, and the number of rows: the last axis, and all others in C order.
    aligned : bool
        Whether all rows of all arrays lie in whole vectors, at multiples of 16 bytes, if the arrays do.
    sizes : tuple of int
        Sizes of the other axes, the innermost first, joined where all arrays allow it.
    strides : tuple of tuple of int
        For each array, its strides in bytes along these axes.
    extents : tuple of (int, int)
        For each array, the first byte and the one past the last, relative to its first element.
    steps : tuple of int
        For each array, bytes from one element of a row to the next.
    strided : bool
        Whether a row's elements are not contiguous in some array.
    """

    length: int
    rows: int
    aligned: bool
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    extents: tuple[tuple[int, int], ...]
    steps: tuple[int, ...]
    strided: bool

    def beside(self, itemsize: int) -> bool:
        """Tell whether the elements of neighbouring rows lie side by side in the first array."""
        return self.sizes[0] > 1 and abs(self.strides[0][0]) == itemsize

    def words(self, inputs: int) -> tuple[int, ...]:
        """Return the fields of the argument from `kept` on: the first `inputs` arrays are read, the others written."""
        rest = (0,) * (MAX_AXES - len(self.sizes))

        def padded(values: Sequence[int]) -> tuple[int, ...]:
            return (*values, *rest)

        none = padded((0,) * len(self.sizes))
        second = padded(self.strides[1]) if inputs > 1 else none
        written = [padded(each) for each in self.strides[inputs:]] or [none]
        reciprocals = padded([*map(reciprocal, self.sizes[:-1]), 0])
        return (
            len(self.sizes), *padded(self.sizes), *reciprocals, *padded(self.strides[0]), *second,
            *(word for each in written for word in each), *self.steps,
        )  # fmt: skip


def row_layout(shape: Sequence[int], arrays: Sequence[Spread], inputs: int) -> RowLayout:
    """Return the layout of arrays of one shape, of which the first `inputs` are read and the others written.

    Raises
    ------
    ValueError
        If the array has no axis, rows are too long, or rows that are written overlap each other.
    UnsupportedError
        If the other axes do not join to eight.
    """
    if not shape:
        raise ValueError("a row operation needs an array of one axis at least")
    length, outer = shape[-1], shape[:-1]
    if length > MOST_ELEMENTS:
        raise ValueError(f"a row has at most {MOST_ELEMENTS} elements, not {length}")
    rows = math.prod(outer)
    for number, each in enumerate(arrays):
        if number >= inputs and rows * length > 1:
            _check_apart(shape, each)
    axes = _joined(outer, [each.strides[:-1] for each in arrays])
    if len(axes) > MAX_AXES:
        raise UnsupportedError(f"the axes besides the rows' join to at most {MAX_AXES}, not to {len(axes)}")
    sizes = tuple(size for size, _ in axes)
    strides = tuple(tuple(each[k] for _, each in axes) for k in range(len(arrays)))
    vector = VECTOR_BYTES // arrays[0].itemsize  # elements
    # Of rows of one element a step means nothing.
    steps = tuple(each.strides[-1] if length > 1 else each.itemsize for each in arrays)
    strided = any(step != each.itemsize for step, each in zip(steps, arrays, strict=True))
    aligned = (
        not strided
        and length % vector == 0
        and all(
            stride % alignment_of(each.itemsize, vector) == 0
            for each, own in zip(arrays, strides, strict=True)
            for stride in own
        )
    )
    extents = tuple(_extent(shape, each) for each in arrays)
    return RowLayout(length, rows, aligned, sizes, strides, extents, steps, strided)


def alignment_of(itemsize: int, vector: int) -> int:
    """Return what the address of as many elements as a vector has is a multiple of, to be loaded or stored at once."""
    return min(VECTOR_BYTES, vector * itemsize)


def _joined(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[tuple[int, tuple[int, ...]]]:
    """Return sizes and strides, the innermost axis first, of axes joined where all arrays allow it."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for axis in reversed(range(len(shape))):
        size, own = shape[axis], tuple(each[axis] for each in strides)
        if size == 1:
            continue
        if found and all(outer == inner * found[-1][0] for outer, inner in zip(own, found[-1][1], strict=True)):
            found[-1] = (found[-1][0] * size, found[-1][1])
        else:
            found.append((size, own))
    return found or [(1, (0,) * len(strides))]


def _check_apart(shape: Sequence[int], each: Spread) -> None:
    """Refuse an array to be written in which two elements are the same memory, or may be."""
    reach = 0
    for stride, size in sorted((abs(stride), size) for stride, size in zip(each.strides, shape, strict=True)):
        if size > 1 and stride < reach + each.itemsize:
            raise ValueError("out has elements that share memory: its strides are too small for its shape")
        reach += stride * (size - 1)


def _extent(shape: Sequence[int], each: Spread) -> tuple[int, int]:
    if not math.prod(shape):
        return 0, 0
    spans = [stride * (size - 1) for stride, size in zip(each.strides, shape, strict=True)]
    return sum(min(span, 0) for span in spans), sum(max(span, 0) for span in spans) + each.itemsize


def spread_of(shape: Sequence[int], itemsize: int, strides: Sequence[int] | None = None) -> Spread:
    """Return how an array lies; without strides it is contiguous in C order.

    Raises
    ------
    TypeError, ValueError
        If the strides do not go with the shape.
    UnsupportedError
        If elements are not whole elements apart: kernels load each at once, which faults at another address.
    """
    if strides is None:
        return Spread(contiguous_strides(shape, itemsize), itemsize)
    own = given_strides(strides, tuple(shape), "strides_bytes")
    if math.prod(shape) and any(stride % itemsize and size > 1 for stride, size in zip(own, shape, strict=True)):
        raise UnsupportedError(
            f"elements of rows lie at multiples of their size, {itemsize} bytes, apart, not by strides_bytes {own}"
        )
    return Spread(own, itemsize)
