"""What a fuzzer counts: how much it tried, what was accepted, what refused by which error, and what was lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Tally"]


@dataclass
class Tally:
    """Counts of one kind of trial, all drawn from one seed.

    Attributes
    ----------
    kind : str
        What was tried, in the words of the page: "malformed PTX".
    seed : int
        What the trials were drawn from: the same seed and count repeat them.
    tried : int
        Trials.
    accepted : int
        Trials that ended as if nothing had happened, with the right result.
    refused : Counter
        Trials that ended with an error that is allowed there, by the error's name.
    lost : list of str
        What must not happen, a sentence each that is enough to repeat it: a wrong result, an error of another kind,
        anything left behind, a later call that fails.
    seconds : float
        How long it took.
    """

    kind: str
    seed: int
    tried: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def accept(self, count: int = 1) -> None:
        """Count trials that were accepted."""
        self.tried += count
        self.accepted += count

    def refuse(self, error: BaseException | str) -> None:
        """Count a trial that was refused by an error that is allowed, or by what is so called."""
        self.tried += 1
        self.refused[error if isinstance(error, str) else type(error).__name__] += 1

    def lose(self, sentence: str) -> None:
        """Note what must not happen; `accept`, `refuse` or `tried` count the trial itself."""
        self.lost.append(sentence)

    @contextmanager
    def timed(self) -> Iterator[Tally]:
        """Add the seconds of the block; yields the tally."""
        began = time.monotonic()
        try:
            yield self
        finally:
            self.seconds += time.monotonic() - began

    def add(self, other: Tally) -> None:
        """Add the counts of more trials of the same kind."""
        self.tried += other.tried
        self.accepted += other.accepted
        self.refused += other.refused
        self.lost += other.lost
        self.seconds += other.seconds

    def check(self) -> None:
        """Raise AssertionError if anything was lost; names the seed."""
        assert not self.lost, f"{self.kind}, seed {self.seed}: {len(self.lost)} lost, the first: {self.lost[0]}"

    def record(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {**asdict(self), "refused": dict(self.refused.most_common())}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Tally:
        """Return the tally of a dictionary that `record` made."""
        return cls(**{**record, "refused": Counter(record["refused"])})
