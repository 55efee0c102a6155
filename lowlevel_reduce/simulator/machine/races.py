"""Data races: two warps access the same bytes, one of them writes, and nothing orders the two accesses.

What counts is the memory consistency model of the PTX ISA, whatever the order in which the machine happened to run:

- Program order holds within a warp; its lanes count as one thread, so that races between lanes are not seen.
- Barriers of a block and of a cluster order what stands before an arrival (``.relaxed`` ones order nothing) with what
  stands after the wait. The end of a launch orders everything; ``griddepcontrol`` orders nothing inside of one.
- A release is seen by the acquire that reads what it wrote, or what atomics made of that: ``.release``, ``.acquire``
  and ``.acq_rel``, or a fence before a strong write and a fence after a strong read, each as far as its scope reaches.
  Bytes written by an access of another size or start are not recognised as the release.
- Strong accesses (``.relaxed`` and above, ``.volatile``, atomics) do not race with each other where the scope of each
  holds the other warp; they do with weak ones.

Of each four bytes (of each byte once less is accessed) the last weak write is remembered, and up to four accesses of
each other kind by warps that are not ordered; with more than that a race may be missed, but none is invented.
"""

from __future__ import annotations

import numpy as np

from lowlevel_reduce.simulator.machine.clocks import BLOCK, CLUSTER, DEVICE, NO_SCOPE, Clocks
from lowlevel_reduce.simulator.machine.faults import ThreadFault
from lowlevel_reduce.simulator.machine.meetings import Meetings
from lowlevel_reduce.simulator.machine.memory import GlobalMemory
from lowlevel_reduce.simulator.machine.shadow import (
    STRONG_READ,
    STRONG_WRITE,
    WEAK_READ,
    WEAK_WRITE,
    Epochs,
    Shadow,
    fields_of,
    packed,
)
from lowlevel_reduce.simulator.machine.special import WARP, Geometry
from lowlevel_reduce.simulator.machine.storage import Array
from lowlevel_reduce.simulator.ptx_code import TYPE_BYTES, Instruction

__all__ = ["Races", "Site"]

SHARED_PLACES = -(1 << 62)
"""Shared memory begins here among the places where something is released; global addresses are positive."""

_SCOPES = {"cta": BLOCK, "cluster": CLUSTER, "gpu": DEVICE, "gl": DEVICE, "sys": DEVICE}
_STRONG = {"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"}


class Races:
    """The accesses of one launch and their order.

    Parameters
    ----------
    geometry : Geometry
        The launch's blocks, clusters and slots.
    memory : GlobalMemory
        The device's.
    shared_bytes, shared_stride : int
        Shared memory of all slots, and of one.

    Attributes
    ----------
    clocks : Clocks
        What happened before what.
    meetings : Meetings
        The barriers.
    """

    def __init__(self, geometry: Geometry, memory: GlobalMemory, shared_bytes: int, shared_stride: int) -> None:
        self._geometry = geometry
        self._memory = memory
        self._stride = shared_stride
        self._shared = Shadow(shared_bytes)
        self._global: dict[int, Shadow] = {}
        self._sites: list[Site] = []
        self.clocks = Clocks(geometry)
        self.meetings = Meetings(geometry, self.clocks)

    def start(self, slots: Array) -> None:
        """Let new blocks begin in these slots, with shared memory that nobody has accessed."""
        self.clocks.start(slots)
        self.meetings.start(slots)
        for slot in slots.tolist():
            first = slot * self._stride
            self._shared.forget(first, self._stride)
            self.clocks.forget(SHARED_PLACES + first, SHARED_PLACES + first + self._stride)

    def site(self, instruction: Instruction) -> Site:
        """Return how an instruction accesses memory."""
        self._sites.append(Site(self, instruction, len(self._sites)))
        return self._sites[-1]

    def fence(self, instruction: Instruction, threads: Array) -> None:
        """Order what these threads' warps did before with what they do from now on."""
        self.clocks.fence(np.unique(threads // WARP).tolist(), _scope(instruction.modifiers))

    def in_global(self, site: Site, threads: Array, addresses: Array, size: int) -> None:
        """Take note of accesses to global memory. Raises ThreadFault for a race."""
        site.before(threads, addresses.astype(np.int64), size)
        for number, offsets, chosen in self._memory.places(addresses):
            shadow = self._global.get(number)
            if shadow is None:
                shadow = self._global[number] = Shadow(self._memory.size_of(number))
            self._note(site, shadow, threads[chosen], offsets, size)
        site.after(threads, addresses.astype(np.int64), size)

    def in_shared(self, site: Site, threads: Array, offsets: Array, size: int) -> None:
        """Take note of accesses to the shared memory of all slots. Raises ThreadFault for a race."""
        site.before(threads, SHARED_PLACES + offsets, size)
        self._note(site, self._shared, threads, offsets, size)
        site.after(threads, SHARED_PLACES + offsets, size)

    def _note(self, site: Site, shadow: Shadow, threads: Array, offsets: Array, size: int) -> None:
        places, each = shadow.places(offsets, size)
        warps = threads // WARP
        entries = packed(self.clocks.identity[warps], self.clocks.own[warps], site.number, site.scope)
        if each > 1:
            entries, warps = np.repeat(entries, each), np.repeat(warps, each)
        epochs = Epochs(places, entries, warps)
        for kind in site.against:
            self._check(site, shadow, kind, epochs, threads)
        shadow.record(site.kind, epochs, self.clocks)
        if site.writes and site.scope < DEVICE:
            # Only now do warps meet that write in the same step.
            self._check(site, shadow, site.kind, epochs, threads)

    def _check(self, site: Site, shadow: Shadow, kind: int, epochs: Epochs, threads: Array) -> None:
        for met in shadow.met(kind, epochs.places):
            others = np.flatnonzero((met != 0) & (met != epochs.entries))
            fields = fields_of(met[others])
            warps = epochs.warps[others]
            racing = ~self.clocks.ordered(fields.identities, fields.clocks, warps)
            if site.scope and kind in (STRONG_WRITE, STRONG_READ):
                racing &= ~self.clocks.included(fields.identities, fields.scopes, warps, site.scope)
            if racing.any():
                found = int(np.flatnonzero(racing)[0])
                thread = int(threads[int(others[found]) * threads.size // epochs.places.size])
                where = self._described(int(fields.identities[found]), self._sites[int(fields.sites[found])])
                raise ThreadFault(thread, f"data race: {site.verb} what {where}, and nothing orders the two")

    def _described(self, identity: int, site: Site) -> str:
        block, warp = divmod(identity, self.clocks.block_warps)
        index = self._geometry.index_of_block(block)
        line, text = site.instruction.line, site.instruction.text
        return f"warp {warp} of block {index} {site.past} at PTX line {line} ({text})"


class Site:
    """An instruction that accesses memory.

    Attributes
    ----------
    instruction : Instruction
        Where it stands.
    number : int
        Its place among the sites of the launch.
    scope : int
        The scope of a strong access, 0 of a weak one.
    writes : bool
        Whether it writes; an atomic operation does both.
    kind : int
        What it is remembered as.
    against : tuple of int
        The kinds of earlier accesses with which it may race.
    verb, past : str
        What it does, and did, in words.
    """

    def __init__(self, races: Races, instruction: Instruction, number: int) -> None:
        modifiers = set(instruction.modifiers)
        self._races = races
        self.instruction = instruction
        self.number = number
        self.atomic = instruction.opcode in {"atom", "red"}
        self.writes = self.atomic or instruction.opcode in {"st", "stmatrix"} or "store" in modifiers
        self.scope = _scope(instruction.modifiers) if self.atomic or modifiers & _STRONG else NO_SCOPE
        self._acquires = bool(modifiers & {"acquire", "acq_rel"})
        self._releases = bool(modifiers & {"release", "acq_rel"})
        self._element = TYPE_BYTES[instruction.modifiers[-1]]
        strong = self.scope != NO_SCOPE
        self.kind = (STRONG_WRITE if strong else WEAK_WRITE) if self.writes else (STRONG_READ if strong else WEAK_READ)
        self.against = (WEAK_WRITE, STRONG_WRITE) + ((WEAK_READ, STRONG_READ) if self.writes else ())
        self.verb = "updates" if self.atomic else "writes" if self.writes else "reads"
        self.past = "updated" if self.atomic else "wrote" if self.writes else "read"

    @property
    def hands_on(self) -> bool:
        """Whether what one warp did before may become known to the next one that accesses the same place."""
        return self._acquires or self._releases or not self._races.clocks.quiet

    def loaded_global(self, threads: Array, addresses: Array, size: int) -> None:
        """Take note of reads; of an atomic operation the write says it all."""
        if not self.writes:
            self._races.in_global(self, threads, addresses, size)

    def stored_global(self, threads: Array, addresses: Array, size: int) -> None:
        """Take note of writes."""
        self._races.in_global(self, threads, addresses, size)

    def loaded_shared(self, threads: Array, offsets: Array, size: int) -> None:
        """Take note of reads; of an atomic operation the write says it all."""
        if not self.writes:
            self._races.in_shared(self, threads, offsets, size)

    def stored_shared(self, threads: Array, offsets: Array, size: int) -> None:
        """Take note of writes."""
        self._races.in_shared(self, threads, offsets, size)

    def before(self, threads: Array, places: Array, size: int) -> None:
        """Acquire."""
        if self.scope and (self.atomic or not self.writes):
            warps, elements = self._elements(threads, places, size)
            self._races.clocks.read(warps, elements, self.scope, acquire=self._acquires)

    def after(self, threads: Array, places: Array, size: int) -> None:
        """Release, or write over what was released."""
        if self.writes:
            warps, elements = self._elements(threads, places, size)
            self._races.clocks.write(warps, elements, self.scope, release=self._releases, update=self.atomic)

    def _elements(self, threads: Array, places: Array, size: int) -> tuple[Array, Array]:
        """Return the warps and the places where each element of each access begins."""
        count = max(1, size // self._element)
        return np.repeat(threads // WARP, count), (places[:, None] + np.arange(count) * self._element).ravel()


def _scope(modifiers: tuple[str, ...]) -> int:
    """Return the scope of a strong access or a fence: what the modifiers name, the device else."""
    return next((_SCOPES[m] for m in modifiers if m in _SCOPES), DEVICE)
