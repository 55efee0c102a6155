"""What the harness compares: contenders that are ready to run a case, who makes them, and the case's elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from benchmarks.measure.problems import Case
from benchmarks.measure.timing import Enqueue, Replay
from lowlevel_reduce import Buffer, Stream

__all__ = ["SPOILT", "Inputs", "Maker", "Peer", "Ready"]

SPOILT = 0xFF
"""The byte that results are overwritten with: as a number it is NaN or -1."""


def _nothing() -> None:
    """Do nothing."""


@dataclass
class Ready:
    """A contender that is ready to run one case.

    Attributes
    ----------
    name : str
        Its name in the table.
    enqueue : callable
        ``enqueue(i)`` puts one reduction of the input's copy number i, modulo the number of copies, into the stream,
        and allocates no new memory.
    results : callable
        Waits, and returns the last result as 1-d arrays on the host, one for each value that a row reduces to.
    spoil : callable
        Overwrites, in the stream, what `results` would return, so that a result found there later is a new one.
    record : callable, optional
        ``record(enqueue, launches)`` captures so many calls of `enqueue`, which may put other kernels in the stream,
        too, by the library's own means; by default the stream is captured.
    outputs : callable, optional
        Returns the last result on the device, its first value of a row if it has two, as what PyTorch can view.
    graph : bool
        Whether it can be captured in a graph; otherwise it is timed between events.
    exact : bool
        Whether its sums must be bitwise right.
    close : callable
        Frees its memory.
    """

    name: str
    enqueue: Callable[[int], object]
    results: Callable[[], list[npt.NDArray[Any]]]
    record: Callable[[Enqueue, int], Replay] | None = None
    outputs: Callable[[], Any] | None = None
    graph: bool = True
    exact: bool = False
    spoil: Callable[[], object] = _nothing
    close: Callable[[], object] = _nothing


@dataclass
class Maker:
    """Makes one contender ready. Its name is known before that is tried, so that a failure can be reported."""

    name: str
    make: Callable[[], Ready]

    def __call__(self) -> Ready:
        """Make it ready; may raise any exception."""
        return self.make()


class Peer(Protocol):
    """A library to compare with; it offers contenders for the cases that it can reduce."""

    def ready(self, case: Case, inputs: Inputs, stream: Stream) -> list[Maker]:
        """Return the makers of its contenders for a case; none if it does not offer the case."""


@dataclass
class Inputs:
    """Addresses of the copies of a case's elements, all in one memory that is filled once, and the segments' borders.

    If the case has two arrays, `seconds` are the addresses of the second one's copies, one for each of `pointers`.
    `spare` is where the same elements are once more, each array's, if that was asked for.
    """

    case: Case
    pointers: list[int]
    offsets: Buffer | None = None
    seconds: Sequence[int] = ()
    spare: Sequence[int] = ()
