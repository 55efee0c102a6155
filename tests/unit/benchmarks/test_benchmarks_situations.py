"""Added times, with kernels whose durations are made up: what is in each graph, and what is told of who fails."""

import contextlib
import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.measure import harness as harness_module
from benchmarks.measure import problems, situations, timing
from benchmarks.measure.figures import AFTER, ALONE, CONSUMED, OURS
from benchmarks.measure.harness import Harness, Inputs, Maker, Ready
from benchmarks.measure.problems import Case
from benchmarks.measure.situations import Neighbour, added
from benchmarks.peers.neighbours import ELSEWHERE_BYTES, Neighbours
from lowlevel_reduce import Buffer, simulator

STREAM = SimpleNamespace(synchronize=lambda: None)


class World:
    """A device on which a launch takes as long as its kernel's name says; a graph as long as what it holds."""

    def __init__(self, costs):
        self.costs, self.launched, self.replayed = costs, [], []

    def launch(self, name):
        self.launched.append(name)

    def captured(self, enqueue, stream, launches):
        before, self.launched = self.launched, []
        for i in range(launches):
            enqueue(i)
        held, self.launched = self.launched, before
        return SimpleNamespace(held=held, launch=lambda: self.replayed.append(held), close=lambda: None)

    def timed(self, before, measured, stream):
        before()
        measured()
        return sum(self.costs[name] for name in self.replayed[-1])

    def ready(self, name, **options):
        return Ready(name, lambda i: self.launch(name), list, **options)


@pytest.fixture
def world(monkeypatch):
    made = World({"other": 40.0, "reader": 2.0, OURS: 5.0, "CUB": 7.0, "slow": 1000.0})
    for module in (situations, harness_module):
        monkeypatch.setattr(module, "captured", made.captured)
        monkeypatch.setattr(module, "timed_us", made.timed)
    return made


def neighbour(world, mode=AFTER, **options):
    return Neighbour(mode, lambda: world.launch("other"), **options)


USUAL = {OURS: 5.0, "CUB": 7.0, "slow": 1000.0}


def test_the_added_time_is_that_of_the_graph_without_the_other_kernels(world):
    failed = {}
    entries = added([world.ready(OURS), world.ready("CUB")], USUAL, neighbour(world), STREAM, failed, 5)
    assert {name: entry["us"] for name, entry in entries.items()} == {OURS: 5.0, "CUB": 7.0}
    assert {entry["rounds"] for entry in entries.values()} == {5}
    assert failed == {}
    held = max(world.replayed, key=len)
    assert held[:4] == ["other", OURS] * 2 or held[:4] == ["other", "CUB"] * 2
    assert len(held) // 2 == int(situations.GRAPH_US / 45)


def test_all_graphs_hold_as_many_launches_and_take_turns(world):
    added([world.ready(OURS), world.ready("CUB")], USUAL, neighbour(world), STREAM, {}, 2)
    turns = [tuple(dict.fromkeys(held)) for held in world.replayed if len(held) > situations.FEWEST * 2]
    timed = turns[2:-2]  # each was replayed once when it was made, and is once more in the end
    assert timed == [each for name in ("", OURS, "CUB", OURS, "CUB", "") for each in 2 * [
        ("other", name) if name else ("other",)
    ]]  # fmt: skip


def test_a_very_slow_contender_is_timed_once(world):
    entries = added([world.ready(OURS), world.ready("slow")], USUAL, neighbour(world), STREAM, {}, 5)
    assert (entries["slow"]["us"], entries["slow"]["rounds"], entries[OURS]["rounds"]) == (1000.0, 1, 5)


def test_a_consumer_reads_the_results_and_the_base_has_one_too(world):
    read = []

    def after(results):
        read.append(results)
        world.launch("reader")

    contenders = [world.ready(OURS, outputs=lambda: "results"), world.ready("CUB")]
    entries = added(contenders, USUAL, neighbour(world, CONSUMED, after=after), STREAM, {}, 3)
    assert {name: entry["us"] for name, entry in entries.items()} == {OURS: 5.0}  # the other has nothing to be read
    assert set(read) == {None, "results"}
    assert max(world.replayed, key=len)[:3] == ["other", OURS, "reader"]


def test_who_raises_beside_other_kernels_fails_alone(world):
    def broken(enqueue, launches):
        raise RuntimeError("no memory for a graph")

    failed = {}
    entries = added([world.ready(OURS), world.ready("CUB", record=broken)], USUAL, neighbour(world), STREAM, failed, 3)
    assert list(entries) == [OURS]
    assert failed == {"CUB": {"error": "RuntimeError: no memory for a graph"}}


def test_a_time_that_is_not_there_is_no_figure(world):
    world.costs[OURS] = 0.0
    entries = added([world.ready(OURS)], USUAL, neighbour(world), STREAM, {}, 3)
    assert "not measurable" in entries[OURS]["error"]


CASE = Case("sum", (1000,))
RIGHT = problems.pattern("float32").at(np.arange(1000)).sum()


@pytest.fixture
def harness(world, monkeypatch):
    monkeypatch.setattr(harness_module, "events_us", lambda enqueue, stream, launches: 2000.0)
    monkeypatch.setattr(harness_module.caches, "make_room", lambda: None)  # it asks the driver
    return Harness(STREAM, rounds=2, situation_rounds=2)


def maker(world, name, results, **options):
    ready = Ready(name, lambda i: world.launch(name), lambda: [np.asarray([results()], np.float32)], **options)
    return Maker(name, lambda: ready)


def test_a_cell_has_a_row_for_each_situation(world, harness, monkeypatch):
    monkeypatch.setattr(harness, "inputs", lambda case, mode, *, spare: SimpleNamespace(offsets=None))
    monkeypatch.setattr(harness_module, "ours", lambda *_: maker(world, OURS, lambda: RIGHT)())
    made = [neighbour(world), neighbour(world, ALONE)]
    rows = harness.compare("a", CASE, [], neighbours=lambda inputs: made)
    assert [(row["cell"], row["mode"], row["entries"][OURS]["us"]) for row in rows] == [
        ("a", "rotated", 5.0), ("a", AFTER, 5.0), ("a", ALONE, 5.0),
    ]  # fmt: skip
    assert ["seconds" in row for row in rows] == [True, False, False]


def test_a_wrong_result_in_the_end_has_no_time_in_any_situation(world, harness):
    makers = [maker(world, OURS, lambda: RIGHT + 1000 * any("other" in held for held in world.replayed), exact=True),
              maker(world, "CUB", lambda: RIGHT)]  # fmt: skip
    found = harness.measure_around(CASE, makers, [neighbour(world)])
    assert set(found) == {"rotated", AFTER}
    for entries in found.values():
        assert "not timed" in entries[OURS]["error"]
        assert entries["CUB"]["us"] == 7.0


def test_an_error_of_the_other_kernel_loses_no_figure_of_launches_back_to_back(world, harness):
    def broken():
        raise RuntimeError("no memory for the other array")

    found = harness.measure_around(CASE, [maker(world, OURS, lambda: RIGHT)], [Neighbour(ALONE, broken)])
    assert found["rotated"][OURS]["us"] == 5.0
    assert found[ALONE][OURS] == {"error": "RuntimeError: no memory for the other array"}


class Torch:
    """NumPy under the names that are asked of PyTorch, on the host's memory."""

    uint8, int32 = np.uint8, np.int32
    bitwise_or = staticmethod(np.bitwise_or)

    def __init__(self):
        self.cuda = SimpleNamespace(stream=lambda external: contextlib.nullcontext())
        self.filled = []

    def as_tensor(self, raw, *, device):
        told = raw.__cuda_array_interface__
        memory = (ctypes.c_ubyte * (np.dtype(told["typestr"]).itemsize * told["shape"][0])).from_address(
            told["data"][0]
        )
        return np.frombuffer(memory, told["typestr"])

    def empty(self, size, *, dtype, device):
        return SimpleNamespace(fill_=lambda value: self.filled.append(4 * size))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "complex128"])
def test_the_producer_writes_all_that_the_input_spans(dtype):
    case = Case("sum", (3, 5), 0, dtype, strides=(7, 1))
    memory = [np.arange(case.array_bytes + 8, dtype=np.uint8) for _ in range(2)]
    memory[1][:] = 0
    inputs = Inputs(case, [memory[1].ctypes.data], spare=[memory[0].ctypes.data])
    torch = Torch()
    after, alone = Neighbours(SimpleNamespace(torch=torch, external=None)).of(case, inputs)
    after.before()
    assert memory[1][: case.array_bytes].tobytes() == memory[0][: case.array_bytes].tobytes()
    assert not memory[1][case.array_bytes :].any()
    assert (after.mode, alone.mode) == (AFTER, ALONE)
    alone.before()
    assert torch.filled == [ELSEWHERE_BYTES]


def test_a_dot_products_producer_writes_both_arrays():
    case = Case("dot", (4,))
    memory = [np.full(4, value, np.float32) for value in (1, 2, 0, 0)]
    inputs = Inputs(case, [memory[2].ctypes.data], seconds=[memory[3].ctypes.data],
                    spare=[memory[0].ctypes.data, memory[1].ctypes.data])  # fmt: skip
    after, _ = Neighbours(SimpleNamespace(torch=Torch(), external=None)).of(case, inputs)
    after.before()
    assert [values.tolist() for values in memory[2:]] == [[1.0] * 4, [2.0] * 4]


@pytest.mark.parametrize("op", ["sum", "dot"])
def test_the_spare_elements_are_those_of_the_input(op):
    with simulator.use("H200"), timing.opened() as stream:
        made = Harness(stream)
        inputs = made.inputs(Case(op, (1000,), shift=3), "hot", spare=True)
        first = [inputs.pointers[0], *inputs.seconds]
        assert (len(inputs.pointers), len(inputs.spare)) == (1, len(first))
        found = []
        for pointer in (*first, *inputs.spare):
            host = np.empty(1000, np.float32)
            Buffer.from_pointer(pointer, host.nbytes, context=stream.context, owner=made).copy_to(host)
            found.append(host.tobytes())
        assert found[: len(first)] == found[len(first) :]
        assert len(set(found)) == len({*first, *inputs.spare}) / 2
        made.release()


@pytest.mark.parametrize("lost", [False, True])
def test_a_graph_that_has_lost_its_work_beside_other_kernels_is_not_timed(world, harness, lost):
    """Its result would stay spoilt: that which is there from other launches is not taken for it."""
    state = {"spoilt": False}

    def results():
        since = world.replayed[state["at"] :] if state["spoilt"] else [[OURS]]
        return RIGHT if any(OURS in held for held in since) else np.nan

    def spoil():
        state.update(spoilt=True, at=len(world.replayed))

    def record(enqueue, launches):
        graph = world.captured(enqueue, STREAM, launches)
        if lost and "other" in graph.held:
            graph.held[:] = ["other"]
        return graph

    makers = [maker(world, OURS, results, spoil=spoil, record=record)]
    entries = harness.measure_around(CASE, makers, [neighbour(world)])[AFTER]
    assert ("not timed" in entries[OURS].get("error", "")) is lost
