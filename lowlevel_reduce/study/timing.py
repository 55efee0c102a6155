"""Demonstrations of attributes that decide when work runs; the device's clock and events show their effects."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.driver import Graph, LaunchConfig, ProgrammaticEvent, binding
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.study.bench import STAMP, Bench

__all__ = [
    "carveout",
    "completion_event",
    "most_at_once",
    "priority",
    "programmatic_event",
    "serialization",
    "synchronization_policy",
]

_US = 1000  # nanoseconds
_ROUNDS = 5


def synchronization_policy(bench: Bench) -> str:
    """Measure how much CPU time this thread spends in a wait for the stream."""
    duration, out, stream = 20_000 * _US, bench.memory(STAMP.itemsize), bench.stream
    before, used = stream.synchronization_policy, {}
    try:
        for policy in ("spin", "blocking_sync"):
            stream.synchronization_policy = policy
            bench.run("study_spin", LaunchConfig(1, 32), out.pointer, duration, 0, 0)
            begin = time.thread_time_ns()
            stream.synchronize()
            used[policy] = (time.thread_time_ns() - begin) / 1e6
    finally:
        stream.synchronization_policy = before
    text = ", ".join(f"{policy} {ms:.1f} ms" for policy, ms in used.items())
    return f"processor time of a wait of {duration / 1e6:.0f} ms: {text}"


def serialization(bench: Bench) -> str:
    """Measure when a launch begins relative to the end of its predecessor in the stream, which triggers immediately."""
    lead = {
        allowed: statistics.median(_lead(bench, allowed=allowed) for _ in range(_ROUNDS)) for allowed in (True, False)
    }
    return f"the next kernel began {_relative(lead[True])} of this one, {_relative(lead[False])} without the attribute"


def _lead(bench: Bench, *, allowed: bool) -> float:
    first, second = bench.memory(STAMP.itemsize), bench.memory(STAMP.itemsize)
    config = LaunchConfig(1, 32, programmatic_stream_serialization=allowed)
    bench.run("study_spin", LaunchConfig(1, 32), first.pointer, 300 * _US, 0, 1)
    bench.run("study_spin", config, second.pointer, 0, 1, 0)
    return _us(bench.read(first, STAMP)["end"][0], bench.read(second, STAMP)["begin"][0])


def programmatic_event(bench: Bench) -> str:
    """Measure when a kernel in another stream begins that waits for the event of one that triggers it immediately.

    The event makes a dependency between kernels. How early it lets the next one begin depends on how that one is
    launched, so this measures every way to launch it.
    """
    seen = {
        name: ", ".join(_behind_trigger(bench, way, at_block_start=at_block_start) for way in _WAYS)
        for name, at_block_start in (("which triggers it at once", False), ("whose blocks do as they start", True))
    }
    ways = ", ".join(_WAYS)
    return f"a kernel behind the event of one {'; '.join(f'{name}, {ways}: {text}' for name, text in seen.items())}"


# How the kernel behind an event is launched: plainly, with programmatic serialization, or plainly in a capture.
_WAYS = {"plain": (False, False), "programmatic": (True, False), "in a graph": (False, True)}


def _behind_trigger(bench: Bench, way: str, *, at_block_start: bool) -> str:
    programmatic, captured = _WAYS[way]
    event, joined, other = bench.new_event(), bench.new_event(), bench.new_stream()
    first, second = bench.memory(STAMP.itemsize), bench.memory(STAMP.itemsize)
    recorded = ProgrammaticEvent(event, trigger_at_block_start=at_block_start)
    before = bench.bind("study_spin", LaunchConfig(1, 32, programmatic_event=recorded))
    config = LaunchConfig(1, 32, programmatic_stream_serialization=programmatic)
    behind = bench.bind("study_spin", config, other)

    def run() -> None:
        before(first.pointer, 500 * _US, 0, int(not at_block_start))
        other.wait(event)
        behind(second.pointer, 0, 1, 0)

    try:
        if captured:
            with Graph.capture(bench.stream) as graph:
                run()
                bench.stream.wait(other.record(joined))
            with graph, graph.instantiate() as executable:
                executable.launch(bench.stream)
                bench.context.synchronize()
        else:
            run()
    except CudaError as error:
        return f"is refused ({error.name})"
    one, next_ = bench.read(first, STAMP)[0], bench.read(second, STAMP)[0]
    if next_["begin"] < one["begin"]:
        return "BEFORE IT BEGAN"
    return _relative(_us(one["end"], next_["begin"]))


def completion_event(bench: Bench) -> str:
    """Measure when a stream continues that waits for the event of a kernel whose blocks have all begun."""
    event = bench.new_event()
    config = LaunchConfig(bench.context.multiprocessor_count, 32, launch_completion_event=event)
    first, second = bench.memory(config.grid_blocks * STAMP.itemsize), bench.memory(STAMP.itemsize)
    other = bench.new_stream()
    bench.run("study_spin", config, first.pointer, 500 * _US, 0, 0)
    other.wait(event)
    bench.run("study_spin", LaunchConfig(1, 32), second.pointer, 0, 0, 0, stream=other)
    stamps, begin = bench.read(first, STAMP), bench.read(second, STAMP)["begin"][0]
    started, ended = _us(stamps["begin"].max(), begin), _us(begin, stamps["end"].max())
    order = "after" if started >= 0 else "BEFORE"
    where = f"{ended:.0f} µs before its end" if ended >= 0 else f"{-ended:.0f} µs after its end"
    return f"a kernel behind the event began {order} the last block began (by {abs(started):.0f} µs), {where}"


def priority(bench: Bench) -> str:
    """Count the blocks that begin before one that is launched after all of them, for the priorities of that one."""
    least, greatest = binding.call("cuCtxGetStreamPriorityRange")
    # Blocks of 1024 threads: at most two are resident on a multiprocessor, so most of these wait.
    crowd = 16 * bench.context.multiprocessor_count
    ahead = {one: _ahead_of(bench, crowd, one) for one in (greatest, least)}
    text = ", ".join(f"{count} with priority {one}" for one, count in ahead.items())
    return f"of {crowd} blocks launched before one block began before it: {text}"


def _ahead_of(bench: Bench, blocks: int, wanted: int) -> int:
    crowd, one = bench.memory(blocks * STAMP.itemsize), bench.memory(STAMP.itemsize)
    other = bench.new_stream()
    for duration in (100 * _US, 1000 * _US, 10_000 * _US):
        bench.run("study_spin", LaunchConfig(blocks, 1024), crowd.pointer, duration, 0, 0)
        bench.run("study_spin", LaunchConfig(1, 1024, priority=wanted), one.pointer, 0, 0, 0, stream=other)
        begin, stamps = bench.read(one, STAMP)["begin"][0], bench.read(crowd, STAMP)
        if begin < stamps["end"].max():  # else the host was late, and there were no blocks left to overtake
            break
    return int((stamps["begin"] < begin).sum())


def carveout(bench: Bench) -> str:
    """Count the blocks that are resident on a multiprocessor, for shares of shared memory that the launch prefers."""
    size_bytes = 32 * 1024
    few = 100 * (size_bytes + 1024) // bench.device.shared_memory_per_multiprocessor_bytes + 1
    held = {percent: _resident(bench, size_bytes, percent) for percent in (few, 100)}
    text = ", ".join(f"{blocks} with a carveout of {percent} %" for percent, blocks in held.items())
    return f"blocks of {size_bytes >> 10} KiB on one multiprocessor at once: {text}"


def _resident(bench: Bench, size_bytes: int, percent: int) -> int:
    blocks = 16 * bench.context.multiprocessor_count
    config = LaunchConfig(blocks, 32, dynamic_shared_bytes=size_bytes, shared_memory_carveout=percent)
    out = bench.memory(blocks * STAMP.itemsize)
    bench.run("study_spin", config, out.pointer, 50 * _US, 0, 0)
    return most_at_once(bench.read(out, STAMP))


def most_at_once(stamps: npt.NDArray[Any]) -> int:
    """Return the most blocks that ran on one multiprocessor at the same time, given an array of `bench.STAMP`."""
    most = 0
    for index in np.unique(stamps["multiprocessor"]):
        mine = stamps[stamps["multiprocessor"] == index]
        times = np.concatenate([mine["begin"], mine["end"]])
        steps = np.repeat([1, -1], len(mine))
        # At the same instant, ends come first: a block that ends makes room for one that begins.
        order = np.lexsort((steps, times))
        most = max(most, int(np.cumsum(steps[order]).max()))
    return most


def _us(since: Any, until: Any) -> float:
    return (int(until) - int(since)) / _US


def _relative(us: float) -> str:
    return f"{us:.0f} µs after the end" if us >= 0 else f"{-us:.0f} µs before the end"
