"""Types, shapes, errors and NaN rules of what a device computes are NumPy's.

The many cases are the tree's, in tests/unit/test_numpy_by_the_tree.py: the same bits, and nothing to compile. Here each
operator takes a few of them through the device, with a type or two: nearly every case is a kernel of its own.
"""

import functools

import numpy as np
import pytest
from numpy_cases import (
    DTYPES,
    FLOATS,
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
    outcome,
)

import lowlevel_reduce as lr

EXAMPLES = 4


def reduce(x, op, **options):
    return lr.reduce(x, op, **options).numpy()


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
    types = MOMENT_DTYPES[ddof::2][MOMENTS.index(op) :][:1]
    generate(lambda data: compare_moments(data, reduce, op, ddof, types), EXAMPLES)


@functools.cache
def result_types(op):
    return {dtype: outcome(lambda dtype=dtype: NUMPY[op](np.ones(3, dtype))).dtype for dtype in DTYPES}


@pytest.mark.parametrize("op", PLAIN)
def test_result_types_by_the_plan(context, op):
    for dtype, expected in result_types(op).items():
        types = lr.operators.resolve(op).types(lr.dtypes.element_type(dtype))
        assert types.result_dtype == expected, dtype
