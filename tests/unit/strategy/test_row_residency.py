"""How many blocks of rows a multiprocessor shall hold."""

import pytest

from lowlevel_reduce import layout
from lowlevel_reduce.strategy import rows, whole
from lowlevel_reduce.strategy.base import Task

pytestmark = pytest.mark.usefixtures("without_elements")

FACTS = whole.DeviceFacts((9, 0), 132, clusters=True, cooperative=True)


@pytest.mark.parametrize(
    ("length", "itemsize", "accumulator_bytes", "resident"),
    [
        (32, 4, 8, 4),
        (99, 4, 8, 4),
        (256, 4, 8, 4),  # two steps
        (1000, 4, 8, 4),  # all vectors of a lane are of one row
        (4096, 4, 8, 2),  # a warp for each of four leaves, in a kernel for blocks of up to sixteen
        (5000, 4, 12, 2),  # of five, of up to twelve
        (20_000, 4, 8, 4),  # several leaves a warp
        (5001, 4, 8, 2),  # at any address, a warp for each of five leaves
        (50_001, 4, 12, 3),  # several leaves a warp
        (32, 4, 4, 4),  # keys
        (32, 4, 12, 3),  # a key and its place
        (32, 2, 4, 2),
        (32, 8, 24, 2),
    ],
)
def test_residency_of_rows(length, itemsize, accumulator_bytes, resident):
    shape = (1 << 20, length)
    strides = layout.contiguous_strides(shape, itemsize)
    problem = layout.problem_of(shape, itemsize, axis=1, strides_bytes=strides)
    chosen = rows.choose_rows(Task(problem, FACTS, itemsize, accumulator_bytes))
    assert chosen.resident_blocks == resident
    heavy = rows.choose_rows(Task(problem, FACTS, itemsize, accumulator_bytes, heavy=True))
    assert heavy.resident_blocks * heavy.most_warps == 16


@pytest.mark.parametrize(
    ("length", "accumulator_bytes", "warps"), [(4096, 8, 32), (4096, 12, 16), (16_384, 8, 32), (4096, 24, 16)]
)
def test_residency_of_two_arrays(length, accumulator_bytes, warps):
    """As many as a multiprocessor has: of both arrays half a leaf is loaded at a time."""
    strides = layout.contiguous_strides((1 << 14, length), 4)
    problem = layout.problem_of(
        (1 << 14, length), 4, axis=1, strides_bytes=strides, second_strides_bytes=strides, second_itemsize=4
    )
    chosen = rows.choose_rows(Task(problem, FACTS, 4, accumulator_bytes, heavy=True, two_arrays=True))
    assert chosen.resident_blocks * chosen.most_warps == warps
