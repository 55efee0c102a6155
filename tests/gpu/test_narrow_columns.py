"""Columns that lie in few bytes side by side, and in rows that are no whole vectors wide."""

import numpy as np
import pytest
from placed import prefer_way, values
from test_shapes import check

import lowlevel_reduce as lr
from lowlevel_reduce.strategy import columns
from lowlevel_reduce.strategy.base import MOST_THREADS, WARP_FOLDS, WARPS, Tile

pytestmark = pytest.mark.usefixtures("without_elements")

WIDTHS = [1, 2, 3, 4, 5, 8, 16, 24, 31, 33, 64, 99, 127, 128, 129, 255, 260]
FEW_WIDTHS = [3, 4, 16, 33, 99, 129]


@pytest.mark.parametrize("length", [1500, 2048, 4099])
def test_float32(stream, cut, few, length):
    for width in few(cut(WIDTHS, FEW_WIDTHS), 4):
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


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("axes", [2, 3, 4])
def test_elements_along_axes_that_cannot_be_joined(stream, axes, dtype):
    """A vector's elements lie along several of them, in both arrays; of more than three, each is looked for."""
    shape, apart = (14, *(4, 4, 6)[4 - axes :], 9), (slice(None, None, 2),) * axes
    x, y = values(dtype, shape)[apart], values("bool", shape, seed=1)[apart]
    for second in (None, y, np.broadcast_to(y[:1], x.shape)):
        check(x, stream, tuple(range(axes)), second=second)
    check(x[::-1], stream, tuple(range(axes)), second=y)


def test_many_lanes_of_a_thread(stream, cut, monkeypatch):
    """As where there is much to reduce: a block then has several turns."""
    prefer_way(monkeypatch, lambda way, of: (of.loads.width > 1, -way.tile.turns, way.tile.columns))
    for width in cut([2, 3, 4, 7, 16, 33, 64], [4, 7]):  # a single column is a whole array
        x = values("float32", (max(21_000, 84_000 // width), width))
        with lr.plan("sum", shape=x.shape, dtype="float32", axis=0, context=stream.context) as plan:
            assert plan.strategy.tile.turns >= 4
        check(x, stream, 0)
        check(x, stream, 0, offset=4)


@pytest.mark.parametrize("rounds", [2, 4, 8])
def test_rounds_of_a_thread(stream, monkeypatch, rounds):
    """Whose folds wait in shared memory for the next ones'."""

    def key(way, of):
        each = way.tile.vectors * way.tile.columns // (way.threads * of.loads.width)
        return (of.loads.width > 1, each != rounds * of.loads.at_once, way.making)

    prefer_way(monkeypatch, key)
    x = values("float64", (3000, 33))
    with lr.plan("sum", shape=x.shape, dtype="float64", axis=0, context=stream.context) as plan:
        tile, (_, at_once) = plan.strategy.tile, plan.strategy.loads
        assert tile.vectors * tile.columns == rounds * at_once * plan.strategy.block_threads
    check(x, stream, 0)


def test_short_columns(stream, cut):
    for length in cut([9, 17, 40, 60, 100, 129, 257, 513], [40, 129]):
        for width in (1, 3, 6, 33):
            check(values("float32", (length, width)), stream, 0)
            check(values("float64", (2 * length, width))[::2], stream, 0)


@pytest.mark.parametrize("length", [16, 40])
def test_several_columns_of_a_thread(stream, length, monkeypatch):
    """The last thread lacks some of them; their results, and what a second array has for them, begin anywhere."""
    prefer_way(monkeypatch, lambda way, of: of.loads.width)
    x = values("float16", (3, length, 9))
    with lr.plan("sum", shape=x.shape, dtype="float16", axis=1, context=stream.context) as plan:
        assert plan.strategy.loads[0] == 2
    check(x, stream, 1)
    check(x, stream, 1, "dot", second=values("float16", x.shape, seed=1))
    wide = values("float16", (length, 16), seed=1)
    for second in (wide[:, ::2], wide[:, :1]):  # aligned, and not side by side
        check(x[0, :, :8].copy(), stream, 0, "dot", second=second)


@pytest.mark.parametrize("op", ["sum", "minmax"])
def test_threads_that_have_columns_alone(stream, monkeypatch, op):
    """They store the results, together where the address allows it; the last one of a run has fewer."""
    prefer_way(monkeypatch, lambda way, of: (of.loads.width, way.making))
    x = values("float16", (13, 3, 9))
    with lr.plan(op, shape=x.shape, dtype="float16", axis=1, context=stream.context) as plan:
        assert plan.strategy.tile.columns == plan.strategy.block_threads * 2
    check(x, stream, 1, op)
    check(x[:, :, :8].copy(), stream, 1, op)


def test_more_columns_than_threads(stream, monkeypatch):
    """Small blocks, of which each thread brings several columns and stores as many."""

    def key(way, of):
        beside = way.tile.columns // of.loads.width
        return not (2 * beside <= way.threads < way.tile.columns)

    prefer_way(monkeypatch, key)
    x = values("float32", (40, 132))
    with lr.plan("sum", shape=x.shape, dtype="float32", axis=0, context=stream.context) as plan:
        assert plan.strategy.block_threads < min(plan.strategy.tile.columns, MOST_THREADS)
    check(x, stream, 0)


def test_masks(stream):
    x = values("float32", (2500, 7))
    check(x, stream, 0, second=x > 0)
    check(x, stream, 0, second=np.broadcast_to(x[:, :1] > 0, x.shape))


@pytest.mark.parametrize("by", ["warps", "blocks"])
def test_few_partials_of_a_row(stream, cut, monkeypatch, by):
    prefer_way(monkeypatch, lambda way, of: (way.folded_by != by, way.parts > WARP_FOLDS, way.making))
    for shape in cut([(5000, 300), (30_000, 128), (9000, 33), (8192, 512)], [(3000, 33)]):
        x = values("float32", shape)
        with lr.plan("sum", shape=shape, dtype="float32", axis=0, context=stream.context) as plan:
            assert 1 < plan.strategy.parts <= WARP_FOLDS
            assert plan.strategy.folded_by == by
        check(x, stream, 0, repeat=3)


@pytest.mark.natural_order("more blocks wait than are resident at once, which is right if blocks start in their order")
def test_more_columns_than_blocks_that_fold(stream, monkeypatch):
    """Each of these has one column after another, as where there are very many partials of very many columns."""
    monkeypatch.setattr(columns, "_folded_by", lambda cut, of, parts, *_, **__: "blocks" if parts > 1 else "nobody")
    x = values("float32", (1024, 514))
    for wide in (True, False):  # the kernel for several axes, which the host tells how many fold, and that for one
        prefer_way(monkeypatch, lambda way, of, wide=wide: (way.parts == 1, (of.loads.width > 1) != wide, way.making))
        with lr.plan("sum", shape=x.shape, dtype="float32", axis=0, context=stream.context) as plan:
            assert plan.strategy.parts > 1
            assert (plan.strategy.folded_by, plan.strategy.folders) == ("blocks", 512)
        check(x, stream, 0)


def test_partials_of_a_row_folded_by_a_block(stream, cut, monkeypatch):
    """Whose warps wait for the last of them: none may leave that slot empty before the others have looked."""
    prefer_way(monkeypatch, lambda way, of: (of.loads.width, -way.parts))  # as many partials as there may be
    for shape, rows_of_a_block, repeat in cut([((8400, 127), 1, 3), ((35_000, 600), 2, 20)], [((8400, 64), 1, 3)]):
        x = values("float32", shape)
        with lr.plan("sum", shape=shape, dtype="float32", axis=0, context=stream.context) as plan:
            assert plan.strategy.parts > WARP_FOLDS
            assert -(-shape[1] // plan.strategy.folders) == rows_of_a_block
        check(x, stream, 0, repeat=repeat, accumulate="float64")


def test_partials_that_a_block_takes_at_once(stream, monkeypatch):
    """One for each of its threads at most, and more than a warp folds."""
    prefer_way(monkeypatch, lambda way, of: (of.loads.width, not WARP_FOLDS < way.parts <= 256, way.making))
    x = values("float32", (8400, 33))
    with lr.plan("sum", shape=x.shape, dtype="float32", axis=0, context=stream.context) as plan:
        assert WARP_FOLDS < plan.strategy.parts <= MOST_THREADS
    check(x, stream, 0, accumulate="float64")


def test_partials_that_a_block_takes_in_turns(stream, monkeypatch):
    """More than its warps take at once, so that each folds two batches: of blocks of a vector of each column."""

    def choose(*problem, **options):
        way, of = min(columns.ways(*problem, **options), key=lambda each: each[1].loads.width)
        tile, parts = Tile(MOST_THREADS, 1, 1), of.vectors
        way = way._replace(tile=tile, threads=MOST_THREADS, making=parts, parts=parts, folded_by="blocks")
        return columns.strategy_of(way, of)

    monkeypatch.setattr(columns, "choose_columns", choose)
    x = values("float32", (4 * WARPS * WARP_FOLDS + 3, 2))
    with lr.plan("sum", shape=x.shape, dtype="float32", axis=0, context=stream.context) as plan:
        assert plan.strategy.parts > WARPS * WARP_FOLDS
    check(x, stream, 0, repeat=2)
