"""Rows and whole arrays beside a second array: in vectors as the first, or a step apart, at any address."""

import numpy as np
import pytest
from placed import values
from test_shapes import check

from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.strategy import rows as row_policy

ROWS = [{"strategy": "rows"}, {"strategy": "batch"}]
LENGTHS = [1024, 1028, 2050, 4097, 33_793]
"""Whole leaves, whole vectors, and others; the last is of more leaves than a warp folds at once."""

PAIRS = [
    *(("dot", dtype) for dtype in ("float32", "float16", "complex128")),
    *(("sum", dtype) for dtype in ("float32", "int8", "float64")),
]
"""A dot product, or a sum of the elements where a mask is true."""


def beside(op, x):
    """Return a second array for x."""
    return values(x.dtype, x.shape)[::-1].copy() if op == "dot" else values("int8", x.shape) > 0


@pytest.mark.parametrize("way", ROWS, ids=str)
@pytest.mark.parametrize(("op", "dtype"), PAIRS)
def test_rows(stream, cut, op, dtype, way):
    for length in cut(LENGTHS, LENGTHS[1:3]):
        x = values(dtype, (5, length))
        second = beside(op, x)
        for offset, second_offset in cut([(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 0), (0, 1)]):
            places = {"offset": offset * x.itemsize, "second_offset": second_offset * second.itemsize}
            check(x, stream, 1, op, second=second, **places, **way)


@pytest.mark.parametrize("length", [4, 64, 100, 128, 252, 256, 1000, 1024])
@pytest.mark.parametrize(("op", "dtype"), PAIRS)
def test_short_rows(stream, cut, op, dtype, length):
    for rows in cut([3, 70, 600], [3]):
        x = values(dtype, (rows, length))
        second = beside(op, x)
        for second_offset in cut([0, 1], [0]):
            for strategy in (None, "short_rows")[: 1 + (length * x.itemsize <= 4096)]:  # a few may take a warp each
                offset = second_offset * second.itemsize
                check(x, stream, 1, op, second=second, second_offset=offset, strategy=strategy)


@pytest.mark.parametrize("axis", [1, None])
def test_every_byte_of_a_mask_that_is_not_zero_is_true(stream, axis):
    """As in NumPy: what wrote a mask need not have written ones."""
    bytes_ = np.random.default_rng(0).choice(np.array([0, 0, 2, 4, 128, 254], np.uint8), (3, 2050))
    check(values("float32", bytes_.shape), stream, axis, second=bytes_.view(bool))


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_leaves_of_rows_at_any_address_in_both_arrays(stream, cut, dtype):
    """The first and the last leaf of a row lie at its edges, those between them do not."""
    leaf = element_type(dtype).leaf
    for length in cut([2 * leaf, 3 * leaf + 5, 3 * leaf - 1], [3 * leaf + 5]):
        x, y = values(dtype, (2, length)), values(dtype, (2, length), seed=1)
        for offset, second_offset in cut([(0, 0), (1, 0), (0, 3), (5, 5)], [(0, 3), (5, 5)]):
            places = {"offset": offset * x.itemsize, "second_offset": second_offset * x.itemsize}
            check(x, stream, 1, "dot", second=y, **places, strategy="rows")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_rows_at_any_address_in_both_arrays(stream, cut, dtype):
    """The first and the last rows lie at an array's edges, those between them do not; and other orders of the second's.

    The last ones have the second's first and last row beside rows in the middle of the first array.
    """
    for length in cut([2, 7, 65, 250, 1045], [65, 1045]):
        x, y = values(dtype, (7, length)), values(dtype, (7, length), seed=1)
        for offset, second_offset in cut([(0, 0), (1, 0), (0, 3), (5, 5)], [(0, 0), (0, 3)]):
            places = {"offset": offset * x.itemsize, "second_offset": second_offset * x.itemsize}
            check(x, stream, 1, "dot", second=y, **places, strategy="short_rows")
        for second in (y[::-1], y[:1], y[:, :1], y[:, ::-1]):
            check(x, stream, 1, "dot", second=second, second_offset=3 * x.itemsize, strategy="short_rows")
        x = values(dtype, (2, *y.shape))
        check(x, stream, 2, "dot", second=y[np.newaxis], second_offset=3 * x.itemsize, strategy="short_rows")
        y[1:, 0] = np.inf  # behind the end of the row before
        check(np.full_like(y, -0.0), stream, 1, "dot", second=np.abs(y), strategy="short_rows")


@pytest.mark.parametrize("op", ["dot", "sum"])
def test_second_arrays_that_do_not_follow_their_elements(stream, cut, op):
    """The same element for a row, the same row for all, every second element, elements in reverse, and rows apart."""
    for length in cut([60, 1500, 5000], [1500]):
        x = values("float32", (6, length))
        wide = beside(op, values("float32", (6, 2 * length)))
        odd = beside(op, values("float32", (6, 2 * length + 1)))[:, :length]  # rows between vectors
        for second in (
            wide[:, :1],
            wide[:1, :length],
            wide[:, ::2],
            wide[:, length - 1 :: -1],
            wide[::-1, :length],
            odd,
        ):
            check(x, stream, 1, op, second=second)


@pytest.mark.usefixtures("forgotten_choices")
@pytest.mark.parametrize("leaves", range(2, 11))
def test_a_warp_for_each_leaf(stream, cut, monkeypatch, leaves):
    monkeypatch.setattr(row_policy, "_are_few", lambda *_: False)
    for op, dtype in cut(PAIRS, PAIRS[:1]):
        x = values(dtype, (3, leaves * 4096 // values(dtype, 1).itemsize - 16))
        check(x, stream, 1, op, second=beside(op, x))


@pytest.mark.parametrize("strategy", ["block", "tiles", "two_pass"])
@pytest.mark.parametrize(("op", "dtype"), PAIRS)
def test_whole_arrays(stream, cut, op, dtype, strategy):
    for length in cut([5, 4096, 4100, 30_000, 30_001], [4100]):
        x = values(dtype, length)
        second = beside(op, x)
        for offset in cut([0, 1], [0]):
            check(x, stream, None, op, second=second, second_offset=offset * second.itemsize, strategy=strategy)
            check(x, stream, None, op, second=second, offset=x.itemsize, second_offset=offset, strategy=strategy)


@pytest.mark.usefixtures("forgotten_choices")
@pytest.mark.parametrize("warps", [2, 4, 8])
def test_rows_in_turns(stream, cut, monkeypatch, warps):
    """Warps meet when they have what a warp folds at once, in two sets of slots: here they meet three times."""
    monkeypatch.setattr(row_policy, "_warps_of_a_row", lambda *_: warps)
    for leaves in cut([31, 32, 33, 64, 65, 70], [65]):
        for op in cut(["sum", "mean_var", "argmax"], ["sum"]):
            check(values("float64", (3, leaves * 512 - 7)), stream, 1, op, strategy="rows")
            check(np.ones((3, leaves * 512), np.float64), stream, 1, op, strategy="rows")
