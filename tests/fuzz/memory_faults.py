"""Allocations of host memory that fail: CPython's own, at any place between two calls of the driver.

`_testcapi.set_nomemory` lets an allocation of the interpreter fail by its number. Calls of the driver are spared, as
those of NVIDIA's are, whose memory is not Python's. What persists is the same allocation that fails each time the
operation is tried; not all from one on, with which CPython 3.11 itself never ends: what it does on the way to an
`except` allocates, and begins anew where that fails.

Where a function, a lambda or a generator expression lacks memory as it is made, CPython 3.12 and 3.13.0 let go of its
code once too often (in MAKE_FUNCTION, whose error path drops a reference that was dropped already): the next call runs
freed memory, returns anything, raises anything or ends the process. So the trials hold all code by references of their
own, `held_code`.
"""

from __future__ import annotations

import gc
import json
import os
import random
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType

from tests.fuzz.aftermath import again, ended, places
from tests.fuzz.lost_references import orphans
from tests.fuzz.operations import Operation
from tests.fuzz.tally import Tally
from tests.fuzz.worlds import Machine, World, bare, keep_kernels, nothing, quiet, where, world

__all__ = ["held_code", "once", "persistently", "why_not"]

_ROOT = Path(__file__).resolve().parents[2]
_TIMES = 4
_FEW, _MOST = 32, 4096  # how many allocations are taken for possible between two calls of the driver: at first, at most
_TIMEOUT_S, _TRIAL_S = 1800.0, 60.0


def why_not() -> str | None:
    """Say why this interpreter's allocations cannot be made to fail; None if they can."""
    try:
        import _testcapi
    except ImportError:
        return "this Python has no _testcapi, by which allocations are made to fail"
    return None if hasattr(_testcapi, "set_nomemory") else "this Python's _testcapi has no set_nomemory"


def once(seed: int, count: int) -> Tally:
    """Let one allocation of an operation fail, until `count` failures were seen to have an effect."""
    return _in_a_process("host allocations that failed once", seed, count, times=1)


def persistently(seed: int, count: int) -> Tally:
    """Let one allocation fail each time an operation is tried, until `count` of such trials had an effect."""
    return _in_a_process("host allocations that failed again and again", seed, count, times=_TIMES)


def held_code(times: int = 2 * _TIMES) -> list[CodeType]:
    """Return all code of functions that there are, and of those that they make, each so many times."""
    found: dict[int, CodeType] = {}  # by identity: equal ones are not the same
    due = [each.__code__ for each in gc.get_objects() if isinstance(each, FunctionType)]
    while due:
        code = due.pop()
        if id(code) not in found:
            found[id(code)] = code
            due += [each for each in code.co_consts if isinstance(each, CodeType)]
    return list(found.values()) * times


def _in_a_process(kind: str, seed: int, count: int, *, times: int) -> Tally:
    command = [sys.executable, "-m", "tests.fuzz.memory_faults", kind, str(seed), str(count), str(times)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        return Tally(kind, seed, lost=[f"the interpreter ended with {done.returncode} after {done.stderr[-2000:]!r}"])
    return Tally.from_record(json.loads(done.stdout.splitlines()[-1]))


class _Starved:
    """Lets an allocation fail: the given one behind the k-th call of the driver."""

    def __init__(self, one: World, k: int, first: int) -> None:
        import _testcapi

        self._fail, self._stop = _testcapi.set_nomemory, _testcapi.remove_mem_hooks
        self._one, self._k, self._first = one, k, first
        self._calls = 0

    def begin(self) -> None:
        """Let the driver have its memory."""
        self._stop()

    def end(self) -> None:
        """Let go on after a call of the driver."""
        self._calls += 1
        if self._calls == self._k:
            self._fail(self._first, self._first + 1)

    def run(self, operation: Operation) -> tuple[bytes | BaseException, str]:
        """Return what the operation returns or raises, and in the second case where."""
        valve = self._one.valve
        valve.begin, valve.end = self.begin, self.end
        try:
            return operation(self._one), ""
        except Exception as error:  # noqa: BLE001 - looked at by the caller
            self._stop()
            place = where(error)
            return bare(error), place
        finally:
            self._stop()
            valve.begin = valve.end = nothing
            valve.reset()


def _child(kind: str, seed: int, count: int, times: int) -> Tally:
    tally, draw, machine = Tally(kind, seed), random.Random(seed), Machine()
    keep_kernels()
    machine.warm()
    everywhere, kept = places(machine)
    gc.unfreeze()  # else most functions are not shown
    held = held_code()
    gc.freeze()
    most: dict[tuple[Operation, int], int] = {}
    while tally.tried < count:
        operation, k, name = draw.choice(everywhere)
        bound = most.setdefault((operation, k), _FEW)
        first = int((bound + 1) ** draw.random()) - 1
        what = f"{operation.__name__}, after call {k}, {name}, allocation {first}, {times} times"
        trial = _forked(lambda: _trial(machine, operation, kept[operation], (k, first), times, what), what)  # noqa: B023
        tally.add(trial)
        if not trial.tried:
            most[operation, k] = min(bound, first)  # so many there were not, for all that can be seen
        elif 2 * first >= bound:
            most[operation, k] = min(4 * bound, _MOST)
    held.clear()
    return tally


def _forked(trial: Callable[[], Tally], what: str) -> Tally:
    """Do a trial in a fork of this process.

    Where a list of weak references cannot be allocated, CPython frees their object and leaves them pointing at it.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reading)
            with open(writing, "w", encoding="utf-8") as file:
                json.dump(trial().record(), file)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, encoding="utf-8") as file:
        ended = select.select([file], [], [], _TRIAL_S)[0]
        if not ended:
            os.kill(child, signal.SIGKILL)
        text = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if text and not status:
        return Tally.from_record(json.loads(text))
    lost = Tally("", 0, tried=1)
    if status < 0 and ended:
        lost.refused["death of the interpreter"] += 1
    else:
        lost.lose(f"{what}: the process ended with {status}" if ended else f"{what}: does not end")
    return lost


def _trial(
    machine: Machine, operation: Operation, usual: Counter[str], place: tuple[int, int], times: int, what: str
) -> Tally:
    tally, unraised = Tally("", 0), list[str]()
    sys.unraisablehook = lambda problem: unraised.append(problem.exc_type.__name__)
    with quiet(), world(machine) as one:
        for _ in range(times):
            found, raised_at = _Starved(one, *place).run(operation)
            what += raised_at if raised_at not in what else ""
            if not isinstance(found, bytes) or unraised:
                ended(tally, operation, found, what, _of_the_interpreter)
        again(tally, one, operation, usual, what)
        if tally.lost and all(each.endswith(" left") for each in tally.lost):
            gc.unfreeze()  # of this process, which ends here: `orphans` is to see all that refers to anything
            if orphans():
                tally.lost.clear()
                tally.refused["reference lost by the interpreter"] += 1
    return tally


def _of_the_interpreter(error: BaseException) -> bool:
    """Tell whether CPython itself says, in words of its own, that it is without memory, or did not expect to be."""
    return isinstance(error, SystemError) or str(error) == "can't allocate lock"


def main(arguments: list[str]) -> None:
    """Run trials in this process, and print their tally."""
    kind, *numbers = arguments
    print(json.dumps(_child(kind, *map(int, numbers)).record()))


if __name__ == "__main__":
    main(sys.argv[1:])
