"""Texts made of tokens at random whose includes are known by construction, read as the compiler layer reads sources."""

from __future__ import annotations

import random
from collections.abc import Iterator

from lowlevel_reduce.compiler.preprocessing import RefusedTextError, read
from tests.fuzz.tally import Tally

__all__ = ["read_soups", "soup"]

_TOKENS = (
    "x", "_y", "R", "u8", "L", "include", "define", "__device__", "__hadd", "0", "1'000", ".5e+3", "0x1'fp-2", "1R",
    "..1", "@", "`", "~", "+", "-", "*", "/", "%", "#", "<", ">", "<:", "(", ")", "{", "}", ";", ",", ".", "->", "::",
    "'\"'", "'\\''", "'//'", "'/*'", "u8'\"'", '""', "\"'\"", '"/*"', '"//"', '"*/"', '"\\""', '"#include"', 'xR"("',
    '""R"("', '1R"("', "'a'_R\"(\"",
)  # fmt: skip
_RAW = ('R"(', ')"'), ('u8R"-(', ')-"'), ('LR"ab(', ')ab"')
_IN_RAW = ('\n#include "no.cuh"\n', "\\\n", '"', ")", "/*", "'", "//", "\n", " R", "(")
_IN_COMMENTS = ('#include "no.cuh"', '"', "'", 'R"(', "//", "/*", " * ", "x")
_SPACES = (" ", "\t", "  ", "\v", "\f", " \r ")
_SPLICES = ("\\\n", "\\\r\n", "\\\n\\\n")
_OTHER_DIRECTIVES = ("define A", "undef A", "pragma x", "ifdef A\n#endif", "if 0\n#endif", "", "error", "line 7")
_MACRO_OPERANDS = ("HEADER", "__FILE__", "MAKE(no.cuh)", 'u8"no.cuh"')

_Part = tuple[str, bool]  # a text, and whether it may be spliced


def soup(rng: random.Random, *, refused: bool = False) -> tuple[str, list[str]]:
    """Return a text and the names of the headers that it includes, in order.

    With `refused`, one include more names its header by a macro, so that the text has to be refused.
    """
    names: list[str] = []
    parts: list[_Part] = []
    kinds = [rng.choice(("code", "code", "include", "directive", "ask")) for _ in range(rng.randrange(1, 12))]
    if refused:
        kinds.insert(rng.randrange(len(kinds) + 1), "macro")
    for kind in kinds:
        if kind == "code":
            parts += _code(rng)
            continue
        begin = _gap(rng, lines=True)
        if kind == "include":
            name = f"h{rng.randrange(100)}.cuh"
            names.append(name)
            quoted = rng.choice((f"<{name}>", f'"{name}"', f"<a//{name}>", f'"/*{name}"'))
            names[-1] = quoted[1:-1]
            parts += [*begin, *_hash(rng), *_gap(rng), ("include", True), *_gap(rng), (quoted, True), *_gap(rng)]
        elif kind == "ask":
            name = f"asked{rng.randrange(100)}.cuh"
            names.append(name)
            asked = [("__has_include", True), *_gap(rng), ("(", True), *_gap(rng), (f'"{name}"', True), *_gap(rng)]
            parts += [*begin, *_hash(rng), ("if ", True), *_gap(rng), *asked, (")\n#endif", True)]
        elif kind == "macro":
            operand = rng.choice(_MACRO_OPERANDS)
            parts += [*begin, *_hash(rng), *_gap(rng), ("include", True), (" ", True), *_gap(rng), (operand, True)]
        else:
            parts += [*begin, *_hash(rng), (rng.choice(_OTHER_DIRECTIVES), True), *_gap(rng)]
        parts.append(("\n", False))
    return "".join(_spliced(rng, text) if may else text for text, may in parts), names


def read_soups(seed: int, count: int) -> Tally:
    """Read so many soups; one that is read otherwise than it was made is lost."""
    tally = Tally("source texts full of traps", seed)
    for k in range(count):
        rng = random.Random(f"{seed} {k}")
        must_refuse = rng.random() < 0.3
        text, names = soup(rng, refused=must_refuse)
        try:
            found = [include.name for include in read(text).includes]
        except RefusedTextError as error:
            tally.refuse(error)
            if not must_refuse:
                tally.lose(f"soup {seed} {k} is refused: {error}: {text!r}")
            continue
        tally.accept()
        if must_refuse or found != names:
            tally.lose(f"soup {seed} {k} includes {names} and is read to include {found}: {text!r}")
    return tally


def _code(rng: random.Random) -> Iterator[_Part]:
    yield "x", True  # what begins a line like a directive would be one
    for _ in range(rng.randrange(8)):
        yield rng.choice(_SPACES), True
        if rng.random() < 0.2:
            begin, end = rng.choice(_RAW)
            inside = "".join(rng.choice(_IN_RAW) for _ in range(rng.randrange(5)))
            opened = begin.index('"')
            yield begin[:opened], True
            ends = end in inside.replace("\\\n", "") + end[:-1]
            yield begin[opened:] + ("" if ends else inside) + end, False
        elif rng.random() < 0.2:
            yield from _comment(rng, lines=False)
        else:
            yield rng.choice(_TOKENS), True
    if rng.random() < 0.3:
        yield " //" + "".join(rng.choice(_IN_COMMENTS) for _ in range(rng.randrange(4))), True
    yield "\n", False


def _comment(rng: random.Random, *, lines: bool) -> Iterator[_Part]:
    inside = [rng.choice((*_IN_COMMENTS, "\n") if lines else _IN_COMMENTS) for _ in range(rng.randrange(4))]
    text = "/*" + " ".join(inside).replace("*/", "") + " */"
    for k, line in enumerate(text.split("\n")):
        if k:
            yield "\n", False
        yield line, True


def _gap(rng: random.Random, *, lines: bool = True) -> Iterator[_Part]:
    while rng.random() < 0.4:
        if rng.random() < 0.3:
            yield from _comment(rng, lines=lines)
        else:
            yield rng.choice(_SPACES), True


def _hash(rng: random.Random) -> Iterator[_Part]:
    yield rng.choice(("#", "#", "%:")), True


def _spliced(rng: random.Random, text: str) -> str:
    """Put splices into a text, which end no line."""
    return "".join(sign + (rng.choice(_SPLICES) if rng.random() < 0.03 else "") for sign in text)
