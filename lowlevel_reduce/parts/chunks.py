"""How an array is cut into chunks of a power of two of leaves, and into shards of whole chunks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from lowlevel_reduce.arguments import integer
from lowlevel_reduce.dtypes import ElementType, element_type
from lowlevel_reduce.layout import MAX_BYTES
from lowlevel_reduce.strategy.whole import power_of_two

__all__ = ["check_chunk", "check_length", "chunk_elements", "common_chunk", "shard_lengths"]

MOST_CHUNKS = 1024
"""The most chunks that an array is cut into by default. Large arrays have more than half as many, so that eight shards
differ by less than 2 %."""


MOST_SHARDS = 1 << 20
"""The most shards whose lengths `shard_lengths` returns: a list of as many numbers."""


def chunk_elements(length: int, dtype: Any) -> int:
    """Return how many elements a chunk of an array has by default: the fewest that cut it into at most 1024 chunks.

    A chunk is a power of two of leaves, of 4 KiB each. Any other power of two works as well, provided that all who
    reduce a part of the array use the same.

    Parameters
    ----------
    length : int
        Elements of the whole array.
    dtype : dtype
        Their type.

    Returns
    -------
    int
        Elements of a chunk.

    Raises
    ------
    TypeError, ValueError
        If the length is not an integer, negative, or of more bytes than can be reduced; if `dtype` is not a dtype.
    UnsupportedError
        If the type cannot be reduced.
    """
    element = element_type(dtype)
    leaves = -(-check_length(length, element) // element.leaf)
    return element.leaf * power_of_two(max(1, -(-leaves // MOST_CHUNKS)))


def shard_lengths(length: int, dtype: Any, shards: int, *, chunk: int | None = None) -> list[int]:
    """Return how to cut an array into shards of whole chunks, as equal in length as possible.

    Parameters
    ----------
    length : int
        Elements of the whole array.
    dtype : dtype
        Their type.
    shards : int
        The number of shards, at most 2^20. If there are fewer chunks, some shards are empty.
    chunk : int, optional
        Elements of a chunk; by default `chunk_elements`.

    Returns
    -------
    list of int
        Elements of each shard, in order. Each is a multiple of `chunk`, except that of the shard that ends the array.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer or out of range, or `chunk` is not a power of two of leaves.
    UnsupportedError
        If the type cannot be reduced.
    """
    element = element_type(dtype)
    length, shards = check_length(length, element), integer(shards, "shards is an integer")
    if not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"shards is 1 to {MOST_SHARDS}, not {shards}")
    chunk = chunk_elements(length, dtype) if chunk is None else check_chunk(chunk, element)
    chunks = -(-length // chunk)
    borders = [min(length, chunk * -(-chunks * number // shards)) for number in range(shards + 1)]
    return [end - start for start, end in itertools.pairwise(borders)]


def common_chunk(lengths: Sequence[int], dtype: Any) -> int:
    """Return the largest chunk, up to `chunk_elements`, that divides the length of all but the last nonempty shard.

    Raises
    ------
    ValueError
        If there is none: a shard that is followed by others ends within a leaf.
    """
    leaf = element_type(dtype).leaf
    chunk = chunk_elements(sum(lengths), dtype)
    filled = [(number, length) for number, length in enumerate(lengths) if length]
    for number, length in filled[:-1]:
        if length % leaf:
            raise ValueError(
                f"shard {number} has {length} elements, which end within a leaf of {leaf}: only the last shard may. "
                "shard_lengths gives lengths that do not"
            )
        while length % chunk:
            chunk //= 2
    return chunk


def check_length(length: object, element: ElementType) -> int:
    """Return the number of an array's elements, checked; raises TypeError or ValueError."""
    elements = integer(length, "length is an integer")
    if not 0 <= elements * element.itemsize <= MAX_BYTES:
        raise ValueError(f"an array has 0 to {MAX_BYTES} bytes, not {elements} elements of {element.itemsize}")
    return elements


def check_chunk(chunk: object, element: ElementType) -> int:
    """Return the elements of a chunk, checked to be a power of two of leaves; raises TypeError or ValueError."""
    elements = integer(chunk, "chunk is an integer")
    leaves, rest = divmod(elements, element.leaf)
    if rest or leaves < 1 or leaves & (leaves - 1):
        raise ValueError(
            f"a chunk of {element.name} is a power of two of leaves of {element.leaf} elements, not {elements} elements"
        )
    return elements
