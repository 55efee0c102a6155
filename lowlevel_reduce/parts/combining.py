"""The plan that folds the partials of an array's chunks, and the check that an operator can be divided into chunks."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from lowlevel_reduce import operators
from lowlevel_reduce.driver import Context, LaunchConfig
from lowlevel_reduce.driver.checks import check_launch
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.layout import MAX_BYTES
from lowlevel_reduce.operators import Reduction, Types
from lowlevel_reduce.operators.adapters import about_given, about_second, rooted
from lowlevel_reduce.operators.quoting import uses
from lowlevel_reduce.parts.chunks import check_chunk, check_length
from lowlevel_reduce.plans.base import BasePlan
from lowlevel_reduce.plans.launch import Extents
from lowlevel_reduce.plans.loading import load_kernel
from lowlevel_reduce.plans.mapping import MappedKernel
from lowlevel_reduce.strategy.selection import operator_text
from lowlevel_reduce.strategy.stubs import partials_kernel_source

__all__ = ["PARTIAL_DTYPE", "CombinePlan", "combine_plan", "divided", "rooted_for", "rooted_of"]

PARTIAL_DTYPE = np.dtype(np.uint32)
"""Accumulators are passed on as words of this type, which any library can gather."""


class CombinePlan(BasePlan):
    """The fold of the partials of an array's chunks on one context. Make one with `combine_plan`.

    Attributes
    ----------
    op : str
        Name of the operator.
    length, chunk, chunks : int
        Elements of the whole array and of a chunk, and the number of chunks.
    words : int
        How many uint32 a partial has.
    takes_first : bool
        Whether a launch also takes the address of the whole array's first element, as for var, std and mean_var.
    dtype, result_dtype : numpy.dtype
        Types of the array's elements and of the result.
    context : Context
        Where it runs.
    workspace_bytes : int
        0.

    Notes
    -----
    Bound to a stream, call ``launch(partials, result)`` with device addresses. The partials are a contiguous array of
    uint32 of shape (`chunks`, `words`), at an address aligned to 4 bytes. The result's address must be a multiple of
    its size. If the plan `takes_first`, the address of the whole array's first element is a third argument.
    """

    def __init__(
        self, reduction: Reduction, types: Types, length: int, chunk: int, context: Context, kernel: MappedKernel
    ) -> None:
        self.length = length
        self.chunk = chunk
        self.chunks = -(-length // chunk)
        self.words = reduction.size(types) // PARTIAL_DTYPE.itemsize
        self.takes_first = reduction.second == "first"
        itemsize = types.result_dtype.itemsize
        super().__init__(
            reduction=reduction,
            types=types,
            result_shape=(),
            extents=Extents(
                low=0,
                high=self.chunks * self.partial_bytes,
                result_bytes=reduction.results * itemsize,
                result_alignment=itemsize,
                alignment=PARTIAL_DTYPE.itemsize,
                has_second=self.takes_first,
                second_high=types.element.itemsize if self.takes_first and length else 0,
            ),
            context=context,
            kernels=(kernel,),
            workspace_bytes=0,
            fields="partials",
        )

    @property
    def partial_bytes(self) -> int:
        """Bytes of one partial."""
        return self.words * PARTIAL_DTYPE.itemsize

    @property
    def _partials(self) -> int:
        return 0  # a launch leaves none in a workspace

    def _fields(self, length: int, count: int, initial: tuple[int, int]) -> tuple[int, ...]:
        # A chunk may be longer than any array. Then it is the only one, and its field is read for the others alone.
        return (length, self.length, 1, count, *initial, min(self.chunk, MAX_BYTES))

    def __repr__(self) -> str:
        return f"<CombinePlan {self.op} of {self.chunks} chunks of {self.length} {self.dtype}>"


def combine_plan(
    op: Any = "sum",
    *,
    length: int,
    chunk: int,
    dtype: Any,
    accumulate: str | None = None,
    result_dtype: Any = None,
    where: bool = False,
    initial: bool = False,
    context: Context | None = None,
    **options: Any,
) -> CombinePlan:
    """Compile the fold of the partials of an array's chunks, for `partials` of all shards in their order.

    Parameters
    ----------
    op : str or Operator
        The operator, or its name; the same as for `partials`.
    length, chunk : int
        Elements of the whole array, and of a chunk.
    dtype : dtype
        Type of the array's elements, not of the partials.
    where : bool
        Whether the partials were made with a mask.
    accumulate, result_dtype, initial, context, **options
        As for `lowlevel_reduce.plan`.

    Returns
    -------
    CombinePlan
        Bind it to a stream of its context to launch it.

    Raises
    ------
    TypeError, ValueError
        If a size, type or option is invalid, or if there are no elements and the operator has no result for that.
    UnsupportedError
        If the operator cannot be divided into chunks, or cannot reduce the type with these options.
    CompileError, NoCompilerError, NoDriverError, CacheError
        If the kernel cannot be compiled, run or cached.
    """
    element = element_type(dtype)
    length, chunk = check_length(length, element), check_chunk(chunk, element)
    reduction = divided(op, where=where, initial=initial, **options)
    types = reduction.types(element, accumulate, result_dtype)
    if length == 0 and not reduction.has_initial:
        reduction.empty_results(types)  # raises where there is none
    context = Context.of(context)
    source, threads = partials_kernel_source(operator_text(reduction, types))
    loaded = load_kernel(source, context.device.architecture)
    programmatic = context.device.compute_capability >= (9, 0)
    config = LaunchConfig(1, threads, programmatic_stream_serialization=programmatic)
    check_launch(loaded.kernel, config, context)
    kernel = MappedKernel(loaded, config, -(-length // chunk))
    return CombinePlan(reduction, types, length, chunk, context, kernel)


def divided(op: Any, *, map: Any = None, **options: Any) -> Reduction:
    """Return an operator with its options applied, if its result can be computed from the partials of chunks.

    The pivot of var, std and mean_var is then taken from an element that is given separately, because not every chunk
    contains the array's first.

    Raises
    ------
    UnsupportedError
        If a user's map uses an element's index, which a chunk does not know.
    """
    reduction = operators.resolve(op, map=map, **options)
    source = map if isinstance(map, str) else getattr(map, "source", "")
    if (reduction.indexed and not isinstance(op, str)) or uses(source, "i"):
        raise UnsupportedError(f"this {reduction.name} uses an element's index, which a chunk does not know")
    return about_given(reduction) if reduction.pivot is not None else reduction


def rooted_for(op: Any, dtype: Any, *, rows: int, where: bool, accumulate: str | None, **options: Any) -> Reduction:
    """Return the operator whose results are chunks' accumulators.

    Where it has a pivot, it takes that as the only element of a second array or, of several rows, as the second array's
    elements, which are the same all along a row.
    """
    # An operator that has no result for no elements takes a mask only with an initial value, which here goes to the
    # fold of the partials.
    has_none = where and isinstance(op, str) and op in operators.OPERATORS and operators.OPERATORS[op].empty is None
    reduction = divided(op, where=where, initial=has_none, **options)
    if reduction.second == "first" and rows != 1:
        reduction = about_second(operators.resolve(op, where=where, **options))
    return rooted(reduction, reduction.types(element_type(dtype), accumulate))


@functools.lru_cache(maxsize=256)
def rooted_of(
    op: Any, dtype: np.dtype[Any], where: bool, accumulate: str | None, options: tuple[tuple[str, Any], ...]
) -> Reduction:
    """Return that of one row; equal arguments give the same object, as keys need."""
    return rooted_for(op, dtype, rows=1, where=where, accumulate=accumulate, **dict(options))
