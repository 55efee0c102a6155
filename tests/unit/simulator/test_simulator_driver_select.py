"""How a simulated driver is chosen: for a block, or for the process by the environment."""

import gc
import weakref
from dataclasses import replace

import pytest
from test_simulator_driver import ENGINE, PTX

from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Buffer, Context, Device, LaunchConfig, Library, Stream, binding, launch


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr("lowlevel_reduce.simulator.driver.default_engine", lambda: ENGINE)


def test_a_block_has_a_driver_of_its_own():
    before = binding.selected()
    with simulator.use("A100") as outer:
        assert (Device(0).name, outer.IMAGE, binding.selected().image) == ("NVIDIA A100-SXM4-80GB", "ptx", "ptx")
        with simulator.use() as inner:
            assert Device(0).name == "NVIDIA H200"
            assert simulator.selected() is inner
        assert simulator.selected() is outer
    assert binding.selected() is before
    with pytest.raises(ValueError, match="H200, A100"):
        with simulator.use("Voodoo"):
            pass
    with pytest.raises(RuntimeError), simulator.use():
        raise RuntimeError
    assert binding.selected() is before
    with pytest.raises(ValueError, match="not simulated"):
        simulator.counters()


def test_counters_are_summed_by_kernel():
    with simulator.use() as driver:
        with Context.create() as context, Library.load(PTX) as library, Buffer.allocate(16, context) as buffer:
            for grid in (2, 3):
                config = LaunchConfig(grid, 32)
                launch(library.kernel("add"), config, Stream.legacy(context), "QII", buffer.pointer, 1, 1)
        assert simulator.counters()["add"]["blocks"] == 5
        assert driver.leaks() == {}


def test_ids_and_handles_are_never_shared():
    seen = []
    for _ in range(2):
        with simulator.use(), Context.primary() as context, Stream.create(context) as stream:
            seen.append({context.id, context.handle, stream.id, stream.handle})
    assert not seen[0] & seen[1]


def test_a_driver_goes_with_its_block():
    with simulator.use() as driver:
        gone = weakref.ref(driver)
    del driver
    gc.collect()
    assert gone() is None


def test_the_environment_names_the_device(monkeypatch):
    monkeypatch.setenv(simulator.DEVICE_VARIABLE, "rtx-4090")
    binding.register("simulator", simulator.by_environment)
    with binding.use("simulator"):
        assert Device(0).architecture == "sm_89"
        assert simulator.selected().device.key == "RTX 4090"
    binding.register("simulator", simulator.by_environment)
    monkeypatch.setenv(simulator.DEVICE_VARIABLE, "H300")
    with (
        pytest.raises(ValueError, match="LOWLEVEL_REDUCE_SIMULATED_DEVICE: no device 'H300'"),
        binding.use("simulator"),
    ):
        pass
    monkeypatch.delenv(simulator.DEVICE_VARIABLE)
    with binding.use("simulator"):
        assert Device(0).architecture == "sm_90"
    binding.register("simulator", simulator.by_environment)


def seeds_of_launches(monkeypatch, **options):
    """Return the seeds of a launch without one in the environment, and of one with it."""
    seen = []

    def run(launch, memory):
        seen.append(launch["seed"])
        return ENGINE.run(launch, memory)

    monkeypatch.setattr("lowlevel_reduce.simulator.driver.default_engine", lambda: replace(ENGINE, run=run))
    with simulator.use(**options), Context.primary() as context, context.pushed(), Stream.create(context) as stream:
        with Buffer.allocate(16, context) as memory, Library.load(PTX) as library:
            for value in ("", "77"):
                monkeypatch.setenv(simulator.SEED_VARIABLE, value)
                launch(library.kernel("add"), LaunchConfig(1, 32), stream, "QII", memory.pointer, 4, 1)
    return seen


@pytest.mark.parametrize(
    ("options", "seeds"), [({}, [None, 77]), ({"seed": 5}, [5, 5]), ({"seed": None}, [None, None])]
)
def test_each_launch_reads_its_seed_from_the_environment_if_the_driver_has_none(monkeypatch, options, seeds):
    assert seeds_of_launches(monkeypatch, **options) == seeds


def test_a_seed_that_is_no_number(monkeypatch):
    monkeypatch.setenv(simulator.SEED_VARIABLE, "-1")
    with pytest.raises(ValueError, match="LOWLEVEL_REDUCE_SIMULATED_SEED is '-1', not an integer of 0 or more"):
        simulator.SimulatedDriver()._state.seed_of_launch()
