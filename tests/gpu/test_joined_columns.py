"""Rows whose neighbours in memory are far apart in the tree's order: their parts are columns, and are joined."""

import numpy as np
import pytest
from placed import assert_same, prefer_way, reduced, values
from test_shapes import check

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.strategy import joined_columns
from lowlevel_reduce.strategy.base import WARP_FOLDS


@pytest.fixture(autouse=True)
def _small_ones(monkeypatch):
    """Arrays that are small enough for a test are joined, too; what was chosen without that is forgotten."""
    monkeypatch.setattr(joined_columns, "_LEAST_BYTES", 1)
    joined_columns.parts_of_rows.cache_clear()
    joined_columns._choose_joined.cache_clear()
    yield
    joined_columns.parts_of_rows.cache_clear()
    joined_columns._choose_joined.cache_clear()


def turned(dtype, beside, leaves, *, of=4, seed=0):
    """Return an array of shape (beside, of, part) whose first axis is the innermost in memory: rows of whole leaves."""
    length = leaves * element_type(dtype).leaf
    return values(dtype, (length // of, of, beside), seed=seed).transpose(2, 1, 0)


def strategy_of(x, op="sum", axis=None, **options):
    with lr.plan(op, shape=x.shape, dtype=x.dtype, axis=axis, strides_bytes=x.strides, **options) as plan:
        return plan.strategy


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float64", "complex128"])
@pytest.mark.usefixtures("without_elements", "forgotten_choices")
def test_each_type(stream, cut, dtype):
    for beside, leaves in cut([(2, 1), (7, 3), (8, 4), (33, 2), (130, 1)], [(7, 3), (16, 1)]):
        x = turned(dtype, beside, leaves)
        assert strategy_of(x, context=stream.context).joined == beside
        check(x, stream, repeat=2)


@pytest.mark.parametrize("op", ["mean_var", "argmin", "minmax", "logsumexp", "any", "norm2"])
def test_operators(stream, op):
    x = turned("float32", 5, 3)
    check(x, stream, None, op)
    check(np.full_like(x, 2), stream, None, op)  # an index that counts: the first of all


def test_a_place_in_a_later_part(stream):
    x = turned("int8", 6, 1).copy(order="K")
    x[...] = 0
    x[4, 1, 37] = 9
    x[4, 2, 5] = 9
    assert int(check(x, stream, None, "argmax")) == np.argmax(x)
    assert int(check(x, stream, None, "argmax", last=True)) > np.argmax(x)


@pytest.mark.parametrize("order", [(3, 1, 2, 0), (1, 3, 2, 0), (0, 3, 1, 2), (1, 0, 3, 2)])
def test_rows_and_outer_axes(stream, order):
    """The axis of neighbours may lie inside others, which are parts as well, and there may be many rows."""
    x = values("float32", (2048, 3, 2, 5)).transpose(order)
    kept = order.index(2)
    for axis in (None, tuple(i for i in range(4) if i != kept)):
        check(x, stream, axis)
        check(x, stream, axis, "mean_var")
        check(x, stream, axis, "argmax", keepdims=True)


def test_one_number_more(stream):
    """Where parts have no whole leaves, or neighbours are a row's last axis, rows are gathered."""
    x = values("float32", (1025, 9)).T
    assert strategy_of(x, context=stream.context).joined == 1
    check(x, stream)
    check(values("float32", (1024, 18))[:, ::2].T, stream)
    assert strategy_of(values("float32", (9, 2048))[:, ::2], context=stream.context).joined == 1


def test_runs_of_partials(stream, monkeypatch):
    """Many partials are folded in runs first, of which the last may lack some."""
    monkeypatch.setattr(joined_columns, "_FEW", 8)
    monkeypatch.setattr(joined_columns, "cost", lambda way, of: way.tile.vectors * way.tile.turns)
    x = turned("float32", 33, 1)
    chosen = strategy_of(x, context=stream.context)
    assert chosen.run == WARP_FOLDS < chosen.partials
    assert chosen.partials % chosen.run
    check(x, stream, repeat=2)
    check(x, stream, None, "argmin")
    x = values("float32", (2, 256, 4, 33)).transpose(3, 0, 2, 1)
    chosen = strategy_of(x, axis=(0, 2, 3), context=stream.context)
    assert 1 < chosen.run < WARP_FOLDS
    check(x, stream, (0, 2, 3), repeat=2)


def test_a_second_array(stream):
    x, y = turned("float32", 5, 2), turned("float32", 5, 2, seed=1)
    check(x, stream, None, "dot", second=y)
    check(x, stream, None, "dot", second=np.ascontiguousarray(y))
    mask = np.random.default_rng(0).integers(0, 2, x.shape, np.uint8).view(bool)
    check(x, stream, None, "mean_var", second=mask)


def test_a_length_on_the_device(stream):
    """Which leaves parts that are no columns: the same plan then goes by leaves."""
    x = turned("float32", 3, 2)
    lengths = [x.size, 5000, 1, 0]
    whole = x.reshape(-1)
    for found, length in zip(
        reduced(x, "sum", stream=stream, lengths=lengths, accumulate="float32"), lengths, strict=True
    ):
        assert_same(found, lr.tree.reduce(whole[:length], accumulate="float32"), f"{length} elements")


def test_columns_of_several_axes(stream, monkeypatch):
    """The kernels that join columns take those of which each is a row as well, and fold their partials."""
    prefer_way(monkeypatch, lambda way, of: (way.folded_by != "blocks", way.making))
    x = values("float32", (40, 3, 100, 8))
    chosen = strategy_of(x, axis=(0, 2), context=stream.context)
    assert (chosen.folded_by, chosen.straight, chosen.joined) == ("blocks", False, 1)
    for op in ("sum", "mean_var"):
        check(x, stream, (0, 2), op, repeat=2)


def test_forced_strategies(stream):
    x = turned("float32", 3, 2)
    for strategy in ("rows", "batch", "columns"):
        check(x, stream, strategy=strategy)
