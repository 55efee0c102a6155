"""Detects that a spinning machine will never make progress."""

from __future__ import annotations

from collections.abc import Callable

from lowlevel_reduce.simulator.machine.control.flight import Flight

__all__ = ["Progress"]

FIRST_LOOK = 32
"""After this many rounds without a change of memory the state is remembered; again after twice as many, and so on."""

QUIET_PICKS = 512
"""After this many picks without a change of memory, a shuffled schedule continues in order."""

COMPARED = 4
"""In this many rounds after that the state is compared with the remembered one: polling loops have short periods."""

MOST_ROUNDS = 20_000
"""This many rounds without a change of memory count as a deadlock, even if registers change."""


class Progress:
    """Looks for a state of the whole machine that recurs while memory does not change.

    A round ends when every running thread has had its turn. The machine is deterministic, so a state that recurs will
    recur forever.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._changes = -1
        self._idle = 0
        self._next_look = FIRST_LOOK
        self._remembered: int | None = None
        self._lively_at = -1
        self._quiet = 0

    def lively(self, flight: Flight) -> bool:
        """Return whether memory has changed in the last `QUIET_PICKS` calls; if not, a shuffled schedule is suspended.

        A recurring state proves that nothing will change only if the schedule is not random.
        """
        self._quiet = self._quiet + 1 if flight.changes == self._lively_at else 0
        self._lively_at = flight.changes
        return self._quiet < QUIET_PICKS

    def stuck(self, turn: int, flight: Flight, state: Callable[[], int]) -> bool:
        """Return whether nothing will change any more; `turn` is the lowest turn of all running threads."""
        if flight.changes != self._changes:
            self._changes, self._turn, self._idle, self._next_look = flight.changes, turn, 0, FIRST_LOOK
            self._remembered = None
            return False
        if turn == self._turn:
            return False
        self._turn = turn
        self._idle += 1
        if self._idle >= MOST_ROUNDS:
            return True
        if self._idle == self._next_look:
            self._remembered = state()
            self._next_look *= 2
            return False
        looked = self._next_look // 2
        return self._remembered is not None and self._idle <= looked + COMPARED and state() == self._remembered
