"""Every form of a call and calls of new shapes: what is checked, counted and told, on a simulated device."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.measure import new_shapes, timing
from benchmarks.measure.figures import OURS
from benchmarks.measure.harness import Harness
from benchmarks.profile import driver_calls
from benchmarks.suites import Setting, calls
from benchmarks.suites.forms import FORMS, Arrays, Form, host_array
from lowlevel_reduce import simulator
from lowlevel_reduce.driver import binding

SHAPE = (16, 1024)
CHEAP = ("sum(x, axis=1)", "sum(x, dtype=float64)", "reduce_shards", "float(sum(x))")


def form_of(name):
    return next(form for form in FORMS if form.name == name)


def test_forms_have_names_of_their_own():
    assert len({form.name for form in FORMS}) == len(FORMS) == len(calls.form_cells())
    assert {form.needs for form in FORMS} == {None, "torch", "cupy", "jax", "numba"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEAP)
def test_a_forms_result_is_numpys_and_its_driver_calls_are_counted(name):
    form = form_of(name)
    with simulator.use("H200"), driver_calls.counted(binding.selected()._offers) as counter, timing.opened() as stream:
        arrays = Arrays(stream, {}, SHAPE)
        calls._check(form.ours(arrays), np.asarray(form.right(arrays)))
        counted = driver_calls.counts(arrays, [form], counter)[name]
        assert counted["cuLaunchKernelEx"] >= 1
        assert counted == driver_calls.counts(arrays, [form], counter)[name]


def test_a_form_that_raises_is_told_and_the_others_are_counted(capsys):
    def broken(arrays):
        raise RuntimeError("no such form")

    with simulator.use("H200"), driver_calls.counted(binding.selected()._offers) as counter, timing.opened() as stream:
        forms = [Form("broken", broken, broken), form_of("sum(x, axis=1)")]
        assert list(driver_calls.counts(Arrays(stream, {}, SHAPE), forms, counter)) == ["sum(x, axis=1)"]
    assert "broken: RuntimeError: no such form" in capsys.readouterr().err


@pytest.fixture
def setting(monkeypatch):
    """Return a setting without competitors, whose arrays are small, in which every call takes five microseconds."""
    monkeypatch.setattr(calls, "host_us", lambda function, context, *, calls, rounds: function() is None or 5.0)
    monkeypatch.setattr(calls, "last_line", lambda command, environment: '{"sum(x, axis=1)": {"cuA": 1, "cuB": 2}}')
    with simulator.use("H200"), timing.opened() as stream:
        made = Setting(Harness(stream), quick=True)
        made.missing = dict.fromkeys(("torch", "CuPy"), "not here")
        arrays = Arrays(stream, {}, SHAPE)
        made.kept("arrays", lambda: arrays)
        yield made
        made.harness.release()


def test_a_form_has_a_row_with_its_driver_calls(setting):
    (row,) = calls._form(setting, form=form_of("sum(x, axis=1)"))
    assert (row["cell"], row["driver_calls"], row["entries"][OURS]["us"]) == ("sum(x, axis=1)", 3, 5.0)
    assert list(row["entries"]) == [OURS]


def test_a_form_that_needs_a_library_has_no_row_without_it(setting):
    assert calls._form(setting, form=form_of("sum of a JAX array")) == []
    assert setting.missing["jax"] == "it is not installed"


def test_a_wrong_result_is_not_timed_and_the_others_are(setting, monkeypatch):
    arrays = setting.kept("arrays", None)
    monkeypatch.setattr(arrays, "libraries", {"torch": None})
    form = Form("sum", lambda a: a.host.sum(1) + 1, lambda a: a.host.sum(1), {"torch": lambda a: a.host.sum(1)})
    (row,) = calls._form(setting, form=form)
    assert "not timed" in row["entries"][OURS]["error"]
    assert row["entries"]["torch"]["us"] == 5.0


def test_results_of_all_libraries_come_to_the_host():
    array = np.arange(3.0)
    torch = SimpleNamespace(cpu=lambda: array)
    cupy = SimpleNamespace(get=lambda: array)
    for value in (array, torch, cupy, (torch, None)):
        assert host_array(value).tolist() == [0, 1, 2]
    assert host_array(2.5) == 2.5


def test_figures_of_new_shapes_are_of_different_lengths():
    seen, waits = [], []
    entry = new_shapes.entry_of(seen.append, 1000, 120, 3, lambda: waits.append(len(seen)))
    assert seen[0] == 1000
    assert len(set(seen)) == len(seen) == 121
    assert waits == [1, 51, 101]
    assert entry["us"] <= entry["p99_us"] <= entry["worst_us"]
    again = []
    new_shapes.entry_of(again.append, 1000, 120, 3, lambda: None)
    assert again == seen


def test_the_99th_percentile_is_the_one_that_a_hundredth_exceeds(monkeypatch):
    clock = iter(np.cumsum([0, *(1000 * us for number in range(1, 201) for us in (number, 0))]).tolist())
    monkeypatch.setattr(new_shapes.time, "perf_counter_ns", lambda: next(clock))
    entry = new_shapes.entry_of(lambda n: None, 1000, 200, 3, lambda: None)
    assert (entry["us"], entry["p99_us"], entry["worst_us"]) == (100.5, 198.0, 200.0)


@pytest.mark.parametrize("kind", ["sum(x[:n])", "sum(z[:k], axis=0)"])
def test_calls_of_new_shapes_are_this_librarys(kind):
    with simulator.use("H200"), timing.opened() as stream:
        call = new_shapes.call_of("ours", kind, stream, None, None)
        assert host_array(call(64)).tolist() == (64 if kind == "sum(x[:n])" else [64] * new_shapes.ROWS)
    assert new_shapes.call_of("cupy", kind, None, None, None) is None


def test_a_row_of_new_shapes_has_what_each_process_prints(monkeypatch):
    def printed(command, environment):
        library = command[command.index("--library") + 1]
        assert command[-2:] == ["--seed", "77"]
        if library == "torch":
            raise RuntimeError("a fresh process failed with 1: no GPU")
        return '{"us": 9.0, "p99_us": 20.0, "worst_us": 500.0, "compilations": 3}' if library == "ours" else "{}"

    monkeypatch.setattr(calls, "last_line", printed)
    (row,) = calls._new_shapes(SimpleNamespace(settle=lambda: None, seed=77), kind="sum(x[:n])", calls=600)
    assert row["entries"][OURS] == {"us": 9.0, "p99_us": 20.0, "worst_us": 500.0, "compilations": 3}
    assert "no GPU" in row["entries"]["torch"]["error"]
    assert "CuPy" not in row["entries"]
    assert row["calls"] == 600
