"""What type checkers say of a caller's code: nothing of what is right, and of what is wrong, each line."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CODE = """
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import lowlevel_reduce as lr
from lowlevel_reduce.functions.annotations import MeanVar, MinMax, SoftmaxStats


class Theirs:
    def __dlpack__(self, *, stream: int | None = None) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __cuda_stream__(self) -> tuple[int, int]: ...


class ByInterface:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


def right(x: npt.NDArray[np.float32], y: lr.DeviceArray, theirs: Theirs, other: ByInterface, mine: lr.Operator) -> None:
    assert_type(lr.sum(x), lr.DeviceArray)
    assert_type(lr.sum(y, 0, keepdims=True, dtype="float64", nan="ignore", initial=1.0), lr.DeviceArray)
    assert_type(lr.sum(theirs, (0, 1), stream=theirs, out=None), lr.DeviceArray)
    assert_type(lr.sum(other, axis=[0], where=x > 0), lr.DeviceArray)
    assert_type(lr.sum(x, out=theirs), Theirs)
    assert_type(lr.norm(x, 1, axis=-1), lr.DeviceArray)
    assert_type(lr.dot(x, y, 0), lr.DeviceArray)
    assert_type(lr.mean_var(x, correction=1), MeanVar)
    assert_type(lr.mean_var(x, out=y), lr.DeviceArray)
    assert_type(lr.minmax(x).min, lr.DeviceArray)
    assert_type(lr.reduce(x), lr.DeviceArray)
    assert_type(lr.reduce(x, "norm1"), lr.DeviceArray)
    assert_type(lr.reduce(x, "minmax"), MinMax)
    assert_type(lr.reduce(x, "softmax_stats", axis=1), SoftmaxStats)
    assert_type(lr.reduce(x, mine), Any)
    assert_type(lr.reduce(x, "sum", out=theirs), Theirs)
    assert_type(lr.segmented_reduce(x, [0, 3], "mean_var"), MeanVar)
    assert_type(lr.segmented_reduce(x, x), lr.DeviceArray)
    assert_type(lr.sum(x).item(), Any)
    assert_type(lr.sum(x)[..., :2].reshape(2, -1), lr.DeviceArray)
    for row in y:
        assert_type(row, lr.DeviceArray)
    print(f"{lr.sum(x):.3f}", len(y), y.tolist(), range(10)[lr.argmax(x)])


def wrong(x: npt.NDArray[np.float32], y: lr.DeviceArray) -> None:
    lr.sum(x, keepdim=True)  # wrong
    lr.sum(x, dim=0)  # wrong
    lr.sum(x, "0")  # wrong
    lr.sum([1, 2, 3])  # wrong
    lr.sum(x, nan="skip")  # wrong
    lr.sum(x, stream=5)  # wrong
    lr.sum(x, 0, "float64")  # wrong
    lr.max(x, dtype="float64")  # wrong
    lr.argmax(x, where=x > 0)  # wrong
    lr.mean(x, ddof=1)  # wrong
    lr.dot(x)  # wrong
    lr.norm(x, ord="fro")  # wrong
    lr.mean_var(x).std  # wrong
    lr.minmax(x).numpy()  # wrong
    lr.sum(x, out=5)  # wrong
    lr.reduce(x, "sum", axes=0)  # wrong
    lr.reduce(x, 5)  # wrong
    lr.reduce(x, "mean_var").numpy()  # wrong
    lr.segmented_reduce(x, [0, 3], axis=0)  # wrong
    lr.sum(x).nonsense  # wrong
"""
WRONG = [number for number, line in enumerate(CODE.splitlines(), 1) if line.endswith("# wrong")]
SURROUNDINGS = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "callers_code.py"
    path.write_text(CODE, encoding="utf-8")
    return path


@pytest.mark.slow
def test_mypy_finds_every_wrong_line_and_no_other(file):
    pytest.importorskip("mypy", reason="mypy is not installed")
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--disable-error-code=empty-body"]
    options += [f"--cache-dir={ROOT / '.cache' / 'tests' / 'mypy'}", "--no-error-summary", "--hide-error-context"]
    command = [sys.executable, "-m", "mypy", *options, str(file)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=file.parent, env=SURROUNDINGS)
    found = {int(number) for number in re.findall(rf"^{file.name}:(\d+): error", done.stdout, re.M)}
    assert found == set(WRONG), done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_finds_every_wrong_line_and_no_other(file):
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    (file.parent / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", str(file)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=file.parent, env=SURROUNDINGS)
    errors = [each for each in json.loads(done.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    assert {each["range"]["start"]["line"] + 1 for each in errors} == set(WRONG), done.stdout
