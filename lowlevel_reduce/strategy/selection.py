"""From a caller's request to the kernels that serve it, without a device: the problem, its types, the strategy."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from lowlevel_reduce import layout, operators
from lowlevel_reduce.arguments import integer, shown
from lowlevel_reduce.dtypes import LANES, LEAF_BYTES, VECTOR_BYTES, element_type
from lowlevel_reduce.operators import Reduction, Types
from lowlevel_reduce.strategy import elements, rows, whole
from lowlevel_reduce.strategy.base import RowStrategy, Task
from lowlevel_reduce.strategy.joined_columns import are_columns
from lowlevel_reduce.strategy.staged_rows import staged_leaves
from lowlevel_reduce.strategy.stubs import KernelSource, OperatorText, kernel_sources, row_kernel_source
from lowlevel_reduce.strategy.whole import DeviceFacts, Strategy

__all__ = [
    "Request",
    "Resolved",
    "Selection",
    "check_length",
    "choices",
    "chosen_for",
    "needs_many_registers",
    "operator_text",
    "request_of",
    "resolved",
    "select",
    "sharers",
    "sources_of",
    "task_of",
    "unasked",
    "why",
    "workspace_bytes",
]

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
    of = resolved(op, dtype, accumulate, result_dtype, where, initial, **options)
    if second_strides_bytes is not None and not of.second_itemsize:
        raise TypeError(f"{of.reduction.name} takes one array, so there are no second_strides_bytes")
    if of.second_itemsize and second_strides_bytes is None:
        second_strides_bytes = layout.contiguous_strides(shape, of.second_itemsize)
    problem = layout.problem_of(
        shape,
        of.itemsize,
        axis=axis,
        keepdims=keepdims,
        strides_bytes=strides_bytes,
        second_strides_bytes=second_strides_bytes,
        second_itemsize=of.second_itemsize,
    )
    check_length(problem.length, of)
    return Request(of.reduction, of.types, shape, second_strides_bytes, problem, of.text)


def check_length(length: int, of: Resolved) -> None:
    """Warn of rows with too few elements for a divisor; raise ValueError for empty ones that have no result."""
    if of.reduction.least is not None:
        of.reduction.warn_of_too_few(length)
    if length == 0 and not of.reduction.has_initial:
        of.reduction.empty_results(of.types)  # raises where there is none


class Resolved(NamedTuple):
    """What requests of an operator and types have in common; `second_itemsize` is 0 without a second array."""

    reduction: Reduction
    types: Types
    second_itemsize: int
    itemsize: int
    text: OperatorText


def resolved(
    op: Any,
    dtype: Any,
    accumulate: Any = None,
    result_dtype: Any = None,
    where: Any = False,
    initial: Any = False,
    **options: Any,
) -> Resolved:
    """Return what `request_of` makes of its arguments besides shape, strides and axes; raises what that raises."""
    asked = (op, dtype, accumulate, result_dtype, where, initial)
    found = None
    with contextlib.suppress(TypeError):  # an argument is wrong, which is said below, or has no hash
        found = _resolved(*asked, **options)
    return _resolved.__wrapped__(*asked, **options) if found is None else found


@lru_cache(maxsize=_REMEMBERED, typed=True)  # typed: True, 1 and 1.0 are different options, though equal
def _resolved(
    op: str | Reduction, dtype: Any, accumulate: Any, result_dtype: Any, where: Any, initial: Any, **options: Any
) -> Resolved:
    element = element_type(dtype)
    reduction = operators.resolve(op, where=where, initial=initial, **options)
    types = reduction.types(element, accumulate, result_dtype)
    second = reduction.second_dtype(element) if reduction.two_arrays else None
    second_itemsize = 0 if second is None else second.itemsize
    return Resolved(reduction, types, second_itemsize, element.itemsize, operator_text(reduction, types))


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
    chosen = chosen_for(
        request.problem, request, facts, strategy=strategy, cluster=cluster, block_threads=block_threads
    )
    sources = sources_of(request.text, chosen) if request.problem.rows else ()
    return Selection(chosen, sources, workspace_bytes(request.problem, request, chosen))


def chosen_for(
    problem: layout.Problem,
    of: Resolved | Request,
    facts: DeviceFacts,
    *,
    strategy: str | None = None,
    cluster: int | None = None,
    block_threads: int | None = None,
) -> Strategy | RowStrategy:
    """Return how a problem of an operator and types runs on a device; the rest is as for `select`."""
    element = of.types.element
    if problem.kind == "whole":
        return whole.choose(
            -(-problem.length // element.leaf),
            facts,
            strategy=strategy,
            cluster=cluster,
            block_threads=block_threads,
            wide_accumulator=of.text.wide,
            small_elements=element.itemsize <= 2,
        )
    if block_threads is not None:
        raise ValueError("block_threads goes with the reduction of a whole contiguous array")
    task = task_of(problem, of, facts)
    if strategy is None and cluster is None:
        return unasked(task)
    return rows.choose_rows(task, strategy=strategy, cluster=cluster)


def task_of(problem: layout.Problem, of: Resolved | Request, facts: DeviceFacts) -> Task:
    """Return what the choice for rows and columns depends on."""
    text, itemsize = of.text, of.types.element.itemsize
    like_elements = of.reduction.results == 1 and of.types.result_dtype.itemsize == itemsize
    return Task(problem, facts, itemsize, text.accumulator_bytes, text.heavy, text.two_arrays, like_elements)


def unasked(task: Task) -> RowStrategy:
    """Return how rows or columns run on a device; what was chosen is remembered for others that it depends not on.

    Raises
    ------
    ValueError
        If the grid would be too large.
    """
    problem, _, itemsize, *_ = task
    short = problem.length * itemsize <= LEAF_BYTES or problem.kind == "strided"
    found = elements.faster_elements(task) if short else None
    if found is not None:
        return found
    if are_columns(problem, itemsize):  # `columns` and `joined_columns` remember the choices
        return rows.choose_rows(task)
    return _remembered_rows(task)


def sharers(rows: int, length: int, apart: int, step: int, itemsize: int) -> tuple[Any, ...] | None:
    """Return what is the same for matrices of which `unasked` makes one choice, on a device and for an operator.

    None stands for a choice of one's own. What is given is what `layout.matrix_of` returns. Lengths count by the loads
    of a warp for rows, and by leaves for columns; strides, as they are aligned.
    """
    size = length * itemsize
    if size <= LEAF_BYTES:  # by whose length it is decided whether a thread loads few elements
        return None
    if apart == itemsize:
        return "columns", rows, step % VECTOR_BYTES, -(-size // LEAF_BYTES)
    if step == itemsize:
        return "rows", rows, apart % VECTOR_BYTES, size % VECTOR_BYTES == 0, -(-size // (LANES * VECTOR_BYTES))
    return None


_MOST_CHOICES = 256
"""So many choices for rows are remembered; the oldest is forgotten first. Rows of one number, up to eight leaves long,
have 128."""

_chosen: OrderedDict[Any, RowStrategy] = OrderedDict()

BOUNDS = {"_chosen": _MOST_CHOICES}
"""The most entries of what is kept here, by its name: who watches for growth tells it from what has no bound."""


def _remembered_rows(of: Task) -> RowStrategy:
    """Return what `rows.choose_rows` does, by all that it depends on: lengths share that which take as many loads."""
    problem, vector = of.problem, VECTOR_BYTES // of.itemsize
    vectors = -(-problem.length // vector)
    levels = (vectors - 1).bit_length() if vectors <= LANES else 0
    key = (
        *of[1:], problem.kind, problem.rows, problem.aligned,
        -(-vectors // LANES), levels, rows.are_aligned(problem, vector), staged_leaves(of),
    )  # fmt: skip
    found = _chosen.get(key)
    if found is None:
        while len(_chosen) >= _MOST_CHOICES:
            _chosen.popitem(last=False)
        found = _chosen[key] = rows.choose_rows(of)
    return found


def sources_of(text: OperatorText, chosen: Strategy | RowStrategy) -> tuple[KernelSource, ...]:
    """Return the kernels of a strategy for an operator, in launch order."""
    return kernel_sources(text, chosen) if isinstance(chosen, Strategy) else (row_kernel_source(text, chosen),)


def workspace_bytes(problem: layout.Problem, of: Resolved | Request, chosen: Strategy | RowStrategy) -> int:
    """Return the size of the workspace that a strategy needs for a problem."""
    if isinstance(chosen, Strategy):
        return whole.workspace_bytes(-(-problem.length // of.types.element.leaf), of.text.accumulator_bytes)
    return chosen.workspace_bytes(problem.rows, of.text.accumulator_bytes)


def why(request: Request, facts: DeviceFacts) -> str:
    """Return in words why `select` takes the strategy that it takes unasked for a request on a device."""
    problem = request.problem
    if problem.kind == "whole":
        return whole.why(-(-problem.length // request.types.element.leaf), facts)
    return rows.why_rows(task_of(problem, request, facts))


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
        wide=needs_many_registers(reduction, types),
    )
