"""For how large blocks, and how many at once, kernels for rows are compiled: what bounds a thread's registers."""

from __future__ import annotations

from lowlevel_reduce.strategy.base import RESIDENT_HEAVY, SMALL_BYTES, WARPS, RowStrategy

__all__ = ["RESIDENT_LIGHTEST", "bounded", "bounds_of_rows"]

# How many blocks must fit on a multiprocessor, which limits a thread to 64 and 80 registers: the most with which the
# compiler does not spill, as tests/compile verifies. RESIDENT_HEAVY leaves it 128.
RESIDENT_LIGHTEST, _RESIDENT_LIGHT = 4, 3

_MOST_WARPS, _MOST_WIDE_WARPS = 16, 12
"""The most warps of a block with one leaf each: with wide accumulators, or where elements of two arrays are gathered,
two blocks of twelve warps leave a thread the 80 registers that it needs."""


_PAIR_BYTES = 16
"""Accumulators of two float64: moments. A lane's eight vectors of short rows of 16 bits, and what they fold to take
the same registers: 80 are enough for three blocks, where the compiler would take 112 for two."""

_NARROW_BYTES = 8
"""Accumulators of no more bytes, of small elements, leave short rows at any address as many blocks as they had before
long ones had code of their own."""


def bounded(chosen: RowStrategy, itemsize: int, accumulator_bytes: int, **options: bool) -> RowStrategy:
    """Return a strategy with the bounds of its kernels; the options are those of `bounds_of_rows`."""
    warps, resident = bounds_of_rows(chosen, itemsize, accumulator_bytes, **options)
    anywhere = None
    if chosen.name == "rows" and chosen.contiguous:
        anywhere = bounds_of_rows(chosen._replace(in_one_turn=True), itemsize, accumulator_bytes, **options)
    light = accumulator_bytes <= _NARROW_BYTES and not (options["heavy"] or options["two_arrays"])
    if chosen.name == "short_rows" and chosen.contiguous and itemsize <= SMALL_BYTES and light:
        anywhere = (WARPS, RESIDENT_LIGHTEST)
    return chosen._replace(most_warps=warps, resident_blocks=resident, anywhere_bounds=anywhere)


def bounds_of_rows(
    chosen: RowStrategy, itemsize: int, accumulator_bytes: int, *, heavy: bool, two_arrays: bool, newer: bool = False
) -> tuple[int, int]:
    """Return for how many warps of a block a kernel is compiled, and how many such blocks fit on a multiprocessor.

    `newer` devices, from compute capability 10.0 on, are given more registers, which the compiler needs there.
    """
    if chosen.in_one_turn:  # as many warps as registers allow
        wide, gathers_two = accumulator_bytes > 8, two_arrays and not chosen.contiguous
        if (heavy and (wide or not two_arrays)) or accumulator_bytes > 16:
            return (WARPS if newer else _MOST_WARPS), 1
        return (_MOST_WIDE_WARPS if wide or gathers_two else _MOST_WARPS), 2
    if two_arrays and chosen.contiguous and itemsize >= 4 and accumulator_bytes == 8:
        return WARPS, RESIDENT_LIGHTEST  # half as many vectors of each array are in flight
    by_words = chosen.contiguous and itemsize > SMALL_BYTES
    are_small_rows = chosen.name == "short_rows" and chosen.contiguous and not by_words
    if are_small_rows and accumulator_bytes == _PAIR_BYTES and not heavy:
        return WARPS, _RESIDENT_LIGHT
    if heavy or accumulator_bytes > 16 or (chosen.name == "short_rows" and not by_words):
        return WARPS, RESIDENT_HEAVY
    return WARPS, RESIDENT_LIGHTEST if accumulator_bytes <= 8 and by_words else _RESIDENT_LIGHT
