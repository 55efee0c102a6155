"""The examples where there is no driver: one clear sentence, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lowlevel_reduce import driver

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.skipif(driver.available(), reason="there is a driver: tests/gpu runs the examples")
def test_cluster_reduce_says_what_is_missing():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, EXAMPLES / "cluster_reduce.py", "--n", "10"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("NoDriverError: ")
    assert "install" in line
