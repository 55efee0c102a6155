"""Mean and variance by the tree where squares or deviations overflow, and where the pivot is an outlier."""

import warnings
from fractions import Fraction

import numpy as np
import pytest

from lowlevel_reduce import tree
from lowlevel_reduce.dtypes import ELEMENT_TYPES, element_type
from lowlevel_reduce.operators import OPERATORS, ElementMap
from lowlevel_reduce.strategy.selection import request_of

LARGEST = np.finfo(np.float64).max
ULP = 2.0**-53


def exact_variance(x, ddof=0):
    """Return the variance of float64 or complex128 elements as a fraction."""
    variance = Fraction(0)
    for part in (x.real, x.imag):
        values = [Fraction(each) for each in part.tolist()]
        mean = sum(values) / len(values)
        variance += sum((each - mean) ** 2 for each in values)
    return variance / (len(x) - ddof)


def as_float(fraction):
    try:
        return float(fraction)
    except OverflowError:
        return np.inf


def root_of(fraction):
    """Return the square root of a fraction, which itself may be beyond float64, to nearly its precision."""
    scale = 0 if fraction < 2**900 else 600
    with np.errstate(over="ignore"):
        return np.sqrt(float(fraction / 4**scale)) * 2.0**scale


def outlier(n, value, at):
    x = np.zeros(n)
    x[at] = value
    return x


ROWS = {
    "an outlier first": outlier(1000, 1.2e154, 0),
    "an outlier last": outlier(1000, 1.2e154, -1),
    "a deviation that is not finite": np.array([1e308, -1e308]),
    "deviations whose sum is not finite": np.array([LARGEST, *[-LARGEST / 3] * 5]),
    "the largest alone": np.array([LARGEST] * 3),
    "beside the border": np.array([0.0, 2.0**480, np.nextafter(2.0**480, 0), -(2.0**480), 1.0]),
    "near the end of squares": 1e153 * np.random.default_rng(1).standard_normal(777),
    "of all sizes": np.random.default_rng(2).standard_normal(700) * 10.0 ** np.arange(-350, 350).clip(-300, 306),
    "small beside large": np.random.default_rng(3).standard_normal(600) * np.where(np.arange(600) % 3, 1.0, 1e150),
}


# docs/numerics.md: with a tree of height h the sum of squares is off by h + 3 roundings, the square of the sum by
# 2 h + 4, and their difference cancels by 1 + n at most.
@pytest.mark.parametrize("of", [np.float64, np.complex128])
@pytest.mark.parametrize("name", ROWS)
def test_squares_that_overflow(name, of):
    x = ROWS[name].astype(of)
    if of is np.complex128:
        x.imag = x.real[::-1]
    bound = (len(x) + 1) * (3 * np.ceil(np.log2(len(x))) + 8) * ULP
    for row in (x, x[::-1].copy()):
        for ddof in (0, 1):
            exact = exact_variance(row, ddof)
            np.testing.assert_allclose(tree.reduce(row, "var", ddof=ddof), as_float(exact), rtol=bound)
            np.testing.assert_allclose(tree.reduce(row, "std", ddof=ddof), root_of(exact), rtol=bound)
    if of is np.float64:
        found = tree.reduce(x, "mean_var")
        assert found.mean.tobytes() == tree.reduce(x, "mean").tobytes()
        assert found.var.tobytes() == tree.reduce(x, "var").tobytes()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("other", [1.0, 1e300])
def test_what_is_not_finite_has_no_variance(value, other):
    for row in ([value, other], [other, value], [value, value], [other, -other, value, 0.0]):
        for of in (np.float64, np.complex128):
            x = np.array(row, of)
            assert np.isnan(tree.reduce(x, "var"))
            assert np.isnan(tree.reduce(x, "std"))
        with np.errstate(invalid="ignore"):
            np.testing.assert_equal(tree.reduce(np.array(row), "mean_var").mean, np.mean(row))


@pytest.mark.parametrize("dtype", [e.name for e in ELEMENT_TYPES if not e.is_complex])
@pytest.mark.parametrize("pivot", ["an outlier", "the largest", "plain"])
def test_the_mean_beside_the_variance_has_the_bits_of_the_mean(dtype, pivot):
    """Results of float64; for float16 and narrower ones those of the mean that accumulates in float64."""
    element = element_type(dtype)
    rng = np.random.default_rng(4)
    for n in (1, 2, 77, 5000):
        if element.is_float:
            x = rng.standard_normal(n).astype(element.dtype)
            x[0] = {"an outlier": 1e4 if element.itemsize > 1 else 100, "the largest": x.max(), "plain": 0.5}[pivot]
        else:
            limits = np.iinfo(element.dtype) if dtype != "bool" else np.iinfo("u1")
            x = rng.integers(limits.min, limits.max, n, "u1" if dtype == "bool" else element.dtype, endpoint=True)
            x[0] = {"an outlier": limits.min, "the largest": limits.max, "plain": 5}[pivot]
            x = (x & 1).astype(bool) if dtype == "bool" else x
        mean = tree.reduce(x, "mean", "float64" if element.is_float else None, dtype="float64")
        assert tree.reduce(x, "mean_var", dtype="float64").mean.tobytes() == mean.tobytes()


def test_the_mean_beside_the_variance_of_float32_is_rounded_once():
    x = np.random.default_rng(5).standard_normal(100_000).astype(np.float32)
    x[0] = 3e7
    exact = sum(map(Fraction, x.tolist())) / x.size
    assert tree.reduce(x, "mean_var").mean == np.float32(float(exact))


def test_a_map_has_the_mean_of_its_values():
    x = np.random.default_rng(6).standard_normal(999).astype(np.float32)
    x[0] = 1e6
    cubes = ElementMap("x * x * x", numpy=lambda x: x * x * x)
    found = tree.reduce(x, "mean_var", map=cubes, dtype="float64")
    assert found.mean.tobytes() == tree.reduce(x, "mean", map=cubes, dtype="float64").tobytes()


MASKED = [(op, dtype) for op in ("var", "std", "mean_var") for dtype in ("float32", "float64", "int16", "bfloat16")]


@pytest.mark.parametrize(("op", "dtype"), [*MASKED, ("var", "complex64"), ("std", "complex128")])
def test_masks_follow_numpy(op, dtype):
    """Wherever elements lie that are left out, and whatever they are, the first one too."""
    rng = np.random.default_rng(7)
    element = element_type(dtype)
    x = (100 + 10 * rng.standard_normal((6, 700))).astype(element.dtype)
    mask = rng.random(x.shape) < 0.5
    mask[:, 0], mask[2], mask[3], mask[4] = False, False, np.arange(700) == 600, True
    if element.dtype.kind != "i":
        x[:3, 0], x[5, ~mask[5]] = 3e38, np.nan
    wide = x.astype(np.complex128 if element.is_complex else np.float64)
    for ddof in (0, 0.5, 1):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = ((np.std if op == "std" else np.var)(wide, axis=1, where=mask, ddof=ddof),)
            wanted = (wide.mean(axis=1, where=mask), *wanted) if op == "mean_var" else wanted
        result = "float64" if element.is_float or element.is_complex else None
        found = tree.reduce(x, op, axis=1, where=mask, ddof=ddof, dtype=result)
        for one, other in zip(found if op == "mean_var" else (found,), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_mask_that_leaves_all_and_the_mean_beside_it():
    x = np.random.default_rng(8).standard_normal(3000)
    mask = np.random.default_rng(9).random(3000) < 0.3
    assert tree.reduce(x, "mean_var", where=mask).mean.tobytes() == tree.reduce(x, "mean", where=mask).tobytes()
    np.testing.assert_allclose(tree.reduce(x, "std", where=x == x), tree.reduce(x, "std"), rtol=1e-14)
    for value in (np.inf, np.nan):
        assert np.isnan(tree.reduce(np.array([value, 1.0]), "var", where=[True, False]))
    assert np.isnan(tree.reduce(-x, "var", where=x != x))
    zeros = tree.reduce(np.full(3, -0.0), "mean_var", where=[True, False, True])
    assert zeros.mean.tobytes() == tree.reduce(np.full(3, -0.0), "mean", where=np.array([True, False, True])).tobytes()


@pytest.mark.parametrize(("op", "length", "ddof"), [("mean", 0, 0), ("var", 0, 0), ("std", 1, 1), ("mean_var", 3, 3.5)])
def test_a_divisor_that_is_not_above_zero_is_told(op, length, ddof):
    x = np.ones((2, length))
    asked = {} if op == "mean" else {"ddof": ddof}
    for where in (None, x > 0):
        with pytest.warns(RuntimeWarning, match=f"the divisor of {op} is not above 0 for rows of {length} element"):
            tree.reduce(x, op, axis=1, where=where, **asked)
        with pytest.warns(RuntimeWarning, match="the divisor of"):
            request_of(op, shape=x.shape, dtype=x.dtype, axis=1, where=where is not None, **asked)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree.reduce(np.ones((2, length + 1)), op, axis=1, **asked)
        request_of("sum", shape=x.shape, dtype=x.dtype, axis=1)


def test_how_large_accumulators_are():
    def size(name, dtype, result):
        return OPERATORS[name].accumulator_bytes(element_type(dtype), "float64", result)

    narrow = ("float16", "bfloat16", "float32", "uint8", "int16", "bool")
    assert [size("mean_var", dtype, "float32") for dtype in narrow] == [16] * 6
    assert [size("mean_var", d, "float64") for d in ("bfloat16", "float32", "float64", "int32", "uint64")] == [24] * 5
    assert [size(name, "float64", "float64") for name in ("var", "std")] == [16, 16]
