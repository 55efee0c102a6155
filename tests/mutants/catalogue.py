"""The list of mutants: files of plain text, one for each area, and whether a mutant's text is still in the code.

An entry of a list is

    ## identifier
    in: file that is changed, relative to the root
    why: what goes wrong with the change
    by: test that must fail then; several such lines for several tests, each of which sees it by itself
    - line of the code, or a part of it, which occurs once in the file
    + what is put in its place; nothing if there is no such line

Several lines that begin with "-" are one text of several lines, and so are those with "+". A line that begins with "#"
alone is a comment; the first one says what the area is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LISTS = Path(__file__).parent / "lists"
ROOT = LISTS.parents[2]


class ListError(Exception):
    """A list is not written as the module's head says; the message names the file and the line."""


@dataclass(frozen=True)
class Mutant:
    """One change: `old`, which occurs once in `file`, becomes `new`, and one of `tests` has to fail."""

    id: str
    area: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A digest of what is changed and what has to see it."""
        return hashlib.sha256("\0".join((self.file, self.old, self.new, *self.tests)).encode()).hexdigest()[:16]

    def places(self, root: Path) -> int:
        """Return how many times its text occurs in the file below `root`; 0 without such a file."""
        path = root / self.file
        return path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0


def areas(lists: Path = LISTS) -> dict[str, str]:
    """Return what each area is, by its name."""
    return {path.stem: path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ") for path in _files(lists)}


def mutants(lists: Path = LISTS) -> list[Mutant]:
    """Return all mutants, in the order of the areas' names.

    Raises
    ------
    ListError
        If an entry lacks something, changes nothing, or has the identifier of another one.
    """
    found = [mutant for path in _files(lists) for mutant in _entries(path)]
    twice = [name for name, count in Counter(each.id for each in found).items() if count > 1]
    if twice:
        raise ListError(f"several mutants are called {', '.join(twice)}")
    return found


def _files(lists: Path) -> list[Path]:
    return sorted(lists.glob("*.txt"))


def _entries(path: Path) -> Iterator[Mutant]:
    begun: dict[str, list[str]] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if line.startswith("## "):
            if begun is not None:
                yield _made(begun, path)
            begun = {"id": [line[3:].strip()]}
            continue
        if not line.strip() or line.startswith("#"):
            continue
        key, text = (line[0], line[2:]) if line[0] in "-+" else line.split(": ", 1) if ": " in line else ("", "")
        if begun is None or key not in {"in", "why", "by", "-", "+"}:
            raise ListError(f"{path.name}:{number}: {line!r} is none of: ## id, in:, why:, by:, -, +")
        begun.setdefault(key, []).append(text)
    if begun is not None:
        yield _made(begun, path)


def _made(begun: dict[str, list[str]], path: Path) -> Mutant:
    name = begun["id"][0]
    for key in ("in", "why", "by", "-"):
        if key not in begun:
            raise ListError(f"{path.name}: {name} has no line {key!r}")
    old, new = "\n".join(begun["-"]), "\n".join(begun.get("+", []))
    if old == new:
        raise ListError(f"{path.name}: {name} changes nothing")
    return Mutant(name, path.stem, begun["in"][0], old, new, " ".join(begun["why"]), tuple(begun["by"]))
