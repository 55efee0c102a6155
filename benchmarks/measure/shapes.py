"""Random problems: shapes, axes, strides, types and operators, drawn from a seed. Pure.

The distribution. Each problem is drawn from the seed and its own number, so the first of many are those of few.

- Type: float32 40 %, bfloat16 25 %, float16 10 %, float64 10 %, int8 8 %, int32 7 %.
- Operator: sum 40 %, logsumexp 15 %, mean_var 15 %, max 10 %, argmax 10 %, dot 10 %; of integers sum 60 %, max 20 %,
  argmax 20 %.
- Dimensions: 1 to 5, with 15, 35, 25, 15 and 10 %.
- Size: from 4 KB to 2 GB, uniform in its logarithm, of which each dimension has a share (a Dirichlet distribution whose
  parameters are 2: lengths of 1 are there, and rare). In half of the problems lengths of 8 and more are rounded to a
  multiple of 8, in a quarter to a power of two, as people choose them; in the rest they are any integers.
- Axes: 35 % the last one, 20 % the first one, 15 % all, 30 % any other choice, each as likely. argmax reduces one axis
  or all.
- Layout: 60 % contiguous, 12 % with permuted axes, 10 % every second to fourth element along an axis, 12 % a part of a
  larger array along an axis, which begins at any element, 6 % broadcast along an axis of 2 to 64 elements, of which
  memory holds one. What a shape does not allow is contiguous: a permutation of one axis, a step or a larger array that
  would take more than 2 GB, a broadcast without such an axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from benchmarks.measure.figures import name_of
from benchmarks.measure.problems import Case
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.layout import contiguous_strides

__all__ = ["drawn", "drawn_layout", "named"]

LEAST_BYTES, MOST_BYTES = 4 << 10, 2 << 30
MOST_BROADCAST = 64

TYPES: Mapping[str, float] = {
    "float32": 0.40, "bfloat16": 0.25, "float16": 0.10, "float64": 0.10, "int8": 0.08, "int32": 0.07,
}  # fmt: skip
OF_FLOATS: Mapping[str, float] = {
    "sum": 0.40, "logsumexp": 0.15, "mean_var": 0.15, "max": 0.10, "argmax": 0.10, "dot": 0.10,
}  # fmt: skip
OF_INTEGERS: Mapping[str, float] = {"sum": 0.6, "max": 0.2, "argmax": 0.2}
DIMENSIONS: Mapping[int, float] = {1: 0.15, 2: 0.35, 3: 0.25, 4: 0.15, 5: 0.10}
ROUNDING: Mapping[str, float] = {"eights": 0.50, "powers": 0.25, "any": 0.25}
AXES: Mapping[str, float] = {"last": 0.35, "first": 0.20, "all": 0.15, "other": 0.30}
LAYOUTS: Mapping[str, float] = {
    "contiguous": 0.60, "permuted": 0.12, "stepped": 0.10, "sliced": 0.12, "broadcast": 0.06,
}  # fmt: skip

T = TypeVar("T")


def drawn(seed: int, number: int) -> Case:
    """Return the problem of a number, with its type and operator."""
    rng = np.random.default_rng((seed, number))
    dtype = _one_of(rng, TYPES)
    op = _one_of(rng, OF_INTEGERS if dtype.startswith("int") else OF_FLOATS)
    return _layout(rng, op, dtype)


def drawn_layout(seed: int, number: int, op: str, dtype: str) -> Case:
    """Return the problem of a number for an operator and a type: its shape, axes and strides are drawn alone."""
    return _layout(np.random.default_rng((seed, number, numpy_dtype(dtype).itemsize)), op, dtype)


def named(case: Case) -> str:
    """Return a problem's name: all that it is, so that two of one name are the same."""
    shape = " x ".join(name_of(size) for size in case.shape)
    axes = "" if case.axis is None else f", axis {case.axis}" if isinstance(case.axis, int) else (
        f", axes {' and '.join(map(str, case.axes))}"
    )  # fmt: skip
    strides = "" if case.strides is None else f", strides {' '.join(map(str, case.strides))}"
    shift = f", from element {case.shift} on" if case.shift else ""
    return f"{case.op} {case.dtype} {shape}{axes}{strides}{shift}"


def _one_of(rng: np.random.Generator, weights: Mapping[T, float]) -> T:
    return list(weights)[int(rng.choice(len(weights), p=list(weights.values())))]


def _layout(rng: np.random.Generator, op: str, dtype: str) -> Case:
    itemsize = numpy_dtype(dtype).itemsize
    shape = _lengths(rng, itemsize)
    axis = _axis(rng, len(shape), single=op == "argmax")
    strides, shift = _strides(rng, shape, itemsize)
    strides = None if strides == contiguous_strides(shape, 1) else strides
    return Case(op, shape, axis, dtype, shift=shift, strides=strides)


def _lengths(rng: np.random.Generator, itemsize: int) -> tuple[int, ...]:
    dimensions, rounding = _one_of(rng, DIMENSIONS), _one_of(rng, ROUNDING)
    least, most = math.log2(LEAST_BYTES / itemsize), math.log2(MOST_BYTES / itemsize)
    shares = rng.dirichlet(np.full(dimensions, 2.0)) * rng.uniform(least, most)
    lengths = [_rounded(float(2.0**share), rounding) for share in shares]
    # What rounding has added or lost is made up for in the longest, so that the size stays within its limits.
    longest = int(np.argmax(lengths))
    others = math.prod(lengths) // lengths[longest]
    bounds = -(-LEAST_BYTES // (itemsize * others)), max(1, MOST_BYTES // (itemsize * others))
    lengths[longest] = min(max(lengths[longest], bounds[0]), bounds[1])
    return tuple(lengths)


def _rounded(length: float, rounding: str) -> int:
    if rounding == "powers":
        return int(2 ** round(math.log2(length)))
    if rounding == "eights" and length >= 8:
        return 8 * round(length / 8)
    return max(1, round(length))


def _axis(rng: np.random.Generator, dimensions: int, *, single: bool) -> int | tuple[int, ...] | None:
    kind = _one_of(rng, AXES)
    if dimensions == 1 or kind == "all":
        return None
    if kind != "other":
        return dimensions - 1 if kind == "last" else 0
    if dimensions == 2:
        return int(rng.integers(2))
    subsets = [_bits(number) for number in range(1, 2**dimensions - 1)]
    # Neither the last nor the first alone, which have shares of their own.
    others = [axes for axes in subsets if axes not in ((0,), (dimensions - 1,)) and not (single and len(axes) > 1)]
    chosen = others[int(rng.integers(len(others)))]
    return chosen[0] if len(chosen) == 1 else chosen


def _bits(number: int) -> tuple[int, ...]:
    return tuple(i for i in range(number.bit_length()) if number >> i & 1)


def _strides(rng: np.random.Generator, shape: Sequence[int], itemsize: int) -> tuple[tuple[int, ...] | None, int]:
    """Return the strides in elements, None if contiguous, and at which element of the memory the array begins."""
    kind, axis = _one_of(rng, LAYOUTS), int(rng.integers(len(shape)))
    room = MOST_BYTES // (math.prod(shape) * itemsize)  # how many times the array the memory may be
    if kind == "permuted":
        return _permuted(shape, [int(i) for i in rng.permutation(len(shape))]), 0
    if kind == "stepped" and room >= 2:
        step = int(rng.integers(2, 1 + min(room, 4)))
        strides = _within(shape, axis, step * shape[axis])
        return (*strides[:axis], step * strides[axis], *strides[axis + 1 :]), 0
    if kind == "sliced" and room >= 2:
        more = int(rng.integers(1, shape[axis] + 1))
        strides = _within(shape, axis, shape[axis] + more)
        return strides, int(rng.integers(0, more + 1)) * strides[axis]
    short = [i for i, size in enumerate(shape) if 2 <= size <= MOST_BROADCAST]
    if kind == "broadcast" and short:
        axis = short[axis % len(short)]
        strides = _within(shape, axis, 1)
        return (*strides[:axis], 0, *strides[axis + 1 :]), 0
    return None, 0


def _within(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    """Return the strides in an array that has another size along an axis."""
    return contiguous_strides([*shape[:axis], size, *shape[axis + 1 :]], 1)


def _permuted(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a shape whose axes lie in this order in memory, the outermost first."""
    packed = dict(zip(order, contiguous_strides([shape[i] for i in order], 1), strict=True))
    return tuple(packed[i] for i in range(len(shape)))
