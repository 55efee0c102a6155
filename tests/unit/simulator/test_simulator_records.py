"""What the simulated driver remembers is bounded: launches, freed memory, the places of graphs' memory."""

import gc
import tracemalloc

import pytest
from cuda.bindings import driver as cu
from test_simulator_turn import OK, PTX, RIGHT, VALUES, driver, good, launch, reduce  # noqa: F401 - a fixture

from lowlevel_reduce.simulator import machine
from lowlevel_reduce.simulator.driver import state
from lowlevel_reduce.simulator.machine.memory import spaces


def test_launches(driver, monkeypatch):  # noqa: F811
    monkeypatch.setattr(state, "LAUNCHES_KEPT", 8)
    assert reduce(driver) == RIGHT
    once = driver.counters()["k"]
    for _ in range(29):
        reduce(driver)
    assert len(driver.launches) == 8
    total = driver.counters()["k"]
    assert total.instructions == 30 * once.instructions
    assert total.instructions_by_class["memory"] == 30 * once.instructions_by_class["memory"]
    assert (total.atomics, total.bytes_read) == (30 * 32, 30 * once.bytes_read)


def test_freed_allocations(monkeypatch):
    monkeypatch.setattr(spaces, "FREED_KEPT", 8)
    there, lives = machine.GlobalMemory(), []
    for i in range(100):
        address = there.allocate(16)
        if i % 10:
            there.free(address)
            freed = address
        else:
            lives.append(address)
            there.write(address, bytes(16))
        assert there.known <= len(lives) + 2 * 8 + 2
    assert there.find(freed).freed, "of the last ones it is known where they were"
    assert [there.read(address, 16) for address in lives] == [bytes(16)] * 10
    assert there.find(lives[0] + 256 + 4096) is None, "the first ones are forgotten"
    with pytest.raises(ValueError, match="no allocation starts"):
        there.free(lives[0] + 256 + 4096)


def test_memory_of_graphs_that_are_gone(driver):  # noqa: F811
    stream, captured = good(driver.cuStreamCreate(1)), cu.CUstreamCaptureMode(2)
    for i in range(20):
        good(driver.cuStreamBeginCapture(stream, captured))
        inside = good(driver.cuMemAllocAsync(64, stream))
        good(driver.cuMemsetD8Async(inside, i, 64, stream))
        good(driver.cuMemFreeAsync(inside, stream))
        graph = good(driver.cuStreamEndCapture(stream))
        executable = good(driver.cuGraphInstantiate(graph, 0))
        good(driver.cuGraphDestroy(graph))
        for _ in range(2):
            good(driver.cuGraphLaunch(executable, stream))
        good(driver.cuGraphExecDestroy(executable))
        assert len(driver._state.reserved) == 0
        assert driver._state.memory.known <= 2


def test_records_of_a_few_dozen_launches(driver, monkeypatch):  # noqa: F811
    """Everything that the driver keeps, after forty rounds and after eighty."""
    monkeypatch.setattr(state, "LAUNCHES_KEPT", 8)
    monkeypatch.setattr(spaces, "FREED_KEPT", 8)
    sizes = []
    for _ in range(2):
        assert {reduce(driver) for _ in range(40)} == {RIGHT}
        sizes.append(_sizes(driver))
    before, after = sizes
    assert before.pop("known") <= 2 * 8 + 4
    assert after.pop("known") <= 2 * 8 + 4
    assert before == after


def _sizes(driver):  # noqa: F811
    found = {name: len(value) for name, value in vars(driver._state).items() if hasattr(value, "__len__")}
    return found | {"known": driver._state.memory.known, "launches": len(driver.launches)}


@pytest.mark.soak
def test_memory_does_not_grow_over_ten_thousand_launches(driver):  # noqa: F811
    """From launch 1,000, when what is bounded is full, to the end, with memory allocated and freed for each."""
    counts = endure(driver, launches=10_000, settled=1_000)
    assert counts["grown_bytes"] < 100_000, counts
    assert counts["records"] == counts["records_settled"], counts


def endure(driver, launches, settled):  # noqa: F811
    """Launch a kernel of one warp so often, with fresh memory each time; return how much the driver has grown."""
    library = good(driver.cuLibraryLoadData(PTX, None, None, 0, None, None, 0))
    kernel = cu.CUfunction(int(good(driver.cuLibraryGetKernel(library, b"k"))))
    counts = {}
    for i in range(launches):
        if i == settled:
            gc.collect()
            tracemalloc.start()
            counts["records_settled"] = _bounded(driver)
        given, total = good(driver.cuMemAlloc(VALUES.nbytes)), good(driver.cuMemAlloc(4))
        good(driver.cuMemcpyAsync(given, VALUES.ctypes.data, VALUES.nbytes, 0))
        good(driver.cuMemsetD8Async(total, 0, 4, 0))
        assert launch(driver, kernel, (given, total)) == (OK,)
        for pointer in (given, total):
            good(driver.cuMemFree(pointer))
        if i == settled + 1_100:  # by then all records of before are replaced by such that are traced
            gc.collect()
            counts["traced_bytes"] = tracemalloc.get_traced_memory()[0]
    gc.collect()
    counts["grown_bytes"] = tracemalloc.get_traced_memory()[0] - counts["traced_bytes"]
    tracemalloc.stop()
    return counts | {"records": _bounded(driver), "launches": launches}


def _bounded(driver):  # noqa: F811
    """Return whether each of the driver's collections is within its bound."""
    sizes = _sizes(driver)
    return sizes["known"] <= 2 * spaces.FREED_KEPT + 8, sizes["launches"] <= state.LAUNCHES_KEPT, sizes["records"]
