"""A kernel's PTX: the part that executes, with the lines of CUDA C++ that it was compiled from."""

from __future__ import annotations

import re

from lowlevel_reduce.cli.sass import Line

__all__ = ["listing"]

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')
_PLACE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_LABEL_OF_PLACES = re.compile(r"^\$L__(?:tmp|func_begin|func_end)\d+:")
_GLOBAL = re.compile(r"^\.(?:global|const)\b[^=;]*?\s([\w$]+)(?:\[\d*\])?\s*(?:=|;)")


def listing(text: str) -> list[Line]:
    """Return the lines of PTX that matter, each with the number of its line in place of an address.

    Left out are comments, empty lines, variables that no code names, such as a header's constants, and tables for
    debuggers. Numbers are those of the PTX that was compiled without ``-lineinfo``, as the simulator runs it: with the
    option, nothing is added but directives and labels that name places, which are left out and not counted.
    """
    files = {found[1]: found[2] for line in text.splitlines() if (found := _FILE.match(line))}
    lines: list[Line] = []
    place: tuple[str, int] | None = None
    number = 0
    for line in text.splitlines():
        if line.lstrip().startswith((".file", ".section")):
            break  # both stand behind all code
        found = _PLACE.match(line)
        if found:
            place = (files[found[1]], int(found[2])) if int(found[2]) else None
            continue
        if _LABEL_OF_PLACES.match(line):
            continue
        number += 1
        if line.strip() and not line.lstrip().startswith("//"):
            lines.append(Line(line.expandtabs(4).rstrip(), number, place if line[:1] == "\t" else None))
    return [line for line in lines if _is_named(line.text, text)]


def _is_named(line: str, text: str) -> bool:
    """Return whether a line is anything but the definition of a variable that is named nowhere else."""
    variable = _GLOBAL.match(line)
    return variable is None or len(re.findall(rf"(?<![\w$]){re.escape(variable[1])}(?![\w$])", text)) > 1
