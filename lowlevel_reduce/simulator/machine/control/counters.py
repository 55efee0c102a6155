"""Counters of a launch, as a profiler has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from lowlevel_reduce.simulator.ptx.code import Instruction

__all__ = ["Counters", "class_of"]


@dataclass
class Counters:
    """Counts of one launch, or of several added up.

    Attributes
    ----------
    instructions : int
        Instructions executed, once for each warp that executes it.
    instructions_by_class : dict
        The same by class: "integer", "float", "matrix", "conversion", "move", "memory", "control", "synchronization".
    branches, divergent_branches : int
        Branches executed by warps, and those that only some of the warp's threads took.
    global_loads, global_stores : int
        Requests to global memory: one for each warp and instruction.
    global_load_sectors, global_store_sectors : int
        Sectors of 32 bytes that these requests touch.
    shared_requests, shared_wavefronts, bank_conflicts : int
        Accesses of warps to shared memory, the passes over its 32 banks that they take, and how many of these passes
        are due only to bank conflicts.
    atomics, atomic_collisions : int
        Atomic operations by threads, and those that had to wait for another lane of their warp at the same address.
    barriers : int
        Arrivals of warps at barriers of blocks and clusters.
    bytes_read, bytes_written : int
        Bytes of global memory that threads requested.
    """

    instructions: int = 0
    instructions_by_class: dict[str, int] = field(default_factory=dict)
    branches: int = 0
    divergent_branches: int = 0
    global_loads: int = 0
    global_stores: int = 0
    global_load_sectors: int = 0
    global_store_sectors: int = 0
    shared_requests: int = 0
    shared_wavefronts: int = 0
    bank_conflicts: int = 0
    atomics: int = 0
    atomic_collisions: int = 0
    barriers: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def classify(self, classes: Sequence[str], executed: Sequence[int]) -> None:
        """Fill in `instructions_by_class`, given the class of each of a kernel's instructions and how often it ran."""
        by_class: dict[str, int] = {}
        for name, times in zip(classes, executed, strict=True):
            if times:
                by_class[name] = by_class.get(name, 0) + times
        self.instructions_by_class = dict(sorted(by_class.items()))
        self.instructions = sum(executed)

    def __add__(self, other: Counters) -> Counters:
        total = Counters()
        for entry in fields(self):
            mine, theirs = getattr(self, entry.name), getattr(other, entry.name)
            if isinstance(mine, dict):
                setattr(total, entry.name, {k: mine.get(k, 0) + theirs.get(k, 0) for k in {**mine, **theirs}})
            else:
                setattr(total, entry.name, mine + theirs)
        return total


_CLASSES = {
    "integer": "add sub mul mad div rem neg abs min max and or xor not cnot popc clz bfind brev shl shr shf prmt bfe "
    "bfi lop3 dp2a dp4a sad setp set selp addc subc madc mul24 mad24 slct bmsk szext",
    "float": "fma sqrt rcp rsqrt ex2 lg2 sin cos tanh copysign testp",
    "matrix": "mma wmma ldmatrix stmatrix movmatrix",
    "conversion": "cvt cvta mapa isspacep",
    "move": "mov",
    "memory": "ld ldu st atom red prefetch prefetchu cp createpolicy applypriority discard",
    "control": "bra brx call ret exit nanosleep trap setmaxnreg pmevent",
    "synchronization": "bar barrier shfl vote redux match activemask elect membar fence griddepcontrol mbarrier",
}
_FLOATING = frozenset({"f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2"})
_CLASS_OF = {opcode: name for name, opcodes in _CLASSES.items() for opcode in opcodes.split()}


def class_of(instruction: Instruction) -> str:
    """Return the class under which an instruction is counted."""
    name = _CLASS_OF.get(instruction.opcode, "control")
    if name != "integer" or instruction.opcode == "selp":
        return name
    return "integer" if _FLOATING.isdisjoint(instruction.modifiers) else "float"
