"""Strided rows whose neighbours in memory are far apart in the tree, and whose axes no leaves fit: leaves are staged."""

import numpy as np
import pytest
from placed import values
from test_shapes import check

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.strategy import selection, staged_rows


@pytest.fixture(autouse=True)
def _small_ones(monkeypatch):
    """Leaves of arrays that are small enough for a test are staged, too; what was chosen without that is forgotten."""
    monkeypatch.setattr(staged_rows, "_SURE", 1e9)
    monkeypatch.setattr(staged_rows, "_LEAST_LEAVES", 1)
    monkeypatch.setattr(staged_rows, "_LEAST_BESIDE", 2)
    staged_rows.staged_leaves.cache_clear()
    selection._chosen.clear()
    yield
    staged_rows.staged_leaves.cache_clear()
    selection._chosen.clear()


def turned(dtype, beside, length, order=(1, 0), more=(), seed=0):
    """Return an array of which `beside` elements lie side by side, `length` are along the last axis."""
    x = values(dtype, (length, *more, beside), seed=seed)
    return x.transpose(x.ndim - 1, *range(1, x.ndim - 1), 0)


def staged(x, stream, axis=None, op="sum"):
    with lr.plan(op, shape=x.shape, dtype=x.dtype, axis=axis, strides_bytes=x.strides, context=stream.context) as plan:
        return plan.strategy.staged > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float64", "complex128"])
def test_each_type(stream, cut, dtype):
    leaf = element_type(dtype).leaf
    for beside, length in cut([(9, leaf + 1), (37, 2 * leaf + 85), (16, 3 * leaf - 1), (2, 9 * leaf + 3)], [(17, 2 * leaf + 85)]):
        x = turned(dtype, beside, length)
        assert staged(x, stream)
        check(x, stream, repeat=2)
