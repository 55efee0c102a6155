"""The state that all driver functions share: handles, the threads' context stacks, memory and captures."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from typing import Any, Literal, TypeVar

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
from lowlevel_reduce.simulator.driver.refusal import Refusal, refuse
from lowlevel_reduce.simulator.driver.turn import Turn

__all__ = [
    "ENDED_KEPT",
    "INSTRUCTIONS_VARIABLE",
    "LAUNCHES_KEPT",
    "SEED_VARIABLE",
    "Refusal",
    "Seed",
    "State",
    "number",
    "refuse",
]

SEED_VARIABLE = "LOWLEVEL_REDUCE_SIMULATED_SEED"
"""Environment variable with the seed of drivers that were given none; read at each launch."""

INSTRUCTIONS_VARIABLE = "LOWLEVEL_REDUCE_SIMULATED_INSTRUCTIONS"
"""Environment variable with the limit of instructions of drivers that were given none; read at each launch."""

LAUNCHES_KEPT = 512
"""The records of so many launches are kept, the newest; of earlier ones only their kernels' counters, added up."""

ENDED_KEPT = 1024
"""Of so many contexts it is known that they existed and were destroyed, the last ones."""

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
    instructions : int, "environment" or None
        The most instructions of every launch, None for as many as the machine allows, or that it is the environment's.
    """

    def __init__(
        self, device: SimulatedDevice, engine: Engine, seed: Seed, devices: int = 1, instructions: Seed = "environment"
    ) -> None:
        self.device = device
        self.ordinals = range(devices)
        self.engine = engine
        self.seed = seed
        self.instructions = instructions
        self.memory = engine.memory()
        self.initialised = False
        self.records: dict[int, Any] = {}
        self.allocations: dict[int, MemoryRecord] = {}
        # Memory of graphs, which exists from one node to another; it is known as long as these nodes are.
        self.reserved: weakref.WeakValueDictionary[int, MemoryRecord] = weakref.WeakValueDictionary()
        self.captures: list[Capture] = []
        self.launches: deque[LaunchRecord] = deque()
        self.forgotten: dict[str, Any] = {}  # the counters of earlier launches, added up, by kernel
        self.default_pools = [Pool(next(_handles), ordinal, default=True) for ordinal in self.ordinals]
        self.current_pools = list(self.default_pools)
        self.records.update((pool.handle, pool) for pool in self.default_pools)
        self.primary_handles = [next(_handles) for _ in self.ordinals]
        self.peers: set[tuple[int, int]] = set()  # handles of contexts: the first may access the memory of the second
        self.turn = Turn()
        self._ended: deque[int] = deque(maxlen=ENDED_KEPT)  # handles of contexts
        self._threads = threading.local()

    def seed_of_launch(self) -> int | None:
        """Return the seed of the launch that is about to run, None for the natural order."""
        return _of_environment(SEED_VARIABLE) if self.seed == "environment" else self.seed

    def limit_of_launch(self) -> int | None:
        """Return the most instructions of the launch that is about to run, None for as many as the machine allows."""
        return _of_environment(INSTRUCTIONS_VARIABLE) if self.instructions == "environment" else self.instructions

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
        return record

    def drop(self, handle: int) -> None:
        """Make `handle` stale: it stands for nothing any more."""
        self.records.pop(handle, None)

    def get(self, kind: type[Record], handle: Any, missing: str = "INVALID_HANDLE") -> Record:
        """Return what `handle` stands for; refuse with the code `missing` if that is not a `kind`."""
        record = self.records.get(number(handle))
        return record if isinstance(record, kind) else refuse(missing)

    def add_node(self, graph: Graph, node: Node, handle: int) -> None:
        """Make work a node of a graph."""
        graph.nodes[handle] = self.keep(NodeRecord(handle, graph, node), handle)

    def context(self, handle: Any) -> Context:
        """Return the context of a handle; refuse a handle that is stale or not a context's."""
        record = self.records.get(number(handle))
        if isinstance(record, Context):
            return record
        return refuse("CONTEXT_IS_DESTROYED" if number(handle) in self._ended else "INVALID_CONTEXT")

    def primary(self, ordinal: int) -> Context | None:
        """Return a device's primary context, None if it has no owner."""
        record = self.records.get(self.primary_handles[ordinal])
        return record if isinstance(record, Context) else None

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
        self.peers = {pair for pair in self.peers if context.handle not in pair}
        self._ended.append(context.handle)
        self.drop(context.handle)

    def release(self, record: MemoryRecord) -> None:
        """Free an allocation, if it was not freed before."""
        if self.allocations.get(record.pointer) is not record:
            return
        if record.kind != "pinned":
            self.free(record.pointer)
        del self.allocations[record.pointer]
        if record.pool is not None:
            record.pool.count(self.used_bytes(record.pool))

    def free(self, address: int) -> None:
        """Free memory of the machine, if that was not done before."""
        found = self.memory.find(address)
        if found is not None and not found.freed:
            self.memory.free(address)

    def allocated_bytes(self, ordinal: int) -> int:
        """Return how many bytes are allocated on a device."""
        records = list(self.allocations.values())
        return sum(record.size_bytes for record in records if record.kind != "pinned" and record.ordinal == ordinal)

    def used_bytes(self, pool: Pool) -> int:
        """Return how many bytes are allocated from a pool."""
        return sum(record.size_bytes for record in list(self.allocations.values()) if record.pool is pool)

    def launched(self, record: LaunchRecord) -> None:
        """Keep the record of a launch; of the oldest, for which there is no room, the counters are added up."""
        self.launches.append(record)
        while len(self.launches) > LAUNCHES_KEPT:
            old = self.launches.popleft()
            known = self.forgotten.get(old.kernel)
            self.forgotten[old.kernel] = old.counters if known is None else known + old.counters

    def counters(self) -> dict[str, Any]:
        """Return the counters of all launches by kernel, each added up over the kernel's launches."""
        sums = dict(self.forgotten)
        for launch in list(self.launches):
            known = sums.get(launch.kernel)
            sums[launch.kernel] = launch.counters if known is None else known + launch.counters
        return sums

    def end_capture(self, capture: Capture) -> None:
        """End a capture: its streams run work again."""
        if capture in self.captures:
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


def _of_environment(variable: str) -> int | None:
    """Return the number that an environment variable has, None if it is not set."""
    written = os.environ.get(variable)
    if written and not written.isdecimal():
        raise ValueError(f"{variable} is {written!r}, not an integer of 0 or more")
    return int(written) if written else None
