"""Demonstrations that need two devices or a clock, on simulated devices with times from a script."""

import itertools

import pytest
from cuda.bindings import driver as cu

from lowlevel_reduce import simulator
from lowlevel_reduce.compiler import Program, compile_program
from lowlevel_reduce.driver import Context, Library, binding
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.study import links, placement, timing
from lowlevel_reduce.study.bench import Bench

# A study_spin whose times are made up: 300 µs into a kernel of 500 µs the one that is to wait for it begins.
SPIN = r"""
extern "C" __global__ void study_spin(unsigned long long *out, unsigned long long duration, unsigned waits, unsigned)
{
    if (threadIdx.x) return;
    out[0] = waits ? 301000 : 1000;
    out[1] = out[0];
    out[2] = out[0] + duration;
    out[3] = 0;
}
"""

# A study_update that updates nothing.
UPDATE = """
extern "C" __global__ void study_update(const void *node, unsigned long long value, int *code) { *code = CODE; }
"""

needs_the_hint = pytest.mark.skipif(
    not hasattr(cu.CUlaunchAttributeID, "CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING"),
    reason="these bindings do not know the attribute",
)


@pytest.fixture
def two(kept_kernels):
    with simulator.use("H200", devices=2) as driver:
        yield driver


@pytest.fixture
def bench(two, monkeypatch):
    """A bench that takes its device for a real one; kernels of links need no clock."""
    with Context.primary(0) as context, context.pushed(), Bench(context) as bench:
        bench.kernel("study_read")
        bench.kernel("study_where")
        monkeypatch.setattr(bench, "has_clock", True)
        yield bench


def timed(monkeypatch, hint_ms, plain_ms):
    """Let launches with the hint and without take these times, in turn and forever."""
    times = {True: itertools.cycle(hint_ms), False: itertools.cycle(plain_ms)}

    def ms(bench, events, launch, values):
        launch(*values)
        return next(times[launch.config.nvlink_centric_scheduling])

    monkeypatch.setattr(links, "_BYTES", 1 << 16)
    monkeypatch.setattr(links, "_BLOCKS", (1, 2))
    monkeypatch.setattr(links, "_ms", ms)


@needs_the_hint
@pytest.mark.parametrize(
    ("hint_ms", "plain_ms", "cell"),
    [
        ([0.001], [0.002], "66 / 33 by 1 blocks"),
        ([0.001, 0.004], [0.002], "66 / 33 by 1 blocks: no difference seen"),
        ([0.002], [0.001], "33 / 66 by 1 blocks: the other way round than expected"),
    ],
)
def test_both_ways_over_the_link_are_compared(two, bench, monkeypatch, hint_ms, plain_ms, cell):
    timed(monkeypatch, hint_ms, plain_ms)
    said = links.nvlink_centric(bench)
    where, what = said.split("; ", 1)
    assert where == "16 blocks run with the hint on the same multiprocessors"
    assert what.startswith(f"memory of GPU 1 over NVLink, GB/s with the hint / without: read {cell}, ")
    assert f"; written {cell}, " in what
    kernels = {record.kernel for record in two.launches}
    assert {"study_read", "study_write"} <= kernels


@needs_the_hint
def test_no_permission_is_left_behind(two, bench, monkeypatch):
    timed(monkeypatch, [0.001], [0.002])
    before = two.leaks()["contexts"]
    links.nvlink_centric(bench)
    assert two.calls["cuCtxEnablePeerAccess"] == two.calls["cuCtxDisablePeerAccess"] == 1
    assert two.leaks()["contexts"] == before

    def failing(*arguments):
        raise KeyError

    monkeypatch.setattr(links, "_ms", failing)
    with pytest.raises(KeyError):
        links.nvlink_centric(bench)
    assert two.calls["cuCtxDisablePeerAccess"] == 2
    assert two.leaks()["contexts"] == before


@needs_the_hint
def test_permission_that_somebody_else_gave_stays(two, bench, monkeypatch):
    timed(monkeypatch, [0.001], [0.002])
    with Context.primary(1) as peer:
        binding.call("cuCtxEnablePeerAccess", peer.handle, 0)
        links.nvlink_centric(bench)
        assert not two.calls["cuCtxDisablePeerAccess"]
        binding.call("cuCtxDisablePeerAccess", peer.handle)
        with pytest.raises(CudaError, match="NOT_ENABLED"):
            binding.call("cuCtxDisablePeerAccess", peer.handle)


@needs_the_hint
def test_permission_that_is_not_given_is_told(two, bench):
    two.fail_call("cuCtxEnablePeerAccess", 1, cu.CUresult.CUDA_ERROR_TOO_MANY_PEERS)
    said = links.nvlink_centric(bench)
    assert said.endswith("; memory of GPU 1 over NVLink is refused (CUDA_ERROR_TOO_MANY_PEERS)")
    assert not two.calls["cuCtxDisablePeerAccess"]


@needs_the_hint
@pytest.mark.parametrize("reason", ["one device", "no way between two"])
def test_what_lacks_is_said(bench, monkeypatch, reason):
    if reason == "one device":
        monkeypatch.setattr(links.Device, "all", lambda: (bench.device,))
        monkeypatch.setattr(links.Device, "count", lambda: 1)
    else:
        monkeypatch.setattr(links, "_reaches", lambda device, other: False)
    count = 1 if reason == "one device" else 2
    said = links.nvlink_centric(bench)
    assert said.endswith(f"needs two GPUs that reach each other's memory, and this process sees {count}")


@pytest.fixture
def standing_in(driver):
    """Return a bench on which a kernel of this file stands in for those of a header."""
    with Context.primary(0) as context, context.pushed(), Bench(context) as bench:

        def standing_in(header, source):
            image = compile_program(Program(header, source), bench.device.architecture, output="ptx")
            bench._libraries[header] = bench._stack.enter_context(Library.load(image.data, name=header))
            return bench

        yield standing_in


@pytest.fixture
def spinning(standing_in):
    return standing_in("timing", SPIN)


def test_a_programmatic_event_is_waited_for_in_every_way(driver, spinning):
    said = timing.programmatic_event(spinning)
    seen = "plain, programmatic, in a graph: " + ", ".join(["200 µs before the end"] * 3)
    assert said == (
        f"a kernel behind the event of one which triggers it at once, {seen}; whose blocks do as they start, {seen}"
    )
    assert len(driver.launches) == 12
    assert driver.calls["cuGraphLaunch"] == 2


def test_a_way_that_the_driver_refuses_is_told_and_the_others_are_seen(driver, spinning):
    driver.fail_call("cuStreamBeginCapture", 1, cu.CUresult.CUDA_ERROR_NOT_SUPPORTED)
    said = timing.programmatic_event(spinning)
    assert said.count("200 µs before the end") == 5
    assert said.count("is refused (CUDA_ERROR_NOT_SUPPORTED)") == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "gave the next node of its graph another address, and it WROTE TO ITS OWN ALL THE SAME"),
        (801, "is refused the update of a node (error 801)"),
    ],
)
def test_an_update_of_a_node_that_does_nothing_is_told(driver, standing_in, monkeypatch, code, said):
    bench = standing_in("update", UPDATE.replace("CODE", str(code)))
    bench.kernel("study_where")
    monkeypatch.setattr(bench, "has_clock", True)
    assert placement.device_updatable(bench).endswith(f"; device code {said}")
    assert driver.calls["cuGraphUpload"] == 1
    assert [record.kernel for record in driver.launches] == ["study_update", "study_where"]
