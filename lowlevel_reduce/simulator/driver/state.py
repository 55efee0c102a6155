"""What all the driver's functions share: the handles, the threads' context stacks, the memory and the captures."""

from __future__ import annotations

import itertools
import threading
from typing import Any, NoReturn, TypeVar

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.devices import SimulatedDevice
from lowlevel_reduce.simulator.driver.engine import Engine
from lowlevel_reduce.simulator.driver.records import (
    Capture,
    Context,
    Event,
    Executable,
    Graph,
    LaunchRecord,
    Library,
    MemoryRecord,
    Node,
    NodeRecord,
    Pool,
    Stream,
)

__all__ = ["Refusal", "State", "number", "refuse"]

Record = TypeVar("Record")

# Handles and ids are never given out twice, by no simulated driver of this process: a stale one is found out, and
# what somebody keyed by them stays apart. Ids begin where no real driver's do.
_handles = itertools.count(0x5100_0000_0000, 0x40)
_ids = itertools.count(1 << 40)

_NOUNS = {
    Context: "contexts",
    Stream: "streams",
    Event: "events",
    Library: "libraries",
    Graph: "graphs",
    Executable: "executable graphs",
    Pool: "memory pools",
}


class Refusal(Exception):  # noqa: N818 - no error of ours: it becomes a result code at the facade
    """A function ends with a result code other than success."""

    def __init__(self, code: Any) -> None:
        super().__init__(code.name)
        self.code = code


def refuse(name: str) -> NoReturn:
    """End the driver's function with the result code ``CUDA_ERROR_<name>``."""
    raise Refusal(getattr(cu.CUresult, f"CUDA_ERROR_{name}"))


def number(value: Any) -> int:
    """Return a handle or an address as an int; None is 0."""
    return 0 if value is None else int(value)


class State:
    """The state of one simulated driver.

    Parameters
    ----------
    device : SimulatedDevice
        What each of its devices is.
    engine : Engine
        The machine.
    seed : int or None
        What every launch is given, to order what has no order.
    devices : int
        How many devices there are.
    """

    def __init__(self, device: SimulatedDevice, engine: Engine, seed: int | None, devices: int = 1) -> None:
        self.device = device
        self.ordinals = range(devices)
        self.engine = engine
        self.seed = seed
        self.memory = engine.memory()
        self.initialised = False
        self.records: dict[int, Any] = {}
        self.allocations: dict[int, MemoryRecord] = {}
        self.reserved: dict[int, MemoryRecord] = {}  # graphs' own memory, which is there from one node to another
        self.allocated_bytes = [0] * devices
        self.captures: list[Capture] = []
        self.launches: list[LaunchRecord] = []
        self.default_pools = [Pool(next(_handles), ordinal, default=True) for ordinal in self.ordinals]
        self.current_pools = list(self.default_pools)
        self.records.update((pool.handle, pool) for pool in self.default_pools)
        self.primaries: dict[int, Context] = {}  # those that somebody retains, by device
        self.primary_handles = [next(_handles) for _ in self.ordinals]
        self.peers: set[tuple[int, int]] = set()  # handles of contexts: the first reaches the memory of the second
        self._gone: set[int] = set()
        self._threads = threading.local()

    # handles

    def new_handle(self) -> int:
        """Return a handle that nothing had before."""
        return next(_handles)

    def new_id(self) -> int:
        """Return an id that nothing had before."""
        return next(_ids)

    def keep(self, record: Record, handle: int) -> Record:
        """Let `handle` stand for `record`."""
        self.records[handle] = record
        self._gone.discard(handle)
        return record

    def drop(self, handle: int) -> None:
        """Let `handle` stand for nothing any more."""
        del self.records[handle]
        self._gone.add(handle)

    def get(self, kind: type[Record], handle: Any, missing: str = "INVALID_HANDLE") -> Record:
        """Return what `handle` stands for, or refuse with `missing` if that is no `kind`."""
        record = self.records.get(number(handle))
        return record if isinstance(record, kind) else refuse(missing)

    def add_node(self, graph: Graph, node: Node, handle: int) -> None:
        """Make work a node of a graph."""
        graph.nodes[handle] = self.keep(NodeRecord(handle, graph, node), handle)

    def context(self, handle: Any) -> Context:
        """Return a context that lives."""
        gone = number(handle) in self._gone
        return self.get(Context, handle, "CONTEXT_IS_DESTROYED" if gone else "INVALID_CONTEXT")

    def check_device(self, device: Any) -> int:
        """Return the number of a device, or refuse it if there is none of that number."""
        return int(device) if int(device) in self.ordinals else refuse("INVALID_DEVICE")

    # the calling thread

    @property
    def stack(self) -> list[int]:
        """The calling thread's contexts, the current one last."""
        if not hasattr(self._threads, "stack"):
            self._threads.stack = []
        return self._threads.stack  # type: ignore[no-any-return]

    @property
    def capture_mode(self) -> int:
        """How the calling thread meets captures: 0 global, 1 thread-local, 2 relaxed."""
        return getattr(self._threads, "capture_mode", 0)

    @capture_mode.setter
    def capture_mode(self, mode: int) -> None:
        self._threads.capture_mode = mode

    def current(self) -> Context:
        """Return the calling thread's current context, or refuse if there is none."""
        return self.context(self.stack[-1]) if self.stack else refuse("INVALID_CONTEXT")

    def device_of(self, context: Context) -> SimulatedDevice:
        """Return what of the device a context may use: all of it, or the share of a green one."""
        return context.device or self.device

    def done(self) -> None:
        """Let the pools give back what they do not keep, as they do when somebody waits for work."""
        for pool in {*self.default_pools, *(record for record in self.records.values() if isinstance(record, Pool))}:
            pool.give_back(pool.threshold)

    # what dies with a context, and what is still there

    def end_context(self, context: Context) -> None:
        """Destroy a context and all that it holds; memory from the pool is nobody's, and stays."""
        for capture in [capture for capture in self.captures if capture.origin.context is context]:
            self.end_capture(capture)
        for handle, record in list(self.records.items()):
            # Streams of a green context are detached, and their owner's to destroy.
            if isinstance(record, (Stream, Event)) and record.context is context and not getattr(record, "detached", 0):
                self.drop(handle)
        for record in list(self.allocations.values()):
            if record.context is context:
                self.release(record)
        self.drop(context.handle)
        self.peers = {pair for pair in self.peers if context.handle not in pair}

    def release(self, record: MemoryRecord) -> None:
        """Give memory back."""
        del self.allocations[record.pointer]
        if record.kind != "pinned":
            self.allocated_bytes[record.ordinal] -= record.size_bytes
            if record.pool is not None:
                record.pool.used -= record.size_bytes
            self.memory.free(record.pointer)

    def end_capture(self, capture: Capture) -> None:
        """Let the streams of a capture run again."""
        self.captures.remove(capture)
        for stream in capture.fronts:
            stream.capture = None

    def leaks(self) -> dict[str, int]:
        """Return how much of each kind is alive, without the kinds of which nothing is."""
        counts = dict.fromkeys((*_NOUNS.values(), "allocations"), 0)
        for record in self.records.values():
            if type(record) in _NOUNS and not getattr(record, "default", False):
                counts[_NOUNS[type(record)]] += 1
        counts["allocations"] = len(self.allocations)
        return {noun: count for noun, count in counts.items() if count}
