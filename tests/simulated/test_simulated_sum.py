"""The real kernels on a simulated GPU, through the public functions, against the law, bit for bit."""

import functools

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import ELEMENT_TYPES, element_type

TYPES = [entry.name for entry in ELEMENT_TYPES]
CONFIGURATIONS = [
    {"strategy": "block"},
    *({"strategy": "cluster", "cluster": cluster} for cluster in (2, 8, 16)),
    *({"strategy": "tiles", "cluster": cluster} for cluster in (1, 2, 4, 8, 16)),
    {"strategy": "two_pass"},
    {"strategy": "cooperative"},
]


@functools.cache
def data(dtype, n):
    rng = np.random.default_rng(n)
    dtype = element_type(dtype).dtype
    if dtype.kind in "iu":
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, n, dtype, endpoint=True)
    if dtype.kind == "b":
        return rng.integers(0, 3, n, np.uint8).view(bool)
    return (rng.standard_normal(n) * 2.0 ** rng.integers(-8, 6, n)).astype(dtype)


def total(x, stream, *, offset=0, repeat=1, **options):
    """Sum through a plan, from an allocation that ends where the input ends: a byte too far is a fault."""
    context = stream.context
    with (
        lr.plan("sum", shape=x.shape, dtype=x.dtype, context=context, **options) as plan,
        lr.Buffer.allocate(x.nbytes + offset, context) as memory,
        lr.Buffer.allocate(plan.result_dtype.itemsize, context) as result,
    ):
        place = lr.Buffer.from_pointer(memory.pointer + offset, x.nbytes, context=context)
        place.copy_from(x)
        launch = plan.bind(stream)
        value = np.empty((), plan.result_dtype)
        for _ in range(repeat):
            result.fill(0xA5)
            launch(place.pointer, result.pointer)
        result.copy_to(value)
        launch.close()
        return value


def assert_bits(actual, expected):
    assert actual.dtype == expected.dtype
    assert actual.tobytes() == expected.tobytes(), f"{actual!r} is not {expected!r}"


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_bits_of_the_tree(stream, dtype, configuration):
    for n in (0, 1, 1023, 40_001):
        x = data(dtype, n)
        assert_bits(total(x, stream, repeat=2, **configuration), lr.tree.reduce(x))


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_and_accumulator(stream, dtype):
    x = data(dtype, 20_011)
    for accumulate in element_type(dtype).accumulators:
        assert_bits(total(x, stream, accumulate=accumulate), lr.tree.reduce(x, accumulate=accumulate))


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_any_alignment(stream, dtype):
    for n in (5, 9000):
        for offset in range(16):
            x = data(dtype, n)
            assert_bits(total(x, stream, offset=offset, strategy="tiles"), lr.tree.reduce(x))


@pytest.mark.parametrize("name", ["A100", "RTX 4090", "T4", "B200"])
def test_other_devices_have_the_same_bits(context, stream, name):
    x = data("float32", 30_000)
    assert name.split()[-1] in context.device.name
    for strategy in (None, "block", "tiles", "two_pass", "cooperative"):
        assert_bits(total(x, stream, strategy=strategy), lr.tree.reduce(x))
    if not context.device.supports_clusters:
        with pytest.raises(lr.UnsupportedError, match=r"need compute capability 9\.0"):
            total(x, stream, strategy="cluster")


def test_one_shot_and_nothing_left_behind(driver, context):
    x = data("float64", 5000)
    result = lr.sum(x)
    assert_bits(result.numpy(), lr.tree.reduce(x))
    assert float(result) == float(lr.tree.reduce(x))
    before = driver.leaks()
    for _ in range(3):
        lr.sum(x)
    assert driver.leaks() == before


def test_a_graph_replays_with_new_input(stream):
    with lr.plan("sum", shape=9000, dtype="float32", context=stream.context, strategy="tiles") as plan:
        launch = plan.bind(stream)
        source = lr.DeviceArray.empty((9000,), "float32", stream)
        result = lr.DeviceArray.empty((), "float32", stream)
        with lr.Graph.capture(stream) as graph:
            launch(source.pointer, result.pointer)
        with graph.instantiate() as executable:
            for seed in range(3):
                x = np.random.default_rng(seed).standard_normal(9000).astype(np.float32)
                lr.Buffer.from_pointer(source.pointer, x.nbytes).copy_from(x)
                executable.launch(stream)
                assert_bits(result.numpy(), lr.tree.reduce(x))
