"""From what a caller asks for to the kernels that do it, without a device: the problem, its types, the strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lowlevel_reduce import layout, operators, policy, row_policy
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.kernels import KernelSource, OperatorText, kernel_sources, row_kernel_source
from lowlevel_reduce.operators import Reduction, Types
from lowlevel_reduce.policy import DeviceFacts, Strategy
from lowlevel_reduce.row_strategy import RowStrategy

__all__ = ["Request", "Selection", "needs_many_registers", "operator_text", "request_of", "select"]

_VERY_WIDE_BYTES = 16
"""Accumulators of more than this: a thread that folds them needs more registers than a full block leaves it. Of just
this, where elements of one or two bytes are so many that it holds a lot of accumulators at a time."""


class Request(NamedTuple):
    """A reduction of arrays of one shape over some of their axes.

    Attributes
    ----------
    reduction : Reduction
        The operator with its options decided.
    types : Types
        Those of elements, accumulator and results.
    shape : tuple of int
        The array's.
    second_strides : sequence of int or None
        The second array's, in bytes, for operators that have one.
    problem : Problem
        The rows and how they lie.
    text : OperatorText
        The operator in CUDA C++.
    """

    reduction: Reduction
    types: Types
    shape: tuple[int, ...]
    second_strides: Sequence[int] | None
    problem: layout.Problem
    text: OperatorText


class Selection(NamedTuple):
    """How a request runs on a device: strategy, kernels in launch order (none without results), workspace."""

    strategy: Strategy | RowStrategy
    sources: tuple[KernelSource, ...]
    workspace_bytes: int


def request_of(
    op: str | Reduction,
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
    **options: Any,
) -> Request:
    """Return what the arguments of `lowlevel_reduce.plan` ask for.

    Raises
    ------
    TypeError, ValueError
        If shape, axes, dtype or options make no sense, or rows have no elements and the operator has no result for
        that.
    UnsupportedError
        If the type cannot be reduced so.
    """
    shape = layout.lengths_of(shape)
    element = element_type(dtype)
    reduction = operators.resolve(op, where=where, initial=initial, **options)
    types = reduction.types(element, accumulate, result_dtype)
    second = reduction.second_dtype(element) if reduction.two_arrays else None
    second_itemsize = second.itemsize if second is not None else 0
    if second is None and second_strides_bytes is not None:
        raise TypeError(f"{reduction.name} takes one array, so there are no second_strides_bytes")
    if second is not None and second_strides_bytes is None:
        second_strides_bytes = layout.contiguous_strides(shape, second_itemsize)
    problem = layout.problem_of(
        shape,
        element.itemsize,
        axis=axis,
        keepdims=keepdims,
        strides_bytes=strides_bytes,
        second_strides_bytes=second_strides_bytes,
        second_itemsize=second_itemsize,
    )
    if problem.length == 0 and not reduction.has_initial:
        reduction.empty_results(types)  # raises where there is none
    return Request(reduction, types, shape, second_strides_bytes, problem, operator_text(reduction, types))


def select(
    request: Request,
    facts: DeviceFacts,
    *,
    strategy: str | None = None,
    cluster: int | None = None,
    block_threads: int | None = None,
) -> Selection:
    """Return how a request runs on a device; `strategy`, `cluster` and `block_threads` force theirs.

    Raises
    ------
    ValueError
        If strategy, cluster or block do not go with the problem, or block_threads is given for rows or columns.
    UnsupportedError
        If the device lacks what the strategy needs.
    """
    if request.problem.kind == "whole":
        return _select_whole(request, facts, strategy, cluster, block_threads)
    if block_threads is not None:
        raise ValueError("block_threads goes with the reduction of a whole contiguous array")
    return _select_rows(request, facts, strategy, cluster)


def _select_whole(
    request: Request, facts: DeviceFacts, strategy: str | None, cluster: int | None, block_threads: int | None
) -> Selection:
    element, text = request.types.element, request.text
    leaves = -(-request.problem.length // element.leaf)
    chosen = policy.choose(
        leaves,
        facts,
        strategy=strategy,
        cluster=cluster,
        block_threads=block_threads,
        wide_accumulator=needs_many_registers(request.reduction, request.types),
        small_elements=element.itemsize <= 2,
    )
    return Selection(chosen, kernel_sources(text, chosen), policy.workspace_bytes(leaves, text.accumulator_bytes))


def _select_rows(request: Request, facts: DeviceFacts, strategy: str | None, cluster: int | None) -> Selection:
    problem, text = request.problem, request.text
    chosen = row_policy.choose_rows(
        problem,
        facts,
        itemsize=request.types.element.itemsize,
        accumulator_bytes=text.accumulator_bytes,
        heavy=text.heavy,
        two_arrays=text.two_arrays,
        strategy=strategy,
        cluster=cluster,
    )
    sources = (row_kernel_source(text, chosen),) if problem.rows else ()
    return Selection(chosen, sources, chosen.workspace_bytes(problem.rows, text.accumulator_bytes))


def needs_many_registers(reduction: Reduction, types: Types) -> bool:
    """Say whether a thread that folds eight vectors at once needs more registers than a full block leaves it."""
    widest = _VERY_WIDE_BYTES - (types.element.itemsize <= 2)
    wide = reduction.is_heavy(types) or reduction.size(types) > widest
    return reduction.two_arrays or (wide and not reduction.fits_full_block(types))


def operator_text(reduction: Reduction, types: Types) -> OperatorText:
    """Return an operator as the kernels' stubs need it."""
    return OperatorText(
        label=f"{reduction.label}_{types.element.name}_{types.accumulator}_{types.result}",
        type=reduction.struct(types),
        accumulator_bytes=reduction.size(types),
        declaration=reduction.declaration(types),
        heavy=reduction.is_heavy(types) or reduction.two_arrays,
        two_arrays=reduction.two_arrays,
    )
