"""Rows of at most one leaf: one kernel takes all lengths, each number of lanes and steps in its own way through it."""

import numpy as np
import pytest
from placed import values
from test_shapes import check

from lowlevel_reduce.strategy import rows as row_policy

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


@pytest.mark.parametrize("op", ["sum", "max", "prod"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_rows_of_more_vectors_than_a_warp_has_lanes(stream, cut, dtype, op):
    """At all shifts between blocks; of as many steps as there are, whole ones too; at edges and elsewhere."""
    itemsize = 1 if dtype == "int8" else 2
    lengths = [(32, 1), (40, 3), (63, 7), (64, 0), (65, 5), (96, 1), (131, 2), (255, 7)]
    for vectors, rest in cut(lengths, [(32, 1), (131, 2)]):
        x = below_zero(dtype, (5, vectors * 16 // itemsize + rest))
        for offset in cut(range(0, 16, itemsize), [0, 6]):
            check(x, stream, 1, op, offset=offset, strategy=STRATEGY)
    same = np.broadcast_to(below_zero(dtype, (1, 513)), (2, 513))  # before them lies part of a block
    check(same, stream, 1, op, offset=6, strategy=STRATEGY)


def test_warps_with_several_such_rows(stream, monkeypatch):
    """A warp takes them one after the other: as many as it has elsewhere, where warps are many."""
    monkeypatch.setattr(row_policy, "_FEW_IN_TURN", 0)
    for shape in ((3, 7, 301), (19, 301), (11, 777)):
        x = below_zero("float16", shape)
        check(x, stream, x.ndim - 1, "sum", strategy=STRATEGY)
        check(x, stream, x.ndim - 1, "dot", second=below_zero("float16", shape), strategy=STRATEGY)


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
