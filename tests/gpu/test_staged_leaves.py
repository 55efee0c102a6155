"""Leaves of strided rows are staged where neighbours in memory are far apart in the tree and no leaves fit the axes."""

import numpy as np
import pytest
from placed import assert_same, reduced, values
from test_shapes import check

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.strategy import staged_rows


@pytest.fixture(autouse=True)
def _small_ones(monkeypatch, forgotten_choices):
    """Leaves of arrays that are small enough for a test are staged, too; what was chosen without that is forgotten."""
    monkeypatch.setattr(staged_rows, "_SURE", 1e9)
    monkeypatch.setattr(staged_rows, "_LEAST_LEAVES", 1)
    monkeypatch.setattr(staged_rows, "_LEAST_BESIDE", 2)
    staged_rows.staged_leaves.cache_clear()
    yield
    staged_rows.staged_leaves.cache_clear()


def turned(dtype, beside, length, order=(1, 0), more=(), seed=0):
    """Return an array of which `beside` elements lie side by side, `length` are along the last axis."""
    x = values(dtype, (length, *more, beside), seed=seed)
    return x.transpose(x.ndim - 1, *range(1, x.ndim - 1), 0)


def staged(x, stream, axis=None, op="sum"):
    with lr.plan(op, shape=x.shape, dtype=x.dtype, axis=axis, strides_bytes=x.strides, context=stream.context) as plan:
        return plan.strategy.staged > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64"])
def test_each_type(stream, cut, dtype):
    leaf = element_type(dtype).leaf
    for beside, length in cut(
        [(9, leaf + 1), (37, 2 * leaf + 85), (16, 3 * leaf - 1), (2, 9 * leaf + 3)], [(17, 2 * leaf + 85)]
    ):
        x = turned(dtype, beside, length)
        assert staged(x, stream)
        check(x, stream, repeat=2)


def test_bytes_are_not_staged(stream):
    x = turned("int8", 9, 4097)
    assert not staged(x, stream)
    check(x, stream)


@pytest.mark.parametrize("op", ["max", "minmax", "logsumexp", "norm2", "any", "count_nonzero"])
def test_operators(stream, op):
    x = turned("float32", 17, 2133)
    assert staged(x, stream, op=op)
    check(x, stream, None, op)


@pytest.mark.parametrize("op", ["mean_var", "argmax"])
def test_wide_accumulators_are_not_staged(stream, op):
    x = turned("float32", 17, 2133)
    assert not staged(x, stream, op=op)
    check(x, stream, None, op)


def test_lengths_from_the_device(stream):
    x = turned("float32", 17, 2133)
    assert staged(x, stream)
    lengths = [x.size, 2133 * 3, 1024, 1, 0, 2133 * 17 - 1]
    found = reduced(x, "sum", stream=stream, lengths=lengths, accumulate="float32")
    for result, length in zip(found, lengths, strict=True):
        assert_same(result, lr.tree.reduce(x.reshape(-1)[:length], "sum", accumulate="float32"), f"{length}")


@pytest.mark.parametrize("axis", [None, (0, 2), (0, 1, 3)])
def test_several_axes(stream, axis):
    """Axes between the one that is contiguous and the innermost, outside of both, and kept ones."""
    x = values("float32", (1109, 3, 2, 18)).transpose(3, 1, 2, 0)
    for order in ((0, 1, 2, 3), (1, 0, 2, 3), (2, 1, 0, 3)):
        y = x.transpose(order)
        kept = axis if axis is None else tuple(order.index(x_axis) for x_axis in (0, 3))
        assert staged(y, stream, kept)
        check(y, stream, kept)


def test_gaps_reversed_axes_and_addresses(stream):
    x = values("float32", (1300, 23))
    for y in (x[:, :19].T, x[::-1, :19].T, x[::2, 1:20].T, x[::-1].T[2:]):
        check(y, stream, None, "sum")
    check(x.T, stream, None, "sum", offset=1)
    check(values("bfloat16", (2500, 20)).T, stream, None, "mean", offset=2)


def test_random_shapes(stream, cut):
    rng = np.random.default_rng(29)
    for _ in cut(range(12), range(3)):
        dtype = str(rng.choice(["float32", "bfloat16", "float64"]))
        beside, length = int(rng.integers(2, 40)), int(rng.integers(1, 4 * element_type(dtype).leaf))
        check(turned(dtype, beside, length, more=(int(rng.integers(1, 3)),)), stream)
