"""Launches and one-shot calls without end: results stay right, and neither the device's nor Python's memory fills."""

import contextlib
import gc

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.driver import binding
from tests.fuzz.endurance import Grown, shapes

CHECKS = 10  # of the results of a run
ROOM = 32 << 20  # bytes that the driver itself may take meanwhile, in its own steps


def free_bytes(machine):
    """Return how much of the device's memory is free, by the driver."""
    return int(binding.call("cuMemGetInfo")[0]) if machine == "cuda" else 0


@pytest.fixture
def enduring(machine, context):
    """Give what is called when everything that is made once has been made; in the end nothing may have grown.

    Nobody else may take the device's memory meanwhile.
    """
    before = []

    def begin():
        context.synchronize()
        gc.collect()
        before.append((free_bytes(machine), Grown()))

    yield begin
    free, grown = before.pop()
    context.synchronize()
    gc.collect()
    assert free - free_bytes(machine) <= ROOM
    if machine == "cuda":
        assert grown.found(100_000) == []


@pytest.mark.soak
def test_bound_launches_without_end(cut, stream, enduring):
    count = cut(1_000_000, 100)
    x = np.random.default_rng(1).standard_normal(5000).astype(np.float32)
    expected = lr.tree.reduce(x).tobytes()
    with lr.plan("sum", shape=x.shape, dtype="float32", context=stream.context) as plan:
        dtype = plan.result_dtype
        source, result = lr.DeviceArray.from_numpy(x, stream), lr.DeviceArray.empty((), dtype, stream)
        with contextlib.closing(plan.bind(stream)) as bound:
            bound(source.pointer, result.pointer)
            enduring()
            for _ in range(CHECKS):
                for _ in range(count // CHECKS):
                    bound(source.pointer, result.pointer)
                assert result.numpy().tobytes() == expected
                result._buffer.fill(0xFF, stream=stream)


@pytest.mark.soak
def test_one_shot_calls_of_many_shapes_without_end(cut, stream, enduring):
    count, times = cut(100_000, 100), 10
    values = np.random.default_rng(2).standard_normal(40_000).astype(np.float32)
    memory = lr.DeviceArray.from_numpy(values, stream)
    draw, few = shapes(3), cut(3000, 5)  # so many shapes fill all that is kept from call to call
    for number in range(count // times + few):
        if number == few:
            enduring()
        shape, axis = next(draw)
        x = lr.DeviceArray.empty(shape, np.float32, stream)
        x._buffer.copy_from(memory._buffer, stream=stream, size_bytes=x.nbytes)
        for _ in range(times):
            found = lr.sum(x, axis=axis, stream=stream)
        if number % (count // times // CHECKS) == 0:
            expected = lr.tree.reduce(values[: x.size].reshape(shape), axis=axis)
            assert found.numpy().tobytes() == np.asarray(expected).tobytes(), (number, shape, axis)
