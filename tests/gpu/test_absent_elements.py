"""What a short row or segment lacks to whole vectors changes nothing, not even a zero's sign or which value wins."""

import itertools

import numpy as np
import pytest
from placed import assert_same, reduced, values

import lowlevel_reduce as lr
from lowlevel_reduce import tree
from lowlevel_reduce.operators import ElementMap

LENGTHS = [1, 2, 3, 5, 31, 33, 100, 130]
NUMBERS = {
    "negative zeros": lambda shape: np.full(shape, -0.0),
    "zeros of both signs": lambda shape: np.where(np.arange(np.prod(shape)).reshape(shape) % 3, -0.0, 0.0),
    "infinite first": lambda shape: np.where(np.arange(shape[1]) == 0, np.inf, values("float64", shape)),
    "not a number first": lambda shape: np.where(np.arange(shape[1]) == 0, np.nan, values("float64", shape)),
    "far from zero": lambda shape: 1e6 + values("float64", shape),
}


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("op", ["sum", "mean", "mean_var"])
def test_rows(stream, cut, op, numbers):
    options = {} if op == "mean_var" else {"accumulate": "float32"}
    hides_bits = (op, numbers) == ("mean_var", "far from zero")  # a float32, those of its pivot
    for length in cut(LENGTHS, [3, 33]):
        for dtype in ["float32", "float64"] if hides_bits else cut(["float32", "float64"], ["float32"]):
            x = NUMBERS[numbers]((11, length)).astype(dtype)
            asked = options if dtype == "float32" else {}
            expected = tree.reduce(x, op, axis=1, **asked)
            expected = tuple(expected) if isinstance(expected, tuple) else expected
            for offset in (0, 4, 1):
                # Few rows are taken element by element if nothing is asked; rows of one element are a column.
                for strategy in (None, "short_rows") if length > 1 else (None,):
                    found = reduced(x, op, stream=stream, axis=1, offset=offset, strategy=strategy, **asked)
                    case = f"{op} of {numbers}, {dtype}, length {length}, offset {offset}, {strategy}"
                    assert_same(found, expected, case)


def test_maps_that_make_something_of_nothing(stream):
    """What changes no sum before a map would do so behind it."""
    one_more = ElementMap("x + 1", numpy=lambda x: x + 1)
    for length in (33, 1501):
        x = values("float32", (5, length))
        found = reduced(x, stream=stream, axis=1, map=one_more)
        assert_same(found, tree.reduce(x, axis=1, map=one_more), f"length {length}")


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("op", ["sum", "mean_var"])
def test_segments(stream, op, numbers):
    lengths = [3, 1, 33, 100, 7]
    x = NUMBERS[numbers]((1, sum(lengths)))[0].astype(np.float32)
    offsets = np.cumsum([0, *lengths])
    found = lr.segmented_reduce(x, offsets, op, stream=stream)
    found = [each.numpy() for each in (found if op == "mean_var" else (found,))]
    for i, (first, end) in enumerate(itertools.pairwise(offsets)):
        expected = tree.reduce(x[first:end], op)
        for each, wanted in zip(found, expected if op == "mean_var" else (expected,), strict=True):
            assert_same(each[i], wanted, f"{op} of {numbers}, segment {i}")


@pytest.mark.parametrize("op", ["min", "max", "minmax"])
def test_extremes_of_leaves(stream, op):
    """Whole leaves are compared as floats, and the rest by keys: both have -0.0 below +0.0, and every NaN wins."""
    rng = np.random.default_rng(3)
    for length in (1024, 1028, 2047, 4096):
        zeros = np.where(rng.random(length) < 0.5, -0.0, 0.0).astype(np.float32)
        mixed = values("float32", length)
        mixed[rng.integers(0, length, 2)] = np.inf, -np.inf
        positive = 1 + np.abs(values("float32", length))  # a zero in place of what is absent would be the least
        broken = mixed.copy()
        broken.view(np.uint32)[rng.integers(0, length, 2)] = 0xFFC00001, 0x7F800001
        for x in (zeros, -np.zeros(length, np.float32), positive, -positive, mixed, broken):
            for offset in (0, 4):
                expected = tree.reduce(x, op)
                expected = tuple(expected) if isinstance(expected, tuple) else expected
                assert_same(reduced(x, op, stream=stream, offset=offset), expected, f"{op} of {length}")


@pytest.mark.parametrize("op", ["logsumexp", "softmax_stats"])
def test_exponentials_have_the_same_bits_by_every_strategy(stream, cut, op):
    """Infinities of one sign have no difference, and are each other's equal."""
    length = cut(300_000, 20_000)
    x = values("float32", length)
    several = [x, np.full(length, -np.inf, np.float32), np.where(np.arange(length) % 7, x, -np.inf).astype(np.float32)]
    several.append(np.where(np.arange(length) % 7777, x, np.inf).astype(np.float32))
    several.append(np.where(np.arange(length) % 7777, x, np.nan).astype(np.float32))
    for each in several:
        found = [reduced(each, op, stream=stream, strategy=name) for name in ("tiles", "two_pass", "cooperative")]
        found.append(reduced(each, op, stream=stream, offset=4))
        for other in found[1:]:
            assert_same(other, found[0])
        exact = tree.reduce(each, op)
        np.testing.assert_allclose(np.asarray(found[0], np.float64), np.asarray(exact, np.float64), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_of_zeros_is_positive_wherever_it_lies(stream, cut, dtype):
    for length in cut([1, 2, 64, 100, 1000, 3000], [1, 64, 1000]):
        for each in (-1, 3):
            row = np.where(np.arange(length) % each, 0.0, -0.0).astype(dtype)
            for rows in cut([1, 2, 8, 300], [1, 8]):
                x = np.tile(row, (rows, 1))
                expected = np.zeros(rows, dtype)
                assert_same(tree.reduce(x, "softmax_stats", axis=1).max, expected)
                assert_same(reduced(x, "softmax_stats", stream=stream, axis=1)[0], expected, f"{rows} rows of {length}")
                columns = np.ascontiguousarray(x.T)
                assert_same(reduced(columns, "softmax_stats", stream=stream, axis=0)[0], expected, f"{rows} columns")
