"""Small asynchronous copies, and the commit groups by which threads wait for them and for bulk copies."""

from __future__ import annotations

import numpy as np

from lowlevel_reduce.simulator.machine.control.agents import BULK_READ, BULK_WRITE, COPY
from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.flight import Flight, Index, Step, unknown
from lowlevel_reduce.simulator.machine.memory import mbarriers
from lowlevel_reduce.simulator.machine.memory.access import SPACES, address_source
from lowlevel_reduce.simulator.machine.memory.delayed import by_agents, delayed
from lowlevel_reduce.simulator.machine.memory.storage import word_bytes
from lowlevel_reduce.simulator.machine.races.arrivals import Arrivals
from lowlevel_reduce.simulator.ptx.code import Instruction
from lowlevel_reduce.simulator.ptx.operands import Address, Immediate

__all__ = ["GROUP_INSTRUCTIONS", "copies_arrive", "group_step", "small_copy"]

GROUP_INSTRUCTIONS = {"commit_group", "wait_group", "wait_all"}

_KNOWN = {
    *("async", "ca", "cg", "shared", "shared::cta", "global"),
    *("L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"),
}


def small_copy(instruction: Instruction, flight: Flight) -> Step:
    """Decode cp.async of 4, 8 or 16 bytes; if the source is shorter, the rest is filled with zeros."""
    to, source, size, *rest = instruction.operands
    if (
        not (isinstance(to, Address) and isinstance(source, Address) and isinstance(size, Immediate))
        or size.value not in {4, 8, 16}
        or set(instruction.modifiers) - _KNOWN
    ):
        raise unknown(instruction)
    count = size.value
    places, origins = address_source(instruction, flight, to), address_source(instruction, flight, source)
    memory = by_agents(instruction, flight, SPACES["global"](flight), "ld", "global")
    shared = delayed(flight, "shared", Arrivals.in_copy_group)
    by_agents(instruction, flight, shared, "st", "shared")
    given = rest[:-1] if "L2::cache_hint" in instruction.modifiers else rest
    used = flight.read(instruction, given[0] if given else Immediate(count), "u32")

    def step(idx: Index) -> None:
        threads, starts, sizes = flight.threads[idx], origins(idx), used(idx)
        flight.races.agents.issue(COPY, threads)
        flight.arrivals.issue(threads)
        rows = np.zeros((threads.size, count), np.uint8)
        for length in np.unique(sizes).tolist():
            if length > count:
                raise ThreadFault(int(threads[0]), f"copies {length} bytes where {count} are moved")
            some = np.flatnonzero(sizes == length)
            if length == count:
                rows[some] = memory.load(threads[some], starts[some], count).view(np.uint8)
                continue
            for i in range(length):
                byte = np.uint64(i)
                rows[some, i] = memory.load(threads[some], starts[some] + byte, 1)[:, 0]
        shared.store(threads, places(idx), count, rows.view(f"u{word_bytes(count)}"))

    return step


def group_step(instruction: Instruction, flight: Flight) -> Step:
    """Decode the ends of commit groups, and waits for them: for all but the last so many, or only for their reads."""
    modifiers = instruction.modifiers
    bulk = "bulk" in modifiers
    if not flight.races.agents.has(BULK_READ if bulk else COPY):
        return lambda idx: None  # no instruction puts anything into such groups
    if "commit_group" in modifiers:
        return lambda idx: flight.arrivals.groups(bulk=bulk).commit(flight.threads[idx])
    kinds = (COPY,) if not bulk else (BULK_READ,) if "read" in modifiers else (BULK_READ, BULK_WRITE)
    every = "wait_all" in modifiers
    most = 0 if every else _most(instruction)

    def step(idx: Index) -> None:
        threads, groups = flight.threads[idx], flight.arrivals.groups(bulk=bulk)
        if every:
            groups.commit(threads)
        groups.wait(threads, most, kinds)
        if "read" not in modifiers:
            flight.arrivals.waited(groups)

    return step


def _most(instruction: Instruction) -> int:
    operand = instruction.operands[0]
    if not isinstance(operand, Immediate):
        raise unknown(instruction)
    return operand.value


def copies_arrive(instruction: Instruction, flight: Flight) -> Step:
    """Decode cp.async.mbarrier.arrive: an arrival once the thread's copies have arrived, which they have done then.

    Without ``noinc``, the phase expects one more arrival, too.
    """
    address = instruction.operands[0]
    if not isinstance(address, Address):
        raise unknown(instruction)
    arrive = mbarriers.arrival(instruction, flight, counts="noinc" in instruction.modifiers)
    places = address_source(instruction, flight, address)

    def step(idx: Index) -> None:
        threads, agents, arrivals = flight.threads[idx], flight.races.agents, flight.arrivals
        agents.issue(COPY, threads)
        agents.reveal(threads)
        arrivals.copies.arrive(threads)
        arrivals.waited(arrivals.copies)
        arrive(threads, places(idx))

    return step
