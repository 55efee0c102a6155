"""A kernel's machine code, from nvdisasm, and the most telling part of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from lowlevel_reduce.cli.control_flow import loops, straight_parts
from lowlevel_reduce.errors import ReduceError

__all__ = ["NoToolError", "disassemble", "hot_part"]

_LABEL = re.compile(r"^\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.*?;)")
_GLOBAL, _SHARED = re.compile(r"\bLDG\b"), re.compile(r"\bLDS\b")
_SECONDS = 60


class NoToolError(ReduceError):
    """nvdisasm is not installed; the message says how to get it."""


def disassemble(cubin: bytes, kernel: str) -> list[str]:
    """Return the instructions of a kernel and the labels between them, in order.

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
        command = [_nvdisasm(), "-c", file.name]
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


def _of_kernel(text: str, kernel: str) -> list[str]:
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("\t.section"):
            inside = False
        elif line.startswith(f".text.{kernel}:"):
            inside = True
        if inside:
            instruction, label = _INSTRUCTION.search(line), _LABEL.match(line)
            if instruction and instruction[1] != "NOP;":  # NOPs are padding behind the end
                lines.append("    " + " ".join(instruction[1].split()))
            elif label:
                lines.append(f"{label[1]}:")
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
