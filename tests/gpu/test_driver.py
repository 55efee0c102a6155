"""The driver layer on a real GPU: contexts, streams, events, memory, pointers and graphs."""

# ruff: noqa: PT012 - the block under test is what is tested

import gc

import numpy as np
import pytest
from in_threads import in_threads

from lowlevel_reduce.driver import Buffer, Context, Device, Event, Graph, Library, Stream, binding, pointer_info
from lowlevel_reduce.errors import CudaError, ReduceError

pytestmark = pytest.mark.bindings


@pytest.fixture(autouse=True)
def the_stack_is_left_as_it_was():
    before = Context.current()
    yield
    assert Context.current() == before


# devices


def test_device_facts(device):
    assert Device.count() == len(Device.all()) >= 1
    assert device.name
    assert len(device.uuid) == 36
    major, minor = device.compute_capability
    assert device.architecture == f"sm_{major}{minor}"
    assert device.warp_size == 32
    assert device.max_threads_per_block == 1024
    assert 1 <= device.multiprocessor_count <= 1024
    assert device.max_threads_per_multiprocessor >= 1024
    assert 49152 <= device.shared_memory_per_block_bytes <= device.shared_memory_per_block_optin_bytes
    assert device.shared_memory_per_block_optin_bytes <= device.shared_memory_per_multiprocessor_bytes
    assert device.registers_per_multiprocessor >= 32768
    assert device.l2_bytes > 1 << 20
    assert device.total_memory_bytes > 1 << 30
    assert 1e11 < device.peak_bandwidth < 1e14
    assert device.supports_clusters == (major >= 9)
    with pytest.raises(ValueError, match=f"there are {Device.count()}"):
        Device(Device.count())


def test_version():
    assert binding.version() >= (12, 0)
    assert binding.available()


# contexts


def test_the_primary_context_is_shared_and_not_left_current(device):
    current = Context.current()  # of a library that a test before this one used, in the same process
    with Context.primary(device) as first, Context.primary(device) as second:
        assert first == second
        assert first.id == second.id
        assert first.device == device
        assert Context.current() == current


def test_a_created_context_is_not_left_current(device):
    with Context.create(device) as created:
        assert Context.current() != created
        with created.pushed():
            assert Context.current() == created
        created.synchronize()
        with Context.primary(device) as primary:
            assert created.id != primary.id


def test_a_destroyed_context_takes_all_it_held_along(device):
    created = Context.create(device)
    stream, event = Stream.create(created), Event.create(created)
    device_memory, pinned = Buffer.allocate(64, created), Buffer.pinned(64, created)
    created.close()
    for left in (pinned, device_memory, event, stream):
        left.close()


def test_pushing_is_scoped_in_every_thread(device, context):
    with Context.create(device) as created:
        with pytest.raises(KeyError), created.pushed():
            raise KeyError
        assert Context.current() == context

        def elsewhere():
            before = Context.current()
            with created.pushed():
                inside = Context.current()
            return before, inside, Context.current()

        assert in_threads(elsewhere) == [(None, created, None)]


def test_an_unbalanced_block_is_put_right(device, context):
    with Context.create(device) as created, Context.create(device) as other:
        for extra in ([other], [other, other], [created]):
            with pytest.raises(ReduceError, match="did not match"), created.pushed():
                for one in extra:
                    binding.call("cuCtxPushCurrent", one.handle)
            assert Context.current() == context
        with pytest.raises(ReduceError, match="did not match"), created.pushed():
            binding.call("cuCtxPopCurrent")
        assert Context.current() == context


def test_a_context_has_the_devices_multiprocessors(device, context):
    assert context.multiprocessor_count == device.multiprocessor_count
    assert context.id == context.id


# streams and events


def test_streams(context):
    least, greatest = binding.call("cuCtxGetStreamPriorityRange")
    with Stream.create(context, priority=greatest) as high, Stream.create(context, non_blocking=False) as low:
        assert (high.priority, low.priority) == (greatest, 0)
        assert high.id != low.id
        assert high.query() is True
        assert not high.is_default
        assert not high.is_capturing
        assert Stream.from_handle(high.handle).context == context
        assert Stream.of(high) is high
        high.wait(low.record())
        high.synchronize()
    with pytest.raises(ValueError, match="range"):
        Stream.create(context, priority=greatest - 1)
    assert least == 0


@pytest.mark.parametrize(
    "make", [Stream.legacy, Stream.per_thread, lambda context: Stream.from_handle(0, context=context)]
)
def test_default_streams_without_a_current_context(device, make):
    with Context.primary(device) as primary:
        stream = make(primary)
        assert stream.is_default
        stream.synchronize()
        assert stream.query() is True
        assert stream.priority == 0
        stream.record().synchronize()
        with Buffer.allocate(16, primary) as buffer:
            buffer.fill(3, stream=stream)
            stream.synchronize()


def test_real_streams_without_a_current_context(device):
    with Context.primary(device) as primary, Stream.create(primary) as stream, Buffer.allocate(4, primary) as buffer:
        seen = bytearray(4)
        buffer.fill(9, stream=stream)
        buffer.copy_to(seen, stream=stream)
        event = stream.record()
        event.synchronize()
        assert seen == b"\x09" * 4


def test_the_synchronization_policy(stream):
    for policy in ("spin", "blocking_sync", "auto"):
        stream.synchronization_policy = policy
        assert stream.synchronization_policy == policy
        stream.synchronize()
    with pytest.raises(ValueError, match="'sleep'"):
        stream.synchronization_policy = "sleep"


def test_events(context, stream):
    begin, end = Event.create(context), Event.create(context, blocking_sync=True)
    with Buffer.allocate(1 << 26, context) as buffer:
        begin.record(stream)
        for _ in range(4):
            buffer.fill(1, stream=stream)
        stream.record(end)
        end.synchronize()
        assert end.query() is True
    assert 0.0 < end.elapsed_ms(begin) < 10_000
    untimed = Event.create(context, timing=False)
    untimed.record(stream)
    with pytest.raises(ValueError, match="timing=False"):
        untimed.elapsed_ms(begin)
    with pytest.raises(CudaError):
        Event.create(context).elapsed_ms(begin)  # never recorded


# memory


@pytest.mark.parametrize("asynchronous", [False, True])
def test_copies_between_all_kinds(context, stream, asynchronous):
    values = np.arange(1 << 16, dtype=np.float64)
    on = stream if asynchronous else None
    with (
        Buffer.allocate(values.nbytes, context) as device_memory,
        Buffer.allocate_async(values.nbytes, stream) as pooled,
        Buffer.pinned(values.nbytes, context) as pinned,
        Buffer.pinned(values.nbytes, context) as other,
    ):
        stream.synchronize()
        pinned.host_view()[:] = values.view(np.uint8)
        device_memory.copy_from(pinned, stream=on)
        pooled.copy_from(device_memory, stream=on)
        pooled.copy_to(other, stream=on)
        back = np.zeros_like(values)
        pooled.copy_to(back, stream=on)
        if asynchronous:
            stream.synchronize()
        np.testing.assert_array_equal(back, values)
        np.testing.assert_array_equal(other.host_view(), pinned.host_view())


def test_host_to_host_through_pinned(context):
    with Buffer.pinned(8, context) as pinned:
        pinned.copy_from(b"12345678")
        back = bytearray(8)
        pinned.copy_to(back)
        assert back == b"12345678"
        pinned.fill(0x41)
        assert pinned.host_view().tobytes() == b"A" * 8


def test_byte_counts(context):
    with Buffer.allocate(16, context) as buffer:
        with pytest.raises(ValueError, match="source has 12"):
            buffer.copy_from(np.zeros(3, np.float32))
        buffer.copy_from(np.zeros(3, np.float32), size_bytes=12)
        with pytest.raises(ValueError, match="17 bytes exceed"):
            buffer.fill(0)
            buffer.copy_to(bytearray(32), size_bytes=17)
    with pytest.raises(ValueError, match="closed"):
        buffer.fill(0)


def test_no_bytes(context, stream):
    for buffer in (Buffer.allocate(0, context), Buffer.pinned(0, context), Buffer.allocate_async(0, stream)):
        buffer.fill(1)
        buffer.copy_from(np.empty(0))
        assert buffer.pointer == 0
        buffer.close()


def test_too_much_memory_says_so(device, context):
    with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        Buffer.allocate(device.total_memory_bytes * 2, context)


def test_stream_ordered_memory_outlives_its_stream(context):
    stream, other = Stream.create(context), Stream.create(context)
    first, second = Buffer.allocate_async(1 << 20, stream), Buffer.allocate_async(1 << 20, stream)
    first.fill(1, stream=stream)
    other.wait(stream.record())
    first.close(stream=other)
    second.fill(2, stream=stream)
    stream.close()
    second.close()
    other.synchronize()
    other.close()


def test_the_collector_may_free_during_a_capture(context, stream):
    with Buffer.allocate(64, context) as kept:
        lost = [Buffer.allocate(64, context), Buffer.pinned(64, context), Stream.create(context), Event.create(context)]
        with Graph.capture(stream) as graph:
            kept.fill(1, stream=stream)
            lost.clear()
            gc.collect()
            kept.fill(2, stream=stream)
        with graph:
            assert graph.node_count == 2


# pointers


def test_pointer_info_of_device_memory(device, context):
    with Buffer.allocate(1000, context) as buffer:
        for offset in (0, 999):
            info = pointer_info(buffer.pointer + offset)
            assert (info.kind, info.context_handle, info.device_ordinal) == ("device", context.handle, device.ordinal)
            assert info.base == buffer.pointer
            assert info.size_bytes >= 1000


def test_pointer_info_of_pool_memory(device, stream):
    with Buffer.allocate_async(1000, stream) as buffer:
        stream.synchronize()
        info = pointer_info(buffer.pointer)
        assert (info.kind, info.device_ordinal, info.base) == ("device", device.ordinal, buffer.pointer)
        assert info.context_handle is None
        assert info.size_bytes >= 1000


def test_pointer_info_of_pinned_memory(context):
    with Buffer.pinned(1000, context) as buffer:
        info = pointer_info(buffer.pointer)
        assert (info.kind, info.base) == ("host", buffer.pointer)


def test_pointer_info_of_managed_memory(context):
    attach = binding.native().CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
    pointer = int(binding.call("cuMemAllocManaged", 1000, int(attach)))
    try:
        assert pointer_info(pointer).kind == "managed"
    finally:
        binding.call("cuMemFree", pointer)


def test_pointer_info_of_what_the_driver_does_not_know(context):
    array = np.zeros(1000)
    for pointer in (array.ctypes.data, 0, 0x10, 2**64 - 1):
        assert pointer_info(pointer).kind == "unregistered"


def test_pointer_info_without_a_current_context(device):
    with Context.primary(device) as primary, Buffer.allocate(16, primary) as buffer:
        assert pointer_info(buffer.pointer).kind == "device"
        assert pointer_info(np.zeros(4).ctypes.data).kind == "unregistered"


# graphs and libraries


def test_a_captured_graph_replays(context, stream):
    with Buffer.allocate(256, context) as first, Buffer.allocate(256, context) as second:
        second.fill(0)
        with Graph.capture(stream) as graph:
            assert stream.is_capturing
            first.fill(5, stream=stream)
            second.copy_from(first, stream=stream)
        assert not stream.is_capturing
        assert graph.node_count == 2
        seen = bytearray(256)
        second.copy_to(seen)
        assert seen == bytes(256), "capturing must run nothing"
        with graph:
            executable = graph.instantiate()
        with executable:
            for _ in range(3):
                second.fill(0)
                executable.launch(stream)
                stream.synchronize()
                second.copy_to(seen)
                assert seen == b"\x05" * 256


def test_a_failed_capture_leaves_the_stream_usable(context, stream):
    with Buffer.allocate(16, context) as buffer:
        with pytest.raises(KeyError), Graph.capture(stream):
            buffer.fill(1, stream=stream)
            raise KeyError
        with pytest.raises(CudaError), Graph.capture(stream):
            stream.synchronize()  # not allowed in a capture: it invalidates it
        assert not stream.is_capturing
        buffer.fill(2, stream=stream)
        stream.synchronize()


def test_what_is_no_cubin(context):
    with pytest.raises(ValueError, match="this is no cubin"):
        Library.load(b"not a cubin at all, not even nearly" * 8)
