"""The command line on simulated GPUs: real files, real rungs, and a real process."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from lowlevel_reduce import driver, tree
from lowlevel_reduce.cli import app
from lowlevel_reduce.ladder import RUNGS

KEYS = [
    "rung", "system", "n", "dtype", "value", "reference", "relative_error", "correct", "expected_correct",
    "microseconds", "gb_per_s", "percent_of_peak", "counters",
]  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(app.app, [str(argument) for argument in arguments])


def process(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "lowlevel_reduce", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environment)


# -- reduce -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_a_file_reduces_to_the_trees_bits(tmp_path, dtype, order):
    values = (np.random.default_rng(3).random((37, 211)) * 8).astype(dtype)
    np.save(tmp_path / "x.npy", np.asarray(values, order=order))
    done = run("reduce", tmp_path / "x.npy", "--device", "simulator", "--json")
    assert done.exit_code == 0, done.stderr
    found, expected = json.loads(done.stdout), tree.reduce(values)
    assert found["value"] == expected.item()
    assert (found["result_dtype"], found["shape"]) == (expected.dtype.name, [37, 211])


def test_options_reach_the_reduction(tmp_path):
    values = np.random.default_rng(4).random(5000, np.float32)
    np.save(tmp_path / "x.npy", values)
    more = ["--dtype", "float64", "--accumulate", "compensated"]
    done = run("reduce", tmp_path / "x.npy", "--device", "simulator", *more)
    assert done.exit_code == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) == tree.reduce(values, dtype="float64", accumulate="compensated")


@pytest.mark.parametrize("op", ["minmax", "mean_var"])
def test_operators_with_two_results_print_both(tmp_path, op):
    values = np.random.default_rng(5).random((3, 500), np.float32)
    np.save(tmp_path / "x.npy", values)
    whole, rows = (run("reduce", tmp_path / "x.npy", "--device", "simulator", "--op", op, *more)
                   for more in ([], ["--json", "--axis", "1"]))  # fmt: skip
    assert (whole.exit_code, rows.exit_code) == (0, 0), whole.stderr + rows.stderr
    assert whole.stdout.splitlines()[1:] == [str(each[()]) for each in tree.reduce(values, op)]
    found, expected = json.loads(rows.stdout), tree.reduce(values, op, axis=1)
    assert found["value"] == [each.tolist() for each in expected]
    assert found["result_dtype"] == [each.dtype.name for each in expected]
    assert found["result_shape"] == [3]


@pytest.mark.parametrize(
    "wrong", [["--op", "nosuch"], ["--axis", "7"], ["--dtype", "float7"], ["--accumulate", "int8"]], ids=lambda v: v[0]
)
def test_the_librarys_refusals_are_one_line_and_exit_code_2(tmp_path, wrong):
    np.save(tmp_path / "x.npy", np.ones(10, np.float32))
    done = run("reduce", tmp_path / "x.npy", "--device", "simulator", "--json", *wrong)
    assert (done.exit_code, done.stdout) == (2, "")
    where, line = done.stderr.splitlines()
    assert where.startswith("simulated")
    assert re.match(r"\w+Error: .", line)


# -- ladder -----------------------------------------------------------------------------------------------------------


def test_rungs_in_a_process_of_their_own():
    done = process(
        "ladder", "--device", "simulator", "--rungs", "v0_atomic,v2_shared_sequential", "--n", 4099, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "simulated NVIDIA H200: as asked"
    records = json.loads(done.stdout)
    assert [record["rung"] for record in records] == ["v0_atomic", "v2_shared_sequential"]
    for record in records:
        assert list(record) == KEYS
        assert (record["n"], record["correct"], record["microseconds"]) == (4099, True, None)
    assert [record["counters"]["atomics"] for record in records] == [4099, 0]


@pytest.mark.skipif(driver.available(), reason="there is a driver: nothing to fall back from")
def test_a_process_without_a_driver_falls_back_and_says_so():
    done = process("ladder", "--rungs", "v0_atomic", "--n", "1000")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("simulated NVIDIA H200: no NVIDIA driver was found")


def test_a_rung_that_is_wrong_on_purpose_is_no_failure():
    done = run("ladder", "--device", "simulator", "--rungs", "race", "--n", "1000")
    assert done.exit_code == 0, done.stderr
    assert "wrong, on purpose" in done.stdout


@pytest.mark.parametrize("rungs", ["race", "race,block_serial"])
def test_a_picture_of_what_the_simulator_stopped(tmp_path, rungs):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    for name, starts in (("x.png", b"\x89PNG\r\n\x1a\n"), ("x.svg", b"<?xml")):
        done = run("ladder", "--device", "simulator", "--rungs", rungs, "--n", "1000", "--plot", tmp_path / name)
        assert done.exit_code == 0, done.stderr
        assert (tmp_path / name).read_bytes().startswith(starts)
    assert ("block_serial" in (tmp_path / "x.svg").read_text()) == ("," in rungs)


def test_a_maximum_of_nothing_is_null():
    done = run("ladder", "--device", "simulator", "--rungs", "v0_atomic_max_cas", "--n", "0", "--json")
    (record,) = json.loads(done.stdout, parse_constant=pytest.fail)
    assert (record["value"], record["reference"], record["correct"]) == (None, None, True)


def test_a_type_that_a_rung_does_not_take():
    done = run("ladder", "--device", "simulator", "--rungs", "v0_atomic", "--dtype", "float16")
    assert done.exit_code == 2
    assert done.stderr == "ValueError: rung v0_atomic takes elements of type float32, not float16\n"


def test_a_block_that_is_no_block():
    done = run("ladder", "--device", "simulator", "--block", "100")
    assert done.exit_code == 2
    assert done.stderr.startswith("ValueError: a block has 32,")


def test_every_rung_has_its_place_in_the_tables_and_on_the_page():
    assert {rung.system for rung in RUNGS.values()} == set("ABCDE")
    assert all(rung.title and rung.source.is_file() for rung in RUNGS.values())
