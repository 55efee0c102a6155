"""From a problem to its launches: the strategy, its kernels compiled and loaded, their configurations, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lowlevel_reduce import layout, policy, row_policy
from lowlevel_reduce.bound import Extents
from lowlevel_reduce.driver import Context, Device, LaunchConfig, occupancy
from lowlevel_reduce.driver.checks import check_launch
from lowlevel_reduce.kernels import OperatorText, kernel_sources, row_kernel_source
from lowlevel_reduce.loading import LoadedKernel, load_kernel
from lowlevel_reduce.operators import Reduction, Types
from lowlevel_reduce.policy import DeviceFacts, Strategy
from lowlevel_reduce.row_strategy import RowStrategy

__all__ = ["MappedKernel", "Mapping", "extents_of", "map_rows", "map_whole", "needs_many_registers", "operator_text"]

_VERY_WIDE_BYTES = 16
"""Accumulators of more than this: a thread that folds them needs more registers than a full block leaves it. Of just
this, where elements of one or two bytes are so many that it holds a lot of accumulators at a time."""


class MappedKernel(NamedTuple):
    """One launch of a plan: what is launched, how, and the value of its argument's field `count`."""

    loaded: LoadedKernel
    config: LaunchConfig
    count_field: int


class Mapping(NamedTuple):
    """How a problem runs: the strategy, its workspace's size, and its launches in order; none without results."""

    strategy: Strategy | RowStrategy
    workspace_bytes: int
    kernels: tuple[MappedKernel, ...]


def needs_many_registers(reduction: Reduction, types: Types) -> bool:
    """Say whether a thread that folds eight vectors at once needs more registers than a full block leaves it."""
    widest = _VERY_WIDE_BYTES - (types.element.itemsize <= 2)
    wide = reduction.is_heavy(types) or reduction.size(types) > widest
    return reduction.second is not None or (wide and not reduction.fits_full_block(types))


def operator_text(reduction: Reduction, types: Types) -> OperatorText:
    """Return an operator as the kernels' stubs need it."""
    return OperatorText(
        label=f"{reduction.label}_{types.element.name}_{types.accumulator}_{types.result}",
        type=reduction.struct(types),
        accumulator_bytes=reduction.size(types),
        declaration=reduction.declaration(types),
        heavy=reduction.is_heavy(types) or reduction.second is not None,
        two_arrays=reduction.second is not None,
    )


def extents_of(
    problem: layout.Problem,
    reduction: Reduction,
    types: Types,
    shape: tuple[int, ...],
    second_strides: Sequence[int] | None,
) -> Extents:
    """Return which bytes of both arrays and of the results a launch touches."""
    second = reduction.second_dtype(types.element)
    spans: list[int] = []
    used = second is not None and second_strides is not None and problem.rows * problem.length > 0
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
    )


def _facts(context: Context) -> DeviceFacts:
    device = context.device
    return DeviceFacts(
        compute_capability=device.compute_capability,
        multiprocessors=context.multiprocessor_count,
        clusters=device.supports_clusters,
        cooperative=device.supports_cooperative_launch,
    )


def map_rows(
    problem: layout.Problem,
    types: Types,
    text: OperatorText,
    context: Context,
    *,
    strategy: str | None,
    cluster: int | None,
) -> Mapping:
    """Return the mapping of rows or columns; `strategy` and `cluster` force theirs."""
    facts = _facts(context)
    chosen = row_policy.choose_rows(
        problem,
        facts,
        itemsize=types.element.itemsize,
        accumulator_bytes=text.accumulator_bytes,
        heavy=text.heavy,
        two_arrays=text.two_arrays,
        strategy=strategy,
        cluster=cluster,
    )
    workspace_bytes = chosen.workspace_bytes(problem.rows, text.accumulator_bytes)
    if problem.rows == 0:
        return Mapping(chosen, workspace_bytes, ())
    loaded = load_kernel(row_kernel_source(text, chosen), context.device.architecture)
    if chosen.cluster > policy.PORTABLE_CLUSTER:
        loaded.kernel.allow_non_portable_cluster(context.device)
    config = LaunchConfig(
        chosen.blocks,
        chosen.block_threads,
        cluster=chosen.cluster if chosen.cluster > 1 else None,
        programmatic_stream_serialization=facts.compute_capability >= (9, 0),
    )
    check_launch(loaded.kernel, config, context)
    return Mapping(chosen, workspace_bytes, (MappedKernel(loaded, config, chosen.parts),))


def map_whole(
    problem: layout.Problem,
    reduction: Reduction,
    types: Types,
    text: OperatorText,
    context: Context,
    *,
    strategy: str | None,
    cluster: int | None,
    block_threads: int | None,
) -> Mapping:
    """Return the mapping of a whole array; `strategy`, `cluster` and `block_threads` force theirs."""
    leaves = -(-problem.length // types.element.leaf)
    chosen = policy.choose(
        leaves,
        _facts(context),
        strategy=strategy,
        cluster=cluster,
        block_threads=block_threads,
        wide_accumulator=needs_many_registers(reduction, types),
        small_elements=types.element.itemsize <= 2,
    )
    sources = kernel_sources(text, chosen)
    kernels = tuple(load_kernel(source, context.device.architecture) for source in sources)
    configs = _whole_configs(chosen, kernels, context, context.device)
    first = chosen.partials if chosen.name == "tiles" else chosen.tiles_per_block
    launches = tuple(map(MappedKernel, kernels, configs, (first, chosen.partials)))  # the second is for a second pass
    return Mapping(chosen, policy.workspace_bytes(leaves, text.accumulator_bytes), launches)


def _whole_configs(
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
