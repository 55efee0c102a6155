"""Elements that operators just tell apart: complex ones of which one part is NaN or zero, and tiny deviations."""

import numpy as np
import pytest
from placed import assert_same, reduced

import lowlevel_reduce as lr

OF_ONE_PART = np.array(
    [complex(1, 2), complex(np.nan, 3), complex(4, np.nan), complex(0, 5), complex(6, 0)], np.complex64
)


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_a_complex_element_with_one_part_that_is_nan_is_left_out(stream, op):
    x = np.tile(OF_ONE_PART, 30)
    found = reduced(x, op, stream=stream, nan="ignore")
    whole = np.array([7, 7]) * 30
    assert found == complex(*(whole / 90 if op == "mean" else whole))
    assert_same(found, lr.tree.reduce(x, op, nan="ignore"))


def test_a_complex_element_with_one_part_that_is_not_zero_is_true(stream):
    x = np.tile(np.array([0, 5j, 0, 6], np.complex64), 30)
    for op, value in (("count_nonzero", 60), ("any", True), ("all", False)):
        assert reduced(x, op, stream=stream) == value
    for part in (5j, 6):
        assert reduced(np.full(30, part, np.complex64), "all", stream=stream)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_a_variance_is_never_below_zero(stream, dtype):
    """Squares of deviations that float64 does not hold are zero, but the square of their sum is not."""
    x = np.full(4096, 2.0**-538, dtype)
    x[0] = 0
    if dtype == "complex128":
        x.imag = x.real
    for op in ("var", "std"):
        found = reduced(x, op, stream=stream, ddof=4095)
        assert found.tobytes() == bytes(8), "+0.0"
        assert_same(found, lr.tree.reduce(x, op, ddof=4095))
