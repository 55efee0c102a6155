"""Operators made from other operators: ``operator_adapters.cuh`` in NumPy. They nest in the order of this module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators.arithmetic import widen
from lowlevel_reduce.operators.base import Array, Fields, Items, Reduction, Row, TypeRule, Types
from lowlevel_reduce.operators.scalars import is_nan, number_of

__all__ = ["about_given", "about_second", "counted", "ignoring_nan", "masked", "rooted", "with_initial"]


def _around(name: str, inner: Reduction) -> Callable[[Types], str]:
    return lambda types: f"{name}<{inner.struct(types)}>"


def _skipped(reduction: Reduction, types: Types) -> tuple[Any, ...]:
    return (reduction.skipped or reduction.identity)(types)


def _leave_out(fields: Fields, left_out: Array, reduction: Reduction, types: Types) -> Fields:
    skipped = _skipped(reduction, types)
    return tuple(
        np.where(left_out, np.asarray(value).astype(field.dtype), field)
        for field, value in zip(fields, skipped, strict=True)
    )


def counted(inner: Reduction) -> Reduction:
    """Also count the elements that are not left out: `finish` gets their number as the row's length."""

    def map_(items: Items, types: Types) -> Fields:
        return *inner.map(items, types), np.ones(items.x.shape, np.uint64)

    def combine(a: Fields, b: Fields, types: Types) -> Fields:
        return *inner.combine(a[:-1], b[:-1], types), a[-1] + b[-1]

    def finish(fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
        return inner.finish(fields[:-1], row._replace(length=fields[-1]), types)

    return replace(
        inner,
        struct=_around("Counted", inner),
        identity=lambda types: (*inner.identity(types), 0),
        skipped=lambda types: (*_skipped(inner, types), 0),
        map=map_,
        combine=combine,
        finish=finish,
        size=lambda types: inner.size(types) + 8,
        is_heavy=lambda types: True,
        fits_full_block=lambda types: False,
    )


def ignoring_nan(inner: Reduction) -> Reduction:
    """Leave out the elements that are NaN; a complex element is NaN if either part is, an integer never.

    Minima and maxima also leave out an initial value that is NaN, like numpy.fmin and fmax; a sum starts from it, like
    numpy.nansum.
    """

    def map_(items: Items, types: Types) -> Fields:
        with np.errstate(invalid="ignore"):
            left_out = np.asarray(items.x != items.x)
        return _leave_out(inner.map(items, types), left_out, inner, types)

    def initial(value: Any, types: Types) -> tuple[Any, ...]:
        assert inner.initial is not None  # noqa: S101 - sum, min and max, the only ones with a NaN to ignore, take one
        fields = inner.initial(value, types)
        if inner.name == "sum" or not is_nan(number_of(value, "the initial value")):
            return fields
        return tuple(field.dtype.type(none) for field, none in zip(fields, inner.identity(types), strict=True))

    return replace(
        inner,
        label=f"{inner.label}_ignoring_nan",
        struct=_around("IgnoringNaN", inner),
        map=map_,
        initial=None if inner.initial is None else initial,
    )


def masked(inner: Reduction) -> Reduction:
    """Leave out the elements for which the second array is false; any nonzero byte is true."""

    def map_(items: Items, types: Types) -> Fields:
        assert items.y is not None  # noqa: S101 - whoever calls map has looked at `second`
        left_out = widen(items.y, "int32") == 0
        return _leave_out(inner.map(items.where(y=None), types), left_out, inner, types)

    return replace(inner, label=f"{inner.label}_where", struct=_around("Masked", inner), map=map_, second="mask")


def with_initial(inner: Reduction) -> Reduction:
    """Combine the row's initial value with the root of the tree."""

    def finish(fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
        assert row.initial is not None  # noqa: S101 - whoever calls finish has looked at `has_initial`
        start = tuple(
            np.full(np.shape(field), value, field.dtype) for field, value in zip(fields, row.initial, strict=True)
        )
        return inner.finish(inner.combine(start, fields, types), row, types)

    return replace(
        inner,
        label=f"{inner.label}_initial",
        struct=_around("WithInitial", inner),
        finish=finish,
        has_initial=True,
    )


def about_given(inner: Reduction) -> Reduction:
    """Make the pivot of one element that is given, the same for all rows, in place of each row's first."""
    inner = inner.in_parts or inner
    return replace(inner, label=f"{inner.label}_about", struct=_around("AboutGiven", inner), second="first")


def about_second(inner: Reduction) -> Reduction:
    """Make the pivot of what the second array has for an element: its row's first element, which lies elsewhere."""
    reduction = inner.in_parts or inner
    pivot_of = reduction.pivot
    assert pivot_of is not None  # noqa: S101 - only operators with a pivot are made so

    def map_(items: Items, types: Types) -> Fields:
        assert items.y is not None  # noqa: S101 - whoever calls map has looked at `second`
        return reduction.map(items.where(y=None, pivot=pivot_of(items.y, types)), types)

    return replace(
        reduction,
        label=f"{reduction.label}_about_second",
        struct=_around("AboutSecond", reduction),
        map=map_,
        second="operand",
        pivot=None,
    )


def rooted(inner: Reduction, types: Types) -> Reduction:
    """Return the root's accumulator, as uint32 words, instead of the results; for the given types only.

    In memory the words of an accumulator are adjacent, row after row. Only kernels implement this operator: in NumPy an
    accumulator consists of fields.
    """

    def finish(fields: Fields, row: Row, of: Types) -> tuple[Array, ...]:
        raise UnsupportedError(f"the accumulators of {inner.name} are for kernels to combine")

    return replace(
        inner,
        label=f"{inner.label}_root",
        struct=lambda of: f"Rooted<{inner.struct(types)}>",
        rule=lambda element: TypeRule((types.accumulator,), "uint32", ("uint32",)),
        finish=finish,
        empty=None,
        size=lambda of: inner.size(types),
        initial=None,
        has_initial=False,
        result_names=tuple(f"word{k}" for k in range(inner.size(types) // 4)),
        is_heavy=lambda of: inner.is_heavy(types),
        fits_full_block=lambda of: inner.fits_full_block(types),
        declaration=lambda of: inner.declaration(types),
    )
