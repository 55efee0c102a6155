"""Checks a learner's file: the answer to the question, the kernel on the simulator, and what it may count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.workbench.examine import Examined, examine
from lowlevel_reduce.workbench.exercises import Exercise, N, exercise
from lowlevel_reduce.workbench.findings import Finding, code_of
from lowlevel_reduce.workbench.program import OwnSource, read_source, text_of

__all__ = ["Checked", "Missed", "answer_of", "check", "number_of"]

_DEVICE, _ARCHITECTURE = "H200", "sm_90"
_NAME = re.compile(r"^//\s*exercise\s+(\d+)\b", re.MULTILINE)
_ANSWER = re.compile(r"^//\s*answer:\s*(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Missed:
    """Something that an exercise asks and a file does not keep to.

    Attributes
    ----------
    what : str
        The counter, or the opcode.
    message : str
        What there is, and what is allowed.
    where : tuple of str
        The lines of the source that it comes from, the most costly first.
    """

    what: str
    message: str
    where: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checked:
    """The outcome of a check.

    Attributes
    ----------
    exercise : Exercise
        The exercise.
    answer : str or None
        The answer that the file has; None for none.
    found : Examined
        What was seen of the kernel.
    missed : tuple of Missed
        The limits that it does not keep to; empty if the kernel is wrong anyway.
    """

    exercise: Exercise
    answer: str | None
    found: Examined
    missed: tuple[Missed, ...]

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """What is wrong with the kernel."""
        return tuple(finding for finding in self.found.findings if finding.wrong)

    @property
    def predicted(self) -> bool:
        """Whether the answer is right."""
        return self.answer == self.exercise.answer

    @property
    def solved(self) -> bool:
        """Whether the kernel is right, keeps to all limits, and the question was answered rightly."""
        return self.predicted and not self.wrong and not self.missed

    @property
    def reasons(self) -> tuple[str, ...]:
        """The kinds of what is wrong, and the names of the limits that are not kept to."""
        return (*(finding.kind for finding in self.wrong), *(missed.what for missed in self.missed))


def number_of(text: str, path: Path) -> int:
    """Return the number of the exercise that a file is for.

    Raises
    ------
    ReduceError
        If its first lines do not say.
    """
    match = _NAME.search(text)
    if match is None:
        raise ReduceError(f"{path} is no exercise: its first line is not '// exercise N: …'")
    return int(match[1])


def answer_of(text: str) -> str | None:
    """Return the answer that a file gives in the line ``// answer: b``; None if it still has a question mark."""
    match = _ANSWER.search(text)
    answer = match[1].strip("().").lower() if match else "?"
    return None if answer == "?" else answer


def check(path: Path, number: int | None = None) -> Checked:
    """Check a file.

    Parameters
    ----------
    path : Path
        The learner's file.
    number : int, optional
        The exercise; by default the one that the file names.

    Raises
    ------
    ReduceError, CompileError, UnsupportedError, OSError
        If it is no exercise, or cannot be read, compiled or launched.
    """
    text = text_of(path)
    asked = exercise(number_of(text, path) if number is None else number)
    source = read_source(path, _ARCHITECTURE)
    kernel = source.kernel(asked.entry)
    found = examine(source, kernel, None, N, asked.options, _DEVICE)
    missed = tuple(_missed(asked, source, kernel.entry, found)) if found.right else ()
    return Checked(asked, answer_of(text), found, missed)


def _missed(asked: Exercise, source: OwnSource, entry: str, found: Examined) -> Iterator[Missed]:
    code = code_of(source, entry)
    for opcode in asked.without:
        lines = [instruction.line for instruction in code.instructions if instruction.opcode == opcode]
        if lines:
            places = dict.fromkeys(code.source_of(line).rpartition("/")[2] for line in lines)
            yield Missed(opcode, f"the code has {opcode}, which it may not have", tuple(places))
    counted = {
        "launches": len(found.grids),
        "shared_bytes": code.static_shared_bytes + (asked.options.shared_bytes or 0),
    }
    for name, most in asked.limits.items():
        value = counted[name] if name in counted else int(getattr(found.counters, name))
        if value > most:
            words = name.replace("_", " ")
            yield Missed(name, f"{words}: {value:,}, and at most {most:,} are allowed", _where(found, name))


def _where(found: Examined, name: str) -> tuple[str, ...]:
    costs = [(getattr(counters, name, 0), place) for place, counters in found.costs.items()]
    return tuple(f"{place} ({count:,})" for count, place in sorted(costs, reverse=True)[:3] if count)
