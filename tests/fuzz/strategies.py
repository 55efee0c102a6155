"""Hypothesis strategies: arrays that lie in any way, operators with options, and the offsets of segments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from lowlevel_reduce.dtypes import ELEMENT_TYPES, ElementType, element_type
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators import OPERATORS, Reduction, resolve
from tests.golden.elements import FLOAT_KINDS, INTEGER_KINDS, elements

__all__ = ["Asked", "Laid", "arrays", "axes", "element_types", "operators", "segment_offsets"]

Array = npt.NDArray[Any]

_STEPS = (1, 1, 1, 2, -1, -3)
_LINE, _BOX = 20_000, 40  # the most elements of one axis that is alone, and of one of several


class Laid(NamedTuple):
    """An array as it lies in memory.

    Attributes
    ----------
    base : ndarray
        The memory, one axis of the array's type.
    view : ndarray
        The array, with any strides, in that memory.
    """

    base: Array
    view: Array

    @property
    def offset_bytes(self) -> int:
        """Where the first element is in the memory."""
        return int(self.view.ctypes.data - self.base.ctypes.data)


class Asked(NamedTuple):
    """An operator, the options that `lowlevel_reduce.tree.reduce` takes, and what it makes of the elements' type."""

    op: str
    options: dict[str, Any]
    reduction: Reduction


def element_types(names: Sequence[str] | None = None) -> st.SearchStrategy[ElementType]:
    """Draw one of the element types, or of those named."""
    return st.sampled_from(ELEMENT_TYPES if names is None else [element_type(name) for name in names])


@st.composite
def arrays(draw: st.DrawFn, element: ElementType, *, op: str = "sum", contiguous: bool = False) -> Laid:
    """Draw an array that is not empty: of up to four axes, stepped, reversed and in any order, at any element."""
    ndim = draw(st.integers(1, 4))
    lengths = st.integers(1, _LINE if ndim == 1 else _BOX if ndim == 2 else 9)
    shape = draw(st.tuples(*[lengths] * ndim))
    steps = (1,) * ndim if contiguous else draw(st.tuples(*[st.sampled_from(_STEPS)] * ndim))
    order = tuple(range(ndim)) if contiguous else draw(st.permutations(range(ndim)))
    before = draw(st.integers(0, 5))
    whole = tuple(length * abs(step) for length, step in zip(shape, steps, strict=True))
    kinds = FLOAT_KINDS if element.is_float or element.is_complex else INTEGER_KINDS
    count = before + math.prod(whole)
    base = elements(
        element, (count,), op=op, kind=draw(st.sampled_from(kinds)), length=count, seed=draw(st.integers(0, 2**32))
    )
    places = tuple(slice(None, None, step) for step in steps)
    return Laid(base, base[before:].reshape(whole)[places].transpose(order))


def axes(ndim: int) -> st.SearchStrategy[tuple[int, ...] | None]:
    """Draw the axes to reduce: all, or any of them."""
    some = st.lists(st.integers(0, ndim - 1), min_size=1, max_size=ndim, unique=True).map(tuple)
    return st.one_of(st.none(), some)


@st.composite
def operators(draw: st.DrawFn, element: ElementType, *, plain: bool = False) -> Asked:
    """Draw an operator of one array that takes a type, and promises its bits; with options unless `plain`."""
    found = [asked for name in OPERATORS for asked in _with_options(name, element, plain=plain)]
    asked: Asked = draw(st.sampled_from(found))
    return asked


def _with_options(name: str, element: ElementType, *, plain: bool) -> list[Asked]:
    tried: list[dict[str, Any]] = [{}]
    if not plain:
        tried += [{"nan": "ignore"}, {"ddof": 1}, {"last": True}, {"accumulate": "float32"}]
        tried += [{"accumulate": "compensated"}, {"accumulate": element.name}, {"dtype": "float64"}]
    found = []
    for options in tried:
        asked = {key: value for key, value in options.items() if key not in ("accumulate", "dtype")}
        try:
            reduction = resolve(name, **asked)
            reduction.types(element, options.get("accumulate"), options.get("dtype"))
        except (UnsupportedError, ValueError):
            continue
        if reduction.exact and not reduction.two_arrays:
            found.append(Asked(name, options, reduction))
    return found


@st.composite
def segment_offsets(draw: st.DrawFn, length: int, *, empty: bool = True) -> npt.NDArray[np.int64]:
    """Draw CSR offsets of segments that cover `length` elements; short, long, and empty ones if these may be."""
    inner = draw(st.lists(st.integers(0, length), max_size=40))
    if draw(st.booleans()):  # many short ones
        begin = draw(st.integers(0, length))
        inner += range(begin, min(begin + 40, length))
    places = sorted([0, *inner, length]) if empty else sorted({0, *inner, length})
    return np.array(places, np.int64)
