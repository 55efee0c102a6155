"""Arrays without gaps whose order is no row's: brought to the device as they lie, all of them, and reduced there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from lowlevel_reduce.driver import Stream, binding
from lowlevel_reduce.layout import MAX_AXES
from lowlevel_reduce.parts.feed import Feed, Step
from lowlevel_reduce.parts.memory_order import sizes_in
from lowlevel_reduce.parts.sources import Source

__all__ = ["Whole", "arranged"]

FREE_PART = 4
"""What part of the device's free memory an array may take, if that is not limited: others may use the device too."""


class Whole(NamedTuple):
    """An array that may be brought to the device whole.

    Attributes
    ----------
    source : Source
        Its elements in the order in which they lie.
    shape, strides : tuple of int
        What it is there, the strides in bytes.
    axes : tuple of int
        Those that are reduced.
    is_needed : bool
        Whether no order of the axes has the rows as it lies.
    """

    source: Source
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    axes: tuple[int, ...]
    is_needed: bool

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.source.dtype.itemsize

    def fits(self, result_bytes: int, most: int | None) -> bool:
        """Tell whether it fits into the memory that may be taken, half of which is for what is made of it."""
        if most is None:
            return self.size_bytes <= int(binding.call("cuMemGetInfo")[0]) // FREE_PART
        return self.size_bytes <= (most - result_bytes) // 2

    def bring(
        self, piece_bytes: int, stream: Stream, told: Callable[[int], object] | None, use: Callable[[int], object]
    ) -> None:
        """Bring it to the device, in pieces, so that progress is told; call `use` with its address behind the last."""
        with Feed(self.source, self.size_bytes, stream, told, side_by_side=True) as feed:
            feed.run(self._steps(max(piece_bytes // self.source.dtype.itemsize, 1), use))

    def _steps(self, at_once: int, use: Callable[[int], object]) -> Iterator[Step]:
        count = math.prod(self.shape)
        for start in range(0, count, at_once):
            end = min(start + at_once, count)
            yield [(start, end - start)], (use if end == count else _nothing)


def arranged(source: Source, axes: list[int]) -> tuple[Source, tuple[int, int, int], Whole | None]:
    """Return an array, maybe with its axes in another order, and its rows apart, their elements, rows side by side.

    The last is what may be brought to the device whole, if it has no gaps: there is need of it where no order of the
    axes has these rows as it lies.
    """
    shape, order = source.shape, source.order()
    sizes = None if order is None else sizes_in(order, shape, axes)
    if order is not None and sizes is not None:
        return source.transposed(order), sizes, _whole_of(source, order, axes, is_needed=False)
    kept = [each for each in range(len(shape)) if each not in axes]
    is_run = axes == list(range(axes[0], axes[-1] + 1)) if axes else True
    if not is_run or (kept and not source.is_contiguous):
        sizes = (math.prod(shape[each] for each in kept), math.prod(shape[each] for each in axes), 1)
        return source.transposed((*kept, *axes)), sizes, _whole_of(source, order, axes, is_needed=True)
    first, end = (axes[0], axes[-1] + 1) if axes else (len(shape), len(shape))
    sizes = (math.prod(shape[:first]), math.prod(shape[first:end]), math.prod(shape[end:]))
    return source, sizes, _whole_of(source, order, axes, is_needed=True)


def _whole_of(source: Source, order: Sequence[int] | None, axes: Sequence[int], *, is_needed: bool) -> Whole | None:
    """Return an array that lies side by side in an order of its axes; None if it does not."""
    if order is None or len(order) > MAX_AXES:
        return None
    strides, extent = [0] * len(order), source.dtype.itemsize
    for each in reversed(order):
        strides[each] = extent
        extent *= source.shape[each]
    return Whole(source.transposed(tuple(order)), source.shape, tuple(strides), tuple(axes), is_needed)


def _nothing(_: int) -> None:
    """More of the array comes."""
