"""Fresh processes find the byte code of all modules, so that what is timed is what an installed package takes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.suites import cold
from benchmarks.suites.cold import keeping

CACHED = "import os, json.tool as module; print(os.path.exists(module.__spec__.cached), module.__spec__.cached)"


def test_byte_code_is_kept_though_this_process_keeps_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    run = subprocess.run([sys.executable, "-c", CACHED], env=keeping(str(tmp_path)), capture_output=True, check=True)
    found, path = run.stdout.decode().split(maxsplit=1)
    assert found == "True"
    assert Path(path).is_relative_to(tmp_path)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("import os; os.kill(os.getpid(), 9)", "a fresh process failed with -9: it said nothing"),
        ("raise ValueError('no GPU')", "a fresh process failed with 1: ValueError: no GPU"),
    ],
)
def test_a_process_that_fails_is_told_of_whatever_it_said(tmp_path, monkeypatch, script, told):
    monkeypatch.setattr(cold, "SCRIPT", script)
    with pytest.raises(RuntimeError, match=told):
        cold._process(str(tmp_path), environment=dict(os.environ))
