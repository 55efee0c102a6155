"""Arrays without gaps that do not lie in C order: which of their reductions read memory from one end to the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["order_of", "sizes_in"]


def order_of(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, ...] | None:
    """Return an array's axes in the order in which it is contiguous; None if there is none, or no element.

    Axes of one element may be anywhere, so they come first.
    """
    if 0 in shape:
        return None
    order = sorted(range(len(shape)), key=lambda each: (shape[each] > 1, -strides[each]))
    extent = itemsize
    for each in reversed(order):
        if shape[each] > 1:
            if strides[each] != extent:
                return None
            extent *= shape[each]
    return tuple(order)


def sizes_in(order: Sequence[int], shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int] | None:
    """Return an array in another order of its axes as rows that lie apart, elements of a row, and rows side by side.

    None if it is none: the reduced axes are to be neighbours there, and they and the others in ascending order, so
    that elements and results have the places that they have in C order.
    """
    wide = [each for each in order if shape[each] > 1]
    inside = [each in axes for each in wide]
    first = inside.index(True) if any(inside) else len(wide)
    end = first + sum(inside)
    before, reduced, behind = wide[:first], wide[first:end], wide[end:]
    if not all(inside[first:end]) or any(each != sorted(each) for each in (reduced, before + behind)):
        return None
    return (
        math.prod(shape[each] for each in before),
        math.prod(shape[each] for each in reduced),
        math.prod(shape[each] for each in behind),
    )
