"""Small results read by the host: the value behind all work of the stream, by three driver calls."""

import signal
import threading
from collections import Counter

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Buffer, Context, Stream, readback
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.slots import Slot

X = np.random.default_rng(5).standard_normal(5000).astype(np.float32)


@pytest.fixture
def only_simulated(machine):
    if machine != "simulated":
        pytest.skip("calls are counted, and refused to order, by the simulated driver")


@pytest.fixture
def result(stream):
    x = lr.DeviceArray.from_numpy(X, stream)
    lr.sum(x, stream=stream)
    result = lr.sum(x, stream=stream)
    assert isinstance(result._memory, Slot)
    return result


def calls(call):
    before = Counter(simulator.selected().calls)
    call()
    return simulator.selected().calls - before


READ = {"cuCtxGetCurrent": 1, "cuMemcpyAsync": 1, "cuStreamSynchronize": 1}


def test_a_value_is_three_driver_calls(only_simulated, result):
    assert calls(lambda: float(result)) == READ
    assert calls(result.numpy) == READ
    borrowed = lr.DeviceArray(result._buffer, result.dtype, result.shape, result.stream)
    assert calls(lambda: int(borrowed)) == READ


def test_another_context_is_current_before_and_after(context, device, result):
    expected = float(lr.tree.reduce(X))
    with Context.create(device) as other, other.pushed():
        assert float(result) == expected
        assert Context.current() == other


def test_nothing_is_current_in_another_thread(result):
    seen = []
    thread = threading.Thread(target=lambda: seen.extend([float(result), Context.current()]))
    thread.start()
    thread.join()
    assert seen == [float(lr.tree.reduce(X)), None]


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (64,), (65,), (0,)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "bool", "int8", "float8_e4m3fn"])
def test_arrays_come_back_whole_and_writable(stream, shape, dtype):
    values = np.random.default_rng(6).integers(0, 2, shape).astype(numpy_dtype(dtype))
    back = lr.DeviceArray.from_numpy(values, stream).numpy()
    assert (back.shape, back.dtype, back.tobytes()) == (shape, values.dtype, values.tobytes())
    back[...] = values  # it is the caller's own


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex128", "bool", "uint64"])
def test_an_item_is_that_of_numpy(stream, dtype):
    value = np.array(3).astype(numpy_dtype(dtype))
    for shape in ((), (1, 1)):
        item = lr.DeviceArray.from_numpy(value.reshape(shape), stream).item()
        assert (type(item), item) == (type(value.item()), value.item())


def test_the_most_that_is_read_so_is_read_whole(stream):
    values = np.arange(readback.MAX_BYTES, dtype=np.uint8)
    with Buffer.allocate_async(values.nbytes, stream) as buffer:
        buffer.copy_from(values, stream=stream)
        assert readback.read(buffer.pointer, values.nbytes, stream) == values.tobytes()
        assert readback.read(buffer.pointer + 3, 5, stream) == bytes(range(3, 8))


def test_a_closed_stream_is_refused(context):
    with Stream.create(context) as stream:
        array = lr.DeviceArray.from_numpy(X[:1], stream)
    with pytest.raises(ValueError, match="stream is closed"):
        float(array)


def test_a_closed_buffer_is_refused(stream):
    buffer = Buffer.allocate(4, stream.context)
    array = lr.DeviceArray(buffer, "float32", (), stream)
    buffer.close()
    with pytest.raises(ValueError, match="buffer is closed"):
        float(array)


@pytest.mark.parametrize("name", ["cuCtxGetCurrent", "cuMemcpyAsync", "cuStreamSynchronize"])
def test_a_refusal_is_raised_and_the_next_read_is_as_ever(only_simulated, result, name):
    float(result)
    simulator.selected().fail_call(name, 1, "CUDA_ERROR_ECC_UNCORRECTABLE")
    with pytest.raises(CudaError, match="ECC") as caught:
        float(result)
    assert caught.value.call == name
    assert float(result) == float(lr.tree.reduce(X))


def test_a_read_inside_of_a_read_does_not_disturb_it(only_simulated, stream, result, monkeypatch):
    """As by a signal's handler, after the outer copy and before its bytes are taken."""
    other = lr.DeviceArray.from_numpy(np.array(-7, np.float32), stream)
    float(other)
    driver, seen = simulator.selected(), []
    usual = driver._call

    def interrupted(name, *rest):
        if name == "cuStreamSynchronize" and not seen:
            seen.append(None)
            signal.raise_signal(signal.SIGUSR1)
        return usual(name, *rest)

    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(float(other)))
    monkeypatch.setattr(driver, "_call", interrupted)
    try:
        assert float(result) == float(lr.tree.reduce(X))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [None, -7.0]


def test_many_threads_read_at_the_same_time(context, cut):
    rounds, seen = cut(500, 20), []

    def work(value):
        with context.pushed(), Stream.create(context) as stream:
            array = lr.DeviceArray.from_numpy(np.array(value, np.float64), stream)
            seen.append({float(array) for _ in range(rounds)} == {value})

    threads = [threading.Thread(target=work, args=(float(value),)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 8
