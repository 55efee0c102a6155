"""Sums of arrays in parts: samples in turn, each with its value checked, and the rows of processes that are made up."""

import json
from types import SimpleNamespace

import pytest

from benchmarks.measure.figures import OURS
from benchmarks.profile import parts as command
from benchmarks.suites import parts
from lowlevel_reduce import ReduceError


def test_calls_take_turns_after_a_meeting_and_the_first_are_not_counted(monkeypatch):
    log, now = [], iter(range(0, 10**9, 5000))
    monkeypatch.setattr(command.time, "perf_counter_ns", lambda: next(now))
    calls = {name: lambda name=name: log.append(name) or 100.0 for name in ("a", "b")}
    samples = command.samples_us(calls, 100.0, 2, lambda: log.append("meet"))
    assert samples == {"a": [5.0, 5.0], "b": [5.0, 5.0]}
    assert log[::2] == ["meet"] * 2 * (2 + command.WARM)
    rounds = [tuple(log[start : start + 4][1::2]) for start in range(0, len(log), 4)]
    assert set(rounds) == {("a", "b"), ("b", "a")}, "the order is drawn, in each round of both"
    again, log[:] = log[:], []
    command.samples_us(calls, 100.0, 2, lambda: log.append("meet"))
    assert log == again, "alike in every process"


@pytest.mark.parametrize("value", [101.0, float("nan")])
def test_a_wrong_value_is_not_timed(value):
    with pytest.raises(ReduceError, match="a of 100 ones is"):
        command.samples_us({"a": lambda: value}, 100.0, 2)


def test_a_cell_has_the_samples_that_its_process_prints(monkeypatch):
    commands = []

    def printed(words, environment):
        commands.append(words)
        return json.dumps({OURS: [30.0, 10.0, 20.0], "torch": [40.0]})

    monkeypatch.setattr(parts, "last_line", printed)
    setting = SimpleNamespace(quick=True, settle=lambda: None, missing={}, peer=lambda name: name)
    (row,) = parts._measured(setting, way="one", elements=16_000_000)
    assert (row["cell"], row["entries"][OURS]["us"], row["ratio"]) == ("one process, one GPU, 16,000,000", 20.0, 2.0)
    assert commands[0][-6:] == ["--way", "one", "--elements", "16000000", "--rounds", "5"]


@pytest.mark.parametrize("gpus", [1, 2])
def test_two_gpus_are_measured_where_there_are_two(monkeypatch, gpus):
    monkeypatch.setattr(parts.binding, "call", lambda name: gpus)
    monkeypatch.setattr(parts, "last_line", lambda *_: json.dumps({OURS: [1.0]}))
    setting = SimpleNamespace(quick=False, settle=lambda: None, missing={}, peer=lambda name: name)
    cells = [cell for cell in parts.parts() if "two GPUs" in cell.name]
    assert len(cells) == 6
    assert [len(cell.measure(setting)) for cell in cells] == [gpus - 1] * 6
    assert setting.missing == ({"two GPUs": "this machine has one"} if gpus == 1 else {})
