"""Agents: in the order of memory accesses, what a warp has done asynchronously is done by a warp of its own.

An agent acts for one warp. When the warp issues an operation, its agent learns what the warp knows. The warp learns of
what the agent did only when it waits for the operation; others learn of it from the warp, or from the mbarrier that
counts the operation. Until then every access that conflicts with the operation's is a race, that of the issuing warp
itself too, whenever the data happened to arrive.

As everywhere in race detection, the lanes of a warp count as one: where one has waited for its own operations, the
warp is taken to have waited.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.machine.races.clocks import Clocks
from lowlevel_reduce.simulator.ptx.code import Instruction

__all__ = ["BULK_READ", "BULK_WRITE", "COMPLETES", "COPY", "COUNTED", "WAIT", "Agents", "agents_of_warp"]

COPY, BULK_READ, BULK_WRITE, COUNTED = "copy", "bulk read", "bulk write", "counted"
"""What an agent does: small copies, the reads and the writes of bulk groups, and what an mbarrier counts."""

COMPLETES = "mbarrier::complete_tx::bytes"

WAIT = "wait"
"""Does nothing: what a warp knows of it tells whether it is behind a wait for the launches before its own."""

MOST_COUNTED = 4
"""Agents of a warp for what mbarriers count: one for each mbarrier, so that a wait at one tells nothing of another."""


def agents_of_warp(code: Iterable[Instruction]) -> dict[str, int]:
    """Return how many agents of each kind a warp that runs this code needs; none for code without asynchronous work."""
    found, barriers = dict.fromkeys((COPY, BULK_READ, BULK_WRITE, COUNTED), 0), 0
    for instruction in code:
        if instruction.opcode == "mbarrier":
            barriers += instruction.modifiers[:1] == ("init",)
        elif instruction.opcode in {"cp", "st", "red"} and "async" in instruction.modifiers:
            modifiers = set(instruction.modifiers)
            if COMPLETES in modifiers:
                found[COUNTED] = 1
            elif "bulk" not in modifiers:
                found[COPY] = 1
            elif "prefetch" not in modifiers:
                found[BULK_READ] = found[BULK_WRITE] = 1
    found[COUNTED] *= min(max(barriers, 1), MOST_COUNTED)
    return {kind: count for kind, count in found.items() if count}


class Agents:
    """The agents of all warps in flight.

    Parameters
    ----------
    clocks : Clocks
        The order of accesses, which has a row for each agent.
    kinds : dict
        The number of agents of each kind that a warp has.
    threads : int
        Threads in flight.

    Attributes
    ----------
    acting : numpy.ndarray
        For each thread, the row of the agent that acted for it last.
    """

    def __init__(self, clocks: Clocks, kinds: dict[str, int], threads: int) -> None:
        self._clocks = clocks
        counts = list(kinds.values())
        self._first = dict(zip(kinds, np.cumsum([0, *counts]).tolist(), strict=False))
        self._count = kinds
        self._of_warp = sum(counts)
        self.acting: Array = np.zeros(threads if kinds else 0, np.int64)

    def has(self, kind: str) -> bool:
        """Return whether warps have agents of that kind."""
        return kind in self._count

    def issue(self, kind: str, threads: Array, number: Array | int = 0) -> None:
        """Let agents of that kind, and of that number among them, act for threads, with what the warps know now."""
        warps = threads // WARP
        rows = self._rows(kind, warps, number)
        self.acting[threads] = rows
        new = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
        self._clocks.fork(warps[new], rows[new])

    def reveal(self, threads: Array) -> None:
        """Let what the agents that act for these threads release now include what they did."""
        self._clocks.reveal(np.unique(self.acting[threads]))

    def next_group(self, kind: str, threads: Array) -> Array:
        """End a group of operations; return for each thread the time that its warp learns at a wait for the group."""
        rows = self._rows(kind, threads // WARP, 0)
        times: Array = self._clocks.own[rows].copy()
        self._clocks.end_epoch(np.unique(rows))
        return times

    def learn(self, kind: str, threads: Array, times: Array) -> None:
        """Let warps learn what their agents had done by these times."""
        warps = threads // WARP
        self._clocks.learn_of(warps, self._rows(kind, warps, 0), times)

    def know_of_wait(self, rows: Array) -> Array:
        """Return which warps, or agents, in these rows come after a wait of their own or of others."""
        return self._clocks.know_of(rows, self._rows(WAIT, np.arange(self._clocks.warps_in_flight), 0))

    def _rows(self, kind: str, warps: Array, number: Array | int) -> Array:
        rows: Array = self._clocks.warps_in_flight + warps * self._of_warp
        rows += self._first[kind] + number % self._count[kind]
        return rows
