"""What each counter means, as the class of the counters says it: the glossary of a report, which has no other page."""

from __future__ import annotations

import inspect
import re

from lowlevel_reduce.simulator.machine.control.counters import Counters

__all__ = ["counter_meanings"]

_ENTRY = re.compile(r"^(?P<names>\w+(?:, \w+)*) : \w+\n(?P<meaning>(?:    .+\n?)+)", re.MULTILINE)


def counter_meanings() -> list[tuple[tuple[str, ...], str]]:
    """Return the counters, together where they are told of together, with what they count, in words.

    They are read from the docstring of `Counters`, which has no second copy; where Python strips docstrings
    (``-OO``), there are none.
    """
    text = inspect.cleandoc(Counters.__doc__ or "").partition("Attributes\n")[2]
    return [
        (tuple(entry["names"].split(", ")), " ".join(entry["meaning"].replace('"', "").split()))
        for entry in _ENTRY.finditer(text)
    ]
