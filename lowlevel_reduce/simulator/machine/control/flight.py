"""The threads in flight: their registers, each one NumPy array over all threads, and how operands are read.

A flight outlives its launch: the next launch of the kernel takes it over with the steps that are bound to its
registers. So the registers have room for more threads than a launch may have, and what depends on a launch is asked of
the flight when a step is executed, never when it is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Union

import numpy as np

from lowlevel_reduce.simulator.machine.control.agents import WAIT, agents_of_warp
from lowlevel_reduce.simulator.machine.control.counters import Counters
from lowlevel_reduce.simulator.machine.control.special import WARP, Geometry
from lowlevel_reduce.simulator.machine.memory.spaces import GlobalMemory
from lowlevel_reduce.simulator.machine.memory.storage import Array, Storage
from lowlevel_reduce.simulator.machine.races.arrivals import Arrivals
from lowlevel_reduce.simulator.machine.races.detector import Races, Site
from lowlevel_reduce.simulator.machine.races.prerequisites import Prerequisites, Trace
from lowlevel_reduce.simulator.machine.watch import Watch
from lowlevel_reduce.simulator.ptx.code import TYPE_BYTES, Instruction, KernelCode, UnknownInstruction
from lowlevel_reduce.simulator.ptx.operands import Immediate, Name, Operand

__all__ = [
    "LOCAL_WINDOW",
    "SHARED_WINDOW",
    "Flight",
    "Index",
    "Launch",
    "Source",
    "Step",
    "bits_of",
    "check_launch",
    "float_kind",
    "unknown",
]

Index = Union[slice, Array]  # noqa: UP007 - evaluated at run time, on Python 3.10 too
"""Some of the threads: a contiguous run of them, or their numbers in ascending order."""
Source = Callable[[Index], Array]
"""A function that returns the values of an operand in some threads."""
Step = Callable[[Index], None]
"""An instruction that is bound to registers: a function that executes it for some threads."""

REGISTERS_AT_ONCE = 32
"""Registers that share one allocation: the system provides one large one faster than many small ones."""

LEAST_ROOM = 1024
"""Threads that registers have room for at least, so that most later launches of a kernel fit."""

SHARED_WINDOW = 1 << 56
LOCAL_WINDOW = 1 << 57
"""Generic addresses from here on mean shared and local memory."""

NUMPY_TYPES = {
    **{f"{kind}{bits}": f"u{bits // 8}" for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{"f16": "u2", "bf16": "u2", "f16x2": "u4", "bf16x2": "u4", "f32": "f4", "tf32": "u4", "f64": "f8"},
    **{"pred": "?", "b128": "u8"},
    **{"e4m3x2": "u2", "e5m2x2": "u2", "f32x2": "u8", "u16x2": "u4", "s16x2": "u4"},
}
"""The NumPy type of each PTX type; half types are represented by their bits."""

_FORMS = {kind: (f"u{size}", 1) for kind, size in TYPE_BYTES.items()} | {"pred": ("?", 1), "b128": ("u8", 2)}
"""The NumPy type of the registers of each type, and in how many words each is."""

_CLOCKS = {"%clock": "u4", "%clock64": "u8", "%clock_hi": "u4", "%globaltimer": "u8", "%globaltimer_lo": "u4"}
"""The registers that tell a time: the number of instructions that were executed before."""


@dataclass(frozen=True)
class Launch:
    """A kernel and how it is launched.

    Attributes
    ----------
    kernel : KernelCode
        The code.
    grid, block : tuple of int
        Blocks of the grid and threads of a block, each x, y, z.
    cluster : tuple of int or None
        Blocks of a cluster.
    dynamic_shared_bytes : int
        Dynamic shared memory of a block, in addition to its static shared memory.
    arguments : bytes
        The parameter block.
    cooperative : bool
        Whether all blocks must be resident at once.
    resident_blocks : int
        Blocks that may be in flight at once; the others start when those exit.
    seed : int or None
        Seed of a random order in which blocks start and warps are scheduled, and of whether asynchronous copies arrive
        at the earliest or at the latest; None for the natural order, and for the latest.
    trace : Trace or None
        Where to note what the launch did, and what earlier launches did that may be running still; None for neither.
    addresses : mapping or None
        Address of each variable of the module, as `place_variables` returns them; None if the variables exist for this
        launch only.
    instructions : int or None
        How many instructions the launch may execute, counted once for all threads that execute one together; None for
        `reports.INSTRUCTIONS`.
    watch : Watch or None
        Who sees every instruction, to count by lines or to compute otherwise; None for nobody.
    in_waves : bool
        Whether of a random order of blocks no block starts before those that are in flight at once and come before it,
        as on devices: where fewer are in flight than fit, blocks that wait for others would have all places.
    """

    kernel: KernelCode
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    dynamic_shared_bytes: int
    arguments: bytes
    cooperative: bool
    resident_blocks: int
    seed: int | None = None
    addresses: Mapping[str, int] | None = None
    trace: Trace | None = None
    instructions: int | None = None
    watch: Watch | None = None
    in_waves: bool = False


def unknown(instruction: Instruction, why: str = "") -> UnknownInstruction:
    """Return the exception for an instruction that the machine cannot execute."""
    count = len(instruction.operands)
    form = f"it has no such form with {count} operand{'s' * (count != 1)}"
    return UnknownInstruction(instruction.text, instruction.line, why or form)


def bits_of(kind: str) -> int:
    """Return the width of a PTX type in bits."""
    return TYPE_BYTES[kind] * 8


def float_kind(kind: str) -> bool:
    """Return whether a PTX type is a floating-point one."""
    return kind in {"f16", "bf16", "f32", "f64", "f16x2", "bf16x2"}


class Flight:
    """All threads in flight, and the memory they see.

    Attributes
    ----------
    room : int
        The most threads that a launch of the kernel may have which takes over this flight.
    threads : numpy.ndarray
        The numbers of all threads, from 0.
    live : numpy.ndarray
        Which threads have not exited.
    shared, local : Storage
        Shared memory, `shared_stride` bytes a slot, and local memory, `local_stride` bytes a thread.
    calls : Storage
        Parameters of calls, `call_stride` bytes a thread.
    races : Races
        Which warps accessed which memory, and the order of these accesses.
    arrivals : Arrivals
        What asynchronous operations have under way.
    prerequisites : Prerequisites or None
        Earlier launches that may be running still; None if there are none.
    carry : numpy.ndarray
        The carry flag of each thread.
    changes : int
        How often memory has changed.
    """

    def __init__(self, launch: Launch, memory: GlobalMemory) -> None:
        self.count = 0
        self._sites: list[Site] = []
        self._registers: dict[str, Array] = {}
        self._chunks: list[Array] = []
        self._size_bytes = 0
        self._spare: dict[tuple[str, int], list[Array]] = {}
        self._seen: dict[tuple[str, str], Array] = {}
        self._targets: dict[tuple[str, str], Array] = {}
        self._constants: dict[tuple[Immediate, str], Array] = {}
        self._symbols: dict[tuple[str, str], Array] = {}
        self._specials: dict[str, Array] = {}
        self.begin(launch, memory)
        # A power of two and one cache line more: registers at multiples of 4 KiB would share few sets of a cache.
        self.room = max(LEAST_ROOM, 1 << (self.count - 1).bit_length()) + 16

    def begin(self, launch: Launch, memory: GlobalMemory) -> None:
        """Make ready for a launch, which must not have more threads than there is room for; all registers are zero."""
        for chunk in self._chunks:
            chunk[:, : self.count] = 0
        self.launch = launch
        self.arguments: Array = np.array(bytearray(launch.arguments), np.uint8)
        self.memory = memory
        self.counters = Counters()
        self.geometry = Geometry(launch.grid, launch.block, launch.cluster, launch.resident_blocks)
        self.count = self.geometry.threads
        self.threads: Array = np.arange(self.count)
        self.live: Array = np.zeros(self.count, np.bool_)
        self.shared_bytes = launch.kernel.static_shared_bytes + launch.dynamic_shared_bytes
        if launch.dynamic_shared_bytes:
            self.shared_bytes = -(-launch.kernel.static_shared_bytes // 16) * 16 + launch.dynamic_shared_bytes
        self.shared_stride = -(-self.shared_bytes // 32) * 32
        self.shared = Storage(self.shared_stride * self.geometry.slots)
        self.local_stride = -(-launch.kernel.local_bytes // 32) * 32
        self.local = Storage(self.local_stride * self.count)
        self.call_stride = -(-launch.kernel.call_bytes // 32) * 32
        self.calls = Storage(self.call_stride * self.count)
        self.carry: Array = np.zeros(self.count, np.bool_)
        early = launch.trace is not None and launch.trace.early
        agents = agents_of_warp(launch.kernel.asynchronous) | ({WAIT: 1} if early else {})
        self.races = Races(self.geometry, memory, self.shared.size, self.shared_stride, agents)
        self.races.adopt(self._sites)
        self.prerequisites: Prerequisites | None = None
        if launch.trace is not None and early:
            self.prerequisites = Prerequisites(launch.trace, self.races, launch.kernel.instructions)
            self.races.prerequisites = self.prerequisites
        self.arrivals = Arrivals(self, launch.kernel.asynchronous)
        self.changes = 0
        self.clock = 0
        for (name, kind), cell in self._symbols.items():
            cell[...] = self._symbol(name, kind)

    def end(self) -> None:
        """Let go of the launch and its memory."""
        del self.launch, self.memory, self.races, self.prerequisites, self.arrivals, self.shared, self.local, self.calls
        for site in self._sites:
            del site.races

    def fits(self, launch: Launch) -> bool:
        """Return whether there is room for the threads of another launch of the kernel."""
        return Geometry(launch.grid, launch.block, launch.cluster, launch.resident_blocks).threads <= self.room

    @property
    def size_bytes(self) -> int:
        """Bytes of the registers."""
        return self._size_bytes

    def register(self, name: str) -> Array:
        """Return a register's values in all threads."""
        array = self._registers.get(name)
        if array is None:
            dtype, columns = form = _FORMS[self.launch.kernel.registers[name]]
            spare = self._spare.get(form)
            if spare is None:
                spare = self._spare[form] = []
            if not spare:
                shape = (REGISTERS_AT_ONCE, self.room, columns) if columns > 1 else (REGISTERS_AT_ONCE, self.room)
                self._chunks.append(np.zeros(shape, dtype))
                self._size_bytes += self._chunks[-1].nbytes
                spare.extend(self._chunks[-1])
            array = self._registers[name] = spare.pop()
        return array

    def start(self, slots: Array) -> None:
        """Start the blocks that have been put into slots: what is known of their accesses, and special registers."""
        self.races.start(slots)
        if self.arrivals.active:
            self.arrivals.start(slots)
        for name, array in self._specials.items():
            values = self.geometry.special(name)
            if values is not None:
                array[: self.count] = values()

    def digest(self) -> int:
        """Return a hash of the registers' values."""
        return hash(tuple(hash(array[: self.count].tobytes()) for array in self._registers.values()))

    def read(self, instruction: Instruction, operand: Operand, kind: str) -> Source:
        """Return the source of an operand's values, interpreted as a PTX type.

        Raises
        ------
        UnknownInstruction
            If the operand cannot be read as that type.
        """
        if isinstance(operand, Immediate):
            constant = self._constants.get((operand, kind))
            if constant is None:
                constant = self._constants[operand, kind] = self._everywhere(_constant(operand, kind))
            return constant.__getitem__
        if not isinstance(operand, Name):
            raise unknown(instruction, "an operand cannot be read")
        if operand.name in self.launch.kernel.registers:
            seen = (operand.name, kind)
            values = self._seen.get(seen)
            if values is None:
                values = self._seen[seen] = self._seen_as(instruction, operand.name, kind)
            if operand.negated:
                return lambda idx: ~values[idx]
            return values.__getitem__
        return self._read_symbol(instruction, operand.name, kind)

    def write(self, instruction: Instruction, operand: Operand, kind: str) -> Array:
        """Return the array to assign results to; a wider register is sign- or zero-extended."""
        if not isinstance(operand, Name):
            raise unknown(instruction, "a destination is no register")
        if operand.name == "_":
            return np.empty((self.room, 2) if kind == "b128" else self.room, NUMPY_TYPES[kind])
        found = self._targets.get((operand.name, kind))
        if found is None:
            found = self._targets[operand.name, kind] = self._target(instruction, operand, kind)
        return found

    def _target(self, instruction: Instruction, operand: Name, kind: str) -> Array:
        if operand.name not in self.launch.kernel.registers:
            raise unknown(instruction, f"{operand.name} is no register")
        array, width = self.register(operand.name), TYPE_BYTES[kind]
        if (array.dtype == np.bool_) != (kind == "pred") or array.dtype.itemsize < min(width, 8):
            raise unknown(instruction, f"{operand.name} does not hold a {kind}")
        if kind in {"pred", "b128"}:
            return array
        if array.dtype.itemsize == width:
            return array.view(NUMPY_TYPES[kind])
        if float_kind(kind):
            raise unknown(instruction, f"{operand.name} is wider than a {kind}")
        return array.view(f"i{array.dtype.itemsize}") if kind.startswith("s") else array

    def _seen_as(self, instruction: Instruction, name: str, kind: str) -> Array:
        array = self.register(name)
        if kind == "pred" or array.dtype == np.bool_:
            if array.dtype != np.bool_ or kind != "pred":
                raise unknown(instruction, f"{name} does not hold a {kind}")
            return array
        if kind == "b128" or array.ndim > 1:
            if array.ndim == 1 or kind != "b128":
                raise unknown(instruction, f"{name} does not hold a {kind}")
            return array
        ratio = array.dtype.itemsize // TYPE_BYTES[kind]
        if ratio < 1:
            raise unknown(instruction, f"{name} does not hold a {kind}")
        seen = array.view(NUMPY_TYPES[kind])
        return seen if ratio == 1 else seen.reshape(self.room, ratio)[:, 0]

    def _read_symbol(self, instruction: Instruction, name: str, kind: str) -> Source:
        if name in _CLOCKS:
            return lambda idx: np.full(self.threads[idx].size, self.clock, np.uint64).astype(NUMPY_TYPES[kind])
        if self._symbol_value(name) is not None:
            cell = self._symbols.setdefault((name, kind), np.array(self._symbol(name, kind)))
            everywhere = self._everywhere(cell)
            return everywhere.__getitem__
        if name not in self._specials:
            values = self.geometry.special(name)
            if values is None:
                raise unknown(instruction, f"there is no {name} here")
            self._specials[name] = np.zeros(self.room, np.int64)
            self._specials[name][: self.count] = values()
        array = self._specials[name]
        return lambda idx: array[idx].astype(NUMPY_TYPES[kind])

    def _everywhere(self, cell: Array) -> Array:
        """Return an array over all threads, each of whose elements is that cell."""
        everywhere: Array = np.ndarray((self.room,), cell.dtype, cell, strides=(0,))
        return everywhere

    def _symbol(self, name: str, kind: str) -> Array:
        """Return the value in this launch of a name that has one."""
        return _constant(Immediate(self._symbol_value(name) or 0), kind)

    def _symbol_value(self, name: str) -> int | None:
        """Return a name's value in all threads; for variables and parameters, the address in their state space."""
        kernel = self.launch.kernel
        if name in kernel.variables:
            return kernel.variables[name].offset
        values = {"WARP_SZ": WARP, "%dynamic_smem_size": self.launch.dynamic_shared_bytes}
        values |= {parameter.name: parameter.offset for parameter in kernel.parameters}
        values |= self.launch.addresses or {}
        return values.get(name)


def _constant(immediate: Immediate, kind: str) -> Array:
    dtype = np.dtype(NUMPY_TYPES[kind])
    if kind == "pred":
        return np.array(bool(immediate.value))
    bits = immediate.value
    if dtype.kind == "f" and not immediate.float_bits:
        return np.array(float(bits), dtype)
    if dtype.kind == "f" and immediate.float_bits != dtype.itemsize * 8:
        value = np.array(bits, f"u{immediate.float_bits // 8}").view(f"f{immediate.float_bits // 8}")
        return value.astype(dtype)
    unsigned = np.array(bits & ((1 << (dtype.itemsize * 8)) - 1), f"u{dtype.itemsize}")
    return unsigned.view(dtype)


def check_launch(launch: Launch) -> None:
    """Raise ValueError if the launch is impossible because the sizes do not fit together."""
    kernel, blocks, threads = launch.kernel, int(np.prod(launch.grid)), int(np.prod(launch.block))
    if not 1 <= threads <= kernel.max_threads:
        raise ValueError(f"{kernel.name} takes blocks of 1 to {kernel.max_threads} threads, not {threads}")
    if len(launch.arguments) < kernel.parameter_bytes:
        raise ValueError(
            f"{kernel.name} takes {kernel.parameter_bytes} bytes of arguments, not {len(launch.arguments)}"
        )
    if launch.cooperative and blocks > launch.resident_blocks:
        raise ValueError(f"a cooperative grid of {blocks} blocks does not fit: {launch.resident_blocks} are resident")
