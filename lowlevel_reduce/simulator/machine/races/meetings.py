"""The order that barriers make: everything before an arrival happens before everything after a wait."""

from __future__ import annotations

import numpy as np

from lowlevel_reduce.simulator.machine.control.special import WARP, Geometry
from lowlevel_reduce.simulator.machine.memory.storage import Array, distinct
from lowlevel_reduce.simulator.machine.races.clocks import Clocks

__all__ = ["BARRIERS_OF_A_BLOCK", "Meetings"]

BARRIERS_OF_A_BLOCK = 16
PHASES = 2
"""Rows that a cluster's barrier needs: nobody arrives for the phase after the next before all have left this one."""


class Meetings:
    """The barriers of the blocks and clusters in flight, in their effect on the order of memory accesses."""

    def __init__(self, geometry: Geometry, clocks: Clocks) -> None:
        self._geometry = geometry
        self._blocks = _Rows(clocks, geometry.slots * BARRIERS_OF_A_BLOCK)
        self._clusters = _Rows(clocks, geometry.slots // geometry.cluster_blocks * PHASES)

    def start(self, slots: Array) -> None:
        """Forget who arrived at the barriers of the blocks that were in these slots."""
        self._blocks.clear((slots[:, None] * BARRIERS_OF_A_BLOCK + np.arange(BARRIERS_OF_A_BLOCK)).ravel())
        units = np.unique(slots // self._geometry.cluster_blocks)
        keys = (units[:, None] * PHASES + np.arange(PHASES)).ravel()
        self._clusters.clear(keys)

    def arrive_in_block(self, threads: Array, barrier: Array) -> None:
        """Let threads arrive at barriers of their blocks."""
        self._blocks.arrive(self._in_block(threads, barrier), threads)

    def leave_in_block(self, threads: Array, barrier: Array, complete: Array) -> None:
        """Let threads leave complete barriers, and forget who arrived at these; `complete` has a flag per barrier."""
        self._blocks.leave(self._in_block(threads, barrier), threads)
        self._blocks.clear(np.flatnonzero(complete))

    def arrive_in_cluster(self, threads: Array, phases: Array, *, release: bool) -> None:
        """Let threads arrive at the barrier of their clusters, each in its given phase.

        What was known two phases ago need not be forgotten: every thread that waits now has also waited then.
        """
        if release:
            self._clusters.arrive(self._in_cluster(threads, phases), threads)

    def leave_in_cluster(self, threads: Array, phases: Array) -> None:
        """Let threads leave the barrier at which all threads of their clusters have arrived."""
        self._clusters.leave(self._in_cluster(threads, phases), threads)

    def _in_block(self, threads: Array, barrier: Array) -> Array:
        keys: Array = threads // self._geometry.stride * BARRIERS_OF_A_BLOCK + barrier
        return keys

    def _in_cluster(self, threads: Array, phases: Array) -> Array:
        units = threads // (self._geometry.stride * self._geometry.cluster_blocks)
        keys: Array = units * PHASES + phases % PHASES
        return keys


class _Rows:
    """For each of `count` barriers, what the warps know that have arrived at it."""

    def __init__(self, clocks: Clocks, count: int) -> None:
        self._clocks = clocks
        self._near: Array = np.zeros((count, clocks.unit_warps), np.int32)
        self._far: dict[int, Array] = {}

    def arrive(self, keys: Array, threads: Array) -> None:
        self._clocks.contribute(self._near, self._far, *_pairs(keys, threads))

    def leave(self, keys: Array, threads: Array) -> None:
        self._clocks.receive(self._near, self._far, *_pairs(keys, threads))

    def clear(self, keys: Array) -> None:
        self._near[keys] = 0
        for key in self._far.keys() & set(keys.tolist()):
            del self._far[key]


def _pairs(keys: Array, threads: Array) -> tuple[Array, Array]:
    """Return the distinct pairs of a barrier and a warp."""
    pairs = distinct(keys << 32 | threads // WARP)
    return pairs >> 32, pairs & ((1 << 32) - 1)
