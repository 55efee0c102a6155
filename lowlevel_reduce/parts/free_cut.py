"""Rows that are cut anywhere along an axis: who has which chunks, and whose elements complete the chunks at borders."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import CutError
from lowlevel_reduce.parts.cut import Cut, Place

__all__ = ["FreeCut", "Held", "free_cut"]


class Held(NamedTuple):
    """What one rank has to do with each row: a chunk belongs to the rank that has its first element.

    Attributes
    ----------
    first : int
        Number of the first chunk that belongs to it.
    main : int
        How many whole chunks are in its memory.
    extra, tail : int
        Elements of one more chunk behind them, and how many of these are in its memory, at its end; 0 if there is none.
    head : int
        Elements at its beginning, which belong to a chunk of an earlier rank.
    borrowed : tuple
        Which ranks complete the last chunk, and with how many elements each: those at their beginning.
    """

    first: int
    main: int
    extra: int
    tail: int
    head: int
    borrowed: tuple[tuple[int, int], ...]


class FreeCut(NamedTuple):
    """A row cut over ranks wherever they say. What a `Cut` has, and what each rank holds.

    Attributes
    ----------
    length, chunk, ranks, lengths
        As of `Cut`.
    held : tuple of Held
        By rank.
    """

    length: int
    chunk: int
    ranks: int
    lengths: tuple[int, ...]
    held: tuple[Held, ...]

    @property
    def chunks(self) -> int:
        """How many chunks a row has."""
        return -(-self.length // self.chunk)

    @property
    def share(self) -> int:
        """How many partials of a row each rank contributes, as of `Cut`."""
        return max(each.main + (each.extra > 0) for each in self.held)

    @property
    def head(self) -> int:
        """The most elements of a row that a rank sends to another; 0 if every border is one of chunks."""
        return max(each.head for each in self.held)

    def place(self, rank: int) -> Place:
        """Return what a rank has; the rest, if all of it is in its own memory."""
        held, start = self.held[rank], sum(self.lengths[:rank])
        return Place(start, self.lengths[rank], held.main, 0 if held.borrowed else held.extra)

    def check(self, rank: int, length: int) -> None:
        """Refuse a part of another length than the rank had when the cut was made; raises CutError."""
        if length != self.lengths[rank]:
            raise CutError(f"rank {rank} has {length} elements of the axis, and had {self.lengths[rank]} for this plan")

    def table(self) -> list[int]:
        """Return what the fold finds partials by: each rank's first chunk, the number of all, and whole chunks."""
        return [*(each.first for each in self.held), self.chunks, *(each.main for each in self.held)]


def free_cut(lengths: Sequence[int], dtype: Any, standard: Cut) -> Cut | FreeCut:
    """Return the cut of rows into parts of these lengths: the standard one if it is that.

    Raises
    ------
    CutError
        If they are not those of rows of the standard cut's length together.
    """
    if tuple(lengths) == standard.lengths:
        return standard
    whole = sum(lengths)
    if whole != standard.length:
        raise CutError(
            f"the parts have {' + '.join(map(str, lengths))} elements of the axis, {whole} together; it has "
            f"{standard.length}"
        )
    borders = [0, *itertools.accumulate(lengths)]
    chunk = element_type(dtype).leaf
    inner = [border for border in borders if 0 < border < whole]
    while chunk < whole and all(border % (2 * chunk) == 0 for border in inner):
        chunk *= 2
    held = []
    for rank, (start, end) in enumerate(itertools.pairwise(borders)):
        begin = min(-(-start // chunk) * chunk, whole)
        head = min(begin, end) - start
        if end <= begin:
            held.append(Held(-(-begin // chunk), 0, 0, 0, head, ()))
            continue
        main, tail = divmod(end - begin, chunk)
        extra = min(chunk, whole - begin - main * chunk) if tail else 0
        borrowed, missing = [], extra - tail
        for other in range(rank + 1, len(lengths)):
            count = min(missing, lengths[other])
            if count:
                borrowed.append((other, count))
            missing -= count
        held.append(Held(begin // chunk, main, extra, tail, head, tuple(borrowed)))
    return FreeCut(whole, chunk, len(lengths), tuple(lengths), tuple(held))
