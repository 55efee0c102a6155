"""Results are rounded once: against exact arithmetic, beside numbers halfway between two of the result's type."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from lowlevel_reduce import tree
from lowlevel_reduce.dtypes import element_type, finfo
from lowlevel_reduce.operators import Types
from lowlevel_reduce.operators.arithmetic import quotient, root, round_parts
from lowlevel_reduce.operators.rounding import in_two_parts, round_pair, round_to

NARROW = ["float16", "bfloat16", "float32"]


def nearest(exact, dtype):
    """Return a fraction rounded to a type, to nearest and to even, by exact arithmetic."""
    info = finfo(dtype)
    if exact == 0:
        return np.zeros((), dtype)
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, int(info.minexp)) - int(info.nmant))
    rounded = round(magnitude / unit) * unit  # which is to even
    value = np.inf if rounded > Fraction(float(info.max)) else float(rounded)
    return np.array(np.copysign(value, -1.0 if exact < 0 else 1.0)).astype(dtype)


def beside_halves(dtype, seed=0):
    """Return float64 at, and next to, numbers halfway between two of a type, of all its exponents; and its limits."""
    rng = np.random.default_rng(seed)
    info = finfo(dtype)
    exponents = np.arange(int(info.minexp) - int(info.nmant) - 3, int(info.maxexp) + 2)
    whole = rng.integers(2 ** int(info.nmant), 2 ** (int(info.nmant) + 1), (6, exponents.size))
    halves = np.ldexp((whole + 0.5 * rng.integers(0, 2, whole.shape)), exponents - int(info.nmant)).ravel()
    end = float(info.max) * (1 + 2.0 ** -(int(info.nmant) + 2))
    ends = [end, 1e300, 5e-324, float(info.max)]
    x = np.concatenate([halves, np.nextafter(halves, np.inf), np.nextafter(halves, 0), ends])
    return np.concatenate([x, -x])


@pytest.mark.parametrize("dtype", NARROW)
def test_float64_is_rounded_once(dtype):
    of = element_type(dtype).dtype
    x = beside_halves(of)
    with np.errstate(over="ignore"):
        found = round_to(x, of)
        wanted = np.array([nearest(Fraction(each), of) for each in x.tolist()])
    assert found.tobytes() == wanted.tobytes()
    x = np.array([np.inf, -np.inf, -0.0])
    with np.errstate(invalid="ignore"):
        assert round_to(x, of).tobytes() == x.astype(of).tobytes()
        assert np.isnan(round_to(np.array(np.nan), of))


@pytest.mark.parametrize("dtype", [*NARROW, "float64"])
def test_pairs_are_rounded_once(dtype):
    of = element_type(dtype).dtype
    high = beside_halves(np.dtype("float32") if dtype == "float64" else of, 1)
    high = high[np.abs(high) > 1e-290]
    low = np.random.default_rng(2).choice([-1.0, 0.0, 1.0], high.size) * np.spacing(np.abs(high)) * 2.0**-40
    with np.errstate(over="ignore"):
        found = round_pair((high, low), of)
        pairs = zip(high.tolist(), low.tolist(), strict=True)
        wanted = np.array([nearest(Fraction(a) + Fraction(b), of) for a, b in pairs])
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32"])
@pytest.mark.parametrize("result", [*NARROW, "float64"])
def test_integers_are_rounded_once(dtype, result):
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(3)
    places = rng.integers((1, 1), (limits.bits - 1, 60), (1500, 2)).tolist()
    whole = [(1 << k) + (1 << max(k - j, 0)) + end for k, j in places for end in (-1, 0, 1)]
    x = np.array([each for each in whole if each <= limits.max], dtype)
    of = element_type(result).dtype
    with np.errstate(over="ignore"):
        found = round_to(x, of)
        wanted = np.array([nearest(Fraction(int(each)), of) for each in x])
    assert found.tobytes() == wanted.tobytes()
    high, low = in_two_parts(x)
    assert all(Fraction(a) + Fraction(b) == int(c) for a, b, c in zip(high.tolist(), low.tolist(), x, strict=True))


@pytest.mark.parametrize("result", [*NARROW, "float64"])
def test_quotients_and_roots_are_rounded_once(result):
    of = element_type(result).dtype
    rng = np.random.default_rng(4)
    n = np.concatenate([np.arange(1, 200), rng.integers(1, 2**30, 300)]).astype(np.float64)
    low = finfo(of).nmant + 2 if result != "float64" else 30
    middle = 1.0 + np.round(rng.random(n.size) * 2.0**low) / 2.0**low  # many of them halfway between two results
    total = middle * n * (1 + rng.choice([0, -1, 1], n.size) * 2.0**-52)
    found = round_pair(quotient((total, np.zeros_like(n)), n), of)
    wanted = np.array([nearest(Fraction(a) / int(b), of) for a, b in zip(total.tolist(), n.tolist(), strict=True)])
    assert found.tobytes() == wanted.tobytes()
    square = middle * middle
    found = round_pair(root(square), of)
    for each, x in zip(found.astype(np.float64).tolist(), square.tolist(), strict=True):
        near = [Fraction(float(np.nextafter(of.type(each), of.type(end)))) for end in (0, 9)]
        ends = [(Fraction(each) + other) / 2 for other in near]
        assert ends[0] ** 2 <= Fraction(x) <= ends[1] ** 2


def test_sums_are_rounded_once():
    assert tree.reduce(np.array([1, 2**-8, 2**-30]), dtype="bfloat16") == 1.0078125
    assert tree.reduce(np.array([1, 2**-8, 2**-30], np.float32), dtype="bfloat16") == 1.0078125
    for dtype in (np.float32, np.float64):
        x = np.array([1, 2.0**-24, 2.0**-60], dtype)
        assert tree.reduce(x, accumulate="compensated", dtype="float32") == np.float32(1 + 2.0**-23)
    x = np.array([1, 2**-11, 2**-60])
    assert tree.reduce(x, accumulate="compensated", dtype="float16") == np.float16(1 + 2**-10)
    assert tree.reduce(-x, "dot", "compensated", second=np.ones(3), dtype="float16") == -np.float16(1 + 2**-10)


@pytest.mark.parametrize("op", ["mean", "sum"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("result", [*NARROW, "float64"])
def test_compensated_sums_and_means_are_the_exact_ones_rounded(op, dtype, result):
    of = element_type(result).dtype
    rng = np.random.default_rng(5)
    for n in (3, 7, 100):
        x = np.concatenate([rng.standard_normal((50, n - 2)), rng.standard_normal((50, 2)) * 2.0**-14], axis=1)
        x = x.astype(element_type(dtype).dtype)
        found = tree.reduce(x, op, "compensated", axis=1, dtype=result)
        exact = [sum(map(Fraction, row)) / (n if op == "mean" else 1) for row in x.astype(np.float64).tolist()]
        assert found.tobytes() == np.array([nearest(each, of) for each in exact]).tobytes()


def test_the_mean_of_integers_is_that_of_their_exact_sum():
    x = np.full(5000, 2**32 - 1, np.uint32)
    x[:3] = 2**32 - 1, 5, 77
    exact = Fraction(sum(map(int, x)), x.size)
    assert tree.reduce(x, "mean") == float(exact)
    many = np.broadcast_to(np.uint32(2**32 - 1), 2**22 + 3)  # whose sum has 55 bits
    assert tree.reduce(many, "mean") == 2.0**32 - 1


def test_what_is_not_finite_is_not_rounded_to_odd():
    types = Types(element_type("float64"), "compensated", "float32")
    with np.errstate(invalid="ignore"):
        found = round_parts((np.array([np.inf, -np.inf, np.nan, -0.0]), np.zeros(4)), types)
    np.testing.assert_array_equal(found, np.array([np.inf, -np.inf, np.nan, -0.0], np.float32))
    assert tree.reduce(np.array([np.inf]), "mean", "compensated", dtype="bfloat16") == ml_dtypes.bfloat16(np.inf)
