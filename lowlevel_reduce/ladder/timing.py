"""The device time of a run, measured by two events around replays of a captured graph, with inputs not in the L2."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from lowlevel_reduce.driver import Device, Event, Graph, Stream

__all__ = ["ROTATE_FROM_BYTES", "copies", "device_us"]

L2_FACTOR = 4
"""The copies of the input together have this many times the size of the L2, so that no run finds its input there."""

ROTATE_FROM_BYTES = 8 << 20
"""Runs alternate between copies of an input of at least this size; a smaller one stays in the L2, as in real use."""

GRAPH_US = 4000.0
"""Device time that one graph should take, so that the resolution of events does not matter."""

MAX_RUNS = 400

RESOLUTION_US = 0.5
"""Resolution of an event's time: two events that are closer together may have the same time."""


def copies(size_bytes: int, device: Device) -> int:
    """Return how many copies of an input to alternate between."""
    return max(2, -(-L2_FACTOR * device.l2_bytes // size_bytes)) if size_bytes >= ROTATE_FROM_BYTES else 1


def device_us(run: Callable[[int], object], stream: Stream, repeat: int) -> float:
    """Return the device time of one run in microseconds: the median of `repeat` replays. The host waits for them.

    Parameters
    ----------
    run : callable
        ``run(i)`` puts the i-th run into `stream`.
    stream : Stream
        The stream, which is captured.
    repeat : int
        Replays that are measured, after one that is not.
    """
    once = _replays_us(run, stream, 1, 1)
    return _replays_us(run, stream, int(min(MAX_RUNS, max(1.0, GRAPH_US / max(once, RESOLUTION_US)))), repeat)


def _replays_us(run: Callable[[int], object], stream: Stream, runs: int, repeat: int) -> float:
    context = stream.context
    with Graph.capture(stream) as graph:
        for i in range(runs):
            run(i)
    with graph, graph.instantiate() as executable, Event.create(context) as start, Event.create(context) as end:
        times = []
        for _ in range(repeat + 1):
            stream.record(start)
            executable.launch(stream)
            stream.record(end)
            end.synchronize()
            times.append(end.elapsed_ms(start) * 1e3 / runs)
    return statistics.median(times[1:])
