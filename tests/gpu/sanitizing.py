"""What the parts of `sanitize.py` share: cases that are told, bits that are compared, and an end that always comes.

A sanitizer sums up when the process that it watches has ended, and under racecheck or synccheck the usual end of a
Python takes minutes, or never comes. So the process ends itself: when all that it made has been released, when its time
is up, after the case that is under way, or if that does not return. Then it tells where each of its threads is.
"""

import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

__all__ = ["TimeIsUp", "WrongBitsError", "begin", "compare", "ended_by_itself", "ending", "limited", "same"]

_GRACE_S = 10.0
"""How long the case that is under way may go on when the time is up."""

_begun, _until, _told = time.monotonic(), [float("inf")], [0]


class TimeIsUp(Exception):  # noqa: N818 - no error
    """No case is begun any more."""


class WrongBitsError(Exception):
    """A kernel's result has not the bits that it should have."""


def begin(case: str) -> str:
    """Tell which case comes next, at once."""
    if time.monotonic() > _until[0]:
        raise TimeIsUp(f"the time was up after {_told[0]} cases; the next one was {case}")
    _told[0] += 1
    _tell(case)
    return case


def ending(step: str) -> None:
    """Tell what is released next, at once: under a tool that may take longer than the cases."""
    _tell(f"the end: {step}")


def _tell(words: str) -> None:
    print(f"{words} [{time.monotonic() - _begun:.1f} s]", flush=True)


def same(found: Any, expected: Any) -> bool:
    """Whether results, one or several, have the bits of those expected."""
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    return all(mine.numpy().tobytes() == np.asarray(theirs).tobytes() for mine, theirs in pairs)


def compare(case: str, found: Any, expected: Any) -> None:
    """Raise `WrongBitsError`, which names the case, unless the results are the same."""
    if not same(found, expected):
        raise WrongBitsError(case)


def limited(seconds: float) -> None:
    """Begin no case when so many seconds have passed, and end the process if one does not return soon after that."""
    _until[0] = time.monotonic() + seconds
    watchdog = threading.Timer(seconds + _GRACE_S, _stop)
    watchdog.daemon = True
    watchdog.start()


def _stop() -> NoReturn:
    faulthandler.dump_traceback(sys.stdout, all_threads=True)
    _end(3, f"stopped: it did not end within {_GRACE_S:g} s of its time")


def ended_by_itself(work: Callable[[], int]) -> NoReturn:
    """Do the work, which releases what it makes, say how many launches it checked, and end the process.

    The exit status is 0 if all that was checked was right, also if the time was up before all was checked.
    """
    try:
        words, status = f"{work()} launches checked", 0
    except WrongBitsError as error:
        words, status = f"wrong: {error}", 1
    except BaseException:  # noqa: BLE001 - the process ends here, and says why
        traceback.print_exc()
        words, status = "not all could be run", 2
    _end(status, words)


def _end(status: int, words: str) -> NoReturn:
    print(words, flush=True)
    sys.stderr.flush()
    os._exit(status)
