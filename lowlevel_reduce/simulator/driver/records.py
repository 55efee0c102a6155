"""What a handle stands for: one record a noun, each with what the driver remembers of it."""

from __future__ import annotations

from collections.abc import Callable
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
    """A context; `retained` counts the owners of a primary one, and is None for any other.

    A green one has a handle as such, and its share of the device.
    """

    handle: int
    id: int
    flags: int = 0
    ordinal: int = 0
    retained: int | None = None
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
    policy: int = -1  # nobody set one: NVIDIA's driver answers this, which is no CUsynchronizationPolicy
    capture: Capture | None = None
    detached: bool = False  # its green context is gone


@dataclass(eq=False)
class GreenContext:
    """A green context, and the context that stands for it."""

    handle: int
    context: Context


@dataclass(eq=False)
class ResourceDescription:
    """Multiprocessors that a green context can be made of."""

    multiprocessors: int


@dataclass(eq=False)
class Pool:
    """A pool of device memory, in bytes; the steps in which it reserves are taken as 2 MiB."""

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

    def take(self, size_bytes: int) -> bool:
        """Count an allocation, or tell that the pool may not hold it."""
        if self.max_size and self.used + size_bytes > self.max_size:
            return False
        self.used += size_bytes
        self.used_high = max(self.used_high, self.used)
        self.reserved = max(self.reserved, _whole_steps(self.used))
        self.reserved_high = max(self.reserved_high, self.reserved)
        return True

    def give_back(self, keep_bytes: int) -> None:
        """Reserve no more than `keep_bytes`, or than is in use."""
        self.reserved = min(self.reserved, _whole_steps(max(self.used, keep_bytes)))


def _whole_steps(size_bytes: int) -> int:
    step = 2 << 20
    return -(-size_bytes // step) * step


@dataclass(eq=False)
class Event:
    """An event; recorded in a capture, it remembers the nodes that it stands behind."""

    handle: int
    context: Context
    timing: bool
    recorded: bool = False
    capture: Capture | None = None
    behind: frozenset[int] = frozenset()


@dataclass(eq=False)
class MemoryRecord:
    """An allocation: "device", "pool" or "graph" (of no context), or "pinned", whose storage keeps the host's alive."""

    pointer: int
    size_bytes: int
    kind: str
    context: Context | None
    ordinal: int
    storage: Any = None
    pool: Pool | None = None


@dataclass(eq=False)
class Library:
    """A loaded PTX text: its kernels, and its variables as address and size."""

    handle: int
    kernels: dict[str, Kernel] = field(default_factory=dict)
    variables: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(eq=False)
class Kernel:
    """A kernel of a library, its attributes by name."""

    handle: int
    library: Library
    code: KernelCode
    attributes: dict[str, int]


@dataclass(frozen=True)
class KernelWork:
    """A kernel with all that a launch of it needs; `request` is a `request.Request`."""

    kernel: Kernel
    request: Any
    arguments: bytes
    device: SimulatedDevice


def _nothing() -> None:
    """Check work that needs no check."""


@dataclass(frozen=True)
class Node:
    """One piece of work: what it is, how it is run, the nodes before it, and how it is checked for an executable.

    The nodes before it are numbers in a capture, and handles in a graph.
    """

    kind: str
    run: Callable[[], None]
    behind: frozenset[int] = frozenset()
    work: KernelWork | None = None
    check: Callable[[], Any] = _nothing


@dataclass(eq=False)
class NodeRecord:
    """A node of a graph."""

    handle: int
    graph: Graph
    node: Node


@dataclass(eq=False)
class Capture:
    """A capture under way: its nodes, and for each stream in it those that its next node stands behind."""

    origin: Stream
    mode: int
    thread: int
    nodes: list[Node] = field(default_factory=list)
    fronts: dict[Stream, frozenset[int]] = field(default_factory=dict)
    invalid: bool = False

    def add(self, stream: Stream, work: Node) -> None:
        """Put work behind what `stream` has."""
        self.nodes.append(replace(work, behind=self.fronts[stream]))
        self.fronts[stream] = frozenset({len(self.nodes) - 1})

    def joined(self) -> bool:
        """Tell whether everything stands before the end of the stream that began the capture."""
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
    """An executable graph: its nodes in an order in which they may run, by the handles that they have in its graph."""

    handle: int
    nodes: dict[int, Node]


@dataclass(frozen=True)
class LaunchRecord:
    """A kernel that ran: what, how, and what the machine counted."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    counters: Any
