"""A user's CUDA C++ in generated source, so that a compile error names the user's own line."""

from __future__ import annotations

import re

from lowlevel_reduce.errors import CompileError

__all__ = ["body_of", "quoted", "uses"]

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_DIRECTIVE = re.compile(r"^\s*#", re.MULTILINE)


def uses(text: str, name: str) -> bool:
    """Tell whether a name stands in the text."""
    return re.search(rf"\b{name}\b", text) is not None


def body_of(text: str, file: str) -> str:
    """Return a function's body of the user's statements, or of the one that returns the user's expression."""
    lines = quoted(text, file)
    return lines if uses(text, "return") else f"return {lines};"


def quoted(text: str, file: str) -> str:
    """Return the user's text in lines of its own, which the compiler counts from 1 in a file of that name.

    What follows stands in a file "after" it: see `AFTER` in `lowlevel_reduce.compiler.nvrtc`.

    Raises
    ------
    CompileError
        If a bracket lacks its other one: the compiler would see that somewhere behind the text.
    """
    if not text:
        return ""
    _check_brackets(text, file)
    name = file.replace("\\", "\\\\").replace('"', '\\"')
    return f'\n#line 1 "{name}"\n{text}\n#line 1 "after {name}"\n'


def _check_brackets(text: str, file: str) -> None:
    if _DIRECTIVE.search(text):
        return  # which of the lines are compiled is not known here
    code = _NO_CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    unclosed: list[tuple[str, int]] = []
    for number, line in enumerate(code.split("\n"), start=1):
        for sign in line:
            if sign in _CLOSING:
                unclosed.append((sign, number))
            elif sign in _CLOSING.values() and (not unclosed or _CLOSING[unclosed.pop()[0]] != sign):
                raise _mistake(text, file, number, f'"{sign}" closes no bracket')
    if unclosed:
        sign, number = unclosed[-1]
        raise _mistake(text, file, number, f'"{sign}" is not closed')


def _mistake(text: str, file: str, line: int, what: str) -> CompileError:
    return CompileError(file, f"{file}({line}): error: {what}", file, line, text.split("\n")[line - 1])
