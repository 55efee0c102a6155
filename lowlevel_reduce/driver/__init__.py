"""The driver layer: contexts, streams, memory, libraries and launches, straight on the CUDA driver API.

Importing it makes no driver call; the driver is initialised at the first one, and chosen by `binding`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowlevel_reduce.driver import binding, occupancy
from lowlevel_reduce.driver.binding import available, version, why_unavailable
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.device import Device
from lowlevel_reduce.driver.event import Event
from lowlevel_reduce.driver.launch import (
    AccessPolicyWindow,
    BoundKernel,
    LaunchCompletionEvent,
    LaunchConfig,
    ProgrammaticEvent,
    launch,
    native_config,
)
from lowlevel_reduce.driver.library import Kernel, Library
from lowlevel_reduce.driver.memory import Buffer, PointerInfo, pointer_info
from lowlevel_reduce.driver.stream import Stream
from lowlevel_reduce.later import imported_later

if TYPE_CHECKING:
    from lowlevel_reduce.driver.graph import Graph, GraphExec, KernelNode
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

if not TYPE_CHECKING:  # to a type checker any name would be an attribute
    __getattr__ = imported_later(
        __name__,
        {
            "Graph": "graph",
            "GraphExec": "graph",
            "KernelNode": "graph",
            "MemoryPool": "pool",
            "PoolStatistics": "pool",
        },
    )
