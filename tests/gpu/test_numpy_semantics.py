"""Types, shapes, errors and NaN rules are NumPy's: generated cases, of values that every order sums alike."""

import functools
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lowlevel_reduce as lr

NUMPY = {
    "sum": np.sum,
    "prod": np.prod,
    "min": np.min,
    "max": np.max,
    "argmin": np.argmin,
    "argmax": np.argmax,
    "any": np.any,
    "all": np.all,
    "count_nonzero": np.count_nonzero,
    "mean": np.mean,
}
IGNORING = {"sum": np.nansum, "mean": np.nanmean, "min": np.nanmin, "max": np.nanmax}
DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool"]
ONE_AXIS = ("argmin", "argmax")
MOST_EXAMPLES, SIMULATED_EXAMPLES = 40, 6


@st.composite
def arrays(draw, dtype):
    """Return an array of small integers, some of them NaN where the type has it, of any strides."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    dtype = np.dtype(dtype)
    low = 0 if dtype.kind in "ub" else -3
    x = rng.integers(low, 2 if dtype.kind == "b" else 4, tuple(2 * size for size in shape)).astype(dtype)
    if dtype.kind == "f":
        for _ in range(draw(st.integers(0, 2))):
            x[rng.random(x.shape) < 0.2] = draw(st.sampled_from([np.nan, np.inf, -np.inf, -0.0]))
    steps = draw(st.tuples(*[st.sampled_from([1, 2, -1, -2]) for _ in shape]))
    return x[(*(slice(None, None, step) for step in steps), ...)].transpose(draw(st.permutations(range(len(shape)))))


def tamed(x, op):
    """Make factors 0, 1 and -1 where NumPy, which multiplies in the type itself, would leave its range."""
    if op == "prod" and x.dtype.kind == "f":
        x[...] = np.sign(x)
    return x


def axes_of(draw, ndim, *, single):
    # Of a single element NumPy's sum takes axis 0 and its mean does not; here all take it.
    one = st.integers(-ndim - 1, ndim) if ndim else st.none()
    several = st.lists(st.integers(-ndim, ndim - 1), max_size=ndim).map(tuple) if ndim else st.just(())
    return draw(st.one_of(st.none(), one) if single else st.one_of(st.none(), one, several))


def outcome(function):
    """Return a function's result as an array, or the kind of its error."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return np.asarray(function())
        except (ValueError, TypeError) as error:
            return type(error)


def assert_like_numpy(ours, numpys, op, dtype):
    if isinstance(numpys, type):
        assert isinstance(ours, type), f"NumPy raises {numpys.__name__}; this gives {ours}"
        assert issubclass(ours, (ValueError, TypeError))
        return
    assert not isinstance(ours, type), f"NumPy gives {numpys}; this raises {ours.__name__}"
    assert (ours.shape, ours.dtype) == (numpys.shape, numpys.dtype)
    if op == "mean" and dtype != "float64":
        np.testing.assert_allclose(ours, numpys, rtol=2 * np.finfo(numpys.dtype).eps)  # NumPy rounds sums of float16
    else:
        np.testing.assert_array_equal(ours, numpys)


def compare(data, op, *, numpy, dtype, **options):
    x = tamed(data.draw(arrays(dtype)), op)
    axis = axes_of(data.draw, x.ndim, single=op in ONE_AXIS)
    keepdims = data.draw(st.booleans())
    ours = outcome(lambda: lr.reduce(x, op, axis=axis, keepdims=keepdims, **options).numpy())
    theirs = outcome(lambda: numpy(x, axis=axis, keepdims=keepdims))
    assert_like_numpy(ours, theirs, op, dtype)


@pytest.fixture
def generated(cut, context):
    """Run a test's body on generated cases, few of them where each may compile a kernel."""

    def run(body):
        given(st.data())(
            settings(
                max_examples=cut(MOST_EXAMPLES, SIMULATED_EXAMPLES),
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                derandomize=True,
            )(body)
        )()

    return run


@pytest.mark.parametrize("op", NUMPY)
def test_types_shapes_errors_and_nan(generated, cut, op):
    def body(data):
        dtype = data.draw(st.sampled_from(cut(DTYPES, ["float32", "int8"])))
        compare(data, op, numpy=NUMPY[op], dtype=dtype)

    generated(body)


@pytest.mark.parametrize("op", IGNORING)
def test_what_ignores_nan(generated, cut, op):
    def body(data):
        dtype = data.draw(st.sampled_from(cut(["float16", "float32", "float64", "int8"], ["float32"])))
        compare(data, op, numpy=IGNORING[op], dtype=dtype, nan="ignore")

    generated(body)


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "any", "all", "mean"])
def test_masks(generated, cut, op):
    initial = {"initial": 1} if op in ("sum", "prod", "min", "max") else {}

    def body(data):
        dtype = data.draw(st.sampled_from(cut(DTYPES, ["float32"])))
        x = tamed(data.draw(arrays(dtype)), op)
        where = np.random.default_rng(data.draw(st.integers(0, 9))).random(x.shape[data.draw(st.integers(0, x.ndim)) :])
        axis = axes_of(data.draw, x.ndim, single=False)
        options = {"axis": axis, "where": np.asarray(where < 0.6), **initial}
        ours = outcome(lambda: lr.reduce(x, op, **options).numpy())
        assert_like_numpy(ours, outcome(lambda: NUMPY[op](x, **options)), op, dtype)

    generated(body)


@pytest.mark.parametrize("op", ["var", "std"])
@pytest.mark.parametrize("ddof", [0, 1])
def test_moments(generated, cut, op, ddof):
    def body(data):
        dtype = data.draw(st.sampled_from(cut(["float32", "float64", "int16", "bool"], ["float32"])))
        x = tamed(data.draw(arrays(dtype)), op)
        axis = axes_of(data.draw, x.ndim, single=False)
        ours = outcome(lambda: lr.reduce(x, op, axis=axis, ddof=ddof).numpy())
        theirs = outcome(lambda: getattr(np, op)(x, axis=axis, ddof=ddof))
        if isinstance(theirs, type) or isinstance(ours, type):
            assert isinstance(ours, type) == isinstance(theirs, type)
            return
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)

    generated(body)


@functools.cache
def result_types(op):
    return {dtype: outcome(lambda dtype=dtype: NUMPY[op](np.ones(3, dtype))).dtype for dtype in DTYPES}


@pytest.mark.parametrize("op", NUMPY)
def test_result_types_by_the_plan(context, op):
    for dtype, expected in result_types(op).items():
        types = lr.operators.resolve(op).types(lr.dtypes.element_type(dtype))
        assert types.result_dtype == expected, dtype
