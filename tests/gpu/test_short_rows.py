"""Rows of at most one leaf: one kernel takes all lengths, each number of lanes and steps in its own way through it."""

import numpy as np
import pytest
from placed import values
from test_shapes import check

VECTORS = [1, 2, 3, 4, 7, 8, 16, 25, 32, 50, 64, 100, 128, 175, 256]
"""Of a row: each number of lanes and steps, with all of their vectors and without some."""


STRATEGY = "short_rows"
"""Asked for, because a few rows take a warp each instead."""


def below_zero(dtype, shape):
    """Return values that a zero in place of an absent element would change the result of, whatever the operator."""
    return np.minimum(-np.abs(values(dtype, shape)), np.asarray(-0.125, dtype))


@pytest.mark.parametrize("op", ["sum", "max", "argmin", "mean_var"])
def test_rows_of_whole_vectors(stream, cut, op):
    """In warps that lack rows, in warps that have all of theirs, and along two axes and three."""
    for vectors in VECTORS:
        x = below_zero("float32", (cut(600, 70), 4 * vectors))
        check(x, stream, 1, op, strategy=STRATEGY)
        if vectors in (1, 7, 64, 175):
            check(
                x[:66].reshape(33, 2, -1)[:, :, : 4 * vectors].transpose(1, 0, 2)[:, 1:],
                stream,
                2,
                op,
                strategy=STRATEGY,
            )
            check(x[:66].reshape(11, 3, 2, -1).transpose(1, 0, 2, 3), stream, 3, op, strategy=STRATEGY)


@pytest.mark.parametrize("op", ["sum", "max", "mean_var"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_at_any_address(stream, cut, dtype, op):
    """Of words and of shorter elements, at the array's edges and between them; at last with one element in a step."""
    elements = 16 // np.dtype(dtype).itemsize
    for length in [*(vectors * elements - 1 for vectors in cut(VECTORS, [1, 4, 25, 50, 128, 175])), 32 * elements + 1]:
        for rows in (3, 70):
            check(below_zero(dtype, (rows, length)), stream, 1, op, strategy=STRATEGY)


@pytest.mark.parametrize("op", ["sum", "max", "mean_var"])
def test_strided_rows(stream, cut, op):
    for vectors in cut(VECTORS, [1, 4, 25, 50, 128, 175]):
        check(below_zero("float32", (70, 8 * vectors))[:, ::2], stream, 1, op, strategy=STRATEGY)


@pytest.mark.parametrize("op", ["sum", "argmin", "mean_var"])
def test_few_rows_are_half_as_many_to_a_warp(stream, cut, op):
    """Of each number of lanes and steps, where a warp lacks rows and where it has all."""
    for vectors in VECTORS:
        for rows in (3, 16, 33):
            x = below_zero("float32", (rows, 4 * vectors))
            check(x, stream, 1, op, strategy=STRATEGY)
            if vectors in cut(VECTORS, [2, 25, 128]):
                check(x[:, :-1], stream, 1, op, strategy=STRATEGY)
                check(below_zero("float16", (rows, 8 * vectors))[:, ::2], stream, 1, op, strategy=STRATEGY)
