"""Small results read by the host: the value behind all work of the stream, by three driver calls."""

import gc
import signal
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from in_threads import in_threads

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.arrays.results import Cell
from lowlevel_reduce.driver import Buffer, Context, Graph, Stream, binding, readback
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.errors import CudaError, ReduceError

pytestmark = pytest.mark.bindings

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
    assert isinstance(result._memory, Cell)
    return result


def calls(call):
    before = Counter(simulator.selected().calls)
    call()
    return simulator.selected().calls - before


READ = {"cuCtxGetId": 1, "cuMemcpyDtoHAsync": 1, "cuStreamSynchronize": 1}


def test_a_value_is_three_driver_calls(only_simulated, result):
    float(result)
    assert calls(lambda: float(result)) == READ
    assert calls(result.numpy) == READ
    borrowed = lr.DeviceArray(result._buffer, result.dtype, result.shape, result.stream)
    assert calls(lambda: int(borrowed)) == READ


def test_another_context_is_current_before_and_after(context, device, result):
    expected = float(lr.tree.reduce(X))
    with Context.create(device) as other, other.pushed():
        assert float(result) == expected
        assert Context.current() == other


def test_a_value_is_read_in_the_context_of_its_stream(only_simulated, device, result):
    """The handle of a default stream means another one in each context."""
    with Context.create(device) as other, other.pushed():
        float(result)
        assert calls(lambda: float(result))["cuCtxPushCurrent"] == 1


def test_nothing_is_current_in_another_thread(result):
    assert in_threads(lambda: (float(result), Context.current())) == [(float(lr.tree.reduce(X)), None)]


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


def test_more_than_that_is_waited_for_too(only_simulated, stream):
    array = lr.DeviceArray.from_numpy(X, stream)
    read = calls(array.numpy)
    assert (read["cuMemcpyAsync"] + read["cuMemcpyDtoHAsync"], read["cuStreamSynchronize"]) == (1, 1)


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


@pytest.mark.parametrize("name", ["cuCtxGetId", "cuMemcpyDtoHAsync", "cuStreamSynchronize"])
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
    rounds = cut(500, 20)

    def work(value):
        with context.pushed(), Stream.create(context) as stream:
            array = lr.DeviceArray.from_numpy(np.array(value, np.float64), stream)
            return {float(array) for _ in range(rounds)}

    assert in_threads(*(partial(work, value) for value in range(8))) == [{float(value)} for value in range(8)]


def test_page_locked_memory_is_asked_for_once_and_goes_with_its_context(only_simulated, device):
    left = []
    for _ in range(4):
        with Context.create(device) as context, Stream.create(context) as stream:
            array = lr.DeviceArray.from_numpy(X[:1], stream)
            assert calls(array.item)["cuMemHostAlloc"] == 1
            assert calls(array.item)["cuMemHostAlloc"] == 0
            del array
        left.append(simulator.selected().leaks())
    assert left[0] == left[-1]
    assert sum(not reads.is_over for reads in binding.selected().kept["reads"].values()) <= 1, "the primary one's"
    assert len(binding.selected().kept["reads"]) <= 2, "what is over goes when the next is made"


@pytest.mark.parametrize("create", [lambda device: Context.green(device, 8), Context.create])
def test_a_context_that_is_let_go_of_is_not_kept_by_a_read(only_simulated, device, context, create):
    gc.collect()
    before = simulator.selected().leaks()
    share = create(device)
    stream = Stream.create(share)
    array = lr.DeviceArray.from_numpy(X[:1], stream)
    assert float(array) == X[0]
    del share, stream, array
    gc.collect()
    now = simulator.selected().leaks()  # what an earlier test's reads had kept may be gone as well
    assert all(now[kind] <= before.get(kind, 0) for kind in now), (now, before)


def test_a_context_is_read_from_again_after_one_of_its_objects_was_closed(only_simulated, device, primary):
    left = []
    for _ in range(3):
        with Context.primary(device) as context, Stream.create(context) as stream:
            array = lr.DeviceArray.from_numpy(X[:1], stream)
            float(array)
            assert calls(array.item)["cuMemHostAlloc"] == 0
            (place,) = [reads for reads in binding.selected().kept["reads"].values() if reads.number == context.id]
            assert len(place._free) == readback._PLACES - 1, "page-locked memory is used"
            del array, place
        left.append(simulator.selected().leaks())
    assert left[1] == left[2]


def test_a_context_is_not_closed_while_it_is_read_from(only_simulated, device, monkeypatch):
    driver = simulator.selected()
    usual, seen = driver._call, []

    def closing(name, *rest):
        if name == "cuStreamSynchronize" and not seen:
            seen.append(name)
            with pytest.raises(ReduceError, match="cannot be closed"):
                context.close()
            assert float(array) == X[0], "as a signal's handler would read"
        return usual(name, *rest)

    with Context.create(device) as context, Stream.create(context) as stream:
        array = lr.DeviceArray.from_numpy(X[:1], stream)
        float(array)
        asked = driver.calls["cuMemHostAlloc"]
        monkeypatch.setattr(driver, "_call", closing)
        assert float(array) == X[0]
        assert float(array) == X[0]
        assert driver.calls["cuMemHostAlloc"] == asked, "the page-locked memory that there was serves on"
        array = None
    assert seen
    assert context.is_closed


def test_the_driver_is_not_asked_about_a_context_that_was_closed(only_simulated, device, monkeypatch):
    """It may crash on such a handle."""
    driver = simulator.selected()
    usual, asked, closed = driver._call, [], set()

    def noting(name, routine, nothing, args):
        if name == "cuCtxGetId":
            asked.extend(args)
        return usual(name, routine, nothing, args)

    monkeypatch.setattr(driver, "_call", noting)
    for _ in range(3):
        with Context.create(device) as context, Stream.create(context) as stream:
            assert lr.DeviceArray.from_numpy(X[:1], stream).item() == X[0]
            handle = context.handle
        assert handle in asked
        assert not closed & set(asked)
        asked.clear()
        closed.add(handle)


def test_without_page_locked_memory_values_are_read_all_the_same(only_simulated, device, caplog):
    with Context.create(device) as context, Stream.create(context) as stream:
        array = lr.DeviceArray.from_numpy(X[:1], stream)
        simulator.selected().fail_call("cuMemHostAlloc", 1, "CUDA_ERROR_OUT_OF_MEMORY")
        assert [float(array), float(array)] == [X[0]] * 2
        assert "cuMemHostAlloc failed with CUDA_ERROR_OUT_OF_MEMORY" in caplog.text
        del array


def test_more_reads_at_a_time_than_there_is_page_locked_memory_for(stream, monkeypatch):
    array = lr.DeviceArray.from_numpy(X[:1], stream)
    with Context.create(stream.context.device) as context, Stream.create(context) as other:
        monkeypatch.setattr(readback, "_PLACES", 2)
        array = lr.DeviceArray.from_numpy(X[:1], other)
        taken = [readback._taken(binding.selected(), context) for _ in range(4)]
        assert float(array) == X[0]
        for reads, copy in taken:
            assert reads.number == context.id
            with context.pushed():
                assert reads.run(copy, array.pointer, 4, other.handle) == X[:1].tobytes()
        del array, taken, reads, copy


@pytest.fixture
def capture(device):
    """A launch in a stream of its own, which can be captured, and in another stream what it reads and writes."""
    with Context.create(device) as context, context.pushed(), Stream.create(context) as stream:
        seen = SimpleNamespace(array=lr.DeviceArray.from_numpy(X, stream), out=lr.DeviceArray.from_numpy(X[0], stream))
        stream.synchronize()
        with Stream.create(context) as seen.stream, lr.plan("sum", shape=X.shape, dtype="float32") as plan:
            seen.launch = partial(plan.bind(seen.stream), seen.array.pointer, seen.out.pointer)
            yield seen
            vars(seen).clear()


def check_replay(capture, graph):
    with graph, graph.instantiate() as executable:
        executable.launch(capture.stream)
        capture.stream.synchronize()
        assert capture.out.item() == float(lr.tree.reduce(X))


def test_the_first_read_during_a_relaxed_capture_does_not_spoil_it(capture):
    with Graph.capture(capture.stream, mode="relaxed") as graph:
        capture.launch()
        assert capture.array.numpy().tobytes() == X.tobytes()
        assert capture.out.item() == X[0]
    check_replay(capture, graph)


def read_in_a_capture(capture, mode, read):
    with Graph.capture(capture.stream, mode=mode):
        capture.launch()
        with pytest.raises(CudaError) as caught:
            read()
        assert caught.value.name == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"


@pytest.mark.parametrize("was_read", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("mode", ["thread_local", "global"])
def test_a_read_during_a_capture_is_refused_and_spoils_it(capture, mode, was_read):
    """Whichever stream it waits for."""
    array, out = capture.array, capture.out
    if was_read:
        out.item()
    for read in (out.item, out.numpy, array.numpy):
        with pytest.raises(CudaError, match="STREAM_CAPTURE_INVALIDATED"):
            read_in_a_capture(capture, mode, read)
        assert array.numpy().tobytes() == X.tobytes()
        assert out.item() == out.numpy() == X[0], "nothing was launched"
    (place,) = [reads for reads in binding.selected().kept["reads"].values() if reads.number == out.context.id]
    assert len(place.idle) + len(place._free) == readback._PLACES, "no page-locked memory is lost"
    with Graph.capture(capture.stream, mode=mode) as graph:
        capture.launch()
    check_replay(capture, graph)


def test_a_refused_wait_leaves_its_memory_to_the_copy(only_simulated, device):
    """Which may still be under way."""
    with Context.create(device) as context, Stream.create(context) as stream:
        array = lr.DeviceArray.from_numpy(X[:1], stream)
        reads, copy = readback._taken(binding.selected(), context)
        reads.idle.append(copy)
        simulator.selected().fail_call("cuStreamSynchronize", 1, "CUDA_ERROR_UNKNOWN")
        with pytest.raises(CudaError):
            float(array)
        assert float(array) == X[0]
        assert copy not in reads.idle
        del array
