"""The seed of a run is the same in all its processes, whether it was given or drawn."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
RUN = """
from pathlib import Path

def test_seed(request, worker_id):
    Path(__file__).with_name(worker_id).write_text(str(request.config.option.seed))
"""


@pytest.mark.slow
@pytest.mark.parametrize("given", [[], ["--seed", "1234"]], ids=["drawn", "given"])
def test_every_process_has_the_seed_that_the_header_says(tmp_path, given):
    (tmp_path / "test_run.py").write_text(RUN)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "seeds", "-n", "2", "--dist", "each", *given, str(tmp_path)]
    environment = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = ((tmp_path / name).read_text() for name in ("gw0", "gw1"))
    assert first == second
    assert f"--seed {first}\n" in done.stdout
    assert not given or first == "1234"
