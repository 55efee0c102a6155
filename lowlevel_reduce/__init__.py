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
from lowlevel_reduce.arrays.allocator import Allocator
from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.arrays.results import empty_cache, memory_stats
from lowlevel_reduce.driver import Buffer, Context, Device, Event, Stream, binding, meanwhile
from lowlevel_reduce.errors import (
    CacheError,
    CacheWarning,
    CompileError,
    CudaError,
    CutError,
    GroupError,
    NoCompilerError,
    NoDriverError,
    ReduceError,
    UnsupportedError,
)
from lowlevel_reduce.functions import *  # noqa: F403 - its __all__ is the one list of these names
from lowlevel_reduce.functions.general import reduce
from lowlevel_reduce.lazy_names import imported_later
from lowlevel_reduce.plans.launch import BoundReduction
from lowlevel_reduce.version import __version__ as __version__

if TYPE_CHECKING:
    from lowlevel_reduce import simulator, tree
    from lowlevel_reduce.driver import Graph, Kernel, LaunchConfig, Library
    from lowlevel_reduce.functions.segmented import segmented_reduce
    from lowlevel_reduce.operators import Operator
    from lowlevel_reduce.parts import distributed
    from lowlevel_reduce.parts.chunks import chunk_elements, shard_lengths
    from lowlevel_reduce.parts.combining import CombinePlan, combine_plan
    from lowlevel_reduce.parts.large import reduce_chunks, reduce_large
    from lowlevel_reduce.parts.partials import combine_partials, partials
    from lowlevel_reduce.parts.shards import reduce_shards
    from lowlevel_reduce.plans.array import Plan, plan
    from lowlevel_reduce.plans.segments import SegmentedPlan, segmented_plan
    from lowlevel_reduce.plans.warming import WarmUp, warm_up
    from lowlevel_reduce.prebuilding import BuildTarget, prebuild
    from lowlevel_reduce.rowops import vocabulary
    from lowlevel_reduce.rowops.call import row_operation
    from lowlevel_reduce.rowops.functions import (
        cross_entropy,
        group_norm,
        layer_norm,
        log_prob,
        log_softmax,
        normalize,
        quantize,
        rms_norm,
        softmax,
    )
    from lowlevel_reduce.rowops.gradients import (
        cross_entropy_backward,
        group_norm_backward,
        layer_norm_backward,
        log_softmax_backward,
        rms_norm_backward,
        softmax_backward,
    )
    from lowlevel_reduce.rowops.launch import RowLaunch
    from lowlevel_reduce.rowops.operation import RowMeaning, RowOperation
    from lowlevel_reduce.rowops.plan import RowPlan, row_plan

__tree_version__ = 2
"""The version of the one tree: with one tree version no result changes; on the host exp and log are those of NumPy."""

__all__ = [
    "Allocator",
    "BoundReduction",
    "Buffer",
    "BuildTarget",
    "CacheError",
    "CacheWarning",
    "CombinePlan",
    "CompileError",
    "Context",
    "CudaError",
    "CutError",
    "Device",
    "DeviceArray",
    "Event",
    "Graph",
    "GroupError",
    "Kernel",
    "LaunchConfig",
    "Library",
    "NoCompilerError",
    "NoDriverError",
    "Operator",
    "Plan",
    "ReduceError",
    "RowLaunch",
    "RowMeaning",
    "RowOperation",
    "RowPlan",
    "SegmentedPlan",
    "Stream",
    "UnsupportedError",
    "WarmUp",
    "chunk_elements",
    "combine_partials",
    "combine_plan",
    "cross_entropy",
    "cross_entropy_backward",
    "distributed",
    "empty_cache",
    "group_norm",
    "group_norm_backward",
    "layer_norm",
    "layer_norm_backward",
    "log_prob",
    "log_softmax",
    "log_softmax_backward",
    "memory_stats",
    "normalize",
    "partials",
    "plan",
    "prebuild",
    "quantize",
    "reduce",
    "reduce_chunks",
    "reduce_large",
    "reduce_shards",
    "rms_norm",
    "rms_norm_backward",
    "row_operation",
    "row_plan",
    "segmented_plan",
    "segmented_reduce",
    "shard_lengths",
    "simulator",
    "softmax",
    "softmax_backward",
    "tree",
    "vocabulary",
    "warm_up",
]
__all__ += functions.__all__


# By the module of each: what makes a plan comes with the first plan, the rest with who names it.
_LATER = {
    **dict.fromkeys(("Graph", "Kernel", "LaunchConfig", "Library"), "driver"),
    **dict.fromkeys(("SegmentedPlan", "segmented_plan"), "plans.segments"),
    "segmented_reduce": "functions.segmented",
    **dict.fromkeys(("CombinePlan", "combine_plan"), "parts.combining"),
    **dict.fromkeys(("Plan", "plan"), "plans.array"),
    **dict.fromkeys(("chunk_elements", "shard_lengths"), "parts.chunks"),
    **dict.fromkeys(("combine_partials", "partials"), "parts.partials"),
    "reduce_shards": "parts.shards",
    "distributed": "parts.distributed",
    **dict.fromkeys(("reduce_chunks", "reduce_large"), "parts.large"),
    **dict.fromkeys(("BuildTarget", "prebuild"), "prebuilding"),
    **dict.fromkeys(("WarmUp", "warm_up"), "plans.warming"),
    "Operator": "operators",
    **dict.fromkeys(
        (
            "cross_entropy_backward",
            "group_norm_backward",
            "layer_norm_backward",
            "log_softmax_backward",
            "rms_norm_backward",
            "softmax_backward",
        ),
        "rowops.gradients",
    ),
    "RowLaunch": "rowops.launch",
    **dict.fromkeys(("RowMeaning", "RowOperation"), "rowops.operation"),
    **dict.fromkeys(("RowPlan", "row_plan"), "rowops.plan"),
    "row_operation": "rowops.call",
    **dict.fromkeys(
        (
            "cross_entropy",
            "group_norm",
            "layer_norm",
            "log_prob",
            "log_softmax",
            "normalize",
            "quantize",
            "rms_norm",
            "softmax",
        ),
        "rowops.functions",
    ),
    "vocabulary": "rowops.vocabulary",
    "simulator": "simulator",
    "tree": "tree",
}

if not TYPE_CHECKING:  # to a type checker any name would be an attribute
    __getattr__ = imported_later(__name__, _LATER)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


binding.register("simulator", lambda: importlib.import_module("lowlevel_reduce.simulator").by_environment())
meanwhile.register(lambda: importlib.import_module("lowlevel_reduce.calls.ahead"))
