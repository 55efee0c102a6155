"""Who waits for whom: warps, blocks and clusters."""

from __future__ import annotations

import numpy as np

from lowlevel_reduce.simulator.machine.flight import Flight
from lowlevel_reduce.simulator.machine.special import WARP
from lowlevel_reduce.simulator.machine.storage import Array

__all__ = ["AT_BLOCK", "AT_CLUSTER", "AT_WARP", "EXITED", "RUNNING", "Barriers"]

RUNNING, EXITED, AT_WARP, AT_BLOCK, AT_CLUSTER = range(5)
"""What a thread does: it runs, has exited, or waits at an instruction of a warp, a block or a cluster."""

BARRIERS_OF_A_BLOCK = 16
ANY_WARP_BARRIER = -1


class Barriers:
    """The state of each thread in flight, and what lets those that wait go on.

    Attributes
    ----------
    state : numpy.ndarray
        One of the states above for each thread.
    """

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        geometry = flight.geometry
        self.state: Array = np.full(flight.count, EXITED, np.int8)
        self._tag: Array = np.zeros(flight.count, np.int64)
        self._members: Array = np.zeros(flight.count, np.int64)
        self._barrier: Array = np.zeros(flight.count, np.int64)
        self._expected: Array = np.zeros((geometry.slots, BARRIERS_OF_A_BLOCK), np.int64)
        self._arrived: Array = np.zeros((geometry.slots, BARRIERS_OF_A_BLOCK), np.int64)
        self._phase: Array = np.zeros(flight.count, np.int64)

    def start(self, threads: Array) -> None:
        """Let the threads of a new block run."""
        slots = np.unique(threads // self._flight.geometry.stride)
        self._arrived[slots] = 0
        self._phase[threads] = 0
        self.state[threads] = RUNNING

    def digest(self) -> int:
        """Return a number that tells states of the threads and barriers apart."""
        return hash(
            tuple(array.tobytes() for array in (self.state, self._tag, self._barrier, self._arrived, self._phase))
        )

    def whole_warps(self, threads: Array) -> bool:
        """Return whether these are all the live threads of their warps."""
        warps = self._flight.count // WARP
        live = np.count_nonzero(self._flight.live.reshape(warps, WARP), axis=1)
        mine = np.bincount(threads // WARP, minlength=warps)
        return bool(((mine == live) | (mine == 0)).all())

    def wait_in_warp(self, threads: Array, tag: int, members: Array) -> Array:
        """Let threads wait for the others of their member masks at the same instruction; return who may go on."""
        self.state[threads] = AT_WARP
        self._tag[threads] = tag
        self._members[threads] = members
        return self.complete_warps(tag)

    def waiting_tags(self) -> list[int]:
        """Return the instructions at which threads wait for their warps."""
        return [int(tag) for tag in np.unique(self._tag[self.state == AT_WARP])]

    def complete_warps(self, tag: int) -> Array:
        """Return the threads that wait at an instruction and whose members are all there or have exited."""
        waiting = np.flatnonzero((self.state == AT_WARP) & (self._tag == tag))
        if not waiting.size:
            return waiting
        warps = self._flight.count // WARP
        bits = np.left_shift(1, np.arange(WARP))
        live = (self._flight.live.reshape(warps, WARP) * bits).sum(axis=1)
        there = np.zeros(warps, np.int64)
        np.add.at(there, waiting // WARP, bits[waiting % WARP])
        missing = self._members[waiting] & live[waiting // WARP] & ~there[waiting // WARP]
        found: Array = waiting[missing == 0]
        return found

    def wait_in_block(self, threads: Array, barrier: Array, expected: Array) -> None:
        """Let threads wait at barriers of their blocks until so many have come."""
        self.state[threads] = AT_BLOCK
        self._barrier[threads] = barrier
        slots = threads // self._flight.geometry.stride
        self._expected[slots, barrier] = expected
        self._release_blocks()

    def arrive_in_block(self, threads: Array, barrier: Array, expected: Array) -> None:
        """Count threads as arrived at barriers of their blocks."""
        slots = threads // self._flight.geometry.stride
        np.add.at(self._arrived, (slots, barrier), 1)
        self._expected[slots, barrier] = expected
        self._release_blocks()

    def _release_blocks(self) -> None:
        waiting = np.flatnonzero(self.state == AT_BLOCK)
        slots, barriers = waiting // self._flight.geometry.stride, self._barrier[waiting]
        there = self._arrived.copy()
        np.add.at(there, (slots, barriers), 1)
        full = (there >= self._expected) & (there > 0)
        self._arrived[full] = 0
        self.state[waiting[full[slots, barriers]]] = RUNNING

    def arrive_in_cluster(self, threads: Array) -> None:
        """Count threads as arrived at the barrier of their clusters."""
        self._phase[threads] += 1
        self.release_clusters()

    def wait_in_cluster(self, threads: Array) -> None:
        """Let threads wait until all of their clusters have arrived or exited."""
        self.state[threads] = AT_CLUSTER
        self.release_clusters()

    def release_clusters(self) -> None:
        """Let those go on whose clusters have arrived."""
        waiting = np.flatnonzero(self.state == AT_CLUSTER)
        if not waiting.size:
            return
        unit = self._flight.geometry.stride * self._flight.geometry.cluster_blocks
        phases = np.where(self._flight.live, self._phase, np.iinfo(np.int64).max)
        least = phases.reshape(-1, unit).min(axis=1)
        self.state[waiting[least[waiting // unit] >= self._phase[waiting]]] = RUNNING
