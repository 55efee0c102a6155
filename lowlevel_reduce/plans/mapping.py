"""From a request to its launches in a context: kernels compiled and loaded, launch configurations made and checked."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lowlevel_reduce.driver import Context, LaunchConfig, occupancy
from lowlevel_reduce.driver.checks import check_launch
from lowlevel_reduce.dtypes import VECTOR_BYTES
from lowlevel_reduce.layout import Problem
from lowlevel_reduce.operators import Reduction, Types
from lowlevel_reduce.plans.launch import Extents
from lowlevel_reduce.plans.loading import LoadedKernel, load_kernel
from lowlevel_reduce.strategy import whole
from lowlevel_reduce.strategy.base import RowStrategy
from lowlevel_reduce.strategy.selection import Request, Resolved, select
from lowlevel_reduce.strategy.stubs import KernelSource
from lowlevel_reduce.strategy.whole import DeviceFacts, Strategy

__all__ = [
    "MappedKernel",
    "Mapping",
    "extents",
    "extents_of",
    "facts_of",
    "kernels_of",
    "launch_configs",
    "map_request",
    "second_vector_bytes",
    "template",
]


class MappedKernel(NamedTuple):
    """One launch of a plan: the kernel, its configuration, and the value of the field `count` of its argument.

    `twin` is the source of the kernel that takes its place for arrays that are not aligned; None if it takes all.
    """

    loaded: LoadedKernel
    config: LaunchConfig
    count_field: int
    twin: KernelSource | None = None

    def load_twin(self, context: Context) -> LoadedKernel:
        """Return the kernel for arrays at any address, compiled and loaded if this process has not done so."""
        if self.twin is None:
            return self.loaded
        loaded = load_kernel(self.twin, context.device.architecture)
        _allow(loaded, self.config.cluster_blocks, context)
        return loaded


class Mapping(NamedTuple):
    """How a problem runs: the strategy, the workspace's size, and the launches in order (none without results)."""

    strategy: Strategy | RowStrategy
    workspace_bytes: int
    kernels: tuple[MappedKernel, ...]


def extents_of(request: Request) -> Extents:
    """Return which bytes of both arrays and of the results a launch accesses."""
    return extents(request.reduction, request.types, request.problem, request.shape, request.second_strides)


def extents(
    reduction: Reduction,
    types: Types,
    problem: Problem,
    shape: tuple[int, ...],
    second_strides: Sequence[int] | None,
) -> Extents:
    """Return the same for a problem of arrays of this shape, the second one's strides in bytes being given."""
    second = reduction.second_dtype(types.element)
    spans: list[int] = []
    used = second is not None and problem.rows * problem.length > 0
    if used and second_strides is not None:
        spans = [stride * (size - 1) for size, stride in zip(shape, second_strides, strict=True)]
    itemsize = types.result_dtype.itemsize
    return Extents(
        low=problem.low,
        high=problem.high,
        result_bytes=problem.rows * reduction.results * itemsize,
        result_alignment=itemsize,
        has_second=second is not None,
        second_low=sum(min(span, 0) for span in spans),
        second_high=sum(max(span, 0) for span in spans) + (second.itemsize if second is not None and used else 0),
        vector_bytes=VECTOR_BYTES,
        second_vector_bytes=second_vector_bytes(second, types.element.itemsize),
    )


def second_vector_bytes(second: np.dtype[Any] | None, itemsize: int) -> int:
    """Return the bytes of the second array's elements that go with a vector of the first's; 1 without a second one."""
    return 1 if second is None else max(1, VECTOR_BYTES // itemsize) * second.itemsize


def facts_of(context: Context) -> DeviceFacts:
    """Return the device's properties as the context shows them: a green context has fewer multiprocessors."""
    device = context.device
    return DeviceFacts(
        compute_capability=device.compute_capability,
        multiprocessors=context.multiprocessor_count,
        clusters=device.supports_clusters,
        cooperative=device.supports_cooperative_launch,
    )


def map_request(
    request: Request,
    context: Context,
    *,
    strategy: str | None = None,
    cluster: int | None = None,
    block_threads: int | None = None,
    facts: DeviceFacts | None = None,
    beside: Callable[[KernelSource], None] | None = None,
) -> Mapping:
    """Return the mapping of a request to a context; `strategy`, `cluster` and `block_threads` force those choices.

    With `facts`, those of the context, nothing is asked of the driver; then whoever binds a launch has it checked.
    `beside`, if given, is called with each kernel for arrays at any address before those for aligned ones are loaded.
    """
    asked, facts = facts, facts or facts_of(context)
    selected = select(request, facts, strategy=strategy, cluster=cluster, block_threads=block_threads)
    chosen = selected.strategy
    if not selected.sources:
        return Mapping(chosen, selected.workspace_bytes, ())
    if beside is not None:
        for source in selected.sources:
            if source.twin is not None:
                beside(source.twin)
    launches = kernels_of(request, chosen, selected.sources, context, facts)
    for launch in launches if asked is None else ():
        check_launch(launch.loaded.kernel, launch.config, context)
    return Mapping(chosen, selected.workspace_bytes, launches)


def kernels_of(
    of: Request | Resolved,
    chosen: Strategy | RowStrategy,
    sources: tuple[KernelSource, ...],
    context: Context,
    facts: DeviceFacts,
) -> tuple[MappedKernel, ...]:
    """Return the kernels of a strategy for an operator and types, loaded in a context, with their configurations."""
    kernels = tuple(load_kernel(source, context.device.architecture) for source in sources)
    _allow(kernels[0], chosen.cluster, context)

    def fit() -> int:
        return occupancy.max_cooperative_blocks(kernels[0].kernel, chosen.block_threads, context=context)

    twins = (source.twin for source in sources)
    launches = tuple(map(MappedKernel, kernels, launch_configs(chosen, facts, fit), chosen.counts, twins))
    if os.environ.get("LOWLEVEL_REDUCE_WARM_UP"):
        from lowlevel_reduce.plans import warming  # noqa: PLC0415 - for who asks for it

        if warming.is_asked_for():
            warming.follow(of, context)
    return launches


def _allow(loaded: LoadedKernel, cluster: int, context: Context) -> None:
    """Allow a kernel clusters of a size that not every device has, if it is to be launched in such."""
    if cluster > whole.PORTABLE_CLUSTER:
        loaded.kernel.allow_non_portable_cluster(context.device)


def launch_configs(
    chosen: Strategy | RowStrategy, facts: DeviceFacts, fit: Callable[[], int]
) -> tuple[LaunchConfig, ...]:
    """Return the launch configuration of each kernel of a strategy, in launch order.

    Parameters
    ----------
    chosen : Strategy or RowStrategy
        What was selected.
    facts : DeviceFacts
        The device that it was selected for.
    fit : callable
        Returns how many blocks the device holds at once; called for cooperative grids alone.
    """
    if isinstance(chosen, Strategy):
        programmatic = chosen.programmatic
        blocks = chosen.blocks if chosen.blocks is not None else min(chosen.tiles, fit())
    else:
        programmatic, blocks = facts.compute_capability >= (9, 0), chosen.blocks
    cooperative = chosen.name == "cooperative"
    first = template(chosen.block_threads, chosen.cluster, programmatic, cooperative).with_grid(blocks)
    if chosen.name != "two_pass":
        return (first,)
    return first, template(chosen.block_threads, 1, programmatic, False)


@functools.lru_cache(maxsize=256)
def template(block_threads: int, cluster: int, programmatic: bool, cooperative: bool) -> LaunchConfig:
    """Return the launch of one cluster, from which those of all grids are made."""
    return LaunchConfig(
        cluster,
        block_threads,
        cluster=cluster if cluster > 1 else None,
        cooperative=cooperative,
        programmatic_stream_serialization=programmatic,
    )
