"""The cases: what is reduced, of which shape, axes, strides and type, and where its elements are. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.layout import contiguous_strides

__all__ = ["BLOCK", "Case"]

BLOCK = 1 << 22
"""After so many elements, the elements of every case repeat."""

Array = npt.NDArray[Any]

_PAIRS = ("mean_var", "minmax", "softmax_stats")


@dataclass(frozen=True)
class Case:
    """One reduction: operator, shape, axes (None: all), element type; or segments, given by their borders.

    "dot" reduces two arrays of that shape, type and layout.

    The array begins `shift` elements into the memory, which is aligned, so that it need not be aligned to 16 bytes.
    Its `strides` are counted in elements, and are 0 or more; None if it is contiguous.
    """

    op: str
    shape: tuple[int, ...]
    axis: int | tuple[int, ...] | None = None
    dtype: str = "float32"
    offsets: Array | None = field(default=None, compare=False)
    shift: int = 0
    strides: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        """Elements, each counted as often as it is read."""
        return math.prod(self.shape)

    @property
    def arrays(self) -> int:
        """How many arrays are read."""
        return 2 if self.op == "dot" else 1

    @property
    def is_plain(self) -> bool:
        """Whether the array is contiguous and reduced as a whole or over one axis."""
        return self.strides is None and not isinstance(self.axis, tuple)

    @property
    def is_plain_whole(self) -> bool:
        """Whether it is one contiguous array that is reduced as a whole."""
        return self.strides is None and self.axis is None and self.offsets is None

    @property
    def axes(self) -> tuple[int, ...]:
        """The reduced axes, in ascending order."""
        if self.axis is None:
            return tuple(range(len(self.shape)))
        return tuple(sorted(self.axis)) if isinstance(self.axis, tuple) else (self.axis,)

    @property
    def element_strides(self) -> tuple[int, ...]:
        """The strides in elements, also if the array is contiguous."""
        return contiguous_strides(self.shape, 1) if self.strides is None else self.strides

    @property
    def strides_bytes(self) -> tuple[int, ...] | None:
        """The strides in bytes; None if the array is contiguous."""
        itemsize = numpy_dtype(self.dtype).itemsize
        return None if self.strides is None else tuple(itemsize * stride for stride in self.strides)

    @property
    def span(self) -> int:
        """Elements of the memory from the first element of the array to its last."""
        if self.strides is None:
            return self.size
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def array_bytes(self) -> int:
        """Bytes of the memory that one array spans."""
        return self.span * numpy_dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the memory that all arrays span."""
        return self.array_bytes * self.arrays

    @property
    def rows(self) -> int:
        """How many rows there are, each with one result or pair of results."""
        if self.offsets is not None:
            return len(self.offsets) - 1
        return math.prod(size for axis, size in enumerate(self.shape) if axis not in self.axes)

    @property
    def moved_bytes(self) -> int:
        """Bytes that must be read or written at least: each element once, the borders of segments, and the results."""
        itemsize = numpy_dtype(self.dtype).itemsize
        read = math.prod(n for n, stride in zip(self.shape, self.element_strides, strict=True) if stride)
        result_bytes = {"argmin": 8, "argmax": 8, **dict.fromkeys(_PAIRS, 2 * itemsize)}.get(self.op, itemsize)
        borders = 0 if self.offsets is None else self.offsets.nbytes
        return read * itemsize * self.arrays + borders + self.rows * result_bytes

    def row(self, index: int) -> Array:
        """Return the indices, in memory, of the elements of one row, in order."""
        if self.offsets is not None:
            return np.arange(self.offsets[index], self.offsets[index + 1]) + self.shift
        first, steps = self._progressions(index)
        numbers = np.asarray([first])
        for size, stride in steps:
            numbers = (numbers[:, np.newaxis] + np.arange(size) * stride).reshape(-1)
        return numbers

    def number(self, index: int, position: int) -> int:
        """Return the index, in memory, of the element at a position of a row."""
        if self.offsets is not None:
            return int(self.offsets[index]) + position + self.shift
        first, steps = self._progressions(index)
        at = np.unravel_index(position, [size for size, _ in steps]) if steps else ()
        return first + sum(int(i) * stride for i, (_, stride) in zip(at, steps, strict=True))

    def places(self, index: int) -> Array:
        """Return how often a row has an element at each place of the block that the elements repeat.

        By doubling, so that a row of 2^29 elements takes no longer than 29 additions of blocks.
        """
        first, steps = self._progressions(index)
        found: Array = np.zeros(BLOCK, np.int64)
        found[first % BLOCK] = 1
        for size, stride in steps:
            one, done = found, 1
            for bit in bin(size)[3:]:
                found, done = found + np.roll(found, done * stride % BLOCK), 2 * done
                if bit == "1":
                    found, done = found + np.roll(one, done * stride % BLOCK), done + 1
        return found

    def _progressions(self, index: int) -> tuple[int, list[tuple[int, int]]]:
        """Return where a row begins in memory, and the size and stride of each of its axes, the outermost first."""
        strides = self.element_strides
        kept = [axis for axis in range(len(self.shape)) if axis not in self.axes]
        at = np.unravel_index(index, [self.shape[axis] for axis in kept]) if kept else ()
        first = self.shift + sum(int(i) * strides[axis] for i, axis in zip(at, kept, strict=True))
        return first, [(self.shape[axis], strides[axis]) for axis in self.axes]
