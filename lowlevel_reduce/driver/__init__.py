"""The driver layer: contexts, streams, memory, libraries and launches, straight on the CUDA driver API.

Importing it makes no driver call; the driver is initialised at the first one, and chosen by `binding`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.binding import available, version, why_unavailable
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.device import Device
from lowlevel_reduce.driver.event import Event
from lowlevel_reduce.driver.memory import Buffer, PointerInfo, pointer_info
from lowlevel_reduce.driver.stream import Stream
from lowlevel_reduce.lazy_names import imported_later

if TYPE_CHECKING:
    from lowlevel_reduce.driver import occupancy
    from lowlevel_reduce.driver.attribute_values import AccessPolicyWindow, LaunchCompletionEvent, ProgrammaticEvent
    from lowlevel_reduce.driver.bound_kernel import BoundKernel, launch
    from lowlevel_reduce.driver.config import LaunchConfig, native_config
    from lowlevel_reduce.driver.graph import Graph, GraphExec, KernelNode
    from lowlevel_reduce.driver.library import Kernel, Library
    from lowlevel_reduce.driver.pool import MemoryPool, PoolStatistics

__all__ = [
    "AccessPolicyWindow",
    "BoundKernel",
    "Buffer",
    "Context",
    "Device",
    "Event",
    "Graph",
    "GraphExec",
    "Kernel",
    "KernelNode",
    "LaunchCompletionEvent",
    "LaunchConfig",
    "Library",
    "MemoryPool",
    "PointerInfo",
    "PoolStatistics",
    "ProgrammaticEvent",
    "Stream",
    "available",
    "binding",
    "launch",
    "native_config",
    "occupancy",
    "pointer_info",
    "version",
    "why_unavailable",
]

# What launches comes with the first plan, the rest with who names it.
_LATER = {
    **dict.fromkeys(("AccessPolicyWindow", "LaunchCompletionEvent", "ProgrammaticEvent"), "attribute_values"),
    **dict.fromkeys(("BoundKernel", "launch"), "bound_kernel"),
    **dict.fromkeys(("LaunchConfig", "native_config"), "config"),
    **dict.fromkeys(("Graph", "GraphExec", "KernelNode"), "graph"),
    **dict.fromkeys(("Kernel", "Library"), "library"),
    **dict.fromkeys(("MemoryPool", "PoolStatistics"), "pool"),
    "occupancy": "occupancy",
}

if not TYPE_CHECKING:  # to a type checker any name would be an attribute
    __getattr__ = imported_later(__name__, _LATER)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
