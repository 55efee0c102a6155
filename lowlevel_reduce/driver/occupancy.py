"""Occupancy: how many blocks and clusters of a kernel fit in a context, which may have less than its device."""

from __future__ import annotations

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.config import LaunchConfig, native_config
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.library import Kernel

__all__ = ["blocks_per_multiprocessor", "max_active_clusters", "max_cluster_size", "max_cooperative_blocks"]


def blocks_per_multiprocessor(kernel: Kernel, block_threads: int, dynamic_shared_bytes: int = 0) -> int:
    """Return how many blocks of `kernel` a multiprocessor of the current context holds at once; 0 if none fits."""
    name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    return int(binding.call(name, kernel.function, block_threads, dynamic_shared_bytes))


def max_cooperative_blocks(
    kernel: Kernel, block_threads: int, dynamic_shared_bytes: int = 0, context: Context | None = None
) -> int:
    """Return the blocks of the largest cooperative grid of `kernel` in `context`, or in the current one.

    The context is asked, not the device, because a green context has fewer multiprocessors than its device.
    """
    context = Context.of(context)
    with context.pushed():
        blocks = blocks_per_multiprocessor(kernel, block_threads, dynamic_shared_bytes)
        return blocks * context.multiprocessor_count


def max_cluster_size(kernel: Kernel, config: LaunchConfig) -> int:
    """Return the blocks of the largest cluster that `kernel` can be launched with in the current context.

    The answer depends on the block and shared memory of `config`, not on its cluster (which is kept from the driver,
    because it refuses one above 8 even in this query). It is at most 8, the portable size, unless
    ``kernel.allow_non_portable_cluster(device)`` was called.
    """
    native = native_config(_shape(config, cluster=False))
    return int(binding.call("cuOccupancyMaxPotentialClusterSize", kernel.function, native))


def max_active_clusters(kernel: Kernel, config: LaunchConfig) -> int:
    """Return how many clusters of `config` the current context holds at once; 0 if none fits.

    Raises
    ------
    ValueError
        If `config` has no cluster.
    """
    if config.cluster is None:
        raise ValueError("the launch has no cluster")
    return int(binding.call("cuOccupancyMaxActiveClusters", kernel.function, native_config(_shape(config))))


def _shape(config: LaunchConfig, *, cluster: bool = True) -> LaunchConfig:
    # Only what takes part in the answer: the driver need not make sense of events and priorities here.
    return LaunchConfig(
        config.grid,
        config.block,
        dynamic_shared_bytes=config.dynamic_shared_bytes,
        cluster=config.cluster if cluster else None,
        cluster_scheduling=config.cluster_scheduling if cluster else None,
        shared_memory_carveout=config.shared_memory_carveout,
        portable_cluster_size_mode=config.portable_cluster_size_mode,
        shared_memory_mode=config.shared_memory_mode,
    )
