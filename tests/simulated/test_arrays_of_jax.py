"""JAX's arrays: computed ones are read by their attributes, others by their protocol, and none is written to."""

import sys
from collections import Counter

import fake_jax
import numpy as np
import pytest
from fake_jax import ArrayImpl, Device, Sharding

import lowlevel_reduce as lr
from lowlevel_reduce.arrays import libraries

X = np.arange(96, dtype=np.float32).reshape(4, 24)


@pytest.fixture
def memory(context, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", fake_jax.module())
    libraries._known.clear()  # of a library that another test stands in for
    stream = lr.Stream.legacy(context)
    return lr.DeviceArray.from_numpy(X, stream)


def test_a_computed_one_is_read_in_the_legacy_stream_without_its_protocol(memory, driver):
    x = ArrayImpl(memory)
    for _ in range(3):
        before = Counter(driver.calls)
        result = lr.sum(x, axis=1)
        calls = driver.calls - before
        assert result.numpy().tolist() == X.sum(axis=1).tolist()
        assert (result.stream.handle or 1) == 1
    assert calls == {"cuCtxGetId": 1, "cuLaunchKernelEx": 1}
    assert float(lr.dot(x, x)) == (X * X).sum()
    assert lr.softmax(x).shape == X.shape
    assert x.exports == 0


@pytest.mark.parametrize(
    "change",
    [
        {"sharding": Sharding(frozenset({Device(), Device(1)}))},
        {"sharding": Sharding(frozenset({Device()}), "pinned_host")},
        {"sharding": Sharding(frozenset({Device(platform="cpu", version="cpu")}))},
        {"sharding": Sharding(frozenset({Device(version="PJRT C API\nrocm 60300")}))},
        {"order": (1, 0)},
    ],
    ids=["two devices", "host memory", "a processor", "no CUDA", "by columns"],
)
def test_any_other_is_asked_by_its_protocol(memory, change):
    x = ArrayImpl(memory, **change)
    with pytest.raises((BufferError, lr.UnsupportedError), match="ArrayImpl"):
        lr.sum(x)
    assert x.exports == 1


@pytest.mark.parametrize("state", [{"computed": False}, {"deleted": True}], ids=str)
def test_one_that_is_not_there_is_asked_by_its_protocol(memory, state):
    x = ArrayImpl(memory)
    lr.sum(x)
    vars(x).update(state)
    with pytest.raises(BufferError, match="ArrayImpl exports nothing here"):
        lr.sum(x)
    assert (x.exports, x.waits) == (1, 0)


def test_none_is_written_to(memory):
    x, out = ArrayImpl(memory), ArrayImpl(lr.DeviceArray.from_numpy(np.zeros(4, np.float32), memory.stream))
    for _ in range(2):
        with pytest.raises(ValueError, match="out is read-only"):
            lr.sum(x, axis=1, out=out)
        with pytest.raises(ValueError, match="read-only"):
            lr.softmax(x, out=x)
    with lr.plan("sum", shape=X.shape, dtype="float32", axis=1) as plan:
        launch = plan.bind(memory.stream)
        with pytest.raises(ValueError, match="the result of the launch is read-only: JAX's arrays are not written to"):
            launch(x, out)
    assert not out.array.numpy().any()
    assert memory.numpy().tolist() == X.tolist()


def test_a_launch_waits_on_the_host_for_one_that_is_being_computed(memory):
    x = ArrayImpl(memory)
    x.computed = False
    result = lr.DeviceArray.empty((4,), "float32", memory.stream)
    with lr.plan("sum", shape=X.shape, dtype="float32", axis=1) as plan:
        launch = plan.bind(memory.stream)
        launch(x, result)
        assert (x.waits, result.numpy().tolist()) == (1, X.sum(axis=1).tolist())
        x.deleted = True
        with pytest.raises(TypeError, match="or an array on the device, not"):
            launch(x, result)
