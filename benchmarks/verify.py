"""Run the tests that need a GPU, and the sanitizers over every kernel, and add the outcome to a page of results.

python -m benchmarks.verify --page benchmarks/results/DATE-DEVICE-tests.md [--part tests] [--part memcheck] ...
                            [--case calls] [--case parts] ... [--jobs 16] [--limit-seconds S] [--logs DIRECTORY]
                            [--commit C] [-- PYTEST-ARGUMENTS]

The tests run first, alone on the device; then all sanitizers at the same time. A part that exceeds its time limit is
stopped, and the page says so, with the tests that had failed by then. With cases, the sanitizers run these alone, each
case in a process of its own, when all kernels were compiled and all results were right without them; each ends in time,
with its summary.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

from benchmarks.measure.timing import conditions, opened

__all__ = ["Outcome", "main", "section_of", "told"]

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
TESTS = "tests"
# racecheck does not return from kernels that wait for st.async (NOTES.md, "A sanitizer that does not return").
_WITHOUT = {"racecheck": ("--without-clusters",)}
_SCRIPT = "tests/gpu/sanitize.py"
_COMPILING_S = 300.0  # the limit where kernels are compiled, too
_END_S = 20.0  # of a part's limit, for the case that is under way as the time is up, and for the summary
ROOT = Path(__file__).resolve().parent.parent

# The last lines of pytest, the sanitizers and tests/gpu/sanitize.py.
_SUMMARY = re.compile(
    r"\d+ (?:passed|failed|error)[^\n]* in [\d.]+s|(?:ERROR|RACECHECK) SUMMARY: [^\n]+"
    r"|\d+ [^\n]*checked[^\n]*|wrong: [^\n]+"
)
# What pytest says of each test that fails: at once, and in a summary if the run ends.
_FAILURE = re.compile(r"^(?:FAILED|ERROR) tests/\S+?::[^\n]+?(?= - |$)", re.MULTILINE)
_MOST_FAILURES = 20  # of which a page tells


class Outcome(NamedTuple):
    """The outcome of one part: its exit status, None if it was stopped; its seconds; and its last lines."""

    status: int | None
    seconds: float
    words: str


def told(output: str) -> str:
    """Return the lines of a part's output that sum it up, and the tests that failed; or else its last line."""
    found = [match.group().strip("= ") for match in _SUMMARY.finditer(output)]
    failures = list(dict.fromkeys(_FAILURE.findall(output)))
    found += failures[:_MOST_FAILURES]
    if len(failures) > _MOST_FAILURES:
        found.append(f"and {len(failures) - _MOST_FAILURES} more")
    return "; ".join(found) or (output.strip().splitlines() or ["no output"])[-1][:120]


def section_of(facts: Mapping[str, Any], outcomes: Mapping[str, Outcome]) -> str:
    """Return the section to add to a page: the conditions, and a row for each part."""
    packages = facts["packages"]
    compiler = packages.get("nvidia-cuda-nvrtc") or packages.get("nvidia-cuda-nvrtc-cu12", "of the machine")
    lines = [
        f"## {facts['measured']}, commit {facts['commit']}",
        "",
        f"One {facts['device']} ({facts['multiprocessors']} multiprocessors; driver and clocks {facts['nvidia_smi']}), "
        f"Python {facts['python']}, cuda-bindings {packages.get('cuda-bindings')}, NVRTC {compiler}, "
        f"NumPy {packages.get('numpy')}, PyTorch {packages.get('torch', 'none')}, "
        f"CuPy {packages.get('cupy-cuda13x') or packages.get('cupy-cuda12x', 'none')}.",
        "",
        "| part | result | seconds |",
        "| --- | --- | --- |",
    ]
    for part, outcome in outcomes.items():
        verdict = "stopped" if outcome.status is None else "passed" if outcome.status == 0 else "**FAILED**"
        lines.append(f"| {part} | {verdict}: {outcome.words.replace('|', '/')} | {outcome.seconds:.0f} |")
    return "\n".join([*lines, ""])


def _commands(arguments: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    for part in arguments.part or (TESTS, *TOOLS):
        if part == TESTS:
            beside = ["--numprocesses", str(arguments.jobs)] if arguments.jobs > 1 else []
            # Where pytest-benchmark is installed, it warns that it measures nothing beside other processes: an error.
            plain = [sys.executable, "-m", "pytest", "-q", "--at-once", "-p", "no:benchmark"]
            yield part, [*plain, *beside, *(arguments.rest or ["tests/gpu"])]
        else:
            script = [sys.executable, _SCRIPT, *_WITHOUT.get(part, ())]
            tool = ["compute-sanitizer", "--tool", part, "--error-exitcode", "9", *script]
            if not arguments.case:
                yield part, tool
            for case in arguments.case:
                yield f"{part} {case}", [*tool, "--seconds", f"{arguments.limit_seconds - _END_S:g}", case]


def _preparations(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return the commands that run the cases without a tool, which compiles their kernels once for all tools."""
    tools = [part for part in arguments.part or TOOLS if part != TESTS]
    ways = {"plain": (), "plain, without clusters": _WITHOUT["racecheck"]}
    return {
        f"{name} {case}": [sys.executable, _SCRIPT, *way, case]
        for name, way in ways.items()
        for case in arguments.case
        if any(_WITHOUT.get(tool, ()) == way for tool in tools)
    }


def run(command: Sequence[str], limit_seconds: float, log: Path | None = None) -> Outcome:
    """Run a command from the checkout's root, and stop it when its time is up.

    Its output goes to ``log``, if given, while it runs; the end of it is printed if the command fails or is stopped.
    """
    begin = time.perf_counter()
    with log.open("w+b") if log else tempfile.TemporaryFile("w+b") as written:
        try:
            status = _status(command, limit_seconds, written)
        except FileNotFoundError as error:
            return Outcome(127, 0.0, str(error))
        seconds = time.perf_counter() - begin
        written.seek(0)
        output = written.read().decode(errors="replace")
    if status != 0:
        print(output[-8000:], flush=True)
    stopped = "" if status is not None else f"after {limit_seconds:.0f} s; until then: "
    return Outcome(status, seconds, stopped + told(output))


def _status(command: Sequence[str], limit_seconds: float, written: IO[bytes]) -> int | None:
    begun = subprocess.Popen(command, cwd=ROOT, stdout=written, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return begun.wait(limit_seconds)
    except BaseException as error:
        # With all that it has begun, such as what a sanitizer watches, which would go on and keep the device.
        os.killpg(begun.pid, signal.SIGKILL)
        begun.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a part failed or was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", metavar="FILE", required=True, type=Path, help="Markdown; begun if it is not there")
    parser.add_argument("--part", action="append", choices=(TESTS, *TOOLS), help="by default all")
    parser.add_argument("--case", action="append", default=[], help=f"a part of {_SCRIPT}, which names them")
    parser.add_argument("--jobs", type=int, default=1, help="processes of the tests, which needs pytest-xdist")
    parser.add_argument("--limit-seconds", type=float, default=600.0, metavar="S", help="of each part")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY", help="there must be one; gets all that a part writes")
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    parser.add_argument("rest", nargs="*", metavar="PYTEST-ARGUMENTS", help="by default tests/gpu")
    arguments = parser.parse_args(argv)
    if not arguments.page.parent.is_dir():
        parser.error(f"there is no directory {arguments.page.parent}")
    if arguments.logs is not None and not arguments.logs.is_dir():
        parser.error(f"there is no directory {arguments.logs}")
    if arguments.case and arguments.limit_seconds <= _END_S:
        parser.error(f"a sanitizer needs more than {_END_S:g} s")
    with opened() as stream:
        facts = conditions(stream.context.device, arguments.commit)
    before = _preparations(arguments)
    commands = {**dict(_commands(arguments)), **before}

    def outcome(part: str) -> Outcome:
        log = arguments.logs / f"{part.replace(' ', '-')}.log" if arguments.logs else None
        return run(commands[part], _COMPILING_S if part in before else arguments.limit_seconds, log)

    def together(parts: Sequence[str]) -> dict[str, Outcome]:
        with ThreadPoolExecutor(len(parts)) as pool:
            return dict(zip(parts, pool.map(outcome, parts), strict=True))

    outcomes = {}
    if TESTS in commands:
        outcomes[TESTS] = outcome(TESTS)
    sanitizers = [part for part in commands if part != TESTS and part not in before]
    if before:
        outcomes.update(together(list(before)))
    if sanitizers and all(outcomes[part].status == 0 for part in before):
        outcomes.update(together(sanitizers))
    section = section_of(facts, outcomes)
    begun = arguments.page.read_text(encoding="utf-8") if arguments.page.exists() else "# GPU tests and sanitizers\n"
    arguments.page.write_text(f"{begun}\n{section}", encoding="utf-8")
    print(section)
    return int(any(outcome.status != 0 for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
