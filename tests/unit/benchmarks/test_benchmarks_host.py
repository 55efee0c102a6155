"""The host's time of calls, with made-up ones: each is checked before it is timed, and who fails fails alone."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.measure import problems, timing
from benchmarks.measure.figures import BARE, OURS
from benchmarks.measure.harness import Harness
from benchmarks.suites import Setting, host
from benchmarks.suites.host import Call, Calls
from lowlevel_reduce import simulator

LENGTH = 1000
RIGHT = float(problems.pattern("float32").at(np.arange(LENGTH)).sum())


@pytest.fixture
def calls(monkeypatch):
    """Return what holds the array, without a device, and the order in which calls were timed."""
    timed = []

    def host_us(function, context, *, calls, rounds):
        timed.append(function())
        return 5.0

    monkeypatch.setattr(host, "host_us", host_us)
    made = Calls.__new__(Calls)
    made._setting, made._stream, made._length = SimpleNamespace(quick=True), SimpleNamespace(context=None), LENGTH
    made._failed = {}
    return made, timed


def test_a_call_whose_sum_is_wrong_is_not_timed(calls):
    made, timed = calls
    near = float(np.nextafter(np.float32(RIGHT), np.float32(np.inf)))
    row = made.row("one-shot", {
        OURS: Call(lambda: near), "torch": Call(lambda: near), "CuPy": Call(lambda: RIGHT + 1000),
        BARE: Call(lambda: "launched", lambda _: RIGHT), "plan": Call(lambda: "a plan", None),
    })  # fmt: skip
    entries = row["entries"]
    assert [name for name, entry in entries.items() if "us" in entry] == ["torch", BARE, "plan"]
    assert "not timed" in entries[OURS]["error"]  # whose sums are right to the bit
    assert "not timed" in entries["CuPy"]["error"]
    assert timed == [near, "launched", "a plan", "launched", "a plan", near, "a plan", near, "launched"]


def test_a_call_that_raises_while_it_is_timed_fails_alone(calls):
    made, timed = calls

    def tired():
        if len(timed) >= 2:
            raise RuntimeError("no memory is left")
        return RIGHT

    entries = made.row("one-shot", {OURS: Call(lambda: RIGHT), "torch": Call(tired)})["entries"]
    assert entries["torch"] == {"error": "RuntimeError: no memory is left"}
    assert entries[OURS]["rounds"] == 3


class Broken:
    """A competitor that is there, and of which nothing can be made."""

    def __getattr__(self, name):
        raise RuntimeError("an unsupported toolchain")


@pytest.mark.parametrize(
    ("cell", "names"),
    [("one-shot", ("torch", "CuPy")), ("one-shot, out=", ("torch", "CuPy")), ("prepared call", ("cuda.compute",)),
     ("2^8, call to value", ("torch", "CuPy"))],
)  # fmt: skip
def test_a_competitor_whose_call_cannot_be_made_fails_alone(monkeypatch, cell, names):
    monkeypatch.setattr(host, "host_us", lambda function, context, *, calls, rounds: 5.0)
    (wanted,) = (each for suite in (host.small, host.host) for each in suite() if each.name == cell)
    with simulator.use("H200"), timing.opened() as stream:
        made = Setting(Harness(stream), quick=True)
        made._found = {"torch": Broken(), "CuPy": Broken(), "cuda.compute": Broken()}
        (row,) = wanted.measure(made)
        made.harness.release()
    assert row["entries"][OURS]["us"] == 5.0
    for name in names:
        assert row["entries"][name] == {"error": "RuntimeError: an unsupported toolchain"}
