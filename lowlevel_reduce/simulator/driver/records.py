"""What a handle stands for: one record a noun, each with what the driver remembers of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lowlevel_reduce.simulator.driver.engine import KernelCode

__all__ = [
    "Capture",
    "Context",
    "Event",
    "Executable",
    "Graph",
    "Kernel",
    "LaunchRecord",
    "Library",
    "MemoryRecord",
    "Node",
    "Stream",
]


@dataclass(eq=False)
class Context:
    """A context; `retained` counts the owners of a primary one, and is None for a created one."""

    handle: int
    id: int
    flags: int = 0
    retained: int | None = None
    defaults: dict[tuple[int, int], Stream] = field(default_factory=dict)


@dataclass(eq=False)
class Stream:
    """A stream, or a context's default one, whose handle is 1 or 2."""

    handle: int
    id: int
    context: Context
    non_blocking: bool = True
    priority: int = 0
    policy: int = 1
    capture: Capture | None = None


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
    """An allocation: "device", "pool" (of no context) or "pinned", whose storage keeps the host memory alive."""

    pointer: int
    size_bytes: int
    kind: str
    context: Context | None
    storage: Any = None


@dataclass(eq=False)
class Library:
    """A loaded PTX text."""

    handle: int
    kernels: dict[str, Kernel] = field(default_factory=dict)


@dataclass(eq=False)
class Kernel:
    """A kernel of a library, its attributes by name."""

    handle: int
    library: Library
    code: KernelCode
    attributes: dict[str, int]


@dataclass(frozen=True)
class Node:
    """One piece of captured work: what it is, how it is run, and the nodes before it."""

    kind: str
    run: Callable[[], None]
    behind: frozenset[int]


@dataclass(eq=False)
class Capture:
    """A capture under way: its nodes, and for each stream in it those that its next node stands behind."""

    origin: Stream
    mode: int
    thread: int
    nodes: list[Node] = field(default_factory=list)
    fronts: dict[Stream, frozenset[int]] = field(default_factory=dict)
    invalid: bool = False

    def add(self, stream: Stream, kind: str, run: Callable[[], None]) -> None:
        """Put work behind what `stream` has."""
        self.nodes.append(Node(kind, run, self.fronts[stream]))
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
    """A captured graph; its nodes stand in an order that may be run, and each has a handle."""

    handle: int
    nodes: tuple[Node, ...]
    handles: tuple[int, ...]


@dataclass(eq=False)
class Executable:
    """An executable graph."""

    handle: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class LaunchRecord:
    """A kernel that ran: what, how, and what the machine counted."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    counters: Any
