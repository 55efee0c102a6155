"""One row, one number: every operator that promises its bits, every type, however the row lies and among what."""

import numpy as np
import pytest
from placed import assert_same, reduced, values

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import ELEMENT_TYPES, element_type
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators import resolve
from lowlevel_reduce.strategy.whole import STRATEGIES

OPERATORS = ["sum", "prod", "min", "max", "argmin", "argmax", "mean", "any", "all", "norm1", "norm_inf"]
PARTS = 4
"""The operators of a type are divided among so many tests, for processes that run side by side."""

SIZES = {100: (7, 100_000), 5004: (7, 2000)}  # one step of a leaf, or less; more than one leaf of any type


def row_of(op, dtype, size, seed):
    """Return a row whose result says something of all its elements."""
    x = values(dtype, size, seed)
    kind = x.dtype.kind
    if op in ("any", "all"):
        x = np.full(size, op == "all").astype(x.dtype)
        x[seed - 7] = op == "any"  # in the last one's place, and others
    elif op == "prod" and kind in "iu":
        x |= 1  # of even ones the product is soon zero
    elif op == "prod" and kind != "b":
        x = np.where(np.arange(size) % 3, 1.125, 0.875) * np.where(np.asarray(x.real) < 0, -1, 1)
        x = (x * np.exp(1j * np.arange(size)) if kind == "c" else x).astype(element_type(dtype).dtype)
    return x


def among(row, other, *shape):
    """Return an array of that many other rows with the row at its first, middle and last place."""
    many = np.empty((*shape, row.size), row.dtype)
    many[:] = other
    flat = many.reshape(-1, row.size)
    places = (0, len(flat) // 2, len(flat) - 1)
    flat[list(places)] = row
    return many, places


def ways(row, other, batch):
    """Yield what the row lies in: an array, the axes to reduce, and the row's places among the results."""
    few, places = among(row, other, batch)
    yield few, 1, places
    yield np.ascontiguousarray(few.T), 0, places
    yield few[:, ::-1].copy()[:, ::-1], 1, places
    yield few.T.copy().T[::-1], 1, tuple(batch - 1 - place for place in places)
    inner, places = among(row, other, 3, 5)
    yield np.ascontiguousarray(inner.transpose(0, 2, 1)), 1, places
    several, places = among(row, other, 2, 3)
    yield np.ascontiguousarray(several.reshape(2, 3, 4, -1).transpose(0, 2, 1, 3)), (1, 3), places


def taken(op, dtype):
    try:
        resolve(op).types(element_type(dtype))
    except UnsupportedError:
        return False
    return True


def cases(dtype, number):
    """Yield the operators of a type, every other one with the other size."""
    for k, op in enumerate(op for op in OPERATORS if taken(op, dtype)):
        yield op, list(SIZES)[(k + number) % len(SIZES)]


@pytest.mark.simulated_if(lambda dtype, part: part == 0)  # one operator of each type
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", [element.name for element in ELEMENT_TYPES])
def test_every_operator(stream, cut, dtype, part):
    number = [element.name for element in ELEMENT_TYPES].index(dtype)
    every = list(cases(dtype, number))
    for op, size in cut(every[part::PARTS], [every[number % len(every)]]):
        row, other = (row_of(op, dtype, size, seed) for seed in (1, 2))
        # Rounding a float64 sum would hide the order of the additions.
        exact = {"accumulate": "float32"} if dtype == "float32" and op in ("sum", "prod", "mean", "norm1") else {}
        alone = same_however_it_lies(row, other, op, stream, cut, **exact)
        assert_same(alone, lr.tree.reduce(row, op, **exact), f"{op} of {size} {dtype}")


def same_however_it_lies(row, other, op, stream, cut, result=None, **options):
    """Check that a row's results, of type `result`, are the same bits wherever it lies, and among what; return them."""
    planned, called = {**options, "result_dtype": result}, {**options, "dtype": result}
    alone = reduced(row, op, stream=stream, **planned)
    what = f"{op} of {row.size} {row.dtype}"
    few, many = SIZES[row.size]
    for array, axis, places in ways(row, other, few):
        found = reduced(array, op, stream=stream, axis=axis, **planned)
        for place in places:
            assert_same(at(found, place), alone, f"{what} in {array.shape} {array.strides}, axis {axis}")
    crowd, places = among(row, other, cut(many, 20))
    for array, axis in ((crowd, 1), (np.ascontiguousarray(crowd.T), 0)):
        found = on_host(lr.reduce(array, op, axis=axis, stream=stream, **called))
        for place in places:
            assert_same(at(found, place), alone, f"{what} in a batch of {len(crowd)}, axis {axis}")
    for offset in {row.itemsize, 8, 1}:
        found = reduced(row, op, stream=stream, offset=offset, **planned)
        assert_same(found, alone, f"{what} at byte {offset}")
    backwards = row[::-1].copy()[::-1]
    assert_same(reduced(backwards, op, stream=stream, **planned), alone, f"{what} back to front")
    borders = np.cumsum([0, 3, row.size, 0, row.size])
    segments = np.concatenate([other[:3], row, row])
    found = on_host(lr.segmented_reduce(segments, borders, op, stream=stream, **called))
    for place in (1, 3):
        assert_same(at(found, place), alone, f"{what} as a segment")
    return alone


def on_host(results):
    return tuple(each.numpy() for each in results) if isinstance(results, tuple) else results.numpy()


def at(results, place):
    """Return one row's results."""
    if isinstance(results, tuple):
        return tuple(each.reshape(-1)[place] for each in results)
    return results.reshape(-1)[place]


FLOATS = [element.name for element in ELEMENT_TYPES if element.is_float]
SIMULATED = {("logsumexp", "float32", 5004), ("softmax_stats", "bfloat16", 100)}


# Of these operators NumPy does not give a GPU's bits, so no recorded result tells: the row by itself is the measure.
@pytest.mark.slow
@pytest.mark.simulated_if(lambda op, dtype, size: (op, dtype, size) in SIMULATED)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
@pytest.mark.parametrize("op", ["logsumexp", "softmax_stats"])
def test_exponentials_have_one_number_by_every_strategy(stream, cut, op, dtype, size):
    # The sum of exponentials is about 3/2, so that its logarithm does not hide the last bits, nor does its type.
    x = np.random.default_rng(1).standard_normal(size) - np.log(2 * size)
    x[size // 2] = 0
    row, result = x.astype(element_type(dtype).dtype), "float64" if dtype in ("float64", "int32") else "float32"
    alone = same_however_it_lies(row, values(dtype, size), op, stream, cut, result)
    what = f"{op} of {size} {dtype}"
    for strategy in STRATEGIES:
        found = reduced(row, op, stream=stream, strategy=strategy, result_dtype=result)
        assert_same(found, alone, f"{what} by {strategy}")
    leaf = element_type(dtype).leaf
    for chunk in cut((leaf, 2 * leaf, 4 * leaf), (leaf,)):
        roots = lr.partials(row, op, chunk=chunk, stream=stream)
        folded = lr.combine_partials(
            roots, op, length=size, chunk=chunk, dtype=row.dtype, result_dtype=result, stream=stream
        )
        assert_same(on_host(folded), alone, f"{what} in chunks of {chunk}")
