"""Numba's arrays: those in its own memory and of no stream are read by their attributes, others by their protocol."""

import sys
from collections import Counter

import fake_numba
import numpy as np
import pytest
from fake_numba import DeviceNDArray, MemoryPointer

import lowlevel_reduce as lr
from lowlevel_reduce.arrays import libraries

X = np.arange(96, dtype=np.float32).reshape(4, 24)


@pytest.fixture
def memory(context, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba.cuda.cudadrv.devicearray", fake_numba.module())
    libraries._known.clear()  # of a library that another test stands in for
    return lr.DeviceArray.from_numpy(X, lr.Stream.legacy(context))


def test_one_of_numbas_own_is_read_in_the_legacy_stream_without_its_protocol(memory, driver):
    x = DeviceNDArray(memory)
    for _ in range(3):
        before = Counter(driver.calls)
        result = lr.sum(x, axis=1)
        calls = driver.calls - before
        assert result.numpy().tolist() == X.sum(axis=1).tolist()
        assert (result.stream.handle or 1) == 1
    assert calls == {"cuCtxGetId": 1, "cuLaunchKernelEx": 1}
    columns = DeviceNDArray(memory)
    columns.shape, columns.strides = (24, 4), columns.strides[::-1]
    assert lr.sum(columns, axis=0).numpy().tolist() == X.sum(axis=1).tolist()
    assert x.exports == columns.exports == 0


def test_results_are_written_to_it(memory):
    out = DeviceNDArray(lr.DeviceArray.from_numpy(np.zeros(4, np.float32), memory.stream))
    for _ in range(2):
        assert lr.sum(DeviceNDArray(memory), axis=1, out=out) is out
    assert out.array.numpy().tolist() == X.sum(axis=1).tolist()


@pytest.mark.parametrize("change", [{"stream": 5}, {"memory": MemoryPointer}], ids=["of a stream", "borrowed"])
def test_any_other_is_asked_by_its_protocol(memory, change):
    lr.sum(DeviceNDArray(memory))
    x = DeviceNDArray(memory, **change)
    with pytest.raises((BufferError, lr.UnsupportedError), match="DeviceNDArray exports nothing here"):
        lr.sum(x)
    assert x.exports
