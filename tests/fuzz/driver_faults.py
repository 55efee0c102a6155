"""Calls of the driver that fail, once and persistently, at every place of every operation.

What must follow: the right result, or an error of the library's; no object of the driver is left behind but one whose
release was itself refused; nothing on the thread's stack of contexts; and the operation, done again when the fault has
gone, gives the right result.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.errors import ReduceError
from tests.fuzz.aftermath import again, places
from tests.fuzz.operations import OPERATIONS, Operation
from tests.fuzz.tally import Tally
from tests.fuzz.worlds import AROUND_RELEASES, RELEASES, Machine, World, quiet, world

__all__ = ["CODES", "once", "persistently"]

CODES = ("UNKNOWN", "OUT_OF_MEMORY", "ILLEGAL_ADDRESS", "NOT_PERMITTED", "LAUNCH_FAILED", "ECC_UNCORRECTABLE")
"""What calls are refused with. None says that a context has gone, which would excuse that nothing is released."""

Refuse = Callable[[int, str], Any]
_SAME, _NEW, _ALL = "the same call from there on", "all but releases from there on", "all calls from there on"


def once(seed: int, count: int, machine: Machine | None = None) -> Tally:
    """Refuse one call of an operation, `count` times: each call of each operation in turn, then with other codes."""
    tally = Tally("driver calls that failed once", seed)

    def make(code: Any, k: int, name: str, draw: random.Random) -> tuple[str, Refuse]:
        del name, draw
        return "once", lambda number, called: code if number == k else None

    return _tried(tally, count, machine or Machine(), make)


def persistently(seed: int, count: int, machine: Machine | None = None) -> Tally:
    """Refuse calls from one on, until the operation has ended: the same one's, all but releases, or all."""
    tally = Tally("driver calls that failed from one on", seed)

    def make(code: Any, k: int, name: str, draw: random.Random) -> tuple[str, Refuse]:
        mode = draw.choice((_SAME, _NEW, _ALL))

        def spared(called: str) -> bool:
            return (mode == _SAME and called != name) or (mode == _NEW and _releases(called))

        return mode, lambda number, called: code if number >= k and not spared(called) else None

    return _tried(tally, count, machine or Machine(), make)


def _releases(name: str) -> bool:
    return name in RELEASES or name in AROUND_RELEASES or name == "cuStreamEndCapture"


def _tried(tally: Tally, count: int, machine: Machine, make: Callable[..., tuple[str, Refuse]]) -> Tally:
    with quiet():
        draw = random.Random(tally.seed)
        machine.warm()
        everywhere, kept = places(machine)
        while tally.tried < count:
            for operation, k, name in draw.sample(everywhere, min(len(everywhere), count - tally.tried)):
                code = draw.choice(CODES)
                how, refuse = make(getattr(cu.CUresult, f"CUDA_ERROR_{code}"), k, name, draw)
                what = f"{operation.__name__}, call {k}, {name}, refused with {code}, {how}"
                with world(machine) as one:
                    _try(tally, one, operation, refuse, what)
                    again(tally, one, operation, kept[operation], what)
    return tally


def _try(tally: Tally, one: World, operation: Operation, refuse: Refuse, what: str) -> None:
    one.valve.refuse = refuse
    try:
        found = operation(one)
    except ReduceError as error:
        tally.refuse(error)
    except Exception as error:  # noqa: BLE001 - what is no error of the library's is what is looked for
        tally.refuse(error)
        tally.lose(f"{what}: {type(error).__name__}: {error}")
    else:
        tally.accept()
        if found != OPERATIONS[operation]:
            tally.lose(f"{what}: a wrong result and no error")
    one.valve.refuse = None
