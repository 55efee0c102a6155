"""Asynchronous copies, stores and reductions, and hints to caches.

An agent executes them, which the issuing warp is not ordered with before it waits: whoever uses the destination before
a wait, or writes to the source, races with it. The source is read when the operation is issued. Copies and stores write
their destination then or when they are waited for, as the launch's seed decides; reductions do so at once, and an
mbarrier counts their bytes then or later.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder
from lowlevel_reduce.simulator.machine.control.agents import BULK_READ, BULK_WRITE, COMPLETES, COUNTED
from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.flight import NUMPY_TYPES, Flight, Index, Step, unknown
from lowlevel_reduce.simulator.machine.memory import atomics, loads
from lowlevel_reduce.simulator.machine.memory.access import RANK_SHIFT, SPACES, Space, address_source
from lowlevel_reduce.simulator.machine.memory.copy_groups import (
    GROUP_INSTRUCTIONS,
    copies_arrive,
    group_step,
    small_copy,
)
from lowlevel_reduce.simulator.machine.memory.delayed import by_agents, delayed
from lowlevel_reduce.simulator.machine.memory.mbarriers import barrier_address, completion
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.machine.races.arrivals import Arrivals
from lowlevel_reduce.simulator.ptx.code import TYPE_BYTES, Instruction
from lowlevel_reduce.simulator.ptx.declared import MOST_BYTES
from lowlevel_reduce.simulator.ptx.operands import Address, Immediate, parts_of

__all__ = ["DECODERS"]

BULK_STEP = 16
"""Sizes and addresses of bulk copies must be multiples of this many bytes."""

Move = Callable[[Array, Array, Array, int], None]
"""A function of a thread, a destination, a source and a number of bytes, which moves them for that thread."""


def _copy(instruction: Instruction, flight: Flight) -> Step:
    """Decode cp and its bulk and reducing forms."""
    modifiers = instruction.modifiers
    if "tensor" in modifiers or "async" not in modifiers:
        raise unknown(instruction)
    if "prefetch" in modifiers or not flight.arrivals.active:  # where nothing is asynchronous, nothing is waited for
        return _nothing(instruction, flight)
    if GROUP_INSTRUCTIONS & set(modifiers):
        return group_step(instruction, flight)
    if modifiers[:2] == ("async", "mbarrier"):
        return copies_arrive(instruction, flight)
    return _bulk(instruction, flight) if "bulk" in modifiers else small_copy(instruction, flight)


def _nothing(instruction: Instruction, flight: Flight) -> Step:
    """Decode an instruction that has no effect on values."""
    del instruction, flight
    return lambda idx: None


def _bulk(instruction: Instruction, flight: Flight) -> Step:
    """Decode cp.async.bulk and cp.reduce.async.bulk: one thread moves a whole run of bytes."""
    spaces = [m for m in instruction.modifiers if m.split("::")[0] in {"global", "shared"}]
    to, source, size, *rest = instruction.operands
    if len(spaces) != 2 or not isinstance(to, Address) or not isinstance(source, Address):
        raise unknown(instruction)
    places, origins = address_source(instruction, flight, to), address_source(instruction, flight, source)
    sizes = flight.read(instruction, size, "u32")
    barrier = barrier_address(instruction, flight, rest.pop(0)) if COMPLETES in instruction.modifiers else None
    many = "multicast::cluster" in instruction.modifiers
    masks = flight.read(instruction, rest[0] if many else Immediate(0), "u16")
    move = _mover(instruction, flight, *(m.split("::")[0] for m in spaces))
    complete = completion(instruction, flight)

    def step(idx: Index) -> None:
        threads, starts, ends = flight.threads[idx], origins(idx), places(idx)
        counts, ranks = sizes(idx).astype(np.int64), masks(idx)
        barriers = ends if barrier is None else barrier(idx)
        for i in range(threads.size):
            _check_bulk(threads[i], ends[i], starts[i], counts[i])
            for shift in _receivers(int(ranks[i])) if many else (None,):
                own, counter = threads[i : i + 1], _in_block(barriers[i : i + 1], shift)
                if barrier is not None:
                    _issue(flight, own, counter)
                move(own, _in_block(ends[i : i + 1], shift), starts[i : i + 1], int(counts[i]))
                if barrier is not None:
                    complete(own, counter, counts[i : i + 1])

    return step


def _issue(flight: Flight, threads: Array, barriers: Array) -> None:
    """Let the agents act for threads that do what mbarriers at these addresses count; decide when it arrives."""
    local = barriers & np.uint64((1 << RANK_SHIFT) - 1)
    flight.races.agents.issue(COUNTED, threads, local.astype(np.int64) // 8)
    flight.arrivals.issue(threads, SPACES["shared"](flight).places(threads, barriers))


def _mover(instruction: Instruction, flight: Flight, to: str, source: str) -> Move:
    """Return a function that moves a run of bytes for one thread, or combines it with the destination.

    The reads and the writes of a commit group are those of two agents, because a wait may be for the reads alone.
    """
    reduces, grouped = instruction.modifiers[0] == "reduce", "bulk_group" in instruction.modifiers
    taken = by_agents(instruction, flight, SPACES[source](flight), "ld", source)
    if reduces:
        given = by_agents(instruction, flight, SPACES[to](flight), "red", "relaxed", "gpu", to)
    else:
        into = Arrivals.in_bulk_group if grouped else Arrivals.counted
        given = by_agents(instruction, flight, delayed(flight, to, into), "st", to)
    put = _reducer(instruction, given) if reduces else given.store
    size = TYPE_BYTES[instruction.modifiers[-1]] if reduces else BULK_STEP

    def move(thread: Array, end: Array, start: Array, count: int) -> None:
        steps = np.arange(0, count, size, dtype=np.uint64)
        threads = thread.repeat(steps.size)
        if grouped:
            flight.arrivals.issue(thread)
            flight.races.agents.issue(BULK_READ, thread)
        words = taken.load(threads, start + steps, size)
        if grouped:
            flight.races.agents.issue(BULK_WRITE, thread)
        put(threads, end + steps, size, words)

    return move


def _reducer(instruction: Instruction, given: Space) -> Callable[[Array, Array, int, Array], None]:
    """Return a function that combines elements with those at the destination."""
    kind = instruction.modifiers[-1]
    found = [m for m in instruction.modifiers if m in {"add", "min", "max", "inc", "dec", "and", "or", "xor"}]
    if len(found) != 1 or kind not in NUMPY_TYPES:
        raise unknown(instruction)
    update = atomics.update_function(instruction, found[0], kind)

    def combine(threads: Array, ends: Array, size: int, words: Array) -> None:
        values = words.view(NUMPY_TYPES[kind])

        def updated(turn: Array, words: Array) -> Array:
            old = words.view(NUMPY_TYPES[kind])[:, 0]
            return np.ascontiguousarray(update(old, values[turn, 0])).view(words.dtype)[:, None]

        atomics.one_at_a_time(given, threads, ends, size, updated)

    return combine


def _check_bulk(thread: Array, end: Array, start: Array, count: int) -> None:
    if count % BULK_STEP or int(end) % BULK_STEP or int(start) % BULK_STEP:
        what = f"{count} bytes from {int(start):#x} to {int(end):#x}"
        raise ThreadFault(int(thread), f"a bulk copy of {what}: all three are multiples of {BULK_STEP}")
    if count > MOST_BYTES["shared"]:
        raise ThreadFault(int(thread), f"a bulk copy of {count} bytes, more than shared memory has")


def _receivers(mask: int) -> list[int]:
    return [rank for rank in range(16) if mask >> rank & 1]


def _in_block(address: Array, rank: int | None) -> Array:
    """Return the address of the same place in the block of that rank; None means the own block."""
    if rank is None:
        return address
    low = np.uint64((1 << RANK_SHIFT) - 1)
    found: Array = (address & low) + np.uint64((rank + 1) << RANK_SHIFT)
    return found


def _counted(instruction: Instruction, flight: Flight) -> Step:
    """Decode st.async and red.async: a store or reduction that reports its bytes to an mbarrier."""
    address, value, *rest = instruction.operands
    plain = tuple(m for m in instruction.modifiers if m not in {"async", COMPLETES})
    alike = instruction._replace(modifiers=plain, operands=(address, value))
    stores = instruction.opcode == "st"
    if COMPLETES not in instruction.modifiers:
        decoder: Decoder = (loads if stores else atomics).DECODERS[instruction.opcode]
        return decoder(alike, flight)
    space = delayed(flight, "shared", Arrivals.counted) if stores else SPACES["shared"](flight)
    space.attribute(flight.races.site(alike, asynchronous=True))
    move = loads.storing(alike, space) if stores else atomics.updating(alike, space)
    barrier, complete = barrier_address(instruction, flight, rest[0]), completion(instruction, flight)
    size = TYPE_BYTES[instruction.modifiers[-1]] * len(parts_of(value))

    def step(idx: Index) -> None:
        threads, barriers = flight.threads[idx], barrier(idx)
        _issue(flight, threads, barriers)
        move(idx)
        complete(threads, barriers, np.full(threads.size, size))

    return step


def _store(instruction: Instruction, flight: Flight) -> Step:
    asynchronous = "async" in instruction.modifiers
    return _counted(instruction, flight) if asynchronous else loads.DECODERS["st"](instruction, flight)


def _reduce(instruction: Instruction, flight: Flight) -> Step:
    asynchronous = "async" in instruction.modifiers
    return _counted(instruction, flight) if asynchronous else atomics.DECODERS["red"](instruction, flight)


def _policy(instruction: Instruction, flight: Flight) -> Step:
    """Decode createpolicy: its value is not used here."""
    target = flight.write(instruction, instruction.operands[0], "b64")

    def step(idx: Index) -> None:
        target[idx] = 0

    return step


DECODERS: dict[str, Decoder] = {
    "cp": _copy,
    "st": _store,
    "red": _reduce,
    "createpolicy": _policy,
    **dict.fromkeys(("applypriority", "discard", "setmaxnreg", "pmevent"), _nothing),
}
"""Instructions that are asynchronous on a GPU, and hints."""
