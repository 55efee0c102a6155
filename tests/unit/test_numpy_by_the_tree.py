"""Types, shapes, errors and NaN rules of the tree are NumPy's: generated cases, of which tests/gpu takes some too."""

import pytest
from numpy_cases import (
    DTYPES,
    IGNORING,
    MASKED,
    MOMENT_DTYPES,
    MOMENTS,
    NUMPY,
    PLAIN,
    compare,
    compare_masked,
    compare_moments,
    generate,
)

from lowlevel_reduce.tree import reduce

EXAMPLES = 100


@pytest.mark.parametrize("op", PLAIN)
def test_types_shapes_errors_and_nan(op):
    generate(lambda data: compare(data, reduce, op, NUMPY[op], DTYPES), EXAMPLES)


@pytest.mark.parametrize("op", IGNORING)
def test_what_ignores_nan(op):
    types = ["float16", "float32", "float64", "int8"]
    generate(lambda data: compare(data, reduce, op, IGNORING[op], types, nan="ignore"), EXAMPLES)


@pytest.mark.parametrize("op", MASKED)
def test_masks(op):
    generate(lambda data: compare_masked(data, reduce, op, DTYPES), EXAMPLES)


@pytest.mark.parametrize("op", MOMENTS)
@pytest.mark.parametrize("ddof", [0, 1])
def test_moments(op, ddof):
    generate(lambda data: compare_moments(data, reduce, op, ddof, MOMENT_DTYPES), EXAMPLES)
