"""How an array is cut into chunks, runs of a power of two of leaves, and into shards of whole chunks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from lowlevel_reduce.arguments import integer
from lowlevel_reduce.dtypes import ElementType, element_type
from lowlevel_reduce.layout import MAX_BYTES
from lowlevel_reduce.policy import power_of_two

__all__ = ["check_chunk", "check_length", "chunk_elements", "common_chunk", "shard_lengths"]

MOST_CHUNKS = 1024
"""Into how many chunks an array is cut at most, by default: eight shards of as many then differ by 1 % or less."""


def chunk_elements(length: int, dtype: Any) -> int:
    """Return the elements of a chunk for an array of `length`: the fewest that make no more than 1024 chunks of it.

    That is a power of two of leaves, 4 KiB each. Any other power of two of them will do as well, as long as all who
    have a part of the array agree on it.

    Raises
    ------
    TypeError, ValueError
        If the length makes no sense.
    """
    element = element_type(dtype)
    leaves = -(-check_length(length, element) // element.leaf)
    return element.leaf * power_of_two(max(1, -(-leaves // MOST_CHUNKS)))


def shard_lengths(length: int, dtype: Any, shards: int, *, chunk: int | None = None) -> list[int]:
    """Return how many elements of an array each of some shards has, as alike as may be: whole chunks, but for the end.

    Parameters
    ----------
    length : int
        Elements of the whole array.
    dtype : dtype
        Their type.
    shards : int
        How many parts there shall be, in order. Some are empty where there are fewer chunks.
    chunk : int, optional
        Elements of a chunk; by default `chunk_elements`.

    Raises
    ------
    TypeError, ValueError
        If a number makes no sense.
    """
    element = element_type(dtype)
    length, shards = check_length(length, element), integer(shards, "shards is an integer")
    if shards < 1:
        raise ValueError(f"there is one shard or more, not {shards}")
    chunk = chunk_elements(length, dtype) if chunk is None else check_chunk(chunk, element)
    chunks = -(-length // chunk)
    borders = [min(length, chunk * -(-chunks * number // shards)) for number in range(shards + 1)]
    return [end - start for start, end in itertools.pairwise(borders)]


def common_chunk(lengths: Sequence[int], dtype: Any) -> int:
    """Return the largest chunk, up to that of `chunk_elements`, that all shards but the last with elements have.

    Raises
    ------
    ValueError
        If there is none: a shard ends within a leaf, and others follow.
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
    """Return how many elements an array has, checked; raises TypeError or ValueError."""
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
