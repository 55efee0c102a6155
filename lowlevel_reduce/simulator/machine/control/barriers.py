"""Barriers: which threads wait, in warps, blocks and clusters, and when they go on."""

from __future__ import annotations

import numpy as np

from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.flight import Flight, unknown
from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.memory.flags import all_of, any_of, indices_of
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.machine.races.meetings import BARRIERS_OF_A_BLOCK
from lowlevel_reduce.simulator.ptx.code import Instruction

__all__ = ["AT_BLOCK", "AT_CLUSTER", "AT_WARP", "EXITED", "RUNNING", "Barriers"]

RUNNING, EXITED, AT_WARP, AT_BLOCK, AT_CLUSTER = range(5)
"""The states of a thread: it runs, has exited, or waits for its warp, its block or its cluster."""

ANY_WARP_BARRIER = -1


class Barriers:
    """The state of each thread in flight, and the barriers that release waiting threads.

    Attributes
    ----------
    state : numpy.ndarray
        One of the states above for each thread.
    """

    def __init__(self, flight: Flight, places: Array) -> None:
        self._flight = flight
        self._places = places
        self._votes: Array = np.zeros(flight.count, np.bool_)
        self._owed: Array = np.zeros(flight.count, np.bool_)
        geometry = flight.geometry
        self.state: Array = np.full(flight.count, EXITED, np.int8)
        self._tag: Array = np.zeros(flight.count, np.int64)
        self._members: Array = np.zeros(flight.count, np.int64)
        self._barrier: Array = np.zeros(flight.count, np.int64)
        self._expected: Array = np.zeros((geometry.slots, BARRIERS_OF_A_BLOCK), np.int64)
        self._arrived: Array = np.zeros((geometry.slots, BARRIERS_OF_A_BLOCK), np.int64)
        self._phase: Array = np.zeros(flight.count, np.int64)
        self._announced: Array = np.zeros(flight.count, np.bool_)

    def start(self, threads: Array) -> None:
        """Let the threads of a new block run."""
        slots = np.unique(threads // self._flight.geometry.stride)
        self._arrived[slots] = 0
        self._phase[threads] = 0
        self._announced[threads] = False
        self.state[threads] = RUNNING

    def first_waiting(self) -> tuple[int, str]:
        """Return the first waiting thread, and where it waits in words; if none waits, the first running one and ""."""
        words = {
            AT_WARP: "at an instruction of its warp",
            AT_BLOCK: "at a barrier of its block",
            AT_CLUSTER: "at a barrier of its cluster",
        }
        waiting = indices_of((self.state != EXITED) & (self.state != RUNNING))
        if not waiting.size:
            waiting = indices_of(self.state == RUNNING)
        thread = int(waiting[0])
        return thread, words.get(int(self.state[thread]), "")

    def digest(self) -> int:
        """Return a hash of the state of threads and barriers."""
        return hash(
            tuple(array.tobytes() for array in (self.state, self._tag, self._barrier, self._arrived, self._phase))
        )

    def whole_warps(self, threads: Array) -> bool:
        """Return whether these are all the live threads of their warps."""
        warps = self._flight.count // WARP
        live = np.count_nonzero(self._flight.live.reshape(warps, WARP), axis=1)
        mine = np.bincount(threads // WARP, minlength=warps)
        return all_of((mine == live) | (mine == 0))

    def wait_in_warp(self, threads: Array, tag: int, members: Array) -> Array:
        """Make threads wait at an instruction for the others of their member masks; return those that may go on."""
        self.state[threads] = AT_WARP
        self._tag[threads] = tag
        self._members[threads] = members
        return self.complete_warps(tag)

    def waiting_tags(self) -> list[int]:
        """Return the instructions at which threads wait for their warps."""
        return [int(tag) for tag in np.unique(self._tag[self.state == AT_WARP])]

    def complete_warps(self, tag: int) -> Array:
        """Return the threads that wait at an instruction and whose member lanes have all arrived or exited."""
        waiting = indices_of((self.state == AT_WARP) & (self._tag == tag))
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
        """Make threads wait at barriers of their blocks until the expected number of threads has arrived."""
        self.state[threads] = AT_BLOCK
        self._barrier[threads] = barrier
        slots = threads // self._flight.geometry.stride
        self._expected[slots, barrier] = expected
        self._flight.races.meetings.arrive_in_block(threads, barrier)
        self._release_blocks()

    def vote_in_block(self, threads: Array, barrier: Array, expected: Array, votes: Array) -> None:
        """Make threads wait as `wait_in_block` does, and then write the result of all votes to their destinations."""
        self._votes[threads] = votes
        self._owed[threads] = True
        self.wait_in_block(threads, barrier, expected)

    def arrive_in_block(self, threads: Array, barrier: Array, expected: Array) -> None:
        """Count threads as arrived at barriers of their blocks."""
        slots = threads // self._flight.geometry.stride
        np.add.at(self._arrived, (slots, barrier), 1)
        self._expected[slots, barrier] = expected
        self._flight.races.meetings.arrive_in_block(threads, barrier)
        self._release_blocks()

    def _release_blocks(self) -> None:
        waiting = indices_of(self.state == AT_BLOCK)
        slots, barriers = waiting // self._flight.geometry.stride, self._barrier[waiting]
        there = self._arrived.copy()
        np.add.at(there, (slots, barriers), 1)
        full = (there >= self._expected) & (there > 0)
        self._check_count(waiting, slots, barriers, full & (there > self._expected))
        self._arrived[full] = 0
        released = waiting[full[slots, barriers]]
        self.state[released] = RUNNING
        self._flight.races.meetings.leave_in_block(released, self._barrier[released], full)
        if any_of(self._owed[released]):
            self._tell(released, slots[full[slots, barriers]] * BARRIERS_OF_A_BLOCK + barriers[full[slots, barriers]])

    def _check_count(self, threads: Array, slots: Array, barriers: Array, crowded: Array) -> None:
        """Raise if more threads arrive than a barrier expects: it is unclear which it releases, and which wait on."""
        if any_of(crowded) and any_of(wrong := crowded[slots, barriers]):
            place = int(np.argmax(wrong))
            awaited = int(self._expected[slots[place], barriers[place]])
            raise ThreadFault(int(threads[place]), f"more threads come to barrier {barriers[place]} than {awaited}")

    def _tell(self, threads: Array, barrier: Array) -> None:
        """Write the results of votes to the destinations of the threads that a barrier releases."""
        owed = self._owed[threads]
        threads, barrier = threads[owed], barrier[owed]
        _, group = np.unique(barrier, return_inverse=True)
        yes, there = np.bincount(group, weights=self._votes[threads])[group], np.bincount(group)[group]
        self._owed[threads] = False
        results = {"popc": yes.astype(np.uint32), "and": yes == there, "or": yes > 0}
        for place in np.unique(self._places[threads]).tolist():
            instruction = self._flight.launch.kernel.instructions[place - 1]
            mine = self._places[threads] == place
            kind = instruction.modifiers[-1]
            target = self._flight.write(instruction, instruction.operands[0], kind)
            target[threads[mine]] = results[_operation(instruction)][mine]

    def arrive_in_cluster(self, threads: Array, *, release: bool) -> None:
        """Count threads as arrived at the barrier of their clusters; a second arrival without a wait is a fault."""
        self._check_announced(threads, True, "arrives again at the barrier of its cluster without a wait in between")
        self._announced[threads] = True
        self._phase[threads] += 1
        self._flight.races.meetings.arrive_in_cluster(threads, self._phase[threads], release=release)
        self.release_clusters()

    def wait_in_cluster(self, threads: Array) -> None:
        """Make threads, which must have arrived, wait until all threads of their clusters have arrived or exited."""
        self._check_announced(threads, False, "waits at the barrier of its cluster and has not arrived")
        self._announced[threads] = False
        self.state[threads] = AT_CLUSTER
        self.release_clusters()

    def _check_announced(self, threads: Array, wrong: bool, reason: str) -> None:
        bad = self._announced[threads] == wrong
        if any_of(bad):
            raise ThreadFault(int(threads[np.argmax(bad)]), reason)

    def release_clusters(self) -> None:
        """Let waiting threads go on if all threads of their clusters have arrived."""
        waiting = indices_of(self.state == AT_CLUSTER)
        if not waiting.size:
            return
        unit = self._flight.geometry.stride * self._flight.geometry.cluster_blocks
        phases = np.where(self._flight.live, self._phase, np.iinfo(np.int64).max)
        least = phases.reshape(-1, unit).min(axis=1)
        released = waiting[least[waiting // unit] >= self._phase[waiting]]
        self.state[released] = RUNNING
        self._flight.races.meetings.leave_in_cluster(released, self._phase[released])


def _operation(instruction: Instruction) -> str:
    """Return the operation by which a barrier reduces the votes."""
    found = [m for m in instruction.modifiers if m in {"popc", "and", "or"}]
    if len(found) != 1 or instruction.modifiers[-1] != ("u32" if found == ["popc"] else "pred"):
        raise unknown(instruction)
    return found[0]
