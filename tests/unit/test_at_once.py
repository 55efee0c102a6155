"""Failures are told when they occur: also of other processes, and if the run never ends."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
RUN = """
import os, pytest

@pytest.fixture
def broken():
    raise ValueError("of the fixture")

def test_passes():
    pass

def test_fails():
    assert 1 + 1 == 3

def test_error(broken):
    pass

def test_ends():
    os.kill(int(os.environ["RUN"]), 9)
"""


@pytest.mark.parametrize("processes", [[], ["-n", "1"]], ids=["one process", "xdist"])
def test_what_fails_is_told_before_the_run_ends(tmp_path, processes):
    (tmp_path / "test_run.py").write_text(RUN)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    code = "import os, sys, pytest; os.environ['RUN'] = str(os.getpid()); sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "-q", "-p", "at_once", "--at-once", *processes, str(tmp_path)]
    environment = {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert ran.returncode == -9, ran.stderr
    lines = ran.stdout.splitlines()
    assert "FAILED test_run.py::test_fails" in lines
    assert "ERROR test_run.py::test_error" in lines
    assert "E       assert (1 + 1) == 3" in lines
    assert "E       ValueError: of the fixture" in lines
