"""Matrices that are distributed over the lanes of a warp: mma, wmma, ldmatrix, stmatrix and movmatrix.

Rounding model. Products of half, bfloat16, tf32 and eight-bit floats are exact. They are added to the accumulator one
after another in ascending order of k, and each sum is rounded to nearest float32; a half accumulator is widened first,
and the result rounded once more. float64 is a chain of fused multiply-adds; integers are exact modulo 2**32. Real
tensor cores add several products at once with a few guard bits and truncate, differently on each architecture. So the
bits agree if all partial sums are exact, and are otherwise within a few units in the last place of the largest partial
sum.

Fragments of mma, ldmatrix, stmatrix and movmatrix have the layout that PTX specifies. The layout of wmma, which PTX
leaves open, is chosen here: element e of lane l is element 32 e + l of the matrix in row-major order, starting over if
a fragment has more room than the matrix needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic import floats
from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder
from lowlevel_reduce.simulator.machine.arithmetic.eight_bits import EIGHT_BIT_KINDS, widen8
from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.flight import Flight, Index, Source, Step, unknown
from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.memory.access import SPACES, Space, address_source, space_of
from lowlevel_reduce.simulator.machine.memory.storage import Array, word_bytes
from lowlevel_reduce.simulator.ptx.code import Instruction
from lowlevel_reduce.simulator.ptx.operands import Address, Immediate, Operand, parts_of

__all__ = ["DECODERS"]

_BITS = {
    **{"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32, "f64": 64},
    **dict.fromkeys(("s8", "u8", "e4m3", "e5m2"), 8),
}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_GROUP, _QUAD = np.arange(WARP) // 4, np.arange(WARP) % 4


@dataclass(frozen=True)
class _Fragment:
    """The rows and columns of the elements that the lanes hold: arrays of shape (lanes, elements of a lane)."""

    kind: str
    shape: tuple[int, int]
    rows: Array
    columns: Array

    @property
    def registers(self) -> int:
        """Registers of a lane."""
        return int(self.rows.shape[1]) * _BITS[self.kind] // self.register_bits

    @property
    def register_bits(self) -> int:
        """Bits of a register."""
        return max(32, _BITS[self.kind])


def _elements(count: int, kind: str) -> tuple[Array, Array, int]:
    """Return the register of each of a lane's elements, its place in the register, and how many a register holds."""
    packed = max(1, 32 // _BITS[kind])
    index = np.arange(count)
    return index // packed, index % packed, packed


def _left(kind: str, rows: int, depth: int) -> _Fragment:
    """Return the layout of A in mma: each group of four lanes holds a row and the eighth row after it."""
    register, place, packed = _elements(rows * depth // WARP, kind)
    halves = rows // 8
    row = _GROUP[:, None] + 8 * (register % halves)
    column = _QUAD[:, None] * packed + place + 4 * packed * (register // halves)
    return _Fragment(kind, (rows, depth), row, column)


def _right(kind: str, depth: int, columns: int) -> _Fragment:
    """Return the layout of B in mma: each group of four lanes holds a column."""
    register, place, packed = _elements(depth * columns // WARP, kind)
    row = _QUAD[:, None] * packed + place + 4 * packed * register
    return _Fragment(kind, (depth, columns), row, np.broadcast_to(_GROUP[:, None], row.shape))


def _accumulator(kind: str, rows: int, columns: int) -> _Fragment:
    """Return the layout of C and D in mma: each lane holds pairs of neighbours in a row."""
    index = np.arange(rows * columns // WARP)
    row = _GROUP[:, None] + 8 * (index // 2)
    return _Fragment(kind, (rows, columns), row, _QUAD[:, None] * 2 + index % 2)


def _spread(kind: str, rows: int, columns: int, registers: int) -> _Fragment:
    """Return the layout of a wmma matrix in the given number of registers per lane."""
    elements = registers * max(32, _BITS[kind]) // _BITS[kind]
    place = (np.arange(elements) * WARP + np.arange(WARP)[:, None]) % (rows * columns)
    return _Fragment(kind, (rows, columns), place // columns, place % columns)


def _register_kind(fragment: _Fragment) -> str:
    return f"b{fragment.register_bits}"


def _reader(instruction: Instruction, flight: Flight, operand: Operand, fragment: _Fragment) -> Source:
    """Return the source of a matrix: the elements' bits, indexed by warp, row and column."""
    parts, kind = parts_of(operand), _register_kind(fragment)
    if len(parts) != fragment.registers:
        raise unknown(instruction, f"a fragment has {fragment.registers} registers")
    sources = [flight.read(instruction, part, kind) for part in parts]
    width = _BITS[fragment.kind] // 8

    def read(idx: Index) -> Array:
        words = np.stack([source(idx) for source in sources], axis=1)
        elements = words.view(f"u{width}").reshape(-1, WARP, fragment.rows.shape[1])
        matrix = np.zeros((elements.shape[0], *fragment.shape), elements.dtype)
        matrix[:, fragment.rows, fragment.columns] = elements
        return matrix

    return read


def _writer(
    instruction: Instruction, flight: Flight, operand: Operand, fragment: _Fragment
) -> Callable[[Index, Array], None]:
    """Return a function that assigns a matrix, which has the form that `_reader` returns."""
    parts, kind = parts_of(operand), _register_kind(fragment)
    if len(parts) != fragment.registers:
        raise unknown(instruction, f"a fragment has {fragment.registers} registers")
    targets = [flight.write(instruction, part, kind) for part in parts]

    def write(idx: Index, matrix: Array) -> None:
        elements = np.ascontiguousarray(matrix[:, fragment.rows, fragment.columns])
        words = elements.reshape(elements.shape[0] * WARP, -1).view(f"u{fragment.register_bits // 8}")
        for i, target in enumerate(targets):
            target[idx] = words[:, i]

    return write


def _whole(flight: Flight, idx: Index) -> None:
    """Raise unless all lanes of the warps take part."""
    threads = flight.threads[idx]
    _, counts = np.unique(threads // WARP, return_counts=True)
    if (counts != WARP).any():
        raise ThreadFault(int(threads[0]), "a matrix is held by all lanes of a warp, and some do not take part")


def _values(bits: Array, kind: str) -> Array:
    """Return the values of a matrix's elements as float64 or int64."""
    if kind in {"f16", "bf16", "f32"}:
        return floats.widen(bits, kind)
    if kind == "tf32":  # the lower 13 bits are ignored
        return floats.widen(bits & np.uint32(0xFFFF_E000), "f32")
    if kind in EIGHT_BIT_KINDS:
        return widen8(bits, kind)
    if kind == "f64":
        return bits.view(np.float64)
    return bits.view(f"{'i' if kind[0] == 's' else 'u'}{bits.itemsize}").astype(np.int64)


def _multiplied(a: Array, b: Array, c: Array, kind: str, *, saturate: bool) -> Array:
    """Return the bits of a @ b + c by the rounding model; `kind` is the type of the result."""
    if kind == "s32":
        total = a @ b + c
        return (np.clip(total, -(2**31), 2**31 - 1) if saturate else total).astype(np.int32).view(np.uint32)
    if kind == "f64":
        fused = floats.exact64("fma", "rn")
        for k in range(a.shape[2]):
            left, right = (np.broadcast_to(part, c.shape) for part in (a[:, :, k, None], b[:, k, None, :]))
            c = fused(left.ravel(), right.ravel(), c.ravel()).reshape(c.shape)
        return np.ascontiguousarray(c).view(np.uint64)
    bits = floats.narrow(c, "f32")
    for k in range(a.shape[2]):
        product = a[:, :, k, None] * b[:, k, None, :]
        bits = floats.narrow(floats.sum_odd(floats.widen(bits, "f32"), product), "f32")
    return bits if kind == "f32" else floats.narrow(floats.widen(bits, "f32"), kind)


def _shape(instruction: Instruction) -> tuple[int, int, int]:
    found = [match for m in instruction.modifiers if (match := _SHAPE.match(m))]
    if len(found) != 1:
        raise unknown(instruction, "it has no shape")
    m, n, k = (int(extent) for extent in found[0].groups())
    return m, n, k


def _types(instruction: Instruction) -> list[str]:
    found = [m for m in instruction.modifiers if m in _BITS]
    known = {"sync", "aligned", "row", "col", "mma", "satfinite", "kind::f8f6f4", *_BITS}
    if {m for m in instruction.modifiers if not _SHAPE.match(m)} - known:
        raise unknown(instruction)
    return found


def _products(
    instruction: Instruction, flight: Flight, fragments: tuple[_Fragment, _Fragment, _Fragment, _Fragment]
) -> Step:
    """Bind the operands of mma and wmma.mma, given the layouts of D, A, B and C."""
    result, left, right, addend = fragments
    if result.kind not in {"f16", "f32", "f64", "s32"} or (
        result.kind in {"f64", "s32"} and addend.kind != result.kind
    ):
        raise unknown(instruction)
    d, a, b, c = instruction.operands
    sources = [
        _reader(instruction, flight, operand, fragment) for operand, fragment in ((a, left), (b, right), (c, addend))
    ]
    write = _writer(instruction, flight, d, result)
    saturate = "satfinite" in instruction.modifiers

    def step(idx: Index) -> None:
        _whole(flight, idx)
        x, y, z = (_values(source(idx), fragment.kind) for source, fragment in zip(sources, fragments[1:], strict=True))
        write(idx, _multiplied(x, y, z, result.kind, saturate=saturate))

    return step


def _multiply(instruction: Instruction, flight: Flight) -> Step:
    """Decode mma.sync."""
    m, n, k = _shape(instruction)
    types = _types(instruction)
    layouts = [modifier for modifier in instruction.modifiers if modifier in {"row", "col"}]
    if layouts != ["row", "col"] or len(types) != 4 or m not in {8, 16} or n != 8:
        raise unknown(instruction)
    to, left, right, addend = types
    if m == 8 and left in {"f16", "bf16"}:
        raise unknown(instruction, "of m8n8k4 only float64 is simulated")
    fragments = (
        _accumulator(to, m, n),
        _left(left, m, k),
        _right(right, k, n),
        _accumulator(addend, m, n),
    )
    return _products(instruction, flight, fragments)


def _wmma(instruction: Instruction, flight: Flight) -> Step:
    """Decode wmma.load, wmma.mma and wmma.store."""
    what = instruction.modifiers[0]
    if what == "mma":
        return _wmma_multiply(instruction, flight)
    if what not in {"load", "store"}:
        raise unknown(instruction)
    return _wmma_move(instruction, flight, loads=what == "load")


def _wmma_multiply(instruction: Instruction, flight: Flight) -> Step:
    m, n, k = _shape(instruction)
    types = _types(instruction)
    to, left, right, addend = types if len(types) == 4 else (types[0], "f16", "f16", types[1])
    extents = ((to, m, n), (left, m, k), (right, k, n), (addend, m, n))
    d, a, b, c = (
        _spread(kind, rows, columns, len(parts_of(operand)))
        for operand, (kind, rows, columns) in zip(instruction.operands, extents, strict=True)
    )
    return _products(instruction, flight, (d, a, b, c))


def _wmma_move(instruction: Instruction, flight: Flight, *, loads: bool) -> Step:
    m, n, k = _shape(instruction)
    matrix, kind = instruction.modifiers[1], instruction.modifiers[-1]
    registers, address, *rest = instruction.operands if loads else (
        instruction.operands[1], instruction.operands[0], *instruction.operands[2:]
    )  # fmt: skip
    if matrix not in set("abcd") or kind not in _BITS or not isinstance(address, Address):
        raise unknown(instruction)
    rows, columns = {"a": (m, k), "b": (k, n)}.get(matrix, (m, n))
    fragment = _spread(kind, rows, columns, len(parts_of(registers)))
    by_rows = "row" in instruction.modifiers
    stride = rest[0] if rest else Immediate(columns if by_rows else rows)
    steps = flight.read(instruction, stride, "u32")
    addresses = address_source(instruction, flight, address)
    space = SPACES[space_of(instruction.modifiers)](flight).at(instruction)
    size = _BITS[kind] // 8
    major, minor = (fragment.rows, fragment.columns) if by_rows else (fragment.columns, fragment.rows)

    def places(idx: Index, element: int) -> tuple[Array, Array]:
        threads = flight.threads[idx]
        lanes = threads % WARP
        offset = major[lanes, element] * steps(idx).astype(np.int64) + minor[lanes, element]
        return threads, addresses(idx) + (offset * size).astype(np.uint64)

    if loads:
        return _wmma_load(instruction, flight, registers, fragment, space, places)
    return _wmma_store(instruction, flight, registers, fragment, space, places)


Places = Callable[[Index, int], tuple[Array, Array]]


def _wmma_load(
    instruction: Instruction, flight: Flight, registers: Operand, fragment: _Fragment, space: Space, places: Places
) -> Step:
    write, size = _writer(instruction, flight, registers, fragment), _BITS[fragment.kind] // 8

    def step(idx: Index) -> None:
        _whole(flight, idx)
        found = [space.load(*places(idx, element), size)[:, 0] for element in range(fragment.rows.shape[1])]
        elements = np.stack(found, axis=1).reshape(-1, WARP, len(found))
        matrix = np.zeros((elements.shape[0], *fragment.shape), elements.dtype)
        matrix[:, fragment.rows, fragment.columns] = elements
        write(idx, matrix)

    return step


def _wmma_store(
    instruction: Instruction, flight: Flight, registers: Operand, fragment: _Fragment, space: Space, places: Places
) -> Step:
    read, size = _reader(instruction, flight, registers, fragment), _BITS[fragment.kind] // 8

    def step(idx: Index) -> None:
        _whole(flight, idx)
        matrix = read(idx)
        elements = matrix[:, fragment.rows, fragment.columns].reshape(-1, fragment.rows.shape[1])
        for element in range(elements.shape[1]):
            words = np.ascontiguousarray(elements[:, element : element + 1])
            space.store(*places(idx, element), size, words.view(f"u{word_bytes(size)}"))

    return step


def _rows_of_lanes(instruction: Instruction, operand: Operand) -> tuple[int, bool]:
    """Return how many 8x8 matrices of 16-bit elements are moved, and whether they are transposed."""
    count = len(parts_of(operand))
    known = {"sync", "aligned", "m8n8", "trans", "shared", "shared::cta", "b16", f"x{count}"}
    if set(instruction.modifiers) - known or f"x{count}" not in instruction.modifiers:
        raise unknown(instruction)
    return count, "trans" in instruction.modifiers


def _eight(kind: str = "f16") -> _Fragment:
    return _Fragment(kind, (8, 8), np.repeat(_GROUP[:, None], 2, axis=1), _QUAD[:, None] * 2 + np.arange(2))


def _move_matrices(instruction: Instruction, flight: Flight) -> Step:
    """Decode ldmatrix and stmatrix: lane 8 i + j has the address of row j of matrix i."""
    loads = instruction.opcode == "ldmatrix"
    registers, address = instruction.operands if loads else instruction.operands[::-1]
    count, turned = _rows_of_lanes(instruction, registers)
    if not isinstance(address, Address):
        raise unknown(instruction)
    addresses = address_source(instruction, flight, address)
    space = SPACES[space_of(instruction.modifiers)](flight).at(instruction)
    parts = parts_of(registers)
    fragment = _eight()
    writers = [_writer(instruction, flight, part, fragment) for part in parts] if loads else []
    readers = [] if loads else [_reader(instruction, flight, part, fragment) for part in parts]

    def step(idx: Index) -> None:
        _whole(flight, idx)
        threads = flight.threads[idx]
        giving = threads % WARP < 8 * count
        givers, places = threads[giving], addresses(idx)[giving]
        if loads:
            rows = space.load(givers, places, 16).view(np.uint16).reshape(-1, count, 8, 8)
            for i, write in enumerate(writers):
                write(idx, rows[:, i].transpose(0, 2, 1) if turned else rows[:, i])
            return
        matrices = [read(idx) for read in readers]
        rows = np.stack([m.transpose(0, 2, 1) if turned else m for m in matrices], axis=1)
        space.store(givers, places, 16, np.ascontiguousarray(rows).reshape(-1, 8).view(np.uint64))

    return step


def _turn_matrix(instruction: Instruction, flight: Flight) -> Step:
    """Decode movmatrix."""
    if instruction.modifiers != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise unknown(instruction)
    target, source = instruction.operands
    read, write = (
        _reader(instruction, flight, source, _eight()),
        _writer(instruction, flight, target, _eight()),
    )

    def step(idx: Index) -> None:
        _whole(flight, idx)
        write(idx, read(idx).transpose(0, 2, 1))

    return step


DECODERS: dict[str, Decoder] = {
    "mma": _multiply,
    "wmma": _wmma,
    "ldmatrix": _move_matrices,
    "stmatrix": _move_matrices,
    "movmatrix": _turn_matrix,
}
"""Instructions on matrices."""
