"""The run of GPU tests and sanitizers: what a page says of parts that passed, failed, or were stopped."""

import contextlib
import sys
import time
from types import SimpleNamespace

import pytest

from benchmarks import verify
from benchmarks.verify import Outcome, told

FACTS = {
    "measured": "2026-01-01T00:00:00+00:00",
    "commit": "abc",
    "device": "GPU",
    "multiprocessors": 7,
    "nvidia_smi": "1.2",
    "python": "3.12",
    "packages": {"cuda-bindings": "13.3", "nvidia-cuda-nvrtc": "13.0", "numpy": "2.5"},
}


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("....\n1280 passed, 90 skipped in 480.12s (0:08:00)\n", "1280 passed, 90 skipped in 480.12s"),
        ("== 1 failed, 3 passed in 2.00s ==", "1 failed, 3 passed in 2.00s"),
        ("1 error in 0.30s", "1 error in 0.30s"),
        ("========= ERROR SUMMARY: 0 errors\n", "ERROR SUMMARY: 0 errors"),
        ("x\nwrong: argmax of (3, 5) axis 0\n", "wrong: argmax of (3, 5) axis 0"),
        ("Traceback\nNoDriverError: none\n", "NoDriverError: none"),
        ("", "no output"),
        ("..\nFAILED tests/a.py::t[a b]\nE  x\n... [ 57%]", "FAILED tests/a.py::t[a b]"),
        (
            "ERROR tests/a.py::t\n== 1 error in 0.30s ==\nERROR tests/a.py::t - why\n",
            "1 error in 0.30s; ERROR tests/a.py::t",
        ),
    ],
)
def test_the_words_that_say_how_it_went(output, words):
    assert told(output) == words


def test_of_many_failures_some_are_told():
    found = told("".join(f"FAILED tests/a.py::t{number}\n" for number in range(22)))
    assert found.endswith("tests/a.py::t19; and 2 more")


def test_all_that_a_part_writes_is_kept_if_it_is_stopped_too(tmp_path):
    log = tmp_path / "tests.log"
    code = "import sys, time; print('7 launches checked', file=sys.stderr, flush=True); time.sleep(60)"
    assert verify.run([sys.executable, "-c", code], 1.0, log).status is None
    assert log.read_text() == "7 launches checked\n"


def test_a_command_that_passes_fails_is_stopped_or_is_not_there():
    def of(code, limit=30.0):
        return verify.run([sys.executable, "-c", code], limit)

    assert of("print('3 passed in 0.10s')")[::2] == (0, "3 passed in 0.10s")
    assert of("print('1 failed in 0.10s'); raise SystemExit(1)")[::2] == (1, "1 failed in 0.10s")
    late = of("import time; print('1 launch checked', flush=True); time.sleep(60)", limit=1.0)
    assert late.status is None
    assert late.words.endswith("until then: 1 launch checked")
    assert verify.run(["there-is-no-such-command"], 1.0).status == 127


@pytest.fixture
def ran(monkeypatch):
    """The commands that were run, by stand-ins for device and processes."""
    commands = []

    def run(command, limit_seconds, log):
        commands.append(command if log is None else [*command, log])
        return Outcome(9 if "racecheck" in command else 0, 1.0, "fine | well")

    stream = SimpleNamespace(context=SimpleNamespace(device=None))
    monkeypatch.setattr(verify, "opened", lambda: contextlib.nullcontext(stream))
    monkeypatch.setattr(verify, "conditions", lambda device, commit: FACTS)
    monkeypatch.setattr(verify, "run", run)
    return commands


def test_a_page_is_begun_and_then_added_to(ran, tmp_path):
    page = tmp_path / "tests.md"
    assert verify.main(["--page", str(page), "--part", "tests", "--part", "memcheck", "--jobs", "3"]) == 0
    assert ran[0][1:] == ["-m", "pytest", "-q", "--at-once", "-p", "no:benchmark", "--numprocesses", "3", "tests/gpu"]
    assert ran[1][:3] == ["compute-sanitizer", "--tool", "memcheck"]
    assert ran[1][-1] == "tests/gpu/sanitize.py"
    assert verify.main(["--page", str(page), "--part", "racecheck"]) == 1
    assert ran[2][-2:] == ["tests/gpu/sanitize.py", "--without-clusters"]
    text = page.read_text()
    assert text.count("# GPU tests and sanitizers") == 1
    assert text.count("commit abc") == 2
    assert "| tests | passed: fine / well | 1 |" in text
    assert "| racecheck | **FAILED**: fine / well | 1 |" in text


def test_cases_are_run_plainly_first_and_then_by_each_tool(ran, tmp_path):
    page = tmp_path / "x.md"
    cases = ["calls", "parts"]
    parts = ["--part", "memcheck", "--part", "synccheck", "--case", "calls", "--case", "parts"]
    assert verify.main(["--page", str(page), *parts, "--limit-seconds", "100"]) == 0
    assert sorted(command[1:] for command in ran[:2]) == [["tests/gpu/sanitize.py", case] for case in cases]
    tools = sorted((command[2], *command[-3:]) for command in ran[2:])
    assert tools == [(tool, "--seconds", "80", case) for tool in ("memcheck", "synccheck") for case in cases]
    assert "| plain calls | passed" in page.read_text()
    assert "| synccheck parts | passed" in page.read_text()


def test_no_tool_is_run_where_results_are_wrong_without_one(ran, tmp_path, monkeypatch):
    def run(command, limit_seconds, log):
        ran.append(command)
        return Outcome(1, 1.0, "wrong: sum")

    monkeypatch.setattr(verify, "run", run)
    page = tmp_path / "x.md"
    assert verify.main(["--page", str(page), "--part", "racecheck", "--case", "calls", "--limit-seconds", "100"]) == 1
    assert [command[1:] for command in ran] == [["tests/gpu/sanitize.py", "--without-clusters", "calls"]]
    with pytest.raises(SystemExit):
        verify.main(["--page", str(page), "--case", "calls", "--limit-seconds", "20"])


def test_what_a_stopped_command_has_begun_ends_with_it(tmp_path):
    mark = tmp_path / "mark"
    inner = f"import time, pathlib; time.sleep(1); pathlib.Path({str(mark)!r}).touch()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    assert verify.run([sys.executable, "-c", code], 0.5).status is None
    time.sleep(1.0)
    assert not mark.exists()


def test_arguments_for_pytest(ran, tmp_path):
    assert verify.main(["--page", str(tmp_path / "x.md"), "--part", "tests", "--", "tests/gpu/test_sum.py", "-x"]) == 0
    assert ran[0][1:] == ["-m", "pytest", "-q", "--at-once", "-p", "no:benchmark", "tests/gpu/test_sum.py", "-x"]


def test_logs_are_named_for_their_parts(ran, tmp_path):
    page = ["--page", str(tmp_path / "x.md")]
    assert verify.main([*page, "--part", "memcheck", "--logs", str(tmp_path)]) == 0
    assert ran[0][-1] == tmp_path / "memcheck.log"
    with pytest.raises(SystemExit):
        verify.main([*page, "--logs", str(tmp_path / "none")])
