"""Columns of elements of one byte, gathered into vectors of each column: the tree's bits, however they lie."""

import itertools

import numpy as np
import pytest
from placed import prefer_way, reduced, values
from test_bytes import elements
from test_shapes import check

import lowlevel_reduce as lr
from lowlevel_reduce.strategy import columns
from lowlevel_reduce.strategy.base import Loads

pytestmark = pytest.mark.usefixtures("without_elements")

FLOATS, INTEGERS = ["float8_e4m3fn", "float8_e5m2"], ["int8", "uint8"]
BYTES = [*FLOATS, *INTEGERS, "bool"]
CASES = [
    *itertools.product(["max", "min", "minmax", "argmax"], FLOATS + INTEGERS),
    *itertools.product(["sum", "any", "all", "count_nonzero", "mean_var"], BYTES),
    *itertools.product(["norm1", "norm2", "norm_inf", "prod"], FLOATS + INTEGERS),
]
SIMULATED = [
    *[("sum", "int8"), ("all", "bool"), ("mean_var", "uint8"), ("argmax", "int8"), ("minmax", "uint8")],
    *[("sum", "float8_e4m3fn"), ("max", "float8_e5m2")],
]
LEAF = 4096


def bytes_of(op, dtype, shape):
    """Return elements of any bits where the order of NaN does not hide that of the others."""
    return (
        values(dtype, shape)
        if dtype in FLOATS and op not in ("max", "min", "argmax")
        else elements(dtype, "any bits", shape)
    )


def lying(op, dtype, length):
    """Yield columns, and where they begin, for each way in which a kernel brings them to registers."""
    yield bytes_of(op, dtype, (length, 48)), 0  # four columns in a load
    yield bytes_of(op, dtype, (length, 7)), 0  # at any address; the last thread has three columns
    wide = bytes_of(op, dtype, (length, 36))
    yield wide[:, :24], 0  # of rows with gaps
    yield wide[:, 1:22], 1  # words that hold four columns, and bytes at the array's edges
    yield bytes_of(op, dtype, (length, 21))[::-1], 2


@pytest.mark.simulated_if(lambda op, dtype: (op, dtype) in SIMULATED)
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_columns_however_they_lie(stream, cut, op, dtype):
    for length in cut([17, 700, LEAF, LEAF + 5, 3 * LEAF - 16], [LEAF + 5]):
        for x, offset in lying(op, dtype, length):
            check(x, stream, 0, op, offset=offset)


@pytest.mark.simulated_if(lambda dtype: dtype == "float8_e5m2")
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_exponentials(stream, cut, dtype):
    """Whose bits are those of the device's functions, not of NumPy's."""
    for length in cut([17, 700, LEAF, LEAF + 5], [LEAF + 5]):
        for x, offset in lying("logsumexp", dtype, length):
            found = reduced(x, "logsumexp", stream=stream, axis=0, offset=offset)
            wanted = lr.tree.reduce(x, "logsumexp", axis=0)
            np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-5)


@pytest.mark.parametrize("length", [1, 3, 16])
@pytest.mark.parametrize(("op", "dtype"), [("max", "int8"), ("sum", "int8"), ("argmin", "uint8"), ("mean_var", "int8"),
                                           ("sum", "float8_e4m3fn"), ("minmax", "uint8")])  # fmt: skip
def test_columns_of_a_vector(stream, op, dtype, length):
    """Eight, four or two columns for each thread, by the size of an accumulator."""
    for width, offset in ((40, 0), (37, 0), (40, 3)):
        check(bytes_of(op, dtype, (length, width)), stream, 0, op, offset=offset)


@pytest.mark.parametrize(("op", "dtype"), [("max", "int8"), ("sum", "float8_e4m3fn")])
def test_loads_of_several_words(stream, cut, monkeypatch, op, dtype):
    """As where there is much to reduce: of eight columns or more, gathered four at a time."""
    prefer_way(monkeypatch, lambda way, of: (-of.loads.width, way.making))
    for length in cut([3, 33, 700, LEAF + 5], [33]):
        with lr.plan(op, shape=(length, 40), dtype=dtype, axis=0, context=stream.context) as plan:
            assert plan.strategy.loads[0] >= 8
        for width, offset in ((40, 0), (37, 0), (40, 3)):
            check(bytes_of(op, dtype, (length, width)), stream, 0, op, offset=offset)


@pytest.mark.parametrize(("dtype", "low"), [("uint8", 50), ("int8", -60)])
def test_vectors_of_nothing_are_no_extremes(stream, monkeypatch, dtype, low):
    """All elements are on one side of zero, so that zeros in the place of absent ones would show.

    A thread loads two vectors in a round, as if it had registers for that, so that there are rounds with one.
    """
    monkeypatch.setattr(columns, "loads_of", lambda *_, **wide: Loads(4, 2))
    for length in (3, 33, LEAF + 5):
        x = np.random.default_rng(length).integers(low, low + 10, (length, 40)).astype(dtype)
        check(x, stream, 0, "minmax")


@pytest.mark.parametrize("dtype", BYTES)
def test_every_byte_in_every_slot_of_every_column(stream, cut, dtype):
    """So that a byte that is gathered into another column, or another slot, is found."""
    for length in cut([16, 31, 4096 + 31], [31]):
        x = np.zeros((length, 4 * 16), np.uint8)
        for column in range(x.shape[1]):
            x[column % 16 :: 16, column] = 1 + column
        x[-1] = np.arange(x.shape[1])
        x = x.view(bool) if dtype == "bool" else x.view(elements(dtype, "few", 1).dtype)
        for op in ("sum", "argmax") if dtype != "bool" else ("any", "sum"):
            check(x, stream, 0, op)
            check(x, stream, 0, op, offset=3)
            check(x[:, 1:], stream, 0, op)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_second_arrays(stream, cut, dtype):
    """Whose bytes are found column by column."""
    for shape in cut([(LEAF + 5, 48), (700, 7), (700, 21)], [(333, 7), (333, 32)]):
        x, y = values(dtype, shape), values(dtype, shape, seed=1)
        check(x, stream, 0, "dot", second=y)
        check(x, stream, 0, second=y > 0)
        check(x, stream, 0, second=np.broadcast_to(y[:, :1] > 0, shape))


@pytest.mark.parametrize("dtype", FLOATS)
def test_those_that_are_no_numbers(stream, cut, dtype):
    for length in cut([700, LEAF + 5], [333]):
        x = elements(dtype, "any bits", (length, 24))
        for op in ("max", "min", "sum"):
            check(x, stream, 0, op, nan="ignore")
            check(x[:, :19], stream, 0, op, nan="ignore")


def test_compensated_sums(stream):
    x = values("float8_e5m2", (700, 20))
    check(x, stream, 0, accumulate="compensated")


def test_many_lanes_of_a_thread(stream, cut, monkeypatch):
    """As where there is much to reduce: the leaves of the last block are then not all whole."""
    prefer_way(monkeypatch, lambda way, of: (-way.tile.turns, way.tile.columns))
    for op, dtype in cut([*SIMULATED, ("norm2", "uint8")], [("sum", "int8"), ("argmax", "uint8")]):
        for width in (16, 7):
            x = bytes_of(op, dtype, (4 * LEAF + 21, width))
            with lr.plan(op, shape=x.shape, dtype=dtype, axis=0, context=stream.context) as plan:
                assert plan.strategy.name == "columns"
                assert plan.strategy.tile.turns >= 2
            check(x, stream, 0, op)
