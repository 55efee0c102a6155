"""Rows of at most a leaf by the kernel that loads elements one by one: any axes, strides, addresses, second arrays."""

import numpy as np
import pytest
from placed import assert_same, reduced, values
from test_shapes import check

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.strategy import elements
from lowlevel_reduce.strategy.base import MOST_THREADS

STRATEGY = "elements"
"""Asked for, so that other shapes meet it than those that it is chosen for."""

LENGTHS = {
    "float32": [1, 2, 3, 5, 8, 9, 31, 64, 129, 200, 257, 1000, 1024],
    "int8": [1, 7, 17, 300, 513, 4096],
    "float64": [1, 6, 8, 65, 200, 512],
    "complex128": [1, 3, 33, 100, 256],
    "bfloat16": [4, 30, 257, 1214],
}
"""Elements of a row: one thread's, several lanes' and several warps'; in one step of a leaf and in several, with places
that are empty."""


@pytest.fixture(autouse=True)
def not_directly(request, monkeypatch):
    """Small launches go the way of large ones, but in tests of their own."""
    if "directly" not in request.node.name:
        monkeypatch.setattr(elements, "_DIRECT_THREADS", 0)


@pytest.mark.parametrize("dtype", LENGTHS)
def test_lengths(stream, cut, dtype):
    """Rows, columns, and elements that are a stride apart along both axes."""
    for length in cut(LENGTHS[dtype], LENGTHS[dtype][1::2]):
        check(values(dtype, (5, length)), stream, 1, strategy=STRATEGY)
        check(values(dtype, (length, 37)), stream, 0, strategy=STRATEGY)
        check(values(dtype, (length, 74))[::-1, ::2], stream, 0, strategy=STRATEGY)
    check(values(dtype, (5, 128))[:, ::2], stream, 1, strategy=STRATEGY)  # as long as whole vectors, which it is not


@pytest.mark.parametrize("op", ["max", "argmin", "mean_var", "minmax", "prod"])
def test_operators(stream, cut, op):
    for shape in cut([(3, 70), (6, 40), (40, 9), (300, 20)], [(6, 40), (300, 20)]):
        x = values("float32", shape)
        check(x, stream, 0, op, strategy=STRATEGY)
        check(x.T, stream, 1, op, strategy=STRATEGY)


def test_a_pivot_that_another_warp_loads(stream):
    """Columns of bytes, too many for a small launch, lie side by side in all lanes of a warp; warps share them."""
    check(values("int8", (40, 2200)), stream, 0, "mean_var", strategy=STRATEGY)


def test_moments_of_what_is_not_finite(stream):
    """In place of elements that threads lack stand others like a row's first, which is infinite, NaN or a zero here."""
    x = values("float16", (6, 43))
    x[:3, 0] = np.inf, -np.inf, np.nan
    x[3], x[4, 3], x[5, 0] = -0.0, np.inf, -0.0
    for columns in (5, 43):
        check(x[:, :columns].copy(), stream, 1, "mean_var", strategy=STRATEGY)


def test_axes(stream, cut):
    """Reduced axes apart from each other, kept ones between them, in the results' order and in another one."""
    x = values("float32", (3, 4, 5, 6, 2))
    for axes in cut([(0, 2), (1, 3), (0, 2, 4), (1, 4), 2, (0, 1, 3, 4)], [(0, 2), (1, 4), (0, 2, 4)]):
        check(x, stream, axes, strategy=STRATEGY)
        check(x.transpose(3, 1, 4, 0, 2), stream, axes, strategy=STRATEGY)
    check(np.broadcast_to(x[:1], x.shape), stream, (0, 2), "argmax", strategy=STRATEGY)
    check(x[:, ::-1, :, 1::2], stream, (1, 3), "mean_var", strategy=STRATEGY)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8"])
def test_several_leaves(stream, cut, dtype):
    """Of columns and strided rows, as many as a block has room for; the last is whole, has one element or some."""
    leaf = element_type(dtype).leaf
    for length in cut([leaf + 1, 2 * leaf, 2 * leaf + 900, 4096], [leaf + 1, 4096]):
        if length <= 4096:
            check(values(dtype, (length, 3)), stream, 0, strategy=STRATEGY)
            check(values(dtype, (length // 8, 2, 8, 3)), stream, (0, 2), "max", strategy=STRATEGY)
            check(values(dtype, (length, 2)), stream, 0, "mean_var", strategy=STRATEGY)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_absent_elements_change_nothing(stream, dtype):
    """Rows that end within a thread's elements, by one load each, by pairs and by vectors; and rows that lie apart."""
    for length in (3, 6, 12, 40):
        below = -np.abs(values(dtype, (5, length + 1)).astype("float32")) / 2 - 1
        below = below.astype(element_type(dtype).dtype)
        check(np.ascontiguousarray(below[:, :length]), stream, 1, "max", strategy=STRATEGY)
        check(below[:, :length], stream, 1, "max", strategy=STRATEGY)
        zeros = np.full((5, length), -0.0).astype(element_type(dtype).dtype)
        check(zeros, stream, 1, strategy=STRATEGY)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_every_address(stream, cut, dtype):
    x = values(dtype, (11, 6))
    for offset in cut(range(16), [1, 2, 7]):
        check(x, stream, 0, strategy=STRATEGY, offset=offset)
        check(x, stream, 1, "argmax", strategy=STRATEGY, offset=offset)


def test_exponentials_have_the_bits_of_other_strategies(stream):
    for shape, axis, other in (((6, 40), 0, "columns"), ((40, 100), 1, "short_rows")):
        x = values("float32", shape)
        found = [reduced(x, "logsumexp", stream=stream, axis=axis, strategy=name) for name in (STRATEGY, other)]
        assert_same(*found)


def test_rows_in_several_turns(stream, monkeypatch):
    """A grid that has fewer threads than there are rows; the last turn lacks some."""
    monkeypatch.setattr(elements, "_BLOCKS", 1)
    rows = 2 * stream.context.multiprocessor_count * MOST_THREADS + 1234
    with lr.plan("sum", shape=(rows, 3), dtype="int8", axis=1, strategy=STRATEGY, context=stream.context) as plan:
        assert 2 * plan.strategy.blocks * plan.strategy.block_threads < rows
    check(values("int8", (rows, 3)), stream, 1, strategy=STRATEGY)
    check(values("float32", (3, rows)), stream, 0, "mean_var", strategy=STRATEGY)


@pytest.fixture
def together(monkeypatch):
    """Rows are taken together however few they are, by few blocks."""
    monkeypatch.setattr(elements, "_TOGETHER_THREADS", 0)
    monkeypatch.setattr(elements, "_BLOCKS", 1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
@pytest.mark.usefixtures("together")
def test_rows_together(stream, cut, dtype):
    """Rows of few small elements, several to a thread: in one turn and in more, and some that are left over."""
    turn = stream.context.multiprocessor_count * MOST_THREADS
    for length in cut(range(2, 9), [2, 3, 4, 7]):
        for rows in cut([5, 40, 1003, 4 * turn, 9 * turn + 1234], [1003, 9 * turn + 1234]):
            x = values(dtype, (rows, length + 1))
            of = {"shape": (rows, length), "dtype": dtype, "axis": 1, "context": stream.context}
            with lr.plan("sum", strategy=STRATEGY, **of) as plan:
                assert plan.strategy.together
            for op in ("sum", "max"):
                check(np.ascontiguousarray(x[:, 1:]), stream, 1, op, strategy=STRATEGY)
            check(x[:, :-1], stream, 1, strategy=STRATEGY)


@pytest.mark.usefixtures("together")
def test_rows_together_at_any_address(stream, cut):
    """At multiples of sixteen bytes or not, of elements or not; with results of other types, and several of them."""
    x, few = values("bfloat16", (300, 3)), values("int8", (77, 5))
    for offset in cut([1, 2, 4, 8, 16], [2, 3, 16]):
        check(x, stream, 1, strategy=STRATEGY, offset=offset)
        check(few, stream, 1, "max", strategy=STRATEGY, offset=offset)
    wide = reduced(x, "sum", stream=stream, axis=1, result_dtype="float32", strategy=STRATEGY)
    assert_same(wide, lr.tree.reduce(x.astype("float32"), "sum", axis=1, accumulate="float32"))
    check(x, stream, 1, "mean", strategy=STRATEGY)
    check(x[:, ::-1], stream, 1, "max", strategy=STRATEGY)
    check(x[::-1], stream, 1, "max", strategy=STRATEGY)
    check(few, stream, 1, "minmax", strategy=STRATEGY)
    check(few, stream, 1, "sum", initial=3, strategy=STRATEGY)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
@pytest.mark.usefixtures("together")
def test_columns_together(stream, cut, dtype):
    """Columns of few small elements, words of them to a thread: in one turn and in more, of one run and of several."""
    turn = stream.context.multiprocessor_count * MOST_THREADS
    for length in cut(range(2, 9), [2, 3, 8]):
        for columns in cut([8, 1000, 4 * turn, 9 * turn + 1232], [1000, 9 * turn + 1232]):
            x = values(dtype, (length, columns))
            # Sums of int8 are wider than its elements, and so are not taken together.
            with lr.plan("max", strategy=STRATEGY, shape=x.shape, dtype=dtype, axis=0, context=stream.context) as plan:
                assert plan.strategy.together > 1
            for op in ("sum", "max"):
                check(x, stream, 0, op, strategy=STRATEGY)
        check(values(dtype, (5, length, 24)), stream, 1, strategy=STRATEGY)


@pytest.mark.usefixtures("together")
def test_columns_together_at_any_address(stream, cut):
    """At multiples of eight bytes or not, of elements or not; in results' order or not; with results of other types."""
    x, few = values("bfloat16", (3, 320)), values("int8", (5, 7, 96))
    for offset in cut([1, 2, 4, 8, 16], [2, 3, 8]):
        check(x, stream, 0, strategy=STRATEGY, offset=offset)
        check(few, stream, 1, "max", strategy=STRATEGY, offset=offset)
        check(values("float32", (3, 320)), stream, 0, strategy=STRATEGY, offset=offset)
    wide = reduced(x, "sum", stream=stream, axis=0, result_dtype="float32", strategy=STRATEGY)
    assert_same(wide, lr.tree.reduce(x.astype("float32"), "sum", axis=0, accumulate="float32"))
    check(x, stream, 0, "mean", strategy=STRATEGY)
    check(x[::-1], stream, 0, "max", strategy=STRATEGY)
    check(few.transpose(2, 1, 0), stream, 1, "max", strategy=STRATEGY)
    check(few[::-1], stream, 1, "minmax", strategy=STRATEGY)
    check(few, stream, 1, "sum", initial=3, strategy=STRATEGY)


def test_second_arrays(stream, cut):
    """A mask and other factors, beside the elements and anyhow."""
    for shape in cut([(7, 40), (40, 7), (3, 700)], [(7, 40), (3, 700)]):
        x, y = values("float32", shape), values("float32", shape[::-1], seed=1).T
        for axis in (0, 1):
            check(x, stream, axis, "dot", second=y, strategy=STRATEGY)
            check(x, stream, axis, second=y > 0, strategy=STRATEGY)
            check(x, stream, axis, "mean_var", second=y > -1, strategy=STRATEGY)
    check(x, stream, 1, "dot", second=y, strategy=STRATEGY, second_offset=1)


def check_directly(array, stream, axis, op="sum", **options):
    """As `check`, of what `reduce_directly` takes."""
    of = {"shape": array.shape, "dtype": array.dtype, "axis": axis, "context": stream.context}
    of["strides_bytes"] = array.strides
    with lr.plan(op, strategy=STRATEGY, **of) as plan:
        assert plan.strategy.direct
    return check(array, stream, axis, op, strategy=STRATEGY, **options)


@pytest.mark.parametrize("dtype", LENGTHS)
def test_directly(stream, cut, dtype):
    """Rows of one thread and of several lanes, in vectors, one by one, apart and backwards; columns; two kept axes."""
    most = 512 // element_type(dtype).itemsize
    for length in cut([1, 2, 4, 5, 8, 9, 16, 31], [4, 5, 9, 16]):
        wide = values(dtype, (133, min(length, most) + 1))
        check_directly(np.ascontiguousarray(wide[:, 1:]), stream, 1)
        check_directly(wide[:, :-1], stream, 1, "max" if dtype != "complex128" else "sum")
        check_directly(values(dtype, (min(length, most), 37)), stream, 0)
        check_directly(values(dtype, (min(length, most), 74))[::-1, ::2], stream, 0)
        check_directly(values(dtype, (5, min(length, most), 7)), stream, 1)


@pytest.mark.parametrize("op", ["argmin", "mean_var", "minmax", "logsumexp"])
def test_operators_directly(stream, op):
    """Several results; pivots of a thread's own element and of another's; every operator's bits as by other kernels."""
    for shape, axis in (((40, 5), 1), ((40, 9), 1), ((70, 3), 0), ((3, 20, 6), 1)):
        x = values("float16", shape)
        if op == "logsumexp":
            assert_same(
                *(
                    reduced(x, op, stream=stream, axis=axis, strategy=name)
                    for name in (STRATEGY, "columns" if axis == 0 or len(shape) > 2 else "short_rows")
                )
            )
        else:
            check_directly(x, stream, axis, op)


def test_every_address_directly(stream):
    """An array that begins at no multiple of sixteen bytes is taken as by large launches."""
    x = values("float16", (11, 6))
    for offset in (0, 1, 2, 8, 16):
        check(x, stream, 0, strategy=STRATEGY, offset=offset)
        check(x, stream, 1, "argmax", strategy=STRATEGY, offset=offset)


def test_results_in_another_order_are_not_taken_directly(stream):
    x = values("float32", (3, 4, 5)).transpose(2, 0, 1)
    with lr.plan(
        "sum",
        shape=x.shape,
        dtype="float32",
        axis=1,
        strides_bytes=x.strides,
        strategy=STRATEGY,
        context=stream.context,
    ) as plan:
        assert not plan.strategy.direct
    check(x, stream, 1, strategy=STRATEGY)
