"""From a caller's request to the kernels that serve it, without a device: the problem, its types, the strategy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from lowlevel_reduce import layout, operators
from lowlevel_reduce.arguments import integer, shown
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.operators import Reduction, Types
from lowlevel_reduce.strategy import rows, whole
from lowlevel_reduce.strategy.base import RowStrategy
from lowlevel_reduce.strategy.stubs import KernelSource, OperatorText, kernel_sources, row_kernel_source
from lowlevel_reduce.strategy.whole import DeviceFacts, Strategy

__all__ = ["Request", "Selection", "choices", "needs_many_registers", "operator_text", "request_of", "select", "why"]

_VERY_WIDE_BYTES = 16
"""A thread that folds accumulators of more than this many bytes needs more registers than a full block leaves it. So
does one that folds accumulators of exactly this size if elements have one or two bytes: with so many elements to a
vector, it holds many accumulators at a time."""


_REMEMBERED = 256
"""For so many operators, with options and types, is what they resolve to remembered."""


class Request(NamedTuple):
    """A reduction of arrays of one shape over some of their axes.

    Attributes
    ----------
    reduction : Reduction
        The operator with its options applied.
    types : Types
        Types of the elements, the accumulator and the results.
    shape : tuple of int
        Shape of the array.
    second_strides : sequence of int or None
        Strides of the second array in bytes, for operators that take one.
    problem : Problem
        The rows and their layout.
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
    """How a request runs on a device: strategy, kernels in launch order (none if there are no results), workspace."""

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
    """Return the request that the arguments of `lowlevel_reduce.plan` describe.

    Raises
    ------
    TypeError, ValueError
        If shape, axes, dtype or options are invalid, or if rows have no elements and the operator has no result for
        that.
    UnsupportedError
        If the operator cannot reduce the type with these options.
    """
    shape = layout.lengths_of(shape)
    asked = (op, dtype, accumulate, result_dtype, where, initial)
    try:
        resolved = _resolved(*asked, **options)
    except TypeError:
        resolved = None  # an argument is wrong, which is said below, or has no hash, so that nothing is remembered
    if resolved is None:
        resolved = _resolved.__wrapped__(*asked, **options)
    reduction, types, second_itemsize, itemsize, text = resolved
    if second_strides_bytes is not None and not second_itemsize:
        raise TypeError(f"{reduction.name} takes one array, so there are no second_strides_bytes")
    if second_itemsize and second_strides_bytes is None:
        second_strides_bytes = layout.contiguous_strides(shape, second_itemsize)
    problem = layout.problem_of(
        shape,
        itemsize,
        axis=axis,
        keepdims=keepdims,
        strides_bytes=strides_bytes,
        second_strides_bytes=second_strides_bytes,
        second_itemsize=second_itemsize,
    )
    reduction.warn_of_too_few(problem.length)
    if problem.length == 0 and not reduction.has_initial:
        reduction.empty_results(types)  # raises where there is none
    return Request(reduction, types, shape, second_strides_bytes, problem, text)


class _Resolved(NamedTuple):
    """What requests of an operator and types have in common; `second_itemsize` is 0 without a second array."""

    reduction: Reduction
    types: Types
    second_itemsize: int
    itemsize: int
    text: OperatorText


@lru_cache(maxsize=_REMEMBERED, typed=True)  # typed: True, 1 and 1.0 are different options, though equal
def _resolved(
    op: str | Reduction, dtype: Any, accumulate: Any, result_dtype: Any, where: Any, initial: Any, **options: Any
) -> _Resolved:
    element = element_type(dtype)
    reduction = operators.resolve(op, where=where, initial=initial, **options)
    types = reduction.types(element, accumulate, result_dtype)
    second = reduction.second_dtype(element) if reduction.two_arrays else None
    second_itemsize = 0 if second is None else second.itemsize
    return _Resolved(reduction, types, second_itemsize, element.itemsize, operator_text(reduction, types))


def choices(strategy: Any, cluster: Any, block_threads: Any) -> tuple[str | None, int | None, int | None]:
    """Return the caller's choices for `select`, each None or of the right type; raises TypeError."""
    if strategy is not None and not isinstance(strategy, str):
        raise TypeError(f"a strategy is a name, not {shown(strategy)}")
    cluster = None if cluster is None else integer(cluster, "cluster is an integer")
    block_threads = None if block_threads is None else integer(block_threads, "block_threads is an integer")
    return strategy, cluster, block_threads


def select(
    request: Request,
    facts: DeviceFacts,
    *,
    strategy: str | None = None,
    cluster: int | None = None,
    block_threads: int | None = None,
) -> Selection:
    """Return how a request runs on a device; `strategy`, `cluster` and `block_threads` force those choices.

    Raises
    ------
    ValueError
        If strategy, cluster or block do not suit the problem, or `block_threads` is given for rows or columns.
    UnsupportedError
        If the device lacks what the strategy needs.
    """
    if request.problem.kind == "whole":
        return _select_whole(request, facts, strategy, cluster, block_threads)
    if block_threads is not None:
        raise ValueError("block_threads goes with the reduction of a whole contiguous array")
    return _select_rows(request, facts, strategy, cluster)


def why(request: Request, facts: DeviceFacts) -> str:
    """Return in words why `select` takes the strategy that it takes unasked for a request on a device."""
    problem, text = request.problem, request.text
    if problem.kind == "whole":
        return whole.why(-(-problem.length // request.types.element.leaf), facts)
    return rows.why_rows(
        problem,
        facts,
        itemsize=request.types.element.itemsize,
        accumulator_bytes=text.accumulator_bytes,
        heavy=text.heavy,
        two_arrays=text.two_arrays,
    )


def _select_whole(
    request: Request, facts: DeviceFacts, strategy: str | None, cluster: int | None, block_threads: int | None
) -> Selection:
    element, text = request.types.element, request.text
    leaves = -(-request.problem.length // element.leaf)
    chosen = whole.choose(
        leaves,
        facts,
        strategy=strategy,
        cluster=cluster,
        block_threads=block_threads,
        wide_accumulator=needs_many_registers(request.reduction, request.types),
        small_elements=element.itemsize <= 2,
    )
    return Selection(chosen, kernel_sources(text, chosen), whole.workspace_bytes(leaves, text.accumulator_bytes))


def _select_rows(request: Request, facts: DeviceFacts, strategy: str | None, cluster: int | None) -> Selection:
    problem, text = request.problem, request.text
    chosen = rows.choose_rows(
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
    """Tell whether a thread that folds eight vectors at once needs more registers than a full block leaves it."""
    widest = _VERY_WIDE_BYTES - (types.element.itemsize <= 2)
    wide = reduction.is_heavy(types) or reduction.size(types) > widest
    return reduction.two_arrays or (wide and not reduction.fits_full_block(types))


def operator_text(reduction: Reduction, types: Types) -> OperatorText:
    """Return an operator in the form that the kernels' stubs need."""
    return OperatorText(
        label=f"{reduction.label}_{types.element.name}_{types.accumulator}_{types.result}",
        type=reduction.struct(types),
        accumulator_bytes=reduction.size(types),
        declaration=reduction.declaration(types),
        heavy=reduction.is_heavy(types) or reduction.two_arrays,
        two_arrays=reduction.two_arrays,
    )
