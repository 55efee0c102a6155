"""The simulated driver when something comes in between: interrupts, calls from within calls, and no memory left."""

import contextlib
import ctypes
import gc
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from cuda.bindings import driver as cu
from in_threads import in_threads
from interrupts import at_step, interrupted
from ptx_kernel import own_places, text
from test_simulator_driver import good

from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Buffer, Context, Device, Library
from lowlevel_reduce.simulator.driver import records, turn
from lowlevel_reduce.simulator.machine.memory import spaces as memory_module

SIMULATOR = Path(simulator.__file__).parent
DRIVER = {str(path) for path in (SIMULATOR / "driver").glob("*.py")} | {str(SIMULATOR / "machine" / "memory.py")}
EVERYWHERE = {str(path) for path in SIMULATOR.rglob("*.py")}
OK = cu.CUresult.CUDA_SUCCESS

# Each thread adds its element to the sum.
PTX = text(
    own_places(4, 0) + "ld.global.u32 %r1, [%rd10]; red.global.add.u32 [%rd1], %r1;",
    arrays=2,
    module=".global .u32 seen[4] = {1, 2, 3, 4};",
).encode()
VALUES = np.arange(1, 33, dtype=np.uint32)
RIGHT = int(VALUES.sum())


@pytest.fixture
def driver():
    driver = simulator.SimulatedDriver("B200")
    good(driver.cuInit(0))
    good(driver.cuCtxSetCurrent(good(driver.cuDevicePrimaryCtxRetain(0))))
    return driver


def configuration(stream=0):
    made = cu.CUlaunchConfig()
    made.gridDimX = made.gridDimY = made.gridDimZ = made.blockDimY = made.blockDimZ = 1
    made.blockDimX, made.hStream = 32, cu.CUstream(int(stream))
    return made


def launch(driver, kernel, addresses, stream=0):
    slots = [ctypes.c_uint64(int(address)) for address in addresses]
    table = (ctypes.c_void_p * len(slots))(*(ctypes.addressof(slot) for slot in slots))
    return driver.cuLaunchKernelEx(configuration(stream), kernel, ctypes.addressof(table), 0)


def reduce(driver):
    """Load the kernel, sum the values with it, and let go of everything."""
    library = good(driver.cuLibraryLoadData(PTX, None, None, 0, None, None, 0))
    kernel = cu.CUfunction(int(good(driver.cuLibraryGetKernel(library, b"k"))))
    given, total = good(driver.cuMemAlloc(VALUES.nbytes)), good(driver.cuMemAlloc(4))
    good(driver.cuMemcpyAsync(given, VALUES.ctypes.data, VALUES.nbytes, 0))
    good(driver.cuMemsetD8Async(total, 0, 4, 0))
    good(launch(driver, kernel, (given, total)))
    result = ctypes.c_uint32(0)
    good(driver.cuMemcpyDtoHAsync(ctypes.addressof(result), total, 4, 0))
    good(driver.cuStreamSynchronize(0))
    for pointer in (given, total):
        good(driver.cuMemFree(pointer))
    good(driver.cuLibraryUnload(library))
    return result.value


def everything(driver):
    """A sum beside what else changes the driver's state: streams, events, pools, captures, graphs, contexts."""
    other = good(driver.cuCtxCreate(*(() if cu.CUDA_VERSION < 13000 else (None,)), 0, 0))
    good(driver.cuStreamCreate(0))
    good(driver.cuMemAlloc(64))
    good(driver.cuCtxDestroy(other))
    stream, second = (good(driver.cuStreamCreateWithPriority(1, 0)) for _ in range(2))
    event = good(driver.cuEventCreate(2))
    pinned = good(driver.cuMemHostAlloc(64, 0))
    good(driver.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode(2)))
    inside = good(driver.cuMemAllocAsync(64, stream))
    good(driver.cuMemsetD8Async(inside, 1, 64, stream))
    good(driver.cuEventRecord(event, stream))
    good(driver.cuStreamWaitEvent(second, event, 0))
    good(driver.cuMemcpyAsync(pinned, inside, 64, second))
    good(driver.cuEventRecord(event, second))
    good(driver.cuStreamWaitEvent(stream, event, 0))
    good(driver.cuMemFreeAsync(inside, stream))
    graph = good(driver.cuStreamEndCapture(stream))
    executable = good(driver.cuGraphInstantiate(graph, 0))
    good(driver.cuGraphLaunch(executable, stream))
    good(driver.cuMemFreeAsync(good(driver.cuMemAllocAsync(64, stream)), stream))
    good(driver.cuStreamSynchronize(stream))
    result = reduce(driver)
    good(driver.cuGraphExecDestroy(executable))
    good(driver.cuGraphDestroy(graph))
    good(driver.cuMemFreeHost(pinned))
    good(driver.cuEventDestroy(event))
    good(driver.cuStreamDestroy(stream))
    good(driver.cuStreamDestroy(second))
    return result


def steps_of(call, files):
    """Return how often Python looks for signals during a call, within these files."""
    low, high = 0, 1
    while at_step(call, high, lambda: None, signals_only=True, files=files):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        reached = at_step(call, middle, lambda: None, signals_only=True, files=files)
        low, high = (middle, high) if reached else (low, middle)
    return high


def some(count, most):
    """Return some of the steps, others in each run."""
    return sorted(random.sample(range(count), min(count, most)))


def fresh_context(driver):
    """End all contexts, and with what is in them all that an interrupt has left; retain the primary one anew."""
    driver._state.stack.clear()
    good(driver.cuCtxSetCurrent(good(driver.cuDevicePrimaryCtxRetain(0))))
    for pointer, record in list(driver._state.allocations.items()):
        good((driver.cuMemFreeHost if record.kind == "pinned" else driver.cuMemFree)(pointer))
    handles = [record.handle for record in driver._state.records.values() if isinstance(record, records.Context)]
    for handle in handles:
        if handle not in driver._state.primary_handles:
            good(driver.cuCtxDestroy(handle))
    while good(driver.cuDevicePrimaryCtxGetState(0))[1]:
        good(driver.cuDevicePrimaryCtxRelease(0))
    driver._state.stack.clear()
    good(driver.cuCtxSetCurrent(good(driver.cuDevicePrimaryCtxRetain(0))))


@pytest.mark.slow
@pytest.mark.parametrize(("call", "files", "most"), [(everything, DRIVER, 50), (reduce, EVERYWHERE, 25)])
def test_an_interrupt_anywhere_leaves_the_driver_usable(driver, call, files, most):
    count = steps_of(lambda: call(driver), files)
    assert count > 300
    for step in some(count, most):
        if interrupted(lambda: call(driver), step, signals_only=True, files=files) is None:
            continue  # the path differs a little: something is looked up the first time only
        assert reduce(driver) == RIGHT, step
        fresh_context(driver)
        assert everything(driver) == RIGHT, step
        assert not {"streams", "events", "allocations"} & set(driver.leaks()), step


@pytest.mark.slow
def test_a_call_from_within_a_call_asks_or_frees_or_is_refused(driver):
    """At any step of a call: what a signal's handler does, or a finalizer."""
    count, outcomes = steps_of(lambda: reduce(driver), DRIVER), []
    context = good(driver.cuCtxGetCurrent())

    def act():
        good(driver.cuCtxPushCurrent(context))
        assert good(driver.cuMemGetInfo())[1]
        freed.append(good(driver.cuMemFree(extra)))
        good(driver.cuCtxPopCurrent())
        try:
            outcomes.append(reduce(driver))
        except simulator.ReentrantCallError as error:
            outcomes.append(error.call)

    results = []
    for step in some(count, 40):
        extra, freed = good(driver.cuMemAlloc(16)), []
        at_step(lambda: results.append(reduce(driver)), step, act, signals_only=True, files=DRIVER)
        assert results.pop() == RIGHT, step
        assert freed, step
        assert int(extra) not in driver._state.allocations, step
        assert set(driver.leaks()) == {"contexts"}, step
    assert set(outcomes) <= {RIGHT, "cuLibraryLoadData"}
    assert "cuLibraryLoadData" in outcomes


def within(driver, act):
    """Act from within a launch, by the machine."""
    run, acted = driver._state.engine.run, []

    def interposed(launched, memory):
        if not acted:
            acted.append(None)
            acted[0] = act()
        return run(launched, memory)

    object.__setattr__(driver._state.engine, "run", interposed)
    try:
        assert reduce(driver) == RIGHT
    finally:
        object.__setattr__(driver._state.engine, "run", run)
    return acted[0]


def test_what_is_refused_is_named_and_says_what_to_do(driver):
    def act():
        with pytest.raises(simulator.ReentrantCallError, match="cuMemAlloc was called from within cuLaunchKernelEx"):
            driver.cuMemAlloc(4)

    within(driver, act)
    assert set(driver.leaks()) == {"contexts"}


def test_every_function_that_ends_something_does_so_after_the_call(driver):
    stream, event = good(driver.cuStreamCreate(1)), good(driver.cuEventCreate(2))
    pool = good(driver.cuMemAllocAsync(64, 0))
    pinned, device = good(driver.cuMemHostAlloc(64, 0)), good(driver.cuMemAlloc(64))
    library = good(driver.cuLibraryLoadData(PTX, None, None, 0, None, None, 0))
    graph = good(driver.cuGraphCreate(0))
    executable = good(driver.cuGraphInstantiate(graph, 0))
    primary = good(driver.cuDevicePrimaryCtxRetain(0))
    before = driver.leaks()

    def act():
        good(driver.cuStreamDestroy(stream))
        good(driver.cuEventDestroy(event))
        good(driver.cuMemFreeAsync(pool, 0))
        good(driver.cuMemFreeHost(pinned))
        good(driver.cuMemFree(device))
        good(driver.cuLibraryUnload(library))
        good(driver.cuGraphDestroy(graph))
        good(driver.cuGraphExecDestroy(executable))
        good(driver.cuDevicePrimaryCtxRelease(0))
        assert driver.cuMemFree(0x1234)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE, "what does not exist is refused now"
        assert driver.leaks()["streams"] == 1, "nothing changes during the call"

    within(driver, act)
    assert before == {
        **{"contexts": 1, "streams": 1, "events": 1, "libraries": 1},
        **{"graphs": 1, "executable graphs": 1, "allocations": 3},
    }
    assert driver.leaks() == {"contexts": 1}
    assert len(driver._state.primary(0).owners) == 1, int(primary)


def test_the_lists_of_the_rule_name_functions_that_there_are(driver):
    known = set(driver._functions)
    assert known >= turn.LATER
    assert known >= turn.AT_ONCE
    assert not turn.AT_ONCE & turn.LATER
    ends = {name for name in known if any(word in name for word in ("Destroy", "Free", "Unload", "Release"))}
    assert ends == turn.LATER


@pytest.mark.parametrize("collected", [True, False], ids=["collector", "handler"])
def test_finalizers_from_within_a_call_are_not_lost(collected):
    """Those of the library: a buffer's goes through the context's stack and the thread's mode of capture."""
    with simulator.use("B200") as driver, Context.primary(Device(0)) as context, context.pushed():
        with Library.load(PTX, name="sums"):
            held = [Buffer.allocate(64, context)]
            if collected:
                held.append(held)

            def act():
                nonlocal held
                held = None
                if collected:
                    gc.collect()
                return driver.leaks()["allocations"]

            assert within(driver, act) == 3, "the call under way has two, and is not touched"
            assert driver.leaks() == {"contexts": 1, "libraries": 1}
            assert driver._state.stack == [context.handle]


def test_threads_wait_for_each_other(driver):
    context, results = good(driver.cuCtxGetCurrent()), []

    def other():
        good(driver.cuCtxPushCurrent(context))
        results.append(reduce(driver))

    thread = threading.Thread(target=other, daemon=True)

    def act():
        thread.start()
        thread.join(0.05)
        return list(results)

    assert within(driver, act) == []
    thread.join(60)
    assert results == [RIGHT]
    in_threads(*[other] * 4, timeout=60)
    assert results == [RIGHT] * 5


class TestNoMemory:
    """NumPy's error for memory that the host does not have becomes the driver's code, and nothing has changed."""

    @pytest.fixture
    def out_of_memory(self, monkeypatch):
        """Let the k-th allocation from now on fail."""
        left = [0]

        class Storage(memory_module.Storage):
            def __init__(self, size):
                left[0] -= 1
                if left[0] == -1:
                    raise MemoryError("unable to allocate an array")
                super().__init__(size)

        monkeypatch.setattr(memory_module, "Storage", Storage)
        return lambda k: left.__setitem__(0, k)

    @pytest.mark.parametrize("call", ["cuMemAlloc", "cuMemAllocAsync"])
    def test_allocations(self, driver, out_of_memory, call):
        arguments = (64, 0) if call == "cuMemAllocAsync" else (64,)
        before, known = driver.leaks(), driver._state.memory.known
        free = good(driver.cuMemGetInfo())
        out_of_memory(0)
        assert getattr(driver, call)(*arguments) == (cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY, None)
        assert (driver.leaks(), driver._state.memory.known, good(driver.cuMemGetInfo())) == (before, known, free)
        assert reduce(driver) == RIGHT
        good(driver.cuMemFree(good(getattr(driver, call)(*arguments))))

    def test_what_is_larger_than_any_host_is_refused(self, driver):
        assert driver.cuMemHostAlloc(1 << 60, 0)[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        assert driver.cuMemAlloc(1 << 60)[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        assert set(driver.leaks()) == {"contexts"}

    def test_variables_of_a_library(self, driver, out_of_memory):
        known = driver._state.memory.known
        out_of_memory(0)
        loaded = driver.cuLibraryLoadData(PTX, None, None, 0, None, None, 0)
        assert loaded[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        assert (driver._state.memory.known, set(driver.leaks())) == (known, {"contexts"})
        assert reduce(driver) == RIGHT

    def test_memory_of_a_graph(self, driver, out_of_memory):
        stream = good(driver.cuStreamCreate(1))
        good(driver.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode(2)))
        inside = good(driver.cuMemAllocAsync(64, stream))
        good(driver.cuMemsetD8Async(inside, 1, 64, stream))
        good(driver.cuMemFreeAsync(inside, stream))
        executable = good(driver.cuGraphInstantiate(good(driver.cuStreamEndCapture(stream)), 0))
        out_of_memory(0)
        assert driver.cuGraphLaunch(executable, stream)[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        assert "allocations" not in driver.leaks()
        good(driver.cuGraphLaunch(executable, stream))

    @pytest.mark.slow
    @pytest.mark.parametrize("call", [reduce, everything])
    def test_an_error_of_memory_anywhere(self, driver, call):
        """Whichever step needs the memory that is not there: the code of the driver, or the error before any step."""

        def act():
            raise MemoryError

        count = steps_of(lambda: call(driver), DRIVER)
        for step in some(count, 25):
            with contextlib.suppress(MemoryError, AssertionError):
                at_step(lambda: call(driver), step, act, signals_only=True, files=DRIVER)
            fresh_context(driver)
            assert everything(driver) == RIGHT, step


def test_a_reduction_after_every_kind_of_refusal_is_right(driver):
    """What the machine refuses in the middle of a launch leaves nothing behind."""
    wrong = PTX.replace(b"ld.global.u32 %r1, [%rd10]", b"ld.global.u32 %r1, [%rd10+65536]")
    library = good(driver.cuLibraryLoadData(wrong, None, None, 0, None, None, 0))
    kernel = cu.CUfunction(int(good(driver.cuLibraryGetKernel(library, b"k"))))
    given, total = good(driver.cuMemAlloc(VALUES.nbytes)), good(driver.cuMemAlloc(4))
    for _ in range(3):
        with pytest.raises(Exception, match="past the end"):
            launch(driver, kernel, (given, total))
        assert reduce(driver) == RIGHT
