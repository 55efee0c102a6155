"""Small elements, which operators fold a vector at a time, by every kind of kernel: the tree's bits."""

import itertools

import numpy as np
import pytest
from placed import assert_same, reduced, values

import lowlevel_reduce as lr
from lowlevel_reduce import tree
from lowlevel_reduce.dtypes import element_type

LEAF, VECTOR = 4096, 16
FLOATS, INTEGERS = ["float8_e4m3fn", "float8_e5m2"], ["int8", "uint8"]
CASES = [
    *itertools.product(["min", "minmax", "argmax"], FLOATS + INTEGERS),
    *itertools.product(["any", "all", "count_nonzero"], [*FLOATS, "int8", "bool"]),
    *itertools.product(["norm1", "norm2", "sum_squares", "norm_inf", "prod"], FLOATS),
    *itertools.product(["norm1", "norm_inf"], [*INTEGERS, "int16", "uint16"]),
    *itertools.product(["norm2", "prod", "var", "mean_var"], INTEGERS),
    *itertools.product(["norm_inf"], ["int32", "uint32"]),
]
SIMULATED = [
    *[("minmax", "float8_e4m3fn"), ("argmax", "float8_e5m2"), ("min", "int8"), ("argmax", "uint8")],
    *[("any", "float8_e4m3fn"), ("all", "float8_e5m2"), ("count_nonzero", "float8_e5m2"), ("all", "bool")],
    *[("var", "uint8"), ("mean_var", "int8")],
    *[("norm1", "int16"), ("norm1", "int8"), ("norm2", "uint8"), ("norm_inf", "int8"), ("prod", "uint8")],
    *[("norm1", "float8_e5m2"), ("norm2", "float8_e4m3fn"), ("norm_inf", "float8_e4m3fn"), ("prod", "float8_e5m2")],
]


def elements(dtype, kind, shape):
    """Return elements of any bits, ordinary ones, or few that come often, zeros of both signs among them."""
    dtype = element_type(dtype).dtype
    rng = np.random.default_rng(len(kind))
    if kind == "any bits":
        unsigned = np.dtype(f"u{dtype.itemsize}")
        return rng.integers(0, np.iinfo(unsigned).max, shape, unsigned, endpoint=True).view(dtype)
    if kind == "few" and dtype.kind != "b":
        x = rng.integers(-2 if dtype.kind != "u" else 0, 3, shape).astype(dtype)
        return x if dtype.kind in "iu" else np.where(rng.integers(0, 2, shape) == 0, -x, x)
    return values(dtype, shape)


def check(x, op, stream, axis=None, **options):
    expected = tree.reduce(x, op, axis=axis)
    expected = tuple(expected) if isinstance(expected, tuple) else expected
    assert_same(reduced(x, op, stream=stream, axis=axis, **options), expected, f"{op} {x.dtype} {x.shape} {options}")


some_simulated = pytest.mark.simulated_if(lambda op, dtype: (op, dtype) in SIMULATED)


@some_simulated
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_whole_arrays(stream, cut, op, dtype):
    for kind in cut(["any bits", "few", "values"], ["any bits", "few"]):
        for length, offset in (
            (1, 0),
            (19, 3),
            (LEAF, 0),
            (2 * LEAF - VECTOR, 0),
            (3 * LEAF + 5, 0),
            (3 * LEAF + 5, 7),
        ):
            check(elements(dtype, kind, length), op, stream, offset=offset)


@some_simulated
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_whole_arrays_by_every_strategy(stream, cut, op, dtype):
    for strategy in cut(["tiles", "two_pass", "cooperative", "block"], ["tiles", "two_pass"]):
        check(elements(dtype, "values", 20 * LEAF + 7), op, stream, strategy=strategy)


@some_simulated
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_rows_and_columns(stream, cut, op, dtype):
    shapes = [((9, VECTOR), 1), ((5, 51), 1), ((6, 128), 1), ((3, 600), 1), ((3, 2 * LEAF), 1), ((3, 3 * LEAF - 1), 1)]
    for kind in cut(["any bits", "few", "values"], ["any bits"]):
        for shape, axis in [*shapes, ((40, 7), 0), ((300, 32), 0)]:
            check(elements(dtype, kind, shape), op, stream, axis=axis)
    check(elements(dtype, "any bits", (6, 640))[:, ::2], op, stream, axis=1)


@some_simulated
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_segments(stream, op, dtype):
    offsets = np.cumsum([0, 3, 17, 16, 100, 2 * LEAF, 40])
    x = elements(dtype, "any bits", int(offsets[-1]))
    found = lr.segmented_reduce(x, offsets, op, stream=stream)
    found = [each.numpy() for each in (found if isinstance(found, tuple) else (found,))]
    for i, (first, end) in enumerate(itertools.pairwise(offsets)):
        expected = tree.reduce(x[first:end], op)
        for each, wanted in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            assert_same(each[i], wanted, f"{op} {dtype}, segment {i}")


@pytest.mark.parametrize(("dtype", "low"), [("uint8", 50), ("int8", -60)])
def test_vectors_of_nothing_are_no_extremes(stream, dtype, low):
    """All elements are on one side of zero, so that zeros in the place of absent ones would show."""
    x = np.random.default_rng(low % 7).integers(low, low + 10, (3, LEAF + 5)).astype(dtype)
    check(x.ravel(), "minmax", stream)
    check(x.ravel(), "minmax", stream, offset=7)
    check(x, "minmax", stream, axis=1)
    check(x[:, :51], "minmax", stream, axis=1, offset=7)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("op", ["any", "all", "count_nonzero"])
def test_truth_of_every_element_in_every_slot(stream, op, dtype):
    """Of zeros of both signs one that is any byte, in each place of a vector; and of others than zero the same."""
    bits = np.full((2, VECTOR, 256, VECTOR), 0, np.uint8)
    bits[0] = 0x80 if dtype in FLOATS else 0
    bits[1] = 0x81
    for slot in range(VECTOR):
        bits[:, slot, :, slot] = np.arange(256)
    check(bits.reshape(-1, VECTOR).view(element_type(dtype).dtype), op, stream, axis=1)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("op", ["minmax", "argmin"])
def test_every_element_beside_the_next(stream, op, dtype):
    """Each by itself in a row, and before the one with the next bits: that the winner is converted back exactly."""
    bits = np.arange(256, dtype=np.uint8)
    for second in (bits, bits + np.uint8(1)):
        check(
            np.repeat(np.stack([bits, second], 1), [2, 17], axis=1).view(element_type(dtype).dtype), op, stream, axis=1
        )
