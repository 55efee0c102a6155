"""The public path, each driver call failing once: a typed error, the stack as before, nothing lost, usable again."""

import gc
import itertools
from contextlib import ExitStack, nullcontext

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.calls import threads

X = np.arange(100, dtype=np.float32)
TOTAL = lr.tree.reduce(X).tobytes()

# A release that the driver refuses is not tried again: of this one thing, and of nothing else, the driver keeps one.
RELEASES = {
    "cuCtxDestroy": "contexts",
    "cuDevicePrimaryCtxRelease": "contexts",
    "cuLibraryUnload": "libraries",
    "cuMemFree": "allocations",
    "cuMemFreeHost": "allocations",
    "cuMemFreeAsync": "allocations",
    "cuStreamDestroy": "streams",
    "cuEventDestroy": "events",
    "cuGraphDestroy": "graphs",
    "cuGraphExecDestroy": "executable graphs",
}

NOT_MADE = {"cuMemHostAlloc": {"allocations": -1}}  # page-locked memory, without which results are read all the same


def check(result):
    assert result.numpy().tobytes() == TOTAL


def sum_of_numpy(context, objects):
    check(lr.sum(X))


def sum_of_a_device_array(context, objects):
    with lr.Stream.create(context) as stream:
        check(lr.sum(lr.DeviceArray.from_numpy(X, stream), stream=stream))


def sum_into_out(context, objects):
    with lr.Stream.create(context) as stream, lr.Stream.create(context) as other:
        out = lr.DeviceArray.empty((), "float32", other)
        assert lr.sum(X, out=out, stream=stream) is out
        stream.synchronize()
        check(out)


def sum_on_a_foreign_stream(context, objects):
    class Foreign:
        def __init__(self, stream):
            self.stream = stream

        def __cuda_stream__(self):
            return 0, self.stream.handle

    with lr.Stream.create(context) as stream:
        check(lr.sum(X, stream=Foreign(stream)))
        check(lr.sum(X, stream=lr.Stream.from_handle(stream.handle)))


def plan_bind_call_capture(context, objects):
    """The plan is the same object when the path runs again after a fault."""
    if "plan" not in objects:
        objects["plan"] = lr.plan(
            "sum", shape=X.shape, dtype=X.dtype, context=context, strategy="cluster", cluster=2, block_threads=32
        )
    with ExitStack() as stack:
        stream = stack.enter_context(lr.Stream.create(context))
        source = stack.enter_context(lr.Buffer.allocate(X.nbytes, context))
        result = stack.enter_context(lr.Buffer.allocate(4, context))
        source.copy_from(X, stream=stream)
        bound = objects["plan"].bind(stream)
        stack.callback(bound.close)
        bound.check(source.pointer, result.pointer)
        bound(source.pointer, result.pointer)
        with lr.Graph.capture(stream) as graph:
            bound(source.pointer, result.pointer)
        stack.enter_context(graph)
        executable = stack.enter_context(graph.instantiate())
        executable.launch(stream)
        stack.enter_context(stream.record()).synchronize()
        value = np.empty((), np.float32)
        result.copy_to(value)
        assert value.tobytes() == TOTAL


PATHS = [sum_of_numpy, sum_of_a_device_array, sum_into_out, sum_on_a_foreign_stream, plan_bind_call_capture]
CONTEXTS = {  # how it is made, and whether it is the current one
    "created": (lr.Context.create, True),
    "primary, not current": (lr.Context.primary, False),
    "borrowed": (lambda: lr.Context.from_handle((owner := lr.Context.create()).handle, owner=owner), True),
}


@pytest.fixture(autouse=True)
def _without_the_collector():
    """What a fault leaves behind must not wait for it, in a circle of an error and the frames that it came through."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def fail_once(k, path, how, caplog):
    """Let the path's call `k` fail, or none for 0, and then run it again with the same objects.

    Returns the calls of the first run, its error, what was logged, and what is left when both are over.
    """
    make, current = how
    with simulator.use("H200") as driver, make() as context, context.pushed() if current else nullcontext():
        names, call = [], driver._call
        driver._call = lambda name, *rest: (names.append(name), call(name, *rest))[1]
        stack, objects, error = list(driver._state.stack), {}, None
        caplog.clear()
        if k:
            driver.fail(k, "UNKNOWN")
        try:
            path(context, objects)
        except lr.ReduceError as caught:
            error = caught.with_traceback(None)  # whose frames hold what was made
            error.__context__ = error.__cause__ = None
        calls = [name for name in names if not name.startswith("cuGetError")]
        assert driver._state.stack == stack, f"call {k}, {calls[k - 1]}: the context stack is another one"
        logged = [record.getMessage() for record in caplog.records]
        path(context, objects)
        threads.here().forget()  # a pool keeps more or less of what is free, by where the fault was
        return calls, error, logged, driver.leaks()


COMBINATIONS = [
    *((path, "created") for path in PATHS),
    *((path, "primary, not current") for path in (sum_of_numpy, plan_bind_call_capture)),
    *((path, "borrowed") for path in (sum_on_a_foreign_stream, plan_bind_call_capture)),
]


@pytest.mark.parametrize(("path", "how"), COMBINATIONS, ids=lambda value: getattr(value, "__name__", value))
def test_every_call_may_fail(path, how, caplog, steps):
    how = CONTEXTS[how]
    calls, error, logged, left = fail_once(0, path, how, caplog)
    assert (error, logged) == (None, [])
    assert len(calls) > 30
    for step in itertools.takewhile(range(len(calls)).__contains__, steps()):
        k, name = step + 1, calls[step]
        made, error, logged, leaks = fail_once(k, path, how, caplog)
        assert made[k - 1] == name
        # What nobody closes is released by the collector, which can only log a refusal. And where it is not known which
        # context is current, the call pushes its own.
        if error is None:
            is_told = [line for line in logged if name in line] or name == "cuCtxGetId"
            assert is_told, f"call {k}, {name}: its refusal is not told"
        else:
            assert isinstance(error, lr.CudaError)
            assert error.call == name
        lost = {noun: count - left.get(noun, 0) for noun, count in leaks.items() if count != left.get(noun, 0)}
        expected = ({}, {RELEASES.get(name): 1}, NOT_MADE.get(name))
        assert lost in expected, f"call {k}, {name}: {lost} more than without a fault"
