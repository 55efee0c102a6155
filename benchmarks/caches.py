"""Device memory that competitors keep for later: given back before the harness takes its own."""

from __future__ import annotations

import gc
import sys

__all__ = ["release"]


def release() -> None:
    """Collect garbage, on which competitors' arrays and graphs may hang, and empty the caches of those that are loaded.

    PyTorch keeps the memory of graphs that it has captured, CuPy that of results, and nobody else can have it. In two
    runs of several suites three cells had no memory left, and these caches may be why.
    """
    gc.collect()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
