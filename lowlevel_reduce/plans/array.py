"""A plan: one reduction problem on one context, mapped and compiled; bound to a stream it is one driver call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from lowlevel_reduce import layout
from lowlevel_reduce.arguments import integer
from lowlevel_reduce.arrays.allocator import Allocator
from lowlevel_reduce.driver import Buffer, Context, Kernel, LaunchConfig
from lowlevel_reduce.dtypes import VECTOR_BYTES
from lowlevel_reduce.operators import Reduction, Types
from lowlevel_reduce.plans.base import BasePlan
from lowlevel_reduce.plans.launch import BoundReduction
from lowlevel_reduce.plans.loading import load_beside
from lowlevel_reduce.plans.mapping import Mapping, extents_of, facts_of, map_request
from lowlevel_reduce.strategy.base import RowStrategy
from lowlevel_reduce.strategy.fields import shape_values, short_row_values
from lowlevel_reduce.strategy.joined_columns import groups_of_tiles, in_memory, parts_of_rows
from lowlevel_reduce.strategy.selection import Request, choices, request_of, select
from lowlevel_reduce.strategy.staged_rows import described
from lowlevel_reduce.strategy.whole import Strategy

__all__ = ["Plan", "default_strategy", "fields_of", "plan"]

_BY_LEAVES = "batch"
"""The strategy that takes rows of any length, wherever their elements lie."""


class Plan(BasePlan):
    """A reduction of arrays of one shape and type on one context. Make one with `plan`.

    A plan is immutable, and threads may share it. It keeps its kernels loaded until it is closed or garbage-collected.

    Attributes
    ----------
    op : str
        Name of the operator.
    reduction : Reduction
        The operator with its options applied.
    shape, result_shape : tuple of int
        The array's shape, and that of each result.
    dtype, result_dtype : numpy.dtype
        Types of the elements and of the results.
    second_dtype : numpy.dtype or None
        Type of the second array's elements, for operators that take one.
    accumulator : str
        Type of the accumulator.
    context : Context
        Where it runs.
    problem : Problem
        The rows that are reduced, and their layout in memory.
    strategy : Strategy or RowStrategy
        How the problem is mapped to the device.
    alignment : int
        Of what the array's address must be a multiple, in bytes: 16 if the plan was made with ``alignment=16`` and has
        no kernel for others, else 1.
    workspace_bytes : int
        Device memory that a bound launch needs besides inputs and results. For a whole contiguous array, 256 + s *
        ceil(leaves / 8) bytes, whatever the strategy: a leaf is 4 KiB of input, and s is 16 bytes for every 12 bytes of
        the accumulator, rounded up. So a workspace also fits every shorter problem. For rows and columns, 0 where each
        row has a block to itself, else what `RowStrategy.workspace_bytes` says.
    """

    def __init__(self, request: Request, context: Context, mapping: Mapping, *, aligned_only: bool = False) -> None:
        assumes = aligned_only and any(kernel.twin is not None for kernel in mapping.kernels)
        self.alignment = VECTOR_BYTES if assumes else 1
        super().__init__(
            reduction=request.reduction,
            types=request.types,
            result_shape=request.problem.result_shape,
            extents=extents_of(request)._replace(aligned_only=assumes),
            context=context,
            kernels=mapping.kernels,
            workspace_bytes=mapping.workspace_bytes,
            fields=mapping.strategy.argument_kind,
        )
        self.shape = request.shape
        self.problem = request.problem
        self.second_dtype = request.reduction.second_dtype(request.types.element)
        self.accumulator = request.types.accumulator
        self.strategy = mapping.strategy
        self._request = request
        self._by_leaves: Plan | None = None
        if self._is_joined:  # so that the workspace is enough for either way
            other = select(request, facts_of(context), strategy=_BY_LEAVES)
            self.workspace_bytes = max(self.workspace_bytes, other.workspace_bytes)

    def bind(
        self,
        stream: Any,
        workspace: Buffer | None = None,
        *,
        length: int | None = None,
        initial: Any = None,
        allocator: Allocator | None = None,
    ) -> BoundReduction:
        """Bind the plan to a stream. Everything is checked, built and allocated here, so that a call only launches.

        Parameters
        ----------
        stream : Stream or object with ``__cuda_stream__``
            Where it will run; of this plan's context.
        workspace : Buffer, optional
            Device memory of `workspace_bytes` or more, aligned to 16 bytes, that only this bound launch uses until its
            last launch has run. `bind` clears the first `workspace_bytes` of it in the stream's order. Without one, the
            memory is allocated here and belongs to the bound launch.
        length : int, optional
            Device address of a uint64, aligned to 8 bytes, that holds the number of elements of each row. It is read
            when a launch runs; a value above the length in the plan's shape counts as that length. Without it, rows
            have the length in the plan's shape.
        initial : scalar, optional
            Start value of the reduction; required if the plan was made with ``initial=True``, refused otherwise.
        allocator : Allocator, optional
            Supplies the workspace, instead of the driver; it is given back when the bound launch is closed.

        Raises
        ------
        ValueError
            If the plan, the stream or the workspace is closed; if the stream is of another context; if the memory of
            the workspace or the length is too small, misaligned or not of this context; if the initial value is missing
            or not expected.
        """
        if length is not None and self._is_joined:
            return self._of_any_length()._bind(stream, workspace, length, initial, allocator)
        return self._bind(stream, workspace, length, initial, allocator)

    @property
    def _is_joined(self) -> bool:
        """Whether parts of rows are reduced as columns, which goes with the length in the shape alone."""
        return isinstance(self.strategy, RowStrategy) and self.strategy.joined > 1

    def _of_any_length(self) -> Plan:
        """Return a plan of the same that goes by leaves, made when it is first needed; raises what making it raises."""
        self._open_kernels()
        if self._by_leaves is None:
            mapping = map_request(self._request, self.context, strategy=_BY_LEAVES)
            self._by_leaves = Plan(self._request, self.context, mapping)
        return self._by_leaves

    def close(self) -> None:
        """Drop the kernels; existing bound launches keep theirs. A second call does nothing."""
        super().close()
        self._by_leaves = None

    @property
    def _partials(self) -> int:
        return self.strategy.partials

    def _fields(self, length: int, count: int, initial: tuple[int, int]) -> tuple[int, ...]:
        return fields_of(self.problem, self.strategy, self.reduction, self.types, length, count, initial)

    @property
    def launches(self) -> tuple[tuple[Kernel, LaunchConfig], ...]:
        """The kernels in launch order, with configurations: one, two for `two_pass`, none if there are no results."""
        return tuple((entry.loaded.kernel, entry.config) for entry in self._open_kernels())

    def describe(self) -> str:
        """Return a few lines that say what will be launched: problem, strategy, workspace, and resources by kernel."""
        problem, chosen = self.problem, self.strategy
        lines = [
            f"{self.op} of {self.shape} {self.dtype} in {self.accumulator} to {self.result_shape} {self.result_dtype} "
            f"on {self.context.device.name}",
            f"{problem.rows} rows of {problem.length} elements ({problem.kind}), strategy {chosen.name}: "
            f"{_shared_out(chosen)}, workspace {self.workspace_bytes} bytes",
        ]
        for entry in self._kernels or ():
            config, use = entry.config, entry.loaded.resources
            programmatic = ", may start before its predecessor ends" if config.programmatic_stream_serialization else ""
            cluster = f" in clusters of {config.cluster_blocks}" if config.cluster else ""
            resources = f", {use.registers} registers, {use.shared_bytes} bytes of shared memory" if use else ""
            lines.append(
                f"{entry.loaded.kernel.name}: {config.grid_blocks} blocks{cluster} of {config.block_threads} threads"
                f"{resources}{programmatic}"
            )
        if self.alignment > 1:
            lines.append(f"for arrays that begin at multiples of {self.alignment} bytes alone: others are refused")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Plan {self.op} {self.shape} {self.dtype} {self.strategy.name}{self._state}>"


def fields_of(
    problem: layout.Problem,
    chosen: Strategy | RowStrategy,
    reduction: Reduction,
    types: Types,
    length: int,
    count: int,
    initial: tuple[int, int],
) -> tuple[int, ...]:
    """Return the fields after the workspace of a kernel's argument; `length` is the address of a length, or 0."""
    fields = (length, problem.length, problem.rows, count, *initial)
    if isinstance(chosen, Strategy):
        return fields
    if chosen.joined > 1 and (parts := parts_of_rows(problem, types.element.itemsize)) is not None:
        fields = (length, parts[0].length, problem.rows, count, *initial)
        return (*fields, *shape_values(parts[0], chosen.joined, chosen.run, chosen.folders))
    if chosen.name == "columns":
        lying = in_memory(problem, types.element.itemsize)
        results = () if lying is problem else problem.kept
        return (*fields, *shape_values(lying, folders=chosen.folders, results=results))
    if chosen.name != "short_rows":
        in_order = chosen.name != "batch" or chosen.cluster > 1
        run = (
            (chosen.staged or 1) if in_order or chosen.staged else groups_of_tiles(problem, problem.rows * chosen.parts)
        )
        return (*fields, *shape_values(problem, run=run, folders=chosen.folders))
    # The pivot of chunks is no second array.
    second = reduction.second_dtype(types.element) if reduction.two_arrays else None
    itemsizes = types.element.itemsize, 0 if second is None else second.itemsize
    return (*fields, *shape_values(problem), *short_row_values(problem, chosen, *itemsizes))


def _shared_out(chosen: Strategy | RowStrategy) -> str:
    if isinstance(chosen, Strategy):
        return f"{chosen.tiles} tiles of {chosen.warps} leaves (4 KiB each)"
    if chosen.staged:
        return described(chosen.staged)
    return f"{chosen.parts} blocks share a row" if chosen.parts > 1 else "every row in one block"


def plan(
    op: str | Reduction = "sum",
    *,
    shape: int | Sequence[int],
    dtype: Any,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    strides_bytes: Sequence[int] | None = None,
    second_strides_bytes: Sequence[int] | None = None,
    accumulate: str | None = None,
    result_dtype: Any = None,
    where: bool = False,
    initial: bool = False,
    context: Context | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
    block_threads: int | None = None,
    alignment: int | None = None,
    **options: Any,
) -> Plan:
    """Map a reduction of arrays of one shape over some of their axes to kernels, and compile these.

    Parameters
    ----------
    op : str or Operator
        The operator, or its name.
    shape : int or sequence of int
        Shape of the array.
    dtype : dtype
        Type of the elements.
    axis, keepdims, strides_bytes, second_strides_bytes
        As for `layout.problem_of`. By default all axes of a C-contiguous array, and a C-contiguous second array.
    accumulate : str, optional
        The accumulator, as for `lowlevel_reduce.tree.reduce`.
    result_dtype : dtype, optional
        Type of the results; by default what NumPy's function gives.
    where : bool
        Whether the plan takes a mask, a second array of bool, of the elements that take part.
    initial : bool
        Whether `Plan.bind` will be given a start value.
    context : Context, optional
        Where; by default the current context, else the primary one of device 0.
    strategy : str, optional
        For a whole contiguous array: "block", "cluster", "tiles", "two_pass" or "cooperative", else "short_rows",
        "rows", "batch", "columns" or "elements". By default what is fastest, or, for whole arrays, what the environment
        variable LOWLEVEL_REDUCE_STRATEGY names. All strategies give the same bits.
    cluster : int, optional
        Blocks in a cluster, for "cluster", "tiles" and "batch": 1, 2, 4, 8 or 16.
    block_threads : int, optional
        Threads in a block: 256, 512 or 1024 for "tiles" and "two_pass", 256 or 512 for "cooperative", 32 to 512 for
        "block" and "cluster".
    alignment : int, optional
        What the plan's launches may assume of addresses. By default nothing: the plan has kernels for arrays that begin
        at multiples of 16 bytes, and others for arrays at any address. With 16 it has the former alone, where there
        are two: half of the compilation, and launches refuse other addresses, as `BoundReduction.check` does.
    **options
        `nan`, `ddof`, `last`, `map`: as for `lowlevel_reduce.reduce`.

    Raises
    ------
    TypeError, ValueError
        If shape, axes, dtype, options, strategy, cluster, block or alignment do not make sense, or rows are empty and
        the operator has no result for empty rows.
    UnsupportedError
        If the operator does not take the type, or the device lacks what the strategy needs.
    CompileError, NoCompilerError, NoDriverError, CacheError
        If the kernel cannot be compiled, run or cached.
    """
    shape = layout.lengths_of(shape)
    strategy, cluster, block_threads = choices(strategy, cluster, block_threads)
    request = request_of(
        op,
        shape=shape,
        dtype=dtype,
        axis=axis,
        keepdims=keepdims,
        strides_bytes=strides_bytes,
        second_strides_bytes=second_strides_bytes,
        accumulate=accumulate,
        result_dtype=result_dtype,
        where=where,
        initial=initial,
        **options,
    )
    aligned_only = _assumes_alignment(alignment)
    context = Context.of(context)
    waits: list[Callable[[], None]] = []
    mapping = map_request(
        request,
        context,
        strategy=strategy or default_strategy(request),
        cluster=cluster,
        block_threads=block_threads,
        beside=None if aligned_only else lambda twin: waits.append(load_beside(twin, context.device.architecture)),
    )
    for wait in waits:
        wait()
    made = Plan(request, context, mapping, aligned_only=aligned_only)
    made.load_twins()
    return made


def _assumes_alignment(alignment: Any) -> bool:
    """Return whether a plan is for arrays that begin at multiples of 16 bytes alone; raises TypeError or ValueError."""
    if alignment is None:
        return False
    if integer(alignment, "alignment is None or 16") != VECTOR_BYTES:
        raise ValueError(f"alignment is None, for arrays at any address, or {VECTOR_BYTES} bytes, not {alignment}")
    return True


def default_strategy(request: Request) -> str | None:
    """Return the strategy that the environment names, which goes with whole arrays alone; None if it names none."""
    return os.environ.get("LOWLEVEL_REDUCE_STRATEGY") or None if request.problem.kind == "whole" else None
