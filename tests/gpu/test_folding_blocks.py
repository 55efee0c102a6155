"""Partials of whole arrays and long rows that several blocks fold, a run each, and the last of them what all made.

And partials of many long rows, of which each warp folds some.
"""

import numpy as np
import pytest
from placed import assert_same, reduced, values

import lowlevel_reduce as lr
from lowlevel_reduce.strategy import rows as row_policy
from lowlevel_reduce.strategy import whole

DTYPE, LEAF = "complex128", 256  # elements, whose partials take two units of a slot
LEAF64 = 512  # elements of float64
WARPS = 8
TILES = {"strategy": "tiles", "block_threads": 32 * WARPS}


@pytest.fixture
def warps(cut, monkeypatch):
    """The warps of a block that folds a run: of 128 tiles a warp, of a leaf a warp, so a quarter is 16 times less."""
    if cut(8, 2) == 2:
        monkeypatch.setattr(whole, "MIN_TILE_LEAVES", 2)
    return cut(8, 2)


@pytest.fixture
def a_block_a_run(monkeypatch):
    """Let several blocks fold as soon as there are two runs: arrays of three would take long in the simulator."""
    for module in (whole, row_policy):
        monkeypatch.setattr(module, "folding_blocks", lambda partials, warps: -(-partials // (128 * warps)))


def test_whole_arrays(a_block_a_run, stream, warps):
    run, tiles = 128 * warps, {"strategy": "tiles", "block_threads": 32 * warps}
    x = values(DTYPE, (run + 3) * warps * LEAF - 5)
    with lr.plan("sum", shape=x.shape, dtype=DTYPE, context=stream.context, **tiles) as plan:
        (_, config), *_ = plan.launches
        assert config.grid_blocks == run + 3 + 2
    assert_same(reduced(x, stream=stream, repeat=2, **tiles), lr.tree.reduce(x), "twice: slots are left empty")


@pytest.mark.parametrize("partials", [32, 33, 256, 257])
def test_partials_of_few_tiles(partials, stream):
    """Up to a warp's lanes, by one warp; up to a thread each, by the lanes of all warps together; more, in turns."""
    x = values("float64", ((partials - 1) * WARPS + 1) * LEAF64 - 3)
    signs = np.random.default_rng(1).choice([-1.0, 1.0], partials)  # of tiles, whose sums then cancel: the order shows
    x = np.abs(x) * np.repeat(signs, WARPS * LEAF64)[: x.size]
    with lr.plan("sum", shape=x.shape, dtype="float64", context=stream.context, **TILES) as plan:
        assert plan.strategy.partials == partials
    assert_same(reduced(x, stream=stream, repeat=2, **TILES), lr.tree.reduce(x), "twice: slots are left empty")


@pytest.mark.parametrize("partials", [32, 33, 129])
def test_wide_partials_of_few_tiles(partials, stream):
    """By one warp, or by all and then the block."""
    x = np.abs(values("float64", ((partials - 1) * WARPS + 1) * LEAF - 3))
    signs = np.random.default_rng(3).choice([-1.0, 1.0], partials)  # of tiles, whose sums then cancel: the order shows
    x = (x * np.repeat(signs, WARPS * LEAF)[: x.size]).astype(DTYPE)
    with lr.plan("sum", shape=x.shape, dtype=DTYPE, context=stream.context, **TILES) as plan:
        assert plan.strategy.partials == partials
    assert_same(reduced(x, stream=stream, repeat=2, **TILES), lr.tree.reduce(x), "twice: slots are left empty")


def test_a_length_that_is_read_by_the_kernel(a_block_a_run, stream, warps):
    """Runs that it leaves empty have nothing to publish."""
    run, tiles = 128 * warps, {"strategy": "tiles", "block_threads": 32 * warps}
    x = values(DTYPE, (run + 1) * warps * LEAF)
    lengths = [leaves * LEAF - 1 for leaves in (1, 3 * warps, run * warps, run * warps + 1)]
    found = reduced(x, stream=stream, lengths=lengths, **tiles)
    for length, value in zip(lengths, found, strict=True):
        assert_same(value, lr.tree.reduce(x[:length]), str(length))


def test_long_rows(a_block_a_run, stream, warps, monkeypatch):
    monkeypatch.setattr(row_policy, "_tiles_of_a_row", lambda *_, **__: (warps, 1))
    x = values(DTYPE, (2, (128 * warps + 1) * warps * LEAF))
    options = {"axis": 1, "strategy": "batch"}
    with lr.plan("sum", shape=x.shape, dtype=DTYPE, context=stream.context, **options) as plan:
        assert plan.strategy.folders == 2 * 2
    assert_same(reduced(x, stream=stream, **options), lr.tree.reduce(x, axis=1))


@pytest.mark.parametrize(("rows", "partials", "folders"), [(70, 2, 3), (9, 32, 1), (3, 33, 1), (2, 65, 1)])
@pytest.mark.parametrize("op", ["sum", "argmax"])
def test_rows_whose_partials_warps_fold(op, rows, partials, folders, stream, monkeypatch):
    """Four rows a warp, two or one; where rows are many, as here they are made out to be."""
    monkeypatch.setattr(row_policy, "_FOLDED_BY_BLOCKS", 0)
    monkeypatch.setattr(row_policy, "_tiles_of_a_row", lambda *_, **__: (WARPS, 1))
    x = values("float64", (rows, ((partials - 1) * WARPS + 1) * LEAF64 - 3))
    options = {"axis": 1, "strategy": "batch"}
    with lr.plan(op, shape=x.shape, dtype="float64", context=stream.context, **options) as plan:
        assert (plan.strategy.parts, plan.strategy.folders) == (partials, folders)
    found = reduced(x, op, stream=stream, repeat=2, **options)
    assert_same(found, lr.tree.reduce(x, op, axis=1), "twice: slots are left empty")


@pytest.mark.parametrize(("rows", "by_blocks"), [(65, 0), (3, 1)])
def test_partials_of_sixteen_warps(stream, monkeypatch, rows, by_blocks):
    """Which as many warps fold: each those of four rows, or a block those of one."""
    monkeypatch.setattr(row_policy, "_FOLDED_BY_BLOCKS", by_blocks)
    monkeypatch.setattr(row_policy, "_tiles_of_a_row", lambda *_, **__: (16, 1))
    tiles = 2 if by_blocks == 0 else 40
    x = values("int8", (rows, (tiles - 1) * 16 * 4096 + 1))
    options = {"axis": 1, "strategy": "batch"}
    with lr.plan("sum", shape=x.shape, dtype="int8", context=stream.context, **options) as plan:
        assert (plan.strategy.warps, plan.strategy.folders) == (16, 2 if by_blocks == 0 else 3)
    assert_same(reduced(x, stream=stream, repeat=2, **options), lr.tree.reduce(x, axis=1))
