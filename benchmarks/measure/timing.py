"""Device time by graph replays or events, host time by the clock, and the conditions of a measurement."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from lowlevel_reduce import Context, Device, Event, Graph, Stream, driver

__all__ = [
    "Replay",
    "captured",
    "conditions",
    "events_us",
    "host_us",
    "launches_for",
    "opened",
    "replay_us",
    "rotation",
    "sources_digest",
    "timed_us",
]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("lowlevel_reduce/**/*.py", "cuda_src/**/*", "benchmarks/**/*.py")
"""The files that a measurement depends on."""

L2_FACTOR, MEMORY_PART = 160, 4
"""A ring of buffers holds so many times the L2 that no launch finds its input there, but at most a part of the memory.

Of a ring of only a few times its size the L2 still holds some, even what was read long ago (benchmarks/NOTES.md,
"Past the L2").
"""

GRAPH_US = 2500.0
"""Device time that one timed graph should take, so that the resolution of events does not matter."""

MAX_LAUNCHES = 1000

Enqueue = Callable[[int], object]


class Replay(Protocol):
    """A captured graph of launches, of this library or a competitor, that is launched as a whole."""

    def launch(self) -> None:
        """Put one replay into the stream."""

    def close(self) -> None:
        """Destroy it."""


class _Captured:
    """A graph that this module has captured."""

    def __init__(self, enqueue: Enqueue, stream: Stream, launches: int) -> None:
        self._stream = stream
        # Relaxed: a competitor's allocator may query the driver meanwhile; it is warm and allocates nothing.
        with Graph.capture(stream, mode="relaxed") as graph:
            for i in range(launches):
                enqueue(i)
        with graph:
            self._executable = graph.instantiate()

    def launch(self) -> None:
        self._executable.launch(self._stream)

    def close(self) -> None:
        self._executable.close()


def captured(enqueue: Enqueue, stream: Stream, launches: int) -> Replay:
    """Return a graph of ``enqueue(0)``, ``enqueue(1)``, …, captured from the stream."""
    return _Captured(enqueue, stream, launches)


def rotation(size_bytes: int, device: Device, stride_bytes: int = 0) -> int:
    """Return how many buffers of a size to rotate through, so that none is in the L2 when its turn comes.

    Each takes `stride_bytes` of the memory, if that is more than its size.
    """
    ring, part = L2_FACTOR * device.l2_bytes, device.total_memory_bytes // MEMORY_PART
    return max(2, min(-(-ring // max(size_bytes, 1)), -(-part // max(stride_bytes, size_bytes, 1))))


def launches_for(once_us: float, copies: int = 1) -> int:
    """Return how many launches of that duration one timed graph holds: a multiple of the copies of the input.

    So each replay begins with the copy that was read longest ago.
    """
    wanted = int(min(MAX_LAUNCHES, max(1.0, GRAPH_US / max(once_us, 1e-3))))
    return -(-wanted // copies) * copies


def timed_us(before: Callable[[], object], measured: Callable[[], object], stream: Stream) -> float:
    """Return the device time of what `measured` puts into the stream, in microseconds, between two events.

    `before` goes into the stream first and is not timed: while it runs, the host gets ahead, so that the time of
    launching is not part of the figure.
    """
    with Event.create(stream.context) as start, Event.create(stream.context) as end:
        before()
        stream.record(start)
        measured()
        stream.record(end)
        end.synchronize()
        return end.elapsed_ms(start) * 1e3


def replay_us(launch: Enqueue, stream: Stream, *, launches: int, rounds: int = 9) -> float:
    """Return the device time of one launch in microseconds, the median over `rounds` replays of a captured graph."""
    replay = captured(launch, stream, launches)
    try:
        times = [timed_us(replay.launch, replay.launch, stream) / launches for _ in range(rounds + 1)]
    finally:
        replay.close()
    return statistics.median(times[1:])


def events_us(launch: Enqueue, stream: Stream, *, launches: int) -> float:
    """Return the time of one launch in microseconds between two events around `launches` of them, without a graph.

    If the host is slower than the device, this is the host's time. An untimed launch precedes them, with the last copy
    of the input (``launch(-1)``), so that the first timed one does not find its own copy in the L2.
    """

    def run() -> None:
        for i in range(launches):
            launch(i)

    return timed_us(lambda: launch(-1), run, stream) / launches


def host_us(call: Callable[[], object], context: Context, *, calls: int = 200, rounds: int = 31) -> float:
    """Return the host time of one call in microseconds, the median over rounds that each begin with an idle device."""
    times = []
    for _ in range(rounds + 2):
        context.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times.append((time.perf_counter_ns() - begin) / calls / 1e3)
    context.synchronize()
    return statistics.median(times[2:])


@contextmanager
def opened() -> Iterator[Stream]:
    """Yield a stream of device 0's primary context, which is current meanwhile and is used by every competitor."""
    with Context.primary() as context, context.pushed(), Stream.create(context) as stream:
        yield stream
        context.synchronize()


_PACKAGES = (
    "cuda-bindings", "cuda-core", "cuda-cccl", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "numpy", "torch",
    "triton", "cupy-cuda12x", "cupy-cuda13x", "numba", "numba-cuda", "jax",
    "quack-kernels", "nvidia-cutlass-dsl",
)  # fmt: skip


def conditions(device: Device | None, commit: str | None) -> dict[str, Any]:
    """Return the conditions of a measurement: device, clocks, driver, host, versions, sources, commit (from git).

    Without a device those of the host alone.
    """
    return {
        "measured": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        **({} if device is None else _device_conditions(device)),
        "cpu": _cpu(),
        "logical_cpus": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
        "commit": commit or _first_line(["git", "describe", "--always", "--dirty", "--abbrev=12"]),
        "sources": sources_digest(),
    }


def _device_conditions(device: Device) -> dict[str, Any]:
    return {
        "device": device.name,
        "card": device.uuid[:8],  # which of those of this name
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
    }


def sources_digest(root: Path = ROOT) -> str:
    """Return a digest of the library, its kernels and the benchmarks, in 12 hexadecimal digits.

    A commit that is squashed with others before it reaches a branch cannot be looked up later; by this digest, its
    files can still be identified.
    """
    found = [file for pattern in SOURCES for file in root.glob(pattern) if file.is_file()]
    digest = hashlib.sha256()
    for file in sorted(found, key=lambda file: file.relative_to(root).as_posix()):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def _cpu() -> str | None:
    """Return the processor's model, as Linux names it; None elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named[1].strip() if named else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(command: list[str]) -> str | None:
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None  # the condition is recorded as None
    return text.strip().splitlines()[0] if text.strip() else None
