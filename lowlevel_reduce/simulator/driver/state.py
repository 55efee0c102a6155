"""The state that all driver functions share: handles, the threads' context stacks, memory and captures."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any, Literal, NoReturn, TypeVar

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

__all__ = ["SEED_VARIABLE", "Refusal", "Seed", "State", "number", "refuse"]

SEED_VARIABLE = "LOWLEVEL_REDUCE_SIMULATED_SEED"
"""Environment variable with the seed of drivers that were given none; read at each launch."""

Seed = int | Literal["environment"] | None
"""The seed for the order of a launch's blocks and warps, where it comes from, or None for their natural order."""

Record = TypeVar("Record")

# Handles and ids are never reused, not even by another simulated driver of this process: so stale ones are detected,
# and whatever is kept by them stays distinct. Ids begin where those of a real driver do not.
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


class Refusal(Exception):  # noqa: N818 - not an error of ours: the facade turns it into a result code
    """Ends a driver function with a result code other than success."""

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
        The kind of its devices.
    engine : Engine
        The machine.
    seed : int, "environment" or None
        The seed for what is unspecified in every launch, such as the order of its blocks, or that it is the
        environment's.
    devices : int
        Number of devices.
    """

    def __init__(self, device: SimulatedDevice, engine: Engine, seed: Seed, devices: int = 1) -> None:
        self.device = device
        self.ordinals = range(devices)
        self.engine = engine
        self.seed = seed
        self.memory = engine.memory()
        self.initialised = False
        self.records: dict[int, Any] = {}
        self.allocations: dict[int, MemoryRecord] = {}
        self.reserved: dict[int, MemoryRecord] = {}  # memory of graphs, which exists from one node to another
        self.allocated_bytes = [0] * devices
        self.captures: list[Capture] = []
        self.launches: list[LaunchRecord] = []
        self.default_pools = [Pool(next(_handles), ordinal, default=True) for ordinal in self.ordinals]
        self.current_pools = list(self.default_pools)
        self.records.update((pool.handle, pool) for pool in self.default_pools)
        self.primaries: dict[int, Context] = {}  # the retained primary contexts, by device
        self.primary_handles = [next(_handles) for _ in self.ordinals]
        self.peers: set[tuple[int, int]] = set()  # handles of contexts: the first may access the memory of the second
        self._gone: set[int] = set()
        self._threads = threading.local()

    def seed_of_launch(self) -> int | None:
        """Return the seed of the launch that is about to run, None for the natural order."""
        if self.seed != "environment":
            return self.seed
        written = os.environ.get(SEED_VARIABLE)
        if written and not written.isdecimal():
            raise ValueError(f"{SEED_VARIABLE} is {written!r}, not an integer of 0 or more")
        return int(written) if written else None

    # handles

    def new_handle(self) -> int:
        """Return a handle that was never used before."""
        return next(_handles)

    def new_id(self) -> int:
        """Return an id that was never used before."""
        return next(_ids)

    def keep(self, record: Record, handle: int) -> Record:
        """Let `handle` stand for `record`."""
        self.records[handle] = record
        self._gone.discard(handle)
        return record

    def drop(self, handle: int) -> None:
        """Make `handle` stale: it stands for nothing any more."""
        del self.records[handle]
        self._gone.add(handle)

    def get(self, kind: type[Record], handle: Any, missing: str = "INVALID_HANDLE") -> Record:
        """Return what `handle` stands for; refuse with the code `missing` if that is not a `kind`."""
        record = self.records.get(number(handle))
        return record if isinstance(record, kind) else refuse(missing)

    def add_node(self, graph: Graph, node: Node, handle: int) -> None:
        """Make work a node of a graph."""
        graph.nodes[handle] = self.keep(NodeRecord(handle, graph, node), handle)

    def context(self, handle: Any) -> Context:
        """Return the context of a handle; refuse a handle that is stale or not a context's."""
        gone = number(handle) in self._gone
        return self.get(Context, handle, "CONTEXT_IS_DESTROYED" if gone else "INVALID_CONTEXT")

    def check_device(self, device: Any) -> int:
        """Return the number of a device; refuse a number that no device has."""
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
        """The calling thread's capture mode: 0 global, 1 thread-local, 2 relaxed."""
        return getattr(self._threads, "capture_mode", 0)

    @capture_mode.setter
    def capture_mode(self, mode: int) -> None:
        self._threads.capture_mode = mode

    def current(self) -> Context:
        """Return the calling thread's current context; refuse if there is none."""
        return self.context(self.stack[-1]) if self.stack else refuse("INVALID_CONTEXT")

    def device_of(self, context: Context) -> SimulatedDevice:
        """Return the part of the device that a context may use: all of it, or a green context's share."""
        return context.device or self.device

    def done(self) -> None:
        """Make the pools release memory above their thresholds, as pools do at synchronisation."""
        for pool in {*self.default_pools, *(record for record in self.records.values() if isinstance(record, Pool))}:
            pool.give_back(pool.threshold)

    # the end of contexts, memory and captures, and what still exists

    def end_context(self, context: Context) -> None:
        """Destroy a context and everything that belongs to it; memory from pools belongs to no context, and stays."""
        for capture in [capture for capture in self.captures if capture.origin.context is context]:
            self.end_capture(capture)
        for handle, record in list(self.records.items()):
            # Streams of a green context become detached; their owner still has to destroy them.
            if isinstance(record, (Stream, Event)) and record.context is context and not getattr(record, "detached", 0):
                self.drop(handle)
        for record in list(self.allocations.values()):
            if record.context is context:
                self.release(record)
        self.drop(context.handle)
        self.peers = {pair for pair in self.peers if context.handle not in pair}

    def release(self, record: MemoryRecord) -> None:
        """Free an allocation."""
        del self.allocations[record.pointer]
        if record.kind != "pinned":
            self.allocated_bytes[record.ordinal] -= record.size_bytes
            if record.pool is not None:
                record.pool.used -= record.size_bytes
            self.memory.free(record.pointer)

    def end_capture(self, capture: Capture) -> None:
        """End a capture: its streams run work again."""
        self.captures.remove(capture)
        for stream in capture.fronts:
            stream.capture = None

    def leaks(self) -> dict[str, int]:
        """Return how many objects of each kind exist, without the kinds of which there are none."""
        counts = dict.fromkeys((*_NOUNS.values(), "allocations"), 0)
        for record in self.records.values():
            if type(record) in _NOUNS and not getattr(record, "default", False):
                counts[_NOUNS[type(record)]] += 1
        counts["allocations"] = len(self.allocations)
        return {noun: count for noun, count in counts.items() if count}
