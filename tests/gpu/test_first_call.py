"""The first call of a process: with the wheel it needs no compiler, nor Python, and after a warm-up no shape does."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from launcher import compiled_example

import lowlevel_reduce as lr
from benchmarks.measure.shapes import drawn_layout
from lowlevel_reduce.compiler import program
from lowlevel_reduce.compiler.installed import PACKAGE
from lowlevel_reduce.kernel_wheel.building import build_wheel

SCRIPT = """
import sys
import ml_dtypes
import numpy as np
import lowlevel_reduce as lr
x = np.random.default_rng(31).standard_normal(1_000_000, dtype=np.float32)
assert lr.sum(x).numpy().tobytes() == lr.tree.reduce(x).tobytes()
y = x[:999_000].reshape(999, 1000)
for axis in (0, 1):
    assert lr.sum(y, axis=axis).numpy().tobytes() == lr.tree.reduce(y, axis=axis).tobytes()
# Several attempts at these kernels spill, which the wheel leaves out.
z, weight = x[:8192].reshape(8, 1024).astype(ml_dtypes.bfloat16), x[:1024].astype(ml_dtypes.bfloat16)
assert lr.layer_norm(z, weight).numpy().tobytes() == lr.tree.layer_norm(z, weight).tobytes()
print("cuda.bindings.nvrtc" in sys.modules)
"""


@pytest.fixture(scope="module")
def site(device, tmp_path_factory):
    """A folder with the installed wheel of a family of reductions and one of row operations, for this device."""
    root = tmp_path_factory.mktemp("wheel")
    report = build_wheel(root / "dist", [device.architecture], [("sum", "float32"), ("layer_norm", "bfloat16")])
    with zipfile.ZipFile(report.wheel) as archive:
        archive.extractall(root / "site")
    return root / "site"


def test_a_process_with_the_wheel_needs_no_compiler(site, tmp_path):
    places = os.pathsep.join([str(Path(lr.__file__).parents[1]), str(site)])
    environment = {**os.environ, "PYTHONPATH": places, "LOWLEVEL_REDUCE_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("LOWLEVEL_REDUCE_PREBUILT_DIR", None)
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert not (tmp_path / "cache").exists()


def test_a_program_without_python_sums_arrays_of_every_rule(site, tmp_path):
    example = compiled_example(tmp_path)
    for length in (0, 1, 8192, 8193, 65_536, 65_537, 1_000_000, 100_000_007):
        done = subprocess.run([example, site / PACKAGE, str(length)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (length, done.stdout, done.stderr)


@pytest.mark.slow
def test_after_a_warm_up_no_shape_compiles_anything(context, cut, monkeypatch):
    assert lr.warm_up("sum", "float32", context=context).wait()
    monkeypatch.setattr(program, "_compile", lambda job, cache: pytest.fail(f"compiled {job.program.name}"))
    for number in range(cut(300, 40)):
        case = drawn_layout(31, number, "sum", "float32")
        layout = {"shape": case.shape, "axis": case.axis, "strides_bytes": case.strides_bytes}
        lr.plan("sum", dtype="float32", context=context, **layout).close()
