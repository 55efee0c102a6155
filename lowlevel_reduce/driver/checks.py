"""Checks before a launch, with readable errors: whether a kernel, a configuration and a context go together."""

from __future__ import annotations

from lowlevel_reduce.driver.config import LaunchConfig
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.device import Device
from lowlevel_reduce.driver.library import Kernel
from lowlevel_reduce.driver.occupancy import max_active_clusters, max_cooperative_blocks
from lowlevel_reduce.errors import CudaError, UnsupportedError

__all__ = ["check_cluster", "check_cooperative", "check_kernel", "check_launch"]

_PORTABLE_CLUSTER_BLOCKS = 8
_PLAIN_SHARED_BYTES = 48 * 1024  # what every kernel may use without opting in


def check_launch(kernel: Kernel, config: LaunchConfig, context: Context) -> None:
    """Make all checks of this module and ``config.check_device``; they cost driver queries, so do it once per plan."""
    device = context.device
    config.check_device(device)
    check_kernel(kernel, config, device)
    if config.cluster is not None:
        check_cluster(kernel, config, context)
    if config.cooperative:
        check_cooperative(kernel, config, context)
    if config.priority is not None:
        context.check_priority(config.priority)


def check_kernel(kernel: Kernel, config: LaunchConfig, device: Device) -> None:
    """Refuse a block or shared memory that `kernel` cannot have on `device`, and what it must first be opted in to.

    Raises
    ------
    ValueError
        Naming what was asked for, what the kernel takes, and the call that raises the limit if there is one.
    """
    threads = kernel.max_threads_per_block(device)
    if config.block_threads > threads:
        raise ValueError(f"kernel {kernel.name!r} takes at most {threads} threads a block, not {config.block_threads}")
    asked = config.dynamic_shared_bytes
    if asked + kernel.static_shared_bytes(device) > _PLAIN_SHARED_BYTES and asked > kernel.max_dynamic_shared_bytes(
        device
    ):
        raise ValueError(
            f"kernel {kernel.name!r} takes at most {kernel.max_dynamic_shared_bytes(device)} bytes of dynamic shared "
            f"memory, not {asked}: call set_max_dynamic_shared_bytes({asked}, device) first"
        )
    if (
        config.cluster_blocks > _PORTABLE_CLUSTER_BLOCKS
        and config.portable_cluster_size_mode != "allow_non_portable"
        and not kernel.allows_non_portable_cluster(device)
    ):
        raise ValueError(
            f"a cluster of {config.cluster_blocks} blocks is above the portable {_PORTABLE_CLUSTER_BLOCKS}: "
            f"call allow_non_portable_cluster(device) on kernel {kernel.name!r} first"
        )


def check_cluster(kernel: Kernel, config: LaunchConfig, context: Context) -> None:
    """Refuse a cluster of which `context` cannot hold a single one.

    Raises
    ------
    UnsupportedError
        With the cluster, its block and its shared memory.
    """
    try:
        with context.pushed():
            fits = max_active_clusters(kernel, config)
    except CudaError as error:
        if error.name != "CUDA_ERROR_INVALID_CLUSTER_SIZE":
            raise
        fits = 0
    if not fits:
        raise UnsupportedError(
            f"{context.device.name} cannot hold one cluster of {config.cluster_blocks} blocks of kernel "
            f"{kernel.name!r} with {config.block_threads} threads and {config.dynamic_shared_bytes} bytes a block"
        )


def check_cooperative(kernel: Kernel, config: LaunchConfig, context: Context) -> None:
    """Refuse a cooperative grid that does not fit into `context` at once; it is never made smaller.

    Raises
    ------
    ValueError
        With the blocks that were asked and the blocks that fit.
    """
    fits = max_cooperative_blocks(kernel, config.block_threads, config.dynamic_shared_bytes, context)
    if config.cluster is not None:
        with context.pushed():
            fits = min(fits, max_active_clusters(kernel, config) * config.cluster_blocks)
    if config.grid_blocks > fits:
        raise ValueError(
            f"a cooperative grid of {config.grid_blocks} blocks of kernel {kernel.name!r} does not fit: {fits} "
            f"blocks do, with {config.block_threads} threads and {config.dynamic_shared_bytes} dynamic bytes each"
        )
