"""Instructions that the lanes of a warp execute together: shuffle, vote, match, reduce."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder
from lowlevel_reduce.simulator.machine.arithmetic.float_operations import float_operation
from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.flight import NUMPY_TYPES, Flight, Step, unknown
from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.memory.flags import all_of, any_of, indices_of
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.ptx.code import Instruction
from lowlevel_reduce.simulator.ptx.operands import Immediate, Name, Operand, Pair

__all__ = ["DECODERS", "is_whole", "member_mask", "members_of"]


ALL_LANES = np.uint32(0xFFFF_FFFF)


def member_mask(instruction: Instruction) -> Operand:
    """Return the operand with the lanes that take part: all lanes for instructions on matrices."""
    if "aligned" in instruction.modifiers:
        return Immediate(0xFFFF_FFFF)
    return instruction.operands[-1]


def members_of(threads: Array, masks: Array) -> Array:
    """Return the member masks; raises ThreadFault if a mask lacks the thread's own lane."""
    members: Array = masks.astype(np.int64)
    lacking = (members >> (threads % WARP) & 1) == 0
    if any_of(lacking):
        place = int(indices_of(lacking)[0])
        reason = f"takes part, and the member mask {int(members[place]):#x} lacks its lane"
        raise ThreadFault(int(threads[place]), reason)
    return members


def _shuffle(instruction: Instruction, flight: Flight) -> Step:
    """Decode shfl.sync."""
    if len(instruction.modifiers) != 3 or instruction.modifiers[0] != "sync" or instruction.modifiers[1] not in _LANES:
        raise unknown(instruction)
    find = _LANES[instruction.modifiers[1]]
    destination, value, lane, clamp, members = instruction.operands
    pair = destination if isinstance(destination, Pair) else Pair(_name(instruction, destination), Name("_"))
    target = flight.write(instruction, pair.first, "b32")
    in_range = flight.write(instruction, pair.second, "pred")
    own, amount, limits = (flight.read(instruction, operand, "u32") for operand in (value, lane, clamp))
    mask = flight.read(instruction, members, "u32")
    table = _fixed_lanes(find, lane, clamp, members)
    tells = pair.second.name != "_"

    def step(idx: slice | Array) -> None:
        if table is not None and is_whole(idx) and all_of(flight.live[idx]):
            rows = own(idx).reshape(-1, WARP)
            if tells:
                in_range[idx] = np.broadcast_to(table[1], rows.shape).ravel()
            target[idx] = rows.take(table[0], axis=1).ravel()
            return
        threads = flight.threads[idx]
        lanes = threads % WARP
        control = limits(idx).astype(np.int64)
        segment = control >> 8 & 31
        source, valid = find(lanes, amount(idx).astype(np.int64) & 31, control & 31, segment)
        source = np.where(valid, source, lanes)
        origin = threads - lanes + source
        _check_members(flight, threads, origin, source, mask(idx))
        values = own(slice(None))[origin]
        target[idx] = values
        in_range[idx] = valid

    return step


def is_whole(idx: slice | Array) -> bool:
    """Return whether these are all the threads of their warps: of as many as a warp has, the first and the last one."""
    if isinstance(idx, slice):
        return not (idx.start | idx.stop) % WARP
    if idx.size % WARP:
        return False
    firsts = idx[::WARP]
    return all_of(firsts % WARP == 0) and all_of(idx[WARP - 1 :: WARP] - firsts == WARP - 1)


def _fixed_lanes(find: Lanes, lane: Operand, clamp: Operand, members: Operand) -> tuple[Array, Array] | None:
    """Return from which lane each lane of a whole warp reads, and whether that lane is in range; None if it varies."""
    constants = [operand.value for operand in (lane, clamp, members) if isinstance(operand, Immediate)]
    if len(constants) < 3 or constants[2] & 0xFFFF_FFFF != 0xFFFF_FFFF:
        return None
    lanes = np.arange(WARP)
    amount, limit, segment = (np.full(WARP, value & 31) for value in (constants[0], constants[1], constants[1] >> 8))
    source, valid = find(lanes, amount, limit, segment)
    return np.where(valid, source, lanes), valid


def _check_members(flight: Flight, threads: Array, origin: Array, source: Array, mask: Array) -> None:
    members = members_of(threads, mask)
    absent = ((members >> source & 1) == 0) | ~flight.live[origin]
    if any_of(absent):
        place = int(indices_of(absent)[0])
        raise ThreadFault(int(threads[place]), f"reads from lane {int(source[place])}, which does not take part")


Lanes = Callable[[Array, Array, Array, Array], tuple[Array, Array]]


def _up(lane: Array, delta: Array, clamp: Array, segment: Array) -> tuple[Array, Array]:
    source = lane - delta
    return source, source >= ((lane & segment) | (clamp & ~segment))


def _down(lane: Array, delta: Array, clamp: Array, segment: Array) -> tuple[Array, Array]:
    source = lane + delta
    return source, source <= ((lane & segment) | (clamp & ~segment))


def _butterfly(lane: Array, mask: Array, clamp: Array, segment: Array) -> tuple[Array, Array]:
    source = lane ^ mask
    return source, source <= ((lane & segment) | (clamp & ~segment))


def _indexed(lane: Array, index: Array, clamp: Array, segment: Array) -> tuple[Array, Array]:
    source = (lane & segment) | (index & ~segment)
    return source, source <= ((lane & segment) | (clamp & ~segment))


_LANES: dict[str, Lanes] = {"up": _up, "down": _down, "bfly": _butterfly, "idx": _indexed}


def _name(instruction: Instruction, operand: Operand) -> Name:
    if not isinstance(operand, Name):
        raise unknown(instruction)
    return operand


def _groups(flight: Flight, idx: slice | Array, mask: Array) -> tuple[Array, Array, Array]:
    """Return the threads, their member masks and the numbers of their groups: same warp and same mask."""
    threads = flight.threads[idx]
    if is_whole(idx) and all_of(mask == ALL_LANES):
        return threads, mask.astype(np.int64), np.arange(threads.size) // WARP
    members = members_of(threads, mask)
    keys = (threads // WARP << 32) + members
    _, group = np.unique(keys, return_inverse=True)
    return threads, members, group


def _ballot(group: Array, threads: Array, condition: Array) -> Array:
    """Return for each thread the mask of those lanes of its group for which a condition holds."""
    bits = np.where(condition, np.left_shift(1, threads % WARP), 0)
    total = np.zeros(int(group.max()) + 1, np.int64)
    np.add.at(total, group, bits)
    result: Array = total[group]
    return result


def _vote(instruction: Instruction, flight: Flight) -> Step:
    """Decode vote.sync."""
    if len(instruction.modifiers) != 3 or instruction.modifiers[1] not in {"any", "all", "uni", "ballot"}:
        raise unknown(instruction)
    _, what, kind = instruction.modifiers
    target = flight.write(instruction, instruction.operands[0], kind)
    condition = flight.read(instruction, instruction.operands[1], "pred")
    mask = flight.read(instruction, instruction.operands[2], "u32")

    def step(idx: slice | Array) -> None:
        threads, _, group = _groups(flight, idx, mask(idx))
        holds = condition(idx)
        yes, present = _ballot(group, threads, holds), _ballot(group, threads, np.ones_like(holds))
        results = {"any": yes != 0, "all": yes == present, "uni": (yes == 0) | (yes == present), "ballot": yes}
        target[idx] = results[what]

    return step


def _reduce(instruction: Instruction, flight: Flight) -> Step:
    """Decode redux.sync."""
    _, operation, *more, kind = instruction.modifiers
    if kind == "f32":
        return _reduce_floats(instruction, flight, operation, set(more))
    functions: dict[str, np.ufunc] = {"add": np.add, "min": np.minimum, "max": np.maximum}
    functions |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    if more or operation not in functions or kind not in {"u32", "s32", "b32"}:
        raise unknown(instruction)
    function = functions[operation]
    target = flight.write(instruction, instruction.operands[0], kind)
    value = flight.read(instruction, instruction.operands[1], kind)
    mask = flight.read(instruction, instruction.operands[2], "u32")

    def step(idx: slice | Array) -> None:
        _, _, group = _groups(flight, idx, mask(idx))
        order = np.argsort(group, kind="stable")
        starts = indices_of(np.r_[True, np.diff(group[order]) != 0])
        target[idx] = function.reduceat(value(idx)[order], starts).astype(NUMPY_TYPES[kind])[group]

    return step


def _reduce_floats(instruction: Instruction, flight: Flight, operation: str, more: set[str]) -> Step:
    """Decode redux.sync of float32: minimum or maximum, of magnitudes with abs; NaN counts only if requested."""
    if operation not in {"min", "max"} or more - {"abs", "NaN"}:
        raise unknown(instruction)
    combine = float_operation(operation, "f32", more - {"abs"})
    if combine is None:
        raise unknown(instruction)
    target = flight.write(instruction, instruction.operands[0], "f32")
    value = flight.read(instruction, instruction.operands[1], "f32")
    mask = flight.read(instruction, instruction.operands[2], "u32")

    def step(idx: slice | Array) -> None:
        _, _, group = _groups(flight, idx, mask(idx))
        values = value(idx)
        values = np.abs(values) if "abs" in more else values
        order = np.argsort(group, kind="stable")
        position = np.arange(order.size) - np.searchsorted(group[order], group[order])
        found = np.full(int(group.max()) + 1, np.nan, np.float32)
        for turn in range(int(position.max()) + 1):
            some = order[position == turn]
            found[group[some]] = combine(found[group[some]], values[some]) if turn else values[some]
        target[idx] = found[group]

    return step


def _elect(instruction: Instruction, flight: Flight) -> Step:
    """Decode elect.sync: the lowest lane of the member mask leads."""
    if instruction.modifiers != ("sync",) or not isinstance(instruction.operands[0], Pair):
        raise unknown(instruction)
    lane, leads = instruction.operands[0].first, instruction.operands[0].second
    target, leader = flight.write(instruction, lane, "b32"), flight.write(instruction, leads, "pred")
    mask = flight.read(instruction, instruction.operands[1], "u32")

    def step(idx: slice | Array) -> None:
        threads, _, group = _groups(flight, idx, mask(idx))
        lanes = threads % WARP
        lowest = np.full(int(group.max()) + 1, WARP)
        np.minimum.at(lowest, group, lanes)
        target[idx] = lowest[group]
        leader[idx] = lanes == lowest[group]

    return step


def _match(instruction: Instruction, flight: Flight) -> Step:
    """Decode match.any.sync and match.all.sync."""
    what, _, kind = instruction.modifiers
    destination = instruction.operands[0]
    pair = destination if isinstance(destination, Pair) else Pair(_name(instruction, destination), Name("_"))
    target, every = flight.write(instruction, pair.first, "b32"), flight.write(instruction, pair.second, "pred")
    value = flight.read(instruction, instruction.operands[1], kind)
    mask = flight.read(instruction, instruction.operands[2], "u32")

    def step(idx: slice | Array) -> None:
        threads, _, group = _groups(flight, idx, mask(idx))
        values = value(idx)
        _, same = np.unique(np.stack([group.astype(np.uint64), values.astype(np.uint64)]), axis=1, return_inverse=True)
        alike = _ballot(same.ravel(), threads, np.ones(threads.size, np.bool_))
        if what == "any":
            target[idx] = alike
            return
        whole = alike == _ballot(group, threads, np.ones(threads.size, np.bool_))
        target[idx] = np.where(whole, alike, 0)
        every[idx] = whole

    return step


def _active(instruction: Instruction, flight: Flight) -> Step:
    """Decode activemask: the lanes that execute it together in this machine."""
    target = flight.write(instruction, instruction.operands[0], "b32")

    def step(idx: slice | Array) -> None:
        threads = flight.threads[idx]
        _, group = np.unique(threads // WARP, return_inverse=True)
        target[idx] = _ballot(group, threads, np.ones(threads.size, np.bool_))

    return step


def _nothing(instruction: Instruction, flight: Flight) -> Step:
    """Decode instructions without an effect here: prefetches, a warp's barrier after all arrived."""
    del instruction, flight
    return lambda idx: None


DECODERS: dict[str, Decoder] = {
    "shfl": _shuffle,
    "vote": _vote,
    "redux": _reduce,
    "match": _match,
    "elect": _elect,
    "activemask": _active,
    **dict.fromkeys(("prefetch", "prefetchu"), _nothing),
}
"""Instructions that lanes execute together, and those without an effect."""
