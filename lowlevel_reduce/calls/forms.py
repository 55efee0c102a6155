"""The form of a call: all that calls of one operator, options, axes and types have in common in a place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce import layout
from lowlevel_reduce.calls.options import STRATEGY_VARIABLE
from lowlevel_reduce.calls.prepared import PlacedKernel, Prepared, Step
from lowlevel_reduce.dtypes import VECTOR_BYTES
from lowlevel_reduce.operators import result_tuple
from lowlevel_reduce.plans.array import Plan, fields_of
from lowlevel_reduce.plans.launch import Extents
from lowlevel_reduce.plans.mapping import extents, kernels_of, map_request, second_vector_bytes
from lowlevel_reduce.strategy.fields import signature
from lowlevel_reduce.strategy.selection import check_length, chosen_for, request_of, resolved, sources_of
from lowlevel_reduce.strategy.selection import workspace_bytes as workspace_bytes_of

if TYPE_CHECKING:
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.operators.base import Reduction
    from lowlevel_reduce.strategy.base import RowStrategy
    from lowlevel_reduce.strategy.whole import Strategy

__all__ = ["Form"]


class Form:
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
    """

    __slots__ = (
        *("_asked", "_kernels", "_masks", "_of", "_of_whole", "_op", "_place", "_strategy"),
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
        self._op, self._place = op, place
        self._strategy, self._of_whole = strategy, os.environ.get(STRATEGY_VARIABLE)
        self._asked = {"dtype": dtype, "axis": axis, "keepdims": keepdims, **options}
        self._of = of = resolved(op, dtype=dtype, **options)
        self.results, self.result_dtype = of.reduction.results, of.types.result_dtype
        expected = of.reduction.second_dtype(of.types.element)
        _check_second(of.reduction, expected, second_dtype)
        self._masks = VECTOR_BYTES - 1, second_vector_bytes(expected, of.itemsize) - 1, 0, 0
        self._kernels: dict[tuple[Any, ...], PlacedKernel] = {}

    @property
    def result_tuple(self) -> Any:
        """The type of the operator's several results, a named tuple."""
        reduction = self._of.reduction
        return result_tuple(reduction.name, reduction.result_names)

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
        of, place = self._of, self._place
        if second_strides_bytes is None and of.second_itemsize:
            second_strides_bytes = layout.contiguous_strides(shape, of.second_itemsize)
        problem = layout.problem_of(
            shape,
            of.itemsize,
            axis=self._asked["axis"],
            keepdims=self._asked["keepdims"],
            strides_bytes=strides_bytes,
            second_strides_bytes=second_strides_bytes,
            second_itemsize=of.second_itemsize,
        )
        forced = self._strategy or (self._of_whole if problem.kind == "whole" else None)
        if forced or not problem.rows:
            return self._planned(shape, strides_bytes, second_strides_bytes, forced, initial)
        check_length(problem.length, of)
        chosen = chosen_for(problem, of, place.facts)
        kernel = self._kernel(chosen)
        words = of.reduction.constants if initial is None else of.reduction.initial_words(initial, of.types)
        fields = fields_of(problem, chosen, of.reduction, of.types, 0, chosen.counts[0], words)

        def touched() -> Extents:
            return extents(of.reduction, of.types, problem, shape, second_strides_bytes)

        return Prepared(
            self,
            place,
            problem.result_shape,
            (Step(kernel, chosen.blocks or kernel.entry.config.grid_blocks, fields),),
            touched,
            masks=self._masks if kernel.entry.twin is not None else (0, 0, 0, 0),
            workspace_bytes=workspace_bytes_of(problem, of, chosen) if chosen.partials else 0,
        )

    def _kernel(self, chosen: Strategy | RowStrategy) -> PlacedKernel:
        """Return the only kernel of a strategy, in blocks and clusters of its size, for any grid."""
        like = chosen.like
        found = self._kernels.get(like)
        if found is None:
            of, place = self._of, self._place
            (entry,) = kernels_of(of, chosen, sources_of(of.text, chosen), place.context, place.facts)
            found = self._kernels[like] = PlacedKernel(entry, signature(chosen.argument_kind), place)
        return found

    def _planned(
        self, shape: Any, strides_bytes: Any, second_strides_bytes: Any, strategy: str | None, initial: Any
    ) -> Prepared:
        """Return the same by a plan, for strategies of several kernels or of resident grids, and where none runs."""
        context = self._place.context
        request = request_of(
            self._op,
            shape=shape,
            strides_bytes=strides_bytes,
            second_strides_bytes=second_strides_bytes,
            **self._asked,
        )
        mapping = map_request(request, context, strategy=strategy, facts=self._place.facts)
        return Prepared.of_plan(Plan(request, context, mapping), self._place, initial)


def _check_second(reduction: Reduction, expected: np.dtype[Any] | None, given: np.dtype[Any] | None) -> None:
    name = reduction.name
    if (expected is None) != (given is None):
        raise TypeError(f"{name} takes {'one array' if given is not None else 'a second array'}")
    if given != expected:
        what = "a mask" if reduction.second == "mask" else "the second array"
        raise TypeError(f"{what} of {name} is of {expected}, not of {given}")
