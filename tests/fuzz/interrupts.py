"""Interrupts at any place of an operation: by a trace function, and by real signals whose handlers raise, or reduce.

A trace function acts before a bytecode before which Python looks for signals, and so comes where Ctrl-C may come, but
everywhere alike. Real signals come by a timer. A call of the driver is one step to both, as one of NVIDIA's driver is,
but where the simulator itself is interrupted: then it must go on working, and may keep what the broken call had made.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from lowlevel_reduce.errors import ReduceError
from tests.fuzz.aftermath import again, places
from tests.fuzz.operations import OPERATIONS, Operation, allocate_and_free, sum_of_device_array
from tests.fuzz.tally import Tally
from tests.fuzz.tracing import trace_bytecodes
from tests.fuzz.worlds import LIBRARY, Machine, World, bare, nothing, quiet, where, world

__all__ = ["acting_at", "by_handlers_that_reduce", "by_signals", "by_trace", "in_the_simulator"]

_SIMULATOR = LIBRARY + "simulator/"
_SOON_S = 50e-6


def by_trace(seed: int, count: int, machine: Machine | None = None) -> Tally:
    """Raise KeyboardInterrupt at random places of the library's Python, the simulator's left out."""
    tally = Tally("interrupts at random places of the library", seed)
    return _traced(tally, count, machine or Machine(), _of_the_library, keeps=False)


def in_the_simulator(seed: int, count: int, machine: Machine | None = None) -> Tally:
    """Raise KeyboardInterrupt at random places of the simulator's Python."""
    tally = Tally("interrupts at random places of the simulator", seed)
    return _traced(tally, count, machine or Machine(), lambda name: name.startswith(_SIMULATOR), keeps=True)


def by_signals(seed: int, count: int, machine: Machine | None = None) -> Tally:
    """Send signals whose handler raises KeyboardInterrupt; where a call of the driver is under way, a little later."""
    tally = Tally("signals whose handler raises", seed)

    def arrive(world: World, inner: list[bytes | BaseException]) -> None:
        del world, inner
        raise KeyboardInterrupt

    return _signalled(tally, count, machine or Machine(), arrive)


def by_handlers_that_reduce(seed: int, count: int, machine: Machine | None = None) -> Tally:
    """Send signals whose handler reduces in the same world: it has its result, or is refused, and so the operation."""
    tally = Tally("signals whose handler reduces", seed)

    def arrive(world: World, inner: list[bytes | BaseException]) -> None:
        try:
            inner.append(sum_of_device_array(world))
        except (ReduceError, ValueError) as error:  # within a capture nothing is copied from the host
            inner.append(bare(error))

    return _signalled(tally, count, machine or Machine(), arrive, keeps=True)


# by a trace function


def _of_the_library(name: str) -> bool:
    return name.startswith(LIBRARY) and not name.startswith(_SIMULATOR)


@functools.lru_cache(None)
def looked_at(code: CodeType) -> frozenset[int]:
    """Return the offsets of the bytecodes before which Python looks for signals: behind calls, and at the beginning.

    Not where the bytecode is under another handler of exceptions than the call: Python looks before it leaves the call.
    """
    instructions = [one for one in dis.get_instructions(code) if one.opname != "CACHE"]
    table: list[Any] = getattr(dis, "_parse_exception_table", lambda _: [])(code)

    def handler(offset: int) -> int | None:
        return next((each.target for each in table if each.start <= offset < each.end), None)

    behind = {
        b.offset
        for a, b in itertools.pairwise(instructions)
        if a.opname.startswith(("CALL", "RESUME")) and handler(a.offset) == handler(b.offset)
    }
    return frozenset(behind | {instructions[0].offset})


def _interrupt() -> None:
    raise KeyboardInterrupt


def acting_at(
    call: Callable[[], Any], step: int, wanted: Callable[[str], bool], act: Callable[[], Any] = _interrupt
) -> int:
    """Call, and act once, before the given one of the places in the files that are wanted.

    Returns how many places the call lacked to come there, a negative number if it came.
    """
    left = step

    def arrive(frame: FrameType) -> None:
        del frame
        nonlocal left
        left -= 1
        if left == -1:
            sys.settrace(None)
            act()

    _arriving(call, wanted, arrive)
    return left


def steps_by_place(call: Callable[[], Any], wanted: Callable[[str], bool]) -> list[list[int]]:
    """Return the steps of a call, together those that are at the same place and come from the same caller.

    To draw a place first, and then one of its steps, is to come also where a call comes once, as it does to the ends of
    things, and not over and over to its innermost lines.
    """
    found: dict[Any, list[int]] = {}
    numbers = itertools.count()

    def arrive(frame: FrameType) -> None:
        caller = frame.f_back.f_code if frame.f_back else None
        found.setdefault((frame.f_code, frame.f_lasti, caller), []).append(next(numbers))

    _arriving(call, wanted, arrive)
    return list(found.values())


def _arriving(call: Callable[[], Any], wanted: Callable[[str], bool], arrive: Callable[[FrameType], None]) -> None:
    """Call, and tell of each arrival at a place before which Python looks for signals, in the files that are wanted."""
    known: dict[str, bool] = {}

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        del argument
        name = frame.f_code.co_filename
        if name not in known:
            known[name] = wanted(name)
        if not known[name]:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in looked_at(frame.f_code):
            arrive(frame)
        return trace

    before = sys.gettrace()
    trace_bytecodes(trace)
    try:
        call()
    finally:
        sys.settrace(before)


def _traced(tally: Tally, count: int, machine: Machine, wanted: Callable[[str], bool], *, keeps: bool) -> Tally:
    with quiet(), _unraised() as unraised:
        draw = random.Random(tally.seed)
        machine.warm()
        _, kept = places(machine)
        steps = {}
        for operation in OPERATIONS:
            with world(machine) as one:
                steps[operation] = steps_by_place(functools.partial(operation, one), wanted)
        while tally.tried < count:
            operation = draw.choice(list(OPERATIONS))
            step = draw.choice(draw.choice(steps[operation]))
            what = f"{operation.__name__}, at step {step}"
            unraised.clear()
            with world(machine) as one:
                found, place = _result_of(lambda: _interrupted(one, operation, step, wanted))  # noqa: B023
                what += place
                _judge(tally, operation, found, unraised, what)
                if keeps:
                    one.valve.refused["cuCtxGetId"] = 10**6  # excuses what is left
                    one.valve.refused["cuCtxPopCurrent"] = 1
                again(tally, one, operation, kept[operation], what)
    return tally


def _interrupted(one: World, operation: Operation, step: int, wanted: Callable[[str], bool]) -> bytes:
    results: list[bytes] = []
    acting_at(lambda: results.append(operation(one)), step, wanted)
    return results[0]


# by signals


def _signalled(
    tally: Tally,
    count: int,
    machine: Machine,
    arrive: Callable[[World, list[bytes | BaseException]], None],
    *,
    keeps: bool = False,
) -> Tally:
    with quiet(), _unraised() as unraised:
        draw = random.Random(tally.seed)
        machine.warm()
        _, kept = places(machine)
        # What the handler's call keeps for its next one.
        beside = kept[sum_of_device_array] - kept[allocate_and_free] if keeps else Counter[str]()
        while tally.tried < count:
            operation = draw.choice(list(OPERATIONS))
            with world(machine) as one:
                began = time.perf_counter()
                operation(one)
                lasts = time.perf_counter() - began
            after_s = max(lasts * draw.random(), 1e-6)
            unraised.clear()
            with world(machine) as one:
                what = f"{operation.__name__}, a signal after {after_s * 1e3:.3f} of {lasts * 1e3:.3f} ms"
                what += _signal(tally, one, operation, (after_s, arrive), (unraised, what))
                again(tally, one, operation, kept[operation] + beside, what)
    return tally


def _signal(tally: Tally, one: World, operation: Operation, signalling: Any, noting: Any) -> str:
    """Do an operation with a signal under way, and return where in the library it raised."""
    (after_s, arrive), (unraised, what) = signalling, noting
    inner: list[bytes | BaseException] = []
    came, inside = [0], [0]

    def handler(number: int, frame: Any) -> None:
        del number
        if inside[0] or frame.f_code in (*edges, one.valve.edge):  # a driver's own call would end first
            signal.setitimer(signal.ITIMER_REAL, _SOON_S)
            return
        came[0] += 1
        arrive(one, inner)

    def begin() -> None:
        inside[0] += 1

    def end() -> None:
        inside[0] -= 1

    edges = (begin.__code__, end.__code__)
    before = signal.signal(signal.SIGALRM, handler)
    one.valve.begin, one.valve.end = begin, end
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        found, place = _result_of(lambda: operation(one))
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt as interrupt:  # it came as the operation had ended
        found, place = bare(interrupt), ""
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        one.valve.begin = one.valve.end = nothing
    if not came[0]:
        return ""
    _judge(tally, operation, found, unraised, what + place)
    for result in inner:
        if isinstance(result, bytes) and result != OPERATIONS[sum_of_device_array]:
            tally.lose(f"{what}: the handler has a wrong result")
    return place


# what came of it


def _result_of(call: Callable[[], bytes]) -> tuple[bytes | BaseException, str]:
    """Return what a call returns or raises, and in the second case where, in the library."""
    try:
        return call(), ""
    except BaseException as error:  # noqa: BLE001 - looked at by the caller
        place = where(error)
        return bare(error), place


def _judge(tally: Tally, operation: Operation, found: bytes | BaseException, unraised: list[str], what: str) -> None:
    if isinstance(found, bytes):
        tally.accept()
        if found != OPERATIONS[operation]:
            tally.lose(f"{what}: a wrong result and no error")
    else:
        tally.refuse(found)
        if not isinstance(found, (KeyboardInterrupt, ReduceError)):
            tally.lose(f"{what}: {type(found).__name__}: {found}")
    for name in unraised:
        if name != "KeyboardInterrupt":
            tally.lose(f"{what}: {name} in a finalizer")


@contextlib.contextmanager
def _unraised() -> Iterator[list[str]]:
    """Yield the list of the names of errors that nobody could catch, such as those of finalizers."""
    names: list[str] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda problem: names.append(problem.exc_type.__name__)
    try:
        yield names
    finally:
        sys.unraisablehook = before
