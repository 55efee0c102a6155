"""The form of a call: all that calls of one operator, options, axes and types have in common in a place."""

from __future__ import annotations

import functools
import math
import os
from array import array
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lowlevel_reduce import layout
from lowlevel_reduce.calls.options import STRATEGY_VARIABLE
from lowlevel_reduce.calls.places import constants_of
from lowlevel_reduce.calls.prepared import Family, PlacedKernel, Prepared, Results, Step
from lowlevel_reduce.dtypes import LEAF_BYTES, VECTOR_BYTES
from lowlevel_reduce.operators import result_tuple
from lowlevel_reduce.plans.array import Plan, fields_of
from lowlevel_reduce.plans.mapping import extents, kernels_of, map_request, second_vector_bytes
from lowlevel_reduce.strategy.fields import matrix_words, put_matrix, put_whole, signature
from lowlevel_reduce.strategy.selection import check_length, request_of, resolved, sharers, sources_of, task_of, unasked
from lowlevel_reduce.strategy.whole import choose, workspace_bytes
from lowlevel_reduce.strategy.whole import unasked as unasked_whole

if TYPE_CHECKING:
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.operators.base import Reduction
    from lowlevel_reduce.plans.launch import Extents
    from lowlevel_reduce.strategy.base import RowStrategy
    from lowlevel_reduce.strategy.whole import Strategy

__all__ = ["Form"]


_NO_MASKS = (0, 0, 0, 0)

_SMALL_BYTES = 2
"""Elements of up to so many bytes are small to `strategy.whole.choose`."""

MAX_CHOICES = 256
"""The most choices that a form remembers; before it exceeds that, it forgets them all. Rows of one number, up to
sixteen leaves long, have 256."""

BOUNDS = {"_choices": MAX_CHOICES}
"""The most entries of what a form keeps, by its name: who watches for growth tells it from what has no bound."""


class Choice(NamedTuple):
    """What problems share whose launches differ in lengths and strides alone.

    Attributes
    ----------
    chosen : Strategy or RowStrategy
        The strategy.
    kernel : PlacedKernel
        Its kernel.
    blocks, count : int
        Blocks of the grid, and the argument's field `count`.
    workspace_bytes : int
        0 without a workspace.
    """

    chosen: Any
    kernel: PlacedKernel
    blocks: int
    count: int  # type: ignore[assignment] # nobody counts what this tuple holds
    workspace_bytes: int


class Form(Family):
    """A reduction in a place whose arrays lack their shape and strides.

    A shape is laid out, a strategy chosen for it, and of that follow a kernel, a number of blocks and an argument.
    Kernels are data to the form, as they are few: a shape that takes one which another took before asks nothing of the
    driver or of the compiler, and makes no plan.

    Attributes
    ----------
    results : int
        Number of results per row.
    result_dtype : numpy.dtype
        Their type.
    place : Place
        The place.
    """

    __slots__ = (
        *("_asked", "_axis", "_choices", "_is_plain", "_keepdims", "_kernels", "_masks", "_of", "_of_whole", "_op"),
        *("_results", "_strategy", "_tiles", "place"),
        *("result_dtype", "results"),
    )

    def __init__(
        self,
        op: Any,
        place: Place,
        dtype: np.dtype[Any],
        second_dtype: np.dtype[Any] | None,
        *,
        axis: Any,
        keepdims: bool,
        strategy: str | None,
        **options: Any,
    ) -> None:
        """Take the types of both arrays' elements, and the options of `lowlevel_reduce.plan`.

        Raises
        ------
        TypeError, ValueError, UnsupportedError
            As `lowlevel_reduce.plan`; or if the operator takes no second array, or lacks one, or one of another type.
        """
        self._op, self.place = op, place
        self._strategy, self._of_whole = strategy, os.environ.get(STRATEGY_VARIABLE)
        self._axis, self._keepdims = axis, keepdims
        self._asked = {"dtype": dtype, "axis": axis, "keepdims": keepdims, **options}
        self._of = of = resolved(op, dtype=dtype, **options)
        self.results, self.result_dtype = of.reduction.results, of.types.result_dtype
        is_one = type(axis) is int and -2 <= axis < 2
        is_plain = is_one or (axis is None and not self._of_whole)
        self._is_plain = is_plain and strategy is None and not of.second_itemsize
        expected = of.reduction.second_dtype(of.types.element)
        _check_second(of.reduction, expected, second_dtype)
        self._masks = VECTOR_BYTES - 1, second_vector_bytes(expected, of.itemsize) - 1, 0, 0
        self._kernels: dict[tuple[Any, ...], PlacedKernel] = {}
        self._choices: dict[Any, Choice] = {}
        self._tiles: tuple[list[float], list[int]] = [], []  # the rows of `unasked_whole`, and the leaves of a tile
        self._results = Results.of(self, ())  # of the last shape: arrays that grow along a reduced axis have one

    @property
    def result_tuple(self) -> Any:
        """The type of the operator's several results, a named tuple."""
        reduction = self._of.reduction
        return result_tuple(reduction.name, reduction.result_names)

    def laid(self, known: Any) -> tuple[Choice, Results, Callable[..., object], tuple[Any, ...]] | None:
        """Return what a single launch for an array needs whose choice others have made; see `Family.laid`."""
        of, axis, shape = self._of, self._axis, known[4]
        if not self._is_plain or of.reduction.least is not None:
            return None
        itemsize, initial = of.itemsize, of.reduction.constants
        unit = itemsize if len(known) > 5 and known[0].in_elements else 1
        if axis is None:
            length = math.prod(shape)
            if not 0 < length * itemsize <= layout.MAX_BYTES or (
                len(known) > 5 and known[5] != layout.contiguous_strides(shape, itemsize // unit)
            ):
                return None
            choice = self._whole(length)
            result_shape: tuple[int, ...] = (1,) * len(shape) if self._keepdims else ()
            put: Callable[..., object] = put_whole
            fields: tuple[Any, ...] = length, choice.count, initial
        elif len(shape) == 2:
            if len(known) > 5:
                outer, inner = known[5]
                strides = outer * unit, inner * unit
            else:
                strides = None
            matrix = layout.matrix_of(shape, itemsize, axis, strides)
            found = None if matrix is None else self._choices.get(sharers(*matrix, itemsize))
            if matrix is None or found is None or found.chosen.name == "short_rows":
                return None
            choice, rows = found, matrix[0]
            result_shape = (rows,) if not self._keepdims else (1, rows) if axis in (0, -2) else (rows, 1)
            put, fields = put_matrix, (matrix, itemsize, choice.count, initial, choice.chosen.folders)
        else:
            return None
        return choice, self._results_of(result_shape), put, fields

    def prepared(
        self,
        shape: tuple[int, ...],
        strides_bytes: tuple[int, ...] | None,
        second_strides_bytes: tuple[int, ...] | None,
        initial: Any,
    ) -> Prepared:
        """Return a launch for arrays of one shape and strides, which None stands for where they are contiguous.

        Raises
        ------
        TypeError, ValueError, UnsupportedError, and errors of the driver, the compiler and the cache
            As `lowlevel_reduce.plan`.
        """
        of = self._of
        reduction = of.reduction
        words = reduction.constants if initial is None else reduction.initial_words(initial, of.types)
        axis = self._axis
        if self._is_plain and axis is None:
            found = self._of_array(shape, strides_bytes, words)
            if found is not None:
                return found
        elif self._is_plain and len(shape) == 2:
            matrix = layout.matrix_of(shape, of.itemsize, axis, strides_bytes)
            if matrix is not None:
                rows = matrix[0]
                result_shape = (rows,) if not self._keepdims else (1, rows) if axis in (0, -2) else (rows, 1)
                return self._of_matrix(matrix, result_shape, words, shape, strides_bytes)
        if second_strides_bytes is None and of.second_itemsize:
            second_strides_bytes = layout.contiguous_strides(shape, of.second_itemsize)
        problem = self._problem(shape, strides_bytes, second_strides_bytes)
        is_whole = problem.kind == "whole"
        forced = self._strategy or (self._of_whole if is_whole else None)
        if forced or not problem.rows:
            return self._planned(shape, strides_bytes, second_strides_bytes, forced, initial)
        matrix = None if is_whole or of.second_itemsize else layout.matrix_in(problem)
        if matrix is not None:
            return self._of_matrix(matrix, problem.result_shape, words, shape, strides_bytes)
        check_length(problem.length, of)
        choice = self._whole(problem.length) if is_whole else self._rows(problem)
        fields = fields_of(problem, choice.chosen, reduction, of.types, 0, choice.count, words)
        return self._made(
            choice, problem.result_shape, constants_of(fields), shape, strides_bytes, second_strides_bytes
        )

    def _of_array(
        self, shape: tuple[int, ...], strides_bytes: tuple[int, ...] | None, words: tuple[int, int]
    ) -> Prepared | None:
        """Return a launch for all of a contiguous array; None for one that must be looked at."""
        itemsize, length = self._of.itemsize, math.prod(shape)
        if not 0 < length * itemsize <= layout.MAX_BYTES:
            return None
        if strides_bytes is not None and strides_bytes != layout.contiguous_strides(shape, itemsize):
            return None
        if self._of.reduction.least is not None:
            check_length(length, self._of)
        choice = self._whole(length)
        constants = array("Q", (0, length, 1, choice.count, *words))
        return self._made(choice, (1,) * len(shape) if self._keepdims else (), constants, shape, strides_bytes, None)

    def _of_matrix(
        self,
        matrix: tuple[int, int, int, int],
        result_shape: tuple[int, ...],
        words: tuple[int, int],
        shape: tuple[int, ...],
        strides_bytes: tuple[int, ...] | None,
    ) -> Prepared:
        """Return a launch for rows and their length that are one axis each."""
        of = self._of
        itemsize = of.itemsize
        rows, length, apart, step = matrix
        if of.reduction.least is not None:
            check_length(length, of)
        shared, problem = sharers(rows, length, apart, step, itemsize), None
        choice = self._choices.get(shared)
        if choice is None:
            problem = layout.matrix_problem(rows, length, apart, step, itemsize, result_shape)
            choice = self._rows(problem)
            if shared is not None:
                self._keep(shared, choice)
        chosen, count = choice.chosen, choice.count
        if problem is not None and chosen.name == "short_rows":
            constants = constants_of(fields_of(problem, chosen, of.reduction, of.types, 0, count, words))
        else:
            content = matrix_words(rows, length, apart, step, itemsize, count, words, chosen.folders)
            constants = array("Q", content)
        return self._made(choice, result_shape, constants, shape, strides_bytes, None)

    def _made(
        self,
        choice: Choice,
        result_shape: tuple[int, ...],
        constants: array[int],
        shape: tuple[int, ...],
        strides_bytes: tuple[int, ...] | None,
        second_strides_bytes: tuple[int, ...] | None,
    ) -> Prepared:
        kernel = choice.kernel
        return Prepared(
            self,
            self.place,
            self._results_of(result_shape),
            (Step(kernel, choice.blocks, constants),),
            functools.partial(self._touched, shape, strides_bytes, second_strides_bytes),
            self._masks if kernel.entry.twin is not None else _NO_MASKS,
            choice.workspace_bytes,
        )

    def _results_of(self, shape: tuple[int, ...]) -> Results:
        results = self._results
        if shape != results.shape:
            results = self._results = Results.of(self, shape)
        return results

    def _problem(self, shape: Any, strides_bytes: Any, second_strides_bytes: Any) -> layout.Problem:
        of = self._of
        return layout.problem_of(
            shape,
            of.itemsize,
            axis=self._axis,
            keepdims=self._keepdims,
            strides_bytes=strides_bytes,
            second_strides_bytes=second_strides_bytes,
            second_itemsize=of.second_itemsize,
        )

    def _touched(self, shape: Any, strides_bytes: Any, second_strides_bytes: Any) -> Extents:
        """Return which bytes a launch touches, where somebody asks: of most launches nobody does."""
        problem = self._problem(shape, strides_bytes, second_strides_bytes)
        return extents(self._of.reduction, self._of.types, problem, shape, second_strides_bytes)

    def _whole(self, length: int) -> Choice:
        """Return the choice for a whole array; all with as many tiles of the same size share one."""
        of = self._of
        leaves = -(-length * of.itemsize // LEAF_BYTES)
        bounds, sizes = self._tiles
        if not bounds:
            bounds, known = unasked_whole(self.place.facts, of.text.wide, of.itemsize <= _SMALL_BYTES)
            sizes = [warps for _, warps, *_ in known]
            self._tiles = bounds, sizes
        row = bisect_left(bounds, leaves)
        size = sizes[row]
        tiles = -(-leaves // size)
        found = self._choices.get((row, tiles))
        if found is None:
            chosen = choose(
                leaves, self.place.facts, wide_accumulator=of.text.wide, small_elements=of.itemsize <= _SMALL_BYTES
            )
            count, partials = chosen.counts
            room = workspace_bytes(tiles * size, of.text.accumulator_bytes) if partials else 0
            found = self._keep((row, tiles), Choice(chosen, self._kernel(chosen), chosen.blocks or 0, count, room))
        return found

    def _keep(self, shared: tuple[Any, ...], choice: Choice) -> Choice:
        if len(self._choices) >= MAX_CHOICES:
            self._choices.clear()
        self._choices[shared] = choice
        return choice

    def _rows(self, problem: layout.Problem) -> Choice:
        """Return the choice for rows or columns."""
        chosen = unasked(task_of(problem, self._of, self.place.facts))
        size = chosen.workspace_bytes(problem.rows, self._of.text.accumulator_bytes)
        return Choice(chosen, self._kernel(chosen), chosen.blocks, chosen.count, size)

    def _kernel(self, chosen: Strategy | RowStrategy) -> PlacedKernel:
        """Return the only kernel of a strategy, in blocks and clusters of its size, for any grid."""
        like = chosen.like
        found = self._kernels.get(like)
        if found is None:
            of, place = self._of, self.place
            (entry,) = kernels_of(of, chosen, sources_of(of.text, chosen), place.context, place.facts)
            found = self._kernels[like] = PlacedKernel(entry, signature(chosen.argument_kind), place)
        return found

    def _planned(
        self, shape: Any, strides_bytes: Any, second_strides_bytes: Any, strategy: str | None, initial: Any
    ) -> Prepared:
        """Return the same by a plan, for strategies of several kernels or of resident grids, and where none runs."""
        context = self.place.context
        request = request_of(
            self._op,
            shape=shape,
            strides_bytes=strides_bytes,
            second_strides_bytes=second_strides_bytes,
            **self._asked,
        )
        mapping = map_request(request, context, strategy=strategy, facts=self.place.facts)
        return Prepared.of_plan(Plan(request, context, mapping), self.place, initial)


def _check_second(reduction: Reduction, expected: np.dtype[Any] | None, given: np.dtype[Any] | None) -> None:
    name = reduction.name
    if (expected is None) != (given is None):
        raise TypeError(f"{name} takes {'one array' if given is not None else 'a second array'}")
    if given != expected:
        what = "a mask" if reduction.second == "mask" else "the second array"
        raise TypeError(f"{what} of {name} is of {expected}, not of {given}")
