"""ld and st: between registers and memory."""

from __future__ import annotations

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder
from lowlevel_reduce.simulator.machine.control.flight import NUMPY_TYPES, Flight, Source, Step, unknown
from lowlevel_reduce.simulator.machine.memory.access import (
    SPACES,
    STATE_SPACES,
    GenericSpace,
    LocalSpace,
    Space,
    address_source,
    check,
    check_alignment,
    space_of,
)
from lowlevel_reduce.simulator.machine.memory.storage import Array, word_bytes
from lowlevel_reduce.simulator.ptx.code import TYPE_BYTES, Instruction
from lowlevel_reduce.simulator.ptx.operands import Address, Operand, Vector

__all__ = ["DECODERS", "storing"]

_HINTS = {
    *(
        "nc",
        "volatile",
        "relaxed",
        "acquire",
        "release",
        "weak",
        "cta",
        "cluster",
        "gpu",
        "sys",
        "ca",
        "cg",
        "cs",
        "lu",
    ),
    *(
        "cv",
        "wb",
        "wt",
        "L1::no_allocate",
        "L1::evict_first",
        "L1::evict_last",
        "L1::evict_normal",
        "L1::evict_unchanged",
    ),
    *("L2::cache_hint", "mmio", "L2::64B", "L2::128B", "L2::256B"),
    *("L2::evict_first", "L2::evict_last", "L2::evict_normal"),
}


def _elements(instruction: Instruction) -> tuple[str, int]:
    """Return the type of an access and how many elements it moves; raise if a modifier is unknown."""
    kind = instruction.modifiers[-1]
    counts = [int(m[1:]) for m in instruction.modifiers if m in {"v2", "v4", "v8"}]
    rest = set(instruction.modifiers[:-1]) - _HINTS - {"v2", "v4", "v8"}
    if kind not in NUMPY_TYPES or {m.split("::")[0] for m in rest} - set(STATE_SPACES):
        raise unknown(instruction)
    return kind, counts[0] if counts else 1


def _registers(instruction: Instruction, operand: Operand, count: int) -> tuple[Operand, ...]:
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(elements) != count:
        raise unknown(instruction, f"it moves {count} values")
    return elements


def _load(instruction: Instruction, flight: Flight) -> Step:
    kind, count = _elements(instruction)
    space = space_of(instruction.modifiers)
    address = instruction.operands[1]
    if not isinstance(address, Address):
        raise unknown(instruction)
    targets = [
        flight.write(instruction, operand, kind) for operand in _registers(instruction, instruction.operands[0], count)
    ]
    if space == "param" and address.base not in flight.launch.kernel.variables:
        return _load_parameter(instruction, flight, address, kind, targets)
    if space not in SPACES:
        raise unknown(instruction)
    bytewise = TYPE_BYTES[kind] == 1 and space in {"local", "generic"}
    lenient = LocalSpace if space == "local" else GenericSpace
    memory = lenient(flight, padding=True) if bytewise else SPACES[space](flight)
    return _loading(memory.at(instruction), address_source(instruction, flight, address), kind, targets)


def _loading(memory: Space, addresses: Source, kind: str, targets: list[Array]) -> Step:
    flight, dtype = memory.flight, NUMPY_TYPES[kind]
    size = TYPE_BYTES[kind] * len(targets)

    def step(idx: slice | Array) -> None:
        words = memory.load(flight.threads[idx], addresses(idx), size)
        if kind == "b128":
            for i, target in enumerate(targets):
                target[idx] = words[:, 2 * i : 2 * i + 2]
            return
        values = words.view(dtype)
        for i, target in enumerate(targets):
            target[idx] = values[:, i]

    return step


def _load_parameter(
    instruction: Instruction, flight: Flight, address: Address, kind: str, targets: list[Array]
) -> Step:
    found = [parameter for parameter in flight.launch.kernel.parameters if parameter.name == address.base]
    size = TYPE_BYTES[kind] * len(targets)
    if address.base in flight.launch.kernel.registers:
        return _load_parameter_at(flight, address_source(instruction, flight, address), kind, targets)
    if not found or address.offset < 0 or address.offset + size > found[0].size:
        raise unknown(instruction, "that parameter is not known")
    offset = found[0].offset + address.offset

    def step(idx: slice | Array) -> None:
        values = flight.arguments[offset : offset + size].view(NUMPY_TYPES[kind]).reshape(len(targets), -1)
        for target, value in zip(targets, values, strict=True):
            target[idx] = value

    return step


def _load_parameter_at(flight: Flight, addresses: Source, kind: str, targets: list[Array]) -> Step:
    """Load from a computed place in the kernel's parameters: an array in a struct that is passed by value."""
    size = TYPE_BYTES[kind] * len(targets)

    def step(idx: slice | Array) -> None:
        threads, places, block = flight.threads[idx], addresses(idx), flight.arguments
        check_alignment(threads, places, size)
        check(threads, places + np.uint64(size) > np.uint64(block.size), lambda i: (
            f"{size} bytes at {int(places[i]):#x} lie outside the {block.size} bytes of the kernel's parameters"
        ))  # fmt: skip
        found = block[places.astype(np.int64)[:, None] + np.arange(size)]
        values = np.ascontiguousarray(found).view(NUMPY_TYPES[kind])
        for i, target in enumerate(targets):
            target[idx] = values[:, i]

    return step


def _store(instruction: Instruction, flight: Flight) -> Step:
    space = space_of(instruction.modifiers)
    if space not in SPACES:
        raise unknown(instruction)
    return storing(instruction, SPACES[space](flight).at(instruction))


def storing(instruction: Instruction, memory: Space) -> Step:
    """Bind a store, given the state space that it stores to."""
    flight, address = memory.flight, instruction.operands[0]
    kind, count = _elements(instruction)
    if not isinstance(address, Address):
        raise unknown(instruction)
    addresses = address_source(instruction, flight, address)
    sources = [
        flight.read(instruction, operand, kind) for operand in _registers(instruction, instruction.operands[1], count)
    ]
    size = TYPE_BYTES[kind] * count
    word = f"u{word_bytes(size)}"

    def step(idx: slice | Array) -> None:
        values = [source(idx) for source in sources]
        rows = values[0] if kind == "b128" else np.stack(values, axis=1)
        memory.store(flight.threads[idx], addresses(idx), size, np.ascontiguousarray(rows).view(word))

    return step


DECODERS: dict[str, Decoder] = {"ld": _load, "ldu": _load, "st": _store}
"""Instructions that read and write memory."""
