"""Fresh processes find the byte code of all modules, so that what is timed is what an installed package takes."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measure.processes import CACHES, environment_of, last_line
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


def times_of(script, cache, byte_code):
    """Return made-up times: those of a competitor's script are its own."""
    if script == cold.PEERS["CuPy"]:
        raise RuntimeError("a fresh process failed with 1: no GPU")
    common = {"import with all": 2.0, "first result": 0.5, "second operator": 0.1}
    if script in cold.PEERS.values():
        return common
    plans = [name for name, *_ in cold.PLANS]
    own = {"imports before": 1.0, "import": 0.1, "context": 0.2}
    return {**common, **own, **dict.fromkeys(plans, 0.7), **{f"processor, {name}": 0.6 for name in plans}}


def test_a_competitor_that_does_not_start_fails_alone(monkeypatch):
    monkeypatch.setattr(cold, "_process", times_of)
    (cell,) = cold.cold()
    rows = {row["cell"]: row for row in cell.measure(type("Setting", (), {"settle": lambda self: None})())}
    entries = rows["first result, empty cache"]["entries"]
    assert entries["torch"]["us"] == 0.5e6
    assert "no GPU" in entries["CuPy"]["error"]
    assert entries["one tree"]["rounds"] == 3
    assert rows["first result, warm cache"]["entries"]["one tree"]["rounds"] == 3 * cold.WARM
    assert rows["processor time compiled: sum, rows"]["entries"]["one tree"]["us"] == 0.6e6
    assert set(rows["import"]["entries"]) == {"one tree"}
