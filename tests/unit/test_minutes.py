"""A run of some minutes begins no test after them, in any of its processes, and draws which files come first."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import minutes
import pytest

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [[], ["-n", "2"]], ids=["one process", "xdist"])
def test_what_the_time_is_over_for_is_not_begun_and_counted(tmp_path, processes):
    (tmp_path / "test_run.py").write_text("def test_one():\n    pass\n\ndef test_two():\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "seeds", "-p", "minutes", *processes, str(tmp_path)]
    environment = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(given):
        done = subprocess.run(
            [*command, "--minutes", given], capture_output=True, text=True, timeout=120, env=environment, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "2 passed" in run("60")
    over = run("0")
    assert "2 skipped" in over
    assert "SKIPPED [2]" in over
    assert "not begun: the 0 minutes of this run were over" in over


def test_files_come_in_an_order_that_the_seed_draws_and_each_as_it_was():
    items = [SimpleNamespace(nodeid=f"tests/test_{file}.py::test_{test}") for file in range(20) for test in range(3)]
    one, same, other = (minutes.in_drawn_order(items, seed) for seed in (1, 1, 2))
    assert one == same
    assert len({tuple(map(id, order)) for order in (items, one, other)}) == 3
    for order in (one, other):
        assert sorted(map(id, order)) == sorted(map(id, items))
        for at in range(0, len(order), 3):
            assert order[at : at + 3] == items[items.index(order[at]) :][:3]
