"""The examples for an MPI and for dask, run as a person runs them, on simulated GPUs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("kept_kernels")  # those of the processes, too: they inherit the variable

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 240


def run(*command):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MPIEXEC_TIMEOUT": str(SECONDS),
        "LOWLEVEL_REDUCE_DRIVER": "simulator",
    }
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment, timeout=SECONDS + 30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "False" not in done.stdout
    return done.stdout


def test_four_ranks_of_an_mpi_have_the_bits_of_the_whole():
    pytest.importorskip("mpi4py", reason="mpi4py is not installed: make test-mpi has an environment with it")
    mpiexec = Path(sys.executable).with_name("mpiexec")
    out = run(mpiexec, "-n", 4, sys.executable, "-m", "mpi4py", EXAMPLES / "mpi_reduce.py")
    assert out.count("the bits of the whole: True") == 4
    assert out.count("rank 0 alone has mean and variance, with these bits as well: True") == 1


def test_workers_of_dask_have_the_bits_of_the_whole():
    pytest.importorskip("distributed", reason="dask is not installed: make test-mpi has an environment with it")
    out = run(sys.executable, EXAMPLES / "dask_reduce.py")
    assert "chunks of (20000, 20000, 10000)... are rechunked to (17408, 16384, 16208)..., multiples of 1024" in out
    assert "the bits of the whole in NumPy: True" in out
    assert "largest at 29725, as in NumPy: True" in out
