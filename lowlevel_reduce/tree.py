"""The one tree, in NumPy: the law that every kernel is tested against, bit for bit.

Element ``i`` of ``n`` sits in leaf ``i // L``, step ``i % L // (32 V)``, lane ``i % (32 V) // V``, slot ``i % V``,
where ``V`` is the number of elements in 16 bytes and ``L = 256 V``. Each level is folded balanced, adjacent pairs
first: slots, then the 8 steps, then the 32 lanes, then the leaves. What lies past ``n`` is absent, and an absent
operand leaves the other one as it is. The result depends on the values and their order, and on nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.dtypes import LANES, STEPS, ElementType, element_type, numpy_dtype
from lowlevel_reduce.operators import Fields, Operator, operator

__all__ = ["reduce"]

LEAVES_AT_ONCE = 4096
"""Leaves folded in one go, a power of two: 16 MiB of elements, so that any length needs little memory."""


def reduce(
    array: npt.ArrayLike, op: str = "sum", accumulate: str | None = None, *, dtype: npt.DTypeLike | None = None
) -> npt.NDArray[Any]:
    """Reduce all elements of an array, in C order, by the one tree.

    Parameters
    ----------
    array : array_like
        Any shape, strides and byte alignment; float16, bfloat16 (ml_dtypes), float32, float64, an integer or bool.
    op : str
        Name of the operator.
    accumulate : str, optional
        The accumulator: ``"float32"``, ``"float64"`` or ``"compensated"`` for floats (default: float32 for 16-bit
        types, else float64); for an integer type its own name, for arithmetic modulo 2**bits (default: 64 bits).
    dtype : dtype, optional
        The result's type; by default the input's for floats, int64 for bool and signed, uint64 for unsigned integers.

    Returns
    -------
    numpy.ndarray
        The result, 0-d. A NaN has numpy.nan's bits, whichever operand it came from.

    Raises
    ------
    UnsupportedError
        If the operator, the array's type, the accumulator or the result type is not among those above.
    """
    array = np.asarray(array)
    element = element_type(array.dtype)
    operation = operator(op)
    accumulator = element.accumulator(accumulate)
    result = numpy_dtype(element.result_type(dtype, accumulate))
    if array.size == 0:
        return np.array(operation.empty, result)
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):  # overflow and invalid operations have their IEEE results here, as on a GPU
        run = LEAVES_AT_ONCE * element.leaf
        runs = [_fold_run(flat[i : i + run], element, operation, accumulator) for i in range(0, flat.size, run)]
        root = _fold(_stack(runs), operation, accumulator)
        return operation.finish(root, result).reshape(())


def _fold_run(flat: npt.NDArray[Any], element: ElementType, operation: Operator, accumulator: str) -> Fields:
    """Fold one run of leaves: slots, steps, lanes, then the leaves, to fields of shape ()."""
    leaves = -(-flat.size // element.leaf)
    present = operation.map(flat, accumulator)
    padded = _pad(present, leaves * element.leaf, operation, accumulator)
    fields = tuple(field.reshape(leaves, STEPS, LANES, element.vector) for field in padded)
    fields = _fold(fields, operation, accumulator)  # slots
    fields = _fold(tuple(field.swapaxes(1, 2) for field in fields), operation, accumulator)  # steps
    fields = _fold(fields, operation, accumulator)  # lanes
    return _fold(fields, operation, accumulator)  # leaves


def _fold(fields: Fields, operation: Operator, accumulator: str) -> Fields:
    """Fold the last axis, balanced, adjacent pairs first; what lacks to a power of two is absent."""
    length = fields[0].shape[-1]
    fields = _pad(fields, 1 << (length - 1).bit_length(), operation, accumulator)
    while fields[0].shape[-1] > 1:
        left = tuple(field[..., 0::2] for field in fields)
        right = tuple(field[..., 1::2] for field in fields)
        fields = operation.combine(left, right)
    return tuple(field[..., 0] for field in fields)


def _pad(fields: Fields, length: int, operation: Operator, accumulator: str) -> Fields:
    missing = length - fields[0].shape[-1]
    if missing == 0:
        return fields
    shape = (*fields[0].shape[:-1], missing)
    absent = operation.identity(accumulator)
    return tuple(
        np.concatenate([field, np.full(shape, value, field.dtype)], axis=-1)
        for field, value in zip(fields, absent, strict=True)
    )


def _stack(runs: list[Fields]) -> Fields:
    return tuple(np.stack(field) for field in zip(*runs, strict=True))
