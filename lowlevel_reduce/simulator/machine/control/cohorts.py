"""Which warps run next in a random order: those of one of two cohorts, which are drawn anew from time to time.

Where each warp was drawn by itself at every pick, warps soon were at as many places as there are warps, and each place
costs a call of NumPy for each instruction: launches took 2.2 times as long as in the natural order. With two cohorts
they take 1.4 times as long. One cohort may still be far ahead of the other, of any size down to a single warp.
"""

from __future__ import annotations

import numpy as np

from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.memory.storage import Array

__all__ = ["Cohorts"]

PICKS_OF_A_DRAW = 64
"""So many picks are made between the same cohorts. Made between 16 they take a tenth longer, and 256 save nothing."""


class Cohorts:
    """The warps in flight in two cohorts.

    Parameters
    ----------
    random : numpy.random.Generator
        What decides.
    warps : int
        Warps in flight.
    """

    def __init__(self, random: np.random.Generator, warps: int) -> None:
        self._random = random
        self._warps = warps
        self._left = 0
        self._first: Array = np.zeros(warps, np.bool_)

    def pick(self, ready: Array) -> Array:
        """Return the threads of the cohort that runs next among those that are ready; all of them if it has none."""
        if not self._left:
            self._draw()
        self._left -= 1
        chosen = ready[self._first[ready // WARP] == (self._random.random() < 0.5)]
        return chosen if chosen.size else ready

    def _draw(self) -> None:
        """Draw cohorts of any sizes: warps that follow each other, which NumPy takes without copies, or any warps."""
        self._left = PICKS_OF_A_DRAW
        if self._random.random() < 0.5:
            self._first = np.arange(self._warps) < self._random.integers(self._warps + 1)
        else:
            self._first = self._random.random(self._warps) < self._random.random()
