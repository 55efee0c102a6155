"""A module's variables: their sizes, initial values, addresses in these, and their places in a device's memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from lowlevel_reduce.simulator.ptx.code import TYPE_BYTES, ModuleVariable, Reference, UnknownInstruction
from lowlevel_reduce.simulator.ptx.declared import checked_alignment, checked_size
from lowlevel_reduce.simulator.ptx.operands import integer_of

__all__ = ["Memory", "module_variable", "place_variables"]

_VARIABLE = re.compile(
    r"(?P<linkage>(?:\.(?:visible|extern|weak|common) )*)\.(?P<space>global|const) (?:\.attribute ?\([^)]*\) ?)?"
    r"(?:\.align (?P<align>\d+) )?\.(?P<kind>\w+) (?P<name>[\w$]+) ?(?P<extents>(?:\[ ?\d* ?\] ?)*)"
    r"(?:= ?(?P<first>.*))?$"
)
_VALUE = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)U?$")
_REAL = re.compile(r"0[fFdD]([0-9a-fA-F]{8}|[0-9a-fA-F]{16})$")
_SYMBOL = re.compile(
    r"(?:(?P<mask>0[xX][fF]+0*) ?\( ?)?(?:generic ?\( ?)?(?P<name>[A-Za-z_$][\w$]*) ?\)?(?: ?(?P<add>[+-] ?\w+))? ?\)?$"
)


class Memory(Protocol):
    """The memory that variables are placed in."""

    def allocate(self, size_bytes: int, *, alignment: int = 256) -> int:
        """Return the address of newly allocated memory."""

    def free(self, address: int) -> None:
        """Free an allocation."""

    def write(self, address: int, data: bytes) -> None:
        """Set bytes."""

    def fill(self, address: int, byte: int, size: int) -> None:
        """Set every byte to one value."""


def module_variable(statement: str, line: int) -> ModuleVariable:
    """Parse a declaration whose words are separated by single spaces.

    Raises
    ------
    UnknownInstruction
        If it has an unknown form, or the variable is defined in another module.
    """
    match = _VARIABLE.match(statement)
    if match is None or match["kind"] not in TYPE_BYTES or "extern" in match["linkage"]:
        raise UnknownInstruction(statement, line)
    width = TYPE_BYTES[match["kind"]]
    tokens = [token.strip() for token in re.sub(r"[{}]", " ", match["first"] or "").split(",") if token.strip()]
    extents = re.findall(r"\d+", match["extents"])
    count = 1
    for extent in extents:
        count *= int(extent)
    if "[]" in match["extents"].replace(" ", ""):
        count *= len(tokens)
    size = checked_size(width * count, match["space"], statement, line)
    data, references = bytearray(width * len(tokens)), []
    for i, token in enumerate(tokens):
        found = _first_value(token, i * width, width)
        if found is None or i >= count:
            raise UnknownInstruction(statement, line, f"its initialiser has {token!r}")
        if isinstance(found, Reference):
            references.append(found)
        else:
            data[i * width : (i + 1) * width] = found
    return ModuleVariable(
        match["name"],
        match["space"],
        size,
        checked_alignment(int(match["align"] or width), statement, line),
        bytes(data),
        tuple(references),
    )


def _first_value(token: str, offset: int, width: int) -> bytes | Reference | None:
    if _VALUE.match(token):
        return (integer_of(token) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    real = _REAL.match(token)
    if real:
        return int(real[1], 16).to_bytes(width, "little") if len(real[1]) == 2 * width else None
    symbol = _SYMBOL.match(token)
    if symbol is None:
        return None
    mask = int(symbol["mask"], 16) if symbol["mask"] else 0xFF
    addend = _VALUE.match(symbol["add"].replace(" ", "").lstrip("+")) if symbol["add"] else None
    if symbol["add"] and addend is None:
        return None
    return Reference(
        offset, symbol["name"], integer_of(addend[0]) if addend else 0, width, (mask & -mask).bit_length() - 1
    )


def place_variables(variables: Mapping[str, ModuleVariable], memory: Memory) -> dict[str, int]:
    """Allocate variables in a device's memory, set them to their initial values and return their addresses.

    Raises
    ------
    UnknownInstruction
        If an initialiser uses an address that is not that of a variable of the module.
    """
    for variable in variables.values():
        for reference in variable.references:
            if reference.symbol not in variables:
                raise UnknownInstruction(reference.symbol, 0, f"{variable.name} is initialised with its address")
    addresses: dict[str, int] = {}
    try:
        for variable in variables.values():
            addresses[variable.name] = memory.allocate(max(variable.size, 1), alignment=variable.alignment)
        for variable in variables.values():
            _initialise(variable, addresses, memory)
    except BaseException:  # the host has no memory for them, or an interrupt comes
        for address in addresses.values():
            memory.free(address)
        raise
    return addresses


def _initialise(variable: ModuleVariable, addresses: Mapping[str, int], memory: Memory) -> None:
    data = bytearray(variable.data)
    for reference in variable.references:
        value = addresses[reference.symbol] + reference.addend >> reference.shift
        masked = value & ((1 << 8 * reference.size) - 1)
        data[reference.offset : reference.offset + reference.size] = masked.to_bytes(reference.size, "little")
    if variable.size:
        memory.fill(addresses[variable.name], 0, variable.size)
    if data:
        memory.write(addresses[variable.name], bytes(data))
