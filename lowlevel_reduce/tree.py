"""The one tree, in NumPy: the reference that every kernel is tested against, bit for bit.

Element ``i`` of a row of ``n`` is in leaf ``i // L``, step ``i % L // (32 V)``, lane ``i % (32 V) // V``, slot
``i % V``, where ``V`` is the number of elements in 16 bytes and ``L = 256 V``. Each level is folded as a balanced tree,
adjacent pairs first: slots, then the 8 steps, then the 32 lanes, then the leaves. Elements past ``n`` are absent, and
combining with an absent operand leaves the other one unchanged. The result depends on the row's values and their order,
and on nothing else.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.arguments import chosen_axes, not_masked
from lowlevel_reduce.dtypes import LANES, STEPS, element_type
from lowlevel_reduce.operators import (
    Array,
    ElementMap,
    Fields,
    Items,
    Operator,
    Reduction,
    Row,
    Types,
    resolve,
    result_tuple,
)

__all__ = ["reduce"]

LEAVES_AT_ONCE = 4096
"""Leaves folded at a time, a power of two: 16 MiB of elements, so that any length and any batch needs little memory."""


def reduce(
    array: npt.ArrayLike,
    op: str | Operator = "sum",
    accumulate: str | None = None,
    *,
    dtype: npt.DTypeLike | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    nan: str = "propagate",
    where: npt.ArrayLike | None = None,
    initial: Any = None,
    second: npt.ArrayLike | None = None,
    ddof: float = 0,
    last: bool = False,
    map: str | ElementMap | None = None,
) -> Any:
    """Reduce an array over some of its axes by the one tree, in NumPy on the host.

    Each row, the elements of one result, is taken in C order of the reduced axes.

    Parameters
    ----------
    array : array_like
        An array of any shape, strides and alignment; its type is float8, float16, bfloat16 (ml_dtypes), float32,
        float64, integer, bool or complex.
    op : str or Operator
        Name of the operator, or a user's own that has NumPy functions.
    accumulate : str, optional
        The accumulator: ``"float32"``, ``"float64"`` or ``"compensated"`` for sums of floats (default: float32 for 8-
        and 16-bit types, else float64); for an integer type its own name, for arithmetic modulo 2**bits (default: 64
        bits).
    dtype : dtype, optional
        Type of the results; by default as in NumPy, and float32 for a sum of float8.
    axis : int or sequence of int, optional
        The axes to reduce; by default all. Negative ones count from the end.
    keepdims : bool
        Whether the reduced axes stay, with length 1.
    nan : {"propagate", "ignore"}
        Whether NaN elements propagate to the result, or are left out.
    where : array_like of bool, optional
        Which elements to reduce; broadcast to the array's shape.
    initial : number, optional
        One more value for each row.
    second : array_like, optional
        The second array of an operator or map of two; broadcast to the array's shape, and of its type.
    ddof : float
        Subtracted from the divisor of var, std and mean_var: any real number from 0 on.
    last : bool
        Whether argmin and argmax return the last of several equal extremes instead of the first.
    map : str or ElementMap, optional
        A function of the elements that is reduced in their place.

    Returns
    -------
    numpy.ndarray or named tuple of numpy.ndarray
        The result or results; their shape is that of the kept axes. A NaN has numpy.nan's bits, whichever operand it
        came from.

    Raises
    ------
    UnsupportedError
        If the operator, the array's type, the accumulator or the result type is not among those above, or the user's
        operator or map has no NumPy functions.
    TypeError, ValueError
        If an option is invalid for the operator, an axis or shape does not fit, or a row has no elements and the
        operator has no result for that.
    """
    array = np.asarray(not_masked(array))
    operation = resolve(
        op, nan=nan, where=where is not None, initial=initial is not None, ddof=ddof, last=last, map=map
    )
    types = operation.types(element_type(array.dtype), accumulate, dtype)
    other = _second_array(operation, array, second if where is None else where, given=second is not None)
    axes = list(chosen_axes(axis, array.ndim))
    kept = [each for each in range(array.ndim) if each not in axes]
    shape = tuple(1 if each in axes else n for each, n in enumerate(array.shape) if keepdims or each not in axes)
    rows = _rows(array, kept, axes)
    with np.errstate(all="ignore"):  # overflow and invalid operations have their IEEE results here, as on a GPU
        results = _reduce_rows(rows, None if other is None else _rows(other, kept, axes), operation, types, initial)
    shaped = tuple(result.reshape(shape) for result in results)
    return shaped[0] if operation.results == 1 else result_tuple(operation.name, operation.result_names)(*shaped)


def _second_array(operation: Reduction, array: Array, second: Any, *, given: bool) -> Array | None:
    """Return the mask or the second array, checked and broadcast to the array's shape."""
    if operation.second is None:
        if given:
            raise ValueError(f"{operation.name} takes no second array")
        return None
    if operation.second == "mask" and given:
        raise ValueError(f"with where= {operation.name} has no place for a second array")
    if second is None:
        raise ValueError(f"{operation.name} needs a second array")
    other = np.asarray(not_masked(second))
    wanted = operation.second_dtype(element_type(array.dtype))
    if other.dtype != wanted:
        raise TypeError(f"the second array is of {wanted}, not {other.dtype}")
    whole: Array = np.broadcast_to(other, array.shape)
    return whole


def _rows(array: Array, kept: list[int], reduced: list[int]) -> Array:
    """Return the array with the shape (rows, length)."""
    length = math.prod(array.shape[each] for each in reduced)
    rows = math.prod(array.shape[each] for each in kept)
    matrix: Array = array.transpose(kept + reduced).reshape(rows, length)
    return matrix


def _reduce_rows(
    rows: Array, other: Array | None, operation: Reduction, types: Types, initial: Any
) -> tuple[Array, ...]:
    count, length = rows.shape
    operation.warn_of_too_few(length)
    if length == 0:
        return tuple(np.broadcast_to(each, count).copy() for each in operation.empty_results(types, initial))
    start = operation.initial_fields(initial, types) if operation.has_initial else None
    blocks = []
    for block in _blocks(count, length, types.element.leaf):
        x = rows[block]
        pivot = operation.pivot(x[:, :1], types) if operation.pivot else None
        items = Items(x, None if other is None else other[block], np.arange(length, dtype=np.uint64), pivot)
        row = Row(length, None if pivot is None else pivot[:, 0], start)
        blocks.append(operation.finish(_fold_rows(items, operation, types), row, types))
    if not blocks:
        return tuple(np.zeros(0, types.result_dtype) for _ in operation.result_names)
    return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))


def _blocks(count: int, length: int, leaf: int) -> Iterator[slice]:
    """Cut the batch into blocks of rows that are folded at a time; a row's result does not depend on its block."""
    at_once = max(1, LEAVES_AT_ONCE * leaf // max(length, 1))
    for first in range(0, count, at_once):
        yield slice(first, first + at_once)


def _fold_rows(items: Items, operation: Reduction, types: Types) -> Fields:
    """Fold rows, long ones by one run of leaves at a time, to fields of shape (rows,)."""
    run = LEAVES_AT_ONCE * types.element.leaf
    length = items.x.shape[1]
    parts = []
    for first in range(0, length, run):
        part = slice(first, first + run)
        y = None if items.y is None else items.y[:, part]
        mapped = operation.map(items.where(x=items.x[:, part], y=y, index=items.index[part]), types)
        parts.append(_fold_run(mapped, operation, types))
    return _fold(tuple(np.stack(fields, axis=-1) for fields in zip(*parts, strict=True)), operation, types)


def _fold_run(fields: Fields, operation: Reduction, types: Types) -> Fields:
    """Fold a run of leaves of each row: slots, steps, lanes, then leaves. Short rows fill only part of one step."""
    vector, leaf = types.element.vector, types.element.leaf
    rows, length = fields[0].shape
    slots = min(vector, _power(length))
    lanes = min(LANES, _power(-(-length // vector)))
    steps = min(STEPS, _power(-(-length // (vector * LANES))))
    leaves = -(-length // leaf)
    fields = _pad(fields, leaves * steps * lanes * slots, operation, types)
    fields = tuple(field.reshape(rows, leaves, steps, lanes, slots) for field in fields)
    fields = _fold(fields, operation, types)  # slots
    fields = _fold(tuple(field.swapaxes(2, 3) for field in fields), operation, types)  # steps
    fields = _fold(fields, operation, types)  # lanes
    return _fold(fields, operation, types)  # leaves


def _power(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << (n - 1).bit_length()


def _fold(fields: Fields, operation: Reduction, types: Types) -> Fields:
    """Fold the last axis as a balanced tree, adjacent pairs first, padded to a power of two with absent operands."""
    fields = _pad(fields, _power(fields[0].shape[-1]), operation, types)
    while fields[0].shape[-1] > 1:
        left = tuple(field[..., 0::2] for field in fields)
        right = tuple(field[..., 1::2] for field in fields)
        fields = operation.combine(left, right, types)
    return tuple(field[..., 0] for field in fields)


def _pad(fields: Fields, length: int, operation: Reduction, types: Types) -> Fields:
    missing = length - fields[0].shape[-1]
    if missing == 0:
        return fields
    shape = (*fields[0].shape[:-1], missing)
    return tuple(
        np.concatenate([field, np.full(shape, value, field.dtype)], axis=-1)
        for field, value in zip(fields, operation.identity(types), strict=True)
    )


def __getattr__(name: str) -> Any:
    """Return what row operations mean in NumPy under their names, at first use: ``tree.softmax``, for example."""
    if not name.startswith("_"):
        host = importlib.import_module("lowlevel_reduce.rowops.host")
        if name in host.__all__:
            return getattr(host, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
