"""Every operator over every type that it takes, whole, by rows and by columns, against the tree."""

import numpy as np
import pytest
from placed import assert_near, assert_same, reduced, values

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import ELEMENT_TYPES, element_type
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators import OPERATORS, ElementMap, resolve

SQUARE = ElementMap("x * x", numpy=lambda x: x * x)
VARIANTS = {
    **{name: (name, {}) for name in OPERATORS},
    **{f"{name} ignoring nan": (name, {"nan": "ignore"}) for name in ("sum", "mean", "min", "max")},
    "last argmax": ("argmax", {"last": True}),
    "last argmin": ("argmin", {"last": True}),
    "var ddof 1": ("var", {"ddof": 1}),
    "std ddof 2": ("std", {"ddof": 2}),
    **{
        f"{name} of squares": (name, {"map": SQUARE})
        for name in ("sum", "max", "argmax", "any", "count_nonzero", "mean_var", "norm2", "logsumexp")
    },
}
SHORT = [((6, 9), None), ((6, 9), 1), ((6, 9), 0)]
LONG = [((2, 20_011), 1), ((20_011, 2), 0), ((5, 5003), None)]
LONGER = [((3, 300_000), 1), ((100_000, 9), 0)]


def types_of(variant):
    """Return the types that a variant takes."""
    op, options = VARIANTS[variant]
    operation = resolve(op, **options)
    found = []
    for element in ELEMENT_TYPES:
        try:
            operation.types(element)
        except UnsupportedError:
            continue
        found.append(element.name)
    return found


def data(dtype, shape, *, special):
    """Return values with ties, and, where asked, what is not finite."""
    x = values(dtype, shape)
    flat = x.reshape(-1)
    flat[flat.size // 2] = flat[0]
    kind = element_type(dtype)
    if special and (kind.is_float or kind.is_complex):
        some = [np.nan, -0.0] if dtype == "float8_e4m3fn" else [np.nan, np.inf, -0.0, -np.inf]
        flat[3 : 3 + len(some)] = some
    return x


def check(variant, dtype, shape, axis, stream, *, special=False, accumulate=None):
    op, options = VARIANTS[variant]
    x = data(dtype, shape, special=special)
    second = np.roll(x, 1) if op == "dot" else None
    operation = resolve(op, **options)
    types = operation.types(element_type(dtype), accumulate)
    asked = {**options, "axis": axis, "accumulate": accumulate, "second": second}
    with np.errstate(all="ignore"):
        expected = lr.tree.reduce(x, op, **asked)
    actual = reduced(x, op, stream=stream, **asked)
    length = x.size if axis is None else x.shape[axis]
    expected = tuple(expected) if isinstance(expected, tuple) else expected
    assert_near(actual, expected, operation, length, types, f"{variant} of {shape} {dtype} axis {axis}")


# Each operator, option, type and way to lie is a kernel of its own, and compiling is what takes the time. So the shapes
# come in turn: on a GPU every operator meets every type once and every shape with some type, and every option an eighth
# of the types; a simulated device, where running takes time too, a quarter of the types and the short shapes.
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_operator_and_type(stream, cut, few, variant):
    first = list(VARIANTS).index(variant)
    types, shapes = types_of(variant), cut([*SHORT, *LONG], SHORT)
    others = [name for name in types if name != "float32"] if variant in OPERATORS else types[first % 8 :: 8]
    for number, dtype in enumerate(cut(others, few(types[first % 4 :: 4], 2)), start=first):
        shape, axis = shapes[number % len(shapes)]
        for special in (False, True):
            check(variant, dtype, shape, axis, stream, special=special)


@pytest.mark.parametrize("variant", OPERATORS)
def test_float32_in_long_rows_and_columns(stream, cut, variant):
    number, shapes = list(OPERATORS).index(variant), cut([*LONG, *LONGER], LONG)
    shape, axis = shapes[number % len(shapes)]
    for special in (False, True):
        check(variant, "float32", shape, axis, stream, special=special)


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [("sum", "float16"), ("sum", "float64"), ("dot", "float32"), ("dot", "float64"), ("mean", "float32")],
)
def test_every_other_accumulator(stream, cut, variant, dtype):
    shapes = cut([*SHORT, *LONG], SHORT)
    # The first one is the default, which the tests above have.
    for number, accumulate in enumerate(resolve(variant).rule(element_type(dtype)).accumulators[1:], start=2):
        check(variant, dtype, *shapes[number % len(shapes)], stream, accumulate=accumulate)


@pytest.mark.parametrize("ratio", [1e2, 1e6])
def test_variance_beside_a_large_mean(stream, ratio):
    x = (np.random.default_rng(0).standard_normal((3, 5000)) + ratio).astype(np.float32)
    wanted = x.astype(np.float64).var(axis=1)
    mean, var = reduced(x, "mean_var", stream=stream, axis=1)
    np.testing.assert_allclose(var, wanted, rtol=1e-5)
    np.testing.assert_allclose(mean, x.astype(np.float64).mean(axis=1), rtol=1e-6)


def test_logsumexp_far_from_zero(stream):
    for centre in (1e4, -1e4):
        x = (np.random.default_rng(0).standard_normal((3, 500)) + centre).astype(np.float32)
        wide = x.astype(np.float64)
        most = wide.max(axis=1, keepdims=True)
        wanted = np.log(np.exp(wide - most).sum(axis=1)) + most[:, 0]
        np.testing.assert_allclose(reduced(x, "logsumexp", stream=stream, axis=1), wanted, rtol=3e-7)
    nothing = np.full((2, 500), -np.inf, np.float32)
    assert reduced(nothing, "logsumexp", stream=stream, axis=1).tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("name", ["sum", "prod", "sum_squares", "count_nonzero"])
def test_maps_of_64_bit_integers_have_results_of_other_types(stream, name):
    x = np.arange(1, 301).reshape(3, 100)
    odd = ElementMap("x | 1", numpy=lambda x: x | 1)
    for dtype, result in (("int64", "int16"), ("uint64", "float64"), ("int64", "float64"), ("uint64", "int32")):
        if result in OPERATORS[name].rule(element_type(dtype)).results:
            each = x.astype(dtype)
            found = reduced(each, name, stream=stream, axis=1, map=odd, result_dtype=result)
            assert_same(found, lr.tree.reduce(each, name, axis=1, map=odd, dtype=result), f"{dtype}, {result}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_far_smaller_than_one_is_not_lost_in_it(stream, dtype):
    """The float32 exponential of -d is off by d 2^-24 and a few places."""
    bound = {"float32": 50 * 2.0**-23, "float64": 8 * 2.0**-53}[dtype]
    x = np.full((4, 130), -np.inf)
    x[0, [3, 100]] = 0, -40
    x[1, :] = np.where(np.arange(130) == 77, 0, -30 - np.arange(130) % 7)
    x[2, :2] = 0, -1000
    x[3, 7] = 0
    wanted = np.log1p([np.exp(np.sort(row)[:-1]).sum() for row in x])
    for each, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
        found = reduced(each.astype(dtype), "logsumexp", stream=stream, axis=axis)
        np.testing.assert_allclose(found, wanted, rtol=bound, atol=0)
