"""Compensated sums on the device: the tree's bits, within an ulp of the exact sum where most of it cancels."""

import math

import numpy as np
import pytest
from ill_conditioned import cancelling, condition_of, ulps
from placed import assert_same, reduced

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type


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


def test_what_only_the_errors_of_low_parts_hold(stream):
    """All else cancels: the high parts of two pairs of elements, and then their low parts with a third pair."""
    x = np.array([1.0, 2.0**-60, -1.0, 2.0**-120, -(2.0**-60), 0.0, 0.0, 0.0])
    assert_same(lr.tree.reduce(x, accumulate="compensated"), np.array(2.0**-120))
    assert_same(reduced(x, stream=stream, accumulate="compensated"), np.array(2.0**-120))


LARGEST = np.finfo(np.float64).max


@pytest.mark.parametrize("first", [True, False])
def test_sums_beside_the_largest_double(stream, first):
    """A sum that does not overflow is the same whichever operand is the larger: so it is in every row of a batch."""
    small = float.fromhex("-0x1.57e83dbc03d83p+1022")
    for sign in (1.0, -1.0):
        x = np.zeros((8, 64))
        x[:, 0], x[:, 3] = (small, LARGEST) if first else (LARGEST, small)
        x *= sign
        expected = np.full(8, sign * (LARGEST + small))
        assert_same(lr.tree.reduce(x, axis=1, accumulate="compensated"), expected)
        for rows in (1, 2, 8):
            assert_same(
                reduced(x[:rows], stream=stream, axis=1, accumulate="compensated"), expected[:rows], f"{rows} rows"
            )
        columns = np.ascontiguousarray(x.T)
        assert_same(reduced(columns, stream=stream, axis=0, accumulate="compensated"), expected, "columns")


def test_sums_that_overflow_by_their_low_parts(stream):
    x = np.array([LARGEST, 0.6 * 2.0**970, 0.6 * 2.0**970, 0.0])
    for sign in (1.0, -1.0):
        expected = np.array(sign * np.inf)
        assert_same(lr.tree.reduce(sign * x, accumulate="compensated"), expected)
        assert_same(reduced(sign * x, stream=stream, accumulate="compensated"), expected)


def small_floats(dtype, length, seed):
    """Return finite elements of every magnitude, nearly all of which cancel pairwise, in random order."""
    rng = np.random.default_rng(seed)
    dtype = element_type(dtype).dtype
    every = np.arange(256**dtype.itemsize).astype(f"u{dtype.itemsize}").view(dtype)
    with np.errstate(invalid="ignore"):  # NaN are among them
        finite = np.isfinite(every.astype(np.float64))
    half = rng.choice(every[finite], length // 2)
    return rng.permutation(np.concatenate([half, -half, half[: length % 2]]))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"])
def test_small_floats_of_every_magnitude(stream, cut, dtype):
    """Vectors of the first three add up exactly in float64, as all their sums do; those of bfloat16 do not."""

    def check(x, axis=None):
        found = reduced(x, stream=stream, axis=axis, accumulate="compensated", result_dtype="float64")
        expected = lr.tree.reduce(x, axis=axis, accumulate="compensated", dtype="float64")
        assert_same(found, expected, f"{x.shape} over {axis}")
        return found

    for length in cut([5, 257, 5003, 20_011], [257, 5003]):
        x = small_floats(dtype, length, length)
        found = check(x)
        assert dtype == "bfloat16" or found == math.fsum(x.astype(np.float64))
    x = small_floats(dtype, 7 * 640, 1).reshape(7, 640)
    check(x, 0)
    check(x, 1)
    x.ravel()[[0, 641, 1282, 1283]] = np.array([np.inf, np.nan, np.inf, -np.inf]).astype(x.dtype)
    check(x, 1)
    x.fill(-0.0)
    check(x, 1)
