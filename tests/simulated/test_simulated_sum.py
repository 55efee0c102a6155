"""The public functions on simulated GPUs other than the H200, on which all of tests/gpu runs, and what they leave."""

import numpy as np
import pytest

import lowlevel_reduce as lr


def data(dtype, n):
    rng = np.random.default_rng(n)
    return (rng.standard_normal(n) * 2.0 ** rng.integers(-8, 6, n)).astype(dtype)


def total(x, stream, **options):
    context = stream.context
    with lr.plan("sum", shape=x.shape, dtype=x.dtype, context=context, **options) as plan:
        launch = plan.bind(stream)
        source, result = lr.DeviceArray.from_numpy(x, stream), lr.DeviceArray.empty((), plan.result_dtype, stream)
        launch(source.pointer, result.pointer)
        value = result.numpy()
        launch.close()
        return value


def assert_bits(actual, expected):
    assert actual.dtype == expected.dtype
    assert actual.tobytes() == expected.tobytes(), f"{actual!r} is not {expected!r}"


@pytest.mark.parametrize("name", ["A100", "RTX 4090", "T4", "B200"])
def test_other_devices_have_the_same_bits(context, stream, name):
    x = data("float32", 30_000)
    assert name.split()[-1] in context.device.name
    for strategy in (None, "block", "tiles", "two_pass", "cooperative"):
        assert_bits(total(x, stream, strategy=strategy), lr.tree.reduce(x))
    if not context.device.supports_clusters:
        with pytest.raises(lr.UnsupportedError, match=r"need compute capability 9\.0"):
            total(x, stream, strategy="cluster")


@pytest.mark.parametrize("name", ["T4"])
@pytest.mark.parametrize("long", [0, 15, 16, 31])
def test_segments_without_an_instruction_for_the_longest_of_a_warp(stream, long):
    """Before compute capability 8.0; all lanes fold their segments in the way that the longest needs."""
    lengths = [3] * 32
    lengths[long] = 200
    x, offsets = data("float32", sum(lengths)), np.concatenate([[0], np.cumsum(lengths)])
    found = lr.segmented_reduce(x, offsets, accumulate="float32", stream=stream).numpy()
    for got, begin, end in zip(found, offsets, offsets[1:], strict=False):
        assert_bits(got, lr.tree.reduce(x[begin:end], accumulate="float32"))


def test_one_shot_and_nothing_left_behind(driver, context):
    x = data("float64", 5000)
    result = lr.sum(x)
    assert_bits(result.numpy(), lr.tree.reduce(x))
    assert float(result) == float(lr.tree.reduce(x))
    before = driver.leaks()
    for _ in range(3):
        lr.sum(x)
    assert driver.leaks() == before
