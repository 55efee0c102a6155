"""cvt to and from the narrow types of tensor cores, pairs of eight-bit floats and tf32; cvt with relu or satfinite."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic import convert, floats
from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder, elementwise
from lowlevel_reduce.simulator.machine.arithmetic.eight_bits import narrow8, widen8
from lowlevel_reduce.simulator.machine.control.flight import Flight, Step, unknown
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.ptx.code import Instruction

__all__ = ["DECODERS"]

_EIGHT = {"e4m3x2": "e4m3", "e5m2x2": "e5m2"}
_LARGEST = {"f16": 0x7BFF, "bf16": 0x7F7F}
_DROPPED = np.uint32(0x1FFF)
"""The bits of a float32 that tf32 does not have."""


def _convert(instruction: Instruction, flight: Flight) -> Step:
    """Decode cvt."""
    *modifiers, to, kind = instruction.modifiers
    if to in _EIGHT:
        return _to_eight(instruction, flight, _EIGHT[to], kind, set(modifiers))
    if kind in _EIGHT:
        return _from_eight(instruction, flight, _EIGHT[kind], to, set(modifiers))
    if to == "tf32":
        return _to_tf32(instruction, flight, kind, set(modifiers))
    if {"relu", "satfinite"} & set(modifiers):
        return _clamped(instruction, flight)
    return convert.DECODERS["cvt"](instruction, flight)


def _to_eight(instruction: Instruction, flight: Flight, form: str, kind: str, modifiers: set[str]) -> Step:
    """Decode the conversion of two float32, the first of which becomes the upper part, or of a pair of halves."""
    if modifiers - {"relu"} != {"rn", "satfinite"} or kind not in {"f32", "f16x2", "bf16x2"}:
        raise unknown(instruction)
    relu = "relu" in modifiers

    def joined(upper: Array, lower: Array) -> Array:
        high, low = (narrow8(part, form, relu=relu).astype(np.uint16) for part in (upper, lower))
        found: Array = high << np.uint16(8) | low
        return found

    target = flight.write(instruction, instruction.operands[0], "b16")
    sources = [flight.read(instruction, operand, kind) for operand in instruction.operands[1:]]
    if kind == "f32":
        return elementwise(target, lambda a, b: joined(a.astype(np.float64), b.astype(np.float64)), sources)

    def from_pair(pair: Array) -> Array:
        high, low = (half.astype(np.uint16) for half in (pair >> np.uint32(16), pair & np.uint32(0xFFFF)))
        return joined(floats.widen(high, kind[:-2]), floats.widen(low, kind[:-2]))

    return elementwise(target, from_pair, sources)


def _from_eight(instruction: Instruction, flight: Flight, form: str, to: str, modifiers: set[str]) -> Step:
    """Decode the conversion of a pair to a pair of halves, which is exact."""
    if to != "f16x2" or modifiers - {"relu"} != {"rn"}:
        raise unknown(instruction)

    def widened(pair: Array) -> Array:
        halves = []
        for shift in (8, 0):
            value = widen8(pair >> np.uint16(shift) & np.uint16(0xFF), form)
            if "relu" in modifiers:
                value = np.where(value < 0, 0.0, value)
            halves.append(floats.narrow(value, "f16").astype(np.uint32))
        found: Array = halves[0] << np.uint32(16) | halves[1]
        return found

    source = flight.read(instruction, instruction.operands[1], "b16")
    return elementwise(flight.write(instruction, instruction.operands[0], "b32"), widened, [source])


def _to_tf32(instruction: Instruction, flight: Flight, kind: str, modifiers: set[str]) -> Step:
    """Decode the conversion of float32 to its upper 19 bits."""
    modes = modifiers & {"rn", "rz", "rna"}
    if kind != "f32" or len(modes) != 1 or modifiers - {"rn", "rz", "rna", "relu", "satfinite"}:
        raise unknown(instruction)
    (mode,) = modes

    def rounded(x: Array) -> Array:
        bits = np.ascontiguousarray(x).view(np.uint32)
        magnitude, sign = bits & np.uint32(0x7FFF_FFFF), bits & np.uint32(0x8000_0000)
        odd = magnitude >> np.uint32(13) & np.uint32(1)
        more = {"rz": np.uint32(0), "rna": np.uint32(0x1000), "rn": np.uint32(0xFFF) + odd}[mode]
        kept = np.where(np.isinf(x), magnitude, magnitude + more & ~_DROPPED)
        if "satfinite" in modifiers:
            kept = np.minimum(kept, np.uint32(0x7F7F_E000))
        found = kept | sign
        if "relu" in modifiers:
            found = np.where(sign != 0, np.uint32(0), found)
        return floats.canonical(found.astype(np.uint32), np.isnan(x), "f32")

    source = flight.read(instruction, instruction.operands[1], "f32")
    return elementwise(flight.write(instruction, instruction.operands[0], "b32"), rounded, [source])


def _clamped(instruction: Instruction, flight: Flight) -> Step:
    """Decode cvt.relu and cvt.satfinite of float32 to one or two halves."""
    *modifiers, to, kind = instruction.modifiers
    half = to.removesuffix("x2")
    modes = set(modifiers) - {"relu", "satfinite"}
    if kind != "f32" or half not in _LARGEST or not modes <= {"rn", "rz"} or len(modes) != 1:
        raise unknown(instruction)
    (mode,) = modes
    clamp = _clamp(half, mode, set(modifiers))
    sources = [flight.read(instruction, operand, "f32") for operand in instruction.operands[1:]]
    if to == half:
        return elementwise(flight.write(instruction, instruction.operands[0], half), clamp, sources)

    def pair(upper: Array, lower: Array) -> Array:
        found: Array = clamp(upper).astype(np.uint32) << np.uint32(16) | clamp(lower)
        return found

    return elementwise(flight.write(instruction, instruction.operands[0], "b32"), pair, sources)


def _clamp(kind: str, mode: str, modifiers: set[str]) -> Callable[[Array], Array]:
    largest = np.uint16(_LARGEST[kind])

    def clamp(x: Array) -> Array:
        nan = np.isnan(x)
        bits = floats.narrow(x.astype(np.float64), kind, mode)
        if "satfinite" in modifiers:
            sign = bits & np.uint16(0x8000)
            bits = np.where(nan, bits, np.minimum(bits & np.uint16(0x7FFF), largest) | sign)
        if "relu" in modifiers:
            bits = np.where(nan | (bits < 0x8000), bits, np.uint16(0))
        return bits.astype(np.uint16)

    return clamp


DECODERS: dict[str, Decoder] = {"cvt": _convert}
"""Instructions that convert, including the plain conversions."""
