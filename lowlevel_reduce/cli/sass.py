"""A kernel's machine code, from nvdisasm, and the most telling part of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from lowlevel_reduce.cli.control_flow import loops, straight_parts
from lowlevel_reduce.errors import ReduceError

__all__ = ["Line", "NoToolError", "disassemble", "hot_part", "listing"]

_LABEL = re.compile(r"^\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?;)")
_PLACE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_GLOBAL, _SHARED = re.compile(r"\bLDG\b"), re.compile(r"\bLDS\b")
_SECONDS = 60


class NoToolError(ReduceError):
    """nvdisasm is not installed; the message says how to get it."""


class Line(NamedTuple):
    """A line of a kernel's code.

    Attributes
    ----------
    text : str
        The instruction, indented, or a label.
    address : int or None
        The instruction's address in the kernel in bytes; None where there is none.
    place : (str, int) or None
        The file, as the compiler names it, and the line of CUDA C++ that it was compiled from, if that is known.
    """

    text: str
    address: int | None = None
    place: tuple[str, int] | None = None


def disassemble(cubin: bytes, kernel: str) -> list[str]:
    """Return the instructions of a kernel and the labels between them, in order; raises what `listing` raises."""
    return [line.text for line in listing(cubin, kernel)]


def listing(cubin: bytes, kernel: str, *, places: bool = False) -> list[Line]:
    """Return the instructions of a kernel and the labels between them, in order.

    Parameters
    ----------
    cubin : bytes
        The cubin.
    kernel : str
        The kernel's name.
    places : bool
        Whether to read where instructions come from, which a cubin knows that was compiled with ``-lineinfo``.

    Raises
    ------
    NoToolError
        If nvdisasm is not installed.
    ReduceError
        If nvdisasm cannot be run or cannot read the cubin, or if the cubin has no such kernel.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [_nvdisasm(), "-c", *(["-g"] if places else []), file.name]
        try:
            done = subprocess.run(  # noqa: S603 - NVIDIA's own program, on a file of ours
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ReduceError(f"nvdisasm did not disassemble {kernel}: {error}") from error
    if done.returncode:
        raise ReduceError(f"nvdisasm cannot read the cubin of {kernel}: {done.stderr.strip()}")
    lines = _of_kernel(done.stdout, kernel)
    if not lines:
        raise ReduceError(f"nvdisasm finds no kernel {kernel} in its cubin")
    return lines


def hot_part(lines: list[str]) -> tuple[str, list[str]]:
    """Return the most telling part of a kernel, with a description of it in words before it.

    It is the loop that loads most from global memory, else the one that loads most from shared memory, such as a
    tree's; among equal ones, the loop that ends first, which is the innermost. If that loop reads the input, but a part
    outside of loops reads as much at once, as in kernels whose loads are unrolled, it is that part; among equal ones,
    the shortest, which does the least besides. If there is no loop, it is the whole kernel.
    """
    loop = max(_loops(lines), key=lambda loop: (_reads(loop), _count(_SHARED, loop)), default=[])
    if not loop:
        return "all of it, since it has no loop", lines
    straight = max(straight_parts(lines), key=lambda part: (_reads(part), -len(part)), default=[])
    if 0 < _reads(loop) <= _reads(straight):
        return "what reads the input, which is in no loop", straight
    return "the loop that reads the input" if _reads(loop) else "its loop", loop


def _loops(lines: list[str]) -> list[list[str]]:
    return [loop for loop in loops(lines) if len(loop) > 2]  # a mere label and a branch to it are a trap


def _reads(lines: list[str]) -> int:
    return _count(_GLOBAL, lines)


def _count(pattern: re.Pattern[str], lines: list[str]) -> int:
    return sum(bool(pattern.search(line)) for line in lines)


def _of_kernel(text: str, kernel: str) -> list[Line]:
    lines: list[Line] = []
    inside, place = False, None
    for line in text.splitlines():
        if line.startswith("\t.section"):
            inside = False
        elif line.startswith(f".text.{kernel}:"):
            inside = True
        if inside:
            instruction, label, origin = _INSTRUCTION.search(line), _LABEL.match(line), _PLACE.match(line)
            if instruction and instruction[2] != "NOP;":  # padding behind the end, which nvdisasm writes so
                lines.append(Line("    " + " ".join(instruction[2].split()), int(instruction[1], 16), place))
            elif label:
                lines.append(Line(f"{label[1]}:"))
            elif origin:
                place = origin[1], int(origin[2])
    return lines


def _nvdisasm() -> str:
    found = _of_packages() or shutil.which("nvdisasm") or shutil.which("nvdisasm", path="/usr/local/cuda/bin")
    if found is None:
        raise NoToolError("the machine code needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    return str(Path(found))


def _of_packages() -> str | None:
    try:
        from cuda import pathfinder  # noqa: PLC0415 - only a report needs it
    except ImportError:  # older bindings do not include it
        return None
    finder = getattr(pathfinder, "find_nvidia_binary_utility", None)
    return finder("nvdisasm") if finder else None
