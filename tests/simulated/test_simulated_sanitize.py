"""The script that runs under sanitizers ends by itself: all was checked, its time is up, or a case hangs."""

import os
import subprocess
import sys
from pathlib import Path

from lowlevel_reduce.driver import binding
from tests.fuzz.worlds import keep_kernels

GPU = Path(__file__).resolve().parents[1] / "gpu"
SCRIPT = f"""
import runpy, sys
import lowlevel_reduce.simulator
sys.path.insert(0, {str(GPU)!r})
runpy.run_path({str(GPU / "sanitize.py")!r}, run_name="__main__")
"""
HANGING = f"""
import sys, time
sys.path.insert(0, {str(GPU)!r})
import sanitizing
sanitizing._GRACE_S = 0.1
sanitizing.limited(0.2)
sanitizing.ended_by_itself(lambda: time.sleep(60))
"""
WRONG = f"""
import sys, numpy
sys.path.insert(0, {str(GPU)!r})
import sanitizing
class Found:
    def numpy(self): return numpy.float32(1)
sanitizing.ended_by_itself(lambda: sanitizing.compare("one", Found(), numpy.float32(2)))
"""
ENDING = [
    "the end: what the thread keeps",
    "the end: the stream",
    "the end: the context",
    "the end: kernels, which belong to no context",
]


def run(code, *arguments):
    keep_kernels()
    environment = {**os.environ, binding.VARIABLE: "simulator", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_partials_and_their_folds_are_right():
    status, lines = run(SCRIPT, "parts")
    assert (status, lines[-1]) == (0, "166 launches checked")


def test_no_case_is_begun_when_the_time_is_up():
    status, lines = run(SCRIPT, "--seconds", "0", "calls", "parts")
    assert status == 0
    assert lines[0].startswith("the time was up after 0 cases; the next one was sum of (5,)")
    assert [line.split(" [")[0] for line in lines[1:]] == [*ENDING, "0 launches checked"]


def test_where_a_case_hangs_is_told():
    status, lines = run(HANGING)
    assert (status, lines[-1]) == (3, "stopped: it did not end within 0.1 s of its time")
    assert '  File "<string>", line 7 in <lambda>' in lines


def test_wrong_bits_are_told():
    assert run(WRONG) == (1, ["wrong: one"])
