"""Columns of which a thread loads sixteen bytes, four or two side by side, and has accumulators of no more each."""

import numpy as np
import pytest
from placed import assert_same, prefer_way, reduced, values
from test_shapes import check

import lowlevel_reduce as lr
from lowlevel_reduce.operators import ElementMap

pytestmark = pytest.mark.usefixtures("without_elements")

WIDTHS = [32, 36, 60, 64, 100, 132, 256, 516]
LENGTHS = [129, 257, 1000, 1024, 2048, 4099]
ONE_MORE = ElementMap("x + 1", numpy=lambda x: x + 1)
"""What makes something of an element that is absent, which squares do not: of zero they make zero."""


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """As where there is much to reduce: few columns are loaded one by one, for that many more threads load them."""
    prefer_way(monkeypatch, lambda way, of: (-of.loads.width, way.tile.turns, way.making))


def prefer_turns(monkeypatch):
    prefer_way(monkeypatch, lambda way, of: (-of.loads.width, -way.tile.turns))


def few_are_true(dtype, shape):
    """Return elements of which about one in two columns has one that is not zero."""
    return (np.random.default_rng(shape).random(shape) < 0.7 / shape[-2]).astype(dtype)


def strategy_of(stream, shape, op, dtype, axis=0):
    with lr.plan(op, shape=shape, dtype=dtype, axis=axis, context=stream.context) as plan:
        return plan.strategy


@pytest.mark.parametrize("length", LENGTHS)
def test_extremes(stream, cut, length):
    for width in cut(WIDTHS, [36, 132]):
        x = values("float32", (length, width))
        assert strategy_of(stream, x.shape, "max", "float32").loads[0] == 4
        check(x, stream, 0, "max")
        check(x, stream, 0, "max", offset=4)  # no four columns can be loaded together
        check(x[:, : width - 3], stream, 0, "min")  # nor can the last block's
    check(values("int32", (length, 64)), stream, 0, "min")


@pytest.mark.parametrize(
    ("op", "dtype"), [("max", "float32"), ("sum", "float32"), ("sum", "int32"), ("max", "float16")]
)
def test_lengths_around_a_leaf(stream, cut, op, dtype):
    """The last leaf lacks one element, or none, or has one: whole leaves are loaded without a look at their ends."""
    leaf = 4096 // values(dtype, 1).itemsize
    for length in cut([leaf - 1, leaf, leaf + 1, 2 * leaf - 1, 2 * leaf], [2 * leaf - 1]):
        x = far_apart(dtype, (length, 136 if dtype == "float16" else 132))  # of whole vectors
        assert strategy_of(stream, x.shape, op, dtype).loads[0] * x.itemsize == 16
        if op == "max":
            check(x, stream, 0, op)
        else:
            check_accumulators(x, stream, op)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int16", "uint16"])
def test_elements_of_two_bytes(stream, cut, dtype, length):
    """Of which eight columns are folded as they are, two at a time in a word, or each in an accumulator."""
    for width in cut([64, 72, 136, 520], [72]):
        x = values(dtype, (length, width))
        assert strategy_of(stream, x.shape, "max", dtype).loads[0] == 8
        check(x, stream, 0, "max")
        check(x, stream, 0, "min", offset=2)
        check(x[:, : width - 3], stream, 0, "max")
        for op, offset in (("sum", 0), ("norm1", 2)) if "float" in dtype else ():
            mine = reduced(
                x, op, stream=stream, axis=0, offset=offset, result_dtype="float32"
            )  # the accumulators' bits
            assert_same(mine, lr.tree.reduce(x, op, axis=0, dtype="float32"))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_zeros_and_what_is_no_number(stream, cut, dtype):
    """Zeros have an order, one NaN wins or, where they are ignored, loses, and all of a column's may be NaN."""
    for length in cut([257, 1000, 4099], [257]):
        signs = np.random.default_rng(length).integers(0, 2, (length, 72))
        x = np.where(signs, 0.0, -0.0).astype(values(dtype, 1).dtype)
        x[:, 1], x[:, 2] = 0.0, -0.0
        x[length // 2, 5:9], x[length - 1, 7], x[:, 11] = 1.5, np.nan, np.nan
        x[3, 20:30], x[4, 25] = np.inf, np.nan
        for op, nan in (("max", "propagate"), ("min", "propagate"), ("max", "ignore"), ("min", "ignore")):
            check(x, stream, 0, op, nan=nan)
        check(x, stream, 0, "any")
        check(x, stream, 0, "all", offset=x.itemsize)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_logic(stream, cut, dtype):
    for length in cut(LENGTHS, [1100]):
        x = few_are_true(dtype, (length, 64))
        assert strategy_of(stream, x.shape, "any", dtype).loads[0] * x.itemsize == 16
        check(x, stream, 0, "any")
        check(1 - x, stream, 0, "all", offset=x.itemsize)


def test_many_lanes_of_a_thread(stream, cut, monkeypatch):
    """As where there is much to reduce: a block then has several turns."""
    prefer_turns(monkeypatch)
    for shape in cut([(21_000, 64), (40_000, 32), (8192, 256)], [(5000, 32)]):
        x = values("float32", shape)
        assert strategy_of(stream, shape, "max", "float32").tile.turns > 1
        check(x, stream, 0, "max")
        check(x, stream, 0, "max", offset=4)
        check(x[: shape[0] - 700], stream, 0, "min")


def test_a_vector_where_a_thread_loads_two(stream):
    """All elements are on one side of zero, so that zeros in the place of a second vector would show."""
    x = 1 + np.abs(values("float32", (3, 132)))
    assert strategy_of(stream, x.shape, "max", "float32").loads[1] == 2
    check(x, stream, 0, "min")
    check(-x, stream, 0, "max")


def test_lines_that_rows_break(stream, cut):
    x = values("float32", (cut(3000, 700), 1000))
    assert strategy_of(stream, x.shape, "max", "float32").aligned
    check(x, stream, 0, "max")


def test_batches(stream):
    x = values("float32", (3, 1100, 64))
    check(x, stream, 1, "max")
    check(x, stream, 1, "max", offset=4)


def check_accumulators(x, stream, op, *, offset=0, **options):
    """Compare accumulators of eight bytes bit for bit: results of fewer would hide the order."""
    result = "float64" if x.dtype.kind == "f" else "int64"
    mine = reduced(x, op, stream=stream, axis=0, offset=offset, result_dtype=result, **options)
    options.pop("second_offset", None)
    assert_same(mine, lr.tree.reduce(x, op, axis=0, dtype=result, **options))


def far_apart(dtype, shape):
    """Return values whose sums in float64 depend on the order of the additions."""
    x = values(dtype, shape)
    if x.dtype.kind != "f":
        return x
    most = 8 if x.dtype == np.float16 else 30  # a float16 overflows from 2^16 on
    return x * 2.0 ** np.random.default_rng(1).integers(-most, most, shape).astype(x.dtype)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("op", "dtype"), [("sum", "float32"), ("sum", "float64"), ("sum", "int32"), ("norm1", "float32"), ("prod", "int32")]
)
def test_accumulators_of_eight_bytes(stream, cut, op, dtype, length):
    """Of several columns, whose folds wait for the next rounds' in shared memory."""
    for width in cut([96, 132, 516], [132]):
        x = far_apart(dtype, (length, width))
        assert strategy_of(stream, x.shape, op, dtype).loads[0] * x.itemsize == 16
        check_accumulators(x, stream, op)
        check_accumulators(x, stream, op, offset=x.itemsize)
        check_accumulators(x[:, : width - 3], stream, op)


def test_many_lanes_of_accumulators_of_eight_bytes(stream, cut, monkeypatch):
    prefer_turns(monkeypatch)
    for shape in cut([(21_000, 96), (40_000, 128), (8192, 256)], [(5000, 96)]):
        x = far_apart("float32", shape)
        assert strategy_of(stream, shape, "sum", "float32").tile.turns > 1
        check_accumulators(x, stream, "sum")
        check_accumulators(x, stream, "sum", offset=4)
        check_accumulators(x[: shape[0] - 700], stream, "sum")


def test_elements_that_nothing_stands_for(stream, cut):
    """Where a map makes something of every element each that may be absent is looked at."""
    for shape in cut([(2500, 64), (4099, 132), (8192, 516)], [(1100, 132)]):
        x = far_apart("float32", shape)
        for offset in (0, 4):
            check_accumulators(x, stream, "sum", offset=offset, map=ONE_MORE)


def test_masks_are_not_loaded_so(stream):
    x = few_are_true("int32", (2500, 64))
    check(x, stream, 0, "any", second=x > 0)
    check(x, stream, 0, "sum", second=x > 0)


def dot_strategy(stream, x, second):
    with lr.plan(
        "dot", shape=x.shape, dtype=x.dtype, axis=0, second_strides_bytes=second.strides, context=stream.context
    ) as plan:
        return plan.strategy


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_dot_products(stream, cut, few, dtype):
    """Of two arrays that both fill vectors, and of arrays that do not, as the device finds or the plan knows."""
    for length, width in cut([(1000, 96), (2048, 132), (4099, 516)], [(1100, 132)]):
        x, y = far_apart(dtype, (length, width)), values(dtype, (length, width))[::-1].copy()
        assert dot_strategy(stream, x, y).loads[0] * x.itemsize == 16
        pairs = [
            (x, y, {}),
            (x, y, {"offset": x.itemsize}),
            (x[:, : width - 3], y[:, : width - 3], {}),
            (x, y[::-1], {}),
            (x, y, {"second_offset": x.itemsize}),
            (x, np.broadcast_to(y[:1], x.shape), {}),  # the same row for all
            (x, np.broadcast_to(y[:, :1], x.shape), {}),  # the same element for a row
        ]
        for first, second, places in few(pairs, 3):
            check_accumulators(first, stream, "dot", second=second, **places)


def test_many_lanes_of_dot_products(stream, cut, monkeypatch):
    prefer_turns(monkeypatch)
    for shape in cut([(21_000, 96), (8192, 256)], [(5000, 96)]):
        x, y = far_apart("float32", shape), values("float32", shape)
        assert dot_strategy(stream, x, y).tile.turns > 1
        check_accumulators(x, stream, "dot", second=y)


def test_batches_of_dot_products(stream):
    """Whose second array has its batches in another order."""
    x, y = values("float32", (3, 1100, 64)), values("float32", (3, 1100, 64))
    check(x, stream, 1, "dot", second=y[::-1])
