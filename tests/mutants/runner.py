"""Runs the tests of mutants, each in a copy of the tree that has this one change, several at the same time."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.catalogue import ROOT, Mutant
from tests.mutants.copies import Copy, files

KILLED, TIMED_OUT, SURVIVED, GONE, ERROR = "killed", "killed by the time limit", "survived", "gone", "error"
_FAILED = 1  # pytest's exit code where tests ran and some failed; any other but 0 says nothing of the mutant
_BASELINE_S, _TOGETHER = 600.0, 20  # without a mutant, so many tests are run together
# Kernels are kept by all that they are made from, so a mutant's are its own and the others are those of the tree. That
# does not hold for what a mutant of the compiler layer keeps.
_KERNELS, _KEEPS_KERNELS = ROOT / ".cache" / "tests", "lowlevel_reduce/compiler/"
# Without a GPU, so that tests/gpu runs on the simulated one everywhere, and one thread for each process.
_VARIABLES = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: one of the words above, how it was found out, and in how many seconds."""

    id: str
    word: str
    how: str
    seconds: float


def run(
    chosen: Sequence[Mutant],
    *,
    jobs: int,
    timeout_s: float,
    budget_s: float | None = None,
    each: Callable[[Verdict], None] = lambda verdict: None,
    root: Path = ROOT,
) -> list[Verdict]:
    """Run the tests of each mutant; those that the budget leaves no time for have no verdict.

    Before that, the tests run once on the tree as it is: a mutant whose tests do not pass there is an error of the
    list. `each` is called with every verdict as soon as there is one.
    """
    until = None if budget_s is None else time.monotonic() + budget_s
    verdicts: list[Verdict] = []

    def done(verdict: Verdict) -> None:
        verdicts.append(verdict)
        each(verdict)

    there = []
    for mutant in chosen:
        count = mutant.places(root)
        if count == 1:
            there.append(mutant)
        else:
            done(Verdict(mutant.id, GONE, f"its text occurs {count} times in {mutant.file}", 0.0))
    with _copies(min(jobs, max(1, len(there))), root) as copies, ThreadPoolExecutor(jobs) as pool:
        try:
            passing = _passing({test for mutant in there for test in mutant.tests}, copies, pool, jobs)
            # Kernels first: they take longest, and so do not come last.
            order = sorted(there, key=lambda mutant: (not mutant.file.startswith("cuda_src/"), mutant.id))
            futures = [pool.submit(_verdict, mutant, copies, passing, timeout_s, until) for mutant in order]
            for future in as_completed(futures):
                if (verdict := future.result()) is not None:
                    done(verdict)
        except BaseException:  # an interrupt, too, waits only for what is running
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return verdicts


@contextlib.contextmanager
def _copies(count: int, root: Path) -> Iterator[queue.Queue[Copy]]:
    """Yield so many copies of the tree, for whoever takes one and puts it back."""
    names, idle = files(root), queue.Queue[Copy]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(8) as pool:
        for copy in pool.map(lambda number: Copy(Path(folder, str(number)), names, root), range(count)):
            idle.put(copy)
        yield idle


@contextlib.contextmanager
def _lent(copies: queue.Queue[Copy]) -> Iterator[Copy]:
    copy = copies.get()
    try:
        yield copy
    finally:
        copies.put(copy)


def _verdict(
    mutant: Mutant, copies: queue.Queue[Copy], passing: set[str], timeout_s: float, until: float | None
) -> Verdict | None:
    if until is not None and time.monotonic() > until:
        return None
    missing = [test for test in mutant.tests if test not in passing]
    if missing:
        return Verdict(mutant.id, ERROR, f"does not pass without the mutant: {', '.join(missing)}", 0.0)
    with _lent(copies) as copy, copy.changed(mutant):
        began = time.monotonic()
        cache = copy.folder / "kernels" / mutant.id if mutant.file.startswith(_KEEPS_KERNELS) else _KERNELS
        code, text = _pytest(copy, ["-x", *mutant.tests], timeout_s, cache)
        seconds = time.monotonic() - began
    word = {_FAILED: KILLED, 0: SURVIVED, None: TIMED_OUT}.get(code, ERROR)
    return Verdict(mutant.id, word, f"after {timeout_s:g} s" if code is None else _said(text, code), round(seconds, 1))


def _passing(tests: Iterable[str], copies: queue.Queue[Copy], pool: ThreadPoolExecutor, jobs: int) -> set[str]:
    """Return those tests that pass on the tree as it is; what a test's name without parameters stands for, must all."""
    ordered = sorted(tests)
    size = max(1, min(_TOGETHER, -(-len(ordered) // (2 * jobs))))
    parts = [ordered[first : first + size] for first in range(0, len(ordered), size)]

    def passed(part: list[str]) -> set[str]:
        with _lent(copies) as copy:
            code, text = _pytest(copy, ["-rpfE", *part], _BASELINE_S)
        if code in (0, _FAILED):
            return {test for test in part if _has_passed(test, text)}
        # A test that does not exist keeps all from running.
        return set().union(*map(passed, ([test] for test in part))) if len(part) > 1 else set()

    return set().union(*pool.map(passed, parts))


def _has_passed(test: str, report: str) -> bool:
    lines = report.splitlines()
    behind = (f"{test}[", f"{test}::", f"{test} - ")  # parameters, what a class has, an error's text

    def said(word: str) -> bool:
        named = (line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} "))
        return any(name == test or name.startswith(behind) for name in named)

    return said("PASSED") and not said("FAILED") and not said("ERROR")


def _pytest(copy: Copy, arguments: Sequence[str], timeout_s: float, cache: Path = _KERNELS) -> tuple[int | None, str]:
    """Run pytest in a copy; return its exit code, None if it was stopped, and what it printed."""
    # What hypothesis draws is the same at each run.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "--hypothesis-seed=1"]
    if (copy.tree / "tests" / "seeds.py").exists():  # the order of simulated blocks is the same at each run
        command += ["--seed", "1"]
    command += ["--basetemp", str(copy.folder / "tmp"), *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOWLEVEL_REDUCE_", "PYTEST_"))}
    variables = {**kept, **_VARIABLES, "PYTHONPATH": str(copy.tree), "TESTS_CACHE_DIR": str(cache)}
    with subprocess.Popen(
        command,
        cwd=copy.tree,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            text, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:  # with what it has started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, text


def _said(text: str, code: int | None) -> str:
    """Return the line that says what failed, as short as it can be told."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line[1:].strip() for line in lines if line.startswith("E  ")]
    found = errors[0] if errors else lines[-1] if lines else ""
    return found[:160] if code == _FAILED else f"exit code {code}: {found[:160]}" if code else ""
