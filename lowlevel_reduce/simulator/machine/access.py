"""ld and st: memory in every state space, what is wrong with an access, and what a profiler counts of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from lowlevel_reduce.simulator.machine.arithmetic import Decoder
from lowlevel_reduce.simulator.machine.faults import ThreadFault
from lowlevel_reduce.simulator.machine.flight import (
    LOCAL_WINDOW,
    NUMPY_TYPES,
    SHARED_WINDOW,
    Flight,
    Source,
    Step,
    unknown,
)
from lowlevel_reduce.simulator.machine.special import WARP
from lowlevel_reduce.simulator.machine.storage import Array, word_bytes
from lowlevel_reduce.simulator.ptx import TYPE_BYTES, Instruction
from lowlevel_reduce.simulator.ptx_operands import Address, Immediate, Name, Operand, Vector

__all__ = ["DECODERS", "SPACES", "Space", "address_source", "space_of"]

Result = TypeVar("Result")

RANK_SHIFT = 24
"""A shared::cluster address is the block's rank plus one above this bit, or an address of the thread's own block."""

_SPACES = ("param", "global", "shared", "local", "const")
_HINTS = {
    *(
        "nc",
        "volatile",
        "relaxed",
        "acquire",
        "release",
        "weak",
        "cta",
        "cluster",
        "gpu",
        "sys",
        "ca",
        "cg",
        "cs",
        "lu",
    ),
    *(
        "cv",
        "wb",
        "wt",
        "L1::no_allocate",
        "L1::evict_first",
        "L1::evict_last",
        "L1::evict_normal",
        "L1::evict_unchanged",
    ),
    *("L2::64B", "L2::128B", "L2::256B", "L2::evict_first", "L2::evict_last", "L2::evict_normal"),
}


def space_of(modifiers: tuple[str, ...]) -> str:
    """Return the state space that an instruction names, ``"generic"`` for none."""
    return next((m.split("::")[0] for m in modifiers if m.split("::")[0] in _SPACES), "generic")


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
    """One state space: `load` and `store` rows of words for the threads of a group, and say who did wrong."""

    def __init__(self, flight: Flight) -> None:
        self.flight = flight

    @abstractmethod
    def load(self, threads: Array, addresses: Array, size: int) -> Array:
        """Return `size` bytes at each address as rows of words."""

    @abstractmethod
    def store(self, threads: Array, addresses: Array, size: int, words: Array) -> None:
        """Write rows of words."""


class GlobalSpace(Space):
    """Global memory."""

    def load(self, threads: Array, addresses: Array, size: int) -> Array:
        """Load, counting requests, sectors and bytes."""
        counters = self.flight.counters
        requests, sectors = _sectors(threads, addresses, size)
        counters.global_loads += requests
        counters.global_load_sectors += sectors
        counters.bytes_read += threads.size * size
        return _placed(threads, lambda: self.flight.memory.load(addresses, size))

    def store(self, threads: Array, addresses: Array, size: int, words: Array) -> None:
        """Store, counting requests, sectors and bytes."""
        counters = self.flight.counters
        requests, sectors = _sectors(threads, addresses, size)
        counters.global_stores += requests
        counters.global_store_sectors += sectors
        counters.bytes_written += threads.size * size
        self.flight.changes += int(_placed(threads, lambda: self.flight.memory.store(addresses, size, words)))


class SharedSpace(Space):
    """Shared memory of the thread's own block and of the blocks of its cluster."""

    def load(self, threads: Array, addresses: Array, size: int) -> Array:
        """Load, counting wavefronts; what was never written may not be read."""
        offsets = self._offsets(threads, addresses, size)
        unwritten = self.flight.shared.unwritten(offsets, size)
        if unwritten is not None:
            place = int(np.flatnonzero(unwritten)[0])
            reason = f"reads {size} uninitialised bytes of shared memory at {int(addresses[place]):#x}"
            raise ThreadFault(int(threads[place]), reason)
        return self.flight.shared.load(offsets, size)

    def store(self, threads: Array, addresses: Array, size: int, words: Array) -> None:
        """Store, counting wavefronts."""
        offsets = self._offsets(threads, addresses, size)
        self.flight.changes += int(self.flight.shared.store(offsets, size, words))

    def _offsets(self, threads: Array, addresses: Array, size: int) -> Array:
        """Return where in the shared memory of all slots the accesses go."""
        flight = self.flight
        _check_alignment(threads, addresses, size)
        slots = threads // flight.geometry.stride
        ranks = (addresses >> np.uint64(RANK_SHIFT)).astype(np.int64)
        local = (addresses & np.uint64((1 << RANK_SHIFT) - 1)).astype(np.int64)
        _check(threads, local + size > flight.shared_bytes, lambda i: (
            f"{size} bytes at {int(local[i]):#x} lie outside the {flight.shared_bytes} bytes of shared memory"
        ))  # fmt: skip
        if ranks.any():
            slots = self._remote(threads, slots, ranks)
        self._count(threads, local, size)
        found: Array = slots * flight.shared_stride + local
        return found

    def _remote(self, threads: Array, slots: Array, ranks: Array) -> Array:
        geometry = self.flight.geometry
        size = geometry.cluster_blocks
        beyond: Array = ranks > size
        _check(threads, beyond, lambda i: f"there is no block {int(ranks[i]) - 1} in a cluster of {size}")
        targets = np.where(ranks > 0, slots // size * size + ranks - 1, slots)
        running: Array = np.any(self.flight.live.reshape(geometry.slots, -1), axis=1)
        _check(threads, ~running[targets], lambda i: (
            f"the shared memory of block {int(ranks[i]) - 1} of the cluster is used, and that block has exited"
        ))  # fmt: skip
        return targets

    def _count(self, threads: Array, local: Array, size: int) -> None:
        counters = self.flight.counters
        requests, passes, ideal = _wavefronts(threads, local, size)
        counters.shared_requests += requests
        counters.shared_wavefronts += passes
        counters.bank_conflicts += passes - ideal


class LocalSpace(Space):
    """Each thread's own memory."""

    def load(self, threads: Array, addresses: Array, size: int) -> Array:
        """Load."""
        return self.flight.local.load(self._offsets(threads, addresses, size), size)

    def store(self, threads: Array, addresses: Array, size: int, words: Array) -> None:
        """Store; nobody else can wait for that."""
        self.flight.local.store(self._offsets(threads, addresses, size), size, words)

    def _offsets(self, threads: Array, addresses: Array, size: int) -> Array:
        _check_alignment(threads, addresses, size)
        limit = self.flight.launch.kernel.local_bytes
        ends: Array = addresses + np.uint64(size)
        _check(threads, ends > np.uint64(limit), lambda i: (
            f"{size} bytes at {int(addresses[i]):#x} lie outside the {limit} bytes of local memory"
        ))  # fmt: skip
        return threads * self.flight.local_stride + addresses.astype(np.int64)


class GenericSpace(Space):
    """Generic addresses: each thread's window decides where it goes."""

    def __init__(self, flight: Flight) -> None:
        super().__init__(flight)
        self._windows = (
            (0, SHARED_WINDOW, GlobalSpace(flight)),
            (SHARED_WINDOW, LOCAL_WINDOW, SharedSpace(flight)),
            (LOCAL_WINDOW, 1 << 58, LocalSpace(flight)),
        )

    def load(self, threads: Array, addresses: Array, size: int) -> Array:
        """Load from up to three spaces."""
        words = np.zeros((threads.size, size // word_bytes(size)), f"u{word_bytes(size)}")
        for chosen, base, space in self._parts(addresses):
            words[chosen] = space.load(threads[chosen], addresses[chosen] - np.uint64(base), size)
        return words

    def store(self, threads: Array, addresses: Array, size: int, words: Array) -> None:
        """Store to up to three spaces."""
        for chosen, base, space in self._parts(addresses):
            space.store(threads[chosen], addresses[chosen] - np.uint64(base), size, words[chosen])

    def _parts(self, addresses: Array) -> list[tuple[Array, int, Space]]:
        found: list[tuple[Array, int, Space]] = []
        for low, high, space in self._windows:
            last = high == 1 << 58
            inside = (addresses >= np.uint64(low)) & ((addresses < np.uint64(high)) | last)
            if inside.any():
                found.append((np.flatnonzero(inside), low, space))
        return found


SPACES: dict[str, Callable[[Flight], Space]] = {
    "global": GlobalSpace,
    "shared": SharedSpace,
    "local": LocalSpace,
    "generic": GenericSpace,
}
"""State spaces by name."""


def _check(threads: Array, wrong: Array, reason: Callable[[int], str]) -> None:
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise ThreadFault(int(threads[place]), reason(place))


def _check_alignment(threads: Array, addresses: Array, size: int) -> None:
    wrong = addresses % np.uint64(size) != 0
    _check(threads, wrong, lambda i: f"address {int(addresses[i]):#x} is misaligned for {size} bytes")


def _placed(threads: Array, access: Callable[[], Result]) -> Result:
    """Run an access to global memory; a fault of its n-th address is one of the n-th thread."""
    try:
        return access()
    except ThreadFault as fault:
        raise ThreadFault(int(threads[fault.thread]), fault.reason) from None


def _distinct(keys: Array) -> int:
    """Return how many different keys there are, fast where they ascend."""
    steps = np.diff(keys)
    if (steps < 0).any():
        steps = np.diff(np.sort(keys))
    return int(np.count_nonzero(steps)) + 1


def _sectors(threads: Array, addresses: Array, size: int) -> tuple[int, int]:
    """Return how many requests of warps these accesses are, and how many sectors of 32 bytes each touches in sum."""
    warps = threads // WARP
    first = (addresses >> np.uint64(5)).astype(np.int64)
    keys = (warps << 52) + (first & ((1 << 52) - 1))
    return _distinct(warps), _distinct(keys)


def _wavefronts(threads: Array, local: Array, size: int) -> tuple[int, int, int]:
    """Return requests of warps, their passes over the banks, and how few passes would do without conflicts.

    Accesses of 8 and 16 bytes are served a half and a quarter of a warp at a time. In one pass a bank gives one word,
    to any number of lanes.
    """
    words = max(1, size // 4)
    lanes_at_once = WARP // min(words, 4)
    parts = threads // lanes_at_once
    word = (local[:, None] // 4 + np.arange(words)).ravel()
    part = np.repeat(parts, words)
    keys = np.unique((part << 24) + word)
    banks = (keys >> 24) * WARP + (keys & (WARP - 1))
    used, counts = np.unique(banks, return_counts=True)
    groups = used // WARP
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    passes = int(np.maximum.reduceat(counts, starts).sum())
    return _distinct(threads // WARP), passes, starts.size


def _elements(instruction: Instruction) -> tuple[str, int]:
    """Return the type of an access and how many of them it moves, all modifiers known."""
    kind = instruction.modifiers[-1]
    counts = [int(m[1:]) for m in instruction.modifiers if m in {"v2", "v4", "v8"}]
    rest = set(instruction.modifiers[:-1]) - _HINTS - {"v2", "v4", "v8"}
    if kind not in NUMPY_TYPES or {m.split("::")[0] for m in rest} - set(_SPACES):
        raise unknown(instruction)
    return kind, counts[0] if counts else 1


def _registers(instruction: Instruction, operand: Operand, count: int) -> tuple[Operand, ...]:
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(elements) != count:
        raise unknown(instruction, f"it moves {count} values")
    return elements


def _load(instruction: Instruction, flight: Flight) -> Step:
    kind, count = _elements(instruction)
    space = space_of(instruction.modifiers)
    address = instruction.operands[1]
    if not isinstance(address, Address):
        raise unknown(instruction)
    targets = [
        flight.write(instruction, operand, kind) for operand in _registers(instruction, instruction.operands[0], count)
    ]
    if space == "param":
        return _load_parameter(instruction, flight, address, kind, targets)
    if space not in SPACES:
        raise unknown(instruction)
    return _loading(SPACES[space](flight), address_source(instruction, flight, address), kind, targets)


def _loading(memory: Space, addresses: Source, kind: str, targets: list[Array]) -> Step:
    flight, dtype = memory.flight, NUMPY_TYPES[kind]
    size = TYPE_BYTES[kind] * len(targets)

    def step(idx: slice | Array) -> None:
        words = memory.load(flight.threads[idx], addresses(idx), size)
        if kind == "b128":
            for i, target in enumerate(targets):
                target[idx] = words[:, 2 * i : 2 * i + 2]
            return
        values = words.view(dtype)
        for i, target in enumerate(targets):
            target[idx] = values[:, i]

    return step


def _load_parameter(
    instruction: Instruction, flight: Flight, address: Address, kind: str, targets: list[Array]
) -> Step:
    found = [parameter for parameter in flight.launch.kernel.parameters if parameter.name == address.base]
    size = TYPE_BYTES[kind] * len(targets)
    if not found or address.offset < 0 or address.offset + size > found[0].size:
        raise unknown(instruction, "that parameter is not known")
    offset = found[0].offset + address.offset
    values = np.frombuffer(flight.launch.arguments[offset : offset + size], NUMPY_TYPES[kind]).reshape(len(targets), -1)

    def step(idx: slice | Array) -> None:
        for target, value in zip(targets, values, strict=True):
            target[idx] = value

    return step


def _store(instruction: Instruction, flight: Flight) -> Step:
    kind, count = _elements(instruction)
    space, address = space_of(instruction.modifiers), instruction.operands[0]
    if not isinstance(address, Address) or space not in SPACES:
        raise unknown(instruction)
    memory, addresses = SPACES[space](flight), address_source(instruction, flight, address)
    sources = [
        flight.read(instruction, operand, kind) for operand in _registers(instruction, instruction.operands[1], count)
    ]
    size = TYPE_BYTES[kind] * count
    word = f"u{word_bytes(size)}"

    def step(idx: slice | Array) -> None:
        values = [source(idx) for source in sources]
        rows = values[0] if kind == "b128" else np.stack(values, axis=1)
        memory.store(flight.threads[idx], addresses(idx), size, np.ascontiguousarray(rows).view(word))

    return step


DECODERS: dict[str, Decoder] = {"ld": _load, "ldu": _load, "st": _store}
"""What reads and writes memory."""
