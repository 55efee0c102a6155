"""Memory as asynchronous operations access it: by agents, and with data that may arrive later than it is sent."""

from __future__ import annotations

from collections.abc import Callable

from lowlevel_reduce.simulator.machine.control.flight import Flight
from lowlevel_reduce.simulator.machine.memory.access import GlobalSpace, SharedSpace, Space, placed
from lowlevel_reduce.simulator.machine.memory.storage import Array, Storage
from lowlevel_reduce.simulator.machine.races.arrivals import Act, Arrivals
from lowlevel_reduce.simulator.ptx.code import Instruction

__all__ = ["Deliver", "by_agents", "delayed"]

Deliver = Callable[[Arrivals, Array, Act], None]
"""A method that is given threads and how the row of each arrives, and decides when they do."""


class _DelayedShared(SharedSpace):
    """Shared memory to which rows come when `deliver` lets them."""

    def __init__(self, flight: Flight, deliver: Deliver) -> None:
        super().__init__(flight)
        self._deliver = deliver

    def _put(self, threads: Array, offsets: Array, size: int, words: Array) -> None:
        def act(rows: Array) -> None:
            self.flight.changes += int(self.flight.shared.store(offsets[rows], size, words[rows]))

        self._deliver(self.flight.arrivals, threads, act)


class _DelayedGlobal(GlobalSpace):
    """Global memory to which rows come when `deliver` lets them."""

    def __init__(self, flight: Flight, deliver: Deliver) -> None:
        super().__init__(flight)
        self._deliver = deliver

    def _put(self, threads: Array, addresses: Array, size: int, words: Array) -> None:
        for storage, offsets, chosen in placed(threads, lambda: self.flight.memory.storages(addresses, size)):
            self._deliver(self.flight.arrivals, threads[chosen], self._storing(storage, offsets, size, words[chosen]))

    def _storing(self, storage: Storage, offsets: Array, size: int, words: Array) -> Act:
        def act(rows: Array) -> None:
            self.flight.changes += int(storage.store(offsets[rows], size, words[rows]))

        return act


def by_agents(instruction: Instruction, flight: Flight, space: Space, *plain: str) -> Space:
    """Attribute a space's accesses to an instruction, as the plain loads, stores or reductions of its agents."""
    opcode, *modifiers = plain
    alike = instruction._replace(opcode=opcode, modifiers=(*modifiers, "b32"))
    space.attribute(flight.races.site(alike, asynchronous=True))
    return space


def delayed(flight: Flight, name: str, deliver: Deliver) -> Space:
    """Return the global or shared memory to which rows come when `deliver` lets them."""
    return _DelayedGlobal(flight, deliver) if name == "global" else _DelayedShared(flight, deliver)
