"""Elements at odd addresses, which a device may hold: every kernel that loads single elements, not vectors."""

import numpy as np
import pytest
from placed import assert_near, reduced, values

from lowlevel_reduce import tree
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.operators import resolve

pytestmark = pytest.mark.usefixtures("without_elements")


def check(x, op, axis, stream, offset):
    reduction = resolve(op)
    types = reduction.types(element_type(x.dtype))
    length = x.size if axis is None else x.shape[axis]
    actual = reduced(x, op, stream=stream, axis=axis, offset=offset)
    assert_near(actual, tree.reduce(x, op, axis=axis), reduction, length, types, f"{op} {x.shape} axis {axis}")


@pytest.mark.parametrize("offset", [1, 6])
@pytest.mark.parametrize(("shape", "axis"), [((3000,), None), ((5, 300), 1), ((3, 5000), 1), ((300, 7), 0)])
@pytest.mark.parametrize("op", ["sum", "mean_var"])
def test_float32(stream, op, shape, axis, offset):
    check(values("float32", shape), op, axis, stream, offset)


@pytest.mark.parametrize("dtype", ["float16", "float64", "complex128"])
def test_strided(stream, dtype):
    check(values(dtype, (6, 70))[:, ::2], "sum", 1, stream, 1)


def test_neighbouring_columns(stream):
    """Of which a thread has two: neither together nor by themselves can their elements be loaded at once."""
    check(values("float16", (300, 8)), "sum", 0, stream, 1)


@pytest.mark.parametrize("length", [64, 1500])
def test_rows_in_packed_records(stream, length):
    """Of which the first one is aligned, and those after it are at odd addresses."""
    records = np.zeros(5, np.dtype([("row", "<f4", length), ("flag", "u1")]))
    records["row"] = values("float32", (5, length))
    check(records["row"], "sum", 1, stream, 0)


@pytest.mark.parametrize(("shape", "axis"), [((1500,), None), ((3, 300), 1), ((3, 1500), 1)], ids=str)
def test_second_array_in_a_packed_record(stream, shape, axis):
    record = np.zeros(shape, np.dtype([("flag", "u1"), ("value", "<f4")]))
    record["value"] = values("float32", shape)
    x = values("float32", shape)
    second = record["value"]  # at odd addresses, five bytes apart
    actual = reduced(x, "dot", stream=stream, axis=axis, second=second)
    wanted = tree.reduce(x, "dot", axis=axis, second=np.ascontiguousarray(second))
    assert actual.tobytes() == wanted.tobytes()
