"""Rows of several leaves at any address: by vectors, element by element, shifted, and at the edges of the array."""

import numpy as np
import pytest
from placed import assert_same, reduced, values
from test_shapes import check

import lowlevel_reduce as lr
from lowlevel_reduce.strategy import rows as row_policy

WAYS = [{"strategy": "rows"}, {"strategy": "batch"}, {"strategy": "batch", "cluster": 2}]
LENGTHS = {
    1: [4097, 9001, 12_289, 16_384 - 3],
    2: [2049, 5001, 6143, 8195],
    4: [1025, 2050, 3001, 4997],
    8: [513, 1501, 2499],
    16: [257, 1023],
}
"""By the bytes of an element: from little more than a leaf to nearly five, few of them whole vectors."""

TYPES = ["int8", "float8_e4m3fn", "float16", "uint16", "float32", "int32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_types(stream, cut, dtype, way):
    size = values(dtype, 1).itemsize
    for length in cut(LENGTHS[size], LENGTHS[size][:1]):
        for rows, offset in cut([(2, 0), (5, 0), (5, size), (9, 3 * size)], [(3, size)]):
            check(values(dtype, (rows, length)), stream, 1, "sum", offset=offset, **way)


@pytest.mark.parametrize("op", ["max", "argmin", "mean_var", "logsumexp", "minmax", "norm2", "any"])
def test_operators(stream, cut, op):
    for way in cut(WAYS, WAYS[:1]):
        for length in cut([1025, 3001, 4997, 9000], [1025]):
            x = values("float32", (4, length))
            check(x, stream, 1, op, offset=4, **way)
            check(x[:, : length - 1], stream, 1, op, **way)  # rows with something between them
        check(values("float16", (4, 2100)), stream, 1, op, offset=2, **way)


@pytest.mark.usefixtures("forgotten_choices")
@pytest.mark.parametrize("warps", [1, 2, 4, 8])
def test_as_many_warps_as_a_row_may_have(stream, cut, monkeypatch, warps):
    monkeypatch.setattr(row_policy, "_warps_of_a_row", lambda *_: warps)
    for dtype in cut(["float32", "float16", "float64"], ["float32"]):
        size = values(dtype, 1).itemsize
        for length in cut([2000, 9000, 40_001], [4501]):
            check(values(dtype, (11, length)), stream, 1, "sum", offset=size, strategy="rows")
            check(values(dtype, (11, length)), stream, 1, "sum", strategy="rows")


@pytest.mark.usefixtures("forgotten_choices")
@pytest.mark.parametrize("leaves", range(2, 11))
def test_a_warp_for_each_leaf(stream, cut, monkeypatch, leaves):
    """Any number of them, as where there are many rows."""
    monkeypatch.setattr(row_policy, "_are_few", lambda *_: False)
    for dtype in cut(["float32", "float16", "float64"], ["float32"]):
        a_leaf = 4096 // values(dtype, 1).itemsize
        for missing in cut([0, 8, a_leaf - 8], [8]):
            x = values(dtype, (5, leaves * a_leaf - missing))
            with lr.plan("sum", shape=x.shape, dtype=dtype, axis=1, context=stream.context) as plan:
                assert (plan.strategy.warps_of_a_row, plan.strategy.in_one_turn) == (leaves, True)
                assert plan.strategy.warps == (4 if leaves == 2 else leaves)
            for op in cut(["sum", "argmax", "mean_var"], ["sum"]):
                check(x, stream, 1, op)
                check(x, stream, 1, op, offset=x.itemsize)
            lengths = cut([x.shape[1], x.shape[1] - 1, a_leaf + 1, 0], [a_leaf + 3])
            found = reduced(x, "max", stream=stream, axis=1, initial=-1, lengths=lengths)
            for length, result in zip(lengths, found, strict=True):
                assert_same(result, lr.tree.reduce(x[:, :length], "max", axis=1, initial=-1))


@pytest.mark.usefixtures("forgotten_choices")
@pytest.mark.parametrize("leaves", [2, 3, 5, 16])
def test_a_warp_for_each_leaf_at_any_address(stream, cut, monkeypatch, leaves):
    """As where there are enough rows to fill the device."""
    monkeypatch.setattr(row_policy, "WARPS_TO_FILL", 0)
    for dtype in cut(["float32", "int32", "float64"], ["float32"]):
        a_leaf = 4096 // values(dtype, 1).itemsize
        for missing in cut([1, 3, a_leaf // 2 - 1], [1]):
            x = values(dtype, (5, leaves * a_leaf - missing))
            with lr.plan("sum", shape=x.shape, dtype=dtype, axis=1, context=stream.context) as plan:
                assert (plan.strategy.name, plan.strategy.warps_of_a_row) == ("rows", leaves)
                assert plan.strategy.in_one_turn
                assert not plan.strategy.aligned
            for op in cut(["sum", "max", "norm1"], ["sum", "max"]):
                check(x, stream, 1, op)
                check(x, stream, 1, op, offset=x.itemsize)
                check(x, stream, 1, op, offset=1)  # words that are not even aligned to themselves


@pytest.mark.parametrize("strategy", ["short_rows", "rows", "batch"])
def test_rows_that_begin_or_end_within_vectors(stream, strategy):
    """The first row begins at a multiple of sixteen bytes, and the next one past it; or all end before one."""
    length = 64 if strategy == "short_rows" else 2048
    check(values("float16", (5, length + 1))[:, :length], stream, 1, strategy=strategy)
    check(values("float32", (5, length))[:, : length - 3], stream, 1, strategy=strategy)


def test_all_elements_of_the_array_and_no_other(stream, cut):
    """Nothing beside an array is read as if it belonged to it: a sum of ones between others is a count."""
    for dtype, length in cut([("float16", 6001), ("float32", 3001), ("int8", 9001)], [("float32", 1500)]):
        x = np.ones((7, length + 5), values(dtype, 1).dtype)
        x[:, :3], x[:, -2:] = 50, 50
        check(x[1:6, 3:-2], stream, 1, "sum", strategy="rows")
        check(x[1:6, 3:-2], stream, 1, "sum", strategy="batch")
