"""The examples on a real device, as a person runs them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )


def test_cluster_reduce(device):
    done = run("cluster_reduce.py", "--n", "1000003")
    assert done.returncode == 0, done.stderr
    assert device.name in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert [row[0] for row in rows] == (["1", "2", "4", "8", "16"] if device.supports_clusters else ["1"])
    assert all(row[-1] == "equal" for row in rows)


def test_cluster_reduce_of_a_file(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(70_000, dtype=np.int16).reshape(70, 1000))
    done = run("cluster_reduce.py", "--input", tmp_path / "x.npy", "--cluster", "1", "2")
    assert done.returncode == 0, done.stderr
    assert "sum of 70000 int16" in done.stdout


def test_cluster_reduce_refuses_in_one_line(tmp_path):
    np.save(tmp_path / "z.npy", np.zeros(3, np.complex64))
    for arguments in (
        ["--input", tmp_path / "z.npy"],
        ["--input", tmp_path / "none.npy"],
        ["--n", "-1"],
        ["--cluster", "3"],
    ):
        done = run("cluster_reduce.py", "--n", "10", *arguments)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1, done.stderr
