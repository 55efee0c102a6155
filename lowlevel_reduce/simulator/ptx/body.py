"""Decodes the bodies of a PTX kernel and of the functions that it calls into one list of instructions per kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from lowlevel_reduce.simulator.ptx.code import (
    TYPE_BYTES,
    Call,
    Copy,
    Guard,
    Instruction,
    KernelCode,
    ModuleVariable,
    Parameter,
    UnknownInstruction,
    Variable,
)
from lowlevel_reduce.simulator.ptx.declared import (
    END_OF_CODE,
    checked_alignment,
    checked_size,
    extent,
    launch_bounds,
    parameters_of,
    register_names,
)
from lowlevel_reduce.simulator.ptx.operands import operands, renamed

__all__ = ["KernelParser", "Source"]

_VARIABLE = re.compile(
    r"(?:\.(?:extern|visible|weak|common)\s+)*\.(shared|local|param)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)"
    r"((?:\[\d*\])*)$"
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.DOTALL)
_TOKEN = re.compile(
    r"(?P<mark>[{};])|(?P<label>[$%\w]+)\s*:(?!:)|(?P<location>\.(?:loc[ \t]|file)[^\n]*)|(?P<statement>[^\s;][^;]*);?"
)
_CALL = re.compile(
    r"(?:\((?P<outputs>[^)]*)\)\s*,\s*)?(?P<function>[$%\w]+)\s*(?:,\s*\((?P<inputs>[^)]*)\)\s*)?(?:,\s*(?P<type>\S+))?$"
)
_TABLE = re.compile(r"\.branchtargets\s+(.*)$")
_IGNORED = (".pragma", ".callprototype", ".calltargets")
_LAST = ("ret", "exit", "trap", "bra", "brx")
"""Instructions behind which no thread goes on, unless a guard keeps it from executing them."""
_SUPPLIED = ("vprintf", "__assertfail")
"""Functions without a body that the machine supplies."""

HEADS_KEPT, GUARDS_KEPT = 1024, 256


@lru_cache(HEADS_KEPT)
def _head(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the opcode and the modifiers."""
    opcode, *modifiers = text.split(".")
    return opcode, tuple(modifiers)


@lru_cache(GUARDS_KEPT)
def _guard(text: str) -> Guard:
    """Return the guard, given what follows the ``@``."""
    return Guard(text.lstrip("!"), text.startswith("!"))


@dataclass(frozen=True)
class Source:
    """The module around a kernel: its text, its functions with the ends of their bodies, its variables, its files."""

    text: str
    functions: Mapping[str, tuple[re.Match[str], int]]
    shared: list[str]
    variables: dict[str, ModuleVariable]
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Scope:
    """The names that are declared in one pair of braces, and the unique name of each in the kernel."""

    suffix: str
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Function:
    """A function in a kernel's code: where it starts, and its parameters."""

    start: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    inputs_at: int
    outputs_at: int
    depth: int


class KernelParser:
    """The parser of one kernel, its functions included.

    Attributes
    ----------
    source : Source
        The module.
    registers, variables : dict
        The registers and variables of all bodies, by unique names.
    places : list
        Lines of the PTX, and the places in the source from which what follows them was compiled.
    """

    def __init__(self, source: Source, entry: re.Match[str], end: int) -> None:
        self.source = source
        self.registers: dict[str, str] = {}
        self.variables: dict[str, Variable] = {}
        self.places: list[tuple[int, str, int]] = []
        self._entry = entry
        self._end = end
        self._bytes = {"shared": 0, "local": 0, "param": 0}
        self._dynamic: list[str] = []
        self._code: list[Instruction] = []
        self._functions: dict[str, _Function] = {}
        self._open: list[str] = []

    def kernel(self) -> KernelCode:
        """Return the parsed kernel."""
        entry = self._entry
        self._declare_shared(self.source.text[entry.end() : self._end])
        body = _Body(self, entry.end(), self._end, "")
        start = self._finished(body)
        for variable in self._dynamic:
            self.variables[variable] = Variable("shared", 0, -(-self._bytes["shared"] // 16) * 16)
        return KernelCode(
            name=entry["entry"],
            parameters=parameters_of(entry["parameters"] or "", self.line(entry.start())),
            static_shared_bytes=self._bytes["shared"],
            local_bytes=self._bytes["local"],
            **launch_bounds(entry["directives"], self.line(entry.start())),
            instructions=tuple(self._code),
            registers=self.registers,
            variables=self.variables,
            start=start,
            call_bytes=self._bytes["param"],
            call_depth=body.depth,
            module_variables=self.source.variables,
            places=tuple(sorted(self.places)),
        )

    def line(self, position: int) -> int:
        """Return the line of a place in the text."""
        return self.source.text.count("\n", 0, position) + 1

    def declare_variable(self, statement: str, line: int, suffix: str) -> tuple[str, str]:
        """Assign a place to a variable; return its name, and its unique name in the kernel."""
        match = _VARIABLE.search(statement)
        if match is None or match.group(3) not in TYPE_BYTES:
            raise UnknownInstruction(statement, line)
        space, alignment, kind, name, extents = match.groups()
        size = TYPE_BYTES[kind]
        if "[]" in extents:
            self._dynamic.append(name)
            return name, name
        step = checked_alignment(int(alignment or size), statement, line)
        for count in re.findall(r"\d+", extents):
            size *= int(count)
        place = self._place(space, size, step)
        checked_size(self._bytes[space], space, statement, line)
        self.variables[name + suffix] = Variable(space, size, place)
        return name, name + suffix

    def function(self, name: str) -> _Function | str:
        """Return a function, parsed when it is first called, or why it cannot be called."""
        if name in self._open:
            return "a function that calls itself, directly or through others, is not simulated"
        if name not in self.source.functions:
            return "" if name in _SUPPLIED else "it calls through an address, or a function without a body"
        if name not in self._functions:
            match, end = self.source.functions[name]
            self._open.append(name)
            self._functions[name] = self._parsed(name, match, end)
            self._open.pop()
        return self._functions[name]

    def _parsed(self, name: str, match: re.Match[str], end: int) -> _Function:
        line, suffix = self.line(match.start()), f"#{name}"
        self._declare_shared(self.source.text[match.end() : end])
        inputs, outputs = (parameters_of(match[part] or "", line) for part in ("inputs", "results"))
        body = _Body(self, match.end(), end, suffix)
        inputs_at, outputs_at = (self._place("param", extent(formal), 16) for formal in (inputs, outputs))
        checked_size(self._bytes["param"], "param", name, line)
        for formal, base in ((inputs, inputs_at), (outputs, outputs_at)):
            for parameter in formal:
                body.name_here(parameter.name, parameter.name + suffix)
                self.variables[parameter.name + suffix] = Variable("param", parameter.size, base + parameter.offset)
        return _Function(self._finished(body), inputs, outputs, inputs_at, outputs_at, body.depth)

    def _finished(self, body: _Body) -> int:
        """Read a body and append its code after that of the functions it calls; return where it starts.

        The threads at the lowest place run first. So threads in a function run before those that have returned from it,
        and all of them reconverge.
        """
        body.read()
        start = len(self._code)
        self._code.extend(body.resolved(start))
        return start

    def _place(self, space: str, size: int, step: int) -> int:
        offset = -(-self._bytes[space] // step) * step
        self._bytes[space] = offset + size
        return offset

    def _declare_shared(self, text: str) -> None:
        """Assign places to those shared variables of the module that the body uses."""
        for statement in self.source.shared:
            name = statement.split("[")[0].split()[-1]
            if name not in self.variables and name not in self._dynamic and re.search(rf"{re.escape(name)}\b", text):
                self.declare_variable(statement, 0, "")


class _Body:
    """The parser of one pair of outer braces."""

    def __init__(self, kernel: KernelParser, start: int, end: int, suffix: str) -> None:
        self.depth = 0
        self._kernel = kernel
        self._text = kernel.source.text
        self._start, self._end = start, end - 1
        self._suffix = suffix
        self._scopes = [_Scope(suffix)]
        self._renames = False
        self._opened = 0
        self._labels: dict[str, int] = {}
        self._tables: dict[str, list[str]] = {}
        self._label = ""
        self._code: list[Instruction] = []
        self._branches: dict[int, list[str]] = {}

    def name_here(self, name: str, unique: str) -> None:
        """Give a name a meaning in the innermost braces; in a kernel's outermost braces every name means itself."""
        if self._scopes[-1].suffix:
            self._scopes[-1].names[name] = unique
            self._renames = True

    def read(self) -> None:
        """Read the whole body."""
        text = self._text
        line, counted = self._kernel.line(self._start), self._start
        for match in _TOKEN.finditer(text, self._start, self._end):
            kind, start = match.lastgroup, match.start()
            if kind == "statement":
                line += text.count("\n", counted, start)
                counted = start
                statement = " ".join(match["statement"].split())
                if statement.startswith("."):
                    self._directive(statement, line)
                else:
                    self._instruction(statement, line)
            elif kind == "label":
                self._label = match["label"]
                self._labels[self._label] = len(self._code)
            elif kind == "mark":
                self._brace(match["mark"], start)
            elif match["location"].startswith(".loc"):
                self._note_source(match["location"], start)

    def _note_source(self, text: str, start: int) -> None:
        """Note from where in the source the following instructions were compiled."""
        numbers = text.split()[1:3]
        file = self._kernel.source.files.get(numbers[0]) if len(numbers) == 2 else None
        if file is not None and numbers[1].isdecimal():
            self._kernel.places.append((self._kernel.line(start), file, int(numbers[1])))

    def _brace(self, mark: str, start: int) -> None:
        if mark == "{":
            self._opened += 1
            self._scopes.append(_Scope(f"{self._suffix}#{self._opened}"))
        elif mark == "}":
            if len(self._scopes) == 1:
                raise UnknownInstruction(mark, self._kernel.line(start), "no brace is open")
            self._scopes.pop()
            self._renames = any(scope.names for scope in self._scopes)

    def resolved(self, base: int) -> list[Instruction]:
        """Return the instructions with the targets of their branches, the first of them at `base` in the kernel."""
        for place, labels in self._branches.items():
            self._code[place] = self._resolved(self._code[place], labels, base)
        if not self._ends():
            line = self._kernel.line(self._end)
            self._code.append(Instruction(END_OF_CODE, (), (), None, None, line, "the end of the code"))
        return self._code

    def _ends(self) -> bool:
        """Return whether no thread can come to the end of the code."""
        last = self._code[-1] if self._code else None
        going_on = last is None or last.guard is not None or last.opcode not in _LAST
        return not going_on and len(self._code) not in self._labels.values()

    def _directive(self, statement: str, line: int) -> None:
        registers, table = _REGISTERS.match(statement), _TABLE.match(statement)
        if registers:
            self._declare_registers(registers.group(1), registers.group(2), line)
        elif table:
            self._tables[self._label] = [label.strip() for label in table.group(1).split(",")]
        elif _VARIABLE.match(statement):
            self.name_here(*self._kernel.declare_variable(statement, line, self._scopes[-1].suffix))
        elif not statement.startswith(_IGNORED):
            raise UnknownInstruction(statement, line)

    def _declare_registers(self, kind: str, names: str, line: int) -> None:
        if kind not in TYPE_BYTES:
            raise UnknownInstruction(f".reg .{kind} {names}", line)
        for entry in (name.strip() for name in names.split(",")):
            members = register_names(entry, len(self._kernel.registers), line)
            suffix = self._scopes[-1].suffix
            if not suffix:
                self._kernel.registers.update(dict.fromkeys(members, kind))
                continue
            for member in members:
                self.name_here(member, member + suffix)
                self._kernel.registers[member + suffix] = kind

    def _instruction(self, statement: str, line: int) -> None:
        guard, body = None, statement
        if statement.startswith("@"):
            text, _, body = statement[1:].partition(" ")
            guard = _guard(text)
        head, _, rest = body.partition(" ")
        opcode, modifiers = _head(head)
        given = rest
        if opcode == "call":
            given = ""
        elif opcode == "bra":
            self._branches[len(self._code)] = [rest.strip()]
            given = ""
        elif opcode == "brx":
            given, _, table = (part.strip() for part in rest.partition(","))
            self._branches[len(self._code)] = [f"[{table}]"]
        try:
            found = operands(given)
        except ValueError as error:
            raise UnknownInstruction(statement, line, str(error)) from error
        if self._renames:
            found = tuple([renamed(operand, self._name) for operand in found])
            guard = guard and Guard(self._name(guard.register), guard.negated)
        if guard is not None and self._kernel.registers.get(guard.register) != "pred":
            raise UnknownInstruction(statement, line, f"{guard.register} is declared as no predicate")
        instruction = Instruction(opcode, modifiers, found, guard, None, line, statement)
        if opcode == "call":
            instruction = instruction._replace(call=self._call(instruction, rest), target=self._callee(rest))
        self._code.append(instruction)

    def _callee(self, rest: str) -> int | None:
        match = _CALL.match(rest.strip())
        found = self._kernel.function(match["function"]) if match else ""
        return found.start if isinstance(found, _Function) else None

    def _call(self, instruction: Instruction, rest: str) -> Call:
        match = _CALL.match(rest.strip())
        if match is None:
            raise UnknownInstruction(instruction.text, instruction.line)
        name, found = match["function"], self._kernel.function(match["function"])
        inputs, outputs = (self._arguments(instruction, match[part] or "") for part in ("inputs", "outputs"))
        if isinstance(found, str):
            self.depth = max(self.depth, 1)
            return Call(name, places=tuple(v.offset for v in inputs + outputs), problem=found)
        self.depth = max(self.depth, found.depth + 1)
        given = ((inputs, found.inputs), (outputs, found.outputs))
        if any([v.size for v in actual] != [p.size for p in formal] for actual, formal in given):
            return Call(name, problem=f"its arguments do not fit the parameters of {name}")
        into = [Copy(v.offset, found.inputs_at + p.offset, v.size) for v, p in zip(*given[0], strict=True)]
        back = [Copy(found.outputs_at + p.offset, v.offset, v.size) for v, p in zip(*given[1], strict=True)]
        return Call(name, tuple(into), tuple(back))

    def _arguments(self, instruction: Instruction, names: str) -> list[Variable]:
        found = [self._kernel.variables.get(self._name(name.strip())) for name in names.split(",") if name.strip()]
        if any(variable is None or variable.space != "param" for variable in found):
            raise UnknownInstruction(instruction.text, instruction.line, "an argument is no .param variable")
        return [variable for variable in found if variable is not None]

    def _name(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope.names:
                return scope.names[name]
        return name

    def _resolved(self, instruction: Instruction, labels: list[str], base: int) -> Instruction:
        table = self._tables.get(labels[0][1:-1]) if labels[0].startswith("[") else labels
        if table is None or any(label not in self._labels for label in table):
            raise UnknownInstruction(instruction.text, instruction.line, "its label is not in this kernel")
        targets = tuple(base + self._labels[label] for label in table)
        if instruction.opcode == "brx":
            return instruction._replace(targets=targets)
        return instruction._replace(target=targets[0])
