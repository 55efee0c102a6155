"""The contract of docs/embedding.md: what the package does to others' contexts, streams and memory, and never does."""

import gc
import os
import struct
import sys
import threading
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from in_threads import in_threads

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Buffer, Context, Event, Graph, MemoryPool, Stream, binding

pytestmark = pytest.mark.bindings

N = 20_000
X = np.random.default_rng(7).standard_normal(N).astype(np.float32)
BITS = lr.tree.reduce(X).tobytes()
PACKAGE = str(Path(lr.__file__).parent)


class Setup:
    """A context with a stream, an input, a result, a plan and a bound launch."""

    def __init__(self, context):
        self.context = context
        self.stream = Stream.create(context)
        self.source, self.result = Buffer.allocate(X.nbytes, context), Buffer.allocate(4, context)
        self.source.copy_from(X)
        self.plan = lr.plan("sum", shape=N, dtype="float32", context=context)
        self.bound = self.plan.bind(self.stream)

    def launch(self):
        self.bound(self.source.pointer, self.result.pointer)

    def bits(self):
        value = np.empty((), np.float32)
        self.result.copy_to(value, stream=self.stream)
        self.stream.synchronize()
        return value.tobytes()

    def close(self):
        self.stream.synchronize()
        for handle in (self.bound, self.plan, self.result, self.source, self.stream):
            handle.close()


@pytest.fixture
def created(device):
    with Context.create(device) as created:
        yield created


@pytest.fixture(params=["primary", "created", "green"])
def setup(request, device, context):
    """Everything bound in a context of each kind, while the primary one is current."""
    if request.param == "primary":
        mine = Context.primary(device)
    elif request.param == "created":
        mine = Context.create(device)
    else:
        try:
            mine = Context.green(device, max(device.multiprocessor_count // 4, 1))
        except lr.UnsupportedError as error:
            pytest.skip(str(error))
    with mine:
        setup = Setup(mine)
        yield setup
        setup.close()


# contexts


def _replay(setup):
    with Graph.capture(setup.stream) as graph:
        setup.launch()
    with graph, graph.instantiate() as executable:
        executable.launch(setup.stream)
        setup.stream.synchronize()


def _contexts(setup):
    device = setup.context.device
    for mine in (Context.create(device), Context.primary(device), Context.from_handle(setup.context.handle)):
        mine.check_priority(0)
        mine.close()


def _nodes(setup):
    with Graph.create(setup.context) as graph:
        for kernel in setup.bound.kernels:
            node = graph.add_kernel(kernel, setup.source.pointer, setup.result.pointer, 0)
        with graph.instantiate() as executable:
            executable.upload(setup.stream)
            executable.set_kernel(node, kernel, setup.source.pointer, setup.result.pointer, 0)
            executable.update(graph)
            executable.launch(setup.stream)
            setup.stream.synchronize()


def _segments(setup):
    values = lr.DeviceArray.from_numpy(X, setup.stream)
    offsets = lr.DeviceArray.from_numpy(np.array([0, 100, N]), setup.stream)
    lr.segmented_reduce(values, offsets, "sum", stream=setup.stream).numpy()


def _pool(setup):
    with MemoryPool.create(setup.context.device) as pool, pool.allocate(64, setup.stream):
        pool.statistics()
    pool = MemoryPool.current(setup.context.device)
    pool.trim(0)


def _again(setup):
    array = lr.DeviceArray.from_numpy(X, setup.stream)
    for _ in range(3):
        lr.minmax(array, stream=setup.stream)
        lr.sum(array, stream=setup.stream, out=lr.DeviceArray.empty((), "float32", setup.stream))


def _failing_capture(setup):
    with Graph.capture(setup.stream):
        setup.launch()
        raise KeyError


def _failing_block(setup):
    with setup.context.pushed():
        setup.launch()
        raise KeyError


CALLS = {
    "plan": lambda s: lr.plan("sum", shape=N, dtype="float32", context=s.context).close(),
    "bind": lambda s: s.plan.bind(s.stream).close(),
    "launch": lambda s: s.launch(),
    "check": lambda s: s.bound.check(s.source.pointer, s.result.pointer),
    "sum": lambda s: lr.sum(X, stream=s.stream).numpy(),
    "array": lambda s: lr.DeviceArray.from_numpy(X, s.stream).numpy(),
    "buffer": lambda s: Buffer.allocate(64, s.context).close(),
    "buffer in a stream's order": lambda s: Buffer.allocate_async(64, s.stream).close(),
    "stream": lambda s: Stream.create(s.context).close(),
    "event": lambda s: s.stream.record(Event.create(s.context, timing=False)).synchronize(),
    "synchronize": lambda s: s.context.synchronize(),
    "graph": _replay,
    "describe": lambda s: s.plan.describe(),
    "multiprocessors": lambda s: s.context.multiprocessor_count,
    "contexts": _contexts,
    "nodes": _nodes,
    "segments": _segments,
    "pool": _pool,
    "called again": _again,
    "the stream's facts": lambda s: (s.stream.id, s.stream.priority, s.stream.query(), s.stream.is_capturing),
}
FAILURES = {
    "plan": (lambda s: lr.plan("sum", shape=-1, dtype="float32", context=s.context), ValueError),
    "launch": (lambda s: s.bound("no address", 0), (TypeError, struct.error)),
    "check": (lambda s: s.bound.check(0x10, s.result.pointer), ValueError),
    "check of the result": (lambda s: s.bound.check(s.source.pointer, s.source.pointer), ValueError),
    "sum": (lambda s: lr.sum("no array", stream=s.stream), TypeError),
    "sum into the host": (lambda s: lr.sum(X, out=np.empty(()), stream=s.stream), TypeError),
    "memory": (lambda s: Buffer.allocate(1 << 60, s.context), lr.CudaError),
    "priority": (lambda s: Stream.create(s.context, priority=1000), ValueError),
    "green": (lambda s: Context.green(s.context.device, 1 << 20), lr.UnsupportedError),
    "node": (lambda s: Graph.create(s.context).add_kernel(s.bound.kernels[0]), struct.error),
    "capture": (_failing_capture, KeyError),
    "block": (_failing_block, KeyError),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_leaves_the_current_context_as_it_was(setup, context, call):
    CALLS[call](setup)
    assert Context.current() == context
    binding.call("cuCtxPopCurrent")
    try:
        assert Context.current() is None, "nothing was left below on the stack"
        CALLS[call](setup)
        assert Context.current() is None
    finally:
        binding.call("cuCtxPushCurrent", context.handle)


@pytest.mark.parametrize("call", FAILURES)
def test_a_call_that_fails_does_too(setup, context, call):
    work, error = FAILURES[call]
    with pytest.raises(error):
        work(setup)
    assert Context.current() == context
    setup.launch()
    assert setup.bits() == BITS, "and the bound launch works as before"


def test_the_same_on_a_thread_that_has_no_context(setup):
    def work():
        seen = [Context.current()]
        for call in CALLS.values():
            call(setup)
            seen.append(Context.current())
        for call, error in FAILURES.values():
            with pytest.raises(error):
                call(setup)
            seen.append(Context.current())
        return seen

    assert in_threads(work) == [[None] * (1 + len(CALLS) + len(FAILURES))]


def test_without_a_stream_the_current_context_is_used(context, created):
    with created.pushed():
        result = lr.sum(X)
        assert result.context == created
        assert result.numpy().tobytes() == BITS
    assert Context.current() == context
    assert lr.sum(X).context == context


def test_without_any_context_the_primary_one_is_used_and_not_left_current(primary):
    def work():
        value = lr.sum(X).numpy()
        return value.tobytes(), Context.current()

    assert in_threads(work) == [(BITS, None)]


def test_contexts_of_one_device_keep_apart(context, created):
    one, other = Setup(context), Setup(created)
    try:
        for setup in (one, other):
            setup.launch()
            assert setup.bits() == BITS
        with pytest.raises(ValueError, match="of context"):
            one.bound.check(other.source.pointer, one.result.pointer)
        with pytest.raises(ValueError, match="the stream is of context"):
            one.plan.bind(other.stream)
        with pytest.raises(ValueError, match="the workspace"):
            one.plan.bind(one.stream, Buffer.allocate(one.plan.workspace_bytes, created))
    finally:
        one.close()
        other.close()


def test_what_is_borrowed_is_never_destroyed(setup):
    context, stream = Context.from_handle(setup.context.handle), Stream.from_handle(setup.stream.handle)
    source = Buffer.from_pointer(setup.source.pointer, X.nbytes, context=context)
    with Event.create(setup.context, timing=False) as event:
        borrowed = Event.from_handle(event.handle)
        bound = setup.plan.bind(stream)
        bound(source.pointer, setup.result.pointer)
        stream.record(borrowed)
        for handle in (source, bound, borrowed, stream, context):
            handle.close()
        del bound, borrowed, stream, context, source
        gc.collect()
        event.synchronize()
    setup.launch()
    assert setup.bits() == BITS


# streams


@pytest.mark.parametrize("kind", ["legacy", "per_thread"])
def test_default_streams_are_those_of_the_context_that_was_bound(setup, context, kind):
    if setup.context.is_green and kind == "per_thread":
        pytest.skip("a green context has no per-thread default stream")
    stream = getattr(Stream, kind)(setup.context)
    bound = setup.plan.bind(stream)
    bound(setup.source.pointer, setup.result.pointer)
    stream.synchronize()
    assert setup.bits() == BITS
    assert Context.current() == context
    bound.close()


def test_an_object_that_speaks_the_protocol_is_a_stream(setup):
    class Foreign:
        def __cuda_stream__(self):
            return 0, setup.stream.handle

    bound = setup.plan.bind(Foreign())
    bound(setup.source.pointer, setup.result.pointer)
    assert bound.stream.handle == setup.stream.handle
    assert bound.context == setup.context
    assert setup.bits() == BITS
    bound.close()


def test_the_result_says_which_stream_it_is_ordered_after(setup):
    result = lr.sum(X, stream=setup.stream)
    assert result.stream.handle == setup.stream.handle
    assert result.__cuda_array_interface__["stream"] == setup.stream.handle
    assert setup.stream.__cuda_stream__() == (0, setup.stream.handle)
    assert result.numpy().tobytes() == BITS


def test_a_stream_that_was_closed(setup):
    with Stream.create(setup.context) as stream:
        bound = setup.plan.bind(stream)
    with pytest.raises(ValueError, match="closed"):
        bound(setup.source.pointer, setup.result.pointer)
    bound.close()


# memory


def test_a_workspace_of_the_callers(setup):
    plan = lr.plan("sum", shape=N, dtype="float32", context=setup.context, strategy="tiles", cluster=1)
    with Buffer.allocate(plan.workspace_bytes + 32, setup.context) as workspace:
        workspace.fill(0xA5)
        bound = plan.bind(setup.stream, workspace)
        bound(setup.source.pointer, setup.result.pointer)
        assert setup.bits() == BITS
        after = np.empty(workspace.size_bytes, np.uint8)
        workspace.copy_to(after)
        assert (after[plan.workspace_bytes :] == 0xA5).all(), "bytes past workspace_bytes belong to the caller"
        bound.close()
        workspace.fill(1)  # still the caller's


def test_workspace_bytes_grow_with_the_length_and_depend_on_nothing_else(context):
    def size(n, **options):
        with lr.plan("sum", shape=n, dtype="float32", context=context, **options) as plan:
            return plan.workspace_bytes

    sizes = [size(n) for n in (0, 1, 1000, 50_000, 10**6, 10**8)]
    assert sizes == sorted(sizes)
    assert len({size(N, strategy=strategy) for strategy in ("block", "tiles", "two_pass", "cooperative")}) == 1


@pytest.mark.parametrize(
    ("op", "dtype", "accumulator_bytes"),
    [("max", "float16", 4), ("sum", "float32", 8), ("argmax", "float32", 12), ("mean_var", "int32", 16)],
)
def test_workspace_bytes_are_as_documented(context, few, op, dtype, accumulator_bytes):
    slot, leaf = 16 * -(-accumulator_bytes // 12), 4096 // np.dtype(dtype).itemsize

    def plan_of(shape, axis=None):
        return lr.plan(op, shape=shape, axis=axis, dtype=dtype, context=context)

    for n in few((1, 8 * leaf, 8 * leaf + 1, 100 * leaf), 1):
        with plan_of(n) as plan:
            assert plan.workspace_bytes == 256 + slot * -(-max(-(-n // leaf), 1) // 8)
    with plan_of((2, 100 * leaf), 1) as plan:
        assert plan.strategy.parts > 1
        assert plan.workspace_bytes == 256 + slot * 2 * plan.strategy.parts
    with plan_of((500, 100), 1) as plan:
        assert plan.workspace_bytes == 0
    for n in few((1, 1000 * leaf), 1):
        many, tile = n // (16 * leaf) + 1, 16 if accumulator_bytes <= 8 else 8
        with lr.segmented_plan(op, length=n, segments=3, dtype=dtype, context=context) as plan:
            assert plan.workspace_bytes == 256 + 32 * many + slot * (n // (tile * leaf) + 2 * many)


def test_memory_of_a_pool_of_the_callers(setup, device):
    with MemoryPool.create(device) as pool, pool.allocate(setup.plan.workspace_bytes, setup.stream) as workspace:
        bound = setup.plan.bind(setup.stream, workspace)
        bound(setup.source.pointer, setup.result.pointer)
        assert setup.bits() == BITS
        bound.close()


# launches


def test_a_bound_launch_is_one_driver_call_and_nothing_else(setup, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    before = Counter(simulator.selected().calls)
    setup.launch()
    assert simulator.selected().calls - before == {"cuLaunchKernelEx": 1}


def test_nothing_is_retained_created_or_allocated_behind_the_caller(setup, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    driver = simulator.selected()
    setup.launch()
    setup.bound.check(setup.source.pointer, setup.result.pointer)
    before, alive = Counter(driver.calls), driver.leaks()
    for _ in range(3):
        setup.launch()
        setup.bound.check(setup.source.pointer, setup.result.pointer)
    calls = driver.calls - before
    assert driver.leaks() == alive
    made = {
        name
        for name in calls
        if name.startswith(("cuMem", "cuCtxCreate", "cuStreamCreate", "cuGreen", "cuDevicePrimary"))
    }
    assert not made
    assert calls["cuCtxSynchronize"] == calls["cuStreamSynchronize"] == 0


def test_a_plan_is_for_many_threads(setup, cut):
    if setup.context.is_green:
        pytest.skip("a green context may be current to one thread at a time")
    rounds, count = cut(200, 5), 8
    barrier = threading.Barrier(count)

    def work():
        with Stream.create(setup.context) as stream, Buffer.allocate(4, setup.context) as result:
            bound, value, seen = setup.plan.bind(stream), np.empty((), np.float32), set()
            barrier.wait()
            for _ in range(rounds):
                bound(setup.source.pointer, result.pointer)
                result.copy_to(value, stream=stream)
                stream.synchronize()
                seen.add(value.tobytes())
            bound.close()
            return seen, Context.current()

    assert in_threads(*[work] * count) == [({BITS}, None)] * count


def test_the_one_shot_function_from_many_threads(context, cut):
    rounds, count = cut(50, 3), 8

    def work():
        with Stream.create(context) as stream:
            return [lr.sum(X, stream=stream).numpy().tobytes() for _ in range(rounds)]

    assert in_threads(*[work] * count) == [[BITS] * rounds] * count


def _resident_bytes():
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def test_a_million_launches_leave_nothing(setup, machine):
    if machine == "simulated":
        pytest.skip("a simulated driver records its launches: see the next test")
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc/self/statm")
    source, result, launch = setup.source.pointer, setup.result.pointer, setup.bound

    def run(count):
        for _ in range(count):
            launch(source, result)
        setup.stream.synchronize()
        with setup.context.pushed():
            free = int(binding.call("cuMemGetInfo")[0])
        gc.collect()
        return _resident_bytes(), free

    run(20_000)  # the driver's own queues reach their size
    host, free = run(1000)
    host_after, free_after = run(1_000_000)
    assert host_after - host < 1 << 20, "less than a byte a launch"
    if "PYTEST_XDIST_WORKER" not in os.environ:  # other workers' memory comes and goes
        assert free_after >= free
    assert setup.bits() == BITS


def test_launches_leave_no_object_of_the_package(setup, cut):
    count = cut(1000, 10)

    def allocated():
        gc.collect()
        snapshot = tracemalloc.take_snapshot().filter_traces(
            [
                tracemalloc.Filter(True, f"{PACKAGE}/*"),
                tracemalloc.Filter(False, f"{PACKAGE}/simulator/*"),
            ]
        )
        return sum(trace.size for trace in snapshot.traces)

    setup.launch()
    tracemalloc.start()
    try:
        setup.launch()
        before = allocated()
        for _ in range(count):
            setup.launch()
        after = allocated()
    finally:
        tracemalloc.stop()
    assert after - before < count, "less than a byte a launch"
    setup.stream.synchronize()


def test_what_a_block_made_is_gone_after_it(device, context, machine):
    if machine != "simulated":
        pytest.skip("handles are counted by the simulated driver")
    driver = simulator.selected()
    lr.sum(X)
    gc.collect()
    before = driver.leaks()
    for make in (Context.create, Context.primary):
        with make(device) as mine:
            setup = Setup(mine)
            setup.launch()
            assert setup.bits() == BITS
            setup.close()
    gc.collect()
    after = driver.leaks()
    after["libraries"] = before["libraries"] = 0  # compiled kernels are kept for the next plan
    assert after == before
