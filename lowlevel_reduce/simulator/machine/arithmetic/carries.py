"""Integer arithmetic with a carry, and some rare instructions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic import floats, integers, packed
from lowlevel_reduce.simulator.machine.arithmetic.basic import DECODERS as PLAIN
from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder, elementwise
from lowlevel_reduce.simulator.machine.control.flight import NUMPY_TYPES, Flight, Index, Step, unknown
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.ptx.code import Instruction
from lowlevel_reduce.simulator.ptx.operands import Immediate

__all__ = ["DECODERS"]


def _carrying(instruction: Instruction, flight: Flight) -> Step:
    """Decode add.cc, addc, sub.cc, subc, mad.cc and madc: the flag is a carry, or a borrow after a subtraction."""
    opcode, *modifiers = instruction.opcode, *instruction.modifiers
    kind = modifiers.pop()
    sets, uses = "cc" in modifiers, opcode.endswith("c")
    multiplies, subtracts = opcode.startswith("mad"), opcode.startswith("sub")
    part = [m for m in modifiers if m != "cc"]
    if kind[1:] not in {"32", "64"} or kind[0] not in "us" or part not in ([["lo"], ["hi"]] if multiplies else [[]]):
        raise unknown(instruction)
    unsigned = f"u{kind[1:]}"
    read = kind if multiplies else unsigned
    operands = instruction.operands[1:]
    sources = [flight.read(instruction, o, read if i < 2 else unsigned) for i, o in enumerate(operands)]
    target = flight.write(instruction, instruction.operands[0], unsigned)
    dtype = np.dtype(NUMPY_TYPES[unsigned])

    def step(idx: Index) -> None:
        values = [source(idx) for source in sources]
        if multiplies:
            product = values[0] * values[1] if part == ["lo"] else integers.multiply_high(values[0], values[1])
            values = [product.view(dtype), values[2]]
        a, b = values
        carry = flight.carry[idx].astype(dtype) if uses else np.zeros(a.size, dtype)
        if subtracts:
            result, flag = a - b - carry, (a < b) | ((a == b) & (carry != 0))
        else:
            result = a + b + carry
            flag = (result < a) | ((result == a) & (carry != 0) & (b != 0))
        target[idx] = result
        if sets:
            flight.carry[idx] = flag

    return step


def _plain_or_carrying(instruction: Instruction, flight: Flight) -> Step:
    if "cc" in instruction.modifiers:
        return _carrying(instruction, flight)
    return _WITHOUT_CARRIES[instruction.opcode](instruction, flight)


_WITHOUT_CARRIES = {**PLAIN, **packed.DECODERS}


_PERMUTATIONS: dict[str, Callable[[int, int], int]] = {
    "f4e": lambda i, n: n + i,
    "b4e": lambda i, n: (n - i) & 7,
    "rc8": lambda i, n: n,
    "ecl": max,
    "ecr": min,
    "rc16": lambda i, n: 2 * (n & 1) + (i & 1),
}
"""For each mode, which of eight bytes becomes byte i, given the selector n."""


def _permute(instruction: Instruction, flight: Flight) -> Step:
    """Decode prmt with a mode, by converting the mode to the selectors of prmt without one."""
    if len(instruction.modifiers) == 1:
        return PLAIN["prmt"](instruction, flight)
    _, mode = instruction.modifiers
    choose = _PERMUTATIONS[mode]
    table = np.array([sum(choose(i, n) << 4 * i for i in range(4)) for n in range(4)], np.uint32)
    sources = [flight.read(instruction, operand, "u32") for operand in instruction.operands[1:]]
    target = flight.write(instruction, instruction.operands[0], "b32")
    return elementwise(target, lambda a, b, n: integers.permute(a, b, table[n & np.uint32(3)]), sources)


_TESTS: dict[str, Callable[[Array], Array]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).tiny),
    "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny),
}


def _test(instruction: Instruction, flight: Flight) -> Step:
    """Decode testp; zero is neither normal nor subnormal."""
    what, kind = instruction.modifiers
    if kind not in {"f32", "f64"}:
        raise unknown(instruction)
    source = flight.read(instruction, instruction.operands[1], kind)
    return elementwise(flight.write(instruction, instruction.operands[0], "pred"), _TESTS[what], [source])


def _select_by_sign(instruction: Instruction, flight: Flight) -> Step:
    """Decode slct: the first value if the third is not negative, else the second."""
    *ftz, kind, by = instruction.modifiers
    if by not in {"s32", "f32"} or ftz not in ([], ["ftz"]):
        raise unknown(instruction)
    bits = f"b{8 * np.dtype(NUMPY_TYPES[kind]).itemsize}"
    a, b = (flight.read(instruction, o, kind if isinstance(o, Immediate) else bits) for o in instruction.operands[1:3])
    sign, target = (
        flight.read(instruction, instruction.operands[3], by),
        flight.write(instruction, instruction.operands[0], bits),
    )

    def step(idx: Index) -> None:
        first, second = (source(idx).view(target.dtype) for source in (a, b))
        third = floats.flush(sign(idx), "f32") if ftz else sign(idx)
        target[idx] = np.where(third >= 0, first, second)

    return step


def _multiply24(instruction: Instruction, flight: Flight) -> Step:
    """Decode mul24 and mad24: products of 24-bit integers, their lower 32 bits or the upper 32 of 48."""
    part, kind = instruction.modifiers
    if kind not in {"u32", "s32"} or part not in {"lo", "hi"}:
        raise unknown(instruction)
    shift = np.int64(0 if part == "lo" else 16)

    def apply(a: Array, b: Array, *c: Array) -> Array:
        x, y = (
            (value.astype(np.int64) << 40 >> 40) if kind == "s32" else (value.astype(np.int64) & 0xFFFFFF)
            for value in (a, b)
        )
        total: Array = (x * y >> shift) + (c[0].astype(np.int64) if c else 0)
        return total.astype(NUMPY_TYPES[kind])

    sources = [flight.read(instruction, operand, kind) for operand in instruction.operands[1:]]
    return elementwise(flight.write(instruction, instruction.operands[0], kind), apply, sources)


def _mask(instruction: Instruction, flight: Flight) -> Step:
    """Decode bmsk: `length` ones from a position on; both numbers are clamped, or taken modulo 32."""
    mode, _ = instruction.modifiers

    def apply(position: Array, length: Array) -> Array:
        start, count = (
            (value & 31 if mode == "wrap" else np.minimum(value, 32)).astype(np.uint64) for value in (position, length)
        )
        ones = (np.uint64(1) << count) - np.uint64(1)
        found: Array = (ones << start & np.uint64(0xFFFF_FFFF)).astype(np.uint32)
        return found

    if mode not in {"wrap", "clamp"}:
        raise unknown(instruction)
    sources = [flight.read(instruction, operand, "u32") for operand in instruction.operands[1:]]
    return elementwise(flight.write(instruction, instruction.operands[0], "b32"), apply, sources)


def _extend(instruction: Instruction, flight: Flight) -> Step:
    """Decode szext: the lowest n bits, extended by their sign or with zeros."""
    mode, kind = instruction.modifiers
    if mode not in {"wrap", "clamp"} or kind not in {"u32", "s32"}:
        raise unknown(instruction)

    def apply(a: Array, n: Array) -> Array:
        count = (n & 31 if mode == "wrap" else np.minimum(n, 32)).astype(np.int64)
        kept: Array = a.astype(np.int64) & ((np.int64(1) << count) - 1)
        if kind == "s32":
            top = np.where(count > 0, kept >> np.maximum(count - 1, 0) & 1, 0)
            kept = kept - (top << count)
        return kept.astype(NUMPY_TYPES[kind])

    sources = [
        flight.read(instruction, operand, as_kind)
        for operand, as_kind in zip(instruction.operands[1:], (kind, "u32"), strict=True)
    ]
    return elementwise(flight.write(instruction, instruction.operands[0], kind), apply, sources)


DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(("addc", "subc", "madc"), _carrying),
    **dict.fromkeys(("add", "sub", "mad"), _plain_or_carrying),
    **dict.fromkeys(("mul24", "mad24"), _multiply24),
    "prmt": _permute,
    "testp": _test,
    "slct": _select_by_sign,
    "bmsk": _mask,
    "szext": _extend,
}
"""Instructions with a carry, and the rare ones."""
