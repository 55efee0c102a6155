"""The objects that handles stand for: one class of records for each kind, with what the driver remembers about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lowlevel_reduce.simulator.devices import SimulatedDevice
from lowlevel_reduce.simulator.driver.engine import KernelCode

__all__ = [
    "Capture",
    "Context",
    "Event",
    "Executable",
    "Graph",
    "GreenContext",
    "Kernel",
    "KernelWork",
    "LaunchRecord",
    "Library",
    "MemoryRecord",
    "Node",
    "NodeRecord",
    "Pool",
    "ResourceDescription",
    "Stream",
]


@dataclass(eq=False)
class Context:
    """A context; `owners` has an entry for each owner of a primary context: a list, since that changes in one step.

    A green context also has its handle as a green context, and its share of the device.
    """

    handle: int
    id: int
    flags: int = 0
    ordinal: int = 0
    owners: list[None] = field(default_factory=list)
    device: SimulatedDevice | None = None
    green: int = 0
    defaults: dict[tuple[int, int], Stream] = field(default_factory=dict)


@dataclass(eq=False)
class Stream:
    """A stream, or a context's default one, whose handle is 1 or 2."""

    handle: int
    id: int
    context: Context
    non_blocking: bool = True
    priority: int = 0
    policy: int = -1  # not set: NVIDIA's driver returns this value, which is not a CUsynchronizationPolicy
    capture: Capture | None = None
    trace: Any = None  # what the machine noted of the last work in it, if that was a kernel
    detached: bool = False  # its green context is gone


@dataclass(eq=False)
class GreenContext:
    """A green context, and the ordinary context that represents it."""

    handle: int
    context: Context


@dataclass(eq=False)
class ResourceDescription:
    """Multiprocessors from which a green context can be made."""

    multiprocessors: int


@dataclass(eq=False)
class Pool:
    """A pool of device memory, in bytes; it is assumed to reserve memory in steps of 2 MiB."""

    handle: int
    ordinal: int = 0
    max_size: int = 0
    default: bool = False
    threshold: int = 0
    reserved: int = 0
    reserved_high: int = 0
    used: int = 0
    used_high: int = 0
    follow_events: int = 1
    opportunistic: int = 1
    internal_dependencies: int = 1

    def has_room(self, size_bytes: int, used: int) -> bool:
        """Return whether so many more bytes than those in use do not exceed the pool's maximum size."""
        return not self.max_size or used + size_bytes <= self.max_size

    def count(self, used: int) -> None:
        """Note how many bytes are in use."""
        self.used = used
        self.used_high = max(self.used_high, used)
        self.reserved = max(self.reserved, _whole_steps(used))
        self.reserved_high = max(self.reserved_high, self.reserved)

    def give_back(self, keep_bytes: int) -> None:
        """Reduce the reserved memory to `keep_bytes`, or to what is in use if that is more."""
        self.reserved = min(self.reserved, _whole_steps(max(self.used, keep_bytes)))


def _whole_steps(size_bytes: int) -> int:
    step = 2 << 20
    return -(-size_bytes // step) * step


@dataclass(eq=False)
class Event:
    """An event; it remembers what it comes after: the last kernel's trace or, if recorded in a capture, nodes."""

    handle: int
    context: Context
    timing: bool
    recorded: bool = False
    trace: Any = None
    capture: Capture | None = None
    behind: frozenset[int] = frozenset()


@dataclass(eq=False)
class MemoryRecord:
    """An allocation: "device", "pool" or "graph" (of no context), or "pinned", whose storage keeps it alive."""

    pointer: int
    size_bytes: int
    kind: str
    context: Context | None
    ordinal: int
    storage: Any = None
    pool: Pool | None = None


@dataclass(eq=False)
class Library:
    """A loaded PTX text: its kernels, and the address and size of its variables."""

    handle: int
    kernels: dict[str, Kernel] = field(default_factory=dict)
    variables: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(eq=False)
class Kernel:
    """A kernel of a library, with its attributes by name."""

    handle: int
    library: Library
    code: KernelCode
    attributes: dict[str, int]


@dataclass(frozen=True)
class KernelWork:
    """A kernel with everything that a launch of it needs; `request` is a `request.Request`."""

    kernel: Kernel
    request: Any
    arguments: bytes
    device: SimulatedDevice


def _nothing() -> None:
    """Do nothing: the check of work that needs none."""


@dataclass(frozen=True)
class Node:
    """One piece of work: its kind, how to run it, the nodes before it, and how to check it for an executable.

    The nodes before it are given by numbers in a capture, and by handles in a graph. It may start before those of them
    have ended that are in `overlapped`. To run, a kernel takes the traces of those, and returns its own.
    """

    kind: str
    run: Callable[..., Any]
    behind: frozenset[int] = frozenset()
    overlapped: frozenset[int] = frozenset()
    work: KernelWork | None = None
    check: Callable[[], Any] = _nothing

    @property
    def programmatic(self) -> bool:
        """Whether it is a launch that may start before the kernel ahead of it in its stream has ended."""
        return self.work is not None and self.work.request.programmatic

    def run_after(self, traces: list[Any]) -> Any:
        """Run, given the traces of launches that may be running still; return the own one of a launch, else None."""
        return self.run() if self.work is None else self.run(traces)

    def renamed(self, names: Mapping[int, int] | Sequence[int]) -> Node:
        """Return the same work where the nodes before it have other names."""
        behind = frozenset(names[before] for before in self.behind)
        return replace(self, behind=behind, overlapped=frozenset(names[before] for before in self.overlapped))


@dataclass(eq=False)
class NodeRecord:
    """A node of a graph."""

    handle: int
    graph: Graph
    node: Node


@dataclass(eq=False)
class Capture:
    """A capture in progress: its nodes, and for each of its streams the nodes before the next one, and its last own."""

    origin: Stream
    mode: int
    thread: int
    number: int
    nodes: list[Node] = field(default_factory=list)
    fronts: dict[Stream, frozenset[int]] = field(default_factory=dict)
    last: dict[Stream, int] = field(default_factory=dict)
    invalid: bool = False

    def add(self, stream: Stream, work: Node) -> None:
        """Append work to a stream: it becomes a node after the stream's last ones."""
        behind, last = self.fronts[stream], self.last.get(stream, -1)
        overlaps = work.programmatic and last in behind and self.nodes[last].work is not None
        self.nodes.append(replace(work, behind=behind, overlapped=frozenset({last} if overlaps else ())))
        self.last[stream] = len(self.nodes) - 1
        self.fronts[stream] = frozenset({len(self.nodes) - 1})

    def joined(self) -> bool:
        """Tell whether all nodes come before the end of the stream that began the capture."""
        seen: set[int] = set()
        waiting = list(self.fronts[self.origin])
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen.add(number)
                waiting.extend(self.nodes[number].behind)
        return len(seen) == len(self.nodes)


@dataclass(eq=False)
class Graph:
    """A graph and its nodes, by their handles."""

    handle: int
    nodes: dict[int, NodeRecord] = field(default_factory=dict)


@dataclass(eq=False)
class Executable:
    """An executable graph: its nodes in an order in which they may run, by their handles in the original graph."""

    handle: int
    nodes: dict[int, Node]


@dataclass(frozen=True)
class LaunchRecord:
    """A kernel that ran: its name, its launch configuration, and what the machine counted."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    counters: Any
