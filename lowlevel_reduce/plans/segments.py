"""Plans of reductions of segments of one array, given by offsets on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowlevel_reduce import operators
from lowlevel_reduce.arguments import integer
from lowlevel_reduce.driver import Context, LaunchConfig
from lowlevel_reduce.driver.checks import check_launch
from lowlevel_reduce.dtypes import LANES, element_type, numpy_dtype
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.layout import MAX_BYTES
from lowlevel_reduce.operators import Reduction, Types
from lowlevel_reduce.plans.base import BasePlan
from lowlevel_reduce.plans.launch import Extents
from lowlevel_reduce.plans.loading import load_kernel
from lowlevel_reduce.plans.mapping import MappedKernel
from lowlevel_reduce.strategy.selection import operator_text
from lowlevel_reduce.strategy.stubs import segment_blocks, segment_kernel_sources
from lowlevel_reduce.strategy.whole import HEADER_BYTES, slot_bytes

__all__ = ["OFFSETS", "WARP_GROUPS", "SegmentedPlan", "segmented_plan"]

OFFSETS = ("int32", "int64")
"""Types that offsets may have."""

_LONG_LEAVES = 16
"""`long_leaves` in cuda_src/segments/segments.cuh: a segment of more is cut into tiles, of `tile_warps` leaves."""

_FEW_SEGMENTS, _ENTRIES_AT_ONCE = 256, 8
"""`few_segments` and `entries_at_once` there: up to so many long ones have a block each to fold their partials, and of
more so many have one together."""

_TINY_BYTES, _TINY_GROUPS, _WARPS_A_MULTIPROCESSOR = 64, 4, 32
"""Of segments of up to so many bytes, each warp folds so many groups; warps that a multiprocessor has room for."""

WARP_GROUPS = (1, _TINY_GROUPS)
"""How many groups of thirty-two segments a warp may have: a kernel each."""

_ENTRY_BYTES = 32
_BLOCKS_A_MULTIPROCESSOR = 2
"""What a multiprocessor has room for: blocks that claim tiles one after the other."""


class SegmentedPlan(BasePlan):
    """A reduction of the segments of arrays of one length on one context. Make one with `segmented_plan`.

    Attributes
    ----------
    op : str
        Name of the operator.
    length, segments : int
        Elements of the array, and segments.
    dtype, offsets_dtype, result_dtype : numpy.dtype
        Types of the elements, of the offsets and of the results.
    context : Context
        Where it runs.
    workspace_bytes : int
        Device memory that a bound launch needs besides its arguments. With c = length // (16 L) + 1 for leaves of L
        elements (4 KiB): 256 + 32 c + s * (length // (t L) + 2 c), s being 16 bytes for every 12 bytes of the
        accumulator, rounded up, and t 16, or 8 for an accumulator of more than 8 bytes.

    Notes
    -----
    Bound to a stream, call ``launch(source, result, offsets)`` with device addresses. The offsets are read when the
    launch runs: `segments` + 1 of them, at an address aligned to their size. They must be ascending, each from 0 to
    `length`, and nothing checks that. Other offsets give undefined results, which may look right: an offset outside is
    taken for the nearer of 0 and `length`, a segment that would end before it begins for one without elements; and
    where such segments together are longer than the array, some results may not be written at all. Nothing outside the
    arrays is read or written. `segmented_reduce` has a check.
    """

    def __init__(
        self,
        reduction: Reduction,
        types: Types,
        length: int,
        segments: int,
        offsets_dtype: np.dtype[Any],
        context: Context,
        kernels: tuple[MappedKernel, ...],
        slot: int,
        tile: int,
    ) -> None:
        self._capacity = _most_long(length, types.element.leaf)
        self._room = length // tile + 2 * self._capacity
        size = types.result_dtype.itemsize
        super().__init__(
            reduction=reduction,
            types=types,
            result_shape=(segments,),
            extents=Extents(
                low=0,
                high=length * types.element.itemsize,
                result_bytes=segments * reduction.results * size,
                result_alignment=size,
                has_second=True,
                second_high=(segments + 1) * offsets_dtype.itemsize,
                second_alignment=offsets_dtype.itemsize,
            ),
            context=context,
            kernels=kernels,
            workspace_bytes=HEADER_BYTES + _ENTRY_BYTES * self._capacity + slot * self._room,
            fields="segments",
        )
        self.length = length
        self.segments = segments
        self.offsets_dtype = offsets_dtype

    @property
    def _partials(self) -> int:
        return self._room

    def _fields(self, length: int, count: int, initial: tuple[int, int]) -> tuple[int, ...]:
        span_bytes = self.length * self.dtype.itemsize
        return (length, self.length, self.segments, count, *initial, 0, span_bytes, self._capacity, self._room)

    def __repr__(self) -> str:
        return f"<SegmentedPlan {self.op} of {self.segments} segments of {self.length} {self.dtype}{self._state}>"


def _most_long(length: int, leaf: int) -> int:
    """Return how many segments of more than `_LONG_LEAVES` leaves an array has at most, or one more."""
    return length // (_LONG_LEAVES * leaf) + 1


def _groups_of_a_warp(length: int, segments: int, itemsize: int, multiprocessors: int) -> int:
    """Return how many times thirty-two segments a warp folds: of tiny ones some, if there are enough for all warps.

    It has the offsets of the next ones under way meanwhile, which a warp that has to start first waits for.
    """
    if length * itemsize > segments * _TINY_BYTES:
        return 1
    fill = LANES * _WARPS_A_MULTIPROCESSOR * multiprocessors
    return _TINY_GROUPS if segments >= 2 * _TINY_GROUPS * fill else 1


def _blocks_of_long(length: int, segments: int, leaf: int, tile: int, multiprocessors: int) -> int:
    """Return the grid for long segments: a block for each tile if most elements must be theirs, else what has room.

    Blocks in the hardware's order are faster than those that claim tiles one after the other, but where all segments
    are short each costs time for nothing.
    """
    most_long = min(segments, _most_long(length, leaf))
    folding = max(min(most_long, _FEW_SEGMENTS), -(-most_long // _ENTRIES_AT_ONCE))
    for_all = length // tile + most_long + folding
    at_once = _BLOCKS_A_MULTIPROCESSOR * multiprocessors
    surely_in_long = length - segments * _LONG_LEAVES * leaf
    return for_all if 2 * surely_in_long >= length else min(for_all, at_once)


def segmented_plan(
    op: Any = "sum",
    *,
    length: int,
    segments: int,
    dtype: Any,
    offsets_dtype: Any = "int64",
    accumulate: str | None = None,
    result_dtype: Any = None,
    initial: bool = False,
    context: Context | None = None,
    **options: Any,
) -> SegmentedPlan:
    """Compile a reduction of the segments of arrays of one length.

    Parameters
    ----------
    op : str or Operator
        The operator, or its name; it must take a single array.
    length, segments : int
        Elements of the array, and number of segments: one fewer than the number of offsets.
    dtype, offsets_dtype : dtype
        Types of the elements and of the offsets, the latter int32 or int64.
    accumulate, result_dtype, initial, context, **options
        As for `lowlevel_reduce.plan`.

    Raises
    ------
    TypeError, ValueError
        If a size, type or option does not make sense.
    UnsupportedError
        If the operator does not take the type, or the operator takes two arrays.
    CompileError, NoCompilerError, NoDriverError, CacheError
        If the kernels cannot be compiled, run or cached.
    """
    element = element_type(dtype)
    length, segments = integer(length, "length is an integer"), integer(segments, "segments is an integer")
    for what, number in (("length", length), ("segments", segments)):
        if number < 0:
            raise ValueError(f"{what} is 0 or more, not {number}")
    if length * element.itemsize > MAX_BYTES:
        raise ValueError(
            f"{length} elements need {length * element.itemsize} bytes; at most {MAX_BYTES} can be reduced"
        )
    offsets = numpy_dtype(offsets_dtype)
    if (segments + 1) * offsets.itemsize > MAX_BYTES:
        raise ValueError(f"{segments} segments have more than {MAX_BYTES} bytes of offsets")
    if offsets.name not in OFFSETS:
        raise TypeError(f"offsets are int32 or int64, not {offsets}")
    reduction = operators.resolve(op, initial=initial, **options)
    if reduction.second is not None:
        raise UnsupportedError(f"{reduction.name} takes two arrays; segments are of one")
    types = reduction.types(element, accumulate, result_dtype)
    context = Context.of(context)
    text = operator_text(reduction, types)
    multiprocessors = context.multiprocessor_count
    groups = _groups_of_a_warp(length, segments, element.itemsize, multiprocessors)
    sources = segment_kernel_sources(text, offsets.name, groups)
    kernels = tuple(load_kernel(source, context.device.architecture) for source in sources) if segments else ()
    programmatic = context.device.compute_capability >= (9, 0)
    threads = segment_blocks(text.accumulator_bytes)
    tile = threads[1] // LANES * element.leaf
    grids = (
        -(-segments // (threads[0] * groups)),
        _blocks_of_long(length, segments, element.leaf, tile, multiprocessors),
    )
    launches = []
    for loaded, blocks, size in zip(kernels, grids, threads, strict=False):
        config = LaunchConfig(blocks, size, programmatic_stream_serialization=programmatic)
        check_launch(loaded.kernel, config, context)
        launches.append(MappedKernel(loaded, config, 0))
    slot = slot_bytes(text.accumulator_bytes)
    return SegmentedPlan(reduction, types, length, segments, offsets, context, tuple(launches), slot, tile)
