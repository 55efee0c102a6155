"""Columns that lie some elements apart from each other, closer than a column's own elements do."""

import numpy as np
import pytest
from placed import prefer_way, values
from test_shapes import check

import lowlevel_reduce as lr

pytestmark = pytest.mark.usefixtures("without_elements")


def apart(dtype, length, columns, step, *, seed=0):
    """Return an array of shape (length, columns), whose columns lie `step` elements apart."""
    return values(dtype, (length, columns * step), seed=seed)[:, ::step]


def kind_of(x, stream):
    with lr.plan(shape=x.shape, dtype=x.dtype, axis=0, strides_bytes=x.strides, context=stream.context) as plan:
        return plan.problem.kind


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float64", "complex64"])
def test_each_type(stream, cut, dtype):
    for columns, step in cut([(2, 2), (3, 2), (5, 3), (31, 3), (64, 2), (130, 3)], [(5, 2), (33, 3)]):
        x = apart(dtype, 40, columns, step)
        assert kind_of(x, stream) == "columns"
        check(x, stream, 0)
        check(x[:, ::-1], stream, 0)


def test_how_far_apart(stream):
    """Up to less than a sector; else each element has one to itself, whichever way they are read."""
    for dtype, most in (("int8", 31), ("float32", 7), ("float64", 3)):
        for step in (most, most + 1):
            x = apart(dtype, 30, 6, step)
            assert kind_of(x, stream) == ("columns" if step == most else "strided")
            check(x, stream, 0)


@pytest.mark.parametrize("op", ["mean_var", "argmax", "minmax", "logsumexp"])
def test_operators(stream, op):
    for dtype in ("float32", "float16"):
        check(apart(dtype, 300, 11, 3), stream, 0, op)


@pytest.mark.parametrize("by", ["cluster", "warps", "blocks"])
def test_whoever_folds(stream, monkeypatch, by):
    prefer_way(monkeypatch, lambda way, of: (way.folded_by != by, way.making))
    check(apart("float16", 9000, 9, 2), stream, 0)


def test_at_addresses_between_elements(stream):
    for dtype, offset in (("float32", 1), ("float16", 1), ("float32", 4), ("float64", 4)):
        check(apart(dtype, 70, 9, 3), stream, 0, offset=offset)
        check(apart(dtype, 70, 9, 3), stream, 0, "mean_var", offset=offset)


def test_a_distance_between_elements(stream):
    """Fields of packed records: columns a number of bytes apart that is no multiple of an element's."""
    for dtype, step in (("float16", 5), ("float32", 6), ("float64", 12)):
        records = np.zeros(
            (70, 10), np.dtype({"names": ["x"], "formats": [dtype], "offsets": [1], "itemsize": step + 8})
        )
        records["x"] = values(dtype, (70, 10))
        check(records["x"], stream, 0)


def test_more_axes(stream):
    x = values("float32", (3, 20, 5, 8))
    check(x[..., ::2], stream, 1)
    check(x[..., ::2], stream, (0, 1))
    check(x[..., ::2], stream, (0, 2))
    check(x[:, ::-1, ::2, ::3].transpose(3, 0, 1, 2), stream, (1, 2))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_second_array(stream, dtype):
    x, y = apart(dtype, 300, 7, 3), apart(dtype, 300, 7, 3, seed=1)
    check(x, stream, 0, "dot", second=y)
    check(x, stream, 0, "dot", second=np.ascontiguousarray(y))
    check(np.ascontiguousarray(x), stream, 0, "dot", second=y)
    check(x, stream, 0, "dot", second=y, second_offset=1)
    check(x, stream, 0, "sum", second=values("bool", (300, 21))[:, ::3])
