"""The resources of every kernel of a cubin, read from the assembler's report (``--ptxas-options=-v``).

The report has the same format from NVRTC 12.6 to 13.5::

    ptxas info    : Compiling entry function 'k' for 'sm_80'
    ptxas info    : Function properties for k
    ptxas         .     1064 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
    ptxas info    : Used 32 registers, used 1 barriers, 1064 bytes cumulative stack size, 364 bytes cmem[0]
    ptxas info    : Function properties for _Z6calleePfi
    ptxas         .     0 bytes stack frame, 1004 bytes spill stores, 1008 bytes spill loads

Functions that were not inlined are assembled anew for each kernel that calls them and follow it in the report. So their
spills are counted as the kernel's: they make it slow, even though its own line says 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from lowlevel_reduce.errors import ReduceError

__all__ = ["Resources", "parse_resources"]

# Strings, which `re` compiles at first use and keeps: a process whose kernels are all in the cache reads no report.
_ENTRY = r"Compiling entry function '([^']+)' for '[^']+'"
_FRAME = r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
_USED = r"ptxas info\s*:\s*(?:\([^)]*\)\s*)?(Used \d+ registers.*)"
_REGISTERS = r"Used (\d+) registers"
_BARRIERS = r"used (\d+) barriers"
_SHARED = r"(\d+) bytes smem"
_STACK = r"(\d+) bytes cumulative stack size"
_CONSTANT = r"(\d+) bytes cmem\[\d+\]"


class Resources(NamedTuple):
    """The resources that one kernel uses, per thread unless stated otherwise.

    Attributes
    ----------
    registers : int
        32-bit registers.
    shared_bytes : int
        Static shared memory of a block, as declared. The system reserves another 1024 bytes in every block (sm_80 and
        later); the report leaves them out, but the ``.nv.shared`` sections of a cubin for sm_90 contain them.
    stack_bytes : int
        Local memory for the largest known stack, callees included where ptxas can tell their depth.
    spill_store_bytes, spill_load_bytes : int
        Bytes of spill stores and loads, of the kernel and of the functions it calls that were not inlined.
    constant_bytes : int or None
        Constant memory in all banks, parameters included; None if ptxas does not report it (from sm_90 on).
    barriers : int
        Hardware barriers of a block.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    constant_bytes: int | None
    barriers: int


def parse_resources(log: str, kernels: Iterable[str]) -> dict[str, Resources]:
    """Read the resources of kernels from an NVRTC log.

    Parameters
    ----------
    log : str
        The complete log of a compilation with ``--ptxas-options=-v``.
    kernels : iterable of str
        Names of the kernels in the cubin.

    Returns
    -------
    dict[str, Resources]
        One item for each of `kernels`, in their order.

    Raises
    ------
    ReduceError
        If the log does not report on one of them: unknown resources are not taken for zero.
    """
    blocks = _entry_blocks(log)
    return {name: _resources(name, blocks.get(name, [])) for name in kernels}


def _entry_blocks(log: str) -> dict[str, list[str]]:
    blocks: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in log.splitlines():
        entry = re.search(_ENTRY, line)
        if entry:
            current = blocks.setdefault(entry.group(1), [])
        elif current is not None:
            current.append(line)
    return blocks


def _resources(name: str, block: list[str]) -> Resources:
    used = next((match.group(1) for line in block if (match := re.search(_USED, line))), None)
    frames = [tuple(map(int, match.groups())) for line in block if (match := re.search(_FRAME, line))]
    if used is None or not frames:
        raise ReduceError(f"the compiler's log does not report the resources of kernel {name!r}, which the cubin holds")
    constant = re.findall(_CONSTANT, used)
    return Resources(
        registers=_number(_REGISTERS, used),
        shared_bytes=_number(_SHARED, used),
        stack_bytes=max(_number(_STACK, used), *(frame[0] for frame in frames)),
        spill_store_bytes=sum(frame[1] for frame in frames),
        spill_load_bytes=sum(frame[2] for frame in frames),
        constant_bytes=sum(map(int, constant)) if constant else None,
        barriers=_number(_BARRIERS, used),
    )


def _number(pattern: str, text: str) -> int:
    # ptxas leaves an item out when it is zero.
    match = re.search(pattern, text)
    return int(match.group(1)) if match else 0
