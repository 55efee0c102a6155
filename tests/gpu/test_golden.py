"""Golden results on a device: each case of tests/golden has the hash that was recorded, whichever kernels it takes."""

import numpy as np
import pytest
from placed import assert_same, reduced

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import ELEMENT_TYPES
from tests.golden import cases as golden

_, CASES = golden.read()
PARTS = 4
"""The cases of a type are divided among so many tests, for processes that run side by side."""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", [element.name for element in ELEMENT_TYPES])
def test_golden_results(stream, is_sample, dtype, part):
    chosen = [each for each in CASES.values() if each[0].dtype == dtype][part::PARTS]
    if is_sample:
        chosen = chosen[-1:]  # of most floating-point types a sum whose bits tell the order of all additions
    differing = []
    for case, recorded in chosen:
        results = on_device(case, stream)
        if golden.hashed(results) != recorded:
            differing.append((case, results))
    for case, results in differing:  # the first place that differs says more than a hash
        assert_same(results, golden.by_tree(case), case.name)
    assert not differing, "the tree differs, too: " + "; ".join(case.name for case, _ in differing)


def on_device(case, stream):
    """Return a case's results, one array for each."""
    array, axes, second = case.arrays()
    layout, options = case.shape_of_rows, dict(case.plain)
    if "accumulate" in case.options:
        options["accumulate"] = case.options["accumulate"]
    if layout.family in ("segments", "parts"):
        result = (in_segments if layout.family == "segments" else in_parts)(case, array, second, stream, options)
        results = result if isinstance(result, tuple) else (result,)
        return tuple(each.numpy() for each in results)
    results = reduced(
        array,
        case.operator,
        stream=stream,
        offset=case.offset_bytes,
        second=second,
        where=case.reduction.second == "mask",
        initial=case.initial,
        axis=axes,
        result_dtype=case.options.get("dtype"),
        **options,
    )
    return results if isinstance(results, tuple) else (results,)


def in_segments(case, array, second, stream, options):
    asked = {**options, "dtype": case.options.get("dtype"), "initial": case.initial}
    return lr.segmented_reduce(array, case.borders(), case.operator, stream=stream, **asked)


def in_parts(case, array, second, stream, options):
    masked = case.reduction.second == "mask"
    if second is not None:
        second = np.ascontiguousarray(np.broadcast_to(second, array.shape))
    if case.layout == "three shards":
        lengths = lr.shard_lengths(array.size, array.dtype, 3, chunk=case.element.leaf)
        borders = np.cumsum(lengths)[:-1]
        shards = [lr.DeviceArray.from_numpy(part, stream) for part in np.split(array, borders)]
        asked = {**options, "dtype": case.options.get("dtype"), "initial": case.initial}
        if second is not None:
            parts = [lr.DeviceArray.from_numpy(part, stream) for part in np.split(second, borders)]
            asked["where" if masked else "second"] = parts
        return lr.reduce_shards(shards, case.operator, **asked)
    beside = {} if second is None else {"where" if masked else "second": second}
    about = {"first": array[:1]} if case.reduction.pivot else {}
    ddof = options.pop("ddof", 0)
    roots = lr.partials(array, case.operator, chunk=case.chunk, stream=stream, **beside, **about, **options)
    return lr.combine_partials(
        roots,
        case.operator,
        length=array.size,
        chunk=case.chunk,
        dtype=array.dtype,
        result_dtype=case.options.get("dtype"),
        stream=stream,
        where=masked,
        initial=case.initial,
        ddof=ddof,
        **about,
        **options,
    )
