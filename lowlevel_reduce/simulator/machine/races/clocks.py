"""The happens-before order in a launch: each warp has a vector clock; barriers, fences, release and acquire join them.

The algorithm is FastTrack (Flanagan and Freund, 2009), with warps in the role of threads. An access is an epoch, that
is a warp and the value of the warp's own clock. A later access is ordered after it if the vector clock of the later
one's warp has reached that value. The order is the causality order of the PTX ISA's memory consistency model. The lanes
of a warp count as one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from lowlevel_reduce.simulator.machine.control.special import WARP, Geometry
from lowlevel_reduce.simulator.machine.memory.flags import all_of, indices_of
from lowlevel_reduce.simulator.machine.memory.storage import Array, distinct

__all__ = ["BLOCK", "CLUSTER", "DEVICE", "NO_SCOPE", "Clocks", "Knowledge"]

NO_SCOPE, BLOCK, CLUSTER, DEVICE = range(4)
"""Scopes; each includes those before it. The system scope is the same as the device's here; weak accesses have none."""


@dataclass(frozen=True, eq=False)
class Knowledge:
    """A vector clock: the clocks of the warps of the grid as far as one warp knows them. Immutable.

    Attributes
    ----------
    unit : int
        The cluster of the warp, or -1 if clocks of several clusters were joined.
    near : numpy.ndarray
        Clocks of the warps of that cluster.
    far : numpy.ndarray or None
        Clocks of all warps of the grid, where those of the own cluster may be behind `near`; None if none is known.
    """

    unit: int
    near: Array
    far: Array | None

    def whole(self, warps: int) -> Array:
        """Return the clocks of all warps of the grid."""
        if self.unit < 0 and self.far is not None:
            return self.far
        clocks = np.zeros(warps, np.int32) if self.far is None else self.far.copy()
        start = self.unit * self.near.size
        own = clocks[start : start + self.near.size]
        np.maximum(own, self.near, out=own)
        return clocks


class Clocks:
    """The vector clocks of all warps in flight.

    A warp's identity is its place in the whole grid, which distinguishes blocks that use the same slot one after the
    other. What a warp knows about its own cluster is one row of a matrix. What it knows about the rest of the grid is
    an array that many warps may share; it is made only if a release reaches beyond the cluster.

    Attributes
    ----------
    identity, own : numpy.ndarray
        For each warp in flight, its place in the grid and its own clock.
    unit_warps, block_warps : int
        Warps of a cluster and of a block, each with its agents; the agents of a block come after its warps.
    real_warps : int
        Warps of a block without agents.
    warps_in_flight : int
        Warps in flight without agents; the agents' rows follow, warp by warp.
    """

    def __init__(self, geometry: Geometry, agents: int = 0) -> None:
        self._geometry = geometry
        self._agents = agents
        self.real_warps = geometry.stride // WARP
        self.warps_in_flight = self.real_warps * geometry.slots
        self.block_warps = self.real_warps * (1 + agents)
        self.unit_warps = self.block_warps * geometry.cluster_blocks
        self._warps = self.unit_warps * geometry.units
        count = self.block_warps * geometry.slots
        self._slot, self._column = self._places(count)
        self.identity: Array = np.zeros(count, np.int64)
        self.own: Array = np.zeros(count, np.int32)
        self._near: Array = np.zeros((count, self.unit_warps), np.int32)
        self._far: list[Array | None] = [None] * count
        self._has_far: Array = np.zeros(count, np.bool_)
        self._stamps: Array = np.zeros(count, np.uint64)
        self._stamped = False
        self._fenced: dict[tuple[int, int], Knowledge] = {}
        self._observed: dict[tuple[int, int], Knowledge] = {}
        self._locations: dict[int, dict[tuple[int, int], Knowledge]] = {}
        self._phases: dict[int, dict[tuple[int, int], Knowledge]] = {}

    @property
    def quiet(self) -> bool:
        """Whether there is no release at any place of memory, and no warp has executed a fence that prepares one."""
        return not (self._locations or self._fenced)

    def start(self, slots: Array) -> None:
        """Start the warps of new blocks: they know of no other warp, and no other warp knows of them."""
        warps = (slots[:, None] * self.real_warps + np.arange(self.real_warps)).ravel()
        if self._agents:
            agents = self.warps_in_flight + (warps[:, None] * self._agents + np.arange(self._agents)).ravel()
            warps = np.concatenate((warps, agents))
        self.identity[warps] = self._geometry.unit_of_slot[self._slot[warps]] * self.unit_warps + self._column[warps]
        self._near[warps] = 0
        self.own[warps] = 0
        self.tick(warps)
        self._has_far[warps] = False
        for warp in warps.tolist():
            self._far[warp] = None
            for scope in (BLOCK, CLUSTER, DEVICE):
                self._fenced.pop((warp, scope), None)
                self._observed.pop((warp, scope), None)

    def _places(self, count: int) -> tuple[Array, Array]:
        """Return the slot of each warp and agent, and its place among those of its cluster."""
        rows = np.arange(count)
        warps = np.where(rows < self.warps_in_flight, rows, (rows - self.warps_in_flight) // max(self._agents, 1))
        slots, within = warps // self.real_warps, warps % self.real_warps
        numbers = (rows - self.warps_in_flight) % max(self._agents, 1)
        within = np.where(rows < self.warps_in_flight, within, self.real_warps + within * self._agents + numbers)
        return slots, slots % self._geometry.cluster_blocks * self.block_warps + within

    def fork(self, warps: Array, agents: Array) -> None:
        """Let agents know what warps know, and nothing else: not even what they themselves did before."""
        self._near[agents] = self._near[warps]
        self._has_far[agents] = far = self._has_far[warps]
        for warp, agent in zip(warps[far].tolist(), agents[far].tolist(), strict=True):
            self._far[agent] = self._far[warp]

    def reveal(self, agents: Array) -> None:
        """Let agents know what they did: they are about to release it."""
        self._near[agents, self._column[agents]] = self.own[agents]

    def learn_of(self, warps: Array, agents: Array, times: Array) -> None:
        """Let warps know what agents of their clusters had done by these times."""
        np.maximum.at(self._near, (warps, self._column[agents]), times)

    def know_of(self, warps: Array, agents: Array) -> Array:
        """Return which warps know of anything that any of these agents, or those in the same places earlier, did."""
        columns = np.unique(self._column[agents])
        known: Array = np.any(self._near[warps][:, columns], axis=1)
        for i in indices_of(~known & self._has_far[warps]).tolist():
            far = self._far[int(warps[i])]
            known[i] = far is not None and bool(far.reshape(-1, self.unit_warps)[:, columns].any())
        return known

    def forget(self, first: int, last: int) -> None:
        """Forget what was released at places of memory that belong to another block now."""
        for known in (self._locations, self._phases):
            for place in [place for place in known if first <= place < last]:
                del known[place]

    def tick(self, warps: Array) -> None:
        """Begin a new epoch in these warps (each once): what they do from now on is not part of their last release."""
        self.own[warps] += 1
        self._stamped = False
        self._near[warps, self._column[warps]] = self.own[warps]

    def end_epoch(self, agents: Array) -> None:
        """Begin a new epoch in agents (each once), of which they themselves know nothing."""
        self.own[agents] += 1
        self._stamped = False

    def stamps(self, pack: Callable[[Array, Array], Array]) -> Array:
        """Return what `pack` makes of all identities and clocks, made anew only when an epoch has begun since."""
        if not self._stamped:
            self._stamps = pack(self.identity, self.own)
            self._stamped = True
        return self._stamps

    def releases(self, scope: int, *, release: bool) -> bool:
        """Return whether a write of that scope may change what was released somewhere; `write` does nothing else."""
        return bool(release or self._locations or (self._fenced and scope))

    @property
    def released(self) -> bool:
        """Whether there is anything that a read may acquire."""
        return bool(self._locations)

    def ordered(self, identities: Array, clocks: Array, warps: Array) -> Array:
        """Return which of the epochs happened before the current accesses of these warps."""
        mine = self.identity[warps]
        own: Array = identities == mine
        if self._agents:
            own &= warps < self.warps_in_flight  # an agent's operations are not ordered among each other
        if all_of(own):
            return own
        # The other's column, if it is in the same unit: without a division, which takes longer than all the rest.
        columns = identities - (mine - self._column[warps])
        near = (columns >= 0) & (columns < self.unit_warps)
        done: Array = near & (self._near[warps, np.where(near, columns, 0)] >= clocks)
        others = indices_of(~near & self._has_far[warps])
        # There are none but where a release reached beyond the cluster.
        for warp in distinct(warps[others]).tolist() if others.size else ():
            chosen = others[warps[others] == warp]
            far = self._far[warp]
            if far is not None:
                done[chosen] = far[identities[chosen]] >= clocks[chosen]
        done |= own
        return done

    def included(self, identities: Array, theirs: Array, warps: Array, mine: int) -> Array:
        """Return which strong accesses are morally strong with one of scope `mine`: each scope has the other's warp."""
        own = self.identity[warps]
        least = np.minimum(theirs, mine)
        block: Array = identities // self.block_warps == own // self.block_warps
        cluster = (identities // self.unit_warps == own // self.unit_warps) & (least >= CLUSTER)
        found: Array = block | cluster | (least >= DEVICE)
        return found

    # Barriers: `rows` has one row for each barrier, with what the arrived warps know about their cluster.

    def contribute(self, rows: Array, fars: dict[int, Array], keys: Array, warps: Array) -> None:
        """Join what warps know into the rows of barriers, and begin new epochs in the warps."""
        np.maximum.at(rows, keys, self._near[warps])
        for i in indices_of(self._has_far[warps]).tolist():
            far = self._far[int(warps[i])]
            if far is not None:
                key = int(keys[i])
                fars[key] = _longer(fars.get(key), far)
        self.tick(warps)

    def receive(self, rows: Array, fars: dict[int, Array], keys: Array, warps: Array) -> None:
        """Join the rows of barriers into what warps know."""
        self._near[warps] = np.maximum(self._near[warps], rows[keys])
        if fars:
            for key, warp in zip(keys.tolist(), warps.tolist(), strict=True):
                if key in fars:
                    self._learn_far(warp, fars[key])

    # Release and acquire, at places of memory.

    def fence(self, warps: Iterable[int], scope: int) -> None:
        """Acquire what earlier strong reads of these warps observed; prepare what their later strong writes release."""
        for warp in warps:
            for level in range(BLOCK, scope + 1):
                seen = self._observed.pop((warp, level), None)
                if seen is not None:
                    self._learn(warp, seen)
            known = self._known(warp)
            for level in range(BLOCK, scope + 1):
                self._fenced[warp, level] = known
            self.tick(np.array([warp]))

    def end_phase(self, place: int) -> None:
        """Keep what was released at an mbarrier until the phase ended that has ended now."""
        self._phases[place] = dict(self._locations.get(place, {}))

    def read(self, warps: Array, places: Array, scope: int, *, acquire: bool, phase: bool = False) -> None:
        """Let warps acquire what was released at places of memory: now, or at their next fence if not `acquire`.

        With `phase` that is what was released at mbarriers before their last phase ended.
        """
        locations = self._phases if phase else self._locations
        if not locations:
            return
        for warp, place in dict.fromkeys(zip(warps.tolist(), places.tolist(), strict=True)):
            released = locations.get(place)
            if released is None:
                continue
            for level in range(BLOCK, scope + 1):
                seen = released.get((level, self._group(warp, level)))
                if seen is None:
                    continue
                if acquire:
                    self._learn(warp, seen)
                before = self._observed.get((warp, level))
                self._observed[warp, level] = self._joined(before, seen)

    def write(self, warps: Array, places: Array, scope: int, *, release: bool, update: bool) -> None:
        """Let warps release at places of memory. An update keeps what others released there; a store replaces it.

        A weak write, which has no scope, releases nothing.
        """
        if not self.releases(scope, release=release):
            return
        pairs = dict.fromkeys(zip(warps.tolist(), places.tolist(), strict=True))
        known = {warp: self._known(warp) for warp in dict.fromkeys(warps.tolist())} if release else {}
        for warp, place in pairs:
            released = dict(self._locations.get(place, {})) if update else {}
            for level in range(BLOCK, scope + 1):
                given = known.get(warp) or self._fenced.get((warp, level))
                if given is not None:
                    key = (level, self._group(warp, level))
                    released[key] = self._joined(released.get(key), given)
            if released:
                self._locations[place] = released
            else:
                self._locations.pop(place, None)
        if release:
            self.tick(np.unique(warps))

    def _group(self, warp: int, level: int) -> int:
        """Return the number of the warp's block or cluster, as the scope requires; 0 for the device."""
        if level == DEVICE:
            return 0
        return int(self.identity[warp]) // (self.block_warps if level == BLOCK else self.unit_warps)

    def _known(self, warp: int) -> Knowledge:
        return Knowledge(int(self.identity[warp]) // self.unit_warps, self._near[warp].copy(), self._far[warp])

    def _learn(self, warp: int, seen: Knowledge) -> None:
        if seen.unit == int(self.identity[warp]) // self.unit_warps:
            self._near[warp] = np.maximum(self._near[warp], seen.near)
            if seen.far is not None:
                self._learn_far(warp, seen.far)
        else:
            self._learn_far(warp, seen.whole(self._warps))

    def _learn_far(self, warp: int, far: Array) -> None:
        self._far[warp] = _longer(self._far[warp], far)
        self._has_far[warp] = True
        start = int(self.identity[warp]) // self.unit_warps * self.unit_warps
        self._near[warp] = np.maximum(self._near[warp], far[start : start + self.unit_warps])

    def _joined(self, first: Knowledge | None, second: Knowledge) -> Knowledge:
        if first is None or first is second:
            return second
        if first.unit == second.unit >= 0:
            far = second.far if first.far is None else _longer(second.far, first.far)
            return Knowledge(first.unit, np.maximum(first.near, second.near), far)
        return Knowledge(-1, first.near[:0], _longer(first.whole(self._warps), second.whole(self._warps)))


def _longer(first: Array | None, second: Array) -> Array:
    """Return the later of two clocks for each warp; the arrays are shared, so they are not changed in place."""
    if first is None or first is second:
        return second
    later: Array = np.maximum(first, second)
    return later
