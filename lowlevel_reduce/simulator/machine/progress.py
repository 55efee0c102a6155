"""Whether a machine that spins will ever go on."""

from __future__ import annotations

from collections.abc import Callable

from lowlevel_reduce.simulator.machine.flight import Flight

__all__ = ["Progress"]

FIRST_LOOK = 32
"""Rounds without a change of memory after which the state is remembered; then after twice as many, and so on."""

QUIET_PICKS = 512
"""Choices of a shuffled schedule without a change of memory after which it goes on in order."""

COMPARED = 4
"""Rounds after that in which the state is compared with what was remembered: the period of a polling loop is short."""

MOST_ROUNDS = 20_000
"""Rounds without a change of memory that are taken for a deadlock even if registers change."""


class Progress:
    """Looks for a state of the whole machine that comes again while memory stays as it is.

    A round ends when every thread that runs has taken its turn. The machine is deterministic, so that a state that
    comes again comes for ever.
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
        """Return whether memory has changed in the last `QUIET_PICKS` calls; a shuffled schedule rests when it has not.

        Only a schedule without chance shows by a state that comes again that nothing will change.
        """
        self._quiet = self._quiet + 1 if flight.changes == self._lively_at else 0
        self._lively_at = flight.changes
        return self._quiet < QUIET_PICKS

    def stuck(self, turn: int, flight: Flight, state: Callable[[], int]) -> bool:
        """Return whether nothing will change any more; `turn` is the lowest turn of all threads that run."""
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
