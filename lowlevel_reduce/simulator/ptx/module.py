"""Parses the text of a PTX module into kernels, whose instructions are decoded into opcode, types and operands.

What is parsed is kept in the process, not on disk: to read 71 modules back from pickles took 3.3 s where to parse their
texts took 1.7 s, since most of either is the allocation of objects, of which parsed modules share more.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from lowlevel_reduce.simulator.ptx.body import KernelParser, Source
from lowlevel_reduce.simulator.ptx.code import KernelCode, Module, ModuleVariable, UnknownInstruction
from lowlevel_reduce.simulator.ptx.variables import module_variable

__all__ = ["parse"]

MODULES_KEPT = 64
"""How many parsed texts are kept: programs load the same kernels into one context after another."""

_CODE = re.compile(
    r"\.entry\s+(?P<entry>[\w$]+)\s*(?:\((?P<parameters>[^)]*)\))?(?P<directives>[^{;]*)\{"
    r"|\.func\s*(?:\.\w+\s*)*(?:\((?P<results>[^)]*)\)\s*)?(?P<function>[\w$]+)\s*(?:\((?P<inputs>[^)]*)\))?"
    r"[^{;]*(?P<end>[{;])"
)

_HEAD = {what: re.compile(rf"^\s*\.{what}\s+([\w.]+)", re.MULTILINE) for what in ("version", "target")}
_FILE = re.compile(r"^\s*\.file\s+(\d+)\s+\"([^\"]*)\"", re.MULTILINE)
_VARIABLE = re.compile(r"(?:\.(?:extern|visible|weak|common)\s+)*\.(global|const|shared)\s.*", re.DOTALL)


@lru_cache(MODULES_KEPT)
def parse(text: str) -> Module:
    """Parse a PTX module; equal texts give the same object, which must not be changed.

    Raises
    ------
    UnknownInstruction
        If a kernel contains something of an unknown form.
    """
    plain = _without_comments(text)
    target = _HEAD["target"].search(plain)
    if target is None:
        return _parsed(plain)
    # The code for one architecture is often that for another: then their modules have the same kernels.
    module = _parsed(plain[: target.start(1)] + plain[target.end(1) :])
    return replace(module, target=target[1])


@lru_cache(MODULES_KEPT)
def _parsed(plain: str) -> Module:
    """Parse a module whose text names no target and has no comments."""
    version = _HEAD["version"].search(plain)
    bodies, outside = _bodies(plain)
    shared, variables = _variables(plain, outside)
    functions = {match["function"]: (match, end) for match, end in bodies if match["function"]}
    source = Source(plain, functions, shared, variables, dict(_FILE.findall(plain)))
    kernels = {match["entry"]: _kernel(source, match, end) for match, end in bodies if match["entry"]}
    return Module("", version[1] if version else "", kernels, variables)


def _kernel(source: Source, entry: re.Match[str], end: int) -> KernelCode:
    parser = KernelParser(source, entry, end)
    try:
        return parser.kernel()
    except RecursionError:
        why = "its functions call each other deeper than the simulator can follow"
        raise UnknownInstruction(f".entry {entry['entry']}", parser.line(entry.start()), why) from None


def _bodies(text: str) -> tuple[list[tuple[re.Match[str], int]], list[tuple[int, int]]]:
    """Return entries and functions with the ends of their bodies, and the ranges of the text between them."""
    bodies, outside, position = [], [], 0
    while match := _CODE.search(text, position):
        outside.append((position, match.start()))
        declared = match["end"] == ";"
        position = match.end() if declared else _closing_brace(text, match.end())
        if position < 0:
            line = text.count("\n", 0, match.start()) + 1
            raise UnknownInstruction(" ".join(match[0].split()), line, "its braces are not closed")
        if not declared:
            bodies.append((match, position))
    outside.append((position, len(text)))
    return bodies, outside


def _variables(text: str, outside: list[tuple[int, int]]) -> tuple[list[str], dict[str, ModuleVariable]]:
    """Return the declarations of shared variables, and the module's own variables."""
    shared, found = [], {}
    for start, end in outside:
        for part in re.finditer(r"[^;]+", text[start:end]):
            statement = _VARIABLE.search(part[0])
            if statement is None:
                continue
            plain = " ".join(statement[0].split())
            if statement[1] == "shared":
                shared.append(plain)
                continue
            variable = module_variable(plain, text.count("\n", 0, start + part.start() + statement.start()) + 1)
            found[variable.name] = variable
    return shared, found


def _without_comments(text: str) -> str:
    """Remove comments in such a way that lines keep their numbers."""
    text = re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", " ", match.group()), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def _closing_brace(text: str, position: int) -> int:
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, position):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return -1
