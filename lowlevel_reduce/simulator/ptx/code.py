"""The parts of a parsed PTX module: kernels, instructions, calls and variables."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.simulator.ptx.operands import Operand

__all__ = [
    "TYPE_BYTES",
    "Call",
    "Copy",
    "Guard",
    "Instruction",
    "KernelCode",
    "Module",
    "ModuleVariable",
    "Parameter",
    "Reference",
    "UnknownInstruction",
    "Variable",
]

TYPE_BYTES = {
    **{f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)},
    **{"f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4, "f32": 4, "tf32": 4, "f32x2": 8, "f64": 8, "b128": 16, "pred": 1},
    **{"e4m3x2": 2, "e5m2x2": 2, "u16x2": 4, "s16x2": 4, "u8x4": 4, "s8x4": 4},
}
"""Size of each PTX type in bytes."""

_CAN_BE_ASYNCHRONOUS = frozenset({"cp", "st", "red"})


class UnknownInstruction(UnsupportedError):  # noqa: N818 - named for what was met
    """The simulator does not know an instruction or directive.

    Attributes
    ----------
    text : str
        The instruction.
    line : int
        Its line in the PTX.
    """

    def __init__(self, text: str, line: int, why: str = "") -> None:
        super().__init__(f"PTX line {line}: the simulator does not know {text!r}{why and ': ' + why}")
        self.text = text
        self.line = line
        self.why = why

    def __reduce__(self) -> tuple[type[UnknownInstruction], tuple[str, int, str]]:
        return type(self), (self.text, self.line, self.why)


@dataclass(frozen=True)
class Parameter:
    """A kernel's parameter and its place in the parameter block."""

    name: str
    size: int
    alignment: int
    offset: int


@dataclass(frozen=True)
class Variable:
    """A variable in shared or local memory, or a parameter of a call, and its place in its state space."""

    space: str
    size: int
    offset: int


@dataclass(frozen=True)
class Guard:
    """The predicate in front of an instruction."""

    register: str
    negated: bool


@dataclass(frozen=True)
class Copy:
    """Bytes that a call moves from one parameter to another."""

    source: int
    destination: int
    size: int


@dataclass(frozen=True)
class Call:
    """A call of a device function.

    Attributes
    ----------
    function : str
        Its name.
    inputs, outputs : tuple of Copy
        What is copied before and after the call, as places in the space of parameters.
    places : tuple of int
        The places of the caller's inputs and then of its outputs, for a function that the machine supplies.
    problem : str
        Why it cannot be executed; empty if it can.
    """

    function: str
    inputs: tuple[Copy, ...] = ()
    outputs: tuple[Copy, ...] = ()
    places: tuple[int, ...] = ()
    problem: str = ""


class Instruction(NamedTuple):
    """One decoded instruction: a tuple, since a kernel has thousands, and a dataclass takes four times as long to make.

    Attributes
    ----------
    opcode : str
        The part before the first dot.
    modifiers : tuple of str
        The parts after it in order, including the types.
    operands : tuple of Operand
        Destination first.
    guard : Guard or None
        The predicate under which it is executed.
    target : int or None
        Index of the instruction that a branch goes to.
    line : int
        Line in the PTX.
    text : str
        The instruction's text in the PTX.
    targets : tuple of int
        Indices of the instructions that an indexed branch goes to.
    call : Call or None
        The call, if the instruction is one.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    target: int | None
    line: int
    text: str
    targets: tuple[int, ...] = ()
    call: Call | None = None


@dataclass(frozen=True)
class Reference:
    """The address of another variable in an initialiser: its place, the variable, an addend, and which bits of it."""

    offset: int
    symbol: str
    addend: int
    size: int
    shift: int = 0


@dataclass(frozen=True)
class ModuleVariable:
    """A ``.global`` or ``.const`` variable of a module, what it is initialised with, and the addresses in that.

    What follows the `data` is zero.
    """

    name: str
    space: str
    size: int
    alignment: int
    data: bytes
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True)
class KernelCode:
    """One entry of a module.

    Attributes
    ----------
    name : str
        The entry's name.
    parameters : tuple of Parameter
        In order.
    static_shared_bytes, local_bytes : int
        Shared memory of a block, local memory of a thread.
    max_threads : int
        The most threads that a block may have.
    min_blocks : int
        How many blocks must fit on a multiprocessor, by the launch bounds.
    instructions : tuple of Instruction
        The code; that of called functions comes first.
    registers : dict
        Type of each register.
    variables : dict
        Shared and local variables and parameters of calls by name.
    start : int
        Index of the first instruction.
    call_bytes, call_depth : int
        Bytes of a thread's call parameters, and the most calls that can be nested.
    module_variables : dict
        The module's own variables by name.
    places : tuple
        In ascending order, lines of the PTX with the file and line of the source from which what follows was compiled.
    """

    name: str
    parameters: tuple[Parameter, ...]
    static_shared_bytes: int
    local_bytes: int
    max_threads: int
    min_blocks: int
    instructions: tuple[Instruction, ...]
    registers: dict[str, str]
    variables: dict[str, Variable]
    start: int = 0
    call_bytes: int = 0
    call_depth: int = 0
    module_variables: dict[str, ModuleVariable] = field(default_factory=dict)
    places: tuple[tuple[int, str, int], ...] = ()

    def source_of(self, line: int) -> str:
        """Return the place in the source of a line of the PTX, as ``file:line``; nothing where no table tells it."""
        number = bisect.bisect_right(self.places, line, key=lambda place: place[0])
        return "{1}:{2}".format(*self.places[number - 1]) if number else ""

    @cached_property
    def asynchronous(self) -> tuple[Instruction, ...]:
        """The instructions of mbarriers, and those that start and await asynchronous operations."""
        return tuple(
            instruction
            for instruction in self.instructions
            if instruction.opcode == "mbarrier"
            or (instruction.opcode in _CAN_BE_ASYNCHRONOUS and "async" in instruction.modifiers)
        )

    @property
    def parameter_bytes(self) -> int:
        """Size of the parameter block."""
        return max((parameter.offset + parameter.size for parameter in self.parameters), default=0)


@dataclass(frozen=True)
class Module:
    """A parsed PTX module: its target, e.g. ``"sm_90"``, its PTX version, its kernels and its variables by name."""

    target: str
    version: str
    kernels: dict[str, KernelCode]
    variables: dict[str, ModuleVariable] = field(default_factory=dict)
