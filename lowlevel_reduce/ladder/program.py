"""A rung's source as a program: its constants as macros, and an include of its file."""

from __future__ import annotations

from lowlevel_reduce.ladder.registry import Rung
from lowlevel_reduce.strategy.stubs import KernelSource

__all__ = ["kernel_source", "stub"]


def stub(rung: Rung, dtype: str, block: int) -> str:
    """Return the text to compile: macros for the rung's constants, the block and the element type, and the file."""
    macros = [("BLOCK", str(block)), *((name, str(value)) for name, value in rung.constants)]
    if dtype == "float16" and len(rung.dtypes) > 1:
        macros.append(("HALF", ""))
    lines = [f"#define {name} {value}".rstrip() for name, value in macros]
    return "\n".join((*lines, f'#include "{rung.file}"', ""))


def kernel_source(rung: Rung, entry: str, dtype: str, block: int) -> KernelSource:
    """Return one kernel of a rung for `loading.load_kernel`, which distinguishes kernels by their text."""
    return KernelSource(entry, f"// {entry}\n{stub(rung, dtype, block)}")
