"""The law against its own words: a scalar walk through the tree's definition, and what must follow from it."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel_reduce import UnsupportedError, tree
from lowlevel_reduce.dtypes import ELEMENT_TYPES

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = [entry.name for entry in ELEMENT_TYPES if entry.dtype.kind in "iu"]


def data(dtype, n, seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    if dtype.kind in "iu":
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, n, dtype, endpoint=True)
    if dtype.kind == "b":
        return rng.random(n) < 0.5
    # Exponents over a wide range and both signs: any other order of additions shows in the last bits.
    return (rng.standard_normal(n) * 2.0 ** rng.integers(-8, 6, n)).astype(dtype)


def by_definition(values, vector, accumulator):
    """Fold element by element, absent ones as None, exactly as the tree's table says."""

    def fold(items):
        items = list(items)
        while len(items) > 1:
            if len(items) % 2:
                items.append(None)
            pairs = zip(items[0::2], items[1::2], strict=True)
            items = [b if a is None else a if b is None else accumulator(a + b) for a, b in pairs]
        return items[0] if items else None

    leaf = 256 * vector
    padded = [accumulator(v) for v in values] + [None] * (-len(values) % leaf)
    leaves = []
    for start in range(0, len(padded), leaf):
        lanes = [
            fold(
                fold(padded[start + step * 32 * vector + lane * vector + slot] for slot in range(vector))
                for step in range(8)
            )
            for lane in range(32)
        ]
        leaves.append(fold(lanes))
    return fold(leaves)


def bits(x):
    return np.asarray(x).tobytes()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 31, 32, 127, 128, 129, 1023, 1024, 1025, 4097, 13000])
@pytest.mark.parametrize(
    ("dtype", "vector", "accumulator"),
    [("float32", 4, np.float64), ("float16", 8, np.float32), ("float64", 2, np.float64), ("bfloat16", 8, np.float32)],
)
def test_follows_its_definition(dtype, vector, accumulator, n):
    x = data(dtype, n)
    expected = by_definition(list(x), vector, accumulator)
    assert bits(tree.reduce(x)) == bits(np.asarray(expected).astype(x.dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_result_is_near_the_exact_sum(dtype):
    x = data(dtype, 30000)
    exact = math.fsum(x.astype(np.float64))
    # log2(30000) < 15 additions on any path, then one rounding of the result.
    accumulator = np.float32 if x.dtype.itemsize == 2 else np.float64
    bound = 16 * np.finfo(accumulator).eps * np.abs(x.astype(np.float64)).sum()
    bound += float(ml_dtypes.finfo(x.dtype).eps) * abs(exact)
    assert abs(float(tree.reduce(x)) - exact) <= bound


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_follow_numpy(dtype):
    x = data(dtype, 5001)
    assert tree.reduce(x).dtype == np.sum(x).dtype
    assert tree.reduce(x) == np.sum(x)
    assert tree.reduce(x, accumulate=dtype) == np.sum(x, dtype=dtype)
    assert tree.reduce(x, accumulate=dtype).dtype == dtype


def test_bool_counts_every_nonzero_byte():
    x = np.array([0, 1, 2, 255, 0], np.uint8).view(bool)
    assert tree.reduce(x) == 3
    assert tree.reduce(x).dtype == np.int64


def test_64_bit_integers_wrap():
    x = np.array([2**63 - 1, 1], np.int64)
    assert tree.reduce(x) == -(2**63)


@pytest.mark.parametrize("dtype", FLOATS)
def test_absent_elements_do_not_show(dtype):
    negative_zero = data(dtype, 1)[:1] * 0 * -1
    negative_zero[:] = -0.0
    assert bits(tree.reduce(negative_zero)) == bits(negative_zero[0])
    assert bits(tree.reduce(negative_zero, accumulate="compensated")) == bits(negative_zero[0])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_empty_is_positive_zero(dtype):
    result = tree.reduce(data(dtype, 0))
    assert result.shape == ()
    assert bits(result) == bytes(result.dtype.itemsize)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("payload", [[np.nan], [np.inf, -np.inf], [-np.nan, 1.0]])
def test_every_nan_is_numpys(dtype, payload):
    x = data(dtype, 300)
    x[: len(payload)] = payload
    assert bits(tree.reduce(x)) == bits(np.array(np.nan, x.dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_overflow_is_infinite(dtype):
    x = data(dtype, 4)
    x[:] = ml_dtypes.finfo(x.dtype).max
    assert np.isinf(tree.reduce(x).astype(np.float64))
    assert np.isinf(tree.reduce(x, accumulate="compensated").astype(np.float64))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9000), st.sampled_from(FLOATS), st.integers(0, 2**32))
def test_chunking_does_not_show(n, dtype, seed):
    x = data(dtype, n, seed)
    at_once = tree.LEAVES_AT_ONCE
    try:
        results = set()
        for tree.LEAVES_AT_ONCE in (1, 2, 8, at_once):
            results.add(bits(tree.reduce(x)))
    finally:
        tree.LEAVES_AT_ONCE = at_once
    assert len(results) == 1


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("last", [False, True])
def test_places_are_counted_through_all_runs_of_leaves(monkeypatch, op, last):
    monkeypatch.setattr(tree, "LEAVES_AT_ONCE", 2)
    x = np.random.default_rng(3).integers(-9, 10, 7 * 512 + 5).astype(np.float64)
    x[:1200], x[-3:] = 0, 0  # so that no extreme is in the first run of two leaves
    found = np.flatnonzero(x == (x.max() if op == "argmax" else x.min()))
    assert tree.reduce(x, op, last=last) == found[-1 if last else 0]


def test_runs_of_leaves_are_whole_subtrees():
    """Any other number than a power of two would pair leaves otherwise, in arrays of more leaves than that."""
    assert tree.LEAVES_AT_ONCE & (tree.LEAVES_AT_ONCE - 1) == 0
    x = np.random.default_rng(0).standard_normal(tree.LEAVES_AT_ONCE * 512 + 1)
    below = [tree.reduce(part) for part in np.split(x[:-1], 2)]
    assert bits(tree.reduce(x)) == bits((below[0] + below[1]) + x[-1])


def test_layout_does_not_show():
    x = data("float32", 6 * 5000).reshape(6, 5000)
    expected = bits(tree.reduce(np.ascontiguousarray(x[:, ::-3])))
    assert bits(tree.reduce(x[:, ::-3])) == expected
    raw = np.zeros(x.nbytes + 1, np.uint8)
    shifted = np.ndarray(x.shape, x.dtype, raw.data, offset=1)
    shifted[:] = x
    assert bits(tree.reduce(shifted)) == bits(tree.reduce(x))


def test_order_of_elements_shows():
    x = data("float64", 5000)
    assert bits(tree.reduce(x)) != bits(tree.reduce(np.sort(x)))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 600), st.integers(0, 2**32))
def test_compensated_is_within_an_ulp_of_the_exact_sum(n, seed):
    rng = np.random.default_rng(seed)
    half = rng.standard_normal(n) * 10.0 ** rng.integers(-6, 7, n)
    x = rng.permutation(np.concatenate([half, -half, [math.pi]]))  # condition numbers up to 1e10 or so
    exact = math.fsum(x)
    assert abs(float(tree.reduce(x, accumulate="compensated")) - exact) <= math.ulp(exact)


def test_accumulator_shows():
    x = data("float32", 100_000)
    results = {bits(tree.reduce(x, accumulate=name)) for name in ("float32", "float64")}
    assert len(results) == 2


def test_result_type():
    x = data("float32", 100)
    assert tree.reduce(x, dtype="float64").dtype == np.float64
    assert float(tree.reduce(x, dtype="float64")) == pytest.approx(x.astype(np.float64).sum(), rel=1e-12)
    assert tree.reduce(x, dtype="bfloat16").dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tree.reduce(np.zeros(3, "m8[s]")), "cannot be reduced"),
        (lambda: tree.reduce(np.zeros(3, np.complex64), "max"), "max of complex64 is not defined"),
        (lambda: tree.reduce(np.zeros(3), op="median"), "no operator 'median'"),
        (lambda: tree.reduce(np.zeros(3), accumulate="float32"), "accumulates in float64 or compensated"),
        (lambda: tree.reduce(np.zeros(3), dtype="int8"), "not int8"),
        (lambda: tree.reduce(np.zeros(3, ">f4")), "byte order"),
    ],
)
def test_refuses_with_a_clear_error(call, message):
    with pytest.raises(UnsupportedError, match=message):
        call()
