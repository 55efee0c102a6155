"""Rows whose elements come in runs: vectors of them are loaded, or single elements, or their bytes at any address."""

import numpy as np
import pytest
from placed import values
from test_shapes import check

from lowlevel_reduce.layout import SECTOR_BYTES
from lowlevel_reduce.strategy import joined_columns

WAYS = [{"strategy": "rows"}, {"strategy": "batch"}, {"strategy": "batch", "cluster": 2}]


def runs(dtype, run, gap, length, kept=2):
    """Return an array to be reduced over its axes 0 and 2: rows of at least `length` elements, in runs of `run`.

    Runs of one are more than a sector apart: closer rows would be columns.
    """
    gap += SECTOR_BYTES // values(dtype, 1).itemsize * (run == 1)
    return values(dtype, (-(-length // run), kept, run + gap))[:, :, :run]


def vector_of(dtype):
    return 16 // values(dtype, 1).itemsize


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex64", "complex128"])
def test_runs_of_every_length_around_a_vector(stream, cut, dtype):
    vector = vector_of(dtype)
    every = {1, 3, vector - 1, vector, vector + 1, 3 * vector, 7 * vector + 1, 256 * vector - 1, 256 * vector + 1} - {0}
    for run in cut(sorted(every), sorted({3, vector + 1, 3 * vector})):
        gap = vector + -run % vector
        for way in cut(WAYS, [WAYS[run % 2]]):
            check(runs(dtype, run, gap, 260 * vector), stream, (0, 2), **way)
        check(runs(dtype, run, gap + 1, 270 * vector), stream, (0, 2), strategy="rows")


@pytest.mark.parametrize("op", ["max", "argmin", "mean_var", "logsumexp", "norm2", "any", "count_nonzero"])
def test_operators(stream, cut, op):
    for run in cut([1, 3, 4, 7, 64, 1023], [3, 64]):
        for way in cut(WAYS, WAYS[:1]):
            check(runs("float32", run, -run % 4, 1100), stream, (0, 2), op, **way)


@pytest.mark.parametrize(
    ("dtype", "offset"), [("float32", 1), ("float16", 1), ("float32", 4), ("int8", 3), ("float64", 8)]
)
def test_runs_at_addresses_between_vectors(stream, cut, dtype, offset):
    vector = vector_of(dtype)
    for run in cut([1, vector, 2 * vector, 49], [2 * vector]):
        check(runs(dtype, run, -run % vector, 258 * vector), stream, (0, 2), offset=offset, strategy="rows")
        check(runs(dtype, run, -run % vector, 258 * vector), stream, (0, 2), "mean", offset=offset, strategy="batch")


@pytest.mark.parametrize("op", ["sum", "argmax", "mean_var", "logsumexp"])
def test_a_multiprocessor_for_each_leaf(stream, cut, op):
    """A tile has one leaf, or two or four; how many of a row there are, and how many rows."""
    for leaves, rows in cut([(5, 1), (6, 30), (8, 1), (9, 2), (40, 1), (200, 1), (20, 9)], [(5, 3), (9, 2), (140, 1)]):
        x = values("float32", (rows, leaves * 1024 - 77, 2))[:, :, 1]
        check(x, stream, 1, op)
        check(x[0], stream, None, op)


@pytest.mark.parametrize("strategy", ["rows", "batch"])
def test_steps_of_any_sign(stream, cut, strategy):
    for dtype in cut(["float32", "float16", "int8"], ["float16"]):
        x = runs(dtype, 64, 0, 257 * vector_of(dtype))
        for array in (x[::-1], x[:, :, ::-1], x[::-1, ::-1], np.broadcast_to(x[:1], x.shape), x[:, :, ::2], x.T):
            check(array, stream, (0, 2), "sum", strategy=strategy)


@pytest.mark.parametrize("strategy", ["rows", "batch"])
def test_second_arrays_that_lie_otherwise(stream, cut, strategy):
    for dtype, run in cut([("float32", 64), ("float16", 64), ("float16", 49), ("float64", 6)], [("float16", 64)]):
        length = 260 * vector_of(dtype)
        x = runs(dtype, run, -run % 8, length)
        others = [runs(dtype, run, -run % 8, length), runs(dtype, run, 1, length), x[::-1], x[:1], x[:, :, :1],
                  np.asfortranarray(x)]  # fmt: skip
        for second in others:
            check(x, stream, (0, 2), "dot", second=second, strategy=strategy)
        check(x, stream, (0, 2), "dot", second=others[0], second_offset=1, strategy=strategy)
        for mask in (values("bool", x.shape), values("bool", (1, 1, run))):
            check(x, stream, (0, 2), "sum", second=mask, strategy=strategy)


def test_few_elements_of_short_rows(stream, cut):
    for dtype in cut(["float32", "float16", "int8", "complex128"], ["float32", "int8"]):
        vector = vector_of(dtype)
        for run in cut([1, 2, vector, vector + 1, 4 * vector], [vector + 1, 4 * vector]):
            for runs_of_a_row in cut([1, 3, 17], [3]):
                x = runs(dtype, run, vector + -run % vector, runs_of_a_row * run, kept=5)
                check(x, stream, (0, 2), strategy="short_rows")
                check(x, stream, (0, 2), "mean", strategy="short_rows")


def test_one_row_of_few_strided_elements(stream):
    check(values("int8", (4528, 4))[:, 0], stream, 0, "max")
    check(values("bfloat16", (248, 64))[:, :32], stream)
    check(values("float16", (48, 1232))[:, ::2], stream, 0)


@pytest.mark.parametrize("op", ["sum", "logsumexp", "norm2"])
def test_tiles_in_turn_from_groups_that_share_sectors(stream, cut, monkeypatch, op):
    """Whichever order tiles are read in, each of them is read once; groups have as many, or one more."""
    monkeypatch.setattr(joined_columns, "_HELD_BYTES", 0)
    for neighbours, length in cut([(3, 9700), (5, 50_001), (7, 40_000), (2, 8193)], [(3, 9700)]):
        check(values("float32", (length, neighbours)).T, stream, None, op, strategy="batch", cluster=1)
    check(values("float32", (2, 9000, 3)).transpose(0, 2, 1), stream, (1, 2), op, strategy="batch", cluster=1)
