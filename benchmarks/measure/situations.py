"""What a contender adds to the time of another kernel, around which a user would launch it: the three situations.

A graph of many times [other kernel; contender] is timed, and one of as many times [other kernel]. The difference, by
how many there are, is the time that the contender adds. Both are replayed in turn with those of all other contenders.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.measure.figures import figure
from benchmarks.measure.timing import Enqueue, Replay, captured, timed_us
from benchmarks.measure.turns import Entries, in_turn, telling
from lowlevel_reduce import Stream

if TYPE_CHECKING:
    from benchmarks.measure.contenders import Ready

__all__ = ["Neighbour", "added"]

ROUNDS, QUICK_ROUNDS = 9, 3

GRAPH_US, FEWEST, MOST = 2000.0, 3, 200
"""Device time of one timed graph, and the fewest and most launches that it holds."""

SLOW = 4.0
"""A contender that takes so many times as long as the fastest is timed in the first round only."""


@dataclass(frozen=True)
class Neighbour:
    """The other kernels of a situation.

    Attributes
    ----------
    mode : str
        The mode of the rows, one of `SITUATIONS`.
    before : callable
        Puts the kernel that runs before a contender into the stream.
    after : callable, optional
        ``after(results)`` puts a kernel that reads a contender's results into the stream; without results (None), one
        that reads as much of other memory.
    """

    mode: str
    before: Callable[[], object]
    after: Callable[[Any], object] | None = None

    def around(self, contender: Ready | None) -> Enqueue:
        """Return what a graph holds many times: the other kernels, with the contender between them if there is one."""

        def enqueue(_: int) -> None:
            self.before()
            if contender is not None:
                contender.enqueue(0)
            if self.after is not None:
                self.after(None if contender is None or contender.outputs is None else contender.outputs())

        return enqueue


def added(
    contenders: Sequence[Ready],
    usual_us: Mapping[str, float],
    neighbour: Neighbour,
    stream: Stream,
    failed: Entries,
    rounds: int,
) -> dict[str, dict[str, Any]]:
    """Return an entry of the added time for each contender that can be captured.

    Parameters
    ----------
    contenders : sequence of Ready
        Checked ones, which read the first copy of their input.
    usual_us : mapping
        About how long each takes.
    neighbour : Neighbour
        The other kernels.
    stream : Stream
        Where all runs.
    failed : dict
        Gets the error of a contender that raises; those that are in it are left out.
    rounds : int
        How often each graph is timed.
    """
    chosen = [each for each in contenders if neighbour.after is None or each.outputs is not None]
    if not chosen:
        return {}
    base, graphs = neighbour.around(None), dict[str, Replay]()
    other_us = _other_us(base, stream)
    fastest = min(usual_us[each.name] for each in chosen)
    slow = [each.name for each in chosen if usual_us[each.name] > SLOW * max(fastest, other_us)]
    launches = {each.name: _launches(other_us + fastest) for each in chosen}
    launches |= {"": _launches(other_us + fastest), **{name: _launches(other_us + usual_us[name]) for name in slow}}
    try:
        graphs[""] = captured(base, stream, launches[""])
        for each in chosen:
            with telling(each.name, failed):
                graphs[each.name] = _recorded(each, neighbour, stream, launches[each.name])
        takers = {name: functools.partial(_once_us, graph, stream, launches[name]) for name, graph in graphs.items()}
        samples = in_turn(takers, rounds, failed, once=slow)
        for each in chosen:
            if each.name in samples:  # with what its graph writes, for the check at the end
                with telling(each.name, failed):
                    each.spoil()
                    timed_us(lambda: None, graphs[each.name].launch, stream)
        return {name: _entry(taken, samples[""]) for name, taken in samples.items() if name and name not in failed}
    finally:
        for graph in graphs.values():
            graph.close()


def _entry(taken: Sequence[float], base: Sequence[float]) -> dict[str, Any]:
    found = figure([both - other for both, other in zip(taken, base, strict=False)])
    if found["us"] <= 0:
        return {"error": f"the added time of {found['us']:.3f} us is none: not measurable"}
    return found


def _recorded(contender: Ready, neighbour: Neighbour, stream: Stream, launches: int) -> Replay:
    """Return a contender's graph, replayed once: the first launch uploads it."""
    enqueue = neighbour.around(contender)
    enqueue(0)  # what a library prepares at its first call must come before the capture
    stream.synchronize()
    record = contender.record or (lambda enqueue, launches: captured(enqueue, stream, launches))
    graph = record(enqueue, launches)
    timed_us(lambda: None, graph.launch, stream)
    return graph


def _launches(once_us: float) -> int:
    """Return how many launches of that duration a graph holds."""
    return int(min(MOST, max(FEWEST, GRAPH_US / max(once_us, 1e-3))))


def _other_us(base: Enqueue, stream: Stream) -> float:
    """Return about how long the other kernels take."""
    base(0)
    stream.synchronize()
    graph = captured(base, stream, FEWEST)
    try:
        return min(timed_us(graph.launch, graph.launch, stream) for _ in range(2)) / FEWEST
    finally:
        graph.close()


def _once_us(graph: Replay, stream: Stream, launches: int) -> float:
    return timed_us(graph.launch, graph.launch, stream) / launches
