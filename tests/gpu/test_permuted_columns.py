"""Columns that lie side by side in another order than their results: each result is written to its own place."""

import numpy as np
import pytest
from placed import prefer_way, values
from test_shapes import check

import lowlevel_reduce as lr
from lowlevel_reduce.strategy import joined_columns

pytestmark = pytest.mark.usefixtures("without_elements")


def turned(dtype, runs, length, beside, *, seed=0):
    """Return an array of shape (beside, length, runs) whose first axis is the innermost one in memory."""
    return values(dtype, (runs, length, beside), seed=seed).transpose(2, 1, 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float64", "complex128"])
def test_each_type(stream, cut, dtype):
    for runs, beside in cut([(2, 1), (2, 3), (3, 16), (5, 31), (7, 64), (3, 130)], [(3, 16), (5, 31)]):
        check(turned(dtype, runs, 40, beside), stream, 1)


@pytest.mark.parametrize("op", ["mean_var", "argmin", "minmax"])
def test_operators(stream, op):
    """Of several results each has its plane."""
    check(turned("float32", 3, 300, 20), stream, 1, op)


@pytest.mark.parametrize("by", ["nobody", "cluster", "warps", "blocks"])
def test_whoever_folds(stream, cut, monkeypatch, by):
    x = turned("float32", 3, cut(20_000, 3000), 9)
    of = {"shape": x.shape, "dtype": "float32", "axis": 1, "strides_bytes": x.strides}
    for narrow in (False, True):
        prefer_way(
            monkeypatch,
            lambda way, of, narrow=narrow: (way.folded_by != by, (of.loads.width == 1) != narrow, way.making),
        )
        with lr.plan("sum", context=stream.context, **of) as plan:
            if by == "cluster" and plan.strategy.folded_by != by:
                pytest.skip("this device has no clusters")
            assert plan.strategy.folded_by == by
        check(x, stream, 1)


def test_a_thread_for_each_column(stream):
    """Which then writes the results of its columns itself: side by side, apart, or some of them."""
    for beside in (8, 10):
        check(turned("float32", 40, 3, beside), stream, 1)
        check(turned("int8", 40, 3, beside), stream, 1)


def test_a_thread_whose_columns_lie_in_several_runs_of_the_results(stream, monkeypatch):
    monkeypatch.setattr(joined_columns, "_LONG_COLUMN", 1)
    for inner in (9, 10):
        check(swapped("float32", 3, 40, inner), stream, 1)
        check(swapped("int8", 3, 40, inner), stream, 1, "minmax")


def test_more_axes(stream):
    x = values("float32", (3, 2, 30, 5, 8))
    check(x.transpose(4, 1, 3, 0, 2), stream, 4)
    check(x.transpose(4, 1, 3, 0, 2), stream, (2, 4))
    check(x.transpose(1, 4, 2, 0, 3)[::-1, :, :, ::2], stream, 2)
    check(np.broadcast_to(x[0, 0], (4, 30, 5, 8)).transpose(3, 0, 2, 1), stream, 3)


def swapped(dtype, length, outer, inner, *, seed=0):
    """Return an array of shape (inner, length, outer) whose columns are side by side in memory, in the other order."""
    return values(dtype, (length, outer, inner), seed=seed).transpose(2, 0, 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float64", "complex128"])
def test_columns_that_memory_alone_has_as_one_axis(stream, cut, dtype):
    for outer, inner in cut([(2, 3), (16, 3), (31, 5), (64, 7), (130, 3)], [(16, 3), (31, 5)]):
        check(swapped(dtype, 70, outer, inner), stream, 1)


@pytest.mark.parametrize("by", ["nobody", "cluster", "warps", "blocks"])
def test_whoever_folds_what_memory_has_as_one_axis(stream, cut, monkeypatch, by):
    x = swapped("float32", cut(20_000, 3000), 3, 9)
    prefer_way(monkeypatch, lambda way, of: (way.folded_by != by, way.making))
    check(x, stream, 1)


def test_more_axes_that_memory_has_as_fewer(stream):
    x = values("float32", (70, 2, 3, 5, 7))
    check(x.transpose(4, 2, 3, 0, 1), stream, 3)
    check(x.transpose(4, 0, 3, 2, 1), stream, 1, "mean_var")
    check(x.transpose(3, 4, 0, 1, 2), stream, (2, 3))
    y = values("float32", (70, 2, 3, 5, 7), seed=1)
    check(x.transpose(4, 2, 3, 0, 1), stream, 3, "dot", second=y.transpose(4, 2, 3, 0, 1))
    check(x.transpose(4, 2, 3, 0, 1), stream, 3, "dot", second=np.ascontiguousarray(y.transpose(4, 2, 3, 0, 1)))


def test_a_second_array(stream):
    x, y = turned("float32", 3, 90, 12), turned("float32", 3, 90, 12, seed=1)
    check(x, stream, 1, "dot", second=y)
    check(x, stream, 1, "dot", second=np.ascontiguousarray(y))
