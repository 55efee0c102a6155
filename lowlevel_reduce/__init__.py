"""GPU reductions at the driver level: one tree, the same bits everywhere, at the speed of the memory.

>>> import lowlevel_reduce as lr
>>> total = lr.sum(x)            # x: any CUDA array, or NumPy; a DeviceArray, computed in stream order
>>> float(total)

The same bits from ``lowlevel_reduce.tree.reduce(x)`` on the host, which is the law that the kernels follow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lowlevel_reduce import tree
from lowlevel_reduce.allocator import Allocator
from lowlevel_reduce.api import reduce
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
from lowlevel_reduce.functions import (
    all,
    any,
    argmax,
    argmin,
    count_nonzero,
    dot,
    logsumexp,
    max,
    mean,
    mean_var,
    min,
    minmax,
    norm,
    prod,
    softmax_stats,
    std,
    sum,
    sum_squares,
    var,
)
from lowlevel_reduce.interop import DeviceArray
from lowlevel_reduce.operators import Operator
from lowlevel_reduce.plan import Plan, plan
from lowlevel_reduce.segments import SegmentedPlan, segmented_plan, segmented_reduce

if TYPE_CHECKING:
    from types import ModuleType

    from lowlevel_reduce import simulator

__version__ = "0.1.0"

__all__ = [
    "Allocator",
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
    "Operator",
    "Plan",
    "ReduceError",
    "SegmentedPlan",
    "Stream",
    "UnsupportedError",
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "dot",
    "logsumexp",
    "max",
    "mean",
    "mean_var",
    "min",
    "minmax",
    "norm",
    "plan",
    "prod",
    "reduce",
    "segmented_plan",
    "segmented_reduce",
    "simulator",
    "softmax_stats",
    "std",
    "sum",
    "sum_squares",
    "tree",
    "var",
]


def __getattr__(name: str) -> ModuleType:
    # The simulator is imported by those who name it: whoever has a GPU pays nothing for it.
    if name == "simulator":
        return importlib.import_module("lowlevel_reduce.simulator")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
