"""Partials that ranks contributed in equal shares: views of their words, and their fold to the bits of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.arguments import integer
from lowlevel_reduce.calls.options import initial_key
from lowlevel_reduce.calls.prepared import Prepared
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.parts.chunks import shard_lengths
from lowlevel_reduce.parts.combining import PARTIAL_DTYPE, divided
from lowlevel_reduce.parts.cut import Cut
from lowlevel_reduce.parts.fold import fold_plan

if TYPE_CHECKING:
    from lowlevel_reduce.arrays.device_array import ArrayView
    from lowlevel_reduce.calls.execute import Made
    from lowlevel_reduce.calls.places import Place

__all__ = ["ABSENT_BYTE", "described_shares", "padded_rows", "words_of"]

ABSENT_BYTE = 0xFF
"""What every byte of an absent partial is. Nobody reads one: the cut says which there are."""

_WORD_TYPES = tuple(np.dtype(name) for name in ("uint32", "int32", "uint8", "int8"))


def words_of(view: ArrayView) -> ArrayView:
    """Return partials that were gathered as int32 or as bytes as an array of their words; of other types, as they are.

    Raises
    ------
    ValueError
        If the bytes are no whole words, or at an address that no word has.
    """
    if view.dtype not in _WORD_TYPES:
        return view
    size_bytes = view.shape[0] * view.dtype.itemsize
    if size_bytes % PARTIAL_DTYPE.itemsize or view.pointer % PARTIAL_DTYPE.itemsize:
        raise ValueError(f"{size_bytes} bytes at {view.pointer:#x} are no partials, which consist of words of 4 bytes")
    return view._replace(dtype=PARTIAL_DTYPE, shape=(size_bytes // PARTIAL_DTYPE.itemsize,))


def padded_rows(rows: object, chunks: int) -> int:
    """Return how many partials a share gets, checked: as many as there are chunks, or more; raises."""
    number = integer(rows, "rows is an integer")
    if number < chunks:
        raise ValueError(f"the part has {chunks} chunks, which {number} rows cannot hold")
    return number


def described_shares(
    place: Place, views: tuple[ArrayView, ...], op: Any, problem: dict[str, Any], number: int, initial: Any
) -> tuple[tuple[Any, ...], Made]:
    """Return the key of the fold of so many ranks' shares, each with the same number of rows, and what prepares it.

    `views` are the words of the shares and, if it is given, the whole array's first element; `problem` is that of
    `fold_problem`. Raises as `combine_partials`, some of it when it is prepared.
    """
    view, *beside = views
    if view.dtype != PARTIAL_DTYPE:
        raise TypeError(f"partials are of uint32, or gathered as int32 or bytes of it; these are of {view.dtype}")

    def made() -> Prepared:
        options = dict(problem)
        length, chunk, dtype = (options.pop(name) for name in ("length", "chunk", "dtype"))
        accumulate, result_dtype = options.pop("accumulate"), options.pop("result_dtype")
        reduction = divided(op, **options)
        types = reduction.types(element_type(dtype), accumulate, result_dtype)
        lengths = shard_lengths(length, dtype, number, chunk=chunk)
        cut, words = Cut(length, chunk, number, tuple(lengths)), reduction.size(types) // PARTIAL_DTYPE.itemsize
        rows, left = divmod(view.shape[0], number * words)
        if left or rows < cut.share:
            raise ValueError(
                f"{length} elements in chunks of {chunk} over {number} shards have {cut.share} rows or more of {words} "
                f"words a shard, the same number for each; these are {view.shape[0]} words"
            )
        if (reduction.second == "first") != bool(beside):
            raise TypeError(f"{reduction.name} takes {'first=' if reduction.second == 'first' else 'no first element'}")
        if beside and (beside[0].dtype != types.element.dtype or (length and not beside[0].shape[0])):
            raise TypeError(f"the first element is one of {types.element.dtype}")
        apart = rows * words * PARTIAL_DTYPE.itemsize
        plan = fold_plan(reduction, types, cut, apart=apart, context=place.context)
        return Prepared.of_plan(plan, place, initial)

    kinds = [(each.dtype, each.shape) for each in views]
    return ("shares", op, number, initial_key(initial), *kinds, *problem.values()), made
