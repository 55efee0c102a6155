"""The parts of a first result: a process goes through all of them, on a simulated GPU, whose times are not shown."""

import os

import pytest
from typer.testing import CliRunner

from lowlevel_reduce import simulator
from lowlevel_reduce.cli import app, first_call


@pytest.mark.usefixtures("kept_kernels")
def test_every_part_is_timed_once_in_order(monkeypatch):
    monkeypatch.setattr(first_call, "ELEMENTS", 3000)
    monkeypatch.setenv("LOWLEVEL_REDUCE_DRIVER", "simulator")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]))
    found = first_call.timed()
    assert list(found["seconds"]) == list(first_call.PARTS)
    assert all(seconds > 0 for seconds in found["seconds"].values())
    shown = first_call.as_objects(found)
    assert shown["ms"].keys() == first_call.PARTS.keys()
    assert shown["kernel"] in ("compiled", "found")
    assert first_call.render(found).row_count == len(first_call.PARTS) + 1


def test_a_process_that_fails_is_one_line(monkeypatch):
    monkeypatch.setattr(first_call, "_SCRIPT", "raise ValueError('no memory')")
    with pytest.raises(first_call.ReduceError, match="failed: ValueError: no memory"):
        first_call.timed()


def test_without_a_gpu_there_are_no_times(monkeypatch):
    monkeypatch.setattr(first_call, "why_unavailable", lambda: "there is no driver")
    done = CliRunner().invoke(app.app, ["info", "--timing"])
    assert (done.exit_code, done.stderr) == (2, "NoDriverError: --timing needs a GPU: there is no driver\n")
    with simulator.use("H200"):
        done = CliRunner().invoke(app.app, ["info", "--timing"])
    assert (done.exit_code, done.stderr) == (2, "NoDriverError: --timing needs a GPU: a simulated one has no times\n")
