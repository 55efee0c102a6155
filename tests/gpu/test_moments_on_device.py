"""Mean and variance on the device where squares overflow and where the first element is an outlier: the tree's bits."""

import itertools

import numpy as np
import pytest
from placed import assert_same, reduced, values

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type


def large(length, dtype, seed):
    """Return rows in which deviations with squares that overflow begin early, late, everywhere or nowhere."""
    rng = np.random.default_rng(seed)
    rows = np.stack([values("float64", length, seed + k) for k in range(5)])
    rows[0, 0] = rows[1, -1] = 1.2e154
    rows[2, rng.integers(0, length, 1 + length // 50)] *= 2.0**1000
    rows[3] *= 2.0**1010
    if dtype == "complex128":
        return rows + 1j * rows[:, ::-1]
    return rows


def expected(x, op, **options):
    found = lr.tree.reduce(x, op, **options)
    return tuple(found) if isinstance(found, tuple) else found


CASES = [("var", "float64"), ("std", "float64"), ("mean_var", "float64"), ("std", "complex128")]


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_squares_that_overflow(stream, cut, op, dtype):
    for length in cut([1, 2, 3, 64, 129, 513, 4097, 70_000], [3, 130, 1025]):
        x = large(length, dtype, length)
        for each, axis in ((x, 1), (np.ascontiguousarray(x.T), 0), (x[:1], None), (x[2:3], None), (x[:, ::-1], 1)):
            for offset in (0, 8) if axis != 0 else (0,):
                found = reduced(each, op, stream=stream, axis=axis, offset=offset)
                assert_same(found, expected(each, op, axis=axis), f"{op}, {length}, axis {axis}, offset {offset}")
    assert np.isfinite(np.asarray(found)).any()


def test_segments_and_chunks_whose_squares_overflow(stream):
    lengths = [3, 1, 33, 700, 7]
    x = large(sum(lengths), "float64", 7)[2]
    borders = np.cumsum([0, *lengths])
    found = lr.segmented_reduce(x, borders, "mean_var", stream=stream)
    parts = [lr.tree.reduce(x[a:b], "mean_var") for a, b in itertools.pairwise(borders)]
    for each, wanted in zip(found, zip(*parts, strict=True), strict=True):
        assert_same(each.numpy(), np.stack(wanted))
    leaf = element_type("float64").leaf
    x = large(5 * leaf + 9, "float64", 8)[2]
    roots = lr.partials(x, "std", chunk=leaf, stream=stream, first=x[:1])
    whole = lr.combine_partials(roots, "std", length=x.size, chunk=leaf, dtype=x.dtype, stream=stream, first=x[:1])
    assert_same(whole.numpy(), lr.tree.reduce(x, "std"))


MASKED = [(op, dtype) for op in ("var", "std", "mean_var") for dtype in ("float32", "float64", "uint8")]


@pytest.mark.parametrize(("op", "dtype"), [*MASKED, ("std", "complex64")])
def test_masks(stream, cut, op, dtype):
    for length in cut([1, 5, 64, 1000, 5003, 100_000], [5, 1000]):
        x = values(dtype, (3, length), length)
        mask = np.random.default_rng(length).random(x.shape) < 0.4
        mask[1] = False
        if dtype != "uint8":
            x[:, 0] = 1e30
            mask[:2, 0] = False
        for axis, each, kept in ((1, x, mask), (0, np.ascontiguousarray(x.T), np.ascontiguousarray(mask.T))):
            found = reduced(each, op, stream=stream, axis=axis, second=kept, where=True, ddof=1)
            assert_same(found, expected(each, op, axis=axis, where=kept, ddof=1), f"{length}, axis {axis}")


@pytest.mark.parametrize("result", ["float32", "float64"])
def test_chunks_serve_results_of_every_type(stream, result):
    leaf = element_type("float32").leaf
    x = values("float32", 5 * leaf + 77)
    x[0] = 2.0**30
    asked = {"chunk": leaf, "stream": stream, "first": x[:1]}
    roots = lr.partials(x, "mean_var", **asked)
    found = lr.combine_partials(roots, "mean_var", length=x.size, dtype=x.dtype, result_dtype=result, **asked)
    assert_same(tuple(each.numpy() for each in found), expected(x, "mean_var", dtype=result))


def test_masked_chunks(stream):
    leaf = element_type("float32").leaf
    x = values("float32", 9 * leaf + 5)
    mask = np.random.default_rng(1).random(x.size) < 0.5
    wanted = expected(x, "mean_var", where=mask, ddof=1)
    asked = {"chunk": 2 * leaf, "stream": stream, "where": mask}
    roots = lr.partials(x, "mean_var", **asked)
    asked["where"] = True
    found = lr.combine_partials(roots, "mean_var", length=x.size, dtype=x.dtype, ddof=1, **asked)
    assert_same(tuple(each.numpy() for each in found), wanted)
    parts, masks = (
        [lr.DeviceArray.from_numpy(a[:leaf], stream), lr.DeviceArray.from_numpy(a[leaf:], stream)] for a in (x, mask)
    )
    found = lr.reduce_shards(parts, "mean_var", where=masks, ddof=1)
    assert_same(tuple(each.numpy() for each in found), wanted)


TYPES = ["float64", "float32", "bfloat16", "int8", "int16", "int32", "uint32", "uint64", "bool"]


@pytest.mark.parametrize("dtype", TYPES)
def test_the_mean_beside_an_outlier(stream, cut, dtype):
    for length in cut([1, 5, 64, 1000, 5003, 100_000], [5, 1000]):
        x = values(dtype, (3, length), length)
        x[:, 0] = 1 if dtype == "bool" else np.iinfo(dtype).max if x.dtype.kind in "iu" else 2.0**30
        for axis, each in ((1, x), (0, np.ascontiguousarray(x.T))):
            found = reduced(each, "mean_var", stream=stream, axis=axis, result_dtype="float64")
            assert_same(found, expected(each, "mean_var", axis=axis, dtype="float64"), f"{length}, axis {axis}")
            accumulate = "float64" if x.dtype.kind not in "iub" else None
            mean = reduced(each, "mean", stream=stream, axis=axis, accumulate=accumulate, result_dtype="float64")
            assert_same(found[0], mean, f"the mean of {length}, axis {axis}")
