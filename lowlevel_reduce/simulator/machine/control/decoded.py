"""A kernel's instructions bound to registers: each when it is first executed, kept for later launches of the kernel.

To bind an instruction takes as long as to execute it ten times for a few warps, and most tests launch a kernel several
times on little data.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from lowlevel_reduce.simulator.machine.control.counters import class_of
from lowlevel_reduce.simulator.machine.control.faults import UNFIT, unfit
from lowlevel_reduce.simulator.machine.control.flight import Flight, Index, Launch, Step, unknown
from lowlevel_reduce.simulator.machine.control.instructions import CONTROL, DECODERS, WARP_INSTRUCTIONS
from lowlevel_reduce.simulator.machine.memory.flags import all_of, any_of
from lowlevel_reduce.simulator.machine.memory.spaces import GlobalMemory
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.ptx.code import Instruction, KernelCode

__all__ = ["Decoded", "decoded"]

KEPT_BYTES = 1 << 27
"""The registers of kernels that are kept take at most this much; those of the least recently launched ones go first."""

_kept: OrderedDict[int, Decoded] = OrderedDict()  # by the identity of their kernels, which they keep alive
_lock = threading.Lock()


class Decoded:
    """The instructions of a kernel, and the flight to whose registers they are bound.

    Attributes
    ----------
    kernel : KernelCode
        The kernel.
    flight : Flight
        The threads of the launch that is running.
    steps : list
        The step of each instruction that is executed for a group of threads alone; None before its first execution, and
        for instructions of control and of whole warps.
    ends : list of int
        For each instruction the end of the straight line that begins there: no instruction before that one branches,
        waits, or reads a clock, unless the line consists of it alone.
    classes : list of str
        The class under which each instruction is counted.
    """

    def __init__(self, launch: Launch, memory: GlobalMemory) -> None:
        self.flight = Flight(launch, memory)
        self.kernel = launch.kernel
        self._code = launch.kernel.instructions
        self.steps: list[Step | None] = [None] * len(self._code)
        self.ends = _ends(launch.kernel)
        self.classes = [class_of(instruction) for instruction in self._code]
        self._together: dict[int, Step] = {}

    def step(self, pc: int) -> Step:
        """Return the step of an instruction, bound if it is executed for the first time."""
        step = self.steps[pc]
        if step is None:
            instruction = self._code[pc]
            step = self._bound(instruction)
            if instruction.guard is not None:
                step = self._guarded(instruction, step)
            self.steps[pc] = step
        return step

    def together(self, pc: int) -> Step:
        """Return the step of an instruction of whole warps, whose guard has selected the threads."""
        step = self._together.get(pc)
        if step is None:
            step = self._together[pc] = self._bound(self._code[pc])
        return step

    def active(self, instruction: Instruction, idx: Index) -> Array | None:
        """Return for which threads the guard is true, so that they execute the instruction; None if for all of them."""
        guard = instruction.guard
        if guard is None:
            return None
        values = self.flight.register(guard.register)[idx]
        active = ~values if guard.negated else values
        return None if all_of(active) else active

    def forget(self) -> None:
        """Let go of the steps, some of which refer to this object: nothing is then left to the garbage collector.

        A kernel has some ten thousand closures. Those of a few hundred kernels took the collector seconds.
        """
        self.steps.clear()
        self._together.clear()

    def _bound(self, instruction: Instruction) -> Step:
        decoder = DECODERS.get(instruction.opcode)
        if decoder is None:
            raise unknown(instruction)
        watch = self.flight.launch.watch
        try:
            if watch is not None:
                return watch.bound(instruction, self.flight, decoder)
            return decoder(instruction, self.flight)
        except UNFIT as error:
            raise unfit(instruction, error) from error

    def _guarded(self, instruction: Instruction, step: Step) -> Step:
        flight = self.flight

        def guarded(idx: Index) -> None:
            active = self.active(instruction, idx)
            if active is None:
                step(idx)
            elif any_of(active):
                step(flight.threads[idx][active])

        return guarded


def _ends(kernel: KernelCode) -> list[int]:
    """Return `Decoded.ends`."""
    ends: list[int] = []
    end = len(kernel.instructions)
    for pc in range(end - 1, -1, -1):
        instruction = kernel.instructions[pc]
        if instruction.opcode in CONTROL or instruction.opcode in WARP_INSTRUCTIONS:
            end = pc
        elif "%clock" in instruction.text or "%globaltimer" in instruction.text:
            ends.append(pc + 1)
            end = pc
            continue
        ends.append(end)
    return ends[::-1]


@contextmanager
def decoded(launch: Launch, memory: GlobalMemory) -> Iterator[Decoded]:
    """Lend what is decoded of a kernel to a launch; after an error nothing of it is kept."""
    kernel = launch.kernel
    if launch.watch is not None:  # its steps are for this launch only
        watched = Decoded(launch, memory)
        yield watched
        watched.flight.end()
        watched.forget()
        return
    with _lock:
        found = _kept.pop(id(kernel), None)  # so no other thread takes it
    if found is not None and not found.flight.fits(launch):
        found.forget()
        found = None
    if found is None:
        found = Decoded(launch, memory)
    else:
        found.flight.begin(launch, memory)
    yield found
    found.flight.end()
    with _lock:
        _kept[id(kernel)] = found
        while sum(other.flight.size_bytes for other in _kept.values()) > KEPT_BYTES:
            _kept.popitem(last=False)[1].forget()
