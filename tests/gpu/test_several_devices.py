"""Several devices in one process: each call works on the device of its stream, and nothing of two devices mixes."""

import contextlib

import numpy as np
import pytest
from cuda.bindings import driver as cu
from in_threads import in_threads

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Buffer, Context, Device, Graph, MemoryPool, Stream, binding
from lowlevel_reduce.driver.peers import reaches

pytestmark = pytest.mark.bindings

N = 30_000
X = np.random.default_rng(3).standard_normal(N).astype(np.float32)
BITS = lr.tree.reduce(X).tobytes()


@pytest.fixture
def devices(machine):
    """Two devices: real ones, or a driver of its own that simulates two."""
    with contextlib.ExitStack() as stack:
        if machine == "simulated":
            stack.enter_context(simulator.use("H200", devices=2))
        if Device.count() < 2:
            pytest.skip("needs two devices")
        yield Device.all()[:2]


@pytest.fixture(params=["primary", "create"])
def contexts(request, devices):
    """A context on each device, none of them current."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(getattr(Context, request.param)(device)) for device in devices]


@pytest.fixture
def streams(contexts):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Stream.create(context)) for context in contexts]


def test_devices_are_told_apart(devices):
    assert [device.ordinal for device in devices] == [0, 1]
    assert devices[0] != devices[1]
    assert devices[0].uuid != devices[1].uuid


def test_a_plan_of_each_device(contexts, streams):
    for i in (0, 1):
        context, stream = contexts[i], streams[i]
        assert context.device.ordinal == i
        with (
            contexts[1 - i].pushed(),
            lr.plan("sum", shape=N, dtype="float32", context=context) as plan,
            Buffer.allocate(X.nbytes, context) as source,
            Buffer.allocate(4, context) as result,
        ):
            source.copy_from(X)
            bound = plan.bind(stream)
            bound.check(source.pointer, result.pointer)
            with Graph.capture(stream) as graph:
                bound(source.pointer, result.pointer)
            with graph, graph.instantiate() as executable:
                executable.launch(stream)
                value = np.empty((), np.float32)
                result.copy_to(value, stream=stream)
                stream.synchronize()
            bound.close()
            assert value.tobytes() == BITS
            assert Context.current() == contexts[1 - i]


def test_the_one_shot_functions_follow_their_stream(contexts, streams):
    before = Context.current()
    arrays = [lr.DeviceArray.from_numpy(X, stream) for stream in streams]
    for _ in range(3):  # the first call plans, the later ones find that plan, of their own device
        for array, stream, context in zip(arrays, streams, contexts, strict=True):
            result = lr.sum(array, stream=stream)
            assert result.context == context
            assert result.__dlpack_device__() == (2, context.device.ordinal)
            assert result.numpy().tobytes() == BITS
    assert Context.current() == before


def test_without_a_stream_the_current_context_decides(contexts):
    for context in contexts:
        with context.pushed():
            result = lr.sum(X)
            assert result.context.device == context.device
            assert result.numpy().tobytes() == BITS


def test_memory_of_another_device_is_refused(contexts, streams):
    arrays = [lr.DeviceArray.from_numpy(X, stream) for stream in streams]
    with lr.plan("sum", shape=N, dtype="float32", context=contexts[0]) as plan, plan_bound(plan, streams[0]) as bound:
        with Buffer.allocate(4, contexts[0]) as result, pytest.raises(ValueError, match="is on device 1; this runs on"):
            bound.check(arrays[1].pointer, result.pointer)
        with pytest.raises(ValueError, match="is on device 1"):
            bound.check(arrays[0].pointer, arrays[1].pointer)
        with pytest.raises(ValueError, match="the stream is of context"):
            plan.bind(streams[1])
        with Buffer.allocate(plan.workspace_bytes, contexts[1]) as workspace:
            with pytest.raises(ValueError, match="the workspace"):
                plan.bind(streams[0], workspace)
    with pytest.raises(ValueError, match=r"device|context"):
        lr.sum(arrays[1], stream=streams[0])
    out = lr.DeviceArray.empty((), "float32", streams[1])
    with pytest.raises(ValueError, match=r"device|context"):
        lr.sum(arrays[0], stream=streams[0], out=out)


@pytest.mark.parametrize("pooled", [False, True], ids=["plain", "pooled"])
def test_copies_from_one_device_to_the_other(contexts, streams, pooled):
    there, here = (
        Buffer.allocate_async(X.nbytes, stream) if pooled else Buffer.allocate(X.nbytes, context)
        for context, stream in zip(contexts, streams, strict=True)
    )
    back = np.empty_like(X)
    with there, here:
        there.copy_from(X, stream=streams[0])
        streams[1].follow(streams[0])
        here.copy_from(there, stream=streams[1])
        here.copy_to(back, stream=streams[1])
        streams[1].synchronize()
        assert back.tobytes() == X.tobytes()
        here.fill(0, stream=streams[1])
        here.copy_to(there, stream=streams[1], size_bytes=8)
        # Copies without a stream are made in the legacy one, which does not wait for streams that are non-blocking.
        streams[1].synchronize()
        here.copy_from(there)
        here.copy_to(back)
        assert back.tobytes() == bytes(8) + X.tobytes()[8:]


@contextlib.contextmanager
def plan_bound(plan, stream):
    bound = plan.bind(stream)
    try:
        yield bound
    finally:
        bound.close()


def test_pools_lie_on_the_device_of_their_stream(devices, streams):
    for device, stream in zip(devices, streams, strict=True):
        with Buffer.allocate_async(64, stream) as buffer:
            assert lr.driver.pointer_info(buffer.pointer).device_ordinal == device.ordinal
        with MemoryPool.create(device) as pool, pool.allocate(64, stream) as buffer:
            assert lr.driver.pointer_info(buffer.pointer).device_ordinal == device.ordinal


def test_a_pool_of_another_device_is_refused(streams):
    with MemoryPool.create(1) as pool, pytest.raises(ValueError, match=r"of Device\(1\), the stream of Device\(0\)"):
        pool.allocate(16, streams[0])


def test_a_thread_for_each_device(contexts):
    def work(context):
        with Stream.create(context) as stream:
            values = {lr.sum(X, stream=stream).numpy().tobytes() for _ in range(3)}
        return values, Context.current()

    assert in_threads(*(lambda context=context: work(context) for context in contexts)) == [({BITS}, None)] * 2


def test_closing_one_device_leaves_the_other(devices):
    with Context.create(devices[1]) as other, Stream.create(other) as stream:
        with Context.create(devices[0]) as mine, Stream.create(mine) as ending:
            assert lr.sum(X, stream=ending).numpy().tobytes() == BITS
        assert lr.sum(X, stream=stream).numpy().tobytes() == BITS
    with pytest.raises(ValueError, match="closed"):
        lr.sum(X, stream=ending)


def test_a_driver_counts_what_each_device_has_left(machine, contexts):
    def free(context):
        with context.pushed():
            return int(binding.call("cuMemGetInfo")[0])

    # Other processes take and give back memory of a real device meanwhile, far less than half of this.
    size, others = (256 << 20, 0) if machine == "simulated" else (16 << 30, 8 << 30)
    before = [free(context) for context in contexts]
    with Buffer.allocate(size, contexts[1]):
        assert before[1] - free(contexts[1]) >= size - others
        assert before[0] - free(contexts[0]) < size - others


def test_connected_devices_reach_each_other_whoever_enabled_it(contexts):
    first, second = contexts
    assert reaches(first, first)
    if not reaches(second, first):
        pytest.skip("the devices are not connected by NVLink")
    with first.pushed():
        binding.call("cuCtxEnablePeerAccess", second.handle, 0)
    for _ in range(2):
        assert reaches(first, second)
        assert reaches(second, first)


@pytest.mark.parametrize("lacking", ["no connection", "a bus alone", "too many connections"])
def test_devices_that_are_not_connected_do_not_reach_each_other(machine, contexts, monkeypatch, lacking):
    if machine != "simulated":
        pytest.skip("real devices are connected or not")
    functions = simulator.selected()._functions
    if lacking == "no connection":
        monkeypatch.setitem(functions, "cuDeviceCanAccessPeer", lambda *_: (cu.CUresult.CUDA_SUCCESS, 0))
    elif lacking == "a bus alone":
        monkeypatch.setitem(functions, "cuDeviceGetP2PAttribute", lambda *_: (cu.CUresult.CUDA_SUCCESS, 0))
    else:
        monkeypatch.setitem(functions, "cuCtxEnablePeerAccess", lambda *_: (cu.CUresult.CUDA_ERROR_TOO_MANY_PEERS,))
    assert not reaches(*contexts)
    assert reaches(contexts[0], contexts[0])
