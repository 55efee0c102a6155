"""The code of the documentation: its blocks, and what says of each whether and how it is run.

A block is what stands between two fences of README.md or a page of docs/. Its language says what is done with it:

``python``
    It runs on a simulated GPU, after the blocks before it on its page and with their names.
``console``
    Each line that begins with ``$ `` is a command, which is run; what follows is what it must print.
``text``
    It is no code: a drawing, a formula.
any other, or none
    Not run.

Other fences, and code by its indent alone, are refused.

Comments directly above a block, which readers of the page do not see, say more:

``<!-- with: CODE -->``
    Python that runs first, for names that a reader has: an array ``x``, a plan.
``<!-- output -->``
    It is what the Python block before it prints. In it and in a console's output ``…`` stands for any text.
``<!-- not run: REASON -->``
    Why it is not run: whatever is not run needs one, but text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["PAGES", "ROOT", "Block", "blocks", "commands", "matches"]

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "SECURITY.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(
    r"(?P<comments>(?:^ *<!-- (?:with|output|not run)\b(?:(?!-->).)*-->\n+)*)^(?P<indent> *)```(?P<language>\S*)\n"
    r"(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
# A paragraph that begins with four spaces, and does not go on with an item of a list.
_INDENTED = re.compile(r"^(?! |[-*+] |\d+\. )\S.*\n\n+( {4,}\S.*)$", re.MULTILINE)
_COMMENT = re.compile(r"<!-- (with|output|not run):? ?(.*?) ?-->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block of code: where it is, its language, its text, and what its comments say."""

    page: str
    line: int
    language: str
    code: str
    setup: str = ""
    is_output: bool = False
    reason: str = ""

    @property
    def place(self) -> str:
        """Its page and line."""
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    """One command of a console, and what it must print."""

    text: str
    output: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        comments = _COMMENT.findall(match["comments"])
        indent = len(match["indent"])
        found.append(
            Block(
                page,
                text.count("\n", 0, match.start("code")) + 1,
                match["language"],
                "".join(line[indent:] or "\n" for line in match["code"].splitlines(keepends=True)),
                "\n".join(said for kind, said in comments if kind == "with"),
                any(kind == "output" for kind, _ in comments),
                " ".join(" ".join(said.split()) for kind, said in comments if kind == "not run"),
            )
        )
    fences = len(re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE))
    if fences != 2 * len(found):
        raise ValueError(f"{page} has {fences} fences and {len(found)} blocks")
    if indented := _INDENTED.search(_BLOCK.sub("", text)):
        raise ValueError(f"{page}: {indented[1].strip()!r} is code by its indent alone, which nothing runs")
    return found


def commands(code: str) -> list[Command]:
    """Return the commands of a console; a backslash at the end of a line goes on in the next one."""
    found: list[Command] = []
    lines = iter(code.splitlines(keepends=True))
    for line in lines:
        if line.startswith("$ "):
            command = line[2:].rstrip("\n")
            while command.endswith("\\"):
                command = command[:-1] + next(lines).strip()
            found.append(Command(command, ""))
        elif found:
            found[-1] = found[-1]._replace(output=found[-1].output + line)
    return found


def matches(told: str, printed: str) -> bool:
    """Tell whether an output is what a page tells, in which ``…`` stands for any text."""
    lines = [line.rstrip() for line in told.strip().splitlines()]
    pattern = ".*".join(map(re.escape, "\n".join(lines).split("…")))
    found = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    return re.fullmatch(pattern, found, re.DOTALL) is not None
