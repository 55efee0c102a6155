"""Allocations of host memory that fail: CPython's own, at any place between two calls of the driver.

`_testcapi.set_nomemory` lets the interpreter's allocations fail by their number: one alone, or all from it on until the
operation has ended. A call of the driver itself is spared, as one of NVIDIA's driver is, whose memory is not Python's.
The trials run in processes of their own, so that an interpreter that does not survive one is itself a finding.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from lowlevel_reduce.errors import ReduceError
from tests.fuzz.aftermath import again, places
from tests.fuzz.operations import OPERATIONS, Operation
from tests.fuzz.tally import Tally
from tests.fuzz.worlds import Machine, World, keep_kernels, nothing, quiet, world

__all__ = ["once", "persistently", "why_not"]

_ROOT = Path(__file__).resolve().parents[2]
_MOST = 4000  # the most allocations between two calls of the driver, when a plan is made
_TIMEOUT_S = 900.0


def why_not() -> str | None:
    """Say why this interpreter's allocations cannot be made to fail; None if they can."""
    try:
        import _testcapi
    except ImportError:
        return "this Python has no _testcapi, by which allocations are made to fail"
    return None if hasattr(_testcapi, "set_nomemory") else "this Python's _testcapi has no set_nomemory"


def once(seed: int, count: int) -> Tally:
    """Let one allocation of an operation fail, until `count` failures were seen to have an effect."""
    return _in_a_process("host allocations that failed once", seed, count, last=1)


def persistently(seed: int, count: int) -> Tally:
    """Let all allocations from one on fail until the operation has ended, until `count` had an effect."""
    return _in_a_process("host allocations that failed from one on", seed, count, last=0)


def _in_a_process(kind: str, seed: int, count: int, *, last: int) -> Tally:
    tally = Tally(kind, seed)
    with tally.timed():
        command = [sys.executable, "-m", "tests.fuzz.memory_faults", kind, str(seed), str(count), str(last)]
        done = subprocess.run(
            command, cwd=_ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    if done.returncode:
        tally.lose(f"the interpreter ended with {done.returncode} after {done.stderr[-2000:]!r}")
        return tally
    found = Tally.from_record(json.loads(done.stdout.splitlines()[-1]))
    found.seconds = tally.seconds
    return found


class _Starved:
    """Lets allocations fail: from the first on that is due after the k-th call of the driver has returned."""

    def __init__(self, one: World, k: int, first: int, *, last: int) -> None:
        import _testcapi

        self._fail, self._stop = _testcapi.set_nomemory, _testcapi.remove_mem_hooks
        self._one, self._k, self._first, self._last = one, k, first, last
        self._calls = 0

    def begin(self) -> None:
        """Let the driver have its memory."""
        self._stop()

    def end(self) -> None:
        """Let go on after a call of the driver."""
        self._calls += 1
        if self._calls == self._k:
            self._fail(self._first, self._first + 1 if self._last else 0)
        elif self._calls > self._k and not self._last:
            self._fail(0, 0)

    def run(self, operation: Operation) -> bytes | BaseException:
        """Return what the operation returns or raises."""
        valve = self._one.valve
        valve.begin, valve.end = self.begin, self.end
        try:
            return operation(self._one)
        except Exception as error:  # noqa: BLE001 - looked at by the caller
            self._stop()
            return error.with_traceback(None)
        finally:
            self._stop()
            valve.begin = valve.end = nothing
            valve.reset()


def _child(kind: str, seed: int, count: int, last: int) -> Tally:
    tally, draw, machine = Tally(kind, seed), random.Random(seed), Machine()
    keep_kernels()
    machine.warm()
    unraised: list[str] = []
    sys.unraisablehook = lambda problem: unraised.append(str(problem.exc_value or problem.exc_type.__name__))
    everywhere, kept = places(machine)
    most: Counter[tuple[Operation, int]] = Counter()
    with quiet():
        while tally.tried < count:
            operation, k, name = draw.choice(everywhere)
            bound = most.setdefault((operation, k), _MOST)
            first = int(bound ** draw.random()) - 1 if bound else 0
            what = f"{operation.__name__}, after call {k}, {name}, allocation {first}"
            print(what, file=sys.stderr, flush=True)
            unraised.clear()
            with world(machine) as one:
                found = _Starved(one, k, first, last=last).run(operation)
                if isinstance(found, bytes) and not unraised:
                    most[operation, k] = min(bound, first)  # so many there were not, for all that can be seen
                else:
                    _note(tally, operation, found, what)
                again(tally, one, operation, kept[operation], what)
    return tally


def _note(tally: Tally, operation: Operation, found: bytes | BaseException, what: str) -> None:
    if isinstance(found, bytes):
        tally.accept()
        if found != OPERATIONS[operation]:
            tally.lose(f"{what}: a wrong result and no error")
        return
    tally.refuse(found)
    if not isinstance(found, (MemoryError, ReduceError)):
        tally.lose(f"{what}: {type(found).__name__}: {found}")


def main(arguments: list[str]) -> None:
    """Run trials in this process, and print their tally."""
    kind, *numbers = arguments
    print(json.dumps(_child(kind, *map(int, numbers)).record()))


if __name__ == "__main__":
    main(sys.argv[1:])
