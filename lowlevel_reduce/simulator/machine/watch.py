"""Who watches a launch: sees every instruction as it is bound and executed, to count by lines or to compute otherwise.

The machine calls these methods only where a launch has a watch, so that a launch without one pays for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from lowlevel_reduce.simulator.ptx.code import Instruction

if TYPE_CHECKING:
    from lowlevel_reduce.simulator.machine.control.flight import Flight, Step
    from lowlevel_reduce.simulator.machine.memory.storage import Array

__all__ = ["Control", "Watch"]

Control = Callable[["Instruction", int, "Array"], "int | None"]
"""What executes an instruction of control, given its place and its threads."""


class Watch:
    """Sees every instruction and changes nothing; made to be derived from."""

    def bound(self, instruction: Instruction, flight: Flight, decoder: Callable[[Instruction, Flight], Step]) -> Step:
        """Return the step that executes an instruction, given what decodes it; called once for each instruction."""
        return decoder(instruction, flight)

    def control(self, flight: Flight, functions: Mapping[str, Control]) -> dict[str, Control]:
        """Return what executes branches, barriers and the other instructions of control, by opcode."""
        del flight
        return dict(functions)

    def ended(self, flight: Flight, executed: Sequence[int]) -> None:
        """Take note of the end of a launch, given how many warps executed each instruction of the kernel."""
