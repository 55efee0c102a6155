"""Device memory that competitors keep for later: given back before the harness takes its own and when it is short."""

from __future__ import annotations

import gc
import sys

from lowlevel_reduce.driver import binding

__all__ = ["make_room", "release"]

SHORT = 2
"""Memory is short when less than the total by this is free."""


def make_room() -> None:
    """Release what competitors keep if memory is short.

    Cells of one type share their elements, so nothing else releases anything between them. PyTorch's sum of int8 first
    makes an array of int64, which each of its graphs keeps: 8 GB of 1 GB of elements. The second such cell of a run of
    2026-11-25 found an H100 full, and the fifth had no room for a result of this library.
    """
    free, total = binding.call("cuMemGetInfo")
    if free < total // SHORT:
        release()


def release() -> None:
    """Collect garbage, on which competitors' arrays and graphs may hang, and empty the caches of those that are loaded.

    PyTorch keeps the memory of graphs that it has captured, CuPy that of results, and nobody else can have it. In two
    runs of several suites three cells had no memory left, and these caches may be why.
    """
    gc.collect()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if cupy is not None and cupy.cuda.is_available():
        cupy.get_default_memory_pool().free_all_blocks()
