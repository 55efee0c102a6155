"""A plan: one reduction problem on one context, compiled and mapped; bound to a stream it is one driver call."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from lowlevel_reduce import layout, policy
from lowlevel_reduce.bound import BoundReduction, DirectReduction, check_pointer
from lowlevel_reduce.driver import (
    BoundKernel,
    Buffer,
    Context,
    Device,
    Kernel,
    LaunchConfig,
    Stream,
    occupancy,
)
from lowlevel_reduce.driver.checks import check_launch
from lowlevel_reduce.dtypes import COMPENSATED, accumulator_bytes, element_type, numpy_dtype
from lowlevel_reduce.kernels import SIGNATURE, kernel_sources
from lowlevel_reduce.loading import LoadedKernel, load_kernel
from lowlevel_reduce.operators import operator
from lowlevel_reduce.policy import DeviceFacts, Strategy

__all__ = ["Plan", "plan"]


class Plan:
    """A reduction of arrays of one shape and type on one context. Make one with `plan`.

    A plan does not change, and threads may share it. It keeps its kernels loaded until it is closed or collected.

    Attributes
    ----------
    op : str
        Name of the operator.
    shape : tuple of int
        The array's shape.
    dtype, result_dtype : numpy.dtype
        Types of the elements and of the result.
    accumulator : str
        The type in which the tree is folded.
    context : Context
        Where it runs.
    strategy : Strategy
        How it runs.
    workspace_bytes : int
        Device memory that a bound launch needs besides input and result: 256 + 16 * ceil(leaves / 8) bytes, a leaf
        being 4 KiB of input; with the compensated accumulator 32 instead of 16. It grows with the length and depends
        on nothing else, so a workspace fits every shorter problem.
    """

    def __init__(
        self,
        *,
        op: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        result_dtype: np.dtype[Any],
        accumulator: str,
        context: Context,
        strategy: Strategy,
        kernels: tuple[LoadedKernel, ...],
        configs: tuple[LaunchConfig, ...],
    ) -> None:
        self.op = op
        self.shape = shape
        self.dtype = dtype
        self.result_dtype = result_dtype
        self.accumulator = accumulator
        self.context = context
        self.strategy = strategy
        self.length = math.prod(shape)
        self.workspace_bytes = policy.workspace_bytes(
            _leaves(self.length, element_type(dtype).leaf), accumulator_bytes(accumulator)
        )
        self._kernels = kernels
        self._configs = configs

    def bind(self, stream: Any, workspace: Buffer | None = None) -> BoundReduction:
        """Bind the plan to a stream: everything is checked, built and allocated here, so that a call only launches.

        Parameters
        ----------
        stream : Stream or object with ``__cuda_stream__``
            Where it will run; of this plan's context.
        workspace : Buffer, optional
            Device memory of `workspace_bytes` or more, aligned to 16 bytes, for this bound launch alone until its last
            launch has run. These bytes are cleared in the stream's order, now. Without one, the memory is allocated
            here and belongs to the bound launch.

        Raises
        ------
        ValueError
            If the plan, the stream or the workspace is closed, the stream is of another context, or the workspace is
            too small, not aligned, or not memory of this context.
        """
        kernels = self._open_kernels()
        stream = Stream.of(stream)
        if stream.context != self.context:
            raise ValueError(
                f"the stream is of context {stream.context.handle:#x}, the plan of {self.context.handle:#x}"
            )
        if workspace is None:
            workspace = Buffer.allocate(self.workspace_bytes if self.strategy.partials else 0, self.context)
        elif workspace.size_bytes < self.workspace_bytes:
            raise ValueError(f"the workspace has {workspace.size_bytes} bytes; this plan needs {self.workspace_bytes}")
        else:
            check_pointer(workspace.pointer, self.workspace_bytes, self.context, what="the workspace", alignment=16)
        if workspace.size_bytes:
            part = Buffer.from_pointer(workspace.pointer, self.workspace_bytes, context=self.context, owner=workspace)
            part.fill(0, stream=stream)
        pointer = workspace.pointer
        counts = (self.strategy.tiles_per_block, self.strategy.partials)  # the second is for a second pass
        bound = [
            BoundKernel(loaded.kernel, config, stream, SIGNATURE, constants=(self.length, pointer, count))
            for loaded, config, count in zip(kernels, self._configs, counts, strict=False)
        ]
        kind = DirectReduction if len(bound) == 1 and not stream.is_default else BoundReduction
        return kind(
            bound,
            stream,
            workspace,
            source_bytes=self.length * self.dtype.itemsize,
            result_bytes=self.result_dtype.itemsize,
        )

    @property
    def launches(self) -> tuple[tuple[Kernel, LaunchConfig], ...]:
        """The kernels in launch order, each with its configuration: one, or two for `two_pass`."""
        return tuple(zip((loaded.kernel for loaded in self._open_kernels()), self._configs, strict=True))

    def describe(self) -> str:
        """Return, in a few lines, what will be launched and why it is so."""
        chosen, device = self.strategy, self.context.device
        lines = [
            f"{self.op} of {self.shape} {self.dtype} in {self.accumulator} to {self.result_dtype} on {device.name}",
            f"strategy {chosen.name}: {chosen.tiles} tiles of {chosen.warps} leaves (4 KiB each), workspace "
            f"{self.workspace_bytes} bytes",
        ]
        for loaded, config in zip(self._kernels, self._configs, strict=True):
            use = loaded.resources
            programmatic = ", may start before its predecessor ends" if config.programmatic_stream_serialization else ""
            cluster = f" in clusters of {config.cluster_blocks}" if config.cluster else ""
            resources = f", {use.registers} registers, {use.shared_bytes} bytes of shared memory" if use else ""
            lines.append(
                f"{loaded.kernel.name}: {config.grid_blocks} blocks{cluster} of {config.block_threads} threads"
                f"{resources}{programmatic}"
            )
        return "\n".join(lines)

    def close(self) -> None:
        """Let go of the kernels; bound launches that exist keep theirs. A second call does nothing."""
        self._kernels = ()

    def _open_kernels(self) -> tuple[LoadedKernel, ...]:
        if not self._kernels:
            raise ValueError("the plan is closed")
        return self._kernels

    def __enter__(self) -> Plan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Plan {self.op} {self.shape} {self.dtype} {self.strategy.name}>"


def plan(
    op: str = "sum",
    *,
    shape: int | Sequence[int],
    dtype: Any,
    accumulate: str | None = None,
    result_dtype: Any = None,
    context: Context | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
    block_threads: int | None = None,
) -> Plan:
    """Compile and map a reduction of all elements of arrays of one shape.

    Parameters
    ----------
    op : str
        Name of the operator.
    shape : int or sequence of int
        Shape of the array, contiguous in C order.
    dtype : dtype
        Type of the elements.
    accumulate : str, optional
        The accumulator, as for `lowlevel_reduce.tree.reduce`.
    result_dtype : dtype, optional
        Type of the result; by default the input's for floats, 64 bits for integers.
    context : Context, optional
        Where; by default the current context, else the primary one of device 0.
    strategy : str, optional
        "block", "cluster", "tiles", "two_pass" or "cooperative". By default what is fastest, or what the environment
        variable LOWLEVEL_REDUCE_STRATEGY names. All give the same bits.
    cluster : int, optional
        Blocks in a cluster, for "cluster" and "tiles": 1, 2, 4, 8 or 16.
    block_threads : int, optional
        Threads in a block: 256, 512 or 1024 for "tiles" and "two_pass", 256 or 512 for "cooperative", 32 to 512 for
        "block" and "cluster".

    Raises
    ------
    TypeError, ValueError
        If shape, dtype, strategy, cluster or block make no sense.
    UnsupportedError
        If the type cannot be reduced so, or the device lacks what the strategy needs.
    CompileError, NoCompilerError, NoDriverError, CacheError
        If the kernel cannot be compiled, run or cached.
    """
    shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)
    element, operation = element_type(dtype), operator(op)
    accumulator = element.accumulator(accumulate)
    result = element.result_type(result_dtype, accumulate)
    problem = layout.whole_array(shape, element.itemsize)
    context = context or Context.current_or_primary()
    device = context.device
    chosen = policy.choose(
        _leaves(problem.length, element.leaf),
        _facts(context),
        strategy=strategy or os.environ.get("LOWLEVEL_REDUCE_STRATEGY") or None,
        cluster=cluster,
        block_threads=block_threads,
        wide_accumulator=accumulator == COMPENSATED,
    )
    label = f"{op}_{element.name}_{accumulator}_{result}"
    sources = kernel_sources(label, operation.c_type(element, accumulator, result), chosen)
    kernels = tuple(load_kernel(source, device.architecture) for source in sources)
    return Plan(
        op=op,
        shape=shape,
        dtype=element.dtype,
        result_dtype=numpy_dtype(result),
        accumulator=accumulator,
        context=context,
        strategy=chosen,
        kernels=kernels,
        configs=_configs(chosen, kernels, context, device),
    )


def _leaves(length: int, leaf: int) -> int:
    return -(-length // leaf)


def _facts(context: Context) -> DeviceFacts:
    device = context.device
    return DeviceFacts(
        compute_capability=device.compute_capability,
        multiprocessors=context.multiprocessor_count,
        clusters=device.supports_clusters,
        cooperative=device.supports_cooperative_launch,
    )


def _configs(
    chosen: Strategy, kernels: tuple[LoadedKernel, ...], context: Context, device: Device
) -> tuple[LaunchConfig, ...]:
    """Return a launch configuration for each kernel, checked against kernel, device and context."""
    if chosen.cluster > policy.PORTABLE_CLUSTER:
        kernels[0].kernel.allow_non_portable_cluster(device)
    blocks = chosen.blocks
    if blocks is None:
        fit = occupancy.max_cooperative_blocks(kernels[0].kernel, chosen.block_threads, context=context)
        blocks = min(chosen.tiles, fit)
    first = LaunchConfig(
        blocks,
        chosen.block_threads,
        cluster=chosen.cluster if chosen.cluster > 1 else None,
        cooperative=chosen.name == "cooperative",
        programmatic_stream_serialization=chosen.programmatic,
    )
    configs = [first]
    if len(kernels) > 1:
        configs.append(LaunchConfig(1, chosen.block_threads, programmatic_stream_serialization=chosen.programmatic))
    for loaded, config in zip(kernels, configs, strict=True):
        check_launch(loaded.kernel, config, context)
    return tuple(configs)
