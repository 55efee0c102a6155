"""What came of many random calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.simulator.machine.faults import KernelFault

__all__ = ["Counts", "OwnError"]


class OwnError(Exception):
    """What an object of the fuzzer's raises when it is asked: a caller's own error, which passes through."""


@dataclass
class Counts:
    """How calls ended.

    Attributes
    ----------
    tried, accepted : int
        Calls made, and those that returned.
    refused : Counter
        Calls that raised what they may, by the name of the error.
    lost : list of str
        The others, in words: another error, a wrong result, or a message that does not say what is wrong.
    """

    tried: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)

    def call(
        self,
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
        what : str
            The call in words, for `lost`.
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
        self.tried += 1
        expected: tuple[type[Exception], ...] = (ReduceError, OwnError, *allowed)
        try:
            result = function()
        except expected as error:
            if isinstance(error, KernelFault) and KernelFault not in allowed:
                self.lost.append(f"{what}: a kernel was launched: {error}")
            self.refused[type(error).__name__] += 1
        except (TypeError, ValueError) as error:
            if words and not any(word in str(error) for word in words):
                self.lost.append(f"{what}: {type(error).__name__} says nothing of {' or '.join(words)}: {error}")
            self.refused[type(error).__name__] += 1
        except Exception as error:  # noqa: BLE001 - what is not to escape is counted
            self.lost.append(f"{what}: {type(error).__name__}: {error}")
        else:
            self.accepted += 1
            if not right(result):
                self.lost.append(f"{what}: a wrong result")

    def add(self, other: Counts) -> None:
        """Add what another run counted."""
        self.tried += other.tried
        self.accepted += other.accepted
        self.refused += other.refused
        self.lost += other.lost
