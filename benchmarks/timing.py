"""Device time by CUDA-graph replays, host time by the clock, and the facts that a figure needs beside it."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

from lowlevel_reduce import Context, Device, Event, Graph, Stream, driver

__all__ = ["conditions", "host_us", "replay_us", "rotation"]

L2_FACTOR = 4
"""Buffers rotated hold this many times the L2, so that no launch finds its input there."""


def rotation(size_bytes: int, device: Device) -> int:
    """Return how many buffers of a size to rotate among so that each is out of the L2 when its turn comes."""
    return max(2, -(-L2_FACTOR * device.l2_bytes // max(size_bytes, 1)))


def replay_us(launch: Callable[[int], object], stream: Stream, *, launches: int, rounds: int = 9) -> float:
    """Return the device time of one launch in microseconds, the median over `rounds` replays of a captured graph.

    Parameters
    ----------
    launch : callable
        ``launch(i)`` puts the i-th launch into `stream`.
    stream : Stream
        The stream that is captured.
    launches : int
        Launches in the graph.
    rounds : int
        Timed replays, after two that are not.
    """
    context = stream.context
    with Graph.capture(stream) as graph:
        for i in range(launches):
            launch(i)
    with graph.instantiate() as executable, Event.create(context) as start, Event.create(context) as end:
        times = []
        for _ in range(rounds + 2):
            stream.record(start)
            executable.launch(stream)
            stream.record(end)
            end.synchronize()
            times.append(end.elapsed_ms(start) * 1e3 / launches)
    graph.close()
    return statistics.median(times[2:])


def host_us(call: Callable[[], object], context: Context, *, calls: int = 200, rounds: int = 31) -> float:
    """Return the host time of one call in microseconds, the median over rounds that start with an idle device."""
    times = []
    for _ in range(rounds + 2):
        context.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times.append((time.perf_counter_ns() - begin) / calls / 1e3)
    context.synchronize()
    return statistics.median(times[2:])


def conditions(device: Device, commit: str | None) -> dict[str, Any]:
    """Return what a figure was measured under: device, clocks, driver, versions, commit (by default git's answer)."""
    packages = (
        "cuda-bindings",
        "cuda-core",
        "nvidia-cuda-nvrtc",
        "nvidia-cuda-nvrtc-cu12",
        "numpy",
        "torch",
        "cupy-cuda13x",
    )
    return {
        "device": device.name,
        "compute_capability": ".".join(map(str, device.compute_capability)),
        "multiprocessors": device.multiprocessor_count,
        "peak_bandwidth_gb_per_s": round(device.peak_bandwidth / 1e9, 1),
        "nvidia_smi": _first_line(
            [
                "nvidia-smi",
                "--query-gpu=driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem",
                "--format=csv,noheader",
            ]
        ),
        "cuda_driver": ".".join(map(str, driver.version())),
        "python": platform.python_version(),
        "packages": {name: version for name in packages if (version := _version(name)) is not None},
        "commit": commit or _first_line(["git", "describe", "--always", "--dirty", "--abbrev=12"]),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(command: list[str]) -> str | None:
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None  # recorded as missing
    return text.strip().splitlines()[0] if text.strip() else None
