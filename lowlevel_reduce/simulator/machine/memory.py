"""The global memory of a device: allocations in one flat 64-bit address space."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np

from lowlevel_reduce.simulator.machine.faults import ThreadFault
from lowlevel_reduce.simulator.machine.storage import Array, Storage, word_bytes

__all__ = ["Allocation", "GlobalMemory"]

FIRST_ADDRESS = 0x7000_0000_0000
GUARD_BYTES = 4096


@dataclass
class Allocation:
    """A piece of global memory.

    Attributes
    ----------
    base, size_bytes : int
        Its address and size.
    freed : bool
        Whether it was freed; its addresses are not reused for other allocations.
    """

    base: int
    size_bytes: int
    freed: bool = False


class GlobalMemory:
    """Allocations with guard gaps between them, each byte with a flag that says whether it was ever written.

    `read`, `write`, `fill` and `copy` are for the host; they raise ValueError outside of an allocation.
    """

    def __init__(self) -> None:
        self._next = FIRST_ADDRESS
        self._bases: list[int] = []
        self._base_array: Array = np.empty(0, np.uint64)
        self._allocations: list[Allocation] = []
        self._storages: list[Storage | None] = []

    def allocate(self, size_bytes: int, *, alignment: int = 256) -> int:
        """Return the address of new memory of that many bytes, none of them initialised."""
        if size_bytes < 1:
            raise ValueError(f"an allocation has at least one byte, not {size_bytes}")
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"an alignment is a power of two, not {alignment}")
        step = max(alignment, 256)
        base = -(-self._next // step) * step
        self._next = base + size_bytes + GUARD_BYTES
        self._bases.append(base)
        self._base_array = np.array(self._bases, np.uint64)
        self._allocations.append(Allocation(base, size_bytes))
        self._storages.append(Storage(size_bytes))
        return base

    def free(self, address: int) -> None:
        """Free the allocation that starts at `address`."""
        number = self._number(address)
        allocation = self._allocations[number] if number >= 0 else None
        if allocation is None or allocation.base != address:
            raise ValueError(f"no allocation starts at {address:#x}")
        if allocation.freed:
            raise ValueError(f"the allocation at {address:#x} was freed before")
        allocation.freed = True
        self._storages[number] = None

    def revive(self, address: int) -> None:
        """Allocate the freed allocation that starts at `address` again, uninitialised: a graph's at each launch."""
        number = self._number(address)
        allocation = self._allocations[number] if number >= 0 else None
        if allocation is None or allocation.base != address or not allocation.freed:
            raise ValueError(f"no freed allocation starts at {address:#x}")
        allocation.freed = False
        self._storages[number] = Storage(allocation.size_bytes)

    def find(self, address: int) -> Allocation | None:
        """Return the allocation that contains the byte at `address`, freed or not; None if there is none."""
        number = self._number(address)
        if number < 0:
            return None
        allocation = self._allocations[number]
        return allocation if address < allocation.base + allocation.size_bytes else None

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
                position = int(np.flatnonzero(unwritten)[0])
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
        """Return for each allocation that is accessed its number, the offsets in it, and which addresses these are.

        The addresses must have been accessed before, so that they are known to be in allocations.
        """
        numbers = np.searchsorted(self._base_array, addresses, side="right") - 1
        first = int(numbers[0])
        if (numbers == first).all():
            return [(first, addresses.astype(np.int64) - self._bases[first], slice(None))]
        parts = [(number, np.flatnonzero(numbers == number)) for number in np.unique(numbers).tolist()]
        return [(n, addresses[chosen].astype(np.int64) - self._bases[n], chosen) for n, chosen in parts]

    def size_of(self, number: int) -> int:
        """Return the size of an allocation in bytes, by the number that `places` gives it."""
        return self._allocations[number].size_bytes

    def _parts(self, addresses: Array, size: int, what: str) -> list[tuple[Storage, Array, slice | Array]]:
        """Return storage, offsets and positions for each allocation that is accessed; raise for invalid addresses."""
        misaligned = (addresses & np.uint64(size - 1)) != 0
        if misaligned.any():
            place = int(np.flatnonzero(misaligned)[0])
            raise ThreadFault(place, f"address {int(addresses[place]):#x} is misaligned for {size} bytes")
        numbers = np.searchsorted(self._base_array, addresses, side="right") - 1
        first = int(numbers[0])
        if (numbers == first).all():
            return [self._part(first, addresses, size, what, slice(None))]
        found = np.unique(numbers)
        order = sorted(found.tolist(), key=lambda number: int(np.argmax(numbers == number)))
        return [self._part(n, addresses, size, what, np.flatnonzero(numbers == n)) for n in order]

    def _part(
        self, number: int, addresses: Array, size: int, what: str, chosen: slice | Array
    ) -> tuple[Storage, Array, slice | Array]:
        if number < 0:
            place = int(np.arange(addresses.size)[chosen][0])
            raise ThreadFault(place, f"{size} bytes are {what} at {int(addresses[place]):#x}, outside all allocations")
        allocation, storage = self._allocations[number], self._storages[number]
        offsets = addresses[chosen].astype(np.int64) - allocation.base
        # Addresses from 2**63 on are negative numbers here, e.g. that of a null pointer with an index of -1.
        outside = (offsets < 0) | (offsets + size > allocation.size_bytes)
        if outside.any() or storage is None:
            place = int(np.arange(addresses.size)[chosen][np.argmax(outside)])
            raise ThreadFault(place, self._outside(allocation, int(addresses[place]), size, what))
        return storage, offsets, chosen

    @staticmethod
    def _outside(allocation: Allocation, address: int, size: int, what: str) -> str:
        start, end = allocation.base, allocation.base + allocation.size_bytes
        kind = "freed allocation" if allocation.freed else "allocation"
        where = "in" if address + size <= end else f"{address + size - end} bytes past the end of"
        return f"{size} bytes are {what} at {address:#x}, {where} the {kind} {start:#x} to {end:#x}"

    def _number(self, address: int) -> int:
        return bisect.bisect_right(self._bases, address) - 1

    def _host(self, address: int, size: int) -> tuple[Storage, int]:
        number = self._number(address)
        storage = self._storages[number] if number >= 0 else None
        allocation = self._allocations[number] if number >= 0 else None
        if allocation is None or storage is None or address + size > allocation.base + allocation.size_bytes:
            raise ValueError(f"{size} bytes at {address:#x} do not lie in one allocation")
        return storage, address - allocation.base
