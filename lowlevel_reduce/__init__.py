"""GPU reductions at the driver level: one tree, the same bits everywhere, at the speed of the memory.

>>> import lowlevel_reduce as lr
>>> total = lr.sum(x)            # x: any CUDA array, or NumPy; a DeviceArray, computed in stream order
>>> float(total)

The same bits from ``lowlevel_reduce.tree.reduce(x)`` on the host, which is the law that the kernels follow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lowlevel_reduce import functions
from lowlevel_reduce.allocator import Allocator
from lowlevel_reduce.api import reduce
from lowlevel_reduce.bound import BoundReduction
from lowlevel_reduce.driver import Buffer, Context, Device, Event, Graph, Kernel, LaunchConfig, Library, Stream, binding
from lowlevel_reduce.errors import (
    CacheError,
    CompileError,
    CudaError,
    NoCompilerError,
    NoDriverError,
    ReduceError,
    UnsupportedError,
)
from lowlevel_reduce.functions import *  # noqa: F403 - its __all__ is the one list of these names
from lowlevel_reduce.interop import DeviceArray
from lowlevel_reduce.operators import Operator
from lowlevel_reduce.plan import Plan, plan
from lowlevel_reduce.segments import SegmentedPlan, segmented_plan, segmented_reduce

if TYPE_CHECKING:
    from types import ModuleType

    from lowlevel_reduce import simulator, tree

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
    "plan",
    "reduce",
    "segmented_plan",
    "segmented_reduce",
    "simulator",
    "tree",
]
__all__ += functions.__all__


_LATER = ("simulator", "tree")
"""Modules that are imported by those who name them: who reduces on a GPU needs neither."""


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"lowlevel_reduce.{name}")


binding.register("simulator", lambda: _module("simulator").by_environment())

if not TYPE_CHECKING:  # to a type checker any name would be an attribute

    def __getattr__(name: str) -> ModuleType:
        if name in _LATER:
            return _module(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
