"""The harness with fakes: cases and expected results, missing and failing competitors, turns, command lines."""

import contextlib
import fnmatch
import gc
import json
import os
import re
import subprocess
import sys
import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import peers
from benchmarks.measure import caches, figures, problems, session, timing
from benchmarks.measure import harness as harness_module
from benchmarks.measure.figures import OURS
from benchmarks.measure.harness import Harness, Maker, Ready, ours
from benchmarks.measure.problems import BLOCK, LAG, Case, Pattern, check
from benchmarks.measure.situations import Neighbour
from benchmarks.pages import goals, report
from benchmarks.peers import cub
from benchmarks.profile import tune
from benchmarks.suites import SUITES
from benchmarks.suites import setting as setting_module
from benchmarks.suites.arrays import OPERATOR_TYPES, operator_costs
from benchmarks.suites.cell import array_cell
from benchmarks.suites.forms import FORMS
from lowlevel_reduce import ReduceError, layout, simulator, tree
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.strategy import whole as policy
from lowlevel_reduce.strategy.base import RowStrategy


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"])
def test_a_patterns_elements_are_exact_and_add_up_to_64_a_block(dtype):
    pattern = Pattern(dtype)
    assert pattern.values.dtype == np.dtype(pattern.dtype)
    np.testing.assert_array_equal(pattern.values.astype(np.float64), pattern.k / pattern.divisor)
    assert pattern.k.sum(dtype=np.int64) == 64 * pattern.divisor


@pytest.mark.parametrize("size", [1, 1000, BLOCK, 2 * BLOCK + 77])
def test_counts_are_those_of_the_repeated_block(size):
    pattern = problems.pattern("float32")
    values, counts = pattern.counts(size)
    whole = pattern.at(np.arange(size))
    assert counts.sum() == size
    assert values @ counts == whole.sum()
    assert (values.min(), values.max()) == (whole.min(), whole.max())


@pytest.mark.parametrize(("size", "first"), [(1, 0), (5000, 0), (5000, 3), (BLOCK - 1, 2), (2 * BLOCK + 77, 5)])
def test_dot_products_are_those_of_the_repeated_block(size, first):
    pattern = problems.pattern("float32")
    numbers = np.arange(first, first + size)
    assert pattern.dot(size, first) == pattern.at(numbers) @ pattern.at(numbers + LAG)


@pytest.mark.parametrize("shape", [(5000,), (7, 300)])
def test_dot_products_of_ours_are_checked(shape):
    """Of two arrays on the device; those of the first with itself would not pass."""
    case = Case("dot", shape, None if len(shape) == 1 else 1)
    with simulator.use("H200"), timing.opened() as stream:
        harness = Harness(stream)
        inputs = harness.inputs(case, "rotated")
        assert inputs.seconds
        for seconds, right in ((inputs.seconds, True), (inputs.pointers, False)):
            ready = ours(case, replace(inputs, seconds=seconds), stream)
            ready.enqueue(0)
            with contextlib.nullcontext() if right else pytest.raises(ReduceError, match="not timed"):
                check(case, ready.results(), exact=True)
            ready.close()
        harness.release()


def test_garbage_is_let_go_of_before_elements_are_put_on_the_device():
    """A competitor's memory may hang on what refers to itself."""

    class Held:
        pass

    garbage = Held()
    garbage.itself, seen = garbage, weakref.ref(garbage)
    gc.disable()
    try:
        del garbage
        assert seen() is not None
        with simulator.use("H200"), timing.opened() as stream:
            harness = Harness(stream)
            harness.inputs(Case("sum", (1000,)), "hot")
            harness.release()
        assert seen() is None
    finally:
        gc.enable()


def keeping(monkeypatch, *, is_used=True):
    """Have stand-ins for PyTorch and CuPy; return the list of whose memory is given back."""
    emptied = []
    cuda = SimpleNamespace(is_initialized=lambda: is_used, empty_cache=lambda: emptied.append("torch"))
    pool = SimpleNamespace(free_all_blocks=lambda: emptied.append("cupy"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    cuda = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, get_default_memory_pool=lambda: pool))
    return emptied


@pytest.mark.parametrize("is_used", [True, False])
def test_what_competitors_keep_is_given_back_before_elements_are_put_on_the_device(is_used, monkeypatch):
    """By PyTorch only if it has used the device: asking it would initialise it."""
    emptied = keeping(monkeypatch, is_used=is_used)
    with simulator.use("H200"), timing.opened() as stream:
        harness = Harness(stream)
        for dtype in ("float32", "float32", "int8"):  # the second finds its elements there
            harness.inputs(Case("sum", (1000,), dtype=dtype), "hot")
        harness.release()
    assert emptied == 2 * (["torch", "cupy"] if is_used else ["cupy"])


@pytest.mark.parametrize(("free", "emptied"), [(41, []), (39, ["torch", "cupy"])])
def test_what_competitors_keep_is_given_back_when_memory_runs_short(monkeypatch, free, emptied):
    """Before a cell, and before each situation, though the elements are there already."""
    given_back = keeping(monkeypatch)
    monkeypatch.setattr(harness_module, "ours", lambda *_: 1 / 0)
    with simulator.use("H200"), timing.opened() as stream:
        harness = Harness(stream, rounds=1)
        harness.inputs(Case("sum", (1000,)), "hot", spare=True)
        given_back.clear()
        monkeypatch.setattr(caches, "binding", SimpleNamespace(call=lambda name: (free, 80)))
        after = Neighbour("after", lambda: None)
        harness.compare("a", Case("sum", (500,)), [], mode="hot", neighbours=lambda _: [after])
        harness.release()
    assert given_back == 2 * emptied


@pytest.mark.parametrize(("shape", "axis"), [((3, 4), 0), ((3, 4), 1), ((2, 3, 4), 1), ((5,), None)])
def test_a_row_holds_the_elements_that_numpy_reduces(shape, axis):
    case = Case("sum", shape, axis)
    numbers = np.arange(case.size).reshape(shape)
    expected = np.atleast_1d(numbers.sum(axis)).reshape(-1)
    assert [case.row(i).sum() for i in range(case.rows)] == expected.tolist()


def test_results_of_every_operator_are_numpys():
    values = np.asarray([1.0, -2.0, 0.5])
    counts = np.asarray([2, 1, 3])
    x = np.repeat(values, counts)
    reduced = {
        op: problems.reduced(op, values, counts) for op in ("sum", "max", "minmax", "norm2", "mean_var", "logsumexp")
    }
    assert reduced["sum"] == (x.sum(),)
    assert reduced["max"] == (1.0,)
    assert reduced["minmax"] == (-2.0, 1.0)
    np.testing.assert_allclose(reduced["norm2"], np.linalg.norm(x))
    np.testing.assert_allclose(reduced["mean_var"], (x.mean(), x.var()))
    np.testing.assert_allclose(reduced["logsumexp"], np.log(np.exp(x).sum()))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", OPERATOR_TYPES)
def test_every_operator_beside_the_sum_is_checked(dtype):
    """By what the tree says of the pattern, in its own types: whatever overflows those, is right."""
    n = 3000
    x = problems.pattern(dtype).values[:n]
    for op in (cell.case.op for cell in operator_costs() if cell.case.dtype == dtype):
        found = tree.reduce(x, op)
        planes = [np.asarray(each).reshape(1) for each in (found if isinstance(found, tuple) else (found,))]
        check(Case(op, (n,), dtype=dtype), planes, exact=True)
        if op not in ("prod", "any", "all", "argmin", "argmax"):  # which are the same of much
            wrong = [np.asarray(plane.astype(np.complex128).real * 1.5 - 1) for plane in planes]
            with pytest.raises(ReduceError, match="not timed"):
                check(Case(op, (n,), dtype=dtype), wrong, exact=True)


def test_a_wrong_result_is_not_timed():
    case = Case("sum", (1000,))
    right = np.asarray([problems.pattern("float32").at(np.arange(1000)).sum()], np.float32)
    check(case, [right], exact=True)
    off = np.nextafter(right, np.float32(np.inf))
    check(case, [off], exact=False)
    with pytest.raises(ReduceError, match="not timed"):
        check(case, [off], exact=True)
    with pytest.raises(ReduceError, match="not timed"):
        check(case, [right + 1000], exact=False)
    with pytest.raises(ReduceError, match="1 results are due"):
        check(case, [np.zeros(2, np.float32)], exact=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "length", "right", "wrong"),
    [
        ("bfloat16", 1 << 20, (608.0, 612.0), (604.0, 616.0)),  # 610.355, and there nothing between 608 and 612
        ("float16", 1 << 24, (256.0, 256.25), (251.5, 4.5 + 256)),  # what CuPy made of it in float16
        ("float32", 1 << 20, (610.35546875, 610.5), (612.0, 608.0)),
    ],
)
def test_a_competitors_result_is_compared_in_the_type_it_is_in(dtype, length, right, wrong):
    case = Case("sum", (length,), dtype=dtype if dtype != "float32" else "bfloat16")
    for value in right:
        check(case, [np.asarray([value]).astype(numpy_dtype(dtype))], exact=False)
    for value in (*wrong, float("nan")):
        with pytest.raises(ReduceError, match="not timed"):
            check(case, [np.asarray([value]).astype(numpy_dtype(dtype))], exact=False)


@pytest.mark.parametrize("wrong", [1000j, complex(0, np.nan)])
def test_a_competitors_complex_sum_is_wrong_by_its_imaginary_part_too(wrong):
    case = Case("sum", (1000,), dtype="complex64")
    right = problems.pattern("complex64").at(np.arange(1000)).sum()
    check(case, [np.asarray([right + 1e-4j], np.complex64)], exact=False)
    with pytest.raises(ReduceError, match="not timed"):
        check(case, [np.asarray([right + wrong], np.complex64)], exact=False)


def test_a_wrong_index_is_not_timed():
    x = problems.pattern("float32").at(np.arange(1000))
    for op, right, other in (("argmax", x.argmax(), x.argmin()), ("argmin", x.argmin(), x.argmax())):
        check(Case(op, (1000,)), [np.asarray([right])], exact=True)
        for wrong in (int(other), -1, 1000):
            with pytest.raises(ReduceError, match="not timed"):
                check(Case(op, (1000,)), [np.asarray([wrong])], exact=True)


STREAM = SimpleNamespace(synchronize=lambda: None)


class FakeReplay:
    def __init__(self, log, name, fails_at=None):
        self.log, self.name, self.fails_at = log, name, fails_at

    def launch(self):
        self.log.append(self.name)
        if self.log.count(self.name) == self.fails_at:
            raise RuntimeError("an illegal address")

    def close(self):
        self.log.append(f"close {self.name}")


@pytest.fixture
def log(monkeypatch):
    """Replace what needs a device: a replay's time is given by its name."""
    calls = []
    times = {OURS: 20.0, "CUB": 40.0}

    def timed(before, measured, stream):
        before()
        measured()
        return times[calls[-1]]

    monkeypatch.setattr(harness_module, "timed_us", timed)
    monkeypatch.setattr(harness_module, "events_us", lambda enqueue, stream, launches: 2000.0)
    return calls


def maker(name, log, value, fails_at=None, **options):
    """Return what makes a contender; a value may be what returns one."""
    results = value if callable(value) else lambda: value
    ready = Ready(name, lambda i: log.append(f"{name} alone"), lambda: [np.asarray([results()], np.float32)],
                  record=lambda enqueue, launches: FakeReplay(log, name, fails_at), **options)  # fmt: skip
    return Maker(name, lambda: ready)


def test_contenders_take_turns_and_what_fails_is_told(log):
    def broken():
        raise RuntimeError("no kernel image")

    case = Case("sum", (1000,))
    right = problems.pattern("float32").at(np.arange(1000)).sum()
    closed = []
    makers = [
        maker(OURS, log, right, exact=True),
        maker("CUB", log, right, close=lambda: closed.append("CUB")),
        maker("wrong", log, right + 1000, close=lambda: closed.append("wrong")),
        Maker("CuPy", broken),
    ]
    entries = Harness(STREAM, rounds=3).measure(case, makers)
    rounds = [name for name in log if "close" not in name][-18:]
    # Each timed replay is led by another one and by a launch without a graph, and another contender begins each round.
    turns = (OURS, "CUB", "CUB", OURS, OURS, "CUB")
    assert rounds == [call for name in turns for call in (f"{name} alone", name, name)]
    assert entries[OURS]["us"] == 20.0
    assert entries["CUB"]["rounds"] == 3
    assert entries["CuPy"] == {"error": "RuntimeError: no kernel image"}
    assert "not timed" in entries["wrong"]["error"]
    assert closed == ["wrong", "CUB"]


def test_who_raises_while_timed_fails_and_the_others_are_measured(log):
    right = problems.pattern("float32").at(np.arange(1000)).sum()

    def close():
        raise RuntimeError("an illegal address")

    makers = [maker(OURS, log, right, exact=True), maker("CUB", log, right, fails_at=4, close=close)]
    entries = Harness(STREAM, rounds=3).measure(Case("sum", (1000,)), makers)
    assert entries["CUB"] == {"error": "RuntimeError: an illegal address"}
    assert entries[OURS]["rounds"] == 3


def test_results_are_checked_once_more_after_the_replays(log):
    """A kernel that is right alone and wrong behind another one has no time."""
    right = problems.pattern("float32").at(np.arange(1000)).sum()
    makers = [maker(OURS, log, lambda: right + 1000 * (OURS in log), exact=True), maker("CUB", log, right)]
    entries = Harness(STREAM, rounds=1).measure(Case("sum", (1000,)), makers)
    assert "not timed" in entries[OURS]["error"]
    assert entries["CUB"]["us"] == 40.0


@pytest.mark.parametrize("op", ["sum", "argmax"])
def test_a_graph_that_has_lost_its_work_is_not_timed(log, monkeypatch, op):
    """Though each of its results is there, from the launches without a graph."""
    case = Case(op, (1000,))
    with simulator.use("H200"), timing.opened() as stream:
        harness = Harness(stream, rounds=1)
        inputs = harness.inputs(case, "hot", spare=True)
        monkeypatch.setattr(harness_module, "captured", lambda enqueue, stream, launches: FakeReplay(log, OURS))
        entries = harness.measure(case, [Maker(OURS, lambda: ours(case, inputs, stream))])
        harness.release()
    assert "not timed" in entries[OURS]["error"]
    assert log.count(f"close {OURS}") == 1


def test_a_lost_device_is_told_of_the_cell(log, monkeypatch):
    def lost():
        raise ReduceError("the device is lost")

    made = Harness(SimpleNamespace(synchronize=lost, context=None), rounds=1)
    monkeypatch.setattr(made, "inputs", lambda case, mode, *, spare: SimpleNamespace(offsets=None))
    with pytest.raises(ReduceError, match="the device is lost"):
        made.compare("a", Case("sum", (1000,)), [])


def test_copies_are_timed_equally_often_so_that_none_is_read_twice_in_a_row():
    assert [timing.launches_for(us, 3) for us in (1e9, timing.GRAPH_US / 4, timing.GRAPH_US / 6)] == [3, 6, 6]


def test_between_events_another_copy_leads(monkeypatch):
    def timed(before, measured, stream):
        before()
        measured()
        return 6.0

    monkeypatch.setattr(timing, "timed_us", timed)
    taken = []
    assert timing.events_us(lambda i: taken.append(i % 4), SimpleNamespace(), launches=3) == 2.0
    assert taken == [3, 0, 1, 2]


def test_our_sums_must_be_right_to_the_bit_and_a_competitors_need_not(log):
    right = np.float32(problems.pattern("float32").at(np.arange(1000)).sum())
    off = np.nextafter(right, np.float32(np.inf))
    makers = [maker(OURS, log, off, exact=True), maker("CUB", log, off)]
    entries = Harness(STREAM, 1).measure(Case("sum", (1000,)), makers)
    assert "not timed" in entries[OURS]["error"]
    assert entries["CUB"]["us"] == 40.0


def test_what_cannot_be_captured_is_timed_between_events(log):
    right = problems.pattern("float32").at(np.arange(1000)).sum()
    entries = Harness(STREAM, 2).measure(Case("sum", (1000,)), [maker("Numba", log, right, graph=False)])
    assert entries["Numba"]["timed"] == "between events, without a graph"
    assert entries["Numba"]["us"] == 2000.0


def test_a_missing_competitor_is_named_and_is_no_error():
    def load(name):
        if name.endswith("cupy_peer"):
            raise ImportError("No module named 'cupy'")
        if name.endswith("cub"):
            return SimpleNamespace(open_peer=lambda stream: "CUB is here")
        raise peers.Missing("sees no GPU")

    found, missing = peers.find(["CUB", "CuPy", "torch"], SimpleNamespace(), load)
    assert found == {"CUB": "CUB is here"}
    assert missing == {"CuPy": "No module named 'cupy'", "torch": "sees no GPU"}


def test_a_competitor_that_does_not_start_is_named_and_loses_no_run():
    """Such as one that was built for other GPUs, or whose libraries cannot be loaded."""

    def load(name):
        if name.endswith("torch_peer"):
            raise OSError("libcudart.so.12: cannot open shared object file")

        def open_peer(stream):
            raise RuntimeError("no kernel image is available for execution on the device")

        return SimpleNamespace(open_peer=open_peer)

    found, missing = peers.find(["torch", "CuPy"], SimpleNamespace(), load)
    assert found == {}
    assert missing == {
        "torch": "OSError: libcudart.so.12: cannot open shared object file",
        "CuPy": "RuntimeError: no kernel image is available for execution on the device",
    }


def test_cub_does_what_it_has_a_call_for():
    assert cub.kinds(Case("sum", (9,))) == ["SUM", "NOT_GUARANTEED", "GPU_TO_GPU"]
    assert cub.kinds(Case("sum", (9,), dtype="int32")) == ["SUM"]
    assert cub.kinds(Case("sum", (3, 3), 1)) == ["ROWS"]
    assert cub.kinds(Case("sum", (3, 3), 0)) == []
    assert cub.kinds(Case("argmax", (9,))) == ["ARGMAX"]
    assert cub.kinds(Case("max", (9,))) == ["MAX"]
    assert cub.kinds(Case("max", (3, 3), 1)) == []
    assert cub.kinds(Case("min", (9,))) == []
    assert all(f"defined(KIND_{kind})" in cub.SOURCE.read_text(encoding="utf-8") for kind in cub.VARIANTS)
    assert cub.kinds(Case("sum", (9,), offsets=np.asarray([0, 9]))) == ["SEGMENTS"]
    assert cub.kinds(Case("sum", (9,), dtype="float8_e5m2")) == []


def test_all_is_compiled_and_opened_before_anything_is_measured(monkeypatch):
    log = []

    def find(names, stream):
        log.extend(f"open {name}" for name in names)
        cub_peer = SimpleNamespace(
            prefetch=lambda cases: log.extend(f"compile {case.op}" for case in cases),
            settle=lambda: log.append("compiled"),
        )
        return {name: cub_peer for name in names if name != "Numba"}, {n: "none" for n in names if n == "Numba"}

    monkeypatch.setattr(setting_module.peers, "find", find)
    monkeypatch.setattr(setting_module, "compile_ahead", lambda cases, context: log.append(f"ours {len(cases)}"))
    cells = [
        array_cell("a", Case("sum", (9,)), ("CUB", "torch")),
        array_cell("b", Case("prod", (9,)), ()),  # of us alone
        array_cell("c", Case("argmax", (9,)), ("CUB", "Numba")),
    ]
    stream = SimpleNamespace(context=None)
    made = setting_module.Setting(SimpleNamespace(stream=stream))
    made.prepare(cells)
    assert log == ["open CUB", "compile sum", "compile argmax", "ours 3", "open torch", "open Numba", "compiled"]
    assert made.missing == {"Numba": "none"}
    log.clear()
    setting_module.Setting(SimpleNamespace(stream=stream)).prepare(cells[1:2])
    assert log == ["ours 1"]


def test_expected_results_are_found_once_for_all_contenders():
    known = {}
    case = Case("sum", (4, 50), 1)
    right = problems.pattern("float32").at(np.arange(200)).reshape(4, 50).sum(1)
    check(case, [right.astype(np.float32)], exact=True, known=known)
    assert [known[i] for i in range(4)] == [(value,) for value in right]
    known[2] = (right[2] + 64,)
    with pytest.raises(ReduceError, match="result 2 of sum"):
        check(case, [right.astype(np.float32)], exact=True, known=known)


class FakeSetting:
    """A setting in which every competitor is there and every cell takes the same times."""

    def __init__(self):
        self.harness, self.mode = self, "rotated"

    def peers(self, *names):
        return list(names)

    def neighbours(self, case, *, consumed):
        return None

    def compare(self, cell, case, contenders, *, mode="rotated", neighbours=None):
        names = [*contenders, "CUB", "CUB gpu_to_gpu", "CUB ArgMax"]
        entries = {OURS: figures.figure([2.0]), **{name: figures.figure([4.0]) for name in names}}
        facts = {"shape": list(case.shape), "shift": case.shift}
        return [figures.row_of(cell, entries, size_bytes=case.moved_bytes, **facts)]


def rows_of(cells):
    return [row for cell in cells for row in cell.measure(FakeSetting())]


@pytest.mark.parametrize("suite", ["flat", "types", "axes", "stats"])
def test_the_goals_of_a_suite_find_their_cells(suite):
    cells = SUITES[suite]()
    rows = rows_of(cells)
    assert [row["cell"] for row in rows] == [cell.name for cell in cells]
    assert len({row["cell"] for row in rows}) == len(rows)
    outcomes = {goal.text: goal.judge(rows) for goal in goals.GOALS if goal.suite == suite and "alone" not in goal.text
                and "producer" not in goal.text}  # fmt: skip
    assert outcomes
    # Twice the peers' speed everywhere, in the same time for narrow types as for wide ones.
    assert [text for text, outcome in outcomes.items() if not outcome.met] == (
        ["16- and 8-bit types: 93 % of float32's bytes per second at 2^30"] if suite == "types" else []
    )


@pytest.mark.parametrize("suite", ["flat", "types", "stats"])
def test_the_cells_that_goals_name_are_marked_to_be_measured_first(suite):
    rows = rows_of([cell for cell in SUITES[suite]() if cell.goal])
    for goal in goals.GOALS:
        if goal.suite == suite and goal.scope == "cells":
            goal.judge(rows)  # which raises where a cell is not there


@pytest.mark.parametrize(
    ("suite", "named"),
    [
        ("small", {"2^8, device", "2^16, device", "2^20, device"}),
        ("host", {"bound launch, block", "one-shot", *(form.name for form in FORMS)}),
        ("cold", {"fresh processes", "with the wheel", "compilation"}),
    ],
)
def test_the_marked_cells_of_calls_and_processes(suite, named):
    assert {cell.name for cell in SUITES[suite]() if cell.goal} == named


class Named(FakeSetting):
    """A setting that says which competitors a cell asked for."""

    def compare(self, cell, case, contenders, *, mode="rotated", neighbours=None):
        return [(cell, case.op, case.axis, tuple(contenders), mode)]


def test_torch_compile_is_in_every_cell_that_pytorch_is_in_but_for_types_it_is_not_used_for():
    for suite in ("flat", "axes", "stats"):
        assert all({"torch", "torch.compile"} <= set(cell.peers) for cell in SUITES[suite]())
    compiled = {cell.case.dtype for cell in SUITES["types"]() if "torch.compile" in cell.peers}
    assert compiled == {"float32", "float16", "bfloat16"}


@pytest.mark.parametrize("suite", ["flat", "types", "axes", "stats"])
def test_a_quick_suite_is_a_choice_of_the_full_ones_cells(suite):
    full, quick = (
        {cell.name: cell.measure(Named()) for cell in SUITES[suite](quick=choice)} for choice in (False, True)
    )
    assert len(quick) < len(full)
    assert quick.items() <= full.items()


def test_arrays_are_timed_in_the_mode_of_the_run_and_small_ones_hot():
    named = Named()
    named.mode = "events"
    for suite in ("flat", "types", "axes", "stats", "operators"):
        assert {cell.measure(named)[0][-1] for cell in SUITES[suite](quick=True)} == {"events"}
    segments = SUITES["segments"]()[-2]
    assert segments.name == "mixed"
    assert segments.measure(named)[0][-1] == "events"
    small = [cell for cell in SUITES["small"]() if cell.name.endswith(", device")]
    assert {cell.measure(named)[0][-1] for cell in small} == {"hot"}


def test_the_quick_forms_of_the_others_too():
    for suite in ("segments", "small", "host", "cold"):
        full, quick = ({cell.name for cell in SUITES[suite](quick=choice)} for choice in (False, True))
        assert quick <= full


def test_every_cell_has_a_time_to_plan_with():
    cells = {name: suite() for name, suite in SUITES.items()}
    assert all(0 < cell.seconds < 150 for found in cells.values() for cell in found)
    lines = session.plan_lines(cells)
    assert [line.split()[0] for line in lines[1:-1]] == list(SUITES)
    assert lines[-1].startswith("about ")


def test_a_very_slow_contender_has_one_turn(log, monkeypatch):
    monkeypatch.setattr(harness_module, "events_us", lambda enqueue, stream, launches: harness_module.SLOW_US + 1)
    right = problems.pattern("float32").at(np.arange(1000)).sum()
    makers = [maker(OURS, log, right, exact=True), maker("CUB", log, right)]
    entries = Harness(STREAM, rounds=3).measure(Case("sum", (1000,)), makers)
    assert [entries[name]["rounds"] for name in (OURS, "CUB")] == [3, 1]


def test_the_digest_of_the_sources_tells_of_every_change(tmp_path):
    for name in ("lowlevel_reduce/a.py", "cuda_src/deep/b.cuh", "benchmarks/suites/c.py", "docs/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    found = [timing.sources_digest(tmp_path)]
    (tmp_path / "docs/d.py").write_text("2")  # which nothing is measured of
    assert timing.sources_digest(tmp_path) == found[0]
    for name in ("lowlevel_reduce/a.py", "cuda_src/deep/b.cuh", "benchmarks/suites/c.py"):
        (tmp_path / name).write_text("2")
        found.append(timing.sources_digest(tmp_path))
    (tmp_path / "cuda_src/deep/b.cuh").rename(tmp_path / "cuda_src/b.cuh")
    found.append(timing.sources_digest(tmp_path))
    assert len(set(found)) == 5
    assert all(re.fullmatch("[0-9a-f]{12}", each) for each in found)


def test_conditions_tell_of_the_sources_and_of_the_host():
    device = SimpleNamespace(name="D", uuid="0a1b2c3d-0000-1111-2222-333344445555", compute_capability=(9, 0),
                             multiprocessor_count=132, peak_bandwidth=1e12)  # fmt: skip
    with simulator.use("H200"):
        found = timing.conditions(device, "abc")
    assert (found["device"], found["card"]) == ("D", "0a1b2c3d")
    assert found["sources"] == timing.sources_digest()
    assert found["logical_cpus"] == os.cpu_count()
    assert len(found["load_average"]) == 3
    assert found["cpu"] is None or found["cpu"].strip()
    assert found["commit"] == "abc"


def test_the_page_of_the_results_tells_of_every_kind_of_file():
    folder = report.RESULTS
    kinds = re.findall(r"`(\*-[^`]+)`", (folder / "README.md").read_text(encoding="utf-8"))
    files = [file.name for file in folder.iterdir() if file.name != "README.md"]
    assert [name for name in files if not any(fnmatch.fnmatch(name, kind) for kind in kinds)] == []
    assert [kind for kind in kinds if not fnmatch.filter(files, kind)] == []


def test_every_file_of_results_is_quoted_by_its_full_name_and_all_are_small():
    folder, root = report.RESULTS, report.ROOT
    places = ("*.md", "docs/*.md", "benchmarks/**/*.md", *(f"{at}/**/*.*" for at in ("lowlevel_reduce", "cuda_src")))
    pages = [*(root / "benchmarks").glob("**/*.py"), *(file for place in places for file in root.glob(place))]
    told = "".join(page.read_text(encoding="utf-8") for page in pages if page.suffix in (".md", ".py", ".cuh", ".cu"))
    files = [file for file in folder.iterdir() if file.name != "README.md"]
    assert [file.name for file in files if file.name not in told] == []
    there = {file.name for file in files}
    quoted = set(re.findall(r"20\d\d-\d\d-\d\d-[a-z0-9-]+\.(?:jsonl|md)\b", told))
    assert sorted(quoted - there) == []
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 1_500_000


def test_every_file_of_results_tells_its_commit():
    for file in report.RESULTS.glob("*.jsonl"):
        first = json.loads(file.read_text(encoding="utf-8").partition("\n")[0])
        assert first["conditions"]["commit"], file.name


def test_rotation_leaves_the_l2():
    large, small = (SimpleNamespace(l2_bytes=60 << 20, total_memory_bytes=memory << 30) for memory in (139, 16))
    for size in (8 << 20, 100 << 20, 8 << 30):
        assert timing.rotation(size, large) >= 2
        assert timing.rotation(size, large) * size >= 100 * large.l2_bytes
    assert [timing.rotation(size, small) for size in (8 << 20, 8 << 30)] == [512, 2]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("length", [1 << 20, 1 << 21, 1 << 28])
def test_the_copies_take_no_more_than_their_part_of_the_memory(monkeypatch, dtype, length):
    """Of a device with a large L2 and little memory too: copies shorter than the pattern lie as far apart as it is."""
    case, sizes = Case("sum", (length,), dtype=dtype), []
    device = SimpleNamespace(l2_bytes=72 << 20, total_memory_bytes=24 << 30)
    made = Harness(SimpleNamespace(context=SimpleNamespace(device=device)))
    monkeypatch.setattr(made, "_filled", lambda dtype, size_bytes: sizes.append(size_bytes) or 0)
    copies = len(made.inputs(case, "rotated").pointers)
    stride = -(-length // BLOCK) * BLOCK * numpy_dtype(dtype).itemsize
    assert sizes == [copies * stride]
    part = device.total_memory_bytes // timing.MEMORY_PART
    assert sizes[0] <= max(part + stride, 2 * stride)


def test_a_graph_holds_enough_launches_and_not_too_many():
    assert timing.launches_for(1e-9) == timing.MAX_LAUNCHES
    assert timing.launches_for(1e9) == 1
    assert timing.launches_for(timing.GRAPH_US / 10) == 10


def test_the_sweep_of_rows_and_columns_covers_every_row():
    chosen = RowStrategy("rows", 1)
    for name, way in tune.row_strategies(chosen, 1000, 20):
        a_block = 8 // way.warps_of_a_row if way.name == "rows" else None
        assert (way.blocks * a_block >= 1000) if a_block else way.blocks == 1000 * way.parts + way.folders, name
    problem = layout.problem_of((40 * 1024, 512), 4, axis=0)
    facts = policy.DeviceFacts((9, 0), 16, clusters=True, cooperative=True)
    ways = dict(tune.column_strategies(problem, facts, 4))
    assert len(ways) > 50
    assert {way.wide for way in ways.values()} == {False, True}
    for name, way in ways.items():
        assert way.parts * way.tile.vectors * way.tile.turns >= 40 * 256, name
        assert way.blocks == -(-512 // way.tile.columns) * way.parts + way.folders
        assert (way.folders > 0) == (way.parts > 1 and way.folded_by != "cluster")


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        *("run", "zoo", "pages.report", "pages.ladder_doc", "pages.embedding_doc", "pages.rungs_doc", "profile.ladder"),
        *("profile.ladder_counters", "profile.tune", "profile.counters", "profile.limits", "profile.parts_table"),
        "profile.parts_steps",
        *("profile.rowops", "profile.large", "profile.copies", "profile.block_sweep"),
    ],
)
def test_every_command_has_help_without_a_gpu(module):
    run = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", "--help"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "usage" in run.stdout
