"""Memory in every state space: checks every access, and counts what a profiler would."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.flight import LOCAL_WINDOW, SHARED_WINDOW, Flight, Source
from lowlevel_reduce.simulator.machine.memory.flags import any_of, indices_of
from lowlevel_reduce.simulator.machine.memory.storage import Array, word_bytes
from lowlevel_reduce.simulator.machine.memory.traffic import sectors, wavefronts
from lowlevel_reduce.simulator.machine.races.detector import Site
from lowlevel_reduce.simulator.ptx.code import TYPE_BYTES, Instruction
from lowlevel_reduce.simulator.ptx.operands import Address, Immediate, Name

__all__ = [
    "RANK_SHIFT",
    "SPACES",
    "STATE_SPACES",
    "GenericSpace",
    "GlobalSpace",
    "LocalSpace",
    "SharedSpace",
    "Space",
    "address_source",
    "check",
    "check_alignment",
    "placed",
    "space_of",
]

Result = TypeVar("Result")

RANK_SHIFT = 24
"""From this bit up, a shared::cluster address has the block's rank plus one, or 0 for the thread's own block."""

STATE_SPACES = ("param", "global", "shared", "local", "const")


def space_of(modifiers: tuple[str, ...]) -> str:
    """Return the state space that an instruction names, or ``"generic"`` if it names none."""
    return next((m.split("::")[0] for m in modifiers if m.split("::")[0] in STATE_SPACES), "generic")


def address_source(instruction: Instruction, flight: Flight, address: Address) -> Source:
    """Return the source of a memory operand's address, as uint64."""
    offset = np.uint64(address.offset & 0xFFFF_FFFF_FFFF_FFFF)
    if not address.base:
        return flight.read(instruction, Immediate(address.offset), "u64")
    registers = flight.launch.kernel.registers
    kind = registers.get(address.base, "u64")
    base = flight.read(instruction, Name(address.base), "u64" if TYPE_BYTES[kind] == 8 else "u32")
    if TYPE_BYTES[kind] == 8:
        return lambda idx: base(idx) + offset
    narrow = np.uint32(address.offset & 0xFFFF_FFFF)
    return lambda idx: (base(idx) + narrow).astype(np.uint64)


class Space(ABC):
    """One state space: `load` and `store` rows of words for a group of threads, and report the thread at fault.

    `turns` has one number for each access; accesses with different numbers are counted as successive requests.
    """

    def __init__(self, flight: Flight) -> None:
        self.flight = flight
        self.site: Site | None = None

    def at(self, instruction: Instruction) -> Space:
        """Make this the space of one instruction, so that races of its accesses are detected; return it."""
        self.attribute(self.flight.races.site(instruction))
        return self

    def attribute(self, site: Site) -> None:
        """Attribute the accesses to an instruction."""
        self.site = site

    @property
    def hands_on(self) -> bool:
        """Whether a thread's write may order its earlier accesses before the next thread's access to the same place."""
        return self.site is not None and self.site.hands_on

    @abstractmethod
    def load(self, threads: Array, addresses: Array, size: int, turns: Array | int = 0) -> Array:
        """Return `size` bytes at each address as rows of words."""

    @abstractmethod
    def store(self, threads: Array, addresses: Array, size: int, words: Array, turns: Array | int = 0) -> None:
        """Write rows of words; later rows overwrite earlier ones."""

    def places(self, threads: Array, addresses: Array) -> Array:
        """Return numbers that are equal for accesses to the same memory."""
        del threads
        return addresses


class GlobalSpace(Space):
    """Global memory."""

    def load(self, threads: Array, addresses: Array, size: int, turns: Array | int = 0) -> Array:
        """Load, counting requests, sectors and bytes."""
        counters = self.flight.counters
        requests, touched = sectors(threads + turns * self.flight.count, addresses)
        counters.global_loads += requests
        counters.global_load_sectors += touched
        counters.bytes_read += threads.size * size
        words = placed(threads, lambda: self.flight.memory.load(addresses, size))
        if self.site is not None:
            self.site.loaded_global(threads, addresses, size)
        return words

    def store(self, threads: Array, addresses: Array, size: int, words: Array, turns: Array | int = 0) -> None:
        """Store, counting requests, sectors and bytes."""
        counters = self.flight.counters
        requests, touched = sectors(threads + turns * self.flight.count, addresses)
        counters.global_stores += requests
        counters.global_store_sectors += touched
        counters.bytes_written += threads.size * size
        self._put(threads, addresses, size, words)
        if self.site is not None:
            self.site.stored_global(threads, addresses, size)

    def _put(self, threads: Array, addresses: Array, size: int, words: Array) -> None:
        self.flight.changes += int(placed(threads, lambda: self.flight.memory.store(addresses, size, words)))


class SharedSpace(Space):
    """Shared memory of the thread's own block and of the blocks of its cluster."""

    def load(self, threads: Array, addresses: Array, size: int, turns: Array | int = 0) -> Array:
        """Load, counting wavefronts; reading bytes that were never written is a fault."""
        offsets = self._offsets(threads, addresses, size, turns)
        if self.site is not None:  # first: what is under way is a race, though nothing may be there yet
            self.site.loaded_shared(threads, offsets, size)
        unwritten = self.flight.shared.unwritten(offsets, size)
        if unwritten is not None:
            place = int(indices_of(unwritten)[0])
            reason = f"reads {size} uninitialised bytes of shared memory at {int(addresses[place]):#x}"
            raise ThreadFault(int(threads[place]), reason)
        return self.flight.shared.load(offsets, size)

    def store(self, threads: Array, addresses: Array, size: int, words: Array, turns: Array | int = 0) -> None:
        """Store, counting wavefronts."""
        offsets = self._offsets(threads, addresses, size, turns)
        self._put(threads, offsets, size, words)
        if self.site is not None:
            self.site.stored_shared(threads, offsets, size)

    def _put(self, threads: Array, offsets: Array, size: int, words: Array) -> None:
        del threads
        self.flight.changes += int(self.flight.shared.store(offsets, size, words))

    def places(self, threads: Array, addresses: Array) -> Array:
        """Return the offsets of the accesses in the shared memory of all slots, unchecked."""
        slots, _, local = self._split(threads, addresses)
        found: Array = slots * self.flight.shared_stride + local
        return found

    def _split(self, threads: Array, addresses: Array) -> tuple[Array, Array, Array]:
        """Return for each access its slot, the rank in its address (plus one), and the offset in the slot."""
        slots = threads // self.flight.geometry.stride
        ranks = (addresses >> np.uint64(RANK_SHIFT)).astype(np.int64)
        local = (addresses & np.uint64((1 << RANK_SHIFT) - 1)).astype(np.int64)
        if any_of(ranks):
            size = self.flight.geometry.cluster_blocks
            slots = np.where(ranks > 0, slots // size * size + ranks - 1, slots)
        return slots, ranks, local

    def _offsets(self, threads: Array, addresses: Array, size: int, turns: Array | int) -> Array:
        """Return the offsets of the accesses in the shared memory of all slots, checked."""
        flight = self.flight
        check_alignment(threads, addresses, size)
        slots, ranks, local = self._split(threads, addresses)
        check(threads, local + size > flight.shared_bytes, lambda i: (
            f"{size} bytes at {int(local[i]):#x} lie outside the {flight.shared_bytes} bytes of shared memory"
        ))  # fmt: skip
        if any_of(ranks):
            self._check_remote(threads, slots, ranks)
        self._count(threads + turns * flight.count, local, size)
        found: Array = slots * flight.shared_stride + local
        return found

    def _check_remote(self, threads: Array, slots: Array, ranks: Array) -> None:
        geometry = self.flight.geometry
        size = geometry.cluster_blocks
        beyond: Array = ranks > size
        check(threads, beyond, lambda i: f"there is no block {int(ranks[i]) - 1} in a cluster of {size}")
        running: Array = np.any(self.flight.live.reshape(geometry.slots, -1), axis=1)
        check(threads, ~running[slots], lambda i: (
            f"the shared memory of block {int(ranks[i]) - 1} of the cluster is used, and that block has exited"
        ))  # fmt: skip

    def _count(self, threads: Array, local: Array, size: int) -> None:
        counters = self.flight.counters
        requests, passes, ideal = wavefronts(threads, local, size)
        counters.shared_requests += requests
        counters.shared_wavefronts += passes
        counters.bank_conflicts += passes - ideal


class LocalSpace(Space):
    """Each thread's own memory.

    Compilers copy the padding of structures byte by byte, so loads of single bytes may read bytes that were never
    written. For all other loads that is a fault.
    """

    def __init__(self, flight: Flight, *, padding: bool = False) -> None:
        super().__init__(flight)
        self._padding = padding

    def load(self, threads: Array, addresses: Array, size: int, turns: Array | int = 0) -> Array:
        """Load bytes that were written before."""
        del turns
        offsets = self._offsets(threads, addresses, size)
        unwritten = None if self._padding else self.flight.local.unwritten(offsets, size)
        if unwritten is not None:
            check(threads, unwritten, lambda i: (
                f"reads {size} uninitialised bytes of local memory at {int(addresses[i]):#x}"
            ))  # fmt: skip
        return self.flight.local.load(offsets, size)

    def store(self, threads: Array, addresses: Array, size: int, words: Array, turns: Array | int = 0) -> None:
        """Store; no other thread can wait for that."""
        del turns
        self.flight.local.store(self._offsets(threads, addresses, size), size, words)

    def places(self, threads: Array, addresses: Array) -> Array:
        """Return the offsets of the accesses in the local memory of all threads, unchecked."""
        found: Array = threads * self.flight.local_stride + addresses.astype(np.int64)
        return found

    def _offsets(self, threads: Array, addresses: Array, size: int) -> Array:
        check_alignment(threads, addresses, size)
        limit = self.flight.launch.kernel.local_bytes
        ends: Array = addresses + np.uint64(size)
        check(threads, ends > np.uint64(limit), lambda i: (
            f"{size} bytes at {int(addresses[i]):#x} lie outside the {limit} bytes of local memory"
        ))  # fmt: skip
        return self.places(threads, addresses)


class ConstantSpace(Space):
    """Variables of the module that no thread may write; they are in global memory, and accesses are not counted."""

    def load(self, threads: Array, addresses: Array, size: int, turns: Array | int = 0) -> Array:
        """Load."""
        del turns
        return placed(threads, lambda: self.flight.memory.load(addresses, size))

    def store(self, threads: Array, addresses: Array, size: int, words: Array, turns: Array | int = 0) -> None:
        """Raise: constant memory cannot be written."""
        del addresses, size, words, turns
        raise ThreadFault(int(threads[0]), "constant memory is written")


class CallSpace(Space):
    """Each thread's call parameters. Padding that a caller leaves unset is copied but not used, so that is no fault."""

    def load(self, threads: Array, addresses: Array, size: int, turns: Array | int = 0) -> Array:
        """Load."""
        del turns
        return self.flight.calls.load(self._offsets(threads, addresses), size)

    def store(self, threads: Array, addresses: Array, size: int, words: Array, turns: Array | int = 0) -> None:
        """Store."""
        del turns
        self.flight.calls.store(self._offsets(threads, addresses), size, words)

    def _offsets(self, threads: Array, addresses: Array) -> Array:
        return threads * self.flight.call_stride + addresses.astype(np.int64)


class GenericSpace(Space):
    """Generic addresses: the window that an address is in decides which state space is accessed."""

    def __init__(self, flight: Flight, *, padding: bool = False) -> None:
        super().__init__(flight)
        self._windows = (
            (0, SHARED_WINDOW, GlobalSpace(flight)),
            (SHARED_WINDOW, LOCAL_WINDOW, SharedSpace(flight)),
            (LOCAL_WINDOW, 1 << 58, LocalSpace(flight, padding=padding)),
        )

    def attribute(self, site: Site) -> None:
        """Attribute the accesses to an instruction, in whichever space they are."""
        super().attribute(site)
        for _, _, space in self._windows:
            space.attribute(site)

    def load(self, threads: Array, addresses: Array, size: int, turns: Array | int = 0) -> Array:
        """Load from up to three spaces."""
        words = np.zeros((threads.size, size // word_bytes(size)), f"u{word_bytes(size)}")
        for chosen, base, space in self._parts(addresses):
            turn = turns if isinstance(turns, int) else turns[chosen]
            words[chosen] = space.load(threads[chosen], addresses[chosen] - np.uint64(base), size, turn)
        return words

    def store(self, threads: Array, addresses: Array, size: int, words: Array, turns: Array | int = 0) -> None:
        """Store to up to three spaces."""
        for chosen, base, space in self._parts(addresses):
            turn = turns if isinstance(turns, int) else turns[chosen]
            space.store(threads[chosen], addresses[chosen] - np.uint64(base), size, words[chosen], turn)

    def places(self, threads: Array, addresses: Array) -> Array:
        """Return the places in each space, offset by the space's first generic address."""
        found = np.empty(addresses.size, np.uint64)
        for chosen, base, space in self._parts(addresses):
            inside = space.places(threads[chosen], addresses[chosen] - np.uint64(base))
            found[chosen] = inside.astype(np.uint64) + np.uint64(base)
        return found

    def _parts(self, addresses: Array) -> list[tuple[Array, int, Space]]:
        found: list[tuple[Array, int, Space]] = []
        for low, high, space in self._windows:
            last = high == 1 << 58
            inside = (addresses >= np.uint64(low)) & ((addresses < np.uint64(high)) | last)
            if any_of(inside):
                found.append((indices_of(inside), low, space))
        return found


SPACES: dict[str, Callable[[Flight], Space]] = {
    "global": GlobalSpace,
    "shared": SharedSpace,
    "local": LocalSpace,
    "const": ConstantSpace,
    "param": CallSpace,
    "generic": GenericSpace,
}
"""State spaces by name."""


def check(threads: Array, wrong: Array, reason: Callable[[int], str]) -> None:
    """Raise for the first thread whose access is wrong; `reason` gets its position among the threads."""
    if any_of(wrong):
        place = int(indices_of(wrong)[0])
        raise ThreadFault(int(threads[place]), reason(place))


def check_alignment(threads: Array, addresses: Array, size: int) -> None:
    """Raise for the first address that is not a multiple of the access's size."""
    wrong = (addresses & np.uint64(size - 1)) != 0
    check(threads, wrong, lambda i: f"address {int(addresses[i]):#x} is misaligned for {size} bytes")


def placed(threads: Array, access: Callable[[], Result]) -> Result:
    """Run an access to global memory; attribute a fault of its n-th address to the n-th thread."""
    try:
        return access()
    except ThreadFault as fault:
        raise ThreadFault(int(threads[fault.thread]), fault.reason) from None
