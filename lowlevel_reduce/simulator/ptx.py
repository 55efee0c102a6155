"""The text of a PTX module, parsed once into kernels whose instructions are decoded into opcode, types and operands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.simulator.ptx_operands import Operand, operands, renamed

__all__ = ["Guard", "Instruction", "KernelCode", "Module", "Parameter", "UnknownInstruction", "Variable", "parse"]

TYPE_BYTES = {
    **{f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)},
    **{"f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4, "f32": 4, "f64": 8, "b128": 16, "pred": 1},
}
"""Size of each PTX type in bytes."""


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
    """A kernel's parameter and where it lies in the parameter block."""

    name: str
    size: int
    alignment: int
    offset: int


@dataclass(frozen=True)
class Variable:
    """A variable in shared or local memory and where it lies there."""

    space: str
    size: int
    offset: int


@dataclass(frozen=True)
class Guard:
    """The predicate in front of an instruction."""

    register: str
    negated: bool


@dataclass(frozen=True)
class Instruction:
    """One decoded instruction.

    Attributes
    ----------
    opcode : str
        What stands before the first dot.
    modifiers : tuple of str
        What stands after it, types among them, in order.
    operands : tuple of Operand
        Destination first.
    guard : Guard or None
        The predicate under which it is executed.
    target : int or None
        Index of the instruction that a branch goes to.
    line : int
        Line in the PTX.
    text : str
        The instruction as it stands there.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    target: int | None
    line: int
    text: str


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
        Threads a block may have.
    min_blocks : int
        Blocks that a multiprocessor shall hold.
    instructions : tuple of Instruction
        The code.
    registers : dict
        Type of each register.
    variables : dict
        Shared and local variables by name.
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

    @property
    def parameter_bytes(self) -> int:
        """Size of the parameter block."""
        return max((parameter.offset + parameter.size for parameter in self.parameters), default=0)


@dataclass(frozen=True)
class Module:
    """A parsed PTX module: its target, e.g. ``"sm_90"``, its PTX version and its kernels by name."""

    target: str
    version: str
    kernels: dict[str, KernelCode]


_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?([^{;]*)\{")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr[^,]*?\s)?([\w$]+)(?:\[(\d+)\])?\s*$")
_VARIABLE = re.compile(r"(?:\.extern\s+)?\.(shared|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)((?:\[\d*\])*)$")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.DOTALL)
_LABEL = re.compile(r"([$%\w]+)\s*:(?!:)")
_GUARD = re.compile(r"@(!?)([$%\w]+)\s+")
_IGNORED = (".pragma", ".branchtargets")


def parse(text: str) -> Module:
    """Parse a PTX module.

    Raises
    ------
    UnknownInstruction
        If something in a kernel has a form that is not known here.
    """
    plain = _without_comments(text)
    version, target = (re.search(rf"^\s*\.{what}\s+([\w.]+)", plain, re.MULTILINE) for what in ("version", "target"))
    kernels: dict[str, KernelCode] = {}
    outside, position = [], 0
    bodies = []
    for match in _ENTRY.finditer(plain):
        end = _closing_brace(plain, match.end())
        outside.append(plain[position : match.start()])
        bodies.append((match, end))
        position = end
    shared = [line.strip() for part in outside for line in part.split(";") if _VARIABLE.search(line.strip())]
    for match, end in bodies:
        kernels[match.group(1)] = _Body(plain, match, end, shared).kernel()
    return Module(target.group(1) if target else "", version.group(1) if version else "", kernels)


def _without_comments(text: str) -> str:
    """Blank out comments, so that lines keep their numbers."""
    text = re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", " ", match.group()), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def _closing_brace(text: str, position: int) -> int:
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, position):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


@dataclass
class _Scope:
    """The names that one pair of braces declares, and what each is called in the whole kernel."""

    names: dict[str, str] = field(default_factory=dict)
    families: dict[str, int] = field(default_factory=dict)


class _Body:
    """The parser of one kernel."""

    def __init__(self, text: str, entry: re.Match[str], end: int, shared: list[str]) -> None:
        self._text = text
        self._entry = entry
        self._end = end
        self._scopes = [_Scope()]
        self._opened = 0
        self._registers: dict[str, str] = {}
        self._variables: dict[str, Variable] = {}
        self._bytes = {"shared": 0, "local": 0}
        self._labels: dict[str, int] = {}
        self._code: list[tuple[Instruction, str | None]] = []
        self._dynamic: list[str] = []
        self._module_shared = shared

    def kernel(self) -> KernelCode:
        name, parameters, directives = self._entry.group(1), self._entry.group(2) or "", self._entry.group(3)
        for statement in self._module_shared:
            if re.search(
                rf"{re.escape(statement.split('[')[0].split()[-1])}\b", self._text[self._entry.end() : self._end]
            ):
                self._declare_variable(statement, 0)
        self._read()
        for variable in self._dynamic:
            self._variables[variable] = Variable("shared", 0, -(-self._bytes["shared"] // 16) * 16)
        threads = re.search(r"\.maxntid\s+([\d,\s]+)", directives)
        blocks = re.search(r"\.minnctapersm\s+(\d+)", directives)
        most = 1
        for size in threads.group(1).split(",") if threads else ["1024"]:
            most *= int(size)
        return KernelCode(
            name=name,
            parameters=_parameters(parameters, self._line(self._entry.start())),
            static_shared_bytes=self._bytes["shared"],
            local_bytes=self._bytes["local"],
            max_threads=most,
            min_blocks=int(blocks.group(1)) if blocks else 0,
            instructions=tuple(self._resolved(instruction, label) for instruction, label in self._code),
            registers=self._registers,
            variables=self._variables,
        )

    def _line(self, position: int) -> int:
        return self._text.count("\n", 0, position) + 1

    def _read(self) -> None:
        position, end = self._entry.end(), self._end - 1
        line, counted = self._line(position), position
        while True:
            while position < end and self._text[position].isspace():
                position += 1
            if position >= end:
                return
            line += self._text.count("\n", counted, position)
            counted = position
            position = self._statement(position, line)

    def _statement(self, position: int, line: int) -> int:
        """Take one brace, label, directive or instruction; return where the next one may start."""
        text = self._text
        if text[position] == "{":
            self._scopes.append(_Scope())
            self._opened += 1
            return position + 1
        if text[position] == "}":
            self._scopes.pop()
            return position + 1
        if text[position] == ";":
            return position + 1
        label = _LABEL.match(text, position)
        if label:
            self._labels[label.group(1)] = len(self._code)
            return label.end()
        if text.startswith((".loc ", ".loc\t", ".file"), position):
            return text.find("\n", position) + 1 or len(text)
        end = text.find(";", position)
        statement = " ".join(text[position:end].split())
        if statement.startswith("."):
            self._directive(statement, line)
        else:
            self._instruction(statement, line)
        return end + 1

    def _directive(self, statement: str, line: int) -> None:
        registers = _REGISTERS.match(statement)
        if registers:
            self._declare_registers(registers.group(1), registers.group(2), line)
        elif _VARIABLE.match(statement):
            self._declare_variable(statement, line)
        elif not statement.startswith(_IGNORED):
            raise UnknownInstruction(statement, line)

    def _declare_registers(self, kind: str, names: str, line: int) -> None:
        if kind not in TYPE_BYTES:
            raise UnknownInstruction(f".reg .{kind} {names}", line)
        suffix = f"#{self._opened}" if len(self._scopes) > 1 else ""
        for entry in (name.strip() for name in names.split(",")):
            family = re.fullmatch(r"([$%\w]+)<(\d+)>", entry)
            members = [f"{family.group(1)}{i}" for i in range(int(family.group(2)))] if family else [entry]
            for member in members:
                self._scopes[-1].names[member] = member + suffix
                self._registers[member + suffix] = kind

    def _declare_variable(self, statement: str, line: int) -> None:
        match = _VARIABLE.search(statement)
        if match is None or match.group(3) not in TYPE_BYTES:
            raise UnknownInstruction(statement, line)
        space, alignment, kind, name, extents = match.groups()
        size = TYPE_BYTES[kind]
        if "[]" in extents:
            self._dynamic.append(name)
            return
        step = int(alignment or size)
        for extent in re.findall(r"\d+", extents):
            size *= int(extent)
        offset = -(-self._bytes[space] // step) * step
        self._variables[name] = Variable(space, size, offset)
        self._bytes[space] = offset + size

    def _instruction(self, statement: str, line: int) -> None:
        guard, body = None, statement
        match = _GUARD.match(statement)
        if match:
            guard = Guard(self._name(match.group(2)), bool(match.group(1)))
            body = statement[match.end() :]
        head, _, rest = body.partition(" ")
        opcode, *modifiers = head.split(".")
        label = None
        if opcode == "bra":
            label, rest = rest.strip(), ""
        try:
            found = tuple(renamed(operand, self._name) for operand in operands(rest))
        except ValueError as error:
            raise UnknownInstruction(statement, line, str(error)) from error
        self._code.append((Instruction(opcode, tuple(modifiers), found, guard, None, line, statement), label))

    def _name(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope.names:
                return scope.names[name]
        return name

    def _resolved(self, instruction: Instruction, label: str | None) -> Instruction:
        if label is None:
            return instruction
        if label not in self._labels:
            raise UnknownInstruction(instruction.text, instruction.line, "its label is not in this kernel")
        return replace(instruction, target=self._labels[label])


def _parameters(text: str, line: int) -> tuple[Parameter, ...]:
    found, offset = [], 0
    for entry in (" ".join(part.split()) for part in text.split(",")):
        if not entry:
            continue
        match = _PARAMETER.match(entry)
        if match is None or match.group(2) not in TYPE_BYTES:
            raise UnknownInstruction(entry, line)
        alignment, kind, name, count = match.groups()
        size = TYPE_BYTES[kind] * int(count or 1)
        step = int(alignment or TYPE_BYTES[kind])
        offset = -(-offset // step) * step
        found.append(Parameter(name, size, step, offset))
        offset += size
    return tuple(found)
