"""The example for torchrun, run as a person runs it: four processes of Gloo, each on a simulated GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch has an environment with it")

EXAMPLE = Path(__file__).parents[2] / "examples" / "torchrun_reduce.py"


def test_four_processes_have_the_bits_of_the_whole():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", str(EXAMPLE)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LOWLEVEL_REDUCE_DRIVER": "simulator"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"rank {rank}: the bits of the whole: True, largest at 29725, as in NumPy: True" in done.stdout
        assert f"rank {rank}: the largest of each row, as in NumPy: True" in done.stdout
    assert "False" not in done.stdout
