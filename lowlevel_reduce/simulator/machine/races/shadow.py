"""The last accesses to each byte of a memory: epochs in parallel arrays, with one entry per four bytes or per byte."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.simulator.machine.memory.flags import any_of, indices_of
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.machine.races.clocks import Clocks

__all__ = [
    "OF_ANOTHER_WARP",
    "STRONG_READ",
    "STRONG_WRITE",
    "WEAK_READ",
    "WEAK_WRITE",
    "Epochs",
    "Shadow",
    "fields_of",
    "owners_of",
]

WEAK_WRITE, STRONG_WRITE, WEAK_READ, STRONG_READ = range(4)
"""The kinds of accesses that are remembered separately."""

DEPTH = {WEAK_WRITE: 1, STRONG_WRITE: 4, WEAK_READ: 4, STRONG_READ: 4}
"""How many unordered accesses by different warps are remembered for each kind. Two weak writes would be a race."""

SCOPE_BITS, SITE_BITS, CLOCK_BITS, IDENTITY_BITS = 2, 16, 22, 24
_WARP_SHIFT = np.uint64(SCOPE_BITS + SITE_BITS + CLOCK_BITS)
_CLOCK_SHIFT = np.uint64(SCOPE_BITS + SITE_BITS)
OF_ANOTHER_WARP = np.uint64(1) << _WARP_SHIFT
"""The bits in which two epochs differ are a number below this if both are of one warp."""
_SCOPE_MASK = np.uint64((1 << SCOPE_BITS) - 1)


class Epochs(NamedTuple):
    """Accesses: places in a shadow, and for each the packed epoch that is remembered, and its warp in flight."""

    places: Array
    entries: Array
    warps: Array

    def some(self, chosen: Array) -> Epochs:
        """Return the chosen accesses."""
        return Epochs(self.places[chosen], self.entries[chosen], self.warps[chosen])


class Fields(NamedTuple):
    """The unpacked fields of epochs."""

    identities: Array
    clocks: Array
    sites: Array
    scopes: Array


def stamped(identities: Array, clocks: Array) -> Array:
    """Return warps and their clocks, each pair packed into one word, which `packed` makes an epoch.

    Raises
    ------
    UnsupportedError
        If the launch has more warps or synchronisations than an entry can distinguish.
    """
    if int(identities.max()) >= (1 << IDENTITY_BITS) - 1 or int(clocks.max()) >= 1 << CLOCK_BITS:
        raise UnsupportedError(
            f"the simulator tells {1 << IDENTITY_BITS} warps apart, and {1 << CLOCK_BITS} synchronisations of each"
        )
    words: Array = (identities.astype(np.uint64) + np.uint64(1)) << _WARP_SHIFT
    words |= clocks.astype(np.uint64) << _CLOCK_SHIFT
    return words


def packed(stamps: Array, site: int, scope: int) -> Array:
    """Return epochs packed into one word each; 0 means none.

    Raises
    ------
    UnsupportedError
        If the launch has more instructions than an entry can distinguish.
    """
    if site >= 1 << SITE_BITS:
        raise UnsupportedError(f"the simulator tells {1 << SITE_BITS} instructions that access memory apart")
    found: Array = stamps | np.uint64(site << SCOPE_BITS | scope)
    return found


def owners_of(entries: Array) -> tuple[Array, Array]:
    """Return the identities and clocks of packed epochs, none of which is 0."""
    identities: Array = (entries >> _WARP_SHIFT).astype(np.int64) - 1
    clocks: Array = (entries >> _CLOCK_SHIFT).astype(np.int64) & ((1 << CLOCK_BITS) - 1)
    return identities, clocks


def fields_of(entries: Array) -> Fields:
    """Return the fields of packed epochs, none of which is 0."""
    identities, clocks = owners_of(entries)
    sites = (entries >> np.uint64(SCOPE_BITS)).astype(np.int64) & ((1 << SITE_BITS) - 1)
    return Fields(identities, clocks, sites, (entries & _SCOPE_MASK).astype(np.int64))


class Shadow:
    """The epochs of one memory of `size` bytes.

    Arrays are made when a kind of access first occurs, so that memory that is only read needs only one.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._granule = 4
        self._slots: dict[int, list[Array]] = {kind: [] for kind in DEPTH}

    def places(self, offsets: Array, size: int) -> tuple[Array, int]:
        """Return the places that accesses of `size` bytes cover, access by access, and how many each covers."""
        if size < self._granule:
            self._refine()
        if size <= self._granule:
            return offsets // self._granule, 1
        each = size // self._granule
        return (offsets[:, None] // self._granule + np.arange(each)).ravel(), each

    def forget(self, offset: int, size: int) -> None:
        """Forget accesses: the memory has a new owner."""
        for slots in self._slots.values():
            for slot in slots:
                slot[offset // self._granule : (offset + size) // self._granule] = 0

    def met(self, kind: int, places: Array) -> list[Array]:
        """Return the arrays of epochs remembered at places, without arrays that have none there."""
        found = [slot[places] for slot in self._slots[kind]]
        return [entries for entries in found if any_of(entries)]

    def record(self, kind: int, epochs: Epochs, clocks: Clocks) -> None:
        """Remember accesses; if there is no room at a place, the last of the old ones is forgotten."""
        last = DEPTH[kind] - 1
        for number in range(last + 1):
            slot = self._slot(kind, number)
            old = slot[epochs.places]
            taken = epochs
            if number < last and any_of(old):
                taken = epochs.some(_replaceable(old, epochs, clocks))
            slot[taken.places] = taken.entries
            lost = slot[epochs.places] != epochs.entries
            if not any_of(lost):
                return
            epochs = epochs.some(lost)

    def _slot(self, kind: int, number: int) -> Array:
        slots = self._slots[kind]
        if number == len(slots):
            slots.append(np.zeros(-(-self._size // self._granule), np.uint64))
        return slots[number]

    def _refine(self) -> None:
        """Switch to one entry per byte."""
        self._slots = {kind: [np.repeat(slot, self._granule) for slot in slots] for kind, slots in self._slots.items()}
        self._granule = 1


def _replaceable(old: Array, epochs: Epochs, clocks: Clocks) -> Array:
    """Return where the new access can replace the old one: if it is ordered after it and has no larger scope."""
    free: Array = old == 0
    there = indices_of(~free)
    old = old[there]
    identities, clocks_then = owners_of(old)
    ordered = clocks.ordered(identities, clocks_then, epochs.warps[there])
    free[there] = ordered & (epochs.entries[there] & _SCOPE_MASK <= old & _SCOPE_MASK)
    return free
