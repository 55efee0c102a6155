"""Data races: two warps access the same bytes, at least one of them writes, and nothing orders the two accesses.

The memory consistency model of the PTX ISA decides, whatever the order in which the machine happened to run:

- Program order holds within a warp. Its lanes count as one thread, so races between lanes are not detected.
- Barriers of a block and of a cluster order everything before an arrival (``.relaxed`` ones order nothing) before
  everything after the wait. The end of a launch orders everything, but for launches that may start before it:
  ``prerequisites`` says which accesses come too early then.
- A release synchronises with the acquire that reads what it wrote, or what atomics computed from that: ``.release``,
  ``.acquire`` and ``.acq_rel``, or a fence before a strong write and a fence after a strong read, each as far as its
  scope reaches. An acquire of another size or first byte does not recognise the release.
- An asynchronous operation is ordered after what precedes it in program order, and before what follows a wait for it.
- Strong accesses (``.relaxed`` and above, ``.volatile``, atomics) do not race with each other if the scope of each
  includes the other warp; they do race with weak ones.

For every four bytes (for every byte once a smaller access occurs) the last weak write is remembered, and up to four
accesses of each other kind by warps that are not ordered. With more than these a race may be missed, but none is ever
reported wrongly.
"""

from __future__ import annotations

import numpy as np

from lowlevel_reduce.simulator.machine.control.agents import Agents
from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.special import WARP, Geometry
from lowlevel_reduce.simulator.machine.memory.flags import any_of, indices_of
from lowlevel_reduce.simulator.machine.memory.spaces import GlobalMemory
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.machine.races.clocks import BLOCK, CLUSTER, DEVICE, NO_SCOPE, Clocks
from lowlevel_reduce.simulator.machine.races.meetings import Meetings
from lowlevel_reduce.simulator.machine.races.prerequisites import Prerequisites
from lowlevel_reduce.simulator.machine.races.shadow import (
    OF_ANOTHER_WARP,
    STRONG_READ,
    STRONG_WRITE,
    WEAK_READ,
    WEAK_WRITE,
    Epochs,
    Shadow,
    fields_of,
    owners_of,
    packed,
    stamped,
)
from lowlevel_reduce.simulator.ptx.code import TYPE_BYTES, Instruction

__all__ = ["Races", "Site"]

SHARED_PLACES = -(1 << 62)
"""The first place of shared memory among the places where something is released; global addresses are positive."""

_SCOPES = {"cta": BLOCK, "cluster": CLUSTER, "gpu": DEVICE, "gl": DEVICE, "sys": DEVICE}
_STRONG = {"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"}


class Races:
    """The accesses of one launch and their order.

    Parameters
    ----------
    geometry : Geometry
        The launch's blocks, clusters and slots.
    memory : GlobalMemory
        The device's global memory.
    shared_bytes, shared_stride : int
        Bytes of shared memory of all slots, and of one slot.
    agents : dict, optional
        The agents that a warp needs, as `agents_of_warp` returns them.

    Attributes
    ----------
    agents : Agents
        Those who carry out asynchronous operations.
    clocks : Clocks
        The happens-before order.
    meetings : Meetings
        The barriers.
    prerequisites : Prerequisites or None
        Earlier launches that may be running still; None if there are none.
    """

    def __init__(
        self,
        geometry: Geometry,
        memory: GlobalMemory,
        shared_bytes: int,
        shared_stride: int,
        agents: dict[str, int] | None = None,
    ) -> None:
        self._geometry = geometry
        self._memory = memory
        self._stride = shared_stride
        self._shared = Shadow(shared_bytes)
        self._global: dict[int, Shadow] = {}  # by the first address of each allocation
        self._sites: list[Site] = []
        self.clocks = Clocks(geometry, sum((agents or {}).values()))
        self.agents = Agents(self.clocks, agents or {}, geometry.threads)
        # From what difference on two epochs are looked at: that of two warps, where no warp has agents, which are not
        # ordered after themselves.
        self._other = np.uint64(1) if agents else OF_ANOTHER_WARP
        self.meetings = Meetings(geometry, self.clocks)
        self.prerequisites: Prerequisites | None = None

    def adopt(self, sites: list[Site]) -> None:
        """Take over the sites of an earlier launch of the kernel."""
        self._sites = sites
        for site in sites:
            site.races = self

    def start(self, slots: Array) -> None:
        """Start new blocks in these slots, with shared memory that no warp has accessed."""
        self.clocks.start(slots)
        self.meetings.start(slots)
        for slot in slots.tolist():
            first = slot * self._stride
            self._shared.forget(first, self._stride)
            self.clocks.forget(SHARED_PLACES + first, SHARED_PLACES + first + self._stride)

    def site(self, instruction: Instruction, *, asynchronous: bool = False) -> Site:
        """Return how an instruction accesses memory, in this launch and in those that adopt the site.

        That is by the threads' warps or, if it is asynchronous, by the agents that act for them.
        """
        self._sites.append(Site(self, instruction, len(self._sites), asynchronous=asynchronous))
        return self._sites[-1]

    def fence(self, instruction: Instruction, threads: Array) -> None:
        """Execute a fence for the warps of these threads."""
        self.clocks.fence(np.unique(threads // WARP).tolist(), _scope(instruction.modifiers))

    def in_global(self, site: Site, threads: Array, addresses: Array, size: int) -> None:
        """Record accesses to global memory; raises ThreadFault for a race."""
        site.before(threads, addresses, size)
        for base, offsets, chosen in self._memory.places(addresses):
            shadow = self._global.get(base)
            if shadow is None:
                shadow = self._global[base] = Shadow(self._memory.size_of(base))
            if self.prerequisites is not None:
                self.prerequisites.check(site, threads[chosen], base, offsets, size)
            self._note(site, shadow, threads[chosen], offsets, size)
        site.after(threads, addresses, size)

    def in_shared(self, site: Site, threads: Array, offsets: Array, size: int) -> None:
        """Record accesses to the shared memory of all slots; raises ThreadFault for a race."""
        site.before(threads, SHARED_PLACES + offsets, size)
        self._note(site, self._shared, threads, offsets, size)
        site.after(threads, SHARED_PLACES + offsets, size)

    def _note(self, site: Site, shadow: Shadow, threads: Array, offsets: Array, size: int) -> None:
        places, each = shadow.places(offsets, size)
        warps = site.actors(threads)
        entries = packed(self.clocks.stamps(stamped)[warps], site.number, site.scope)
        if each > 1:
            entries, warps = entries.repeat(each), warps.repeat(each)
        epochs = Epochs(places, entries, warps)
        for kind in site.against:
            self._check(site, shadow, kind, epochs, threads)
        shadow.record(site.kind, epochs, self.clocks)
        if site.writes and site.scope < DEVICE:
            # Only now can races between warps that write in the same step be detected.
            self._check(site, shadow, site.kind, epochs, threads)

    def _check(self, site: Site, shadow: Shadow, kind: int, epochs: Epochs, threads: Array) -> None:
        for met in shadow.met(kind, epochs.places):
            # What the same warp did before is ordered, and is most of what is met.
            others = indices_of((met != 0) & ((met ^ epochs.entries) >= self._other))
            if not others.size:
                continue
            warps = epochs.warps[others]
            racing = ~self.clocks.ordered(*owners_of(met[others]), warps)
            if not any_of(racing):
                continue
            fields = fields_of(met[others])
            if site.scope and kind in (STRONG_WRITE, STRONG_READ):
                racing &= ~self.clocks.included(fields.identities, fields.scopes, warps, site.scope)
            if any_of(racing):
                found = int(indices_of(racing)[0])
                thread = int(threads[int(others[found]) * threads.size // epochs.places.size])
                where = self.described(int(fields.identities[found]), int(fields.sites[found]))
                raise ThreadFault(thread, f"data race: {site.verb} what {where}, and nothing orders the two")

    def shadow_of(self, base: int) -> Shadow | None:
        """Return the accesses to the allocation that begins at `base`; None if there were none."""
        return self._global.get(base)

    def described(self, identity: int, number: int) -> str:
        """Return in words what a warp of that identity did at the site of that number."""
        site = self._sites[number]
        block, warp = divmod(identity, self.clocks.block_warps)
        index, real = self._geometry.index_of_block(block), self.clocks.real_warps
        line, text = site.instruction.line, site.instruction.text
        who = f"warp {warp}"
        if warp >= real:
            agents = self.clocks.block_warps // real - 1
            who = f"an asynchronous operation of warp {(warp - real) // agents}"
        return f"{who} of block {index} {site.past} at PTX line {line} ({text})"


class Site:
    """An instruction that accesses memory.

    Attributes
    ----------
    races : Races
        The accesses of the launch.
    instruction : Instruction
        The instruction.
    number : int
        Its number among the sites of the kernel.
    asynchronous : bool
        Whether agents access memory instead of the threads' warps.
    scope : int
        The scope of a strong access; 0 for a weak one.
    writes : bool
        Whether it writes; an atomic operation reads and writes.
    kind : int
        The kind of access that it is remembered as.
    against : tuple of int
        The kinds of earlier accesses with which it may race.
    verb, past : str
        What it does, in words, in the present and in the past tense.
    """

    def __init__(self, races: Races, instruction: Instruction, number: int, *, asynchronous: bool = False) -> None:
        modifiers = set(instruction.modifiers)
        self.races = races
        self.instruction = instruction
        self.number = number
        self.asynchronous = asynchronous
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
        """Whether one warp's access may order its earlier accesses before the next warp's access to the same place."""
        return self._acquires or self._releases or not self.races.clocks.quiet

    def actors(self, threads: Array) -> Array:
        """Return who accesses memory for these threads: their warps, or the agents that act for them."""
        found: Array = self.races.agents.acting[threads] if self.asynchronous else threads // WARP
        return found

    def loaded_global(self, threads: Array, addresses: Array, size: int) -> None:
        """Record reads; for an atomic operation, recording the write is enough."""
        if not self.writes:
            self.races.in_global(self, threads, addresses, size)

    def stored_global(self, threads: Array, addresses: Array, size: int) -> None:
        """Record writes."""
        self.races.in_global(self, threads, addresses, size)

    def loaded_shared(self, threads: Array, offsets: Array, size: int) -> None:
        """Record reads; for an atomic operation, recording the write is enough."""
        if not self.writes:
            self.races.in_shared(self, threads, offsets, size)

    def stored_shared(self, threads: Array, offsets: Array, size: int) -> None:
        """Record writes."""
        self.races.in_shared(self, threads, offsets, size)

    def before(self, threads: Array, places: Array, size: int) -> None:
        """Acquire what was released at these places, if the access is a strong read."""
        if self.scope and (self.atomic or not self.writes) and self.races.clocks.released:
            warps, elements = self._elements(threads, places, size)
            self.races.clocks.read(warps, elements, self.scope, acquire=self._acquires)

    def after(self, threads: Array, places: Array, size: int) -> None:
        """Release at these places, or overwrite what was released there, if the access is a write."""
        if self.writes and self.races.clocks.releases(self.scope, release=self._releases):
            warps, elements = self._elements(threads, places, size)
            self.races.clocks.write(warps, elements, self.scope, release=self._releases, update=self.atomic)

    def _elements(self, threads: Array, places: Array, size: int) -> tuple[Array, Array]:
        """Return the warps and the places where each element of each access begins."""
        count = max(1, size // self._element)
        starts = places.astype(np.int64)[:, None] + np.arange(count) * self._element
        return np.repeat(self.actors(threads), count), starts.ravel()


def _scope(modifiers: tuple[str, ...]) -> int:
    """Return the scope of a strong access or a fence: the one that the modifiers name, by default the device."""
    return next((_SCOPES[m] for m in modifiers if m in _SCOPES), DEVICE)
