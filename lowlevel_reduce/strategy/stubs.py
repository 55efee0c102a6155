"""The stubs that Python generates for kernels: types, constants and one entry that calls code of cuda_src."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from lowlevel_reduce.dtypes import LANES
from lowlevel_reduce.strategy.base import MOST_THREADS, WARPS, Loads, RowStrategy
from lowlevel_reduce.strategy.whole import PORTABLE_CLUSTER, REGISTERS_PER_MULTIPROCESSOR, Strategy

__all__ = [
    "ANYWHERE",
    "CHUNK_WARPS",
    "OPTIONS",
    "KernelSource",
    "OperatorText",
    "chunks_kernel_source",
    "kernel_sources",
    "partials_kernel_source",
    "parts_kernel_source",
    "row_kernel_source",
    "segment_blocks",
    "segment_kernel_sources",
    "with_twins",
]

OPTIONS = (
    # A product and a sum are rounded separately, as in NumPy.
    "-fmad=false",
    # Leave out the declarations of textures, of launches from kernels and of the runtime's functions: none is used, and
    # NVRTC would read them before every kernel. NVRTC has this option from 12.4 on: every version supported here.
    "--minimal",
)
"""The options that every kernel is compiled with, besides the compiler layer's own."""

ANYWHERE = "_anywhere"
"""What the names of kernels for arrays at any address end with, where there are others for aligned ones."""

_PARTIALS_WARPS = 16

CHUNK_WARPS = 16
"""The most warps of a block that folds chunks at once, a warp a leaf: as many as one warp folds in few steps."""

_ROWS_OF_PARTS = 4
"""Rows whose partials a block folds, a warp each, where rows have few chunks."""

_SHORT_SEGMENTS = 128
"""Threads in a block of the first segment kernel: `short_segment_warps` in cuda_src."""

_KERNELS = {
    "block": ("whole/reduce_cluster.cuh", "reduce_cluster<Op, {warps}, 1, {in_turns}, Begin::{begin}>"),
    "cluster": ("whole/reduce_cluster.cuh", "reduce_cluster<Op, {warps}, {cluster}, {in_turns}, Begin::{begin}>"),
    "tiles": ("whole/reduce_tiles.cuh", "reduce_tiles<Op, {warps}, {cluster}, Begin::{begin}>"),
    "few_tiles": ("whole/reduce_tiles.cuh", "reduce_tiles<Op, {warps}, {cluster}, Begin::{begin}, true>"),
    "first_pass": ("whole/reduce_two_pass.cuh", "reduce_first_pass<Op, {warps}>"),
    "whole": ("whole/reduce_anywhere.cuh", "reduce_anywhere<Op, {warps}, {cluster}>"),
    "second_pass": ("whole/reduce_two_pass.cuh", "reduce_second_pass<Op, {warps}>"),
    "cooperative": ("whole/reduce_cooperative.cuh", "reduce_cooperative<Op, {warps}>"),
    "partials": ("whole/reduce_partials.cuh", "reduce_partials<Op, {warps}>"),
    "short_rows": ("rows/reduce_short_rows.cuh", "reduce_short_rows<Op, {lie}Rows>"),
    "rows": ("rows/reduce_rows.cuh", "reduce_rows<Op, {lie}Rows>"),
    "at_once": ("rows/reduce_at_once.cuh", "reduce_at_once<Op, {lie}Rows>"),
    "batch": ("rows/reduce_batch.cuh", "reduce_batch<Op, {lie}Rows, {warps}>"),
    "elements": ("rows/reduce_elements.cuh", "reduce_elements<Op>"),
    "columns": ("columns/reduce_columns.cuh", "reduce_columns<Op, {width}, {at_once}, {straight}, Begin::{begin}>"),
    "parts": ("parts/reduce_parts.cuh", "reduce_parts<Op, {warps_of_a_row}>"),
    "chunks": ("parts/reduce_chunks.cuh", "reduce_chunks<Op, {warps}, Begin::{begin}>"),
    "short_segments": ("segments/reduce_short_segments.cuh", "reduce_short_segments<Op, {offsets}, {groups}>"),
    "long_segments": ("segments/reduce_long_segments.cuh", "reduce_long_segments<Op, {offsets}>"),
}
"""By the kernel's name, its header and what its entry calls; `warps` are those of the largest block."""

_ARGUMENTS = {
    "short_rows": "ShortRowsProblem",
    **dict.fromkeys(("rows", "at_once", "batch", "elements", "columns"), "ShapedProblem"),
    **dict.fromkeys(("short_segments", "long_segments"), "SegmentProblem"),
    "partials": "PartialsProblem",
    "parts": "PartsProblem",
    "chunks": "ChunksProblem",
}
"""The types of arguments that are more than a `Problem`."""

_ALIGNED = ("block", "cluster", "tiles", "few_tiles")
"""The kernels for whole arrays that begin at multiples of 16 bytes; the others take any address."""

_ANYWHERE_WARPS, _ANYWHERE_WIDE_WARPS, _ANYWHERE_REGISTERS = 16, 8, 64
"""The warps of the largest block that the twin of these is compiled for, and a thread's registers, twice as many with
wide accumulators. What else a caller forces has a twin of its own."""

_REMEMBERED = 256
"""So many sources are remembered of each kind of problem: a process has a few for each operator and types."""


class KernelSource(NamedTuple):
    """One entry's name and the text to compile.

    Attributes
    ----------
    entry, text : str
        The name and the text.
    spare : tuple of str
        The text for fewer and fewer blocks per multiprocessor, and so more registers per thread: alternatives for when
        the compiler spills.
    twin : KernelSource or None
        The kernel that does the same for arrays at any address; None if this one does.
    """

    entry: str
    text: str
    spare: tuple[str, ...] = ()
    twin: KernelSource | None = None


class OperatorText(NamedTuple):
    """An operator in CUDA C++.

    Attributes
    ----------
    label : str
        An identifier for operator and types, e.g. ``"sum_float32_float64_float32"``: entries' names start with it.
    type : str
        The struct, as C++ names it.
    accumulator_bytes : int
        The accumulator's size as the host knows it; compilation fails if the struct's is another.
    declaration : str
        Code that must precede the first use of the struct.
    heavy : bool
        Whether a thread needs more than 64 registers or so.
    two_arrays : bool
        Whether the operator also reads a second array.
    wide : bool
        Whether a thread that folds eight vectors at once needs more registers than a full block leaves it.
    """

    label: str
    type: str
    accumulator_bytes: int
    declaration: str = ""
    heavy: bool = False
    two_arrays: bool = False
    wide: bool = False


def kernel_sources(operator: OperatorText, strategy: Strategy) -> tuple[KernelSource, ...]:
    """Return the kernels of a strategy for a whole array, in launch order."""
    name, warps, cluster = strategy.name, strategy.warps, strategy.cluster
    if name in ("block", "cluster"):  # one kernel each for all sizes that small arrays are given
        warps, cluster = max(warps, WARPS), max(cluster, PORTABLE_CLUSTER)
    if strategy.few_partials and (operator.accumulator_bytes <= 8 or not operator.wide):  # else all tiles are small
        name = "few_tiles"
    return _whole_sources(operator, name, warps, cluster, strategy.tiles_per_block > 1, strategy.resident_blocks)


@lru_cache(maxsize=_REMEMBERED)
def _whole_sources(
    operator: OperatorText, strategy: str, warps: int, cluster: int, in_turns: bool, resident_blocks: int
) -> tuple[KernelSource, ...]:
    def source(kernel: str, end: str = "", begin: str = "aligned") -> KernelSource:
        bounds = (warps * LANES, resident_blocks)
        return _source(operator, kernel, bounds, end, cluster=cluster, in_turns=str(in_turns).lower(), begin=begin)

    if strategy == "two_pass":
        return source("first_pass"), source("second_pass")
    aligned = source(strategy)
    if strategy not in _ALIGNED:
        return (aligned,)
    most = _ANYWHERE_WIDE_WARPS if operator.wide else _ANYWHERE_WARPS
    if not in_turns and warps <= most and cluster <= (1 if strategy in ("tiles", "few_tiles") else PORTABLE_CLUSTER):
        return (aligned._replace(twin=_whole_anywhere(operator, most)),)
    return (aligned._replace(twin=source(strategy, ANYWHERE, "anywhere")),)


@lru_cache(maxsize=_REMEMBERED)
def _whole_anywhere(operator: OperatorText, warps: int) -> KernelSource:
    """Return the twin of the kernels for whole arrays that are chosen unasked."""
    registers = _ANYWHERE_REGISTERS * (1 + (operator.accumulator_bytes > 8 or operator.wide))
    bounds = (warps * LANES, REGISTERS_PER_MULTIPROCESSOR // (registers * warps * LANES))
    return _source(operator, "whole", bounds, ANYWHERE, cluster=PORTABLE_CLUSTER)


def row_kernel_source(operator: OperatorText, strategy: RowStrategy) -> KernelSource:
    """Return the kernel of a strategy for rows or columns."""
    resident_blocks, kernel = strategy.resident_blocks, strategy.kernel
    if kernel == "columns":
        return _column_source(
            operator, strategy.loads, strategy.straight, strategy.wide, strategy.aligned, resident_blocks
        )
    bounds = (strategy.most_warps, resident_blocks)
    if kernel == "elements":
        return _row_source(operator, kernel, True, False, bounds, bounds)
    anywhere = strategy.anywhere_bounds or bounds
    return _row_source(operator, kernel, strategy.contiguous, strategy.aligned, bounds, anywhere)


@lru_cache(maxsize=_REMEMBERED)
def _row_source(
    operator: OperatorText,
    kernel: str,
    contiguous: bool,
    aligned: bool,
    bounds: tuple[int, int],
    anywhere_bounds: tuple[int, int],
) -> KernelSource:
    def source(kernel: str, end: str, lie: str, bounds: tuple[int, int] = bounds) -> KernelSource:
        warps, resident_blocks = bounds
        return _source(operator, kernel, (warps * LANES, resident_blocks), end, lie=lie)

    if kernel == "elements":
        return source(kernel, "", "")
    if not contiguous:
        return source(kernel, "_strided", "Strided")
    of_any = "rows" if kernel == "at_once" else kernel  # at any address the former takes the latter's launches
    anywhere = source(of_any, ANYWHERE, "Contiguous", anywhere_bounds)
    return source(kernel, "", "Aligned")._replace(twin=anywhere) if aligned else anywhere


@lru_cache(maxsize=_REMEMBERED)
def _column_source(
    operator: OperatorText, loads: Loads, straight: bool, wide: bool, aligned: bool, resident_blocks: int
) -> KernelSource:
    def source(end: str, straight: bool, begin: str) -> KernelSource:
        bounds, is_straight = (MOST_THREADS, resident_blocks), str(straight).lower()
        return _source(operator, "columns", bounds, end, **loads._asdict(), straight=is_straight, begin=begin)

    straight = straight and not wide  # of wide loads the kernel for several reduced axes takes any address
    anywhere = source(f"{'' if straight else '_strided'}{'_wide' if wide else ''}", straight, "anywhere")
    return source("_wide", True, "aligned")._replace(twin=anywhere) if aligned else anywhere


def with_twins(sources: Iterable[KernelSource]) -> tuple[KernelSource, ...]:
    """Return kernels, each with its twin behind it if it has one."""
    return tuple(each for source in sources for each in (source, source.twin) if each is not None)


def partials_kernel_source(operator: OperatorText) -> tuple[KernelSource, int]:
    """Return the kernel that folds the partials of an array's chunks in one block, and the threads of that block."""
    threads = _PARTIALS_WARPS * LANES
    return _source(operator, "partials", (threads, 1)), threads


def parts_kernel_source(operator: OperatorText, *, alone: bool) -> tuple[KernelSource, int, int]:
    """Return the kernel that folds each row's partials of a whole in parts, its block's threads, and rows of a block.

    With `alone` a warp folds a row, else a block of sixteen warps.
    """
    warps, rows, end = (1, _ROWS_OF_PARTS, "_of_short_rows") if alone else (_PARTIALS_WARPS, 1, "")
    threads = warps * rows * LANES
    return _source(operator, "parts", (threads, 1), end, warps_of_a_row=warps), threads, rows


def chunks_kernel_source(operator: OperatorText) -> KernelSource:
    """Return the kernel for all chunks of a part, of at most `CHUNK_WARPS` leaves each, and its twin."""
    bounds = (CHUNK_WARPS * LANES, 2)
    twin = _source(operator, "chunks", bounds, ANYWHERE, begin="anywhere")
    return _source(operator, "chunks", bounds, begin="aligned")._replace(twin=twin)


def segment_blocks(accumulator_bytes: int) -> tuple[int, int]:
    """Return the threads in a block of each segment kernel; `tile_warps` in cuda_src determines those of the second."""
    return _SHORT_SEGMENTS, 512 if accumulator_bytes <= 8 else 256


def segment_kernel_sources(operator: OperatorText, offsets: str, groups: int = 1) -> tuple[KernelSource, ...]:
    """Return the two kernels of a segmented reduction, in launch order.

    `offsets` is the offsets' type; a warp of the first kernel folds `groups` times thirty-two segments.
    """
    wide = operator.accumulator_bytes > 8
    short, long = segment_blocks(operator.accumulator_bytes)
    # Short segments compute a lot between two loads, which more warps hide; long ones always have loads in flight.
    of_short, of_long = 4 if operator.heavy or wide else 8, 1 if operator.heavy and not wide else 2
    return (
        _source(operator, "short_segments", (short, of_short), offsets=offsets, groups=groups),
        _source(operator, "long_segments", (long, of_long), offsets=offsets),
    )


def _source(
    operator: OperatorText, kernel: str, bounds: tuple[int, int], end: str = "", **arguments: object
) -> KernelSource:
    """Return a kernel for blocks of so many threads, of which so many fit on a multiprocessor; `end` ends its name."""
    threads, most = bounds
    header, call = _KERNELS[kernel]
    entry = f"{operator.label}_{kernel}{end}"
    text, *spare = (
        f"""\
#include "operators.cuh"
#include "{header}"
{operator.declaration}
using Op = {operator.type};
static_assert(sizeof(Op::Accumulator) == {operator.accumulator_bytes}, "the accumulator's size");
extern "C" __global__ void __launch_bounds__({threads}, {blocks})
{entry}(const __grid_constant__ {_ARGUMENTS.get(kernel, "Problem")} problem)
{{
    {call.format(warps=threads // LANES, **arguments)}(problem);
}}
"""
        for blocks in range(most, 0, -1)
    )
    return KernelSource(entry, text, tuple(spare))
