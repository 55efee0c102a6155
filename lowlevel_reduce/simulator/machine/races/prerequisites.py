"""Programmatic dependent launch: what earlier kernels, which may be running still, do to global memory.

The machine runs one kernel after another. A launch with the programmatic attribute, however, may start before the
kernel ahead of it has ended, and before those that this one did not wait for either. Until ``griddepcontrol.wait`` it
must not read what they write, nor write what they read or write, whenever they do so: what a kernel did before it let
its dependents in need not be visible to them either. Loads into registers that no instruction reads are prefetches, and
may come earlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from lowlevel_reduce.simulator.machine.control.agents import WAIT
from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.memory.flags import any_of, indices_of
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.machine.races.shadow import fields_of
from lowlevel_reduce.simulator.ptx.code import Instruction, UnknownInstruction
from lowlevel_reduce.simulator.ptx.operands import Address, Immediate, Name, Operand, Pair, Vector

if TYPE_CHECKING:
    from lowlevel_reduce.simulator.machine.arithmetic.basic import Decoder
    from lowlevel_reduce.simulator.machine.control.flight import Flight, Index, Step
    from lowlevel_reduce.simulator.machine.races.detector import Races, Site

__all__ = ["DECODERS", "Prerequisites", "Trace"]

NOT_IN_BETWEEN = "and no kernel in between waits for it"

MOST_RUNNING = 4
"""So many launches before a launch are taken to run still; what they did is kept as long."""


class Footprint:
    """What a launch did to global memory, once it has run and while it may be running still.

    Attributes
    ----------
    kernel : str
        The kernel's name.
    races : Races or None
        Its accesses; None if there are none that matter.
    """

    def __init__(self) -> None:
        self.kernel = ""
        self.races: Races | None = None


class Trace:
    """What is noted of a launch for those that may start before it has ended.

    Parameters
    ----------
    before : iterable of Trace
        The launches before whose end this one may start: those on which it depends by programmatic edges.

    Attributes
    ----------
    own : Footprint
        What it did.
    awaited, unawaited : tuple of Footprint
        What those launches do that may be running when it starts, and that its wait is for, or not even that.
    """

    def __init__(self, before: Iterable[Trace] = ()) -> None:
        self.own = Footprint()
        self.awaited: tuple[Footprint, ...] = ()
        self.unawaited: tuple[Footprint, ...] = ()
        self._waits = self._waits_first = False
        for trace in before:
            if trace.own.races is not None:
                self.awaited += (trace.own, *trace._running_when_it_lets_in())[:MOST_RUNNING]
                self.unawaited += trace._running_when_it_ends()[:MOST_RUNNING]

    @property
    def early(self) -> bool:
        """Whether anything may be running when the launch starts."""
        return bool(self.awaited or self.unawaited)

    def wait(self, *, first: bool) -> None:
        """Note that a block waits, and whether it does so before it lets dependents in."""
        self._waits = True
        self._waits_first |= first

    def note(self, kernel: str, races: Races) -> None:
        """Note what the launch did, at its end."""
        self.own.kernel, self.own.races = kernel, races
        races.prerequisites = None

    def finish(self) -> None:
        """Note that the host has waited for this launch, and so for all before it."""
        for footprint in (self.own, *self.awaited, *self.unawaited):
            footprint.races = None

    def _running_when_it_ends(self) -> tuple[Footprint, ...]:
        """Return the launches that may be running when this one has ended: those for which it does not wait."""
        return (() if self._waits else self.awaited) + self.unawaited

    def _running_when_it_lets_in(self) -> tuple[Footprint, ...]:
        """Return further launches that may be running when this one lets its dependents in, and not when it ends."""
        return self.awaited if self._waits and not self._waits_first else ()


class Prerequisites:
    """The launches that may be running when a launch starts, as its accesses to global memory are checked.

    Parameters
    ----------
    trace : Trace
        The launch's own.
    races : Races
        The order of its accesses; ``clocks`` has a place in each block that says what a warp knows of a wait.
    code : tuple of Instruction
        Its kernel's instructions.
    """

    def __init__(self, trace: Trace, races: Races, code: tuple[Instruction, ...]) -> None:
        self._trace = trace
        self._races = races
        self._code = code
        self._mentions: Counter[str] | None = None
        self._waited: Array = np.full(races.clocks.identity.size, -1)  # who in each warp's place has waited itself
        self._let_in: set[int] = set()

    def wait(self, threads: Array) -> None:
        """Let threads wait for the launches before this one."""
        self._trace.wait(first=not self._blocks(threads) <= self._let_in)
        self._races.agents.learn(WAIT, threads, np.ones(threads.size, np.int32))
        warps = threads // WARP
        self._waited[warps] = self._races.clocks.identity[warps]

    def let_in(self, threads: Array) -> None:
        """Let the launch's dependents start, as far as the blocks of these threads are concerned."""
        self._let_in |= self._blocks(threads)

    def _blocks(self, threads: Array) -> set[int]:
        clocks = self._races.clocks
        return set((clocks.identity[threads // WARP] // clocks.block_warps).tolist())

    def check(self, site: Site, threads: Array, base: int, offsets: Array, size: int) -> None:
        """Raise ThreadFault if these accesses to an allocation meet those of a launch that may be running still."""
        if self._trace.unawaited:
            self._check(site, self._trace.unawaited, NOT_IN_BETWEEN, threads, base, offsets, size)
        actors = site.actors(threads)
        early: Array = self._waited[actors] != self._races.clocks.identity[actors]
        if any_of(early):
            early[early] = ~self._races.agents.know_of_wait(actors[early])
        if any_of(early):
            threads, offsets = threads[early], offsets[early]
            self._check(site, self._trace.awaited, "before griddepcontrol.wait", threads, base, offsets, size)

    def _check(
        self, site: Site, earlier: Iterable[Footprint], why: str, threads: Array, base: int, offsets: Array, size: int
    ) -> None:
        for launch in earlier:
            met = _met(launch.races, site, base, offsets, size)
            if met is not None and not self._prefetches(site.instruction):
                reason = f"data race: {site.verb} what {met[1]} of the earlier kernel {launch.kernel}, {why}"
                raise ThreadFault(int(threads[met[0]]), reason)

    def _prefetches(self, instruction: Instruction) -> bool:
        """Return whether an instruction loads into registers that no other instruction mentions."""
        if instruction.opcode != "ld":
            return False
        if self._mentions is None:
            self._mentions = Counter(name for one in self._code for name in set(_names(one)))
        destination = set(_names_in(instruction.operands[0]))
        return all(self._mentions[name] == 1 for name in destination)


def _met(earlier: Races | None, site: Site, base: int, offsets: Array, size: int) -> tuple[int, str] | None:
    """Return the first access that conflicts with one of an earlier launch, and that one in words."""
    shadow = None if earlier is None else earlier.shadow_of(base)
    if shadow is None or earlier is None:
        return None
    places, each = shadow.places(offsets, size)
    for kind in site.against:
        for entries in shadow.met(kind, places):
            found = int(indices_of(entries)[0])
            fields = fields_of(entries[found : found + 1])
            return found // each, earlier.described(int(fields.identities[0]), int(fields.sites[0]))
    return None


def _names(instruction: Instruction) -> list[str]:
    guard = [instruction.guard.register] if instruction.guard else []
    return guard + [name for operand in instruction.operands for name in _names_in(operand)]


def _names_in(operand: Operand) -> list[str]:
    """Return the names that an operand mentions."""
    match operand:
        case Name(name=name) | Address(base=name):
            return [name]
        case Vector(elements=elements):
            return [name for element in elements for name in _names_in(element)]
        case Pair(first=first, second=second):
            return [first.name, second.name]
        case Immediate():
            return []


def _control(instruction: Instruction, flight: Flight) -> Step:
    """Decode griddepcontrol."""
    what = instruction.modifiers
    if what not in {("wait",), ("launch_dependents",)}:
        raise UnknownInstruction(instruction.text, instruction.line)

    def step(idx: Index) -> None:
        if flight.prerequisites is not None:
            act = flight.prerequisites.wait if what == ("wait",) else flight.prerequisites.let_in
            act(flight.threads[idx])

    return step


DECODERS: dict[str, Decoder] = {"griddepcontrol": _control}
"""Instructions about the launches before and after this one."""
