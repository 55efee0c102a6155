"""The global memory of a device: allocations in one flat 64-bit address space."""

from __future__ import annotations

import bisect
import weakref
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.memory.flags import all_of, any_of, indices_of
from lowlevel_reduce.simulator.machine.memory.storage import Array, Storage, word_bytes

__all__ = ["Allocation", "GlobalMemory"]

FIRST_ADDRESS = 0x7000_0000_0000
GUARD_BYTES = 4096

FREED_KEPT = 512
"""Of so many allocations that were freed last it is known, for faults, where they were; at most twice as many are."""


@dataclass(eq=False)
class Allocation:
    """A piece of global memory.

    Attributes
    ----------
    base, size_bytes : int
        Its address and size.
    storage : Storage or None
        Its bytes; None if it was freed. Its addresses are not reused for other allocations.
    owner : weakref.ref or None
        Who may have it revived, as long as it lives.
    """

    base: int
    size_bytes: int
    storage: Storage | None = None
    owner: weakref.ref[object] | None = None

    @property
    def freed(self) -> bool:
        """Whether it was freed."""
        return self.storage is None

    @property
    def lost(self) -> bool:
        """Whether it was to be revived, and nobody is left who could do that."""
        return self.owner is not None and self.owner() is None and self.freed


class _Index(NamedTuple):
    """The allocations in the order of their addresses, and these addresses as a list and as an array."""

    allocations: list[Allocation]
    bases: list[int]
    array: Array


class GlobalMemory:
    """Allocations with guard gaps between them, each byte with a flag that says whether it was ever written.

    `read`, `write`, `fill` and `copy` are for the host; they raise ValueError outside of an allocation. `allocate` and
    `revive` raise MemoryError if the host has no memory left. Whatever they raise, and wherever an interrupt comes,
    nothing has changed then: all allocations are in one index, which is replaced as a whole by the last step.
    """

    def __init__(self) -> None:
        self._next = FIRST_ADDRESS
        self._index = _Index([], [], np.empty(0, np.uint64))
        self._freed: deque[Allocation] = deque()  # those that nobody can revive, the one freed first first
        self._reserved: list[Allocation] = []
        # Where the last accesses were that lie in one allocation: `places` is asked about them next.
        self._last: tuple[Array, list[tuple[int, Array, slice | Array]]] = (np.empty(0, np.uint64), [])

    @property
    def known(self) -> int:
        """The number of allocations that are known of, freed ones included."""
        return len(self._index.allocations)

    def allocate(self, size_bytes: int, *, alignment: int = 256) -> int:
        """Return the address of new memory of that many bytes, none of them initialised."""
        return self._place(size_bytes, alignment, Storage(_checked(size_bytes, alignment)), None)

    def reserve(self, size_bytes: int, owner: object, *, alignment: int = 256) -> int:
        """Return an address at which there will be memory when it is revived, which `owner` may do while it lives."""
        return self._place(_checked(size_bytes, alignment), alignment, None, weakref.ref(owner))

    def _place(
        self, size_bytes: int, alignment: int, storage: Storage | None, owner: weakref.ref[object] | None
    ) -> int:
        step = max(alignment, 256)
        base = -(-self._next // step) * step
        new = Allocation(base, size_bytes, storage, owner)
        known, remembered = self._index, self._remembered()
        if remembered is known.allocations:
            bases, array = known.bases, known.array
        else:
            bases = [allocation.base for allocation in remembered]
            array = np.array(bases, np.uint64)
        index = _Index([*remembered, new], [*bases, base], np.append(array, np.uint64(base)))
        self._next = base + size_bytes + GUARD_BYTES
        if owner is not None:
            self._reserved = [*(other for other in self._reserved if not other.lost), new]
        self._index = index
        return base

    def _remembered(self) -> list[Allocation]:
        """Return the allocations without those that need not be known any more, if these are many."""
        known = self._index.allocations
        # No generator that is left half run: Python ends it, and drops an interrupt that comes just then.
        lost = [allocation for allocation in self._reserved if allocation.lost]
        if len(self._freed) <= 2 * FREED_KEPT and not lost:
            return known
        while len(self._freed) > FREED_KEPT:
            self._freed.popleft()
        last = set(map(id, self._freed))
        return [a for a in known if id(a) in last or not (a.freed if a.owner is None else a.lost)]

    def free(self, address: int) -> None:
        """Free the allocation that starts at `address`."""
        allocation = self._at(address)
        if allocation is None or allocation.base != address:
            raise ValueError(f"no allocation starts at {address:#x}")
        if allocation.freed:
            raise ValueError(f"the allocation at {address:#x} was freed before")
        allocation.storage = None
        if allocation.owner is None:
            self._freed.append(allocation)

    def revive(self, address: int) -> None:
        """Bring about memory at a reserved address, uninitialised: a graph's at each launch, which frees it as well."""
        allocation = self._at(address)
        if allocation is None or allocation.base != address or allocation.owner is None or not allocation.freed:
            raise ValueError(f"no memory is reserved, and absent, at {address:#x}")
        allocation.storage = Storage(allocation.size_bytes)

    def find(self, address: int) -> Allocation | None:
        """Return the allocation that contains the byte at `address`, freed or not; None if there is none."""
        allocation = self._at(address)
        if allocation is None or address >= allocation.base + allocation.size_bytes:
            return None
        return allocation

    def read(self, address: int, size: int) -> bytes:
        """Return bytes, initialised or not."""
        storage, offset = self._host(address, size)
        return storage.data[offset : offset + size].tobytes()

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write bytes."""
        values = np.frombuffer(data, np.uint8)
        storage, offset = self._host(address, values.size)
        storage.data[offset : offset + values.size] = values
        storage.mark(offset, values.size)

    def fill(self, address: int, byte: int, size: int) -> None:
        """Set bytes to one value."""
        storage, offset = self._host(address, size)
        storage.data[offset : offset + size] = byte
        storage.mark(offset, size)

    def copy(self, dst: int, src: int, size: int) -> None:
        """Copy bytes, which may overlap."""
        source, start = self._host(src, size)
        values = source.data[start : start + size].copy()
        storage, offset = self._host(dst, size)
        storage.data[offset : offset + size] = values
        storage.mark(offset, size)

    def load(self, addresses: Array, size: int) -> Array:
        """Return `size` bytes at each address as rows of words.

        Raises
        ------
        ThreadFault
            For the first access, by position, that is not to initialised memory.
        """
        words = np.empty((addresses.size, size // word_bytes(size)), f"u{word_bytes(size)}")
        for storage, offsets, chosen in self._parts(addresses, size, "read"):
            unwritten = storage.unwritten(offsets, size)
            if unwritten is not None:
                position = int(indices_of(unwritten)[0])
                place = int(np.arange(addresses.size)[chosen][position])
                raise ThreadFault(place, f"reads {size} uninitialised bytes at {int(addresses[place]):#x}")
            words[chosen] = storage.load(offsets, size)
        return words

    def store(self, addresses: Array, size: int, words: Array) -> bool:
        """Write rows of words; return whether that changed anything. Raises for invalid addresses as `load` does."""
        changed = False
        for storage, offsets, chosen in self.storages(addresses, size):
            changed |= storage.store(offsets, size, words[chosen])
        return changed

    def storages(self, addresses: Array, size: int) -> list[tuple[Storage, Array, slice | Array]]:
        """Return for each allocation that is written its storage, the offsets in it, and which addresses these are.

        Raises for invalid addresses as `load` does.
        """
        return self._parts(addresses, size, "written")

    def places(self, addresses: Array) -> list[tuple[int, Array, slice | Array]]:
        """Return for each allocation that is accessed its base, the offsets in it, and which addresses these are.

        The addresses must have been accessed before, so that they are known to be in allocations.
        """
        accessed, places = self._last
        if accessed is addresses:
            return places
        bases = self._index.bases
        numbers = np.searchsorted(self._index.array, addresses, side="right") - 1
        first = int(numbers[0])
        if all_of(numbers == first):
            return [(bases[first], addresses.astype(np.int64) - bases[first], slice(None))]
        parts = [(bases[number], indices_of(numbers == number)) for number in np.unique(numbers).tolist()]
        return [(base, addresses[chosen].astype(np.int64) - base, chosen) for base, chosen in parts]

    def size_of(self, base: int) -> int:
        """Return the size of an allocation in bytes, by the base that `places` names it by."""
        return self._index.allocations[bisect.bisect_left(self._index.bases, base)].size_bytes

    def _parts(self, addresses: Array, size: int, what: str) -> list[tuple[Storage, Array, slice | Array]]:
        """Return storage, offsets and positions for each allocation that is accessed; raise for invalid addresses."""
        misaligned = (addresses & np.uint64(size - 1)) != 0
        if any_of(misaligned):
            place = int(indices_of(misaligned)[0])
            raise ThreadFault(place, f"address {int(addresses[place]):#x} is misaligned for {size} bytes")
        numbers = np.searchsorted(self._index.array, addresses, side="right") - 1
        first = int(numbers[0])
        if all_of(numbers == first):
            part = self._part(first, addresses, size, what, slice(None))
            self._last = (addresses, [(self._index.bases[first], part[1], part[2])])
            return [part]
        found = np.unique(numbers)
        order = sorted(found.tolist(), key=lambda number: int(np.argmax(numbers == number)))
        return [self._part(n, addresses, size, what, indices_of(numbers == n)) for n in order]

    def _part(
        self, number: int, addresses: Array, size: int, what: str, chosen: slice | Array
    ) -> tuple[Storage, Array, slice | Array]:
        if number < 0:
            place = int(np.arange(addresses.size)[chosen][0])
            raise ThreadFault(place, f"{size} bytes are {what} at {int(addresses[place]):#x}, outside all allocations")
        allocation = self._index.allocations[number]
        storage = allocation.storage
        offsets = addresses[chosen].astype(np.int64) - allocation.base
        # Addresses from 2**63 on are negative numbers here, e.g. that of a null pointer with an index of -1.
        outside = (offsets < 0) | (offsets + size > allocation.size_bytes)
        if any_of(outside) or storage is None:
            place = int(np.arange(addresses.size)[chosen][np.argmax(outside)])
            raise ThreadFault(place, self._outside(allocation, int(addresses[place]), size, what))
        return storage, offsets, chosen

    @staticmethod
    def _outside(allocation: Allocation, address: int, size: int, what: str) -> str:
        start, end = allocation.base, allocation.base + allocation.size_bytes
        kind = "freed allocation" if allocation.freed else "allocation"
        where = "in" if address + size <= end else f"{address + size - end} bytes past the end of"
        return f"{size} bytes are {what} at {address:#x}, {where} the {kind} {start:#x} to {end:#x}"

    def _at(self, address: int) -> Allocation | None:
        """Return the last allocation that begins at an address or before it."""
        index = self._index
        number = bisect.bisect_right(index.bases, address) - 1
        return index.allocations[number] if number >= 0 else None

    def _host(self, address: int, size: int) -> tuple[Storage, int]:
        allocation = self._at(address)
        storage = None if allocation is None else allocation.storage
        if allocation is None or storage is None or address + size > allocation.base + allocation.size_bytes:
            raise ValueError(f"{size} bytes at {address:#x} do not lie in one allocation")
        return storage, address - allocation.base


def _checked(size_bytes: int, alignment: int) -> int:
    if size_bytes < 1:
        raise ValueError(f"an allocation has at least one byte, not {size_bytes}")
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"an alignment is a power of two, not {alignment}")
    return size_bytes
