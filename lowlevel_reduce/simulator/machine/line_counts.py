"""Counts what a launch does by lines of the PTX, as a profiler's source view does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from lowlevel_reduce.simulator.machine.control.counters import Counters
from lowlevel_reduce.simulator.machine.control.flight import Flight, Index, Step
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.machine.watch import Control, Watch
from lowlevel_reduce.simulator.ptx.code import Instruction, KernelCode

__all__ = ["LineCounts"]

_BY_CONTROL = ("branches", "divergent_branches", "barriers")
_BY_STEPS = tuple(
    entry.name
    for entry in fields(Counters)
    if entry.name not in (*_BY_CONTROL, "instructions", "instructions_by_class")
)


class LineCounts(Watch):
    """The counters of all watched launches, told apart by kernel and by line of the PTX.

    What an instruction counts is the difference that it makes to the launch's counters. A barrier may let an
    instruction of other threads execute, so instructions of control are credited only with what they alone count.

    Attributes
    ----------
    kernels : dict
        The kernels that were launched, by name.
    """

    def __init__(self) -> None:
        self.kernels: dict[str, KernelCode] = {}
        self._counts: dict[tuple[str, int], Counters] = {}

    def of(self, kernel: str) -> dict[int, Counters]:
        """Return the counters of a kernel by line of its PTX."""
        return {line: counted for (name, line), counted in self._counts.items() if name == kernel}

    def bound(self, instruction: Instruction, flight: Flight, decoder: Callable[[Instruction, Flight], Step]) -> Step:
        """Return a step that notes what the instruction's own step counts."""
        step = decoder(instruction, flight)
        counted = self._at(flight.launch.kernel, instruction)

        def noted(idx: Index) -> None:
            before = _values(flight.counters, _BY_STEPS)
            step(idx)
            _add(counted, _BY_STEPS, before, _values(flight.counters, _BY_STEPS))

        return noted

    def control(self, flight: Flight, functions: Mapping[str, Control]) -> dict[str, Control]:
        """Return functions that note branches and barriers."""
        return {opcode: self._noting(flight, function) for opcode, function in functions.items()}

    def ended(self, flight: Flight, executed: Sequence[int]) -> None:
        """Count the instructions."""
        kernel = flight.launch.kernel
        self.kernels[kernel.name] = kernel
        for instruction, times in zip(kernel.instructions, executed, strict=False):
            if times:
                self._at(kernel, instruction).instructions += times

    def _noting(self, flight: Flight, function: Control) -> Control:
        def noted(instruction: Instruction, pc: int, threads: Array) -> int | None:
            before = _values(flight.counters, _BY_CONTROL)
            following = function(instruction, pc, threads)
            counted = self._at(flight.launch.kernel, instruction)
            _add(counted, _BY_CONTROL, before, _values(flight.counters, _BY_CONTROL))
            return following

        return noted

    def _at(self, kernel: KernelCode, instruction: Instruction) -> Counters:
        return self._counts.setdefault((kernel.name, instruction.line), Counters())


def _values(counters: Counters, names: tuple[str, ...]) -> list[int]:
    return [getattr(counters, name) for name in names]


def _add(counted: Counters, names: tuple[str, ...], before: list[int], after: list[int]) -> None:
    for name, old, new in zip(names, before, after, strict=True):
        if new != old:
            setattr(counted, name, getattr(counted, name) + new - old)
