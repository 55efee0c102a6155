"""Where a launch goes wrong, as a fault: at an instruction, in a deadlock, or at the limit of instructions.

A loop that only waits is found by `progress`, since the machine's state recurs. One that stores, or counts, changes the
state for ever: it ends at the launch's limit.
"""

from __future__ import annotations

import numpy as np

from lowlevel_reduce.simulator.machine.control.barriers import AT_BLOCK, AT_CLUSTER, RUNNING, Barriers
from lowlevel_reduce.simulator.machine.control.faults import KernelFault
from lowlevel_reduce.simulator.machine.control.flight import Flight
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.ptx.code import Instruction

__all__ = ["INSTRUCTIONS", "deadlock", "endless", "fault_at"]

INSTRUCTIONS = 10_000_000
"""The limit of a launch that is given none, which is reached after minutes. Of all launches in this package's tests and
demonstrations the longest takes 200,000."""

_RAISE = "raise the limit by instructions= of simulator.use, or by LOWLEVEL_REDUCE_SIMULATED_INSTRUCTIONS"


def fault_at(flight: Flight, place: int, thread: int, reason: str) -> KernelFault:
    """Return the fault of a thread at an instruction."""
    kernel, geometry = flight.launch.kernel, flight.geometry
    instruction = kernel.instructions[min(place, len(kernel.instructions) - 1)]
    return KernelFault(
        kernel.name,
        instruction.line,
        instruction.text,
        geometry.block_index(thread // geometry.stride),
        geometry.thread_index(thread),
        reason,
    )


def deadlock(flight: Flight, barriers: Barriers, places: Array, why: str) -> KernelFault:
    """Return the fault of the first thread that would wait forever."""
    thread, where = barriers.first_waiting()
    place = int(places[thread]) - (1 if barriers.state[thread] in {AT_BLOCK, AT_CLUSTER} else 0)
    waits = f"it waits {where} for threads that exited or wait elsewhere; " if where else ""
    return fault_at(flight, place, thread, f"deadlock: {waits}{why}")


def endless(flight: Flight, barriers: Barriers, places: Array, jumped: int | None, limit: int) -> KernelFault:
    """Return the fault of a launch that has not ended after the instructions that it was allowed.

    Parameters
    ----------
    flight, barriers, places : Flight, Barriers, numpy.ndarray
        The threads, what they wait for, and where they are.
    jumped : int or None
        Where threads last branched backwards.
    limit : int
        The instructions that it was allowed.
    """
    kernel = flight.launch.kernel
    running = np.flatnonzero(barriers.state == RUNNING)
    thread = int(running[0] if running.size else np.flatnonzero(flight.live)[0])
    place = int(places[thread])
    loop = _loop_around(kernel.instructions, place)
    if loop is None and jumped is not None:  # the thread is in a function that the loop calls, or just behind a loop
        loop = _loop_around(kernel.instructions[: jumped + 1], jumped)
    where = "no loop was met"
    if loop is not None:
        first, last = (kernel.instructions[end].line for end in loop)
        source = kernel.source_of(first)
        where = f"it is in the loop of PTX lines {first} to {last}{source and f', compiled from {source}'}"
        place = loop[1]
    counted = f"{limit:,} instructions, counted once for all threads that execute one together"
    return fault_at(flight, place, thread, f"it has not ended after {counted}: {where}; {_RAISE}")


def _loop_around(code: tuple[Instruction, ...], place: int) -> tuple[int, int] | None:
    """Return the first and last instruction of the smallest loop around a place."""
    loops = [
        (target, end)
        for end in range(place, len(code))
        for target in (*code[end].targets, code[end].target)
        if code[end].opcode in {"bra", "brx"} and target is not None and target <= place
    ]
    return min(loops, key=lambda loop: loop[1] - loop[0], default=None)
