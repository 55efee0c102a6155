"""The exceptions of the package, and `check`, the only place that looks at a CUDA or NVRTC result code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "CacheError",
    "CompileError",
    "CudaError",
    "NoCompilerError",
    "NoDriverError",
    "ReduceError",
    "UnsupportedError",
    "check",
]


class ReduceError(Exception):
    """Base of every exception that this package defines."""


class NoDriverError(ReduceError):
    """No NVIDIA driver, or none with a device; the message says what to install."""


class NoCompilerError(ReduceError):
    """NVRTC could not be loaded; the message says what to install."""


class UnsupportedError(ReduceError):
    """The device, the driver or the data type lacks what was asked for; the message names what."""


class CacheError(ReduceError, OSError):
    """The cubin cache cannot be used where it was asked for; the message names the directory and the way out."""


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
        What the driver or NVRTC says about the code.
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
    """NVRTC refused a program.

    Attributes
    ----------
    program : str
        Name of the program that was compiled.
    log : str
        The complete compiler log.
    file, line : str, int or None
        Where the first error is, as the log names it.
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
        The library's own ``…GetErrorString``; asked only when the call failed.

    Returns
    -------
    object
        None, the value, or a tuple of the values, for zero, one or more of them.

    Raises
    ------
    CudaError
        If the code is not success.
    """
    code = result[0]
    if code:
        raise CudaError(call, int(code), getattr(code, "name", str(code)), _description(code, describe))
    values = result[1:]
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def _description(code: Any, describe: Callable[[Any], Sequence[Any]]) -> str:
    # cuGetErrorString answers (status, text); nvrtcGetErrorString the same. A code that the library does
    # not know has no text: the name then has to do.
    *_, text = describe(code)
    if not text:
        return "no description"
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
