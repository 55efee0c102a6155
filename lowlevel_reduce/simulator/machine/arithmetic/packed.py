"""Arithmetic on parts of a register, pairs of float32 or of 16-bit integers; rare forms of minimum and maximum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic.basic import DECODERS as PLAIN
from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder, elementwise
from lowlevel_reduce.simulator.machine.arithmetic.float_operations import float_operation
from lowlevel_reduce.simulator.machine.control.flight import NUMPY_TYPES, Flight, Step, float_kind, unknown
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.ptx.code import Instruction

__all__ = ["DECODERS"]

Function = Callable[..., Array]

_SIXTEEN: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "neg": np.negative,
}


def _in_parts(function: Function, part: str) -> Function:
    """Return the function that applies `function` to all parts of a word."""

    def apply(*words: Array) -> Array:
        parts = [np.ascontiguousarray(word).view(part) for word in words]
        return np.ascontiguousarray(function(*parts)).view(words[0].dtype)

    return apply


def _pairs(instruction: Instruction, flight: Flight) -> Step:
    """Decode an instruction on pairs."""
    *modifiers, kind = instruction.modifiers
    if kind == "f32x2":
        single, part = float_operation(instruction.opcode, "f32", modifiers), "f4"
    else:
        part = "i2" if kind[0] == "s" else "u2"
        single = None if set(modifiers) - {"relu"} else _SIXTEEN.get(instruction.opcode)
    if single is None or instruction.opcode not in {"add", "sub", "mul", "fma", "min", "max", "neg"}:
        raise unknown(instruction)
    function = _in_parts(_relu(single) if "relu" in modifiers else single, part)
    sources = [flight.read(instruction, operand, kind) for operand in instruction.operands[1:]]
    return elementwise(flight.write(instruction, instruction.operands[0], kind), function, sources)


def _relu(function: Function) -> Function:
    return lambda *arguments: np.maximum(function(*arguments), 0)


def _extreme(instruction: Instruction, flight: Flight) -> Step:
    """Decode min and max: of three operands, of magnitudes with a separate sign, or with relu."""
    *modifiers, kind = instruction.modifiers
    apart, count = {"xorsign", "abs"} & set(modifiers), len(instruction.operands) - 1
    if kind in {"u16x2", "s16x2"}:
        return _pairs(instruction, flight)
    if not apart and count == 2 and "relu" not in modifiers:
        return PLAIN[instruction.opcode](instruction, flight)
    if kind == "s32" and modifiers == ["relu"]:
        function = _relu(_SIXTEEN[instruction.opcode])
    elif float_kind(kind) and kind not in {"f16x2", "bf16x2"} and apart in (set(), {"xorsign", "abs"}, {"abs"}):
        found = float_operation(instruction.opcode, kind, [m for m in modifiers if m not in apart])
        if found is None:
            raise unknown(instruction)
        function = _folded(found, kind, apart)
    else:
        raise unknown(instruction)
    sources = [flight.read(instruction, operand, kind) for operand in instruction.operands[1:]]
    return elementwise(flight.write(instruction, instruction.operands[0], kind), function, sources)


def _folded(function: Function, kind: str, apart: set[str]) -> Function:
    """Return a minimum or maximum of two or more; as `apart` says, of magnitudes, with the product of all signs."""
    bits = np.dtype(f"u{np.dtype(NUMPY_TYPES[kind]).itemsize}").type
    sign = bits(1 << (8 * bits().itemsize - 1))

    def apply(*values: Array) -> Array:
        patterns = [np.ascontiguousarray(value).view(bits) for value in values]
        dtype = values[0].dtype
        kept = [(pattern & ~sign) if apart else pattern for pattern in patterns]
        result: Array = kept[0].view(dtype)
        for other in kept[1:]:
            result = function(result, other.view(dtype))
        if "xorsign" not in apart:
            return result
        signs = patterns[0] & sign
        for pattern in patterns[1:]:
            signs = signs ^ (pattern & sign)
        signed: Array = (np.ascontiguousarray(result).view(bits) & ~sign) | signs
        return signed.view(dtype)

    return apply


def _either(opcode: str) -> Decoder:
    """Return the decoder of an opcode that has a form on pairs."""

    def decode(instruction: Instruction, flight: Flight) -> Step:
        pairs = bool(instruction.modifiers) and instruction.modifiers[-1] in {"f32x2", "u16x2", "s16x2"}
        return _pairs(instruction, flight) if pairs else PLAIN[opcode](instruction, flight)

    return decode


DECODERS: dict[str, Decoder] = {
    **{opcode: _either(opcode) for opcode in ("add", "sub", "mul", "fma", "neg")},
    "min": _extreme,
    "max": _extreme,
}
"""Instructions that have a form on pairs."""
