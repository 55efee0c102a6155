"""The floating-point instructions by opcode, type and modifiers, as functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic import floats
from lowlevel_reduce.simulator.machine.memory.flags import any_of
from lowlevel_reduce.simulator.machine.memory.storage import Array

__all__ = ["FLOAT_OPERATIONS", "float_operation"]

Function = Callable[..., Array]

_MODES = {"rn", "rz", "rm", "rp"}
_HARMLESS = {"approx", "full", "sat", "ftz", "NaN"}

_NATIVE: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rcp": lambda a: a.dtype.type(1) / a,
    "min": floats.float_min,
    "max": floats.float_max,
}
"""The operations that NumPy rounds correctly in float32 and float64."""

_ODD: dict[str, Function] = {
    "add": floats.sum_odd,
    "sub": lambda a, b: floats.sum_odd(a, -b),
    "mul": floats.product_odd,
    "div": floats.quotient_odd,
    "rcp": lambda a: floats.quotient_odd(np.ones_like(a), a),
    "fma": floats.fused_odd,
    "mad": floats.fused_odd,
    "min": floats.float_min,
    "max": floats.float_max,
    "sqrt": np.sqrt,  # to nearest only: with twice the digits plus two, the second rounding is harmless
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}
"""These operations and more, on operands widened to float64."""

_DOWNWARD: dict[str, Function] = {
    "add": lambda a, b: -floats.sum_odd(-a, -b),
    "sub": lambda a, b: -floats.sum_odd(-a, b),
    "fma": lambda a, b, c: -floats.fused_odd(-a, b, -c),
    "mad": lambda a, b, c: -floats.fused_odd(-a, b, -c),
}
"""Sums for rounding downwards: if everything cancels, the result is -0, where `_ODD` gives +0."""

_NEAREST_ONLY = {"sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"}

FLOAT_OPERATIONS: dict[str, Function] = {
    **_ODD,
    "neg": np.negative,
    "abs": np.abs,
    "copysign": np.copysign,
    "widen": floats.widen,
}
"""Opcodes that have a floating-point form; `float_operation` returns it."""

_WIDTHS = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
_EXPONENTS = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F80_0000, "f64": 0x7FF0_0000_0000_0000}


def float_operation(opcode: str, kind: str, modifiers: Iterable[str]) -> Function | None:
    """Return the function for an opcode on operands of a type, or None if there is none.

    The functions that a GPU only approximates (``ex2``, ``lg2``, ``sin``, ``cos``, ``tanh``, ``rsqrt``, and division
    and root with ``approx`` or ``full``) are NumPy's in float64, rounded once: the float32 nearest to the true value,
    except for rare ties of the float64. A GPU's results differ by what the PTX manual allows, a few units in the last
    place; the manual also says that ``div.approx`` by more than 2**126 gives zero.
    """
    rest = set(modifiers)
    modes = rest & _MODES
    if len(modes) > 1 or rest - _MODES - _HARMLESS - {"relu"}:
        return None
    mode = modes.pop() if modes else "rn"
    if "relu" in rest:
        return _clamped(opcode, kind, rest - {"relu"} | {mode})
    if kind in {"f16x2", "bf16x2"}:
        single = float_operation(opcode, kind[:-2], modifiers)
        return None if single is None else _packed(single)
    if mode != "rn" and opcode in _NEAREST_ONLY:
        return None
    if opcode in {"neg", "abs", "copysign"}:
        return _sign_operation(opcode, _WIDTHS[kind], _EXPONENTS[kind] if "ftz" in rest else 0)
    return _arithmetic(opcode, kind, mode, rest)


def _clamped(opcode: str, kind: str, modifiers: set[str]) -> Function | None:
    """Return an operation on halves whose negative results are replaced by zero; NaN stays NaN."""
    function = float_operation(opcode, kind, modifiers)
    if function is None or opcode not in {"fma", "min", "max"} or kind not in {"f16", "bf16", "f16x2", "bf16x2"}:
        return None

    def apply(*arguments: Array) -> Array:
        bits = np.ascontiguousarray(function(*arguments))
        halves = bits.view(np.uint16)
        return (
            np.where(halves > 0x8000, np.where(halves & 0x7FFF > infinity, halves, 0), halves & 0x7FFF)
            .astype(np.uint16)
            .view(bits.dtype)
        )

    infinity = 0x7F80 if kind.startswith("bf16") else 0x7C00
    return apply


def _arithmetic(opcode: str, kind: str, mode: str, rest: set[str]) -> Function | None:
    if kind == "f64":
        return _double(opcode, mode)
    if opcode == "div" and "approx" in rest:
        return _by_reciprocal(_widened(opcode, kind, mode, rest))
    if kind == "f32" and mode == "rn" and opcode in _NATIVE and not rest & {"sat", "ftz", "NaN"}:
        return _single(opcode)
    return _widened(opcode, kind, mode, rest)


def _single(opcode: str) -> Function:
    function = _NATIVE[opcode]

    def apply(*arguments: Array) -> Array:
        result = function(*arguments)
        nan = np.isnan(result)
        return floats.canonical(result.view(np.uint32), nan, "f32").view(np.float32) if any_of(nan) else result

    return apply


def _by_reciprocal(divide: Function) -> Function:
    """Return a division by a flushed reciprocal: if that is subnormal, the result is zero, or NaN for infinity."""

    def apply(a: Array, b: Array) -> Array:
        large = (np.abs(b) > 2.0**126) & np.isfinite(b)
        return np.where(large, divide(a, np.copysign(np.float32(np.inf), b)), divide(a, b))

    return apply


def _double(opcode: str, mode: str) -> Function | None:
    if opcode in {"min", "max"} or (mode == "rn" and opcode in _NATIVE):
        return _NATIVE[opcode]
    if opcode == "rcp":
        divide = floats.exact64("div", mode)
        return lambda a: divide(np.ones_like(a), a)
    if opcode == "rsqrt":
        return _ODD["rsqrt"]
    exact = "fma" if opcode == "mad" else opcode
    return floats.exact64(exact, mode) if exact in {"add", "sub", "mul", "div", "fma"} else None


def _widened(opcode: str, kind: str, mode: str, modifiers: set[str]) -> Function:
    function, ftz = _ODD[opcode], "ftz" in modifiers
    if mode == "rm":
        function = _DOWNWARD.get(opcode, function)
    propagates = "NaN" in modifiers

    def apply(*arguments: Array) -> Array:
        wide = [floats.widen(argument, kind) for argument in arguments]
        if ftz:
            wide = [floats.flush(argument, kind) for argument in wide]
        result = function(*wide)
        if propagates:
            result = np.where(np.isnan(wide[0]) | np.isnan(wide[1]), np.nan, result)
        bits = floats.narrow(result, kind, mode, saturate="sat" in modifiers)
        if ftz:
            bits = floats.narrow(floats.flush(floats.widen(bits, kind), kind), kind)
        return bits.view(np.float32) if kind == "f32" else bits

    return apply


def _sign_operation(opcode: str, width: int, flushed: int) -> Function:
    """Return an operation on the sign bit only; numbers with none of the bits `flushed` set become signed zeros."""
    sign = 1 << (8 * width - 1)
    dtype: Any = np.dtype(f"u{width}").type

    def apply(*arguments: Array) -> Array:
        bits = [np.ascontiguousarray(argument).view(dtype) for argument in arguments]
        if flushed:
            bits = [np.where(entry & dtype(flushed), entry, entry & dtype(sign)) for entry in bits]
        if opcode == "neg":
            result = bits[0] ^ dtype(sign)
        elif opcode == "abs":
            result = bits[0] & dtype(sign - 1)
        else:
            result = (bits[1] & dtype(sign - 1)) | (bits[0] & dtype(sign))
        found: Array = result.view(arguments[0].dtype)
        return found

    return apply


def _packed(single: Function) -> Function:
    """Return the operation applied to both halves of a word."""

    def apply(*arguments: Array) -> Array:
        halves = [np.ascontiguousarray(argument).view(np.uint16) for argument in arguments]
        return np.ascontiguousarray(single(*halves)).view(np.uint32)

    return apply
