"""What a suite is given: a harness, how thorough to be, and the competitors of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import peers
from benchmarks.harness import Harness
from lowlevel_reduce import Stream

__all__ = ["Setting"]


@dataclass
class Setting:
    """One run of suites.

    Attributes
    ----------
    harness : Harness
        Compares contenders.
    quick : bool
        Whether a tenth of the cells will do.
    missing : dict
        Competitors that were asked for and are not there, with the reason.
    """

    harness: Harness
    quick: bool = False
    missing: dict[str, str] = field(default_factory=dict)
    _found: dict[str, Any] = field(default_factory=dict)

    @property
    def stream(self) -> Stream:
        """Where everything runs."""
        return self.harness.stream

    def peers(self, *names: str) -> list[Any]:
        """Return those competitors that are there; the others are noted in `missing`."""
        unknown = [name for name in names if name not in self._found and name not in self.missing]
        found, missing = peers.find(unknown, self.stream)
        self._found |= found
        self.missing |= missing
        return [self._found[name] for name in names if name in self._found]

    def peer(self, name: str) -> Any:
        """Return one competitor, None if it is missing."""
        return next(iter(self.peers(name)), None)

    def some(self, cells: Sequence[Any], quick: Sequence[int]) -> list[Any]:
        """Return the cells, or, if it has to be quick, those at these places."""
        return [cells[i] for i in quick] if self.quick else list(cells)

    def opened(self, name: str) -> Any:
        """Return one competitor if a suite has asked for it and it was there, else None; nothing is opened."""
        return self._found.get(name)
