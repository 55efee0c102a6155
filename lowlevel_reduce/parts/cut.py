"""How an array, or each row of one, is cut over ranks: at chunks, in equal shares with some partials absent."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import CutError
from lowlevel_reduce.parts.chunks import check_chunk, check_length, chunk_elements, shard_lengths

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Cut", "Place", "cut_of"]


class Place(NamedTuple):
    """What one rank has of each row: whole chunks, and the elements of the chunk that the row ends within.

    Attributes
    ----------
    start, length : int
        Its first element, and how many it has.
    whole, rest : int
        How many whole chunks these are, and how many elements follow.
    """

    start: int
    length: int
    whole: int
    rest: int

    @property
    def chunks(self) -> int:
        """How many partials it makes of a row."""
        return self.whole + (self.rest > 0)


class Cut(NamedTuple):
    """An array of one axis, cut over ranks as `shard_lengths` says.

    Attributes
    ----------
    length, chunk, ranks : int
        Elements of the whole and of a chunk, and the number of parts.
    lengths : tuple of int
        Elements of each part.
    """

    length: int
    chunk: int
    ranks: int
    lengths: tuple[int, ...]

    @property
    def chunks(self) -> int:
        """How many chunks the whole has."""
        return -(-self.length // self.chunk)

    @property
    def share(self) -> int:
        """How many partials of a row each rank contributes: as many as the rank with the most; others pad theirs."""
        return max(-(-length // self.chunk) for length in self.lengths)

    def place(self, rank: int) -> Place:
        """Return what a rank has."""
        length = self.lengths[rank]
        return Place(sum(self.lengths[:rank]), length, *divmod(length, self.chunk))

    def table(self) -> list[int]:
        """Return what the fold finds partials by, as `FreeCut.table`."""
        borders = [0, *itertools.accumulate(self.lengths)]
        firsts = [-(-border // self.chunk) for border in borders]
        return [*firsts, *(length // self.chunk for length in self.lengths)]

    def check(self, rank: int, length: int) -> None:
        """Refuse a part of another length, and say where to cut; raises CutError."""
        place = self.place(rank)
        if length != place.length:
            raise CutError(
                f"rank {rank} has {length} elements, and by the cut of {self.length} over {self.ranks} ranks "
                f"{place.length}: from number {place.start} to before {place.start + place.length}, in chunks of "
                f"{self.chunk}; shard_lengths gives the lengths of all parts"
            )

    def check_all(self, lengths: Sequence[int]) -> None:
        """Refuse parts of other lengths, in the words of the first that does not fit; raises CutError."""
        for rank, length in enumerate(lengths):
            self.check(rank, length)


def cut_of(length: object, dtype: Any, ranks: int, chunk: object = None) -> Cut:
    """Return the cut of an array over ranks, with the largest chunks that give the same parts: the fewest partials.

    Parameters
    ----------
    length : int
        Elements of the whole, or of one row of it.
    dtype : dtype
        Their type.
    ranks : int
        How many parts there are.
    chunk : int, optional
        Elements of a chunk, as for `shard_lengths`; by default `chunk_elements`.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As `shard_lengths`.
    """
    element = element_type(dtype)
    whole = check_length(length, element)
    return _cut_of(whole, element.dtype, ranks, None if chunk is None else check_chunk(chunk, element))


@functools.lru_cache(maxsize=256)
def _cut_of(whole: int, dtype: np.dtype[Any], ranks: int, chunk: int | None) -> Cut:
    used = chunk_elements(whole, dtype) if chunk is None else chunk
    lengths = shard_lengths(whole, dtype, ranks, chunk=used)
    while used < whole and shard_lengths(whole, dtype, ranks, chunk=2 * used) == lengths:
        used *= 2
    return Cut(whole, used, ranks, tuple(lengths))
