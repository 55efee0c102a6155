"""Results on the device are rounded once, beside numbers halfway between two of the result's type: the tree's bits."""

import numpy as np
import pytest
from placed import assert_same, reduced

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import numpy_dtype

DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}


def beside_halves(result, last):
    """Return rows whose sums are 1 or 1 + a place, half a place, and then nothing, or more or less by 2**last."""
    place = 2.0 ** (1 - DIGITS[result])
    return np.array([[one, place / 2, end] for one in (1, 1 + place) for end in (0, 2.0**last, -(2.0**last))])


def rounded(result):
    place = 2.0 ** (1 - DIGITS[result])
    wanted = [1, 1 + place, 1, 1 + 2 * place, 1 + 2 * place, 1 + place]
    return np.array(wanted).astype(numpy_dtype(result))


@pytest.mark.parametrize("result", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_are_rounded_once(stream, dtype, result):
    x = beside_halves(result, -45)
    if (x.astype(dtype) != x).any():
        x, dtype = x[:, ::-1].copy(), "float64"
    for sign in (1, -1):
        each = (sign * x).astype(dtype)
        assert_same(reduced(each, stream=stream, axis=1, result_dtype=result), sign * rounded(result))


@pytest.mark.parametrize("result", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("op", ["sum", "dot", "mean"])
def test_compensated_sums_are_rounded_once(stream, op, result):
    x = beside_halves(result, -90) * (3.0 if op == "mean" else 1.0)
    second = {"second": np.ones_like(x)} if op == "dot" else {}
    for sign in (1, -1):
        found = reduced(sign * x, op, stream=stream, axis=1, accumulate="compensated", result_dtype=result, **second)
        assert_same(found, sign * rounded(result), op)


@pytest.mark.parametrize("result", ["bfloat16", "float16", "float32"])
def test_means_are_rounded_once(stream, result):
    """The quotient is halfway between two results, or a place of float64 beside that."""
    place = 2.0 ** (1 - DIGITS[result])
    half = 3 * (1 + place / 2)
    x = np.array([[np.nextafter(half, end), 0.0, 0.0] for end in (9, 0, half)])
    wanted = np.array([1 + place, 1, 1]).astype(numpy_dtype(result))
    assert_same(lr.tree.reduce(x, "mean", axis=1, dtype=result), wanted)
    assert_same(reduced(x, "mean", stream=stream, axis=1, result_dtype=result), wanted)
    z = (x + 1j * x)[:, :, None].repeat(2, axis=2)
    if result == "float32":
        found = reduced(z, "mean", stream=stream, axis=1, result_dtype="complex64")
        assert_same(found, lr.tree.reduce(z, "mean", axis=1, dtype="complex64"))
        assert_same(np.ascontiguousarray(found.real[:, 0]), wanted)


@pytest.mark.parametrize(("dtype", "length"), [("uint32", 2**21 + 3), ("int32", 2**22 + 3)])
def test_the_mean_of_integers_is_that_of_their_exact_sum(stream, dtype, length):
    """Which is more than 2^53 and odd, so that no float64 is that sum."""
    x = np.broadcast_to(np.array(np.iinfo(dtype).max, dtype), length)
    x = np.lib.stride_tricks.as_strided(x, (3, x.size), (4, 0))[:1]
    assert reduced(x, "mean", stream=stream, axis=1) == np.iinfo(dtype).max


def test_variances_are_rounded_once(stream):
    """Quotients that float64 rounds to a number halfway between two results, by a divisor of 53 bits."""
    halfway = 1 + (2 * np.arange(400) + 1) * 2.0**-24
    degrees = 2 - 0.3
    x = np.zeros((400, 2))
    x[:, 1] = np.sqrt(2 * halfway * degrees)
    wanted = lr.tree.reduce(x, "var", axis=1, dtype="float32", ddof=0.3)
    twice = ((x[:, 1] ** 2 - x[:, 1] * (x[:, 1] / 2)) / degrees).astype(np.float32)
    assert np.count_nonzero(wanted != twice) > 100  # or the rows show nothing
    assert_same(reduced(x, "var", stream=stream, axis=1, result_dtype="float32", ddof=0.3), wanted)


@pytest.mark.parametrize("op", ["norm2", "std"])
def test_roots_are_rounded_once(stream, op):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((200, 9))
    kinds = [("float64", "float32"), ("float32", "bfloat16"), ("float16", "float64"), ("float16", "bfloat16")]
    for dtype, result in kinds:
        each = x.astype(dtype)
        found = reduced(each, op, stream=stream, axis=1, result_dtype=result)
        assert_same(found, lr.tree.reduce(each, op, axis=1, dtype=result), f"{dtype}, {result}")
