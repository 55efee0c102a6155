"""Compensated float64 sums on the device: the tree's bits, within an ulp of the exact sum where most of it cancels."""

import pytest
from ill_conditioned import cancelling, condition_of, ulps
from placed import assert_same, reduced

import lowlevel_reduce as lr


@pytest.mark.parametrize("condition", [1e6, 1e13])
def test_sums_that_cancel(stream, cut, condition):
    for length in cut([5, 33, 257, 1000, 5003, 20_011, 70_001], [5, 257, 5003]):
        for seed in cut(range(8), range(2)):
            x = cancelling(length, condition, seed)
            assert condition_of(x) > 0.5 * condition
            found = reduced(x, stream=stream, accumulate="compensated")
            assert_same(found, lr.tree.reduce(x, accumulate="compensated"), f"{length} elements, seed {seed}")
            assert ulps(found, x) <= 1, f"{length} elements, seed {seed}"


def test_rows_that_cancel(stream):
    x = cancelling(6 * 999, 1e13, 1).reshape(6, 999)
    x[1] = cancelling(999, 1e13, 2)
    for axis in (0, 1):
        found = reduced(x, stream=stream, axis=axis, accumulate="compensated")
        assert_same(found, lr.tree.reduce(x, axis=axis, accumulate="compensated"), f"axis {axis}")
    assert ulps(found[1], x[1]) <= 1
