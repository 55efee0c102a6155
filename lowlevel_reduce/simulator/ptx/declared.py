"""What PTX declares, checked against what a GPU has: registers, sizes, alignments, parameters, launch bounds.

A machine in NumPy would take any number, and the host all the time and memory for it.
"""

from __future__ import annotations

import re

from lowlevel_reduce.simulator.ptx.code import TYPE_BYTES, Parameter, UnknownInstruction

__all__ = [
    "END_OF_CODE",
    "MOST_BYTES",
    "checked_alignment",
    "checked_size",
    "extent",
    "launch_bounds",
    "parameters_of",
    "register_names",
]

END_OF_CODE = "end of code"
"""The opcode of what stands behind the code of a kernel or function that does not end by itself."""

MOST_REGISTERS = 1 << 20
"""Registers of a kernel in PTX, of which compilers use one for almost every value: this package's have thousands."""

MOST_BYTES = {"shared": 1 << 18, "local": 1 << 19, "param": 1 << 15, "global": 1 << 30, "const": 1 << 16}
"""The most bytes of each state space: of a block, a thread, the parameters, and a variable of the module."""

MOST_ALIGNMENT = 1 << 16
MOST_THREADS = 1024

_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr[^,]*?\s)?([\w$]+)(?:\[(\d+)\])?\s*$")
_FAMILY = re.compile(r"([$%\w]+)<(\d+)>")
_NAME = re.compile(r"[$%\w]+")


def checked_alignment(alignment: int, text: str, line: int) -> int:
    """Return an alignment in bytes if it is a power of two that can be had."""
    if not 1 <= alignment <= MOST_ALIGNMENT or alignment & (alignment - 1):
        raise UnknownInstruction(text, line, f"an alignment is a power of two up to {MOST_ALIGNMENT}, not {alignment}")
    return alignment


def checked_size(size: int, space: str, text: str, line: int) -> int:
    """Return a size in bytes if a GPU has so many in that state space."""
    if size > MOST_BYTES[space]:
        raise UnknownInstruction(text, line, f"{size} bytes of {space} memory are more than {MOST_BYTES[space]}")
    return size


def register_names(entry: str, others: int, line: int) -> list[str]:
    """Return the names of the registers of one entry of a declaration, such as ``%r<4>``, beside so many others."""
    family = _FAMILY.fullmatch(entry)
    count = int(family[2]) if family else 1
    if others + count > MOST_REGISTERS:
        raise UnknownInstruction(entry, line, f"{others + count} registers are more than {MOST_REGISTERS}")
    if family:
        return [f"{family[1]}{i}" for i in range(count)]
    if not _NAME.fullmatch(entry):
        raise UnknownInstruction(entry, line, "it is no register's name")
    return [entry]


def launch_bounds(directives: str, line: int) -> dict[str, int]:
    """Return the launch bounds of an entry."""
    threads = re.search(r"\.maxntid\s+([\d,\s]+)", directives)
    blocks = re.search(r"\.minnctapersm\s+(\d+)", directives)
    most = 1
    for size in threads[1].split(",") if threads else [str(MOST_THREADS)]:
        most *= int(size) if size.strip().isdecimal() else 0
    if not 1 <= most <= MOST_THREADS:
        raise UnknownInstruction(" ".join(directives.split()), line, f"a block has 1 to {MOST_THREADS} threads")
    return {"max_threads": most, "min_blocks": int(blocks[1]) if blocks else 0}


def extent(parameters: tuple[Parameter, ...]) -> int:
    """Return the size of a parameter block in bytes."""
    return max((parameter.offset + parameter.size for parameter in parameters), default=0)


def parameters_of(text: str, line: int) -> tuple[Parameter, ...]:
    """Parse a list of parameters."""
    found: list[Parameter] = []
    offset = 0
    for entry in (" ".join(part.split()) for part in text.split(",")):
        if not entry:
            continue
        match = _PARAMETER.match(entry)
        if match is None or match[2] not in TYPE_BYTES:
            raise UnknownInstruction(entry, line)
        alignment, kind, name, count = match.groups()
        size = TYPE_BYTES[kind] * int(count or 1)
        step = checked_alignment(int(alignment or TYPE_BYTES[kind]), entry, line)
        offset = -(-offset // step) * step
        found.append(Parameter(name, size, step, offset))
        offset = checked_size(offset + size, "param", entry, line)
    return tuple(found)
