"""Columns of narrow rows, several lanes of the tree for each warp, and of rows that are no whole vectors wide."""

import numpy as np
import pytest
from placed import values
from test_shapes import check

import lowlevel_reduce as lr
from lowlevel_reduce import column_policy, column_tiles
from lowlevel_reduce.row_strategy import WARP_FOLDS

WIDTHS = [1, 2, 3, 4, 5, 8, 16, 24, 31, 33, 64, 99, 127, 128, 129, 255, 260]
FEW_WIDTHS = [3, 4, 16, 33, 99, 129]


@pytest.mark.parametrize("length", [1500, 2048, 4099])
def test_float32(stream, cut, length):
    for width in cut(WIDTHS, FEW_WIDTHS):
        x = values("float32", (length, width))
        check(x, stream, 0)
        check(x, stream, 0, offset=4)
        check(x[:, : width - width // 3], stream, 0)


@pytest.mark.parametrize("dtype", ["float16", "int8", "float64", "complex128"])
def test_elements_of_other_sizes(stream, cut, dtype):
    for width in cut(WIDTHS, [2, 7, 50]):
        for length in cut([300, 2048, 9000], [1100]):
            check(values(dtype, (length, width)), stream, 0)


@pytest.mark.parametrize("op", ["argmin", "minmax", "mean_var"])
def test_operators_that_know_order(stream, cut, op):
    for width in cut(WIDTHS, [3, 8, 99]):
        check(values("float32", (2500, width)), stream, 0, op)


def test_batches(stream, cut):
    for width in cut(WIDTHS, [3, 99]):
        check(values("float32", (3, 700, width)), stream, 1)
        check(values("float32", (3, 701, width)), stream, 1)


def test_many_lanes_of_a_thread(stream, cut, monkeypatch):
    """As where there is much to reduce: there a warp's lanes are those of several leaves."""
    monkeypatch.setattr(column_tiles, "_CLUSTER_BLOCKS", 0.0)  # no tiles that are a cluster
    monkeypatch.setattr(column_tiles, "_COPIES", column_tiles._COPIES._replace(start_rounds=10**6))
    for width in cut([2, 3, 4, 7, 16, 33, 64], [4, 7]):  # a single column is a whole array
        x = values("float32", (max(21_000, 84_000 // width), width))
        with lr.plan("sum", shape=x.shape, dtype="float32", axis=0, context=stream.context) as plan:
            assert plan.strategy.template[-1] >= 16
        check(x, stream, 0)
        check(x, stream, 0, offset=4)


def test_short_columns(stream, cut):
    for length in cut([9, 17, 40, 60, 100, 129, 257, 513], [40, 129]):
        for width in (1, 3, 6, 33):
            check(values("float32", (length, width)), stream, 0)
            check(values("float64", (2 * length, width))[::2], stream, 0)


@pytest.mark.parametrize("length", [16, 40])
def test_several_columns_of_a_thread(stream, length):
    """The last thread lacks some of them; their results, and what a second array has for them, begin anywhere."""
    x = values("float16", (3, length, 9))
    with lr.plan("sum", shape=x.shape, dtype="float16", axis=1, context=stream.context) as plan:
        assert plan.strategy.template[1:] == ((4, 2, 1, 0) if length == 16 else (2, 8, 1, 1))
    check(x, stream, 1)
    check(x, stream, 1, "dot", second=values("float16", x.shape, seed=1))
    wide = values("float16", (length, 16), seed=1)
    for second in (wide[:, ::2], wide[:, :1]):  # aligned, and not side by side
        check(x[0, :, :8].copy(), stream, 0, "dot", second=second)


def test_masks(stream):
    x = values("float32", (2500, 7))
    check(x, stream, 0, second=x > 0)
    check(x, stream, 0, second=np.broadcast_to(x[:, :1] > 0, x.shape))


@pytest.mark.parametrize("by", ["warps", "blocks"])
def test_few_partials_of_a_row(stream, cut, monkeypatch, by):
    monkeypatch.setattr(column_tiles, "_CLUSTER_BLOCKS", 0.0)  # no tiles that are a cluster
    monkeypatch.setattr(column_tiles, "_FOLD_ROUNDS", {"nobody": 10**9, "warps": 10**9, "blocks": 10**9, by: 0.0})
    for shape in cut([(5000, 300), (30_000, 128), (9000, 33), (8192, 512)], [(9000, 33)]):
        x = values("float32", shape)
        with lr.plan("sum", shape=shape, dtype="float32", axis=0, context=stream.context) as plan:
            assert 1 < plan.strategy.parts <= WARP_FOLDS
            assert plan.strategy.folded_by == by
        check(x, stream, 0, repeat=3)


def test_more_columns_than_blocks_that_fold(stream, monkeypatch):
    """Each of these has one column after another, as where there are very many partials of very many columns."""
    monkeypatch.setattr(column_tiles, "_CLUSTER_BLOCKS", 0.0)
    monkeypatch.setattr(column_tiles, "_FOLD_ROUNDS", {"nobody": 10**9, "blocks": 0.0})
    monkeypatch.setattr(
        column_tiles, "folding", lambda rows, parts, resident: ("blocks",) if parts > 1 else ("nobody",)
    )
    x = values("float32", (1024, 514))
    with lr.plan("sum", shape=x.shape, dtype="float32", axis=0, context=stream.context) as plan:
        assert plan.strategy.parts > 1
        assert (plan.strategy.folded_by, plan.strategy.folders) == ("blocks", 512)
    check(x, stream, 0)


def test_partials_of_a_row_folded_by_a_block(stream, cut, monkeypatch):
    """Whose warps wait for the last of them: none may leave that slot empty before the others have looked."""
    monkeypatch.setattr(column_policy, "_SLOWER_COPIES", {})  # one column a thread
    monkeypatch.setattr(column_tiles, "_LANES_OF_BROKEN_LINES", 1)  # as many partials as there may be
    monkeypatch.setattr(column_tiles, "_COPIES", column_tiles._COPIES._replace(lines={256: 0.0}))
    for shape, rows_of_a_block, repeat in cut([((8400, 127), 1, 3), ((35_000, 600), 2, 20)], [((8400, 127), 1, 3)]):
        x = values("float32", shape)
        with lr.plan("sum", shape=shape, dtype="float32", axis=0, context=stream.context) as plan:
            assert plan.strategy.parts > WARP_FOLDS
            assert -(-shape[1] // plan.strategy.folders) == rows_of_a_block
        check(x, stream, 0, repeat=repeat, accumulate="float64")
