"""A user's own operators on a device against their meaning in NumPy: over nothing, and where floats become integers."""

import dataclasses
import math

import numpy as np
import pytest
from placed import assert_same, reduced

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.operators import NumpyMeaning

MEANING = NumpyMeaning(
    (np.float64(0),), lambda x, y, i: (x.astype(np.float64),), lambda a, b: (a[0] + b[0],), lambda a, n: a[0]
)


def sums(**changes):
    """Return sums in float64, whose combine is exact for what the tests add."""
    return lr.Operator("own_sum", combine="a + b", identity="0.0", accumulator="float64", numpy=MEANING, **changes)


EMPTY = [5.0, math.nan, math.inf, -math.inf, -0.0, 7]


empties = pytest.mark.parametrize("empty", EMPTY, ids=str)  # each has kernels of its own


@empties
@pytest.mark.parametrize(("shape", "axis"), [((0,), None), ((3, 0), 1), ((0, 3), 0)])
def test_the_result_over_nothing_is_what_the_operator_says(empty, shape, axis):
    own, x = sums(empty=empty), np.zeros(shape, np.float32)
    assert_same(lr.reduce(x, own, axis=axis).numpy(), lr.tree.reduce(x, own, axis=axis))


@empties
@pytest.mark.parametrize(("shape", "axis"), [((12,), None), ((3, 4), 1), ((4, 3), 0)])
def test_the_result_over_a_length_of_nothing_that_the_device_tells(stream, empty, shape, axis):
    own, x = sums(empty=empty), np.arange(12, dtype=np.float32).reshape(shape)
    none, some = reduced(x, own, stream=stream, axis=axis, lengths=[0, 2])
    assert_same(none, lr.tree.reduce(x[:0] if axis == 0 else x[..., :0], own, axis=axis), "length 0")
    assert_same(some, lr.tree.reduce(x[:2] if axis == 0 else x[..., :2], own, axis=axis), "length 2")


@empties
def test_the_result_over_an_empty_segment(empty):
    x = np.arange(12, dtype=np.float32)
    segments = lr.segmented_reduce(x, np.array([0, 3, 3, 12], np.int32), sums(empty=empty)).numpy()
    assert_same(segments, np.array([3, empty, 63], np.float32), "segments")


@empties
def test_the_result_over_nothing_beside_a_mask(empty):
    nothing = np.zeros(0, np.float32)
    assert_same(lr.reduce(nothing, sums(empty=empty), where=np.zeros(0, bool)).numpy(), np.float32(empty), "where")


def test_zeros_of_both_signs_are_two_operators(stream):
    x = lr.DeviceArray.from_numpy(np.zeros((2, 0), np.float32), stream)
    for empty in (0.0, -0.0, 0.0):
        results = lr.reduce(x, sums(empty=empty), axis=1, stream=stream).numpy()
        assert np.signbit(results).tolist() == [math.copysign(1, empty) < 0] * 2


def test_both_results_over_nothing(stream):
    own = sums(empty=2.5, finish=("a", "a * 2"), result="int16")
    assert [each.numpy().tolist() for each in lr.reduce(np.zeros((2, 0), np.int8), own, axis=1)] == [[2, 2], [2, 2]]


@pytest.mark.parametrize("result", ["complex64", "complex128"])
@pytest.mark.parametrize("finish", ["a", "int64(a)", "complex128(a, 0)", "complex64{float32(a), 0}"])
def test_a_real_number_becomes_a_complex_one(stream, result, finish):
    whole = NumpyMeaning(MEANING.identity, MEANING.map, MEANING.combine, lambda a, n: np.trunc(a[0]))
    own = dataclasses.replace(
        sums(finish=finish, result=result, empty=complex(2.5, -1.0)), numpy=whole if "int64" in finish else MEANING
    )
    x = np.array([[0.25, 2**20 + 1, 1, 3.5], [-0.0, -0.0, -0.0, -0.0]], np.float64)
    y = np.array([[math.nan, 1.0, 0.0, 0.0], [math.inf, 1.0, 2.0, 3.0]])
    for each in (x[:1], x, y) if finish == "a" else (x[:1],):
        assert_same(lr.reduce(each, own, axis=1).numpy(), lr.tree.reduce(each, own, axis=1))
    assert_same(lr.reduce(x[:, :0], own, axis=1).numpy(), lr.tree.reduce(x[:, :0], own, axis=1), "of nothing")


def test_without_one_a_segment_of_nothing_has_what_is_made_of_the_identity():
    own = sums(finish="a + 3")
    assert lr.segmented_reduce(np.ones(4, np.float32), np.array([0, 0, 4]), own).numpy().tolist() == [3, 7]
    with pytest.raises(ValueError, match="no identity"):
        lr.reduce(np.zeros(0, np.float32), own)


def test_a_result_over_nothing_that_the_type_does_not_hold():
    with pytest.raises(ValueError, match="own_sum of nothing, nan is not a value of int32"):
        lr.reduce(np.ones(3, np.float32), sums(empty=math.nan, result="int32"))


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


@pytest.mark.parametrize("accumulator", ["float32", "float64"])
@pytest.mark.parametrize("result", INTEGERS)
def test_floats_become_the_integers_that_they_become_in_numpy(stream, accumulator, result):
    kind = np.dtype(accumulator).type
    meaning = NumpyMeaning((kind(0),), lambda x, y, i: (x.astype(kind),), lambda a, b: (a[0] + b[0],))
    own = lr.Operator(
        "to_integers", combine="a + b", identity="0", accumulator=accumulator, result=result, numpy=meaning
    )
    x = [0.0, -0.0, 0.9, -0.9, 2.9, -2.9, math.nan, math.inf, -math.inf, 1e30, -1e30]
    for bits in (7, 8, 15, 16, 31, 32, 63, 64):
        x += [sign * (2.0**bits + step) for sign in (1, -1) for step in (-1, -0.5, 0, 0.5, 1)]
    x = np.array(x).reshape(-1, 1).astype(kind)
    with np.errstate(all="ignore"):
        expected = lr.tree.reduce(x, own, axis=1)
    assert expected.dtype == element_type(result).dtype
    assert_same(lr.reduce(x, own, axis=1, stream=stream).numpy(), expected)


@pytest.mark.parametrize("text", ["if (x > 0) return x;", "float32 q = x;\nif (q > 0) { return q; }"])
def test_a_text_that_may_end_without_a_result_is_refused(text):
    for options in ({"map": text}, {"op": lr.Operator("f", map=text, combine="a + b", identity="0.f")}):
        with pytest.raises(lr.CompileError, match="missing return") as caught:
            lr.reduce(np.ones(3, np.float32), **options)
        assert caught.value.source_line == text.split("\n")[-1]
        assert caught.value.file.startswith("map ")


@pytest.mark.parametrize("text", ["x; // return", "x /* return */", "[&] { return x; }()", "x + 1'000 - 1'000"])
def test_texts_that_say_return_elsewhere(text):
    assert float(lr.sum(np.arange(5, dtype=np.float32), map=text)) == 10
    own = lr.Operator("f", map=text, combine="a + b", identity="0.f")
    assert float(lr.reduce(np.arange(5, dtype=np.float32), own)) == 10


@pytest.mark.parametrize("name", ["min", "max"])
def test_an_initial_nan_is_ignored_with_the_others(name):
    x = np.array([[3, np.nan, -2], [np.nan] * 3], np.float32)
    for y in (x, x[:, :0]):
        got = lr.reduce(y, name, axis=1, nan="ignore", initial=np.nan).numpy()
        assert_same(got, lr.tree.reduce(y, name, axis=1, nan="ignore", initial=np.nan))
        some = getattr(np, f"f{name}").reduce(y, axis=1, initial=np.nan)
        assert_same(got, some)
