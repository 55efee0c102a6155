"""The examples without a GPU: on a simulated one, and they say so first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lowlevel_reduce import driver

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, EXAMPLES / "cluster_reduce.py", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environment)


def rows(output):
    return [line.split() for line in output.splitlines() if line.strip()[:1].isdigit()]


@pytest.mark.slow
def test_asked_for_the_simulator():
    done = run("--device", "simulator", "--n", "50001")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "simulated NVIDIA H200: as asked"
    assert [row[0] for row in rows(done.stdout)] == ["1", "2", "4", "8", "16"]
    assert all(row[4:] == ["-", "-", "-", "equal"] for row in rows(done.stdout)), "the simulator tells no time"


@pytest.mark.slow
def test_the_environment_selects_the_simulator(monkeypatch):
    monkeypatch.setenv("LOWLEVEL_REDUCE_DRIVER", "simulator")
    monkeypatch.setenv("LOWLEVEL_REDUCE_SIMULATED_DEVICE", "")
    done = run("--n", "5000", "--cluster", "1", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "simulated NVIDIA H200: LOWLEVEL_REDUCE_DRIVER says so"
    assert all(row[4:] == ["-", "-", "-", "equal"] for row in rows(done.stdout))
    done = run("--device", "simulator", "--n", "5000", "--cluster", "1")
    assert done.stdout.splitlines()[0] == "simulated NVIDIA H200: as asked"


def test_a_driver_that_does_not_exist_is_one_line(monkeypatch):
    monkeypatch.setenv("LOWLEVEL_REDUCE_DRIVER", "nosuch")
    done = run("--n", "5000")
    assert (done.returncode, done.stdout) == (2, "")
    words = "LOWLEVEL_REDUCE_DRIVER: no driver is registered as 'nosuch'; registered: cuda, simulator"
    assert done.stderr.splitlines() == [f"ValueError: {words}"]


@pytest.mark.skipif(driver.available(), reason="there is a driver: tests/gpu runs the examples on it")
def test_falls_back_and_says_so():
    done = run("--n", "5000", "--cluster", "1", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("simulated NVIDIA H200: no NVIDIA driver was found")
    assert len(rows(done.stdout)) == 2


@pytest.mark.skipif(driver.available(), reason="there is a driver: NoDriverError cannot come")
def test_a_gpu_that_was_asked_for_and_is_not_there():
    done = run("--device", "cuda", "--n", "5000")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("NoDriverError: ")
    assert "install" in line


@pytest.mark.slow
def test_the_readme_shows_what_the_demonstration_prints():
    done = run("--device", "simulator")
    assert done.returncode == 0, done.stderr
    _, *printed = done.stdout.rstrip().splitlines()  # the first line says why it is simulated
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    assert "\n".join(printed) in readme
