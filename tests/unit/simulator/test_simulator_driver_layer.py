"""The driver layer's nouns on the simulated driver, and every call of a whole path failing once."""

import ctypes
import gc
import itertools

import numpy as np
import pytest
from cuda.bindings import driver as cu
from test_simulator_driver import ENGINE, PTX

from lowlevel_reduce.driver import (
    BoundKernel,
    Buffer,
    Context,
    Device,
    Event,
    Graph,
    LaunchConfig,
    Library,
    Stream,
    binding,
    launch,
    occupancy,
    pointer_info,
    version,
)
from lowlevel_reduce.errors import CudaError, UnsupportedError
from lowlevel_reduce.simulator import SimulatedDriver
from lowlevel_reduce.simulator.devices import by_name

SIGNATURE = "QII"
_numbers = itertools.count()


@pytest.fixture
def select():
    """Select a fresh simulated driver with the stand-in machine; what the test leaves current is taken off."""
    blocks = []

    def select(name="H200"):
        driver = SimulatedDriver(by_name(name), engine=ENGINE)
        own = f"stand-in {next(_numbers)}"
        binding.register(own, lambda: driver)
        block = binding.use(own)
        block.__enter__()
        blocks.append(block)
        return driver

    yield select
    for block in reversed(blocks):
        block.__exit__(None, None, None)


@pytest.fixture
def driver(select):
    return select()


@pytest.fixture
def context(driver):
    with Context.create() as context:
        yield context
    assert driver.leaks() == {}
    assert Context.current() is None


@pytest.fixture
def kernel(context):
    with Library.load(PTX, name="stand-in") as library:
        yield library.kernel("add")


def values(buffer):
    array = np.empty(len(buffer) // 4, np.uint32)
    buffer.copy_to(array)
    return array.tolist()


def test_device_and_version(driver):
    device = Device(0)
    assert version() == (13, 0)
    assert Device.count() == 1
    assert (device.name, device.architecture, device.multiprocessor_count) == ("NVIDIA H200", "sm_90", 132)
    assert device.supports_clusters
    assert device.supports_cooperative_launch
    assert device.supports_memory_pools
    assert device.peak_bandwidth == pytest.approx(4.8143e12, rel=1e-3)
    assert len(device.uuid) == 36
    for name in ("registers_per_multiprocessor", "l2_bytes", "warp_size", "max_threads_per_multiprocessor"):
        assert getattr(device, name) > 0


def test_contexts(driver):
    with Context.primary() as primary, Context.create() as created:
        assert Context.current() is None
        assert primary.id != created.id
        with created.pushed():
            assert Context.current() == created
            with primary.pushed():
                assert Context.current() == primary
                assert Context.current().device == Device(0)
            assert Context.current() == created
        assert primary.multiprocessor_count == 132
        created.synchronize()
    assert driver.leaks() == {}


def test_streams_and_events(context):
    with Stream.create(context, priority=-2) as stream, Stream.create(context, non_blocking=False) as other:
        assert (stream.priority, stream.is_capturing, stream.context) == (-2, False, context)
        assert stream.id != other.id
        attribute = cu.CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
        with context.pushed():
            unset = binding.call("cuStreamGetAttribute", stream.handle, attribute)
        assert ctypes.c_int.from_address(int(unset.getPtr())).value == -1  # as NVIDIA's driver: no policy's number
        assert stream.synchronization_policy == "auto"
        stream.synchronization_policy = "spin"
        assert (stream.synchronization_policy, other.synchronization_policy) == ("spin", "auto")
        assert Stream.from_handle(stream.handle).context == context
        with stream.record() as start, Event.create(context, timing=False) as event:
            stream.record(event)
            other.wait(event)
            assert stream.query()
            assert event.query()
            event.synchronize()
            with stream.record() as end, pytest.raises(CudaError, match="NOT_SUPPORTED"):
                end.elapsed_ms(start)
        with Stream.legacy(context).context.pushed():
            assert Stream.legacy().id != Stream.per_thread().id


def test_buffers(context):
    data = np.arange(64, dtype=np.uint8)
    with Stream.create(context) as stream, Buffer.pinned(64, context) as pinned:
        with Buffer.allocate(64, context) as device, Buffer.allocate_async(64, stream) as pooled:
            pinned.host_view()[:] = data
            device.copy_from(pinned)
            device.fill(255, stream=stream)
            pooled.copy_from(data, stream=stream)
            device.copy_from(pooled, size_bytes=32)
            back = np.zeros(64, np.uint8)
            device.copy_to(back)
            assert back.tolist() == [*range(32)] + [255] * 32
            device.copy_to(pinned, stream=stream)
            assert pinned.host_view().tolist() == back.tolist()
            info = pointer_info(device.pointer + 5)
            assert (info.kind, info.context_handle, info.base) == ("device", context.handle, device.pointer)
            assert (info.size_bytes, info.device_ordinal) == (64, 0)
            assert pointer_info(pooled.pointer).context_handle is None
            assert pointer_info(pinned.pointer).kind == "host"
            assert pointer_info(back.ctypes.data).kind == "unregistered"
        with Buffer.allocate_async(8, stream) as pooled:
            pooled.close(stream=stream)
    with Buffer.allocate(0, context) as empty:
        assert empty.pointer == 0


def test_kernels_and_occupancy(context, kernel):
    device = context.device
    assert kernel.library.kernel_names() == ("add", "wrong")
    with pytest.raises(ValueError, match="add, wrong"):
        kernel.library.kernel("sub")
    assert (kernel.static_shared_bytes(device), kernel.max_threads_per_block(device)) == (1024, 512)
    assert (kernel.registers(device), kernel.local_bytes(device), kernel.constant_bytes(device)) == (40, 0, 0)
    kernel.set_max_dynamic_shared_bytes(100_000, device)
    assert kernel.max_dynamic_shared_bytes(device) == 100_000
    kernel.allow_non_portable_cluster(device)
    assert kernel.allows_non_portable_cluster(device)
    with context.pushed():
        assert occupancy.blocks_per_multiprocessor(kernel, 512) == 3
        config = LaunchConfig(32, 512, cluster=16)
        assert occupancy.max_cluster_size(kernel, config) == 16
        assert occupancy.max_active_clusters(kernel, config) > 0
    assert occupancy.max_cooperative_blocks(kernel, 512, context=context) == 3 * 132


def test_launches(driver, context, kernel):
    with Stream.create(context) as stream, Buffer.allocate(32, context) as buffer:
        with Event.create(context, timing=False) as event:
            buffer.fill(0, stream=stream)
            config = LaunchConfig(
                4,
                64,
                cluster=2,
                cooperative=True,
                priority=-1,
                launch_completion_event=event,
                memory_sync_domain="remote",
            )
            bound = BoundKernel(kernel, config, stream, SIGNATURE, constants=(5,))
            bound(buffer.pointer, 3)
            turn, call = bound.prebuilt()
            turn.idle[0][1] = 2
            assert call() == 0
            assert event.query()
        launch(kernel, LaunchConfig(1, 32), Stream.legacy(context), SIGNATURE, buffer.pointer, 1, 100)
        assert values(buffer) == [110, 10, 5, 0, 0, 0, 0, 0]
    assert [(record.kernel, record.cluster) for record in driver.launches] == [("add", (2, 1, 1))] * 2 + [("add", None)]
    with pytest.raises(ValueError, match="does not fit"):
        BoundKernel(kernel, LaunchConfig(3 * 132 + 1, 512, cooperative=True), Stream.legacy(context), SIGNATURE)


def test_graphs(driver, context, kernel):
    with Stream.create(context) as stream, Buffer.allocate(16, context) as buffer, Buffer.pinned(16, context) as back:
        bound = BoundKernel(kernel, LaunchConfig(1, 32), stream, SIGNATURE)
        buffer.fill(0)
        with Graph.capture(stream) as graph:
            bound(buffer.pointer, 4, 3)
            buffer.copy_to(back, stream=stream)
            assert stream.is_capturing
        bound(buffer.pointer, 1, 100)  # the slots are other ones now, and what was captured is not
        assert values(buffer) == [100, 0, 0, 0]
        with graph, graph.instantiate() as executable:
            assert graph.node_count == 2
            for _ in range(2):
                executable.launch(stream)
            assert back.host_view().view(np.uint32).tolist() == [106, 6, 6, 6]
            with Graph.capture(stream) as outer:
                executable.launch(stream)
            with outer, outer.instantiate() as again:
                again.launch(stream)
            assert values(buffer)[1] == 9
        with pytest.raises(CudaError, match="STREAM_CAPTURE_UNSUPPORTED"), Graph.capture(stream):
            Buffer.allocate(16, context)
        assert not stream.is_capturing
    assert len(driver.launches) == 4


@pytest.mark.parametrize("name", ["A100", "T4"])
def test_devices_without_clusters(select, name):
    select(name)
    with Context.create() as context, Library.load(PTX) as library, Stream.create(context) as stream:
        assert not context.device.supports_clusters
        with pytest.raises(UnsupportedError, match="clusters"):
            BoundKernel(library.kernel("add"), LaunchConfig(2, 32, cluster=2), stream, SIGNATURE)
        with context.pushed(), pytest.raises(CudaError, match="NOT_SUPPORTED"):
            occupancy.max_active_clusters(library.kernel("add"), LaunchConfig(2, 32, cluster=2))


# every call failing once


def whole_path(make, outer):
    """Allocate, copy, load, launch, capture, replay, copy back and close, with `outer` current all the while."""
    with make() as context, Stream.create(context) as stream, Event.create(context) as event:
        with Buffer.allocate(16, context) as buffer, Buffer.pinned(16, context) as pinned:
            with Buffer.allocate_async(16, stream) as pooled, Library.load(PTX) as library:
                pinned.host_view()[:] = 0
                pooled.copy_from(pinned, stream=stream)
                buffer.copy_from(pooled)
                bound = BoundKernel(library.kernel("add"), LaunchConfig(2, 32, cluster=2), stream, SIGNATURE)
                bound(buffer.pointer, 4, 1)
                with Graph.capture(stream) as graph:
                    bound(buffer.pointer, 4, 1)
                with graph, graph.instantiate() as executable:
                    executable.launch(stream)
                stream.record(event)
                event.synchronize()
                assert Context.current() == outer
                return values(buffer)


# A release that the driver refuses is not tried again, and its thing stays; for pool memory there is a second way, and
# what is left in a created context dies with it. With a context that stays, all that others left in it stays too.
FINAL = {
    "cuCtxDestroy": "contexts",
    "cuDevicePrimaryCtxRelease": "contexts",
    "cuLibraryUnload": "libraries",
    "cuMemFree": "allocations",
    "cuMemFreeHost": "allocations",
    "cuStreamDestroy": "streams",
    "cuEventDestroy": "events",
    "cuGraphDestroy": "graphs",
    "cuGraphExecDestroy": "executable graphs",
}


def failing_once(driver, make, k):
    """Run the path with its k-th call failing, or none for 0; return the calls made, the error and what was left."""
    names, call = [], driver._call
    driver._call = lambda name, *rest: (names.append(name), call(name, *rest))[1]
    with Context.create() as outer:
        context = outer.handle
        with outer.pushed():
            names.clear()
            if k:
                driver.fail(k, cu.CUresult.CUDA_ERROR_UNKNOWN)
            error = None
            try:
                whole_path(make, outer)
            except CudaError as caught:
                error = caught.with_traceback(None)  # whose frames hold what was made
                error.__context__ = error.__cause__ = None
            made = [name for name in names if not name.startswith("cuGetError")]
            stack = list(driver._state.stack)
            driver._state.stack[:] = [context]
    if driver.leaks():
        gc.collect()  # what was made and then lost has its finalizers
    return made, error, driver.leaks(), stack == [context]


@pytest.mark.slow
@pytest.mark.parametrize("make", [Context.create, Context.primary], ids=["created", "primary"])
def test_every_call_may_fail(select, make):
    made, error, leaks, balanced = failing_once(select(), make, 0)
    assert (error, leaks, balanced) == (None, {}, True)
    assert len(made) > 80
    for k in range(1, len(made) + 1):
        names, error, leaks, balanced = failing_once(select(), make, k)
        assert isinstance(error, CudaError), (k, names[k - 1])
        failed = names[k - 1]
        assert failed == made[k - 1] == error.call
        assert balanced, (k, failed)
        assert leaks in ({}, {FINAL.get(failed): 1}), (k, failed, leaks)
