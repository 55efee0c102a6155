"""How many blocks of rows a multiprocessor shall hold."""

import pytest

from lowlevel_reduce import layout, policy, row_policy

FACTS = policy.DeviceFacts((9, 0), 132, clusters=True, cooperative=True)


@pytest.mark.parametrize(
    ("length", "itemsize", "accumulator_bytes", "resident"),
    [
        (32, 4, 8, 4),
        (99, 4, 8, 4),
        (256, 4, 8, 3),  # two steps
        (4096, 4, 8, 8),  # a warp for each of four leaves
        (5000, 4, 12, 4),  # of five
        (20_000, 4, 8, 3),  # several leaves a warp
        (32, 4, 4, 3),  # keys
        (32, 4, 12, 3),  # a key and its place
        (32, 2, 4, 2),
        (32, 8, 24, 2),
    ],
)
def test_residency_of_rows(length, itemsize, accumulator_bytes, resident):
    shape = (1 << 20, length)
    strides = layout.contiguous_strides(shape, itemsize)
    problem = layout.problem_of(shape, itemsize, axis=1, strides_bytes=strides)
    chosen = row_policy.choose_rows(problem, FACTS, itemsize=itemsize, accumulator_bytes=accumulator_bytes)
    assert chosen.resident_blocks == resident
    heavy = row_policy.choose_rows(problem, FACTS, itemsize=itemsize, accumulator_bytes=accumulator_bytes, heavy=True)
    assert heavy.resident_blocks * heavy.warps in (15, 16)
