"""Types, shapes, errors and NaN rules of the tree are NumPy's: generated cases, of which tests/gpu takes some too."""

import pytest
from numpy_cases import (
    COMPLEX,
    DTYPES,
    IGNORING,
    MASKED,
    MOMENT_DTYPES,
    MOMENTS,
    NORMS,
    NUMPY,
    OF_COMPLEX,
    ONE_AXIS,
    PAIRS,
    PLAIN,
    compare,
    compare_dot,
    compare_last,
    compare_logsumexp,
    compare_masked,
    compare_moments,
    compare_norm,
    compare_pair,
    generate,
)

from lowlevel_reduce.tree import reduce

pytestmark = pytest.mark.slow  # thousands of generated cases


@pytest.fixture
def examples(is_sample):
    """How many cases are generated of each test."""
    return 30 if is_sample else 100


@pytest.mark.parametrize("op", PLAIN)
def test_types_shapes_errors_and_nan(op, examples):
    generate(lambda data: compare(data, reduce, op, NUMPY[op], DTYPES), examples)


@pytest.mark.parametrize("op", IGNORING)
def test_what_ignores_nan(op, examples):
    types = ["float16", "float32", "float64", "int8", *(COMPLEX if op in OF_COMPLEX else [])]
    generate(lambda data: compare(data, reduce, op, IGNORING[op], types, nan="ignore"), examples)


@pytest.mark.parametrize("op", MASKED)
def test_masks(op, examples):
    types = [*DTYPES, *(COMPLEX if op in OF_COMPLEX else [])]
    generate(lambda data: compare_masked(data, reduce, op, types), examples)


@pytest.mark.parametrize("op", MOMENTS)
@pytest.mark.parametrize("ddof", [0, 1])
def test_moments(op, ddof, examples):
    generate(lambda data: compare_moments(data, reduce, op, ddof, [*MOMENT_DTYPES, *COMPLEX]), examples)


@pytest.mark.parametrize("op", OF_COMPLEX)
def test_complex_types(op, examples):
    generate(lambda data: compare(data, reduce, op, NUMPY[op], COMPLEX), examples)


@pytest.mark.parametrize("op", ONE_AXIS)
def test_the_last_of_several(op, examples):
    generate(lambda data: compare_last(data, reduce, op, DTYPES), examples)


@pytest.mark.parametrize("op", NORMS)
def test_norms(op, examples):
    generate(lambda data: compare_norm(data, reduce, op, [*DTYPES, *COMPLEX]), examples)


@pytest.mark.parametrize("op", PAIRS)
def test_two_results(op, examples):
    types = DTYPES if op == "minmax" else MOMENT_DTYPES
    generate(lambda data: compare_pair(data, reduce, op, types), examples)


def test_logsumexp(examples):
    generate(lambda data: compare_logsumexp(data, reduce, DTYPES), examples)


def test_dot(examples):
    generate(lambda data: compare_dot(data, reduce, [*DTYPES, *COMPLEX]), examples)
