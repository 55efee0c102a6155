"""The examples on a real device, as a person runs them."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lowlevel_reduce.driver import available, binding

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


def test_cluster_reduce(device, cut):
    done = run("cluster_reduce.py", "--n", cut("1000003", "70003"))
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
    np.save(tmp_path / "z.npy", np.zeros(3, "datetime64[s]"))
    for arguments in (
        ["--input", tmp_path / "z.npy"],
        ["--input", tmp_path / "none.npy"],
        ["--n", "-1"],
        ["--cluster", "3"],
    ):
        done = run("cluster_reduce.py", "--n", "10", *arguments)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1, done.stderr


# Each without arguments, and what its output says of a run that went well, on any device.
EMBEDDING = {
    "own_context.py": ["the bits of NumPy's tree: True", "refused: the result at", "current before and after: True"],
    "green_context.py": ["the same bits everywhere: True"],
    "custom_operator.py": [
        *(
            f"axis {axis}: {size} weighted means, near np.average: True"
            for axis, size in ((None, 1), (1, 300), (0, 700))
        ),
        "the bits of the tree: True",
        "refused: map of Operator 'absmax'",
    ],
    "softmax.py": [
        "a row alone and among six, the same bits: True",
        "'cluster': 4}: the same bits: True",
        "in place: True",
        "causal rows have [1, 2, 3, 4, 5, 6] elements",
        "the gradient has the bits of NumPy: True",
    ],
    "own_row_operation.py": [
        "a call: ('out', 'largest'), the bits of NumPy: True",
        "a bound launch: the bits of NumPy: True",
        "refused: write out of RowOperation 'wrong'",
    ],
    "graph_capture.py": ["another address, by an update:", "the bits of NumPy's tree: True"],
    "launch_attributes.py": [" 1 ACCESS_POLICY_WINDOW", "18 SHARED_MEMORY_MODE"],
    "cooperative_reduce.py": ["bits equal: True", "such blocks at once", "refused: a cooperative grid of"],
    "dependent_launch.py": ["the bits of NumPy's tree: True"],
    "several_gpus.py": ["the bits of the whole in NumPy: True", "as in NumPy: True", "the same bits: True"],
}


@pytest.fixture
def real():
    """Whether there is a GPU, which an example then runs on unless it is told otherwise."""
    with binding.use("cuda"):
        return available()


@pytest.mark.parametrize("name", EMBEDDING)
def test_an_example_of_embedding(machine, device, real, name, monkeypatch):
    if machine == "simulated" and real:
        monkeypatch.setenv(binding.VARIABLE, "simulator")
    done = run(name)
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert first.startswith("simulated ") == (machine == "simulated"), "where it runs is said first, if not on a GPU"
    for words in EMBEDDING[name]:
        assert words in done.stdout
    assert "False" not in done.stdout


@pytest.mark.parametrize(
    ("name", "library", "sentence"),
    [("embed_in_torch.py", "torch", "PyTorch "), ("embed_in_cupy.py", "cupy", "CuPy ")],
)
def test_an_example_with_another_library(machine, real, name, library, sentence):
    if machine == "simulated" and real:
        pytest.skip(f"not simulated: {library} speaks to NVIDIA's driver")
    done = run(name)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if importlib.util.find_spec(library) is None or machine == "simulated":
        assert len(lines) == 1, "one sentence says what is missing"
        assert lines[0].startswith(sentence)
    else:
        assert "in one line: " in lines[0]
        assert len(lines) >= 2
