"""One array in parts over the ranks of an MPI, each with a GPU of its own: all have the bits of the whole array.

The GPUs are simulated, of a different model on each rank; what the ranks do is in ranks.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed: make test-mpi has an environment with it")

from ranks import CASES, LEAF, RANKS, WITHOUT_CUTS, gathered_by_bytes, gathered_by_objects, text_of, values_of

import lowlevel_reduce as lr
from lowlevel_reduce import simulator

pytestmark = pytest.mark.usefixtures("kept_kernels")  # the ranks' too: they inherit the variable that names them

FOLDER = Path(__file__).parent
SECONDS = 240
"""After which ranks that wait for each other are ended."""


def run(*arguments):
    """Run the ranks, and return how they ended; `mpiexec` itself ends what takes too long."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    assert mpiexec.exists(), f"the package mpich brings {mpiexec}"
    command = [mpiexec, "-n", str(RANKS), sys.executable, "-m", "mpi4py", FOLDER / "ranks.py", *arguments]
    environment = {**os.environ, "MPIEXEC_TIMEOUT": str(SECONDS), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment, timeout=SECONDS + 30, check=False
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each rank found, by its number."""
    directory = tmp_path_factory.mktemp("ranks")
    done = run(directory)
    assert done.returncode == 0, done.stderr
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("gather", [gathered_by_bytes, gathered_by_objects])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_rank_has_the_bits_of_the_whole_array(found, case, gather):
    name = f"{gather.__name__}: {case.name}"
    assert [each[name] for each in found] == [expected_of(case)] * RANKS


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("case", WITHOUT_CUTS, ids=lambda case: case.name)
def test_one_call_has_these_bits_as_well(found, case, is_told):
    name = f"distributed, {is_told}: {case.name}"
    assert [each[name] for each in found] == [expected_of(case)] * RANKS


def expected_of(case):
    x = values_of(case)
    if case.op == "logsumexp":  # whose exponentials are those of a GPU
        with simulator.use("H200"):
            expected = text_of(lr.reduce(x, case.op, **case.options))
        np.testing.assert_allclose(
            np.frombuffer(bytes.fromhex(expected), "f4"), lr.tree.reduce(x, case.op), rtol=2**-22
        )
    else:
        expected = text_of(lr.tree.reduce(x, case.op, **case.options))
    return expected


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_these_sums_depend_on_the_order_of_the_parts(op):
    for case in CASES:
        if case.op == op and case.length > 4 * LEAF and not case.options:  # compensated ones are exact
            x = values_of(case)
            bits, turned = (text_of(lr.tree.reduce(each, op, **case.options)) for each in (x, np.roll(x, LEAF)))
            assert bits != turned, case.name


def test_partials_of_another_chunk_are_refused_by_every_rank(found):
    words = (
        f"{16 * LEAF} elements in chunks of {2 * LEAF} have partials of shape (8, 2) and type uint32; "
        "these are 20 of uint32"
    )
    assert [each["refused"] for each in found] == [words] * RANKS


def test_a_rank_that_fails_ends_the_others_which_wait_for_it(tmp_path):
    done = run(tmp_path, "--failing", "2")
    assert done.returncode != 0
    assert f"ValueError: a chunk of float32 is a power of two of leaves of {LEAF} elements" in done.stderr
    assert list(tmp_path.iterdir()) == [], "no rank went on without the partials of all"
