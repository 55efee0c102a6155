"""atom, red and fences, and the instructions that convert addresses between state spaces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic import floats
from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder, elementwise
from lowlevel_reduce.simulator.machine.arithmetic.float_operations import float_operation
from lowlevel_reduce.simulator.machine.control.flight import (
    LOCAL_WINDOW,
    NUMPY_TYPES,
    SHARED_WINDOW,
    Flight,
    Source,
    Step,
    float_kind,
    unknown,
)
from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.memory.access import RANK_SHIFT, SPACES, Space, address_source, space_of
from lowlevel_reduce.simulator.machine.memory.flags import all_of
from lowlevel_reduce.simulator.machine.memory.storage import Array, word_bytes
from lowlevel_reduce.simulator.ptx.code import TYPE_BYTES, Instruction
from lowlevel_reduce.simulator.ptx.operands import Address, Operand, parts_of

__all__ = ["DECODERS", "one_at_a_time", "update_function", "updating"]

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
    *("shared::cta", "shared::cluster", "L2::cache_hint", "v2", "v4", "v8"),
}


def _compare(old: Array, b: Array, c: Array) -> Array:
    same = (old == b).all(axis=-1, keepdims=True) if old.ndim > 1 else old == b
    return np.where(same, c, old)


def update_function(instruction: Instruction, operation: str, kind: str) -> Update:
    """Return the function by which an operation computes the new value from the old one and its operands.

    Raises
    ------
    UnknownInstruction
        If there is no such operation for that type.
    """
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
    space = space_of(instruction.modifiers)
    if space not in SPACES:
        raise unknown(instruction)
    return updating(instruction, SPACES[space](flight).at(instruction))


def updating(instruction: Instruction, memory: Space, other: Update | None = None) -> Step:
    """Bind an atomic operation, given the state space that it updates, and a function that computes otherwise."""
    flight, space = memory.flight, space_of(instruction.modifiers)
    kind = instruction.modifiers[-1]
    operations = [m for m in instruction.modifiers[:-1] if m not in _FLAVOURS]
    if len(operations) != 1 or kind not in NUMPY_TYPES:
        raise unknown(instruction)
    update = update_function(instruction, operations[0], kind) if other is None else other
    returns = instruction.opcode == "atom"
    operands = instruction.operands[1:] if returns else instruction.operands
    if not isinstance(operands[0], Address):
        raise unknown(instruction)
    # An operand after the values is a cache policy.
    given = operands[1:3] if operations == ["cas"] else operands[1:2]
    sources = [[flight.read(instruction, element, kind) for element in parts_of(operand)] for operand in given]
    results = parts_of(instruction.operands[0]) if returns else ()
    targets = [flight.write(instruction, element, kind) for element in results]
    adds = other is None and (operations, kind) == (["add"], "f32") and space in {"global", "generic"}
    return _updating(
        memory,
        address_source(instruction, flight, operands[0]),
        kind,
        _added_by_memory(update) if adds else lambda places, *values: update(*values),
        sources,
        targets,
    )


def _added_by_memory(update: Update) -> Update:
    """Return an addition of float32 that flushes subnormal numbers in global memory, whose adder does not support them.

    In shared memory the threads add in a loop with their own addition. In machine code these are `ATOM.ADD.F32.FTZ` and
    `FADD`.
    """

    def added(places: Array, old: Array, value: Array) -> Array:
        flushed = floats.flush(update(floats.flush(old, "f32"), floats.flush(value, "f32")), "f32")
        by_memory = places < np.uint64(SHARED_WINDOW)
        return flushed if all_of(by_memory) else np.where(by_memory, flushed, update(old, value))

    return added


def _updating(
    memory: Space,
    addresses: Source,
    kind: str,
    update: Update,
    sources: list[list[Source]],
    targets: list[Array],
) -> Step:
    """Bind an update, given the sources of each operand's elements, and the targets of the old elements.

    The update gets the addresses first, then the values.
    """
    flight, count = memory.flight, len(sources[0])
    size, dtype = TYPE_BYTES[kind] * count, NUMPY_TYPES[kind]
    word = f"u{word_bytes(size)}"

    def step(idx: slice | Array) -> None:
        threads, places = flight.threads[idx], addresses(idx)
        values = [[source(idx) for source in column] for column in sources]
        flight.counters.atomics += threads.size
        flight.counters.atomic_collisions += _collisions(threads // WARP, places)

        def changed(turn: Array, words: Array) -> Array:
            if kind == "b128":
                return update(places[turn], words, *[column[0][turn] for column in values])
            old = words.view(dtype)
            if count == 1:
                new = update(places[turn], old[:, 0], *[column[0][turn] for column in values])[:, None]
            else:
                each = [update(places[turn], old[:, i], *[column[i][turn] for column in values]) for i in range(count)]
                new = np.stack(each, axis=1)
            return new.astype(dtype, copy=False).view(word)

        before = one_at_a_time(memory, threads, places, size, changed)
        for i, target in enumerate(targets):
            target[idx] = before if kind == "b128" else before.view(dtype)[:, i]

    return step


def one_at_a_time(
    memory: Space, threads: Array, places: Array, size: int, update: Callable[[Array, Array], Array]
) -> Array:
    """Update `size` bytes at each address; updates at the same address happen in the order of the threads.

    Parameters
    ----------
    memory : Space
        The state space of the addresses.
    threads, places : numpy.ndarray
        The threads and their addresses.
    size : int
        Bytes of an update.
    update : callable
        Computes the new rows of words from positions in `threads` and the old rows at their addresses.

    Returns
    -------
    numpy.ndarray
        The old rows that each thread found.
    """
    before = np.empty((threads.size, size // word_bytes(size)), f"u{word_bytes(size)}")
    turns, cells = _turns(memory.places(threads, places))
    if len(turns) > 1 and not memory.hands_on:
        return _in_a_row(memory, threads, places, size, update, turns, cells)
    for turn in turns:
        before[turn] = words = memory.load(threads[turn], places[turn], size)
        memory.store(threads[turn], places[turn], size, np.ascontiguousarray(update(turn, words)))
    return before


def _in_a_row(
    memory: Space,
    threads: Array,
    places: Array,
    size: int,
    update: Callable[[Array, Array], Array],
    turns: list[Array],
    cells: Array,
) -> Array:
    """Do the same with a single access to memory, for when only the words carry over from one turn to the next."""
    order = np.concatenate(turns)
    numbers = np.repeat(np.arange(len(turns)), [turn.size for turn in turns])
    words = memory.load(threads[order], places[order], size, numbers)
    now = np.empty_like(words[: turns[0].size])
    now[cells[turns[0]]] = words[: turns[0].size]
    before, after = np.empty_like(words), np.empty_like(words)
    for turn in turns:
        at = cells[turn]
        before[turn] = old = now[at]
        now[at] = after[turn] = update(turn, old)
    memory.store(threads[order], places[order], size, after[order], numbers)
    return before


def _collisions(warps: Array, places: Array) -> int:
    """Return how many accesses collide with an earlier one of the same warp at the same address."""
    order = np.lexsort((places, warps))
    same = (np.diff(warps[order]) == 0) & (np.diff(places[order]) == 0)
    return int(np.count_nonzero(same))


def _turns(places: Array) -> tuple[list[Array], Array]:
    """Split accesses into turns, in the order of the threads, without a place twice in a turn; number the places."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    new = np.r_[True, ordered[1:] != ordered[:-1]]
    first = np.maximum.accumulate(np.where(new, np.arange(places.size), 0))
    turn, cells = np.empty(places.size, np.int64), np.empty(places.size, np.int64)
    turn[order] = np.arange(places.size) - first
    cells[order] = np.cumsum(new) - 1
    return np.split(np.argsort(turn, kind="stable"), np.cumsum(np.bincount(turn))[:-1]), cells


def _fence(instruction: Instruction, flight: Flight) -> Step:
    """Decode membar and fence: memory is always coherent here, but race detection needs the order that they make."""
    if "proxy" in instruction.modifiers:
        return lambda idx: None
    return lambda idx: flight.races.fence(instruction, flight.threads[idx])


def _convert_address(instruction: Instruction, flight: Flight) -> Step:
    """Decode cvta: the generic addresses of shared and local memory are in windows of their own."""
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
    "fence": _fence,
    "membar": _fence,
    "cvta": _convert_address,
    "mapa": _map_address,
    "isspacep": _is_space,
}
"""Instructions that update and order memory, and that convert addresses."""
