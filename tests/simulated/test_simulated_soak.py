"""The fuzzers of the library's operations: some trials of each, and that they see what is lost on purpose."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.arrays.exchange import home_of
from lowlevel_reduce.driver import binding
from lowlevel_reduce.strategy import columns
from tests.fuzz import array_faults, driver_faults, endurance, interrupts, memory_faults
from tests.fuzz.operations import OPERATIONS, allocate_and_free, graph, sum_of_device_array
from tests.fuzz.worlds import Machine
from tests.soak.__main__ import main

FEW = {allocate_and_free, graph, sum_of_device_array}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Disturb some operations alone."""
    for operation in OPERATIONS.keys() - FEW:
        monkeypatch.delitem(OPERATIONS, operation)


@pytest.fixture(scope="module")
def machine():
    return Machine()


def leaky(world):
    """Lose memory, and a context on the stack, where the first call after the allocation does not go through."""
    with world.context.pushed():
        pointer = int(binding.call("cuMemAlloc", 64))
        binding.call("cuMemsetD8Async", pointer, 1, 64, world.stream.handle)
        binding.call("cuMemFree", pointer)
    return b"leaky"


@pytest.fixture
def losing(monkeypatch):
    for operation in FEW - {sum_of_device_array}:
        monkeypatch.delitem(OPERATIONS, operation)
    monkeypatch.setitem(OPERATIONS, leaky, b"leaky")
    monkeypatch.setitem(OPERATIONS, allocate_and_free, OPERATIONS.get(allocate_and_free, bytes([7]) * 512))


@pytest.mark.slow
@pytest.mark.parametrize("fuzz", [driver_faults.once, driver_faults.persistently], ids=["once", "from one on"])
def test_calls_of_the_driver_that_fail_lose_nothing(machine, fuzz):
    tally = fuzz(3, 40, machine)
    tally.check()
    assert tally.tried == 40
    assert tally.refused["CudaError"] > 20
    again = fuzz(3, 40, machine)
    assert (again.accepted, again.refused) == (tally.accepted, tally.refused)


@pytest.mark.slow
@pytest.mark.parametrize("fuzz", [driver_faults.once, interrupts.by_trace], ids=["fault", "interrupt"])
@pytest.mark.usefixtures("losing")
def test_what_is_lost_on_purpose_is_seen(machine, fuzz):
    tally = fuzz(4, 150, machine)
    assert any("leaky" in each and "allocations left" in each for each in tally.lost)
    with pytest.raises(AssertionError, match="seed 4"):
        tally.check()


def test_interrupts_come_where_python_looks_for_signals(machine):
    tally = interrupts.by_trace(5, 10, machine)
    assert tally.tried == 10
    assert tally.refused["KeyboardInterrupt"] > 5


def test_growth_is_seen():
    kept = []

    def call(number):
        kept.append([number])

    tally = endurance.Tally("", 0)
    endurance._endure(tally, 20_000, call)
    assert any("blocks more" in each for each in tally.lost)


def test_what_modules_say_of_bounds_is_of_stores_that_are_looked_at():
    """A name that nothing has any more would let its successor be taken for growth."""
    with endurance._fake() as (_, stream):
        lr.sum(lr.DeviceArray.empty((6, 7), "float32", stream), axis=0, stream=stream)
        lr.reduce_shards([lr.DeviceArray.empty(1024, "float32", stream) for _ in range(2)])
        engine = SimpleNamespace(rank=0, size=1, all_gather=lambda message: message)
        lr.distributed.group(engine)
        home_of(stream.context)
        found = endurance.stores()
        lr.distributed.forget(engine)
    stated = [(name, most) for module in modules() for name, most in getattr(module, "BOUNDS", {}).items()]
    assert len(stated) >= 15
    for name, most in stated:
        assert [key for key, store in found.items() if name in key and store.most == most], name
    assert all(store.most is None or store.size <= store.most for store in found.values())


def modules():
    return [sys.modules[name] for name in list(sys.modules) if name.startswith("lowlevel_reduce.")]


def test_columns_that_are_remembered_again_are_no_growth():
    """As at the end of a million calls, where few choices were remembered when they were looked at before."""
    columns._chosen.clear()
    grown = endurance.Grown()
    columns._chosen.update(dict.fromkeys(range(100)))
    try:
        assert not [each for each in grown.found(7) if "_chosen" in each]
        columns._chosen.update(dict.fromkeys(range(257)))
        assert [each for each in grown.found(7) if "_chosen" in each]
    finally:
        columns._chosen.clear()


def test_the_command_runs_kinds_in_their_processes(tmp_path, capsys):
    names = ["driver calls that failed once", "signals whose handler reduces"]
    record, page = tmp_path / "soak.json", tmp_path / "page.md"
    asked = ["--seed", "6", "--minutes", "0.02", "--jobs", "2", "--json", str(record), "--page", str(page)]
    assert main([*asked, "--only", *names]) == 0
    said = capsys.readouterr().out
    assert "--seed 6" in said
    assert said.endswith("; lost: nothing.\n")
    found = json.loads(record.read_text())
    assert {kind["kind"] for kind in found["kinds"]} == set(names)
    assert all(kind["tried"] for kind in found["kinds"])
    assert all(f"| {name} | " in page.read_text() for name in names)
    assert main(["--only", "nothing of this name"]) == 2


@pytest.mark.skipif(memory_faults.why_not() is not None, reason=str(memory_faults.why_not()))
def test_allocations_fail_and_the_operation_works_again():
    tally = memory_faults.once(7, 5)
    assert tally.tried >= 5
    assert tally.refused["MemoryError"]
    assert not [each for each in tally.lost if "wrong result" in each or "afterwards" in each], sys.version


HOARDING = """
from lowlevel_reduce.driver import Buffer
from tests.fuzz import memory_faults
from tests.fuzz.operations import OPERATIONS
from tests.fuzz.worlds import Machine, world

kept = []

def hoarding(world):
    kept.append(Buffer.allocate(64, world.context))
    return b"hoarding"

OPERATIONS.clear()
machine = Machine()
machine.warm()
with world(machine) as one:
    usual = one.left()
OPERATIONS[hoarding] = b"hoarding"
trial = lambda: memory_faults._trial(machine, hoarding, usual, (1, 10**6), 1, "hoarding")
print(memory_faults._forked(trial, "hoarding").lost)
"""
"""It keeps memory in a list of a module, which the collector is not shown any more when the trials begin."""


@pytest.mark.skipif(memory_faults.why_not() is not None, reason=str(memory_faults.why_not()))
def test_what_a_module_keeps_is_not_taken_for_what_the_interpreter_loses():
    """In a process of its own, as the soak's trials: in this one other tests may have left what nobody reaches."""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", HOARDING], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "['hoarding: 2 allocations left']\n"


def test_arrays_that_have_no_memory_lose_nothing(machine):
    tally = array_faults.fuzz_arrays(8, 16, machine)
    tally.check()
    assert tally.tried == 16
    assert tally.refused["MemoryError"] >= 12
    assert sum(array_faults.counted(machine, operation) for operation in FEW) >= 4, "of some in each"
