"""A kernel's machine code, through nvdisasm, and its loop."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from lowlevel_reduce.errors import ReduceError

__all__ = ["NoToolError", "disassemble", "hot_loop", "reads_input"]

_LABEL = re.compile(r"^\s*(\.L_x_\d+):")
_BRANCH = re.compile(r"\bBRA\b.*`\((\.L_x_\d+)\)")
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
        If it cannot be run or read the cubin, or there is no such kernel in it.
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


def hot_loop(lines: list[str]) -> list[str]:
    """Return a kernel's loop, label and branch included: no lines if it has none.

    Of several, the one that loads most from global memory; else the one that loads most from shared memory, such as a
    tree's; of equals the shortest, which is the innermost.
    """
    starts: dict[str, int] = {}
    loops: list[list[str]] = []
    for place, line in enumerate(lines):
        label, branch = _LABEL.match(line), _BRANCH.search(line)
        if label:
            starts[label[1]] = place
        elif branch and branch[1] in starts and place > starts[branch[1]] + 1:  # backwards, and not to itself: a trap
            loops.append(lines[starts[branch[1]] : place + 1])
    return max(loops, key=lambda loop: (reads_input(loop), _count(_SHARED, loop), -len(loop)), default=[])


def reads_input(lines: list[str]) -> int:
    """Return how many loads from global memory there are."""
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
            if instruction and instruction[1] != "NOP;":  # padding behind the end
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
    except ImportError:  # older bindings come without it
        return None
    finder = getattr(pathfinder, "find_nvidia_binary_utility", None)
    return finder("nvdisasm") if finder else None
