"""The vectors of docs/tree.md on a device: what another implementation is told, every kernel gives, to the last bit."""

import numpy as np
import pytest
from placed import assert_near, reduced

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.operators import resolve
from tests.golden import vectors

_, VECTORS = vectors.read()
STRATEGIES = [
    {"strategy": "block"},
    {"strategy": "cluster", "cluster": 2},
    {"strategy": "tiles", "cluster": 1},
    {"strategy": "tiles", "cluster": 2},
    {"strategy": "two_pass"},
    {"strategy": "cooperative"},
]
TELLING = ["float8_e5m2", "float16", "bfloat16", "float32", "float64", "complex128"]


def on_device(vector, stream, **more):
    """Return a vector's results by a kernel, one array for each."""
    array, other = vectors.arrays(vector)
    options = vectors.options_of(vector)
    if "offsets" in vector:
        found = lr.segmented_reduce(array, np.array(vector["offsets"]), vector["op"], stream=stream, **options)
        return tuple(each.numpy() for each in (found if isinstance(found, tuple) else (found,)))
    result_dtype = options.pop("dtype", None)
    if "axis" in vector:
        options["axis"] = tuple(vector["axis"])
    found = reduced(array, vector["op"], stream=stream, second=other, result_dtype=result_dtype, **options, **more)
    return found if isinstance(found, tuple) else (found,)


def check(vector, stream, **more):
    found = on_device(vector, stream, **more)
    if not vector.get("near"):
        assert vectors.texts(found) == vector["results"], f"{vector} with {more}"
        return
    options = vector.get("options", {})
    reduction = resolve(vector["op"], where=options.get("where", False))
    types = reduction.types(element_type(vector["dtype"]), options.get("accumulate"), options.get("dtype"))
    raw = [bytes.fromhex("".join(each)) for each in vector["results"]]
    told = tuple(np.frombuffer(each, types.result_dtype).reshape(found[0].shape) for each in raw)
    assert_near(found, told, reduction, vector["shape"][0], types, str(vector))


@pytest.mark.parametrize(("op", "dtype"), list(dict.fromkeys((each["op"], each["dtype"]) for each in VECTORS)))
@pytest.mark.simulated_if(lambda op, dtype: op == "sum" or (7 * len(op) + len(dtype)) % 8 == 0)
def test_vectors(stream, cut, is_sample, op, dtype):
    """All of them on a GPU; a simulated one takes the last ones of all sums, and of few other operators and types."""
    chosen = [each for each in VECTORS if each["op"] == op and each["dtype"] == dtype]
    for vector in cut(chosen, chosen[-1:] if is_sample else chosen[-2:]):
        check(vector, stream)


@pytest.mark.parametrize("dtype", TELLING)
@pytest.mark.parametrize("configuration", STRATEGIES, ids=lambda each: "-".join(map(str, each.values())))
def test_every_strategy_has_the_order_of_the_vectors(stream, cut, configuration, dtype):
    """Sums at and around the borders of the tree's levels, whose bits tell the order of all additions."""
    expected = [each for each in VECTORS if each["op"] == "sum" and each["dtype"] == dtype and len(each["shape"]) == 1]
    expected = [each for each in expected if each["fill"] == "any" and "set" not in each and "offsets" not in each]
    leaf = element_type(dtype).leaf
    long = [each for each in expected if each["shape"][0] > leaf]
    assert len(long) >= 3
    for vector in cut(expected, long[:1] + long[-1:]):
        check(vector, stream, **configuration)
