"""mbarrier: arrivals and bytes are counted in a 64-bit word of shared memory.

PTX leaves the word's format open. Here it has, from the lowest bit up: 20 bits for the arrivals that a phase expects,
20 for the pending arrivals, 22 for the pending bytes as a signed number, and the parity of the phase in bit 62. The
word is in shared memory, so that a thread waits for a change of memory as in any other polling loop. A test acquires
what arrivals and asynchronous operations released only if it finds that the phase is complete, and only what its scope
includes: without ``.cluster``, what came from the own block.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder
from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.flight import SHARED_WINDOW, Flight, Index, Source, Step, unknown
from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.memory.access import SPACES, Space, address_source, space_of
from lowlevel_reduce.simulator.machine.memory.atomics import one_at_a_time
from lowlevel_reduce.simulator.machine.memory.flags import any_of
from lowlevel_reduce.simulator.machine.memory.storage import Array, Storage
from lowlevel_reduce.simulator.machine.races.clocks import BLOCK, CLUSTER
from lowlevel_reduce.simulator.machine.races.detector import SHARED_PLACES
from lowlevel_reduce.simulator.ptx.code import Instruction
from lowlevel_reduce.simulator.ptx.operands import Address, Immediate, Name, Operand

__all__ = ["DECODERS", "arrival", "barrier_address", "completion"]

COUNT_BITS, BYTE_BITS, PARITY = 20, 22, 62
MOST_ARRIVALS = (1 << COUNT_BITS) - 1
IN_WINDOW = np.uint64(SHARED_WINDOW - 1)
_FLAVOURS = {"relaxed", "acquire", "release", "cta", "cluster", "shared", "shared::cta", "shared::cluster", "b64"}

Change = Callable[[Array, Array, Array, Array], tuple[Array, Array, Array]]
"""Computes new expected arrivals, pending arrivals and pending bytes from the old ones and the operand."""


def _fields(words: Array) -> tuple[Array, Array, Array, Array]:
    """Return expected and pending arrivals, pending bytes and parity."""
    signed = words.astype(np.int64)
    pending_bytes = signed << (64 - 2 * COUNT_BITS - BYTE_BITS) >> (64 - BYTE_BITS)
    return (
        signed & MOST_ARRIVALS,
        signed >> COUNT_BITS & MOST_ARRIVALS,
        pending_bytes,
        signed >> PARITY & 1,
    )


def _word(expected: Array, pending: Array, pending_bytes: Array, parity: Array) -> Array:
    """Return the word; if nothing is pending, the phase is complete and the next one begins."""
    ended = (pending == 0) & (pending_bytes == 0)
    pending, parity = np.where(ended, expected, pending), np.where(ended, parity ^ 1, parity)
    lower = expected | pending << COUNT_BITS | (pending_bytes & ((1 << BYTE_BITS) - 1)) << 2 * COUNT_BITS
    found: Array = (lower | parity << PARITY).astype(np.uint64)
    return found


def _arrive(expected: Array, pending: Array, pending_bytes: Array, count: Array) -> tuple[Array, Array, Array]:
    return expected, pending - count, pending_bytes


def _nothing(expected: Array, pending: Array, pending_bytes: Array, count: Array) -> tuple[Array, Array, Array]:
    return expected, pending, pending_bytes


def _arrive_and_drop(expected: Array, pending: Array, pending_bytes: Array, count: Array) -> tuple[Array, Array, Array]:
    return expected - count, pending - count, pending_bytes


def _expect(expected: Array, pending: Array, pending_bytes: Array, size: Array) -> tuple[Array, Array, Array]:
    return expected, pending, pending_bytes + size


def _complete(expected: Array, pending: Array, pending_bytes: Array, size: Array) -> tuple[Array, Array, Array]:
    return expected, pending, pending_bytes - size


def _arrive_and_expect(
    expected: Array, pending: Array, pending_bytes: Array, size: Array
) -> tuple[Array, Array, Array]:
    return expected, pending - 1, pending_bytes + size


_CHANGES: dict[str, Change] = {
    "arrive": _arrive,
    "arrive_drop": _arrive_and_drop,
    "arrive.expect_tx": _arrive_and_expect,
    "expect_tx": _expect,
    "complete_tx": _complete,
}


def _changed(space: Space, threads: Array, places: Array, amounts: Array, change: Change) -> Array:
    """Change words for one thread after another; return the old words."""
    ended: list[Array] = []

    def update(turn: Array, words: Array) -> Array:
        expected, pending, pending_bytes, parity = _fields(words[:, 0])
        expected, pending, pending_bytes = change(expected, pending, pending_bytes, amounts[turn])
        low: Array = (pending < 0) | (expected < 0)
        if any_of(low):
            thread = int(threads[turn][np.argmax(low)])
            raise ThreadFault(thread, "arrives at an mbarrier at which the phase expects nobody any more")
        after = _word(expected, pending, pending_bytes, parity)
        ended.append(turn[_fields(after)[3] != parity])
        return after[:, None]

    before: Array = one_at_a_time(space, threads, places, 8, update)[:, 0]
    last = np.concatenate(ended)
    if last.size:
        _end_phases(space.flight, _offsets(space, threads[last], places[last]).tolist())
    return before


def _offsets(space: Space, threads: Array, places: Array) -> Array:
    """Return the offsets of mbarriers in the shared memory of all slots, whether their addresses are generic or not."""
    found: Array = (space.places(threads, places).astype(np.uint64) & IN_WINDOW).astype(np.int64)
    return found


def _end_phases(flight: Flight, offsets: list[int]) -> None:
    for offset in offsets:
        flight.races.clocks.end_phase(SHARED_PLACES + offset)


def barrier_address(instruction: Instruction, flight: Flight, operand: Operand) -> Source:
    """Return the source of the shared-memory address of an mbarrier that is an asynchronous operation's operand."""
    if not isinstance(operand, Address):
        raise unknown(instruction)
    return address_source(instruction, flight, operand)


def completion(instruction: Instruction, flight: Flight) -> Callable[[Array, Array, Array], None]:
    """Return a function that reports, for threads, the arrival of bytes to mbarriers in shared memory.

    The threads' agents release what they did, and the bytes are counted when the data arrives.
    """
    space = _agents_space(instruction, flight)

    def complete(threads: Array, places: Array, sizes: Array) -> None:
        flight.races.agents.reveal(threads)
        one_at_a_time(space, threads, places, 8, lambda turn, words: words)
        offsets = space.places(threads, places)

        def act(rows: Array) -> None:
            for offset in np.unique(offsets[rows]).tolist():
                if _count_bytes(flight.shared, offset, sizes[rows][offsets[rows] == offset].tolist()):
                    _end_phases(flight, [offset])
            flight.changes += 1

        flight.arrivals.counted(threads, act)

    return complete


def arrival(instruction: Instruction, flight: Flight, *, counts: bool) -> Callable[[Array, Array], None]:
    """Return a function by which the agents of threads arrive at mbarriers, where that counts only if `counts`."""
    space = _agents_space(instruction, flight)
    change = _arrive if counts else _nothing

    def arrive(threads: Array, places: Array) -> None:
        _changed(space, threads, places, np.ones(threads.size, np.int64), change)

    return arrive


def _agents_space(instruction: Instruction, flight: Flight) -> Space:
    """Return shared memory as agents release at mbarriers in it."""
    space = SPACES["shared"](flight)
    space.attribute(flight.races.site(_alike(instruction, "atom", "release"), asynchronous=True))
    return space


def _count_bytes(shared: Storage, offset: int, sizes: list[int]) -> bool:
    """Count bytes that have arrived, and return whether a phase has ended by that.

    They are counted at once if the phase cannot end before the last of them, else one after another.
    """
    at, ended = np.array([offset]), False
    expected, pending, pending_bytes, parity = _fields(shared.load(at, 8)[:, 0])
    for size in [sum(sizes)] if int(pending_bytes[0]) >= sum(sizes) else sizes:
        word, before = _word(expected, pending, pending_bytes - size, parity), parity
        expected, pending, pending_bytes, parity = _fields(word)
        shared.store(at, 8, word[:, None])
        ended |= bool(parity != before)
    return ended


def _barrier(instruction: Instruction, flight: Flight) -> Step:
    """Decode mbarrier."""
    what = ".".join(m for m in instruction.modifiers if m not in _FLAVOURS)
    if what in {"test_wait", "try_wait", "test_wait.parity", "try_wait.parity"}:
        return _wait(instruction, flight, by_parity=what.endswith("parity"))
    if what == "pending_count":
        return _pending_count(instruction, flight)
    if what in {"init", "inval"}:
        return _initialise(instruction, flight, valid=what == "init")
    what = what.removesuffix(".noComplete")
    if what not in _CHANGES:
        raise unknown(instruction)
    return _change(instruction, flight, _CHANGES[what])


def _alike(instruction: Instruction, opcode: str, order: str) -> Instruction:
    """Return the atomic operation or load that orders accesses in the same way as the mbarrier does.

    Within the cluster, whatever the scope: what asynchronous operations brought is visible to whoever sees it counted
    and acquires at a scope that has their block.
    """
    return instruction._replace(opcode=opcode, modifiers=(order, "cluster", "shared", "b64"))


def _space(instruction: Instruction, flight: Flight, opcode: str, order: str) -> Space:
    """Return the space of an instruction that orders accesses as `order` says, unless it is ``.relaxed``."""
    modifiers = instruction.modifiers
    order = "relaxed" if "relaxed" in modifiers else order
    return SPACES[space_of(modifiers)](flight).at(_alike(instruction, opcode, order))


def _initialise(instruction: Instruction, flight: Flight, *, valid: bool) -> Step:
    address, *rest = instruction.operands
    if not isinstance(address, Address):
        raise unknown(instruction)
    places = address_source(instruction, flight, address)
    space = SPACES[space_of(instruction.modifiers)](flight).at(instruction._replace(opcode="st", modifiers=("b64",)))
    count = flight.read(instruction, rest[0] if valid else Immediate(1), "u32")

    def step(idx: Index) -> None:
        threads, counts = flight.threads[idx], count(idx).astype(np.int64)
        outside = (counts < 1) | (counts > MOST_ARRIVALS)
        if any_of(outside):
            place = int(np.argmax(outside))
            raise ThreadFault(int(threads[place]), f"an mbarrier for {int(counts[place])} arrivals")
        nothing = np.zeros_like(counts)
        words = _word(counts, counts, nothing, nothing)
        space.store(threads, places(idx), 8, words[:, None] if valid else np.zeros((threads.size, 1), np.uint64))

    return step


def _change(instruction: Instruction, flight: Flight, change: Change) -> Step:
    operands = list(instruction.operands)
    returns = not isinstance(operands[0], Address)
    target = flight.write(instruction, operands.pop(0), "b64") if returns else None
    address, *rest = operands
    if not isinstance(address, Address):
        raise unknown(instruction)
    places = address_source(instruction, flight, address)
    space = _space(instruction, flight, "atom", "release")
    amount = flight.read(instruction, rest[0] if rest else Immediate(1), "u32")

    def step(idx: Index) -> None:
        threads = flight.threads[idx]
        before = _changed(space, threads, places(idx), amount(idx).astype(np.int64), change)
        if target is not None:
            target[idx] = before

    return step


def _wait(instruction: Instruction, flight: Flight, *, by_parity: bool) -> Step:
    """Decode test_wait and try_wait, which test once whether the phase of that state or parity is complete."""
    destination, address, phase, *_ = instruction.operands
    if not isinstance(address, Address) or not isinstance(destination, Name):
        raise unknown(instruction)
    target = flight.write(instruction, destination, "pred")
    places = address_source(instruction, flight, address)
    space = SPACES[space_of(instruction.modifiers)](flight).at(_alike(instruction, "ld", "relaxed"))
    asked = flight.read(instruction, phase, "u32" if by_parity else "u64")
    acquires = "relaxed" not in instruction.modifiers
    scope = CLUSTER if "cluster" in instruction.modifiers else BLOCK

    def step(idx: Index) -> None:
        threads, at = flight.threads[idx], places(idx)
        offsets = _offsets(space, threads, at)

        def test() -> None:
            words = space.load(threads, at, 8)[:, 0]
            wanted = asked(idx).astype(np.int64)
            parity = wanted & 1 if by_parity else wanted >> PARITY & 1
            target[idx] = complete = _fields(words)[3] != parity
            if acquires and any_of(complete):
                warps, there = threads[complete] // WARP, SHARED_PLACES + offsets[complete]
                flight.races.clocks.read(warps, there, scope, acquire=True, phase=True)

        flight.arrivals.polled(offsets, test)

    return step


def _pending_count(instruction: Instruction, flight: Flight) -> Step:
    target = flight.write(instruction, instruction.operands[0], "u32")
    state = flight.read(instruction, instruction.operands[1], "u64")

    def step(idx: Index) -> None:
        target[idx] = _fields(state(idx))[1].astype(np.uint32)

    return step


DECODERS: dict[str, Decoder] = {"mbarrier": _barrier}
"""Instructions that count arrivals."""
