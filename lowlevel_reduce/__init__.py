"""GPU reductions at the driver level: one tree, the same bits everywhere, at the speed of the memory.

>>> import lowlevel_reduce as lr
>>> total = lr.sum(x)            # x: any CUDA array, or NumPy; a DeviceArray, computed in stream order
>>> float(total)

The same bits from ``lowlevel_reduce.tree.reduce(x)`` on the host, which is the law that the kernels follow.
"""

from __future__ import annotations

from lowlevel_reduce import tree
from lowlevel_reduce.api import reduce, sum
from lowlevel_reduce.bound import BoundReduction
from lowlevel_reduce.driver import Buffer, Context, Device, Event, Graph, Kernel, LaunchConfig, Library, Stream
from lowlevel_reduce.errors import (
    CacheError,
    CompileError,
    CudaError,
    NoCompilerError,
    NoDriverError,
    ReduceError,
    UnsupportedError,
)
from lowlevel_reduce.interop import DeviceArray
from lowlevel_reduce.plan import Plan, plan

__version__ = "0.1.0"

__all__ = [
    "BoundReduction",
    "Buffer",
    "CacheError",
    "CompileError",
    "Context",
    "CudaError",
    "Device",
    "DeviceArray",
    "Event",
    "Graph",
    "Kernel",
    "LaunchConfig",
    "Library",
    "NoCompilerError",
    "NoDriverError",
    "Plan",
    "ReduceError",
    "Stream",
    "UnsupportedError",
    "plan",
    "reduce",
    "sum",
    "tree",
]
