"""What is looked at after a disturbed operation: it works again, and nothing, no lock and no turn is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from lowlevel_reduce.driver import binding, turns
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.plans import loading
from tests.fuzz.operations import OPERATIONS, Operation
from tests.fuzz.tally import Tally
from tests.fuzz.worlds import Machine, World, world

__all__ = ["again", "ended", "places"]


def places(machine: Machine) -> tuple[list[tuple[Operation, int, str]], dict[Operation, Counter[str]]]:
    """Return all calls of all operations, each with its number and name, and what an undisturbed world keeps."""
    found, kept = [], {}
    for operation, expected in OPERATIONS.items():
        with world(machine) as one:
            assert operation(one) == expected, f"{operation.__name__} is wrong by itself"
            found += [(operation, k, name) for k, name in enumerate(one.valve.names, start=1)]
            operation(one)
            kept[operation] = one.left()
    return found, kept


def ended(
    tally: Tally,
    operation: Operation,
    found: bytes | BaseException,
    what: str,
    is_of_others: Callable[[BaseException], bool],
) -> None:
    """Note how an operation ended that lacked memory: `is_of_others` tells of errors that are not the library's."""
    if isinstance(found, bytes):
        tally.accept()
        if found != OPERATIONS[operation]:
            tally.lose(f"{what}: a wrong result and no error")
        return
    tally.refuse(found)
    if not isinstance(found, (MemoryError, ReduceError)) and not is_of_others(found):
        tally.lose(f"{what}: {type(found).__name__}: {found}")


def again(tally: Tally, one: World, operation: Operation, usual: Counter[str], what: str) -> None:
    """Do an operation once more when the disturbance has gone, and note in the tally what was lost.

    Parameters
    ----------
    tally : Tally
        Where to note it.
    one : World
        Where the operation was disturbed.
    operation : callable
        Which.
    usual : Counter
        What is left where nothing was disturbed.
    what : str
        The words for what was done, from which it can be repeated.
    """
    balanced = one.restore()
    if not balanced and not one.valve.refused["cuCtxPopCurrent"]:
        tally.lose(f"{what}: another context is current afterwards")
    for name in _held():
        tally.lose(f"{what}: {name} is held afterwards")
    try:
        if operation(one) != OPERATIONS[operation]:
            tally.lose(f"{what}: a wrong result afterwards")
    except Exception as error:  # noqa: BLE001 - whatever it is, the operation does not work any more
        tally.lose(f"{what}: afterwards {type(error).__name__}: {error}")
    for noun, more in (one.left() - usual).items():
        if more > one.valve.excused(noun):
            tally.lose(f"{what}: {more} {noun} left")


def _held() -> list[str]:
    """Return the names of the locks that another thread cannot have, and of the turns' count if it is not zero."""
    locks: dict[str, Any] = {
        "the lock of closings": turns.exclusively(),
        "the lock of loaded kernels": loading._lock,
        "the lock of the drivers' registry": binding._registry_lock,
    }
    found = [] if not turns.is_releasing() else ["a release"]

    def look() -> None:
        for name, lock in locks.items():
            if lock.acquire(blocking=False):
                lock.release()
            else:
                found.append(name)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found
