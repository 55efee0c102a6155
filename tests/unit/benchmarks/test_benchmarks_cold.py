"""Fresh processes find the byte code of all modules, so that what is timed is what an installed package takes."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measure.processes import CACHES, environment_of, last_line
from benchmarks.pages.goals import GOALS
from benchmarks.suites import cold

CACHED = "import os, json.tool as module; print(os.path.exists(module.__spec__.cached), module.__spec__.cached)"


def test_byte_code_is_kept_though_this_process_keeps_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environment = environment_of(None, str(tmp_path))
    run = subprocess.run([sys.executable, "-c", CACHED], env=environment, capture_output=True, check=True)
    found, path = run.stdout.decode().split(maxsplit=1)
    assert found == "True"
    assert Path(path).is_relative_to(tmp_path)


def test_every_cache_is_in_the_folder_that_is_given():
    environment = environment_of("/somewhere")
    folders = [environment[name] for name in CACHES]
    assert all(folder.startswith("/somewhere/") for folder in folders)
    assert len(set(folders)) == len(CACHES)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("import os; os.kill(os.getpid(), 9)", "a fresh process failed with -9: it said nothing"),
        ("raise ValueError('no GPU')", "a fresh process failed with 1: ValueError: no GPU"),
    ],
)
def test_a_process_that_fails_is_told_of_whatever_it_said(tmp_path, script, told):
    with pytest.raises(RuntimeError, match=told):
        cold._process(script, str(tmp_path), str(tmp_path))


def test_a_process_that_does_not_end_is_ended():
    with pytest.raises(RuntimeError, match="did not end in 1 s"):
        last_line([sys.executable, "-c", "import time; time.sleep(60)"], environment_of(None), 0.6)


def test_what_competitors_run_is_python():
    for name, script in cold.PEERS.items():
        tree = ast.parse(script)
        assert any(isinstance(node, ast.Assert) for node in ast.walk(tree)), name


def times_of(script, cache, byte_code, variables=()):
    """Return made-up times: those of a competitor's script are its own."""
    if script == cold.WARMED_UP:
        return {"first result": 0.4, "warm-up": 3.0, "new shape": 0.001}
    if script == cold.COMPILED:
        kinds = [f"{op}, {kind}" for op in cold.FAMILIES for kind in ("whole arrays", "others")]
        headers = {f"headers of {kind}": 0.03 for kind in kinds}
        return headers | dict.fromkeys(kinds, 0.3) | {f"{op}, the whole family": 5.0 for op in cold.FAMILIES}
    if script == cold.PEERS["CuPy"]:
        raise RuntimeError("a fresh process failed with 1: no GPU")
    first = 0.3 if "PYTHONPATH" in variables else 0.45 if variables else 0.5
    common = {"import with all": 2.0, "first result": first, "second operator": 0.1, "compiler": not variables}
    if script in cold.PEERS.values():
        return common
    plans = [name for name, *_ in cold.PLANS]
    own = {"imports before": 1.0, "import": 0.1, "context": 0.2}
    return {**common, **own, **dict.fromkeys(plans, 0.7), **{f"processor, {name}": 0.6 for name in plans}}


SETTING = type("Setting", (), {"settle": lambda self: None})()


def rows_of(cell):
    return {row["cell"]: row for row in cell.measure(SETTING)}


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(cold, "_process", times_of)
    monkeypatch.setattr(cold, "install_wheel", lambda folder: folder / "site")


@pytest.mark.usefixtures("made_up")
def test_a_competitor_that_does_not_start_fails_alone():
    rows = rows_of(cold.cold()[0])
    entries = rows["first result, empty cache"]["entries"]
    assert entries["torch"]["us"] == 0.5e6
    assert "no GPU" in entries["CuPy"]["error"]
    assert (entries["one tree"]["rounds"], entries["torch"]["rounds"]) == (5, 1)
    assert rows["first result, warm cache"]["entries"]["one tree"]["rounds"] == 5 * cold.WARM
    assert rows["processor time compiled: sum, rows"]["entries"]["one tree"]["us"] == 0.6e6
    assert set(rows["import"]["entries"]) == {"one tree"}


@pytest.mark.usefixtures("made_up")
def test_the_wheel_is_beside_competitors_with_empty_caches():
    rows = rows_of(cold.cold()[1])
    entries = rows["first result, with the wheel"]["entries"]
    assert (entries["one tree"]["us"], entries["torch"]["us"]) == (0.3e6, 0.5e6)
    meanwhile = rows["first result, empty cache, its family compiled meanwhile"]["entries"]
    assert meanwhile == {"one tree": {"us": 0.45e6, "spread_percent": 0.0, "rounds": 5}}
    assert rows["warm-up of a family, empty cache"]["entries"]["one tree"]["us"] == 3e6


@pytest.mark.usefixtures("made_up")
def test_a_process_with_the_wheel_that_loads_the_compiler_is_an_error(monkeypatch):
    loads = lambda *arguments: {**times_of(*arguments), "compiler": True}  # noqa: E731
    monkeypatch.setattr(cold, "_process", loads)
    with pytest.raises(RuntimeError, match="loaded NVRTC"):
        rows_of(cold.cold()[1])


@pytest.mark.usefixtures("made_up")
def test_compilation_is_beside_that_of_the_headers():
    *_, cell = cold.cold(quick=True)
    rows = rows_of(cell)
    assert rows["processor time, slowest kernel: sum, others"]["entries"]["one tree"]["us"] == 0.3e6
    assert rows["processor time, headers alone: argmax, whole arrays"]["entries"]["one tree"]["us"] == 0.03e6
    goals = {goal.text: goal for goal in GOALS if goal.suite == "cold"}
    outcome = goals["a sum's other kernels: 4 times the headers' processor time"].outcome(list(rows.values()))
    assert (outcome.met, outcome.reached) == (False, "10 times")
    assert (
        goals["families of mean_var, argmax and logsumexp: 1.5 times the processor time of the sum's"]
        .outcome(list(rows.values()))
        .met
    )


def test_what_our_processes_run_is_python():
    for script in (cold.SCRIPT.replace("PLANS", "[]"), cold.WARMED_UP, cold.COMPILED):
        ast.parse(script)
