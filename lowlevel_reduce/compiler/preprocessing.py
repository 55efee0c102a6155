"""Reads a text as the first phases of C++'s translation do, and finds every header that it could make NVRTC open.

NVRTC opens absolute paths itself and does not tell which, so what it could open must be known before it runs. A text is
read as NVRTC reads it with ``--std=c++17``: lines are spliced at a backslash before their end, but not in raw strings;
comments, literals, numbers, names and signs are told apart; and ``#`` or ``%:`` begins a directive where nothing but
white space and comments precede it on its line, or since the end of a line in such a comment. ``??=`` is no ``#``.

Conditions are not evaluated. A text that could be read in two ways is refused, and so is a directive that is not known
here: either could hide an include. Pragmas, ``_Pragma``, ``#line`` and ``asm`` open no file.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import NamedTuple, NoReturn

__all__ = ["Include", "Reading", "RefusedTextError", "read"]

_ASK_FOR_A_NAME = ("ifdef", "ifndef", "elifdef", "elifndef")
_DIRECTIVES = (
    *_ASK_FOR_A_NAME,
    "define",
    "undef",
    "if",
    "elif",
    "else",
    "endif",
    "error",
    "warning",
    "pragma",
    "ident",
)

# NVRTC evaluates these anywhere, not in conditions alone, and macros can put their names together from pieces by ##.
_QUERIES = ("__has_include", "__has_include_next", "__has_embed")
_PIECES = {query[:size] for query in _QUERIES for size in range(1, len(query))}.difference(_QUERIES)
_COMMON_PIECES = ("_", "__")  # names that are refused only where pieces can be joined

_NUMBER = r"\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z_]|[0-9A-Za-z_.])*"
_NAME = r"[A-Za-z_][0-9A-Za-z_]*"
_TOKEN = rf"""
    (?P<end>\n) | (?P<space>[ \t\v\f\r]+) | (?P<comment>//[^\n]*|/\*(?s:.*?)\*/) | (?P<unclosed>/\*)
    | (?P<number>{_NUMBER}) | (?P<raw>(?:u8|[uUL])?R")
    | (?P<literal>(?:"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')(?:{_NAME})?) | (?P<stray>["'])
    | (?P<hash>\#\#?|%:(?:%:)?) | (?P<word>{_NAME}) | (?P<sign>\\(?![uUN])|[!%&()*+,./:;<=>?@\[\]^`{{|}}~-])"""
_FINE = re.compile(_TOKEN, re.VERBOSE)
# For speed: as many tokens as there are before a sign or white space that no token goes across, in lines that begin
# with none of what matters here. For texts without names that matter.
_ORDINARY = r"0-9A-Za-z_!&()*+,.:;<=>?@\[\]^`{|}~-"
_LINES = rf"(?:[ \t\v\f\r{_ORDINARY}]*(?://[^\n]*)?\n(?=[ \t\v\f\r\n]*(?:[{_ORDINARY}]|//)))"
_REST = rf"[ \t\v\f\r{_ORDINARY}]*[ \t\v\f\r!&()*,:;<=>?@\[\]^`{{|}}~]"
_COARSE = re.compile(rf"(?P<plain>{_LINES}+(?:{_REST})?|{_REST})|{_TOKEN}", re.VERBOSE)
_MAY_MATTER = re.compile(r"_(?<![0-9A-Za-z_]_)[0-9A-Za-z_]*|import(?![0-9A-Za-z_])")
_MATTER = _PIECES.union(_QUERIES, ("import",))

_SPLICE = re.compile(r"\\\r*\n")
_DELIMITER = re.compile(r"([!#-'*-\[\]-~]{0,16})\(")
_SUFFIX = re.compile(rf"(?:{_NAME})?")
_HEADER = re.compile(r'<([^>\n]+)>|"([^"\n]+)"')
_MOST_DIGITS = 10  # of a line's number
_MAY_HIDE = re.compile(r'/\*|R"|__h')

_OUTSIDE = "NVRTC may open a file there that is not part of a kernel's key, so that a change of it would go unseen"


class RefusedTextError(Exception):
    """The text could make NVRTC open a file that is not known here, or could be read in two ways.

    Attributes
    ----------
    place : Place
        Where.
    """

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(message)
        self.place = place


class Place(NamedTuple):
    """A line of a text.

    Attributes
    ----------
    line : int
        Its number, counted from 1.
    file : str or None
        The file that the last ``#line`` directive before it names; None if there is none.
    presumed : int
        Its number in that file, or in the text.
    """

    line: int
    file: str | None
    presumed: int


class Include(NamedTuple):
    """A header that a text includes or asks for, by its name, and where."""

    name: str
    place: Place


class Reading(NamedTuple):
    """What a text could make NVRTC open.

    Attributes
    ----------
    includes : tuple of Include
        The headers that it names, in the order of the text.
    pastes : bool
        Whether it holds a ``##``.
    piece : RefusedTextError or None
        What refuses the text if it or a header holds a ``##``: a name of which macros could make ``__has_include``.
    """

    includes: tuple[Include, ...]
    pastes: bool
    piece: RefusedTextError | None


def read(text: str) -> Reading:
    """Return what a text includes.

    Raises
    ------
    RefusedTextError
        If it could make NVRTC open files that it does not name, or could be read in two ways.
    """
    return _Reader(text).read()


class _Reader:
    """One text while it is read. Positions are in the spliced text, unless they are called original."""

    def __init__(self, text: str) -> None:
        self._original = text
        splices = [match.span() for match in _SPLICE.finditer(text)] if "\\" in text else []
        self._splices = [start for start, _ in splices]
        self._removed = [0, *accumulate(end - start for start, end in splices)]
        self._cuts = [start - removed for start, removed in zip(self._splices, self._removed, strict=False)]
        self._text = _SPLICE.sub("", text) if splices else text
        self._includes: list[Include] = []
        self._origins: list[tuple[int, int, str | None]] = []  # the number and the file of the line behind a line
        self._pastes = False
        self._piece: RefusedTextError | None = None

    def read(self) -> Reading:
        """Return what the text includes; raises RefusedTextError."""
        text, place, fresh = self._text, 0, True
        pattern = _FINE if _MATTER.intersection(_MAY_MATTER.findall(text)) else _COARSE
        if "\0" in text:
            self._refuse(text.index("\0"), "a NUL, where NVRTC would stop reading")
        while place < len(text):
            start, (kind, place) = place, self._token(pattern, place)
            if kind == "end" or (kind == "comment" and text.find("\n", start, place) >= 0):
                fresh = True
            elif kind == "hash" and fresh:
                place = self._directive(start, place)
            elif kind not in ("comment", "space") and not (fresh and text[start:place].isspace()):
                place = self._code(kind, start, place, fresh=fresh)
                fresh = fresh and text[start:place] == "export"
        return Reading(tuple(self._includes), self._pastes, self._piece)

    def _token(self, pattern: re.Pattern[str], start: int) -> tuple[str, int]:
        """Return the kind of the token that begins at a position, and where it ends."""
        found = pattern.match(self._text, start)
        if found is None:
            self._refuse(start, f"{self._text[start]!r} outside of comments and literals: write it in ASCII")
        kind = found.lastgroup or ""
        if kind == "unclosed":
            self._refuse(start, "a comment is not closed")
        if kind == "raw":
            return kind, self._end_of_raw(start, found.end())
        if kind == "stray":
            # NVRTC passes over the rest of the line, and other readers of C++ do not.
            end = self._text.find("\n", start)
            end = len(self._text) if end < 0 else end
            if _MAY_HIDE.search(self._text, start, end):
                self._refuse(start, "a quote is not closed on its line")
            return kind, end
        return kind, found.end()

    def _end_of_raw(self, start: int, opened: int) -> int:
        """Return where a raw string ends whose delimiter begins at `opened`: in it, nothing is spliced."""
        original = self._original_of(opened - 1) + 1
        delimiter = _DELIMITER.match(self._original, original)
        if delimiter is None:
            self._refuse(start, "the delimiter of a raw string is not one")
        close = f'){delimiter[1]}"'
        end = self._original.find(close, delimiter.end())
        if end < 0:
            self._refuse(start, "a raw string is not closed")
        end += len(close)
        end -= self._removed[bisect_left(self._splices, end)]
        if end != self._text.find(close, opened) + len(close):  # NVRTC splices between ) and ", though not elsewhere
            self._refuse(start, "a raw string ends elsewhere if its lines are spliced")
        suffix = _SUFFIX.match(self._text, end)
        assert suffix is not None  # noqa: S101 - the pattern also matches the empty string
        return suffix.end()

    def _code(self, kind: str, start: int, end: int, *, fresh: bool) -> int:
        """Look at a token outside of directives; return where reading goes on."""
        if kind == "hash":
            self._pastes |= end - start > 1
        elif kind == "word":
            word = self._text[start:end]
            if fresh and word == "import" and self._text.startswith(("<", '"'), self._skip(end)):
                self._refuse(start, f"{self._line_of(start)}: {_OUTSIDE}")
            return self._word(word, start, end, tolerated=False)
        return end

    def _directive(self, start: int, place: int) -> int:
        """Read a directive whose ``#`` ends at `place`; return where the next line begins."""
        tokens: list[tuple[str, str]] = []
        joined = self._text[start:place] in ("##", "%:%:")
        while place < len(self._text):
            start_of_token, (kind, place) = place, self._token(_FINE, place)
            if kind == "end":
                break
            if kind in ("space", "comment"):
                continue
            text = self._text[start_of_token:place]
            if not tokens and text == "include" and not joined:
                return self._include(start, place)
            if not tokens and (joined or (kind != "number" and text not in (*_DIRECTIVES, "line"))):
                self._refuse(start, f"{self._line_of(start)}: {_OUTSIDE}")
            if kind == "word":
                place = self._word(text, start_of_token, place, tolerated=_asks(tokens))
            self._pastes |= kind == "hash" and text in ("##", "%:%:")
            tokens.append((kind, text))
        if tokens and (tokens[0][0] == "number" or tokens[0][1] == "line"):
            self._begin_file(place, tokens[1:] if tokens[0][1] == "line" else tokens)
        return place

    def _include(self, start: int, place: int) -> int:
        """Read the header's name behind ``#include``, and the rest of the line; return where the next line begins."""
        found = _HEADER.match(self._text, self._skip(place))
        if found is None:
            self._refuse(start, f"{self._line_of(start)}: write the name in quotes")
        self._includes.append(Include(found[1] or found[2], self._place(start)))
        rest = self._skip(found.end())
        if rest < len(self._text) and self._text[rest] != "\n":
            self._refuse(start, f"{self._line_of(start)}: something follows the name")
        return rest + 1

    def _word(self, word: str, start: int, end: int, *, tolerated: bool) -> int:
        """Look at a name that may ask for a file, or be a piece of such a name; return where reading goes on."""
        if word in _PIECES:
            message = f"{word} is a piece of __has_include, which macros could join: {_OUTSIDE}"
            if word not in _COMMON_PIECES:
                self._refuse(start, message)
            self._piece = self._piece or RefusedTextError(message, self._place(start))
        if word not in _QUERIES:
            return end
        opened = self._skip(end)
        if word == "__has_include" and self._text.startswith("(", opened):
            found = _HEADER.match(self._text, self._skip(opened + 1))
            if found is not None and self._text.startswith(")", self._skip(found.end())):
                self._includes.append(Include(found[1] or found[2], self._place(start)))
                return self._skip(found.end()) + 1
        elif tolerated:
            return end
        self._refuse(start, f"{self._line_of(start)}: {_OUTSIDE}")

    def _skip(self, place: int) -> int:
        """Return where white space and comments end."""
        while True:
            found = _FINE.match(self._text, place)
            if found is None or found.lastgroup not in ("space", "comment"):
                return place
            place = found.end()

    def _begin_file(self, end: int, tokens: list[tuple[str, str]]) -> None:
        """Note what a ``#line`` directive that ends at `end` says about the lines behind it."""
        if tokens and tokens[0][1].isdecimal() and len(tokens[0][1]) <= _MOST_DIGITS:
            last = self._origins[-1][2] if self._origins else None
            named = len(tokens) > 1 and tokens[1][0] == "literal"
            file = re.sub(r"\\(.)", r"\1", tokens[1][1][1:-1]) if named else last
            self._origins.append((self._place(end - 1).line, int(tokens[0][1]), file))

    def _original_of(self, place: int) -> int:
        return place + self._removed[bisect_right(self._cuts, place)]

    def _place(self, place: int) -> Place:
        line = self._original.count("\n", 0, self._original_of(place)) + 1
        if not self._origins:
            return Place(line, None, line)
        after, number, file = self._origins[-1]
        return Place(line, file, number + line - after - 1)

    def _line_of(self, start: int) -> str:
        """Return what a line holds from a position on, for messages."""
        return self._text[start:].split("\n", 1)[0].strip()[:80]

    def _refuse(self, place: int, message: str) -> NoReturn:
        raise RefusedTextError(message, self._place(place))


def _asks(tokens: list[tuple[str, str]]) -> bool:
    """Tell whether the name behind these tokens of a directive is only asked whether it is defined."""
    texts = [text for _, text in tokens]
    return (
        texts[-1:] == ["defined"] or texts[-2:] == ["defined", "("] or (len(texts) == 1 and texts[0] in _ASK_FOR_A_NAME)
    )
