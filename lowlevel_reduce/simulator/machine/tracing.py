"""Arithmetic on values that remember how they were made: a launch then tells in which order it added.

A traced value is a NaN whose payload is the number of a term: an element, or an operation on earlier terms. Loads,
stores, shuffles, selections and moves of bits carry it along as they carry any number, so that the machine needs no
change but here: floating-point additions, subtractions, products, extremes, conversions and atomics make new terms
instead of numbers. That is exact, and one launch tells everything. The alternative, to mask parts of a sum by large
values that cancel (M, -M and ones, as FPRev does on hardware that cannot be looked into), needs a launch for every
subtree, and a format in which M absorbs n ones.

What has no handle is a number, and is computed as always; a sum with a zero is the other operand. Comparisons see each
term's value. What else would compute with a term (a tensor core, a division, a conversion to an integer) is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic.basic import elementwise
from lowlevel_reduce.simulator.machine.arithmetic.float_operations import float_operation
from lowlevel_reduce.simulator.machine.arithmetic.matrix import DECODERS as MATRIX
from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.flight import Flight, Index, Source, Step, float_kind, unknown
from lowlevel_reduce.simulator.machine.memory.access import SPACES, space_of
from lowlevel_reduce.simulator.machine.memory.atomics import updating
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.machine.watch import Watch
from lowlevel_reduce.simulator.ptx.code import Instruction
from lowlevel_reduce.simulator.ptx.operands import Immediate, Name

__all__ = ["Term", "Tracing"]

_BASES = {"f16": 0x7E00, "f32": 0x7FC0_0000, "f64": 0x7FF8_0000_0000_0000}
_ROOM = {"f16": (1 << 9) - 1, "f32": (1 << 22) - 1, "f64": (1 << 51) - 1}  # the last number is the canonical NaN's
_BITS = {"f16": "u2", "f32": "u4", "f64": "u8"}
_FLOATS = {"f16": "f2", "f32": "f4", "f64": "f8"}
_DIGITS = {"f16": 11, "f32": 24, "f64": 53}
_TRACED = {"add", "sub", "mul", "fma", "mad", "min", "max", "neg", "abs"}
_OTHERS = {"div", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "copysign"}
_UPDATES = {"add", "min", "max"}


@dataclass(frozen=True)
class Term:
    """What a traced value is.

    Attributes
    ----------
    operation : str
        "element", "number", "add", "sub", "mul", "fma", "min", "max", "neg", "abs", or "round" for a conversion to a
        type with fewer digits.
    arguments : tuple of int
        The numbers of the terms that it is made of; of an element its place.
    kind : str
        The PTX type of the result.
    value : float
        What it is worth, for comparisons: of element i, i + 1.
    """

    operation: str
    arguments: tuple[int, ...]
    kind: str
    value: float


class Tracing(Watch):
    """The terms of all launches that it watches.

    Attributes
    ----------
    terms : list of Term
        Every term; what it is made of stands before it. Number 0 is not used.
    """

    def __init__(self) -> None:
        self.terms: list[Term] = [Term("number", (), "f64", 0.0)]

    def elements(self, count: int, kind: str) -> Array:
        """Return the elements 0 to count - 1 as bits of a PTX type, to be put into memory.

        Raises
        ------
        ValueError
            If the type has no room for so many terms.
        """
        first = len(self.terms)
        self.terms += [Term("element", (place,), kind, place + 1.0) for place in range(count)]
        if first + count > _ROOM[kind]:
            raise ValueError(f"{kind} has room for {_ROOM[kind]} terms, and {count} elements need more")
        bits: Array = (np.arange(first, first + count) + _BASES[kind]).astype(_BITS[kind])
        return bits

    def number_of(self, bits: int, kind: str) -> int | None:
        """Return the number of the term that these bits of a type stand for; None for a plain number."""
        place = bits - _BASES[kind]
        return place if 0 < place < len(self.terms) and place < _ROOM[kind] else None

    # the instructions

    def bound(self, instruction: Instruction, flight: Flight, decoder: Callable[[Instruction, Flight], Step]) -> Step:
        """Return a step that makes terms, for instructions that compute with floating-point numbers."""
        opcode, kind = instruction.opcode, instruction.modifiers[-1] if instruction.modifiers else ""
        if opcode in MATRIX and opcode not in {"ldmatrix", "stmatrix", "movmatrix"}:
            raise unknown(instruction, "a tensor core adds in an order of its own, which cannot be traced")
        if opcode in {"atom", "red"} and kind in _BASES and _UPDATES & set(instruction.modifiers):
            return self._atomic(instruction, flight, kind)
        if opcode in _TRACED and kind in _BASES:
            return self._arithmetic(instruction, flight, kind)
        if opcode == "cvt" and float_kind(kind):
            return self._conversion(instruction, flight, decoder)
        if opcode in {"setp", "set"} and kind in _BASES:
            return self._comparison(instruction, flight, decoder, kind)
        if (opcode in _OTHERS or opcode in _TRACED) and float_kind(kind):
            return self._refusing(instruction, flight, decoder, kind)
        return decoder(instruction, flight)

    def _arithmetic(self, instruction: Instruction, flight: Flight, kind: str) -> Step:
        plain = float_operation(instruction.opcode, kind, instruction.modifiers[:-1])
        if plain is None:
            raise unknown(instruction)
        sources = [flight.read(instruction, operand, kind) for operand in instruction.operands[1:]]
        function = self._traced(instruction.opcode, kind, plain)
        return elementwise(flight.write(instruction, instruction.operands[0], kind), function, sources)

    def _atomic(self, instruction: Instruction, flight: Flight, kind: str) -> Step:
        (operation,) = _UPDATES & set(instruction.modifiers)
        plain = float_operation(operation, kind, ())
        if plain is None:
            raise unknown(instruction)
        memory = SPACES[space_of(instruction.modifiers)](flight).at(instruction)
        return updating(instruction, memory, self._traced(operation, kind, plain))

    def _traced(self, operation: str, kind: str, plain: Callable[..., Array]) -> Callable[..., Array]:
        """Return an operation on arrays whose result is a term wherever an operand is one."""

        def apply(*arguments: Array) -> Array:
            columns = [_as_bits(argument, kind) for argument in arguments]
            traced = np.flatnonzero(np.any([self._are_terms(bits, kind) for bits in columns], axis=0))
            result = np.ascontiguousarray(plain(*arguments))
            bits = _as_bits(result, kind)
            if traced.size:
                bits = bits.copy()
                for i in traced.tolist():
                    bits[i] = self._made(operation, kind, [int(column[i]) for column in columns])
            return bits.view(result.dtype)

        return apply

    def _conversion(
        self, instruction: Instruction, flight: Flight, decoder: Callable[[Instruction, Flight], Step]
    ) -> Step:
        *_, to, kind = instruction.modifiers
        if to not in _BASES or kind not in _BASES or len(instruction.operands) != 2:
            return self._refusing(instruction, flight, decoder, kind)
        plain, source = decoder(instruction, flight), flight.read(instruction, instruction.operands[1], kind)
        target = flight.write(instruction, instruction.operands[0], to)

        def step(idx: Index) -> None:
            bits = _as_bits(source(idx), kind).copy()  # the destination may be the source
            plain(idx)
            traced = np.flatnonzero(self._are_terms(bits, kind))
            if traced.size:
                made = [self._converted(int(bits[i]) - _BASES[kind], kind, to) for i in traced.tolist()]
                threads = flight.threads[idx][traced]
                target[threads] = np.array(made, _BITS[to]).view(target.dtype)

        return step

    def _comparison(
        self, instruction: Instruction, flight: Flight, decoder: Callable[[Instruction, Flight], Step], kind: str
    ) -> Step:
        """Bind a comparison to what terms are worth."""
        worth = _Worth(self, flight)
        return decoder(instruction, worth)  # type: ignore[arg-type]

    def _refusing(
        self, instruction: Instruction, flight: Flight, decoder: Callable[[Instruction, Flight], Step], kind: str
    ) -> Step:
        """Return the plain step, before which a thread with a term is at fault."""
        step = decoder(instruction, flight)
        if kind not in _BASES:  # packed types: what they are made of is not looked into
            return step
        operands = [each for each in instruction.operands[1:] if isinstance(each, (Name, Immediate))]
        sources = [flight.read(instruction, operand, kind) for operand in operands]

        def refused(idx: Index) -> None:
            for source in sources:
                terms = self._are_terms(_as_bits(source(idx), kind), kind)
                if terms.any():
                    thread = int(flight.threads[idx][int(np.flatnonzero(terms)[0])])
                    raise ThreadFault(thread, f"{instruction.opcode} of elements is no summation that can be traced")
            step(idx)

        return refused

    # the terms

    def worth(self, values: Array, kind: str) -> Array:
        """Return values of a type with what terms are worth in their places."""
        bits = _as_bits(values, kind)
        traced = np.flatnonzero(self._are_terms(bits, kind))
        if not traced.size:
            return values
        found: Array = bits.copy().view(_FLOATS[kind])
        found[traced] = [self.terms[int(bits[i]) - _BASES[kind]].value for i in traced.tolist()]
        seen: Array = found.view(values.dtype)
        return seen

    def _are_terms(self, bits: Array, kind: str) -> Array:
        place = bits.astype(np.int64) - _BASES[kind]  # of float64, too: positive NaNs fit
        found: Array = (place > 0) & (place < min(len(self.terms), _ROOM[kind]))
        return found

    def _made(self, operation: str, kind: str, bits: list[int]) -> int:
        """Return the bits of a new term, or of an operand where the operation leaves that as it is."""
        places = [self._place(each, kind) for each in bits]
        values = [self.terms[place].value for place in places]
        zeros = [self.terms[place].operation == "number" and self.terms[place].value == 0 for place in places]
        if operation == "add" and any(zeros):
            return self._coded(places[zeros.index(True) ^ 1], kind)
        if operation == "sub" and zeros[1]:
            return self._coded(places[0], kind)
        if operation in {"fma", "mad"}:
            return self._fused(kind, places, values, zeros)
        if operation == "mul" and 1.0 in values:
            one = values.index(1.0)
            if self.terms[places[one]].operation == "number":
                return self._coded(places[one ^ 1], kind)
        return self._coded(self._new(operation, tuple(places), kind, _value(operation, values)), kind)

    def _fused(self, kind: str, places: list[int], values: list[float], zeros: list[bool]) -> int:
        """Return a product and a sum, which are a plain sum where a factor is the number 1."""
        ones = [i for i in (0, 1) if self.terms[places[i]].operation == "number" and values[i] == 1.0]
        if ones and zeros[2]:
            return self._coded(places[ones[0] ^ 1], kind)
        if ones:
            pair = (places[ones[0] ^ 1], places[2])
            return self._coded(self._new("add", pair, kind, sum(self.terms[p].value for p in pair)), kind)
        return self._coded(self._new("fma", tuple(places), kind, values[0] * values[1] + values[2]), kind)

    def _converted(self, place: int, kind: str, to: str) -> int:
        if _DIGITS[to] < _DIGITS[kind] and self.terms[place].kind == kind and self.terms[place].operation != "element":
            place = self._new("round", (place,), to, self.terms[place].value)
        return self._coded(place, to)

    def _place(self, bits: int, kind: str) -> int:
        """Return the number of the term of these bits; a plain number becomes a term here."""
        found = self.number_of(bits, kind)
        if found is not None:
            return found
        value = float(np.array([bits], _BITS[kind]).view(_FLOATS[kind])[0])
        return self._new("number", (), kind, value)

    def _new(self, operation: str, arguments: tuple[int, ...], kind: str, value: float) -> int:
        self.terms.append(Term(operation, arguments, kind, value))
        return len(self.terms) - 1

    def _coded(self, place: int, kind: str) -> int:
        if place >= _ROOM[kind]:
            raise ThreadFault(0, f"{kind} has no room for more than {_ROOM[kind]} terms: use fewer elements")
        return _BASES[kind] + place


class _Worth:
    """A flight whose operands are what they are worth; all else is the flight's own."""

    def __init__(self, tracing: Tracing, flight: Flight) -> None:
        self._tracing = tracing
        self._flight = flight

    def __getattr__(self, name: str) -> Any:
        return getattr(self._flight, name)

    def read(self, instruction: Instruction, operand: Any, kind: str) -> Source:
        source = self._flight.read(instruction, operand, kind)
        return (lambda idx: self._tracing.worth(source(idx), kind)) if kind in _BASES else source


def _as_bits(values: Array, kind: str) -> Array:
    found: Array = np.ascontiguousarray(values).view(_BITS[kind])
    return found


def _value(operation: str, values: list[float]) -> float:
    functions: dict[str, Callable[..., float]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "min": min,
        "max": max,
        "neg": lambda a: -a,
        "abs": abs,
    }
    return float(functions[operation](*values))
