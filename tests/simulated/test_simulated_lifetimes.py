"""What was made in a context, and who ends that: addresses that are used again, and captures that outlive a cache."""

import contextlib
import gc
import itertools
import sys

import numpy as np
import pytest
from in_threads import in_threads

import lowlevel_reduce as lr
from lowlevel_reduce.calls import threads
from lowlevel_reduce.driver import Buffer, Context, Event, Graph, MemoryPool, Stream, binding, readback, turns
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.ladder import RUNGS
from lowlevel_reduce.ladder.program import kernel_source
from lowlevel_reduce.plans import loading
from tests.fuzz.tracing import trace_bytecodes


def at_the_address_of(driver, context, monkeypatch):
    """Return a context that is made, as allocators do, where `context` was, which its owner ends."""
    address = context.handle
    context.close()
    monkeypatch.setattr(driver._state, "new_handle", lambda: address)
    other = Context.create()
    monkeypatch.undo()
    assert other.handle == address
    return other


def test_a_plan_is_not_bound_in_another_context_at_the_address_of_its_own(driver, monkeypatch):
    """Its kernels' grids are for the one that has ended, and what it allocates would never be freed."""
    owner = Context.create()
    plan = lr.plan("sum", shape=200_000, dtype="float32", context=Context.from_handle(owner.handle), strategy="tiles")
    with at_the_address_of(driver, owner, monkeypatch) as other, Stream.create(other) as stream:
        assert stream.context == plan.context
        before = driver.leaks()
        with pytest.raises(ValueError, match="has ended: make it anew"):
            plan.bind(stream)
        assert driver.leaks() == before


@pytest.mark.parametrize("make", [Context.create, lambda: Context.green(0, 8)], ids=["created", "green"])
def test_closing_a_context_ends_what_was_made_in_it_while_it_was_current(driver, make):
    """Through `Context.current`, as all functions do that are given no context."""
    context = make()
    with context.pushed():
        stream = Stream.create()
        x = lr.DeviceArray.from_numpy(np.ones(100, np.float32), stream)
        out = lr.DeviceArray.empty((), np.float32, stream)
        launch = lr.plan("sum", shape=100, dtype="float32").bind(stream)
        launch(x.pointer, out.pointer)
        assert float(out) == 100
    addresses = x.pointer, out.pointer
    turn, _ = launch.kernels[0].prebuilt()
    words = turn.idle.pop()  # as another thread's call does
    with pytest.raises(lr.ReduceError, match="another thread is in a launch"):
        context.close()
    turn.idle.append(words)
    del words, x, out
    context.close()
    launches = driver.calls["cuLaunchKernelEx"]
    with pytest.raises(ValueError, match="context is closed"):
        launch(*addresses)
    assert driver.calls["cuLaunchKernelEx"] == launches
    del launch, stream
    assert not {"contexts", "streams", "allocations"} & set(driver.leaks())


def test_a_primary_context_that_is_needed_for_a_moment_is_let_go(driver):
    """To compare a green one with it, and to free memory whose context has ended."""
    with Context.primary() as primary:
        owners = driver._state.primary(0).owners
        assert len(owners) == 1
        with Context.green(0, 8) as share:
            assert share.reaches(primary.handle)
        assert len(owners) == 1
        owner = Context.create()
        borrowed = Context.from_handle(owner.handle)
        buffer = Buffer.allocate_async(100, Stream.create(borrowed))
        owner.close()
        buffer.close()
        assert "allocations" not in driver.leaks()
        assert len(owners) == 1
    assert driver._state.primary(0) is None


def test_at_exit_no_context_is_made_to_free_memory_whose_own_has_ended(driver, monkeypatch):
    """The process ends, and its memory with it; for each piece a primary context would be made and ended."""
    owner = Context.create()
    buffer = Buffer.allocate_async(100, Stream.create(owner))
    owner.close()
    monkeypatch.setattr(turns, "exiting", True)
    buffer._owned.make_quietly()
    assert driver.calls["cuDevicePrimaryCtxRetain"] == 0


def test_no_stream_waits_for_one_whose_context_was_closed(stream):
    """With the handle of what a context took along a driver may crash, also where an event is there from before."""
    other = Context.create()
    x = lr.DeviceArray.from_numpy(np.ones(100, np.float32), Stream.create(other))
    for _ in range(2):
        assert float(lr.sum(x, stream=stream)) == 100
    other.close()
    with pytest.raises(ValueError, match="context is closed"):
        lr.sum(x, stream=stream)


def test_a_host_array_is_not_captured(stream):
    """The graph's replays would read host memory that may be gone."""
    x = np.ones(5, np.float32)
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot be copied to the device in a capture"), Graph.capture(stream):
            lr.sum(x, stream=stream)
    assert float(lr.sum(x, stream=stream)) == 5


def test_a_context_at_the_address_of_one_of_ours_that_has_ended_is_its_owners(driver, monkeypatch):
    ours = Context.create()
    address = ours.handle
    with at_the_address_of(driver, ours, monkeypatch) as other:
        borrowed = Context.from_handle(address)
        assert borrowed.life is other.life
        assert borrowed.life is not ours.life
    assert Context.from_handle(address).life.borrowed


def test_memory_of_a_green_context_is_freed_without_having_that_current(driver, monkeypatch):
    """The collector runs in any thread, and such a context may be current to one at a time."""
    pushed, push = [], driver.cuCtxPushCurrent
    with Context.green(0, 8) as share, share.pushed():
        memory = [Buffer.allocate(100, share)]
        monkeypatch.setattr(
            driver, "cuCtxPushCurrent", lambda handle: pushed.append(int(handle)) or push(handle), False
        )
        in_threads(memory.clear)
        assert pushed
        assert share.handle not in pushed
    assert "allocations" not in driver.leaks()


@pytest.mark.parametrize("closed", [False, True], ids=["in the order of the stream", "without the stream"])
def test_memory_of_a_pool_is_freed_without_having_its_green_context_current(driver, monkeypatch, closed):
    """As a driver has it that refuses such a context to a second thread."""
    push = driver.cuCtxPushCurrent
    with Context.green(0, 8) as share, Stream.create(share) as stream, share.pushed():
        memory = [Buffer.allocate_async(100, stream)]
        if closed:
            stream.close()
        invalid = (binding.native().CUresult.CUDA_ERROR_INVALID_CONTEXT,)
        monkeypatch.setattr(
            driver, "cuCtxPushCurrent", lambda handle: invalid if int(handle) == share.handle else push(handle), False
        )
        in_threads(memory.clear)
        monkeypatch.undo()
        assert "allocations" not in driver.leaks()


@pytest.mark.parametrize("known", [False, True], ids=["first", "known to the thread"])
def test_the_workspace_of_a_captured_call_is_the_graphs(stream, monkeypatch, known):
    """Nobody else uses it between replays, and it is there when the launch that was kept for later calls has gone."""
    monkeypatch.setattr(threads, "MAX_PREPARED", 1)
    values = np.ones(70_000, np.float32)
    x, out = lr.DeviceArray.from_numpy(values, stream), lr.DeviceArray.empty((), np.float32, stream)
    options = {"out": out, "stream": stream, "strategy": "tiles"}
    lr.sum(x, axis=(), stream=stream)  # the stream has its number, and so a place
    for _ in range(2 * known):
        lr.sum(x, **options)  # keeps a launch, and the thread knows it
    with Graph.capture(stream) as graph:
        lr.sum(x, **options)
    with graph, graph.instantiate() as executable:
        threads.here().forget()
        gc.collect()
        for _ in range(2):
            out._buffer.fill(0, stream=stream)
            executable.launch(stream)
            assert float(out) == 70_000


@pytest.mark.parametrize("known", [False, True], ids=["first", "known to the thread"])
@pytest.mark.parametrize("strategy", ["block", "tiles"])
def test_the_kernel_of_a_captured_call_is_loaded_as_long_as_the_graph(stream, monkeypatch, strategy, known):
    """However many others are loaded, and whatever is let go of, before the next replay."""
    monkeypatch.setattr(loading, "MAX_LOADED", 1)
    x = lr.DeviceArray.from_numpy(np.ones(7_000, np.float32), stream)
    out = lr.DeviceArray.empty((), np.float32, stream)
    options = {"out": out, "stream": stream, "strategy": strategy}
    for _ in range(2 * known):
        lr.sum(x, **options)
    with Graph.capture(stream) as graph:
        lr.sum(x, **options)
    with graph, graph.instantiate() as executable:
        threads.here().forget()
        lr.max(x, stream=stream)
        gc.collect()
        out._buffer.fill(0, stream=stream)
        executable.launch(stream)
        assert float(out) == 7_000


def test_so_is_the_kernel_for_an_odd_address_of_a_call_that_was_captured_with_an_even_one(stream, monkeypatch):
    monkeypatch.setattr(loading, "MAX_LOADED", 1)
    x = lr.DeviceArray.from_numpy(np.ones(7_000, np.float32), stream)
    outs = [lr.DeviceArray.empty((), np.float32, stream) for _ in range(2)]
    even, odd = x[:6_999], x[1:]
    for _ in range(2):
        lr.sum(even, out=outs[0], stream=stream)
    with Graph.capture(stream) as graph:
        for each, out in zip((even, odd), outs, strict=True):
            lr.sum(each, out=out, stream=stream)
    with graph, graph.instantiate() as executable:
        threads.here().forget()
        lr.max(x, stream=stream)
        gc.collect()
        executable.launch(stream)
        assert [float(out) for out in outs] == [6_999, 6_999]


def test_a_captured_call_without_anything_kept(stream):
    """The driver does not tell a stream's number during a capture, by which what is kept is found."""

    class Foreign:
        def __cuda_stream__(self):
            return 0, stream.handle

    x = lr.DeviceArray.from_numpy(np.ones(70_000, np.float32), stream)
    lr.sum(x, stream=stream, strategy="tiles")  # its kernel is loaded
    with Graph.capture(stream) as graph:
        result = lr.sum(x, stream=Foreign(), strategy="tiles")
    with graph, graph.instantiate() as executable:
        executable.launch(stream)
        assert float(result) == 70_000
    with Graph.capture(stream) as graph, pytest.raises(ValueError, match="NumPy array cannot be copied"):
        lr.sum(np.ones(3), stream=stream)
    graph.close()


def test_what_is_kept_for_later_calls_spoils_no_capture_and_no_call(stream, context, driver):
    """Another object for a stream has a launch of its own, bound when the call is done."""
    x = lr.DeviceArray.from_numpy(np.ones(70_000, np.float32), stream)
    sums = [lr.sum(x, stream=stream, strategy="tiles") for _ in range(2)]
    with Stream.create(context) as captured, Buffer.allocate(64, context) as filled:
        with Graph.capture(captured) as graph:
            filled.fill(1, stream=captured)
            sums.append(lr.sum(x, stream=Stream.from_handle(stream.handle), strategy="tiles"))
        with graph:
            assert graph.node_count == 1
    driver.fail_call("cuMemAllocAsync", 2, "OUT_OF_MEMORY")  # the first is the result
    driver.fail_call("cuMemAlloc", 1, "OUT_OF_MEMORY")
    sums.append(lr.sum(x, stream=Stream.from_handle(stream.handle), strategy="tiles"))
    assert [float(each) for each in sums] == [70_000] * 4


def test_what_closed_streams_have_left_is_freed_by_later_calls(context, driver):
    def use():
        with Stream.create(context) as stream:
            x = lr.DeviceArray.from_numpy(np.ones(70_000, np.float32), stream)
            results = [lr.sum(x, stream=stream, strategy="tiles") for _ in range(2)]
            assert [float(result) for result in results] == [70_000] * 2

    use()
    gc.collect()
    before = driver.leaks()["allocations"]
    for _ in range(4):
        use()
    gc.collect()
    assert driver.leaks()["allocations"] <= before


def test_a_workspace_that_cannot_be_freed_is_no_error_of_a_later_call(stream, driver, caplog):
    x = lr.DeviceArray.from_numpy(np.ones(70_000, np.float32), stream)
    y, out = lr.DeviceArray.from_numpy(np.ones(10, np.float32), stream), lr.DeviceArray.empty((), np.float32, stream)
    lr.sum(x, stream=stream, out=out, strategy="tiles")
    driver.fail_call("cuMemFreeAsync", 1, "UNKNOWN")
    threads.here().forget()
    gc.collect()
    assert lr.sum(y, stream=stream, out=out) is out
    assert float(out) == 10
    assert "cuMemFreeAsync failed" in caplog.text


def test_a_plan_that_is_closed_while_it_is_bound_is_bound_all_the_same(stream):
    """As by another thread: the launch has the kernels, and the workspace that they need."""

    class Closing:
        def __cuda_stream__(self):
            plan.close()
            return 0, stream.handle

    x = lr.DeviceArray.from_numpy(np.ones(70_000, np.float32), stream)
    out = lr.DeviceArray.empty((), np.float32, stream)
    plan = lr.plan("sum", shape=x.shape, dtype=x.dtype, strategy="tiles")
    launch = plan.bind(Closing())
    assert launch.workspace.size_bytes == plan.workspace_bytes
    launch(x.pointer, out.pointer)
    assert float(out) == 70_000
    with pytest.raises(ValueError, match="the plan is closed"):
        plan.bind(stream)


def test_an_interrupt_between_any_two_steps_of_a_read_does_not_keep_the_context_open(driver):
    """A trace function stands for it, before each bytecode in turn."""

    def trace(frame, event, argument):
        if frame.f_code.co_filename != readback.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    for step in itertools.count(1):
        left, before = [step], sys.gettrace()
        with Context.create(0) as context, Stream.create(context) as stream, context.pushed():
            array = lr.DeviceArray.from_numpy(np.arange(4.0), stream)
            array.numpy()
            with contextlib.suppress(KeyboardInterrupt):
                trace_bytecodes(trace)
                array.numpy()
            sys.settrace(before)
            assert array.numpy().tolist() == [0, 1, 2, 3]
        if left[0] > 0:
            break
    assert step > 30


def test_a_context_lives_as_long_as_it_is_pushed(driver):
    """Though no other reference keeps it, and nobody else the primary one."""
    with Context.primary().pushed():
        gc.collect()
        assert Context.current() is not None
        with Buffer.allocate(100) as buffer:
            assert buffer.context == Context.current()
    assert Context.current() is None
    with Context.create(0) as context, Event.create(context) as event, Stream.create(context) as stream:
        stream.record(event)
        borrowed = Event.from_handle(event.handle)  # used in the primary context, where nothing is current
        assert borrowed.query()
    assert not driver.leaks()


def test_a_kernel_is_loaded_for_each_architecture(driver):
    """Devices of one driver may differ in theirs, and none takes the code of another."""
    source = kernel_source(RUNGS["v0_atomic"], "v0_atomic", "float32", 256)
    newer, older = (loading.load_kernel(source, name).kernel for name in ("sm_90", "sm_80"))
    assert newer.library is not older.library
    assert loading.load_kernel(source, "sm_90").kernel is newer


def test_memory_whose_stream_has_gone_is_freed_though_its_context_cannot_be_waited_for(driver, context):
    stream = Stream.create(context)
    buffer = Buffer.allocate_async(64, stream)
    stream.close()
    before = driver.leaks()["allocations"]
    driver.fail_call("cuCtxSynchronize", 1, "CUDA_ERROR_ILLEGAL_ADDRESS")
    with pytest.raises(CudaError, match="cuCtxSynchronize failed with CUDA_ERROR_ILLEGAL_ADDRESS"):
        buffer.close()
    assert driver.leaks().get("allocations", 0) == before - 1


def test_a_pool_that_is_refused_its_threshold_is_gone_before_its_error(driver, context):
    before = driver.leaks()
    driver.fail_call("cuMemPoolSetAttribute", 1, "CUDA_ERROR_INVALID_VALUE")
    with pytest.raises(CudaError, match="cuMemPoolSetAttribute") as refused:
        MemoryPool.create(context.device, release_threshold_bytes=1)
    assert driver.leaks() == before
    del refused
