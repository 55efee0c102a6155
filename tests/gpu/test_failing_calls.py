"""Each driver call of a public path fails once: a typed error, nothing left behind, and the next call works."""

import collections
import contextlib
import functools
import gc
import itertools
from dataclasses import replace

import numpy as np
import pytest
from cuda.bindings import driver as cu

import lowlevel_reduce as lr
from lowlevel_reduce.calls import threads
from lowlevel_reduce.driver import Buffer, Context, Graph, MemoryPool, Stream, binding
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.simulator import SimulatedDriver, by_name
from lowlevel_reduce.simulator.driver.engine import default_engine
from lowlevel_reduce.simulator.machine.control.counters import Counters

pytestmark = pytest.mark.bindings

# Few multiprocessors, since some grids are as large as the device; two green shares of the least size fit.
SMALL = replace(by_name("H200"), multiprocessors=16, gpc_multiprocessors=(8, 8))

RNG = np.random.default_rng(11)
TABLE = RNG.standard_normal((6, 10)).astype(np.float32)
LINE = RNG.standard_normal(600).astype(np.float32)
OFFSETS = np.array([0, 7, 7, 300, 600], np.int64)
SHARDS = RNG.standard_normal((2, 1024)).astype(np.float32)
MASK = RNG.random(LINE.shape) < 0.5


class Arena:
    """A caller's allocator that knows what it has out."""

    def __init__(self, context):
        self.context = context
        self.out = {}

    def alloc(self, size_bytes, stream_handle):
        buffer = Buffer.allocate(size_bytes, self.context)
        self.out[buffer.pointer] = buffer
        return buffer.pointer

    def free(self, pointer, size_bytes, stream_handle):
        self.out.pop(pointer).close()


def _launched(plan, stream, workspace=None):
    """Return the bytes that a bound launch of the plan gives for LINE."""
    with lr.DeviceArray.from_numpy(LINE, stream)._memory as source, Buffer.allocate(4, stream.context) as result:
        bound = plan.bind(stream, workspace)
        try:
            bound(source.pointer, result.pointer)
            value = np.empty((), np.float32)
            result.copy_to(value, stream=stream)
            stream.synchronize()
        finally:
            bound.close()
    return value.tobytes()


def _bytes(*results):
    return b"".join(result.numpy().tobytes() for result in results)


def rows_and_columns(context, stream):
    x = lr.DeviceArray.from_numpy(TABLE, stream)
    first, second = lr.sum(x, axis=1, stream=stream), lr.sum(x, axis=1, stream=stream)
    return _bytes(first, second, *lr.minmax(x, axis=0, stream=stream))


def segments(context, stream):
    values, offsets = lr.DeviceArray.from_numpy(LINE, stream), lr.DeviceArray.from_numpy(OFFSETS, stream)
    return _bytes(lr.segmented_reduce(values, offsets, "sum", stream=stream))


def workspace_of_the_callers(context, stream):
    with lr.plan("sum", shape=LINE.shape, dtype="float32", context=context, strategy="tiles") as plan:
        with Buffer.allocate(plan.workspace_bytes, context) as workspace:
            return _launched(plan, stream, workspace)


def allocator(context, stream):
    arena = Arena(context)
    x = lr.DeviceArray.from_numpy(LINE, stream)
    try:
        result = lr.sum(x, stream=stream, strategy="tiles", allocator=lr.Allocator(arena.alloc, arena.free))
        return _bytes(result)
    finally:
        result = None
        gc.collect()


def green_context(context, stream):
    with Context.green(context.device, 8) as share, Stream.create(share) as its_stream:
        with lr.plan("sum", shape=LINE.shape, dtype="float32", context=share) as plan:
            return _launched(plan, its_stream)


def pool(context, stream):
    with lr.plan("sum", shape=LINE.shape, dtype="float32", context=context, strategy="tiles") as plan:
        with MemoryPool.create(context.device, release_threshold_bytes=1 << 20) as pool:
            with pool.allocate(plan.workspace_bytes, stream) as workspace:
                found = _launched(plan, stream, workspace)
            assert pool.statistics().used_high_bytes >= plan.workspace_bytes
            pool.trim()
            return found


def graph_nodes(context, stream):
    found = []
    with lr.plan("sum", shape=LINE.shape, dtype="float32", context=context, strategy="two_pass") as plan:
        x, y = lr.DeviceArray.from_numpy(LINE, stream), lr.DeviceArray.from_numpy(-LINE, stream)
        result, bound = lr.DeviceArray.empty((), "float32", stream), plan.bind(stream)
        try:
            with Graph.create(context) as graph:
                nodes = []
                for kernel in bound.kernels:
                    nodes.append(graph.add_kernel(kernel, x.pointer, result.pointer, 0, after=nodes[-1:]))
                assert len(graph.kernel_nodes) == graph.node_count == 2
                assert not nodes[0].device_handle
                with graph.instantiate() as executable:
                    executable.upload(stream)
                    executable.launch(stream)
                    found.append(_bytes(result))
                    for node, kernel in zip(nodes, bound.kernels, strict=True):
                        executable.set_kernel(node, kernel, y.pointer, result.pointer, 0)
                    executable.launch(stream)
                    found.append(_bytes(result))
        finally:
            bound.close()
    return b"".join(found)


def graph_update(context, stream):
    with lr.plan("sum", shape=LINE.shape, dtype="float32", context=context) as plan:
        x, y = lr.DeviceArray.from_numpy(LINE, stream), lr.DeviceArray.from_numpy(-LINE, stream)
        result, bound = lr.DeviceArray.empty((), "float32", stream), plan.bind(stream)
        try:
            with Graph.capture(stream) as first:
                bound(x.pointer, result.pointer)
            with first:
                with Graph.capture(stream) as second:
                    bound(y.pointer, result.pointer)
                with second, first.instantiate() as executable:
                    executable.update(second)
                    executable.launch(stream)
                    return _bytes(result)
        finally:
            bound.close()


def one_shot(context, stream):
    """The first call, the second one, which is another path, and one into memory of the caller's."""
    x, out = lr.DeviceArray.from_numpy(LINE, stream), lr.DeviceArray.empty((), "float32", stream)
    first, second = lr.sum(x, stream=stream), lr.sum(x, stream=stream)
    return _bytes(first, second, lr.sum(x, stream=stream, out=out))


def shards(context, stream):
    """The first call, and the repeated one, which is another path; the second shard is in another context."""
    try:
        with Stream.create(Context.current()) as there:
            arrays = [lr.DeviceArray.from_numpy(part, each) for part, each in zip(SHARDS, (stream, there), strict=True)]
            return _bytes(lr.reduce_shards(arrays), lr.reduce_shards(arrays))
    finally:
        threads.here().forget()  # else what was kept in a stream that is closed goes with the next call's


def mask_and_initial(context, stream):
    x, mask = lr.DeviceArray.from_numpy(LINE, stream), lr.DeviceArray.from_numpy(MASK, stream)
    return _bytes(lr.sum(x, where=mask, initial=2.0, stream=stream))


def _tree(*values):
    return b"".join(np.asarray(value).tobytes() for value in values)


SUM = _tree(lr.tree.reduce(LINE))
PATHS = {
    rows_and_columns: _tree(*[lr.tree.reduce(TABLE, axis=1)] * 2, *lr.tree.reduce(TABLE, "minmax", axis=0)),
    segments: _tree(*(lr.tree.reduce(LINE[a:b]) for a, b in itertools.pairwise(OFFSETS))),
    workspace_of_the_callers: SUM,
    allocator: SUM,
    green_context: SUM,
    pool: SUM,
    graph_nodes: SUM + _tree(lr.tree.reduce(-LINE)),
    graph_update: _tree(lr.tree.reduce(-LINE)),
    one_shot: SUM * 3,
    shards: _tree(lr.tree.reduce(SHARDS.ravel())) * 2,
    mask_and_initial: _tree(lr.tree.reduce(LINE, where=MASK, initial=2.0)),
}


# What stays where the call that failed was the one to release it: nobody tries again. A green context is two of them.
FINAL = {
    "cuLibraryUnload": {"libraries": 1},
    "cuMemFree": {"allocations": 1},
    "cuStreamDestroy": {"streams": 1},
    "cuEventDestroy": {"events": 1},
    "cuGraphDestroy": {"graphs": 1},
    "cuGraphExecDestroy": {"executable graphs": 1},
    "cuGreenCtxDestroy": {"contexts": 2},
    "cuMemPoolDestroy": {"memory pools": 1},
    "cuMemHostAlloc": {"allocations": -1},  # results are read without page-locked memory then
}

# Without an answer the other way is taken: a quick call pushes its context, as if another were current.
ASKED_BY_THE_QUICK_WAY = {"cuStreamIsCapturing", "cuCtxGetId", "cuCtxGetCurrent"}


class Trial:
    """A path on a fresh driver: once with its k-th call failing, or none for 0, and once as it should be.

    Another context than the path's is current all the while.
    """

    _numbers = itertools.count()

    def __init__(self, engine):
        self.driver = SimulatedDriver(SMALL, engine=engine)
        self.calls = []
        call = self.driver._call
        self.driver._call = lambda name, *rest: (self._note(name), call(name, *rest))[1]
        self.error = self.value = None

    def _note(self, name):
        if not name.startswith("cuGetError"):
            self.calls.append(name)

    def run(self, path, k):
        own = f"failing {next(self._numbers)}"
        binding.register(own, lambda: self.driver)
        with contextlib.ExitStack() as stack:
            stack.callback(binding.register, own, lambda: None)  # lets go of the driver and its memory
            stack.enter_context(binding.use(own))
            outer, context = (stack.enter_context(Context.create()) for _ in range(2))
            stream = stack.enter_context(Stream.create(context))
            stack.enter_context(outer.pushed())
            self.calls.clear()
            if k:
                self.driver.fail(k, cu.CUresult.CUDA_ERROR_UNKNOWN)
            try:
                self.value = path(context, stream)
            except Exception as error:  # noqa: BLE001 - looked at by the test
                self.error = error.with_traceback(None)  # whose frames hold what was made
                error.__context__ = error.__cause__ = None
            self.made = list(self.calls)
            self.balanced = self.driver._state.stack == [outer.handle]
            self.driver._state.stack[:] = [outer.handle]
            self.again = path(context, stream)
            gc.collect()
            self.left = self.driver.leaks()


@pytest.fixture(scope="module")
def engine():
    """The simulator's machine, which parses a kernel once for all drivers."""
    machine = default_engine()
    return replace(machine, parse=functools.cache(machine.parse))


def trial(engine, path, k, *, launches=True):
    """Try a path; without `launches` no kernel runs, and there are no values to look at."""
    trial = Trial(engine if launches else replace(engine, run=lambda launch, memory: Counters()))
    trial.run(path, k)
    return trial


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
def test_every_call_may_fail(machine, engine, caplog, is_sample, path):
    if machine != "simulated":
        pytest.skip("a real driver's calls do not fail to order")
    usual, seen = trial(engine, path, 0), set()
    assert (usual.value, usual.error, usual.balanced) == (PATHS[path], None, True)
    made = list(enumerate(usual.made, start=1))
    for k, failed in made[:: 7 if is_sample else 1]:
        caplog.clear()
        launches = failed not in seen  # running kernels takes most of the time: once for each function is enough
        seen.add(failed)
        found, what = trial(engine, path, k, launches=launches), f"call {k}, {failed}"
        assert found.made[k - 1] == failed, what
        if found.error is None:  # of a release by the collector, which can tell nobody but the log
            assert f"{failed} failed" in caplog.text or failed in ASKED_BY_THE_QUICK_WAY, what
            assert not launches or found.value == PATHS[path], what
        else:
            assert isinstance(found.error, CudaError), what
            assert found.error.call == failed, what
        assert found.balanced, what
        assert not launches or found.again == PATHS[path], what
        left = collections.Counter(found.left)
        left.subtract(usual.left)
        assert {noun: count for noun, count in left.items() if count} in ({}, FINAL.get(failed)), what
