"""Types, shapes, errors and NaN rules of what a device computes are NumPy's.

The many cases are the tree's, in tests/unit/test_numpy_by_the_tree.py: the same bits, and nothing to compile. Here each
operator takes a few of them through the device, with a type or two: nearly every case is a kernel of its own.
"""

import functools

import numpy as np
import pytest
from numpy_cases import (
    COMPLEX,
    DTYPES,
    FLOATS,
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
    outcome,
)

import lowlevel_reduce as lr

EXAMPLES = 4


def reduce(x, op, **options):
    result = lr.reduce(x, op, **options)
    return tuple(each.numpy() for each in result) if isinstance(result, tuple) else result.numpy()


def in_turn(types, ops, op):
    """Return one of the types, for the next operator the next one."""
    return [types[list(ops).index(op) % len(types)]]


@pytest.mark.parametrize("op", PLAIN)
def test_types_shapes_errors_and_nan(context, op):
    types = in_turn(DTYPES, PLAIN, op)
    generate(lambda data: compare(data, reduce, op, NUMPY[op], types), EXAMPLES)


@pytest.mark.parametrize("op", IGNORING)
def test_what_ignores_nan(context, op):
    types = in_turn(FLOATS, IGNORING, op)
    generate(lambda data: compare(data, reduce, op, IGNORING[op], types, nan="ignore"), EXAMPLES)


@pytest.mark.parametrize("op", MASKED[::2])
def test_masks(context, op):
    types = in_turn(DTYPES[::-1], MASKED, op)
    generate(lambda data: compare_masked(data, reduce, op, types), EXAMPLES)


@pytest.mark.parametrize("op", MOMENTS)
@pytest.mark.parametrize("ddof", [0, 1])
def test_moments(context, op, ddof):
    types = [MOMENT_DTYPES[ddof::2][MOMENTS.index(op)], COMPLEX[ddof]]
    generate(lambda data: compare_moments(data, reduce, op, ddof, types), EXAMPLES)


@pytest.mark.parametrize("op", OF_COMPLEX)
def test_complex_types(context, op):
    types = in_turn(COMPLEX, OF_COMPLEX, op)
    generate(lambda data: compare(data, reduce, op, NUMPY[op], types), EXAMPLES)


@pytest.mark.parametrize("op", ONE_AXIS)
def test_the_last_of_several(context, op):
    generate(lambda data: compare_last(data, reduce, op, in_turn(["float32", "int16"], ONE_AXIS, op)), EXAMPLES)


@pytest.mark.parametrize("op", NORMS)
def test_norms(context, op):
    types = in_turn(["int8", "complex64", "float32"], NORMS, op)
    generate(lambda data: compare_norm(data, reduce, op, types), EXAMPLES)


@pytest.mark.parametrize("op", PAIRS)
def test_two_results(context, op):
    generate(lambda data: compare_pair(data, reduce, op, ["float32"]), EXAMPLES)


def test_logsumexp(context):
    generate(lambda data: compare_logsumexp(data, reduce, ["float32"]), EXAMPLES)


def test_dot(context):
    generate(lambda data: compare_dot(data, reduce, ["int32", "float64"]), EXAMPLES)


@functools.cache
def result_types(op):
    return {dtype: outcome(lambda dtype=dtype: NUMPY[op](np.ones(3, dtype))).dtype for dtype in DTYPES}


@pytest.mark.parametrize("op", PLAIN)
def test_result_types_by_the_plan(context, op):
    for dtype, expected in result_types(op).items():
        types = lr.operators.resolve(op).types(lr.dtypes.element_type(dtype))
        assert types.result_dtype == expected, dtype
