"""Asynchronous copies, stores and reductions, and hints to caches.

They are executed immediately by the thread that issues them, so the data has arrived before a program waits for it. A
thread that fails to wait for its own copies is therefore not detected here. Other threads must be ordered after the
copy, by a barrier or by the mbarrier that the copy completes; otherwise their accesses race.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lowlevel_reduce.simulator.machine import atomics, loads, mbarriers
from lowlevel_reduce.simulator.machine.access import RANK_SHIFT, SPACES, Space, address_source
from lowlevel_reduce.simulator.machine.arithmetic import Decoder
from lowlevel_reduce.simulator.machine.faults import ThreadFault
from lowlevel_reduce.simulator.machine.flight import NUMPY_TYPES, Flight, Index, Step, unknown
from lowlevel_reduce.simulator.machine.mbarriers import barrier_address, completion
from lowlevel_reduce.simulator.machine.storage import Array, word_bytes
from lowlevel_reduce.simulator.ptx_code import TYPE_BYTES, Instruction
from lowlevel_reduce.simulator.ptx_operands import Address, Immediate, parts_of

__all__ = ["DECODERS"]

COUNTED = "mbarrier::complete_tx::bytes"
BULK_STEP = 16
"""Sizes and addresses of bulk copies must be multiples of this many bytes."""

Move = Callable[[Array, Array, Array, int], None]
"""A function of a thread, a destination, a source and a number of bytes, which moves them for that thread."""

_WAITS = {"commit_group", "wait_group", "wait_all"}


def _copy(instruction: Instruction, flight: Flight) -> Step:
    """Decode cp and its bulk and reducing forms."""
    modifiers = instruction.modifiers
    if "tensor" in modifiers or "async" not in modifiers:
        raise unknown(instruction)
    if _WAITS & set(modifiers) or "prefetch" in modifiers:
        return _nothing(instruction, flight)
    if modifiers[:2] == ("async", "mbarrier"):
        return _copies_arrive(instruction, flight)
    return _bulk(instruction, flight) if "bulk" in modifiers else _small(instruction, flight)


def _space(instruction: Instruction, flight: Flight, name: str, *plain: str) -> Space:
    """Return a space whose accesses are attributed to the instruction as loads, stores or reductions."""
    opcode, *modifiers = plain
    return SPACES[name](flight).at(replace(instruction, opcode=opcode, modifiers=(*modifiers, name, "b32")))


def _nothing(instruction: Instruction, flight: Flight) -> Step:
    """Decode an instruction that has no effect on values."""
    del instruction, flight
    return lambda idx: None


def _small(instruction: Instruction, flight: Flight) -> Step:
    """Decode cp.async of 4, 8 or 16 bytes; if the source is shorter, the rest is filled with zeros."""
    to, source, size, *rest = instruction.operands
    known = {
        "async",
        "ca",
        "cg",
        "shared",
        "shared::cta",
        "global",
        "L2::cache_hint",
        "L2::64B",
        "L2::128B",
        "L2::256B",
    }
    if (
        not (isinstance(to, Address) and isinstance(source, Address) and isinstance(size, Immediate))
        or size.value not in {4, 8, 16}
        or set(instruction.modifiers) - known
    ):
        raise unknown(instruction)
    count = size.value
    places, origins = address_source(instruction, flight, to), address_source(instruction, flight, source)
    shared, memory = _space(instruction, flight, "shared", "st"), _space(instruction, flight, "global", "ld")
    given = rest[:-1] if "L2::cache_hint" in instruction.modifiers else rest
    used = flight.read(instruction, given[0] if given else Immediate(count), "u32")

    def step(idx: Index) -> None:
        threads, starts, sizes = flight.threads[idx], origins(idx), used(idx)
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


def _copies_arrive(instruction: Instruction, flight: Flight) -> Step:
    """Decode cp.async.mbarrier.arrive: an arrival; without ``noinc``, one more arrival is expected, too."""
    address = instruction.operands[0]
    if not isinstance(address, Address):
        raise unknown(instruction)
    if "noinc" not in instruction.modifiers:
        return _nothing(instruction, flight)
    alike = Instruction(
        "mbarrier", ("arrive", "shared", "b64"), (address,), None, None, instruction.line, instruction.text
    )
    return mbarriers.DECODERS["mbarrier"](alike, flight)


def _bulk(instruction: Instruction, flight: Flight) -> Step:
    """Decode cp.async.bulk and cp.reduce.async.bulk: one thread moves a whole run of bytes."""
    spaces = [m for m in instruction.modifiers if m.split("::")[0] in {"global", "shared"}]
    to, source, size, *rest = instruction.operands
    if len(spaces) != 2 or not isinstance(to, Address) or not isinstance(source, Address):
        raise unknown(instruction)
    places, origins = address_source(instruction, flight, to), address_source(instruction, flight, source)
    sizes = flight.read(instruction, size, "u32")
    barrier = barrier_address(instruction, flight, rest.pop(0)) if COUNTED in instruction.modifiers else None
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
                move(threads[i : i + 1], _in_block(ends[i : i + 1], shift), starts[i : i + 1], int(counts[i]))
                if barrier is not None:
                    complete(threads[i : i + 1], _in_block(barriers[i : i + 1], shift), counts[i : i + 1])

    return step


def _mover(instruction: Instruction, flight: Flight, to: str, source: str) -> Move:
    """Return a function that moves a run of bytes for one thread, or combines it with the destination."""
    reduces = instruction.modifiers[0] == "reduce"
    taken = _space(instruction, flight, source, "ld")
    given = _space(instruction, flight, to, *(("red", "relaxed", "gpu") if reduces else ("st",)))

    def move(thread: Array, end: Array, start: Array, count: int) -> None:
        steps = np.arange(0, count, BULK_STEP, dtype=np.uint64)
        given.store(thread.repeat(steps.size), end + steps, BULK_STEP, taken.load(
            thread.repeat(steps.size), start + steps, BULK_STEP
        ))  # fmt: skip

    return _reducer(instruction, taken, given) if reduces else move


def _reducer(instruction: Instruction, taken: Space, given: Space) -> Move:
    """Return a function that combines a run of elements with those at the destination."""
    kind = instruction.modifiers[-1]
    found = [m for m in instruction.modifiers if m in {"add", "min", "max", "inc", "dec", "and", "or", "xor"}]
    if len(found) != 1 or kind not in NUMPY_TYPES:
        raise unknown(instruction)
    update, size = atomics.update_function(instruction, found[0], kind), TYPE_BYTES[kind]

    def move(thread: Array, end: Array, start: Array, count: int) -> None:
        steps = np.arange(0, count, size, dtype=np.uint64)
        values = taken.load(thread.repeat(steps.size), start + steps, size).view(NUMPY_TYPES[kind])

        def updated(turn: Array, words: Array) -> Array:
            old = words.view(NUMPY_TYPES[kind])[:, 0]
            return np.ascontiguousarray(update(old, values[turn, 0])).view(words.dtype)[:, None]

        atomics.one_at_a_time(given, thread.repeat(steps.size), end + steps, size, updated)

    return move


def _check_bulk(thread: Array, end: Array, start: Array, count: int) -> None:
    if count % BULK_STEP or int(end) % BULK_STEP or int(start) % BULK_STEP:
        what = f"{count} bytes from {int(start):#x} to {int(end):#x}"
        raise ThreadFault(int(thread), f"a bulk copy of {what}: all three are multiples of {BULK_STEP}")


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
    plain = tuple(m for m in instruction.modifiers if m not in {"async", COUNTED})
    alike = replace(instruction, modifiers=plain, operands=(address, value))
    move: Step = (loads if instruction.opcode == "st" else atomics).DECODERS[instruction.opcode](alike, flight)
    if COUNTED not in instruction.modifiers:
        return move
    barrier, complete = barrier_address(instruction, flight, rest[0]), completion(instruction, flight)
    size = TYPE_BYTES[instruction.modifiers[-1]] * len(parts_of(value))

    def step(idx: Index) -> None:
        threads = flight.threads[idx]
        move(idx)
        complete(threads, barrier(idx), np.full(threads.size, size))

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
