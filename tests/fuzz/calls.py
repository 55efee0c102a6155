"""Random calls, and how each of them ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.simulator.machine.control.faults import KernelFault
from tests.fuzz.tally import Tally

__all__ = ["OwnError", "call"]


class OwnError(Exception):
    """What an object of the fuzzer's raises when it is asked: a caller's own error, which passes through."""


def call(
    tally: Tally,
    what: str,
    function: Callable[[], Any],
    *,
    words: Sequence[str] = (),
    right: Callable[[Any], bool] = lambda result: True,
    allowed: tuple[type[Exception], ...] = (),
) -> None:
    """Make a call and count how it ends.

    Parameters
    ----------
    tally : Tally
        Where it is counted.
    what : str
        The call in words, for what is lost.
    function : callable
        Makes it.
    words : sequence of str
        One of these must be in the message of a TypeError or ValueError, if there are any.
    right : callable
        Whether a result is right.
    allowed : tuple of types
        Errors that it may raise besides TypeError, ValueError and those of the package. A simulated kernel's fault
        is not among these: bad arguments are to be refused before a launch.
    """
    expected: tuple[type[Exception], ...] = (ReduceError, OwnError, *allowed)
    try:
        result = function()
    except expected as error:
        if isinstance(error, KernelFault) and KernelFault not in allowed:
            tally.lose(f"{what}: a kernel was launched: {error}")
        tally.refuse(error)
    except (TypeError, ValueError) as error:
        if words and not any(word in str(error) for word in words):
            tally.lose(f"{what}: {type(error).__name__} says nothing of {' or '.join(words)}: {error}")
        tally.refuse(error)
    except Exception as error:  # noqa: BLE001 - what is not to escape is counted
        tally.tried += 1
        tally.lose(f"{what}: {type(error).__name__}: {error}")
    else:
        tally.accept()
        if not right(result):
            tally.lose(f"{what}: a wrong result")
