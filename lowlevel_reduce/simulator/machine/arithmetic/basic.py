"""Arithmetic, logic, comparison and selection: decoders that turn an instruction into a step on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic import floats, integers
from lowlevel_reduce.simulator.machine.arithmetic.float_operations import FLOAT_OPERATIONS, float_operation
from lowlevel_reduce.simulator.machine.control.flight import NUMPY_TYPES, Flight, Source, Step, float_kind, unknown
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.ptx.code import Instruction
from lowlevel_reduce.simulator.ptx.operands import Immediate, Name, Pair

__all__ = ["DECODERS", "Decoder", "elementwise"]

Decoder = Callable[[Instruction, Flight], Step]

_INTEGER_TYPES = {f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64)} | {"pred"}


def elementwise(target: Array, function: Callable[..., Array], sources: Sequence[Source]) -> Step:
    """Return the step that assigns a function of the sources."""
    if len(sources) == 1:
        (only,) = sources

        def one(idx: slice | Array) -> None:
            target[idx] = function(only(idx))

        return one
    if len(sources) == 2:
        left, right = sources

        def two(idx: slice | Array) -> None:
            target[idx] = function(left(idx), right(idx))

        def two_in_place(idx: slice | Array) -> None:
            """Save the copy from a result of the function's own, which is an eighth to a quarter of the time."""
            if isinstance(idx, slice):
                function(left(idx), right(idx), out=target[idx])
            else:
                target[idx] = function(left(idx), right(idx))

        return two_in_place if _keeps_type(function, sources, target) else two

    def many(idx: slice | Array) -> None:
        target[idx] = function(*[source(idx) for source in sources])

    return many


def _keeps_type(function: Callable[..., Array], sources: Sequence[Source], target: Array) -> bool:
    """Return whether a function is NumPy's own, of arrays of the target's type, which its result has too."""
    arrays = [getattr(source, "__self__", None) for source in sources]
    if not isinstance(function, np.ufunc) or any(getattr(each, "dtype", None) != target.dtype for each in arrays):
        return False
    return bool(function.resolve_dtypes((*[target.dtype] * len(arrays), None))[-1] == target.dtype)


def _bound(
    instruction: Instruction, flight: Flight, function: Callable[..., Array], kinds: Sequence[str], result: str
) -> Step:
    """Bind a function to the destination and sources, which have these types."""
    operands = instruction.operands
    if len(operands) != len(kinds) + 1:
        raise unknown(instruction, f"it has {len(operands)} operands")
    sources = [flight.read(instruction, operand, kind) for operand, kind in zip(operands[1:], kinds, strict=True)]
    return elementwise(flight.write(instruction, operands[0], result), function, sources)


def _kind(instruction: Instruction) -> str:
    kind = instruction.modifiers[-1] if instruction.modifiers else ""
    if kind not in NUMPY_TYPES:
        raise unknown(instruction, "it has no type")
    return kind


def _simple(instruction: Instruction, flight: Flight) -> Step:
    """Decode an operation whose operands all have the same type."""
    kind, opcode = _kind(instruction), instruction.opcode
    count = len(instruction.operands) - 1
    if float_kind(kind) and opcode in FLOAT_OPERATIONS:
        function = float_operation(opcode, kind, instruction.modifiers[:-1])
        if function is None:
            raise unknown(instruction)
        return _bound(instruction, flight, function, [kind] * count, kind)
    table = integers.UNARY if count == 1 else integers.BINARY
    if kind not in _INTEGER_TYPES or opcode not in table or set(instruction.modifiers[:-1]) - {"sat", "shiftamt"}:
        raise unknown(instruction)
    function = table[f"{opcode}.shiftamt" if "shiftamt" in instruction.modifiers else opcode]
    if "sat" in instruction.modifiers:
        if opcode not in {"add", "sub"} or kind != "s32":
            raise unknown(instruction)
        function = integers.saturating_add if opcode == "add" else integers.saturating_subtract
    result = "u32" if opcode in {"popc", "clz", "bfind"} else kind
    return _bound(instruction, flight, function, [kind] * count, result)


def _multiply(instruction: Instruction, flight: Flight) -> Step:
    """Decode mul and mad."""
    kind = _kind(instruction)
    if float_kind(kind):
        return _simple(instruction, flight)
    part = instruction.modifiers[0]
    wide_kind = f"{kind[0]}{int(kind[1:]) * 2}"
    wide = np.dtype(NUMPY_TYPES.get(wide_kind, "u8"))
    products: dict[str, Callable[[Array, Array], Array]] = {
        "lo": lambda a, b: a * b,
        "hi": integers.multiply_high,
        "wide": lambda a, b: a.astype(wide) * b.astype(wide),
    }
    if part not in products or len(instruction.modifiers) != 2 or (part == "wide" and wide_kind not in NUMPY_TYPES):
        raise unknown(instruction)
    product, result = products[part], wide_kind if part == "wide" else kind
    if instruction.opcode == "mul":
        return _bound(instruction, flight, product, [kind, kind], result)
    return _bound(instruction, flight, lambda a, b, c: product(a, b) + c, [kind, kind, result], result)


def _shift(instruction: Instruction, flight: Flight) -> Step:
    function = integers.shift_left if instruction.opcode == "shl" else integers.shift_right
    kind = _kind(instruction)
    amount = instruction.operands[-1]
    dtype = np.dtype(NUMPY_TYPES[kind])
    if len(instruction.operands) == 3 and isinstance(amount, Immediate) and 0 <= amount.value < 8 * dtype.itemsize:
        shift, by = np.left_shift if instruction.opcode == "shl" else np.right_shift, dtype.type(amount.value)
        source = flight.read(instruction, instruction.operands[1], kind)
        return elementwise(flight.write(instruction, instruction.operands[0], kind), lambda a: shift(a, by), [source])
    return _bound(instruction, flight, function, [kind, "u32"], kind)


def _funnel(instruction: Instruction, flight: Flight) -> Step:
    direction, mode, kind = instruction.modifiers
    return _bound(instruction, flight, integers.funnel_shift(direction, mode), ["u32"] * 3, kind)


def _permute(instruction: Instruction, flight: Flight) -> Step:
    if instruction.modifiers != ("b32",):
        raise unknown(instruction)
    selector = instruction.operands[-1]
    if len(instruction.operands) == 4 and isinstance(selector, Immediate):
        sources = [flight.read(instruction, operand, "u32") for operand in instruction.operands[1:3]]
        target = flight.write(instruction, instruction.operands[0], "b32")
        return elementwise(target, integers.permute_by(selector.value), sources)
    return _bound(instruction, flight, integers.permute, ["u32"] * 3, "b32")


def _field(instruction: Instruction, flight: Flight) -> Step:
    kind = _kind(instruction)
    if instruction.opcode == "bfe":
        return _bound(instruction, flight, integers.bit_field_extract, [kind, "u32", "u32"], kind)
    return _bound(instruction, flight, integers.bit_field_insert, [kind, kind, "u32", "u32"], kind)


def _logic3(instruction: Instruction, flight: Flight) -> Step:
    table = instruction.operands[-1]
    if instruction.modifiers != ("b32",) or not isinstance(table, Immediate):
        raise unknown(instruction)
    sources = [flight.read(instruction, operand, "b32") for operand in instruction.operands[1:4]]
    return elementwise(flight.write(instruction, instruction.operands[0], "b32"), integers.logic3(table.value), sources)


def _dot(instruction: Instruction, flight: Flight) -> Step:
    *half, left, right = instruction.modifiers
    lanes = 4 if instruction.opcode == "dp4a" else 2
    function = integers.dot_product(left, right, lanes, 1 if half == ["hi"] else 0)
    result = "s32" if "s32" in {left, right} else "u32"
    return _bound(instruction, flight, function, ["u32", "u32", result], result)


def _absolute_difference(instruction: Instruction, flight: Flight) -> Step:
    kind = _kind(instruction)
    return _bound(
        instruction, flight, lambda a, b, c: c + (np.maximum(a, b) - np.minimum(a, b)), [kind, kind, kind], kind
    )


_ORDERED: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_COMBINED: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def _float_comparison(name: str) -> Callable[[Array, Array], Array] | None:
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name.endswith("u") and name[:-1] in _ORDERED:
        unordered = _ORDERED[name[:-1]]
        return lambda a, b: unordered(a, b) | np.isnan(a) | np.isnan(b)
    if name == "ne":  # ordered, so false if an operand is NaN, for which NumPy returns true
        return lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b)
    return _ORDERED.get(name)


def _comparison(instruction: Instruction, kind: str) -> Callable[[Array, Array], Array]:
    name = instruction.modifiers[0]
    function = _float_comparison(name) if float_kind(kind) else _ORDERED.get(name)
    if function is None or kind in {"f16x2", "bf16x2"}:
        raise unknown(instruction)
    compared, ftz = function, "ftz" in instruction.modifiers
    if kind not in {"f16", "bf16"} and not ftz:
        return function

    def widened(x: Array) -> Array:
        wide = floats.widen(x, kind)
        return floats.flush(wide, kind) if ftz else wide

    return lambda a, b: compared(widened(a), widened(b))


def _set_predicate(instruction: Instruction, flight: Flight) -> Step:
    """Decode setp, with one or two destinations and optionally another predicate to combine with."""
    kind = _kind(instruction)
    function = _comparison(instruction, kind)
    destination, *rest = instruction.operands
    left, right = (flight.read(instruction, operand, kind) for operand in rest[:2])
    combine = _COMBINED.get(instruction.modifiers[1])
    if (combine is None) != (len(rest) == 2) or set(instruction.modifiers[1:-1]) - {"and", "or", "xor", "ftz"}:
        raise unknown(instruction)
    third = flight.read(instruction, rest[2], "pred") if combine is not None else None
    pair = destination if isinstance(destination, Pair) else Pair(_as_name(instruction, destination), Name("_"))
    target = flight.write(instruction, pair.first, "pred")
    other = flight.write(instruction, pair.second, "pred")

    if combine is None and pair.second.name == "_":
        return elementwise(target, function, [left, right])

    def step(idx: slice | Array) -> None:
        result = function(left(idx), right(idx))
        opposite = ~result
        if combine is not None and third is not None:
            more = third(idx)
            result, opposite = combine(result, more), combine(opposite, more)
        target[idx] = result
        other[idx] = opposite

    return step


def _as_name(instruction: Instruction, operand: object) -> Name:
    if not isinstance(operand, Name):
        raise unknown(instruction)
    return operand


def _set(instruction: Instruction, flight: Flight) -> Step:
    """Decode set: all bits are set, or the result is 1.0, if the comparison holds."""
    if len(instruction.modifiers) != 3:
        raise unknown(instruction)
    _, result, kind = instruction.modifiers
    function = _comparison(instruction, kind)
    one = {"f32": np.float32(1), "f16": np.uint16(0x3C00), "bf16": np.uint16(0x3F80)}
    true = one[result] if result in one else np.array(-1, "i4").astype(NUMPY_TYPES[result])
    return _bound(
        instruction, flight, lambda a, b: np.where(function(a, b), true, true.dtype.type(0)), [kind, kind], result
    )


def _select(instruction: Instruction, flight: Flight) -> Step:
    kind = _kind(instruction)
    bits = kind if kind == "pred" else f"b{np.dtype(NUMPY_TYPES[kind]).itemsize * 8}"
    first, second = (
        flight.read(instruction, operand, kind if isinstance(operand, Immediate) else bits)
        for operand in instruction.operands[1:3]
    )
    condition = flight.read(instruction, instruction.operands[3], "pred")
    target = flight.write(instruction, instruction.operands[0], bits)
    dtype = target.dtype

    def step(idx: slice | Array) -> None:
        target[idx] = np.where(condition(idx), first(idx).view(dtype), second(idx).view(dtype))

    return step


_SIMPLE = (
    *(
        "add",
        "sub",
        "div",
        "rem",
        "neg",
        "abs",
        "min",
        "max",
        "and",
        "or",
        "xor",
        "not",
        "cnot",
        "popc",
        "clz",
        "bfind",
    ),
    *("brev", "fma", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "copysign"),
)

DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(_SIMPLE, _simple),
    "mul": _multiply,
    "mad": _multiply,
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel,
    "prmt": _permute,
    "bfe": _field,
    "bfi": _field,
    "lop3": _logic3,
    "dp2a": _dot,
    "dp4a": _dot,
    "sad": _absolute_difference,
    "setp": _set_predicate,
    "set": _set,
    "selp": _select,
}
"""Instructions that compute."""
