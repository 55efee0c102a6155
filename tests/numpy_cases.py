"""Generated cases whose types, shapes, errors and NaN rules are to be NumPy's, of values that every order sums alike.

What is compared is a function ``reduce(x, op, **options)`` that returns something for ``numpy.asarray``: the tree, or a
device.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Array = npt.NDArray[Any]
Reduce = Callable[..., Any]
Outcome = Array | type[Exception]

NUMPY: dict[str, Reduce] = {
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
    "var": np.var,
    "std": np.std,
}
MOMENTS = ["var", "std"]
PLAIN = [op for op in NUMPY if op not in MOMENTS]
IGNORING = {"sum": np.nansum, "mean": np.nanmean, "min": np.nanmin, "max": np.nanmax}
MASKED = ["sum", "prod", "min", "max", "any", "all", "mean"]
STARTED = ["sum", "prod", "min", "max"]
ONE_AXIS = ["argmin", "argmax"]

FLOATS = ["float16", "float32", "float64"]
DTYPES = [*FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
COMPLEX = ["complex64", "complex128"]
OF_COMPLEX = ["sum", "prod", "any", "all", "count_nonzero", "mean"]
NORMS = {"norm1": 1, "norm2": 2, "norm_inf": np.inf}
PAIRS = {"minmax": ("min", "max"), "mean_var": ("mean", "var")}
MOMENT_DTYPES = ["float32", "float64", "int16", "bool"]  # NumPy computes those of float16 in float16


def generate(body: Callable[[st.DataObject], None], examples: int) -> None:
    """Call ``body(data)`` with so many examples' data, the same ones every time."""
    given(st.data())(
        settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        )(body)
    )()


@st.composite
def arrays(draw: st.DrawFn, op: str, dtypes: Sequence[str]) -> Array:
    """Return an array of small integers, some of them NaN where the type has it, of any strides."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    low = 0 if dtype.kind in "ub" else -3
    x = rng.integers(low, 2 if dtype.kind == "b" else 4, tuple(2 * size for size in shape)).astype(dtype)
    if dtype.kind == "c":
        turned = np.array([0, 1, 1j, -1, -1j])  # whose products do not grow
        x = np.asarray(turned[np.abs(x.real).astype(int)] if op == "prod" else x + 1j * np.flip(x), dtype)
        x[rng.random(x.shape) < 0.1] = draw(st.sampled_from([2, np.nan, complex(0, np.nan), -0.0]))
    if dtype.kind == "f":
        for _ in range(draw(st.integers(0, 2))):
            x[rng.random(x.shape) < 0.2] = draw(st.sampled_from([np.nan, np.inf, -np.inf, -0.0]))
        if op == "prod":
            x = np.sign(x)  # NumPy, which multiplies in the type itself, would leave its range
    steps = draw(st.tuples(*[st.sampled_from([1, 2, -1, -2]) for _ in shape]))
    places: Any = (*(slice(None, None, step) for step in steps), ...)
    strided: Array = x[places].transpose(draw(st.permutations(range(len(shape)))))
    return strided


def axes(ndim: int, *, single: bool) -> st.SearchStrategy[Any]:
    """Return a strategy for an axis, some of them out of range, or unless `single` for several."""
    # Of a single element NumPy's sum takes axis 0 and its mean does not; here all take it.
    one = st.integers(-ndim - 1, ndim) if ndim else st.none()
    several = st.lists(st.integers(-ndim, ndim - 1), max_size=ndim).map(tuple) if ndim else st.just(())
    return st.one_of(st.none(), one) if single else st.one_of(st.none(), one, several)


def outcome(function: Callable[[], npt.ArrayLike]) -> Outcome:
    """Return a function's result as an array, or the kind of its error."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return np.asarray(function())
        except (ValueError, TypeError) as error:
            return type(error)


def assert_alike(ours: Outcome, numpys: Outcome, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Compare two outcomes: both errors, or the same types, shapes and, up to the tolerances, values."""
    if isinstance(numpys, type):
        assert isinstance(ours, type), f"NumPy raises {numpys.__name__}; this gives {ours}"
        return
    assert not isinstance(ours, type), f"NumPy gives {numpys}; this raises {ours.__name__}"
    assert (ours.shape, ours.dtype) == (numpys.shape, numpys.dtype)
    if rtol or atol:
        np.testing.assert_allclose(ours, numpys, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(ours, numpys)


def _tolerances(op: str, x: Array, theirs: Outcome) -> dict[str, float]:
    # NumPy rounds sums of float16 and divides those of float32 in float32; of float64 both are the same division.
    if isinstance(theirs, type) or x.dtype == np.float64 or op not in ("mean", *NORMS):
        return {}
    return {"rtol": 2 * float(np.finfo(theirs.dtype).eps)}


def compare(data: st.DataObject, reduce: Reduce, op: str, numpy: Reduce, dtypes: Sequence[str], **options: Any) -> None:
    """Compare one reduction with that of a function of NumPy's."""
    x = data.draw(arrays(op, dtypes))
    asked = {"axis": data.draw(axes(x.ndim, single=op in ONE_AXIS)), "keepdims": data.draw(st.booleans())}
    theirs = outcome(lambda: numpy(x, **asked))
    assert_alike(outcome(lambda: reduce(x, op, **asked, **options)), theirs, **_tolerances(op, x, theirs))


def compare_masked(data: st.DataObject, reduce: Reduce, op: str, dtypes: Sequence[str]) -> None:
    """Compare a reduction of what a mask of some of the last axes leaves, with an initial value where one is taken."""
    x = data.draw(arrays(op, dtypes))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    mask = np.asarray(rng.random(x.shape[data.draw(st.integers(0, x.ndim)) :]) < 0.6)
    asked = {"axis": data.draw(axes(x.ndim, single=False)), "where": mask}
    if op in STARTED:
        asked["initial"] = 1
    theirs = outcome(lambda: NUMPY[op](x, **asked))
    assert_alike(outcome(lambda: reduce(x, op, **asked)), theirs, **_tolerances(op, x, theirs))


def compare_moments(data: st.DataObject, reduce: Reduce, op: str, ddof: int, dtypes: Sequence[str]) -> None:
    """Compare a variance or a standard deviation; NumPy's of float32 are computed in float32."""
    x = data.draw(arrays(op, dtypes))
    asked = {"axis": data.draw(axes(x.ndim, single=False)), "ddof": ddof}
    theirs = outcome(lambda: NUMPY[op](x, **asked))
    assert_alike(outcome(lambda: reduce(x, op, **asked)), theirs, rtol=1e-5, atol=1e-6)


def compare_last(data: st.DataObject, reduce: Reduce, op: str, dtypes: Sequence[str]) -> None:
    """Compare the last of several smallest or largest elements with the first of the array back to front."""
    x = data.draw(arrays(op, dtypes))
    axis = data.draw(axes(x.ndim, single=True))

    def numpys() -> Any:
        length = x.size if axis is None else np.shape(x)[axis] if axis in range(-x.ndim, x.ndim) else 0
        back = np.flip(x) if axis is None else np.flip(x, axis)
        return length - 1 - NUMPY[op](back, axis=axis)

    assert_alike(outcome(lambda: reduce(x, op, axis=axis, last=True)), outcome(numpys))


def compare_norm(data: st.DataObject, reduce: Reduce, op: str, dtypes: Sequence[str]) -> None:
    """Compare a norm along one axis; those of other arrays are matrix norms in NumPy."""
    x = data.draw(arrays(op, dtypes))
    if x.ndim == 0:
        return
    axis, keepdims = data.draw(st.integers(-x.ndim - 1, x.ndim)), data.draw(st.booleans())
    order = NORMS[op] if x.size else 1  # of nothing all are zero; NumPy before 2.3 has no largest of nothing
    theirs = outcome(lambda: np.linalg.norm(x, order, axis=axis, keepdims=keepdims))
    ours = outcome(lambda: reduce(x, op, axis=axis, keepdims=keepdims))
    assert_alike(ours, theirs, **_tolerances(op, x, theirs))


def compare_pair(data: st.DataObject, reduce: Reduce, op: str, dtypes: Sequence[str]) -> None:
    """Compare the two results of an operator, each with NumPy's function for it."""
    x = data.draw(arrays(op, dtypes))
    asked = {"axis": data.draw(axes(x.ndim, single=False)), "keepdims": data.draw(st.booleans())}
    ours = outcome(lambda: np.stack(reduce(x, op, **asked)))
    theirs = outcome(lambda: np.stack([NUMPY[each](x, **asked) for each in PAIRS[op]]))
    assert_alike(ours, theirs, **({"rtol": 1e-5, "atol": 1e-6} if op == "mean_var" else {}))


def compare_logsumexp(data: st.DataObject, reduce: Reduce, dtypes: Sequence[str]) -> None:
    """Compare with NumPy's sum of logarithms, made in float64; the type is the elements', of integers float64."""
    x = data.draw(arrays("logsumexp", dtypes))
    asked = {"axis": data.draw(axes(x.ndim, single=True)), "keepdims": data.draw(st.booleans())}
    kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    theirs = outcome(lambda: np.logaddexp.reduce(x.astype(np.float64), **asked).astype(kind))
    assert_alike(outcome(lambda: reduce(x, "logsumexp", **asked)), theirs, rtol=4 * np.finfo(kind).eps, atol=1e-6)


def compare_dot(data: st.DataObject, reduce: Reduce, dtypes: Sequence[str]) -> None:
    """Compare a product of two arrays of one axis, of any strides, with NumPy's."""
    x = data.draw(arrays("dot", dtypes))
    x = x[(0,) * (x.ndim - 1)] if 0 not in x.shape[:-1] and x.ndim else np.zeros(0, x.dtype)
    y = np.where(np.arange(x.size) % 2, x[::-1], x)
    assert_alike(outcome(lambda: reduce(x, "dot", second=y)), outcome(lambda: np.dot(x, y)))
