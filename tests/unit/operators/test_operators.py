"""The operators against NumPy: results, types, shapes and errors; their laws, over every type."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_cases import NUMPY

from lowlevel_reduce import UnsupportedError, tree
from lowlevel_reduce.dtypes import ELEMENT_TYPES, element_type
from lowlevel_reduce.operators import (
    OPERATORS,
    ElementMap,
    Items,
    NumpyMeaning,
    Operator,
    Row,
    adapters,
    arithmetic,
    resolve,
)

TYPES = [entry.name for entry in ELEMENT_TYPES]
PLAIN = [
    entry.name
    for entry in ELEMENT_TYPES
    if entry.dtype.kind in "iub" or entry.name in ("float16", "float32", "float64")
]
LAWFUL = [(name, entry.name) for name in OPERATORS for entry in ELEMENT_TYPES]


def data(name, shape, seed=0):
    """Return values of both signs with ties, zeros among them; floats with a NaN for every third seed."""
    rng = np.random.default_rng(seed)
    dtype = element_type(name).dtype
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        x = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.5, x, x // np.array(64, dtype))
    x = np.round(rng.standard_normal(shape) * 4) / 2
    if dtype.kind == "c":
        return (x + 1j * np.round(rng.standard_normal(shape) * 4)).astype(dtype)
    x[rng.random(shape) < 0.02] = np.nan if seed % 3 == 0 else -0.0
    return x.astype(dtype)


def results_of(value):
    return value if isinstance(value, tuple) else (value,)


def bits(value):
    return b"".join(np.asarray(each).tobytes() for each in results_of(value))


@st.composite
def problems(draw, names, types):
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    if draw(st.booleans()):
        shape = (*shape, draw(st.integers(1, 300)))
    axes = st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True)
    axis = draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1), axes.map(tuple)))
    x = data(draw(st.sampled_from(types)), shape, draw(st.integers(0, 99)))
    return draw(st.sampled_from(names)), x, axis, draw(st.booleans())


@settings(max_examples=300, deadline=None)
@given(problems(sorted(NUMPY), PLAIN))
def test_results_types_and_shapes_are_numpys(problem):
    name, x, axis, keepdims = problem
    if name.startswith("arg") and isinstance(axis, tuple):
        axis = axis[0]
    with np.errstate(all="ignore"):
        expected = NUMPY[name](x, axis=axis, keepdims=keepdims)
        wide = x.astype(np.float64) if x.dtype.kind == "f" else x
        near = np.asarray(NUMPY[name](wide, axis=axis, keepdims=keepdims)).astype(np.float64)
    got = tree.reduce(x, name, axis=axis, keepdims=keepdims)
    assert got.shape == np.shape(expected)
    assert got.dtype == np.asarray(expected).dtype
    is_exact = name in ("min", "max", "argmin", "argmax", "any", "all", "count_nonzero")
    if is_exact or (x.dtype.kind != "f" and name in ("sum", "prod")):
        np.testing.assert_array_equal(got, expected)
    else:
        # One rounding to the result's type, and fewer than 20 on any path in float32 or better: of a sum, of terms
        # whose magnitudes sum to `size` at most. A variance is compared where it does not cancel.
        result = np.finfo(got.dtype)
        size = np.abs(np.nan_to_num(wide.astype(np.float64))).sum() if name == "sum" else np.abs(near)
        if name in ("mean", "var", "std"):
            size = size + np.abs(np.nan_to_num(wide.astype(np.float64))).max() * 2.0
        accumulator = np.finfo(np.float32 if x.dtype == np.float16 else np.float64)
        steps = 20 if name != "prod" else 2000
        with np.errstate(all="ignore"):
            bound = 2 * result.eps * np.abs(near) + steps * accumulator.eps * size + float(result.tiny)
            off = ~(np.abs(got.astype(np.float64) - near) <= bound)
        same = (np.isnan(got) & np.isnan(near)) | (got == near.astype(got.dtype))
        assert not np.any(off & ~same), (got, near, bound)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_row_alone_has_the_bits_it_has_in_a_batch(name, few):
    for entry in few(ELEMENT_TYPES, 5):
        check_rows_alone(name, entry.name)


def check_rows_alone(name, dtype):
    for length in (1, 5, 40, 1100):
        x = data(dtype, (7, length), length)
        y = np.roll(x, 1, axis=1) if name == "dot" else None
        try:
            whole = results_of(tree.reduce(x, name, axis=1, second=y))
        except UnsupportedError:
            assert element_type(dtype).is_complex
            return
        columns = results_of(tree.reduce(x.T[::-1][::-1], name, axis=0, second=None if y is None else y.T))
        alone = [results_of(tree.reduce(r, name, second=None if y is None else y[i])) for i, r in enumerate(x)]
        for k, result in enumerate(whole):
            assert bits(result) == bits(columns[k]) == bits(np.array([row[k] for row in alone])), dtype


@pytest.mark.parametrize(("name", "dtype"), LAWFUL)
def test_identity_and_commutativity_bit_for_bit(name, dtype):
    operation, element = OPERATORS[name], element_type(dtype)
    try:
        rule = operation.rule(element)
    except UnsupportedError:
        assert element.is_complex
        return
    specials = [0, 1, 2] if element.dtype.kind in "iub" else [0.0, -0.0, np.inf, -np.inf, np.nan, 3.0, 1e-3]
    with np.errstate(all="ignore"):
        x = np.concatenate([data(dtype, 60, 3), np.array(specials).astype(element.dtype)])
    for accumulator in rule.accumulators:
        types = operation.types(element, accumulator)
        pivot = np.zeros(1) if operation.pivot else None
        with np.errstate(all="ignore"):
            items = Items(x, x[::-1].copy(), np.arange(x.size, dtype=np.uint64), pivot)
            a = operation.map(items, types)
            b = tuple(np.roll(field, 5) for field in a)
            none = tuple(np.full(x.size, v, f.dtype) for v, f in zip(operation.identity(types), a, strict=True))
            same = operation.finish if name in ("logsumexp", "softmax_stats") else lambda fields, row, types: fields
            seen = [same(f, Row(x.size), types) for f in (a, operation.combine(a, none, types))]
            seen.append(same(operation.combine(none, a, types), Row(x.size), types))
            left, right = (same(operation.combine(*f, types), Row(x.size), types) for f in ((a, b), (b, a)))
        for one, other in ((seen[0], seen[1]), (seen[0], seen[2]), (left, right)):
            assert all(np.array_equal(canonical(f), canonical(g)) for f, g in zip(one, other, strict=True))


def canonical(field):
    """Return a field's bits, all NaN alike."""
    if field.dtype.kind == "f":
        field = np.where(np.isnan(field), field.dtype.type(np.nan), field)
    return np.ascontiguousarray(field).view(np.uint8)


def test_of_equal_ones_the_first_or_the_last_counts():
    x = np.array([1, 5, 5, 1, 5], np.float32)
    assert (tree.reduce(x, "argmax"), tree.reduce(x, "argmax", last=True)) == (1, 4)
    assert (tree.reduce(x, "argmin"), tree.reduce(x, "argmin", last=True)) == (0, 3)
    zeros = np.array([0.0, -0.0, 0.0], np.float16)
    for name in ("argmin", "argmax"):
        assert (tree.reduce(zeros, name), tree.reduce(zeros, name, last=True)) == (0, 2)
    for last in (False, True):  # the identity's own key
        zeros = np.zeros(9, np.uint32)
        assert tree.reduce(zeros, "argmax", last=last) == 8 * last


def test_zeros_are_ordered_by_sign_and_nan_wins():
    x = np.array([0.0, -0.0], np.float16)
    assert np.signbit(tree.reduce(x, "min"))
    assert not np.signbit(tree.reduce(x[::-1], "max"))
    x = np.array([1, np.nan, 3, np.nan])
    assert tree.reduce(x, "argmax") == tree.reduce(x, "argmin") == 1
    assert tree.reduce(x, "argmax", last=True) == 3
    assert all(np.isnan(each) for each in tree.reduce(x, "minmax"))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64"])
def test_every_value_of_a_short_type_has_its_place(dtype):
    info = element_type(dtype)
    if info.itemsize > 2:
        x = np.sort(data(dtype, 1000, 1))
    else:
        every = np.arange(2 ** (8 * info.itemsize), dtype=np.uint32).astype(f"u{info.itemsize}").view(info.dtype)
        x = every[~np.isnan(every.astype(np.float32))]
    wide = x.astype(np.float64)
    low, high = tree.reduce(x, "minmax")
    assert (low.dtype, low, high) == (info.dtype, wide.min(), wide.max())
    assert wide[tree.reduce(x, "argmax")] == wide.max()
    assert tree.reduce(x, "norm_inf") == np.abs(wide).max()


@pytest.mark.parametrize("name", ["sum", "mean", "min", "max"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_is_ignored(name, dtype):
    x = data(dtype, (30, 50), 3)
    assert np.isnan(x).any()
    got = tree.reduce(x, name, axis=1, nan="ignore")
    expected = getattr(np, f"nan{name}")(x.astype(np.float64), axis=1)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=4 * np.finfo(dtype).eps)
    nothing = tree.reduce(np.full(3, np.nan, dtype), name, nan="ignore")
    assert bits(nothing) == bits(np.array(0 if name == "sum" else np.nan, dtype))


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "any", "all", "count_nonzero", "mean"])
@pytest.mark.parametrize("dtype", ["int16", "float32", "bool"])
def test_masks_follow_numpy(name, dtype):
    x = np.where(data("bool", (6, 40), 5), data(dtype, (6, 40), 1), np.array(1, dtype))
    mask = data("bool", (6, 40), 8)
    mask[2] = False
    options = {"initial": x.dtype.type(1)} if name in ("min", "max") else {}
    if name == "count_nonzero":
        expected = np.count_nonzero(x & mask if x.dtype == bool else x * mask, axis=1)
    else:
        with np.errstate(all="ignore"), pytest.warns(RuntimeWarning) if name == "mean" else nothing():
            expected = getattr(np, name)(x, axis=1, where=mask, **options)
    got = tree.reduce(x, name, axis=1, where=mask, **options)
    assert got.dtype == expected.dtype
    if x.dtype.kind == "f" or name == "mean":
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    else:
        np.testing.assert_array_equal(got, expected)
    broadcast = tree.reduce(x, name, axis=1, where=mask[0], **options)
    assert bits(broadcast) == bits(tree.reduce(x, name, axis=1, where=np.tile(mask[0], (6, 1)), **options))


class nothing:  # noqa: N801 - a context that does nothing
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max"])
def test_initial_values_follow_numpy(name):
    x = np.array([3, -2, 7], np.float32)
    for value in (5, -9.5, 0, np.inf):
        assert bits(tree.reduce(x, name, initial=value)) == bits(getattr(np, name)(x, initial=np.float32(value)))
    empty = np.zeros((2, 0), np.float32)
    np.testing.assert_array_equal(tree.reduce(empty, name, axis=1, initial=4), np.full(2, 4, np.float32))
    assert np.isnan(tree.reduce(x, "min", initial=np.nan))


@pytest.mark.parametrize("name", ["sum", "prod"])
@pytest.mark.parametrize(
    ("dtype", "values"), [("int8", (2**63, -(2**63) - 1)), ("uint16", (-1, 2**64)), ("bool", (1e19,))]
)
def test_an_initial_value_that_an_integer_sum_does_not_hold(name, dtype, values):
    x = np.ones(3, dtype)
    for value in (*values, np.nan, -np.inf, np.float32(np.inf), 10**400):
        with pytest.raises(ValueError, match="initial value .* is not a value of u?int64"):
            tree.reduce(x, name, initial=value)
    assert tree.reduce(x, name, initial=2.5) == getattr(np, name)(x, initial=2)
    assert tree.reduce(x, name, initial=ml_dtypes.bfloat16(2.5)) == getattr(np, name)(x, initial=2)
    with pytest.raises(ValueError, match="is complex, and u?int64 is not"):
        tree.reduce(x, name, initial=1j)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "value", [2**70, -(2**65), *map(ml_dtypes.bfloat16, (1.5, -0.0)), ml_dtypes.float8_e4m3fn(3), ml_dtypes.int4(-3)]
)
def test_an_initial_value_is_any_number(dtype, value):
    x = np.array([3, -2, 7]).astype(element_type(dtype).dtype)
    for name in ("sum", "prod", "min", "max"):
        for accumulate in (None, "compensated") if name == "sum" else (None,):
            with np.errstate(all="ignore"):
                expected = tree.reduce(x, name, accumulate, initial=float(value))
            assert bits(tree.reduce(x, name, accumulate, initial=value)) == bits(expected)
    with pytest.raises(ValueError, match="is not a value of float64"):
        tree.reduce(x.astype(np.float64), initial=10**400)


def test_complex_sums_start_from_any_number():
    x = np.array([1 + 2j, 3])
    assert tree.reduce(x, initial=2**70) == 2.0**70 + 2j
    assert tree.reduce(x, initial=ml_dtypes.bfloat16(1)) == 5 + 2j


@pytest.mark.parametrize("value", [1000, np.inf, -1000.0, 2**70])
@pytest.mark.parametrize("name", ["min", "max"])
def test_an_initial_value_that_becomes_nan_is_refused(name, value):
    x = np.ones(3, element_type("float8_e4m3fn").dtype)
    with pytest.raises(ValueError, match="is not a value of float8_e4m3fn"):
        tree.reduce(x, name, initial=value)
    assert np.isnan(tree.reduce(x, name, initial=np.nan))
    assert tree.reduce(x, name, initial=448) == (448 if name == "max" else 1)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float16", "bfloat16", "float64"])
def test_an_initial_nan_is_ignored_with_the_others(dtype):
    x = np.array([3, np.nan, -2]).astype(element_type(dtype).dtype)
    ones = ElementMap("x", numpy=lambda x: x)
    for initial in (np.nan, np.float32(np.nan), ml_dtypes.bfloat16(np.nan)):
        assert tree.reduce(x, "max", nan="ignore", initial=initial) == 3
        assert tree.reduce(x, "min", nan="ignore", initial=initial) == -2
        assert tree.reduce(x, "min", nan="ignore", initial=initial, map=ones, where=x == 3) == 3
        assert np.isnan(tree.reduce(x[1:2], "min", nan="ignore", initial=initial))
        assert np.isnan(tree.reduce(x[:0], "max", nan="ignore", initial=initial))
        if dtype != "float8_e4m3fn":  # a sum starts from it, as numpy.nansum
            assert np.isnan(tree.reduce(x, nan="ignore", initial=initial))
    assert tree.reduce(np.array([3, 5]), "max", nan="ignore", initial=4) == 5


@pytest.mark.parametrize("name", list(OPERATORS))
def test_empty_rows(name):
    x = np.zeros((3, 0), np.float32)
    y = x if name == "dot" else None
    if name in ("min", "max", "minmax", "argmin", "argmax"):
        with pytest.raises(ValueError, match="has no identity"):
            tree.reduce(x, name, axis=1)
    else:
        for result in results_of(tree.reduce(x, name, axis=1, second=y)):
            assert result.shape == (3,)
    for result in results_of(tree.reduce(np.zeros((0, 3), np.float32), name, axis=1, second=y if y is None else y.T)):
        assert result.shape == (0,)


def test_variance_where_the_mean_is_a_million_deviations():
    rng = np.random.default_rng(0)
    x = (1e6 + rng.standard_normal((4, 100_000))).astype(np.float32)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(tree.reduce(x, "var", axis=1), exact.var(axis=1), rtol=1e-5)
    mean, var = tree.reduce(x, "mean_var", axis=1, ddof=1, dtype="float64")
    np.testing.assert_allclose(mean, exact.mean(axis=1), rtol=1e-15)
    np.testing.assert_allclose(var, exact.var(axis=1, ddof=1), rtol=1e-10)


def test_variance_with_the_worst_pivot_keeps_what_is_promised():
    n = 100_000
    x = np.random.default_rng(0).standard_normal(n)
    x[0] = 1e8
    # The header's bound: a factor 1 + n on the roundings of a tree of log2(n) levels, of differences and of squares.
    bound = (1 + n) * (math.log2(n) + 5) * np.finfo(np.float64).eps
    assert float(tree.reduce(x, "var")) == pytest.approx(np.var(x), rel=bound)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_variance_is_not_below_zero_where_squares_vanish(dtype):
    """The squared deviations are less than float64 holds, and the square of their sum over n is not."""
    x = np.full(4096, 2.0**-538, dtype)
    x[0] = 0
    if dtype == "complex128":
        x.imag = x.real
    assert np.float64(2.0**-538) ** 2 == 0.0 < 4095 * 2.0**-538 * (4095 * 2.0**-538 / 4096)
    for op in ("var", "std"):
        assert tree.reduce(x, op, ddof=4095).tobytes() == bytes(8), f"{op} is +0.0"


@pytest.mark.parametrize("part", [complex(np.nan, 3), complex(3, np.nan)])
def test_a_complex_element_of_which_one_part_is_nan(part):
    x = np.array([1 + 2j, part, 5j], np.complex64)
    assert tree.reduce(x, nan="ignore") == 1 + 7j
    assert tree.reduce(x, "mean", nan="ignore") == np.complex64(0.5 + 3.5j)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("values", [[np.inf, 1, 2], [1, -np.inf], [np.inf, -np.inf], [np.nan, 1], [1, np.nan]])
def test_mean_beside_an_infinity_is_numpys(values, dtype):
    x = np.array(values, dtype)
    with np.errstate(all="ignore"):
        expected = np.mean(x)
    mean, var = tree.reduce(x, "mean_var")
    for got in (mean, tree.reduce(x, "mean")):
        assert bits(got) == bits(np.where(np.isnan(expected), x.dtype.type(np.nan), expected))
    assert np.isnan(var)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_logsumexp_near_and_far(dtype):
    for values in ([1e4, 1e4 - 3, -1e4], [-1e4, -1e4 + 1], [0, 0, 0], list(range(-50, 50))):
        x = np.array(values).astype(dtype)
        wide = x.astype(np.float64)
        expected = wide.max() + np.log(np.exp(wide - wide.max()).sum())
        operation = OPERATORS["logsumexp"]
        types = operation.types(element_type(dtype))
        got = tree.reduce(x, "logsumexp")
        assert got.dtype == np.dtype(types.result)
        assert abs(float(got) - expected) <= operation.tolerance(np.array(expected), x.size, types)
        largest, total = tree.reduce(x, "softmax_stats")
        assert largest == wide.max()
        assert float(total) == pytest.approx(
            np.exp(wide - wide.max()).sum(), rel=max(float(np.finfo(got.dtype).eps), 1e-6)
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_far_smaller_than_one_is_not_lost_in_it(dtype):
    """The float32 exponential of -d is off by d 2^-24 and 2 places."""
    bound = {"float32": 50 * 2.0**-23, "float64": 4 * 2.0**-53}[dtype]
    for values in ([0, -40], [-40, 0, -40], [-np.inf, -30, 0, -35, -np.inf], [-20, -21, 0.0, -600]):
        rest = np.exp(np.sort(np.array(values, np.float64))[:-1]).sum()
        np.testing.assert_allclose(tree.reduce(np.array(values, dtype), "logsumexp"), np.log1p(rest), rtol=bound)
    assert tree.reduce(np.array([-np.inf, 0, -1000], dtype), "logsumexp") == 0.0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-np.inf, -np.inf], -np.inf),
        ([-np.inf, 2.0], 2.0),
        ([np.inf, 1.0, np.inf], np.inf),
        ([np.inf, -np.inf], np.inf),
        ([np.nan, 1.0], np.nan),
        ([np.inf, np.nan], np.nan),
        ([1.0, -np.inf, np.nan], np.nan),
    ],
)
def test_logsumexp_of_infinities(values, expected):
    for row in (values, values[::-1]):
        np.testing.assert_equal(float(tree.reduce(np.array(row, np.float32), "logsumexp")), expected)
    assert np.isnan(tree.reduce(np.array(values), "softmax_stats").max) == np.isnan(expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 300), st.integers(0, 2**32))
def test_compensated_dot_and_mean_are_within_an_ulp(n, seed):
    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n) for _ in range(2))
    x, y = np.concatenate([x, -x, [1.5]]), np.concatenate([y, y * (1 + 1e-12), [math.pi]])
    exact = float(sum(Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True)))
    got = float(tree.reduce(x, "dot", "compensated", second=y))
    assert abs(got - exact) <= math.ulp(exact)
    mean = float(tree.reduce(x, "mean", "compensated"))
    assert abs(mean - math.fsum(x) / x.size) <= math.ulp(mean)


def test_compensated_dot_at_the_edges_of_float64():
    big = np.array([1e300, 1e-300, np.inf, 1e-200, 1.0])
    got = tree.reduce(big, "dot", "compensated", second=np.array([1e300, 1e-300, 1.0, 1e-200, 2.0]))
    assert got == np.inf
    assert tree.reduce(big[[1, 3, 4]], "dot", "compensated", second=np.array([1e-300, 1e-200, 2.0])) == 2.0


def test_norms_follow_numpy():
    for dtype in ("float32", "float64", "int16", "complex64", "complex128"):
        x = data(dtype, 200, 1)
        for name, order in (("norm1", 1), ("norm2", 2), ("norm_inf", np.inf)):
            expected = np.linalg.norm(x, order)
            got = tree.reduce(x, name)
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(got.dtype).eps)
    huge = np.array([3e300 + 4e300j])
    assert float(tree.reduce(huge, "norm1")) == pytest.approx(5e300)


def test_magnitudes_of_complex64_are_within_a_unit_in_the_last_place_of_float64():
    rng = np.random.default_rng(9)
    tiny, large = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max
    parts = (rng.standard_normal((2, 1000)) * 2.0 ** rng.integers(-149, 126, (2, 1000))).astype(np.float32)
    parts[:, :4] = [[tiny, large, 0.0, -large], [tiny, large, -0.0, tiny]]
    x = np.empty(1000, np.complex64)
    x.real, x.imag = parts
    # Each by itself, so that nothing but the root and the sum under it is rounded; longdouble has 11 bits more.
    found = tree.reduce(x.reshape(-1, 1), "norm1", axis=1, dtype="float64")
    exact = np.hypot(x.real.astype(np.longdouble), x.imag.astype(np.longdouble))
    assert (np.abs(found - exact) <= np.spacing(found)).all()


def test_dot_and_products_of_complex_numbers():
    x, y = data("complex64", 50, 1), data("complex64", 50, 2)
    np.testing.assert_allclose(tree.reduce(x, "dot", second=y), np.dot(x, y), rtol=1e-5)
    z = np.exp(1j * np.arange(20))
    np.testing.assert_allclose(tree.reduce(z, "prod"), np.prod(z), rtol=1e-13)
    for dtype in ("int8", "bool", "uint32"):
        a, b = data(dtype, 30, 1), data(dtype, 30, 2)
        assert bits(tree.reduce(a, "dot", second=b)) == bits(np.dot(a, b))


def test_maps():
    x, y = data("float32", 500, 1), data("float32", 500, 2)
    square = ElementMap("x * x", numpy=lambda x: x * x)
    assert bits(tree.reduce(x, "sum", map=square)) == bits(tree.reduce(x, "sum_squares"))
    product = ElementMap("x * y", numpy=lambda x, y: x * y)
    assert bits(tree.reduce(x, "sum", map=product, second=y)) == bits(tree.reduce(x, "dot", second=y))
    assert tree.reduce(x, "max", map=square) == np.max(x * x)
    with pytest.raises(UnsupportedError, match="no NumPy meaning"):
        tree.reduce(x, map="x * x")


def test_user_operators():
    absmax = Operator(
        "absmax",
        map="fabsf(x)",
        combine="fmaxf(a, b)",
        identity='nanf("")',
        numpy=NumpyMeaning((np.nan,), lambda x, y, i: (np.abs(x),), lambda a, b: (np.fmax(a[0], b[0]),)),
    )
    x = data("float32", (3, 700), 1)
    np.testing.assert_array_equal(tree.reduce(x, absmax, axis=1), np.abs(x).max(axis=1))
    with pytest.raises(UnsupportedError, match="no NumPy meaning"):
        tree.reduce(x, Operator("nothing", combine="a", identity="0"))
    with pytest.raises(ValueError, match="no identity"):
        tree.reduce(x[:, :0], absmax, axis=1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"combine": "a", "identity": "0", "name": "no name"}, ValueError, "identifier"),
        ({"combine": "a", "name": "f"}, ValueError, "needs identity="),
        ({"combine": 3, "identity": "0", "name": "f"}, TypeError, "combine is CUDA"),
        ({"combine": "a", "identity": "0", "name": "f", "accumulator": "int8"}, ValueError, "accumulator is one of"),
        (
            {"combine": "a", "identity": "0", "name": "f", "accumulator": "struct { int32 k; }"},
            ValueError,
            "accumulator_bytes=",
        ),
        ({"combine": "a", "identity": "0", "name": "f", "accumulator_bytes": 8}, ValueError, "has not 8 bytes"),
        ({"combine": "a", "identity": "0", "name": "f", "finish": ("a", "a", "a")}, ValueError, "one or two"),
    ],
)
def test_a_user_operator_is_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        Operator(**arguments)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: tree.reduce(x, "max", last=True), ValueError, "max does not take last=; argmin, argmax do"),
        (lambda x: tree.reduce(x, "var", nan="ignore"), ValueError, "does not take nan="),
        (lambda x: tree.reduce(x, "sum", ddof=1), ValueError, "does not take ddof="),
        (lambda x: tree.reduce(x, "var", ddof="1"), TypeError, "ddof is a real number"),
        (lambda x: tree.reduce(x, "var", ddof=-1), ValueError, "0 or more"),
        (lambda x: tree.reduce(x, "var", ddof=np.nan), ValueError, "0 or more"),
        (lambda x: tree.reduce(x, "var", ddof=np.True_), TypeError, "ddof is a real number"),
        (lambda x: tree.reduce(x, nan="drop"), ValueError, "propagate"),
        (lambda x: tree.reduce(x, "min", where=x > 0), ValueError, "needs initial="),
        (lambda x: tree.reduce(x, "dot"), ValueError, "needs a second array"),
        (lambda x: tree.reduce(x, "sum", second=x), ValueError, "takes no second"),
        (lambda x: tree.reduce(x, "dot", second=x.astype("f8")), TypeError, "is of float32, not float64"),
        (lambda x: tree.reduce(x, "sum", where=[1, 0, 1]), TypeError, "is of bool"),
        (lambda x: tree.reduce(x, "sum", axis=1), ValueError, "out of bounds"),
        (lambda x: tree.reduce(x, "sum", axis=(0, -1)), ValueError, "twice"),
        (lambda x: tree.reduce(x, "var", second=x, map="x - y"), ValueError, "a map for var is of one array"),
        (lambda x: tree.reduce(x, "dot", second=x, map="x * y"), ValueError, "dot does not take map="),
        (lambda x: tree.reduce(x, 3), TypeError, "a name or an Operator"),
        (lambda x: tree.reduce(x, "median"), UnsupportedError, "no operator 'median'"),
        (lambda x: tree.reduce(x, "argmax", "float32"), UnsupportedError, "accumulates in int32"),
        (lambda x: tree.reduce(x, "max", dtype="float64"), UnsupportedError, "gives float32, not float64"),
        (lambda x: tree.reduce(x, "sum", initial=[1, 2]), ValueError, "the initial value is a number"),
        (lambda x: tree.reduce(x.astype("i1"), "max", initial=300), ValueError, "initial value 300"),
        (lambda x: tree.reduce(x.astype("c8"), "logsumexp"), UnsupportedError, "complex64 is not defined"),
    ],
)
def test_refuses_with_a_clear_error(call, error, message):
    with pytest.raises(error, match=message):
        call(np.array([1, 2, 3], np.float32))


@pytest.mark.parametrize("name", ["mean", "max", "prod"])
def test_an_operator_of_ones_own_may_have_the_name_of_a_built_in_one(name):
    meaning = NumpyMeaning((np.float32(0),), lambda x, y, i: (x,), lambda a, b: (a[0] + b[0],), lambda a, n: a[0] / n)
    own = Operator(name, combine="a + b", identity="0.0f", finish="a / n", numpy=meaning)
    x = np.array([1, 2, 4, 8], np.float32)
    assert tree.reduce(x, own, where=x > 3) == 3  # of all that the row has, as it says itself


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_maps_have_all_bits_of_integers(dtype):
    same = ElementMap("x", numpy=lambda x: x)
    large = np.array([0, 2**32, 2**63 - 1], dtype)
    assert tree.reduce(large[1:2], "any", map=same)
    assert tree.reduce(large[1:], "all", map=same)
    assert tree.reduce(large, "argmax", map=same) == 2
    most = np.array([np.iinfo(dtype).max], dtype)
    for norm in ("norm1", "norm2", "norm_inf"):
        assert tree.reduce(most, norm, map=same) == tree.reduce(most, norm) == float(most[0])
    high = ElementMap("x > 1u << 31", numpy=lambda x: x > 2**31)
    assert tree.reduce(large, "count_nonzero", map=high) == 2


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_extremes_of_maps_are_not_cut_to_narrow_elements(dtype):
    x = np.array([np.iinfo(dtype).max, 1], dtype)
    twice, most = ElementMap("2 * x", numpy=lambda x: 2 * x), 2 * int(x[0])
    largest = tree.reduce(x, "max", map=twice)
    assert (largest, largest.dtype.itemsize) == (most, 4)
    assert tree.reduce(x, "max", map=twice, initial=most + 1) == most + 1
    assert tree.reduce(x, "minmax", map=twice) == (2, most)
    assert tree.reduce(x, "max", map=twice, dtype=dtype) == np.array(most).astype(dtype)


@pytest.mark.parametrize("name", ["sum", "prod", "sum_squares", "count_nonzero"])
@pytest.mark.parametrize("dtype", ["int64", "uint64", "int16"])
def test_maps_of_integers_take_the_results_that_elements_take(name, dtype):
    x = np.arange(1, 9).astype(dtype)
    twice = ElementMap("2 * x", numpy=lambda x: 2 * x)
    for result in OPERATORS[name].rule(element_type(dtype)).results:
        found = tree.reduce(x, name, map=twice, dtype=result)
        assert found.dtype == result
        assert bits(found) == bits(tree.reduce(2 * x, name, dtype=result))


def test_the_variance_of_a_map_is_about_the_maps_first_value():
    x = (1e-3 + 1e-9 * np.random.default_rng(0).standard_normal(5000)).astype(np.float64)
    inverse = ElementMap("1 / x", numpy=lambda x: 1 / x)
    mean, var = tree.reduce(x, "mean_var", map=inverse)
    np.testing.assert_allclose([mean, var], [(1 / x).mean(), (1 / x).var()], rtol=1e-12)


def test_moments_are_about_the_first_element():
    """About the last one fewer squares are rounded."""
    x = np.array([0.0, 0.3, 0.3])
    square, total = 0.3 * 0.3, 0.3 + 0.3
    about_the_first = (square + square - total * (total / 3)) / 3
    about_the_last = (square - 0.3 * (0.3 / 3)) / 3
    assert tree.reduce(x, "var") == about_the_first != about_the_last
    assert tree.reduce(x[::-1], "var") == about_the_last


def test_sums_of_low_parts_keep_their_error():
    """Where high parts and a low one cancel, what the other low part leaves is all that is there."""
    x, y = ((np.array([high]), np.array([low])) for high, low in ((1.0, 2.0**-53), (2.0**-52, 2.0**-106)))
    high, low = arithmetic.add_compensated(x, y)
    assert sum(map(Fraction, (high[0], low[0]))) == sum(map(Fraction, (1.0, 2.0**-53, 2.0**-52, 2.0**-106)))


def test_products_that_are_tiny_have_no_error():
    """Of a product near the smallest numbers the error is not exact any more, so that none is kept, as in kernels."""
    for exponent, kept in ((-449, True), (-451, False)):
        x = np.array([(1 + 2.0**-30) * 2.0**exponent])
        high, low = arithmetic.two_product(x, x)
        exact = Fraction(x[0]) ** 2 - Fraction(high[0])
        assert exact != 0
        assert Fraction(low[0]) == (exact if kept else 0)


def test_integers_of_which_a_mean_is_exact_are_summed_as_such():
    types = [OPERATORS["mean"].types(element_type(name)).accumulator for name in ("int8", "uint32", "bool", "int64")]
    assert types == ["int64", "uint64", "int64", "float64"]


def test_labels_tell_adapters_and_maps_apart():
    """Kernels are looked up and shown by them."""
    element = element_type("float32")
    inner = OPERATORS["sum"]
    maps = [resolve("sum", map=ElementMap(f"x * {number}.0f")) for number in (2, 3)]
    adapted = [inner, adapters.masked(inner), adapters.with_initial(inner), adapters.ignoring_nan(inner)]
    adapted += [adapters.rooted(inner, inner.types(element)), *maps]
    labels = [each.label for each in adapted]
    assert len(set(labels)) == len(labels)


def test_the_table_says_what_kernels_need():
    element = element_type("float32")
    assert OPERATORS["argmax"].accumulator_bytes(element, "int32", "int64") == 12
    assert OPERATORS["mean_var"].result_names == ("mean", "var")
    assert resolve("mean", nan="ignore").accumulator_bytes(element, "float64", "float32") == 16
    assert resolve("sum", where=True).second_dtype(element) == np.dtype(bool)
    assert OPERATORS["dot"].second_dtype(element) == np.dtype(np.float32)
    assert resolve(OPERATORS["sum"]) is OPERATORS["sum"]
    assert resolve("sum", nan="ignore", initial=True).label not in OPERATORS
    assert resolve("var", ddof=1).label == resolve("var").label, "one kernel serves each ddof"
    assert [resolve("var", ddof=ddof).constants for ddof in (0, 1.5)] == [(0, 0), (0x3FF8000000000000, 0)]
    low, high = resolve("sum", initial=True).initial_words(1.0, OPERATORS["sum"].types(element))
    assert (low, high) == (0x3FF0000000000000, 0)
