"""Offsets along several axes of any size: too many elements to reduce in a test, few to compute."""

import itertools
import operator
import random
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from one_warp import launch, parse, placed

from lowlevel_reduce.compiler import supported_architectures
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.layout import MAX_BYTES, Axis, Problem
from lowlevel_reduce.simulator import machine
from lowlevel_reduce.strategy.fields import shape_values

try:
    supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

THREADS = 128

OFFSETS = """\
#include "operators.cuh"
#include "columns/shape.cuh"
extern "C" __global__ void offsets(const __grid_constant__ ShapedProblem problem, const uint64* indices, int64* out)
{
    out[threadIdx.x] = problem.reduced.offset(indices[threadIdx.x], false);
}
"""

SIZES = (2, 3, 5, 7, 10, 641, 2**15 - 1, 2**16 + 1, 2**20, 6_700_417, 2**30 - 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1,
         2**32, 2**32 + 5, 5_000_000_000, 2**39 - 1, 2**40)  # fmt: skip


def argument(axes: Sequence[Axis]) -> bytes:
    """Return what the kernels for rows are given, with nothing in it but the reduced axes."""
    values = shape_values(Problem("strided", 0, 0, (), (), tuple(axes), 0, 0))
    return bytes(80) + b"".join(struct.pack("q" if value < 0 else "Q", value) for value in values)


def offset(axes: Sequence[Axis], index: int) -> int:
    """Return the bytes from the first element to element `index`."""
    total = 0
    for axis in axes[:-1]:
        index, place = divmod(index, axis.size)
        total += place * axis.stride
    return total + index * axes[-1].stride


def edges(size: int) -> list[int]:
    """Return indices around multiples of a size, and others."""
    draw = random.Random(size)
    multiples = [size, 2 * size, *(size * draw.randrange(1, MAX_BYTES // size + 1) for _ in range(50))]
    near = [index + past for index in multiples for past in (-1, 0, 1)]
    powers = [2**k + past for k in range(41) for past in (-1, 0)]
    found = [index for index in (*near, *powers) if 0 <= index <= MAX_BYTES]
    return [0, *found[: THREADS - 2], MAX_BYTES]


@pytest.mark.parametrize("size", SIZES)
def test_offset_of_any_element(size):
    kernel = parse("offsets", OFFSETS, "sm_90")
    axes = (Axis(size, 1), Axis(MAX_BYTES, -(size + 16)))
    indices = edges(size)
    memory = machine.GlobalMemory()
    given = placed(memory, np.array(indices, np.uint64))
    out = memory.allocate(8 * len(indices))
    launch(kernel, memory, argument(axes) + struct.pack("2Q", given, out), threads=len(indices))
    found = np.frombuffer(memory.read(out, 8 * len(indices)), np.int64)
    assert found.tolist() == [offset(axes, index) for index in indices]


NEAR = """\
#include "operators.cuh"
#include "columns/shape.cuh"
// For each thread: whether the elements it is about are near, how far each array's are, those to the end of a run, and
// how far the second is from each array's first element.
extern "C" __global__ void near(const __grid_constant__ ShapedProblem problem, const uint64* firsts,
                                const uint64* pasts, int64* out)
{
    const uint64 first = firsts[threadIdx.x];
    uint32 past[1] = {uint32(pasts[threadIdx.x])};
    int32 offset[1], second[1];
    uint32 left[1];
    for (uint32 second = 0; second < 2; ++second) {
        uint32 after[1] = {past[0]};
        int64 from[1];
        problem.reduced.far_offsets<1>(first, after, second == 1, from);
        out[6 * threadIdx.x + 4 + second] = from[0];
    }
    out[6 * threadIdx.x] = problem.reduced.is_near(first, past[0]);
    problem.reduced.left_in_runs<1>(first, past, 16, left);
    out[6 * threadIdx.x + 3] = left[0];
    problem.reduced.near_offsets<1, true>(first, past, offset, second);
    out[6 * threadIdx.x + 1] = offset[0];
    out[6 * threadIdx.x + 2] = second[0];
}
"""

FAR_APART = (
    (Axis(3, 2, 4), Axis(2, 100, 8), Axis(MAX_BYTES, 7, 0)),
    (Axis(49, 4, -4), Axis(2**20, 4 * 49 * 64, 0)),
    (Axis(2, 2**20, 1), Axis(2, -(2**21), 2), Axis(5, 8, 4), Axis(MAX_BYTES, 64, 20)),
    (Axis(2**30 - 1, 1, 1), Axis(MAX_BYTES, -3, 5)),
    (Axis(2**30, 1, 1), Axis(MAX_BYTES, -3, 5)),
    (Axis(2**30 + 1, 1, 1), Axis(MAX_BYTES, -3, 5)),
    (Axis(5, -2, 4), Axis(5_000_000_000, 1, 2), Axis(MAX_BYTES, 8, 1)),
    (Axis(MAX_BYTES, 2**20, 2**17),),
)


@pytest.mark.parametrize("axes", FAR_APART)
def test_offsets_of_elements_near_another(axes):
    kernel = parse("near", NEAR, "sm_90")
    draw = random.Random(7)
    sizes = [1, *itertools.accumulate((axis.size for axis in axes), operator.mul)]
    ends = [min(size, MAX_BYTES) - 4096 * (size >= MAX_BYTES) for size in sizes]
    pairs = [(max(0, draw.choice(ends) - draw.choice((0, 1, 4095, draw.randrange(4096)))), past)
             for past in (0, 1, 4095, 4096, *(draw.randrange(4096) for _ in range(THREADS - 4)))]  # fmt: skip
    memory = machine.GlobalMemory()
    given = [placed(memory, np.array(column, np.uint64)) for column in zip(*pairs, strict=True)]
    out = memory.allocate(48 * THREADS)
    launch(kernel, memory, argument(axes) + struct.pack("3Q", *given, out), threads=THREADS)
    found = np.frombuffer(memory.read(out, 48 * THREADS), np.int64).reshape(THREADS, 6)
    seconds = [axis._replace(stride=axis.second_stride) for axis in axes]
    for (first, past), (is_near, *offsets, left, whole, second_whole) in zip(pairs, found.tolist(), strict=True):
        far = [[offset(each, first + n) - offset(each, first) for each in (axes, seconds)] for n in range(past + 1)]
        reach = max(abs(each) for pair in far for each in pair)
        assert not is_near or reach < 2**31, (first, past)
        assert is_near or reach >= 2**29, (first, past)
        if reach < 2**31:
            assert offsets == far[past], (first, past)
        assert (offset(axes, first + past) - whole) % 2**64 == 0
        assert (offset(seconds, first + past) - second_whole) % 2**64 == 0
        size = axes[0].size if axes[1:] else MAX_BYTES
        assert left == min(16, size - (first + past) % size), (first, past)


@pytest.mark.parametrize(
    ("axes", "far"),
    [
        ((Axis(2, 2**31 - 1),), 0),
        ((Axis(2, -(2**31)),), 1),
        ((Axis(3, 4, -(2**30)),), 1),
        ((Axis(5, 4), Axis(2, 2**31 - 17)), 0),
        ((Axis(5, 4), Axis(2, 2**31 - 16)), 1),
        ((Axis(3, 4, -(2**30)), Axis(5, 16)), 1),
    ],
)
def test_rows_that_reach_far(axes, far):
    """Of others no leaf has to be asked whether its elements are near each other."""
    assert shape_values(Problem("strided", 0, 0, (), (), axes, 0, 0))[-5] == far
