"""Inserts a user's CUDA C++ into generated source in such a way that a compile error names the user's own line."""

from __future__ import annotations

import re

from lowlevel_reduce.errors import CompileError

__all__ = ["body_of", "quoted", "uses"]

_CLOSING = {"(": ")", "[": "]", "{": "}"}
# Numbers are not removed. They are matched because a quote between their digits does not begin a character literal.
_NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\\\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?P<number>\b\d(?:'?[\w.])*)|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^\s*#", re.MULTILINE)
_BEFORE_BODY = re.compile(r"(?:\s*\b(?:mutable|constexpr|noexcept))*(?:\s*->[^()\[\]{};]*)?\s*\Z")


def uses(text: str, name: str) -> bool:
    """Tell whether the text uses a name, other than as a member or as a parameter of a lambda expression."""
    code = _code(text)
    named = rf"\b{name}\b"
    for parameters, begin, end in reversed(_lambdas(code)):
        if re.search(named, parameters):
            code = code[:begin] + code[end:]
    return re.search(rf"(?<!\.)(?<!->)(?<!::)\s*{named}", code) is not None


def body_of(text: str, file: str) -> str:
    """Return a function body: the user's statements, or a statement that returns the user's expression.

    Text with a ``return`` counts as statements, unless the ``return`` is inside a lambda expression, which may be part
    of an expression.
    """
    code = _code(text)
    for _, begin, end in reversed(_lambdas(code)):
        code = code[:begin] + code[end:]
    lines = quoted(text, file)
    return lines if re.search(r"\breturn\b", code) else f"return {lines};"


def quoted(text: str, file: str) -> str:
    """Return the user's text on lines of its own, which the compiler counts from 1 in a file called `file`.

    The code behind it is in a file "after" it: see `AFTER` in `lowlevel_reduce.compiler.nvrtc`.

    Raises
    ------
    CompileError
        If brackets are unbalanced: the compiler would report that somewhere behind the text.
    """
    if not text:
        return ""
    _check_brackets(text, file)
    name = file.replace("\\", "\\\\").replace('"', '\\"')
    return f'\n#line 1 "{name}"\n{text}\n#line 1 "after {name}"\n'


def _code(text: str) -> str:
    """Return the text without comments, strings and character literals, with the same number of lines."""
    return _NO_CODE.sub(lambda match: match["number"] or " " + "\n" * match[0].count("\n"), text)


def _lambdas(code: str) -> list[tuple[str, int, int]]:
    """Return each outermost lambda expression: its parameters, where they begin, and where its body ends."""
    found: list[tuple[str, int, int]] = []
    opened: list[int] = []
    pairs: dict[int, int] = {}  # the place of each opening bracket by that of its closing bracket
    for place, sign in enumerate(code):
        if sign in _CLOSING:
            opened.append(place)
        elif sign in _CLOSING.values() and opened:
            pairs[place] = begin = opened.pop()
            head = _head(code, begin, pairs) if sign == "}" else None
            if head is not None:
                found = [each for each in found if each[1] < head]  # lambda expressions inside it are part of it
                found.append((code[head:begin], head, place + 1))
    return found


def _head(code: str, brace: int, pairs: dict[int, int]) -> int | None:
    """Return where a lambda expression's parameters begin if that brace opens its body, else None."""
    end = _BEFORE_BODY.search(code, 0, brace)
    assert end is not None  # noqa: S101 - the pattern also matches the empty string
    last = end.start()
    if code[last - 1 : last] == ")":
        last = pairs.get(last - 1, 0)
    captures = code[:last].rstrip()
    return last if captures.endswith("]") and not captures.endswith("]]") else None


def _check_brackets(text: str, file: str) -> None:
    if _DIRECTIVE.search(text):
        return  # it is not known here which of the lines are compiled
    unclosed: list[tuple[str, int]] = []
    for number, line in enumerate(_code(text).split("\n"), start=1):
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
