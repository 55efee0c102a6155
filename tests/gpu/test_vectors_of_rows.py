"""Operators that fold a lane's vectors of a short row at once, by the elements themselves."""

import numpy as np
import pytest
from placed import assert_same, reduced

import lowlevel_reduce as lr

pytestmark = pytest.mark.usefixtures("without_elements")

OPERATORS = ["argmin", "argmax", "min", "max", "minmax"]
LENGTHS = [4, 8, 64, 100, 128, 256, 260, 512, 1024]
"""Whole vectors: of every element of a group of lanes, and of a part of them."""


def rows_of(length, dtype):
    """Return rows of few values, so that the extremes come several times, some of zeros of both signs and of NaN."""
    rng = np.random.default_rng(length)
    x = rng.integers(-2, 3, (9, length)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[3] = np.where(rng.integers(0, 2, length) == 0, -0.0, 0.0)
        x[4, rng.integers(0, length, 2)] = np.nan
        x[5] = np.nan
        x[6] = -np.inf
        x[7, length // 2 :] = np.inf
    return x


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_rows_of_whole_vectors(stream, cut, dtype, op):
    for length in cut(LENGTHS, [8, 100, 256, 260]):
        x = rows_of(length, dtype)
        expected = lr.tree.reduce(x, op, axis=1)
        actual = reduced(x, op, stream=stream, axis=1)
        expected = tuple(expected) if isinstance(expected, tuple) else expected
        assert_same(actual, expected, f"{op} of {length} {dtype}")
