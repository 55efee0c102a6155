"""The exceptions for what kernels do wrong, with the place where they did it."""

from __future__ import annotations

from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.simulator.ptx.code import Instruction, UnknownInstruction

__all__ = ["UNFIT", "KernelFault", "ThreadFault", "unfit"]

UNFIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What Python and NumPy raise where an instruction's operands or types are not of the form that its decoder reads."""


def unfit(instruction: Instruction, error: Exception) -> UnknownInstruction:
    """Return the exception for an instruction whose operands or types do not fit it, given what was raised for them."""
    count = len(instruction.operands)
    why = f"its types, or its {count} operand{'s' * (count != 1)}, do not fit it ({type(error).__name__}: {error})"
    return UnknownInstruction(instruction.text, instruction.line, why)


class KernelFault(ReduceError):  # noqa: N818 - a fault of the kernel, not of the machine
    """A kernel did something that on a GPU leads to an error, a hang or garbage.

    Attributes
    ----------
    kernel : str
        Name of the entry.
    line : int
        Line in the PTX.
    text : str
        The instruction there.
    block, thread : tuple of int
        Index of the block in the grid and of the thread in the block, each x, y, z.
    reason : str
        What was wrong.
    """

    def __init__(
        self,
        kernel: str,
        line: int,
        text: str,
        block: tuple[int, int, int],
        thread: tuple[int, int, int],
        reason: str,
    ) -> None:
        super().__init__(f"{kernel}, block {block}, thread {thread}: {reason}\nPTX line {line}: {text}")
        self.kernel = kernel
        self.line = line
        self.text = text
        self.block = block
        self.thread = thread
        self.reason = reason

    def __reduce__(self) -> tuple[type[KernelFault], tuple[object, ...]]:
        return type(self), (self.kernel, self.line, self.text, self.block, self.thread, self.reason)


class ThreadFault(Exception):  # noqa: N818 - becomes a KernelFault once the place is known
    """A fault of one thread in flight, on its way to the machine, which knows block, thread and line.

    Attributes
    ----------
    thread : int
        The thread's number in the machine, or its position in the access, as the raiser documents.
    reason : str
        What was wrong.
    """

    def __init__(self, thread: int, reason: str) -> None:
        super().__init__(reason)
        self.thread = thread
        self.reason = reason
