"""One array over four processes that torch's Gloo connects: the bits of the whole, and every fault known to all.

What the ranks do is in gloo_ranks.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch has an environment with it")

from gloo_ranks import LENGTH, RANKS, ROWS, SECONDS, SHAPE, WHOLE, text_of, values

import lowlevel_reduce as lr
from lowlevel_reduce import simulator

SCRIPT = Path(__file__).with_name("gloo_ranks.py")


def run(directory, *arguments):
    """Run all ranks, and return their exit codes and what each found."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen([sys.executable, SCRIPT, str(rank), directory, *arguments], env=environment)
        for rank in range(RANKS)
    ]
    try:
        codes = [process.wait(timeout=8 * SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
    files = [directory / f"{rank}.json" for rank in range(RANKS)]
    return codes, [json.loads(file.read_text()) if file.exists() else {} for file in files]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each rank found, by its number."""
    codes, found = run(tmp_path_factory.mktemp("ranks"))
    assert codes == [0] * RANKS
    return found


@pytest.fixture(scope="module")
def device():
    with simulator.use("H200"):
        yield


@pytest.mark.parametrize("length", [None, LENGTH])
@pytest.mark.parametrize("op", WHOLE)
def test_every_rank_has_the_bits_of_the_whole_array(found, device, op, length):
    expected = text_of(lr.reduce(values((LENGTH,)), op))
    assert [each[f"{op}, {length}"] for each in found] == [expected] * RANKS


@pytest.mark.parametrize("op", ROWS)
def test_rows_in_parts_have_the_bits_of_whole_rows(found, device, op):
    expected = text_of(lr.reduce(values(SHAPE), op, axis=1))
    assert [each[f"{op} of rows"] for each in found] == [expected] * RANKS


def test_only_the_root_has_the_result(found, device):
    assert [each["at the root"] for each in found] == ["", "", text_of(lr.sum(values((LENGTH,)))), ""]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("dtype", "GroupError: the ranks disagree about the type: on rank 0 it is float32, on rank 1 'int32'"),
        ("operator", "GroupError: the ranks disagree about the operator: on rank 0 it is prod_float32"),
        ("chunk", "GroupError: the ranks disagree about the chunk: on rank 0 it is 1024, on rank 1 '2048'"),
        ("length", "CutError: rank 1 has 4000 elements, and by the cut of 16288 over 4 ranks 4096: from number 4096"),
        ("version", "GroupError: the ranks disagree about the library version: on rank 0 it is "),
    ],
)
def test_every_rank_hears_of_a_fault(found, fault, words):
    assert [each[fault][: len(words)] for each in found] == [words] * RANKS


def test_a_part_that_does_not_fit_a_kept_plan_is_an_error_everywhere(found):
    told = [each["told length"] for each in found]
    assert told[1].startswith("CutError: rank 1 has 4000 elements, and by the cut of 16384 over 4 ranks 4096: from")
    others = "GroupError: rank 1 could not take part in the reduction: its own error says why"
    assert [told[rank] for rank in (0, 2, 3)] == [others] * 3


def test_a_group_works_on_after_faults(found):
    expected = np.float32(RANKS * 4096).tobytes().hex()
    assert [(each["before"], each["after"]) for each in found] == [(expected, expected)] * RANKS


def test_a_rank_that_dies_is_an_error_on_all_others(tmp_path):
    codes, found = run(tmp_path, "--dies")
    assert codes == [0, 0, 0, 3]
    assert all(each["after"].startswith("GroupError: rank") for each in found[:-1]), found
    assert {each["before"] for each in found[:-1]} == {np.float32(RANKS * 4096).tobytes().hex()}
