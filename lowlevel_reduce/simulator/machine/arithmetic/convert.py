"""cvt and mov: conversions between types, and moves between registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic import floats
from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder, elementwise
from lowlevel_reduce.simulator.machine.control.flight import NUMPY_TYPES, Flight, Step, bits_of, float_kind, unknown
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.ptx.code import Instruction
from lowlevel_reduce.simulator.ptx.operands import Name, Vector

__all__ = ["DECODERS"]

_INTEGRAL: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
_MODES = ("rn", "rz", "rm", "rp", "rna")


def _convert(instruction: Instruction, flight: Flight) -> Step:
    """Decode cvt."""
    *modifiers, to, kind = instruction.modifiers
    if to not in NUMPY_TYPES or kind not in NUMPY_TYPES or set(modifiers) - {*_INTEGRAL, *_MODES, "sat", "ftz"}:
        raise unknown(instruction)
    if to in {"f16x2", "bf16x2"} and kind == "f32":
        return _pack_halves(instruction, flight, to, modifiers)
    if float_kind(to):
        function = _to_float(kind, to, modifiers)
    elif float_kind(kind):
        function = _float_to_integer(kind, to, modifiers)
    else:
        function = _integer_to_integer(to, "sat" in modifiers)
    source = flight.read(instruction, instruction.operands[1], kind)
    return elementwise(flight.write(instruction, instruction.operands[0], to), function, [source])


def _pack_halves(instruction: Instruction, flight: Flight, to: str, modifiers: list[str]) -> Step:
    """Decode the conversion of two float32 to a pair of halves; the first operand goes to the upper half."""
    function = _to_float("f32", to[:-2], modifiers)
    upper, lower = (flight.read(instruction, operand, "f32") for operand in instruction.operands[1:3])
    target = flight.write(instruction, instruction.operands[0], "b32")

    def pack(high: Array, low: Array) -> Array:
        found: Array = (function(high).astype(np.uint32) << np.uint32(16)) | function(low).astype(np.uint32)
        return found

    return elementwise(target, pack, [upper, lower])


def _to_float(kind: str, to: str, modifiers: list[str]) -> Callable[[Array], Array]:
    mode = next((m for m in modifiers if m in _MODES), "rn")
    integral = next((_INTEGRAL[m] for m in modifiers if m in _INTEGRAL), None)
    saturate, ftz = "sat" in modifiers, "ftz" in modifiers
    result = np.dtype(NUMPY_TYPES[to])

    def from_float(x: Array) -> Array:
        wide = floats.widen(x, kind) if kind != "f64" else x
        if ftz and kind == "f32":
            wide = floats.flush(wide, kind)
        if integral is not None:
            wide = integral(wide)
        if ftz and to == "f32":
            wide = floats.flush(wide, to)
        return floats.narrow(wide, to, mode, saturate=saturate).view(result)

    def from_integer(x: Array) -> Array:
        return floats.narrow(_integer_as_odd(x, mode, to), to, mode, saturate=saturate).view(result)

    return from_float if float_kind(kind) else from_integer


def _integer_as_odd(x: Array, mode: str, to: str) -> Array:
    """Return integers as float64: rounded to odd if the final type is narrower, else rounded by `mode`."""
    rounded = x.astype(np.float64)
    if x.dtype.itemsize < 8:
        return rounded
    error = _conversion_error(x, rounded)
    if to != "f64":
        even = (rounded.view(np.int64) & 1) == 0
        toward = np.where(error > 0, np.inf, -np.inf)
        return np.where((error != 0) & even, np.nextafter(rounded, toward), rounded)
    upward = (error > 0) & ((mode == "rp") | ((mode == "rz") & (x < 0)))
    downward = (error < 0) & ((mode == "rm") | ((mode == "rz") & (x > 0)))
    up, down = np.nextafter(rounded, np.inf), np.nextafter(rounded, -np.inf)
    return np.where(upward, up, np.where(downward, down, rounded))


def _conversion_error(x: Array, rounded: Array) -> Array:
    """Return x minus its rounded float64, which may be 2**64."""
    top = rounded >= (2.0**64 if x.dtype.kind == "u" else 2.0**63)
    back = np.where(top, 0.0, rounded).astype(x.dtype)
    difference = (x - back).view(np.int64).astype(np.float64)
    return np.where(top, -1.0, difference)


def _float_to_integer(kind: str, to: str, modifiers: list[str]) -> Callable[[Array], Array]:
    integral = next((_INTEGRAL[m] for m in modifiers if m in _INTEGRAL), np.trunc)
    ftz = "ftz" in modifiers and kind == "f32"
    dtype = np.dtype(NUMPY_TYPES[to])
    limits = np.iinfo(dtype)
    # A NaN becomes a value with only the highest bit set if either type has 64 bits, else zero.
    unordered = dtype.type(limits.min or limits.max // 2 + 1) if kind == "f64" or bits_of(to) == 64 else dtype.type(0)

    def apply(x: Array) -> Array:
        wide = floats.widen(x, kind) if kind != "f64" else x
        wide = integral(floats.flush(wide, kind) if ftz else wide)
        nan = np.isnan(wide)
        above, below = wide >= 2.0 ** (bits_of(to) - (dtype.kind == "i")), wide < float(limits.min)
        inside = np.where(nan, unordered, np.where(nan | above | below, 0.0, wide).astype(dtype))
        return np.where(above, dtype.type(limits.max), np.where(below, dtype.type(limits.min), inside))

    return apply


def _integer_to_integer(to: str, saturate: bool) -> Callable[[Array], Array]:
    dtype = np.dtype(NUMPY_TYPES[to])
    limits = np.iinfo(dtype)

    def clamp(x: Array) -> Array:
        source = np.iinfo(x.dtype)
        low, high = max(limits.min, source.min), min(limits.max, source.max)
        return np.clip(x, x.dtype.type(low), x.dtype.type(high)).astype(dtype)

    return clamp if saturate else lambda x: x.astype(dtype)


def _move(instruction: Instruction, flight: Flight) -> Step:
    """Decode mov: of one value, or between a register and the registers of its parts."""
    kind = instruction.modifiers[-1]
    if kind not in NUMPY_TYPES or len(instruction.operands) != 2:
        raise unknown(instruction)
    target, source = instruction.operands
    if isinstance(source, Vector):
        return _pack(instruction, flight, kind, source)
    if isinstance(target, Vector):
        return _unpack(instruction, flight, kind, target)
    values, into = flight.read(instruction, source, kind), flight.write(instruction, target, kind)

    def move(idx: slice | Array) -> None:
        into[idx] = values(idx)

    return move


def _part(kind: str, parts: int) -> str:
    return f"b{bits_of(kind) // parts}"


def _pack(instruction: Instruction, flight: Flight, kind: str, vector: Vector) -> Step:
    part = _part(kind, len(vector.elements))
    sources = [flight.read(instruction, element, part) for element in vector.elements]
    target = flight.write(instruction, instruction.operands[0], kind if kind == "b128" else f"b{bits_of(kind)}")

    def pack(*parts: Array) -> Array:
        joined = np.stack(parts, axis=1)
        return joined if kind == "b128" else joined.view(target.dtype).ravel()

    return elementwise(target, pack, sources)


def _unpack(instruction: Instruction, flight: Flight, kind: str, vector: Vector) -> Step:
    part = _part(kind, len(vector.elements))
    source = flight.read(instruction, instruction.operands[1], kind if kind == "b128" else f"b{bits_of(kind)}")
    targets = [
        (i, flight.write(instruction, element, part))
        for i, element in enumerate(vector.elements)
        if not (isinstance(element, Name) and element.name == "_")
    ]
    count = len(vector.elements)

    def unpack(idx: slice | Array) -> None:
        parts = np.ascontiguousarray(source(idx)).view(NUMPY_TYPES[part]).reshape(-1, count)
        for i, target in targets:
            target[idx] = parts[:, i]

    return unpack


DECODERS: dict[str, Decoder] = {"cvt": _convert, "mov": _move}
"""Instructions that move and convert."""
