"""Code for a console: highlighted, with addresses and the lines that it comes from, and what differs between two."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from rich.text import Text

from lowlevel_reduce.cli.sass import Line

__all__ = ["Listing", "around", "as_objects", "differences", "render"]

_LABEL = re.compile(r"((?:\$L_|\.L_x_)\w+)")
# What stands in PTX and in machine code; the group is what gets the style.
_STYLES = (
    (re.compile(r"(?<![\w.$%])(0[xdf][0-9a-fA-F]+|\d+)\b"), "magenta"),
    (re.compile(r"(%\w+(?:\.\w+)?|\bU?(?:R|P)(?:\d+|Z|T)\b)"), "cyan"),
    (re.compile(r"^\s*(?:@!?%?\w+\s+)?([A-Za-z][\w.:]*)(?=[\s;])"), "bold"),
    (_LABEL, "yellow"),
    (re.compile(r"^\s*(\.\w+)"), "blue"),
    (re.compile(r"(//.*)$"), "dim"),
)
_MARKS = {"-": "red", "+": "green", "@": "cyan"}
_CONTEXT, _AROUND = 3, 5


class Listing(NamedTuple):
    """A kernel's code.

    Attributes
    ----------
    title : str
        What it is, in words.
    lines : sequence of Line
        The code.
    address : str
        How addresses are written, as for `format`: hexadecimal in machine code; decimal line numbers in PTX.
    sources : mapping of str to str
        The text of each file of CUDA C++ by its name, if lines know where they come from.
    """

    title: str
    lines: Sequence[Line]
    address: str
    sources: Mapping[str, str] = {}

    def source(self, place: tuple[str, int]) -> tuple[str, str] | None:
        """Return the name of a place, ``file:line``, and the text there; None for a file that is not a source."""
        path, number = place
        # The compiler writes the working directory before the name of each file.
        names = [name for name in self.sources if path == name or path.endswith(f"/{name}")]
        if not names:
            return None
        name = max(names, key=len)
        lines = self.sources[name].splitlines()
        return f"{name}:{number}", lines[number - 1].strip() if number <= len(lines) else ""


def around(listing: Listing, address: str) -> Listing:
    """Return the lines nearest to an address, written as listings write it: in PTX, the number of a line.

    Raises
    ------
    ValueError
        If it is not written so, or the code has no such address.
    """
    try:
        wanted = int(address, 16 if listing.address.endswith("x") else 10)
    except ValueError:
        raise ValueError(f"--at takes an address as it stands before the code, not {address!r}") from None
    places = [place for place, line in enumerate(listing.lines) if line.address is not None and line.address <= wanted]
    last = max((line.address for line in listing.lines if line.address is not None), default=-1)
    if not places or wanted > last:
        raise ValueError(f"--at {address}: {listing.title} has no such address")
    return listing._replace(lines=listing.lines[max(0, places[-1] - _AROUND) : places[-1] + _AROUND + 1])


def render(listing: Listing) -> Iterator[Text]:
    """Yield the lines of a listing; where code of another line of CUDA C++ begins, that line stands above."""
    before = None
    for line in listing.lines:
        if line.place is not None and line.place != before:
            before, source = line.place, listing.source(line.place)
            if source is not None:
                yield Text.assemble((source[0], "green"), ("  " + source[1], "green italic"))
        yield _rendered(line, listing.address)


def differences(before: Listing, after: Listing) -> Iterator[Text]:
    """Yield how two listings differ, as ``diff -u`` does; addresses and labels are shown and not compared.

    Labels are compared where nothing else differs. Of lines that are in both, those of `after` are shown. If there is
    no difference, one line says so.
    """
    yield Text(f"--- {before.title}", "bold")
    yield Text(f"+++ {after.title}", "bold")
    # Labels are counted through the kernel, so one more or less would make every later one differ.
    old, new = ([_LABEL.sub("label", line.text) for line in listing.lines] for listing in (before, after))
    if old == new:  # but where all else is the same, a branch may go elsewhere
        old, new = ([line.text for line in listing.lines] for listing in (before, after))
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    groups = list(matcher.get_grouped_opcodes(_CONTEXT))
    if not groups:
        yield Text(f"the same {len(after.lines)} lines")
    for group in groups:
        first, last = group[0], group[-1]
        yield Text(f"@@ -{first[1] + 1},{last[2] - first[1]} +{first[3] + 1},{last[4] - first[3]} @@", _MARKS["@"])
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from (_marked(" ", line, after.address) for line in after.lines[c:d])
                continue
            yield from (_marked("-", line, before.address) for line in before.lines[a:b])
            yield from (_marked("+", line, after.address) for line in after.lines[c:d])


def as_objects(listing: Listing) -> list[dict[str, object]]:
    """Return the lines as ``--json`` prints them."""
    found: list[dict[str, object]] = []
    for line in listing.lines:
        source = None if line.place is None else listing.source(line.place)
        found.append({"address": line.address, "text": line.text.strip(), "source": source and source[0]})
    return found


def _marked(mark: str, line: Line, address: str) -> Text:
    if mark == " ":
        return Text(" ").append_text(_rendered(line, address))
    return Text(f"{mark}{_address(line, address)}{line.text}", _MARKS[mark])


def _rendered(line: Line, address: str) -> Text:
    text = Text(line.text)
    for pattern, style in _STYLES:
        for found in pattern.finditer(line.text):
            text.stylize(style, *found.span(1))
    return Text.assemble((_address(line, address), "dim"), text)


def _address(line: Line, address: str) -> str:
    return "" if line.address is None else format(line.address, address) + " "
