"""From a request to its launches in a context: kernels compiled and loaded, launch configurations made and checked."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import NamedTuple

from lowlevel_reduce.driver import Context, LaunchConfig, occupancy
from lowlevel_reduce.driver.checks import check_launch
from lowlevel_reduce.dtypes import VECTOR_BYTES
from lowlevel_reduce.plans.launch import Extents
from lowlevel_reduce.plans.loading import LoadedKernel, load_kernel
from lowlevel_reduce.strategy import whole
from lowlevel_reduce.strategy.base import RowStrategy
from lowlevel_reduce.strategy.selection import Request, select
from lowlevel_reduce.strategy.stubs import KernelSource
from lowlevel_reduce.strategy.whole import DeviceFacts, Strategy

__all__ = ["MappedKernel", "Mapping", "extents_of", "facts_of", "launch_configs", "map_request", "template"]


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
    problem, reduction, types = request.problem, request.reduction, request.types
    second, strides = reduction.second_dtype(types.element), request.second_strides
    spans: list[int] = []
    used = second is not None and problem.rows * problem.length > 0
    if used and strides is not None:
        spans = [stride * (size - 1) for size, stride in zip(request.shape, strides, strict=True)]
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
        second_vector_bytes=1 if second is None else max(1, VECTOR_BYTES // types.element.itemsize) * second.itemsize,
    )


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
    kernels = tuple(load_kernel(source, context.device.architecture) for source in selected.sources)
    _allow(kernels[0], chosen.cluster, context)

    def fit() -> int:
        return occupancy.max_cooperative_blocks(kernels[0].kernel, chosen.block_threads, context=context)

    if isinstance(chosen, Strategy):
        # The second count is for a second pass.
        counts = (chosen.partials if chosen.name == "tiles" else chosen.tiles_per_block, chosen.partials)
    else:
        counts = (chosen.count, 0)
    twins = (source.twin for source in selected.sources)
    launches = tuple(map(MappedKernel, kernels, launch_configs(chosen, facts, fit), counts, twins))
    for launch in launches if asked is None else ():
        check_launch(launch.loaded.kernel, launch.config, context)
    if os.environ.get("LOWLEVEL_REDUCE_WARM_UP"):
        from lowlevel_reduce.plans import warming  # noqa: PLC0415 - for who asks for it

        if warming.is_asked_for():
            warming.follow(request, context)
    return Mapping(chosen, selected.workspace_bytes, launches)


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
