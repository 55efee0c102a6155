"""The package's exceptions, and `check`, which turns result codes of a CUDA or NVRTC binding into exceptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "WITHOUT_GPU",
    "CacheError",
    "CacheWarning",
    "CompileError",
    "CudaError",
    "CutError",
    "GroupError",
    "NoCompilerError",
    "NoDriverError",
    "ReduceError",
    "UnsupportedError",
    "check",
]

WITHOUT_GPU = (
    "; without a GPU, LOWLEVEL_REDUCE_DRIVER=simulator or lowlevel_reduce.simulator.use() run the same kernels, and "
    "lowlevel_reduce.tree.reduce computes the same bits with NumPy"
)
"""What `NoDriverError` says where no GPU can be used."""


class ReduceError(Exception):
    """Base of every exception that this package defines."""


class NoDriverError(ReduceError):
    """There is no NVIDIA driver, or it has no device; the message says what to install, and what does without.

    Attributes
    ----------
    reason : str
        The message up to what does without.
    """

    def __init__(self, reason: str, instead: str = "") -> None:
        super().__init__(reason + instead)
        self.reason = reason


class NoCompilerError(ReduceError):
    """NVRTC could not be loaded; the message says what to install."""


class UnsupportedError(ReduceError):
    """The device, the driver or the data type does not support what was requested; the message says what."""


class CacheError(ReduceError, OSError):
    """The cache of compiled code, or a directory of prebuilt kernels, cannot be used; the message says what to do."""


class CacheWarning(UserWarning):
    """Compiled code cannot be written to the cache, so that other processes compile it anew; the message says why."""


class CutError(ReduceError, ValueError):
    """A part of an array does not fit the cut of the whole; the message says where to cut."""


class GroupError(ReduceError):
    """The ranks of a group do not reduce the same, or one could not take part; the message says which, and in what."""


class CudaError(ReduceError):
    """A CUDA driver or NVRTC call failed.

    Attributes
    ----------
    call : str
        The function that failed, e.g. ``"cuMemAlloc"``.
    code : int
        The numeric result code.
    name : str
        The code's name, e.g. ``"CUDA_ERROR_OUT_OF_MEMORY"``.
    description : str
        The driver's or NVRTC's text for the code.
    """

    def __init__(self, call: str, code: int, name: str, description: str) -> None:
        super().__init__(f"{call} failed with {name} ({code}): {description}")
        self.call = call
        self.code = code
        self.name = name
        self.description = description

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.call, self.code, self.name, self.description)


class CompileError(ReduceError):
    """A program does not compile.

    Attributes
    ----------
    program : str
        Name of the program that was compiled.
    log : str
        The complete compiler log.
    file, line : str, int or None
        Where the first error is, as the log names it; None if no place is known.
    source_line : str or None
        The text of that line.
    """

    def __init__(self, program: str, log: str, file: str | None, line: int | None, source_line: str | None) -> None:
        where = "" if line is None else f"\n{file}:{line}: {(source_line or '').strip()}"
        super().__init__(f"{program} does not compile{where}\n{log.strip()}")
        self.program = program
        self.log = log
        self.file = file
        self.line = line
        self.source_line = source_line

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.program, self.log, self.file, self.line, self.source_line)


def check(call: str, result: Sequence[Any], describe: Callable[[Any], Sequence[Any]]) -> Any:
    """Return the values of a driver or NVRTC call, or raise what its result code means.

    Parameters
    ----------
    call : str
        Name of the function that was called.
    result : sequence
        What the binding returned: the result code, then the values.
    describe : callable
        The library's own ``…GetErrorString``; called only if the call failed.

    Returns
    -------
    object
        None, the value, or a tuple of the values, for zero, one or more of them.

    Raises
    ------
    CudaError
        If the code does not mean success.
    """
    code = result[0]
    if code:
        raise CudaError(call, int(code), getattr(code, "name", str(code)), _description(code, describe))
    values = result[1:]
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def _description(code: Any, describe: Callable[[Any], Sequence[Any]]) -> str:
    # cuGetErrorString and nvrtcGetErrorString return (status, text). A code that the library does not know has no text:
    # then the name must do.
    *_, text = describe(code)
    if not text:
        return "no description"
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
