"""atom and red, and the instructions that turn one kind of address into another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowlevel_reduce.simulator.machine.access import RANK_SHIFT, SPACES, Space, address_source, space_of
from lowlevel_reduce.simulator.machine.arithmetic import Decoder, elementwise
from lowlevel_reduce.simulator.machine.flight import (
    LOCAL_WINDOW,
    NUMPY_TYPES,
    SHARED_WINDOW,
    Flight,
    Source,
    Step,
    float_kind,
    unknown,
)
from lowlevel_reduce.simulator.machine.float_operations import float_operation
from lowlevel_reduce.simulator.machine.storage import Array, word_bytes
from lowlevel_reduce.simulator.ptx import TYPE_BYTES, Instruction
from lowlevel_reduce.simulator.ptx_operands import Address, Operand

__all__ = ["DECODERS"]

Update = Callable[..., Array]

_UPDATES: dict[str, Update] = {
    "add": lambda old, b: old + b,
    "min": np.minimum,
    "max": np.maximum,
    "and": lambda old, b: old & b,
    "or": lambda old, b: old | b,
    "xor": lambda old, b: old ^ b,
    "exch": lambda old, b: b,
    "inc": lambda old, b: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - old.dtype.type(1)),
}
_FLAVOURS = {
    *("relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz", "global", "shared"),
    *("shared::cta", "shared::cluster"),
}


def _compare(old: Array, b: Array, c: Array) -> Array:
    same = (old == b).all(axis=-1, keepdims=True) if old.ndim > 1 else old == b
    return np.where(same, c, old)


def _update(instruction: Instruction, kind: str) -> Update:
    (operation,) = [m for m in instruction.modifiers[:-1] if m not in _FLAVOURS] or [""]
    if operation == "cas":
        return _compare
    if float_kind(kind) and operation != "exch":
        function = float_operation(operation, kind, ())
        if function is None or operation not in {"add", "min", "max"}:
            raise unknown(instruction)
        return function
    if operation not in _UPDATES or kind not in NUMPY_TYPES:
        raise unknown(instruction)
    return _UPDATES[operation]


def _atomic(instruction: Instruction, flight: Flight) -> Step:
    """Decode atom and red."""
    kind = instruction.modifiers[-1]
    if len([m for m in instruction.modifiers[:-1] if m not in _FLAVOURS]) != 1 or kind not in NUMPY_TYPES:
        raise unknown(instruction)
    update = _update(instruction, kind)
    returns = instruction.opcode == "atom"
    operands = instruction.operands[1:] if returns else instruction.operands
    space = space_of(instruction.modifiers)
    if not isinstance(operands[0], Address) or space not in SPACES:
        raise unknown(instruction)
    sources = [flight.read(instruction, operand, kind) for operand in operands[1:]]
    target = flight.write(instruction, instruction.operands[0], kind) if returns else None
    return _updating(
        SPACES[space](flight), address_source(instruction, flight, operands[0]), kind, update, sources, target
    )


def _updating(
    memory: Space, addresses: Source, kind: str, update: Update, sources: list[Source], target: Array | None
) -> Step:
    flight, size = memory.flight, TYPE_BYTES[kind]
    word, dtype = f"u{word_bytes(size)}", NUMPY_TYPES[kind]

    def step(idx: slice | Array) -> None:
        threads, places = flight.threads[idx], addresses(idx)
        values = [source(idx) for source in sources]
        flight.counters.atomics += threads.size
        for turn in _turns(places):
            words = memory.load(threads[turn], places[turn], size)
            old = words if kind == "b128" else words.view(dtype)[:, 0]
            new = np.ascontiguousarray(update(old, *[value[turn] for value in values]))
            rows = new if kind == "b128" else new.view(word)[:, None]
            memory.store(threads[turn], places[turn], size, rows)
            if target is not None:
                target[threads[turn]] = old

    return step


def _turns(places: Array) -> list[Array]:
    """Split accesses so that no two of a turn hit the same address, in the order of the threads."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    new = np.r_[True, ordered[1:] != ordered[:-1]]
    first = np.maximum.accumulate(np.where(new, np.arange(places.size), 0))
    turn = np.empty(places.size, np.int64)
    turn[order] = np.arange(places.size) - first
    return [np.flatnonzero(turn == i) for i in range(int(turn.max()) + 1)]


def _convert_address(instruction: Instruction, flight: Flight) -> Step:
    """Decode cvta: generic addresses of shared and local memory lie in their windows."""
    space, kind = space_of(instruction.modifiers), instruction.modifiers[-1]
    windows = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "param": 0, "const": 0}
    if kind != "u64" or space not in windows:
        raise unknown(instruction)
    window = np.uint64(windows[space])
    source = flight.read(instruction, instruction.operands[1], "u64")
    target = flight.write(instruction, instruction.operands[0], "u64")
    if "to" in instruction.modifiers:
        return elementwise(target, lambda a: a - window, [source])
    return elementwise(target, lambda a: a + window, [source])


def _map_address(instruction: Instruction, flight: Flight) -> Step:
    """Decode mapa: the address of the same variable in the block of that rank."""
    kind = instruction.modifiers[-1]
    window = np.uint64(0 if "shared::cluster" in instruction.modifiers else SHARED_WINDOW)
    source = flight.read(instruction, instruction.operands[1], kind)
    rank = flight.read(instruction, instruction.operands[2], "u32")
    low = np.uint64((1 << RANK_SHIFT) - 1)

    def mapped(address: Array, blocks: Array) -> Array:
        local = address.astype(np.uint64) & low
        found: Array = window + local + ((blocks.astype(np.uint64) + np.uint64(1)) << np.uint64(RANK_SHIFT))
        return found

    return elementwise(flight.write(instruction, instruction.operands[0], kind), mapped, [source, rank])


def _is_space(instruction: Instruction, flight: Flight) -> Step:
    limits = {"global": (0, SHARED_WINDOW), "shared": (SHARED_WINDOW, LOCAL_WINDOW), "local": (LOCAL_WINDOW, 1 << 58)}
    space = space_of(instruction.modifiers)
    if space not in limits:
        raise unknown(instruction)
    low, high = (np.uint64(limit) for limit in limits[space])
    source: Operand = instruction.operands[1]
    target = flight.write(instruction, instruction.operands[0], "pred")
    return elementwise(target, lambda a: (a >= low) & (a < high), [flight.read(instruction, source, "u64")])


DECODERS: dict[str, Decoder] = {
    "atom": _atomic,
    "red": _atomic,
    "cvta": _convert_address,
    "mapa": _map_address,
    "isspacep": _is_space,
}
"""What updates memory, and what converts addresses."""
