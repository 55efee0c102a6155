"""The stubs that Python generates for kernels: types, constants and one entry that calls code of cuda_src."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from lowlevel_reduce.dtypes import LANE_BITS, LANES, STEP_BITS, VECTOR_BYTES
from lowlevel_reduce.layout import MAX_AXES, Axis, Problem
from lowlevel_reduce.strategy.base import MOST_THREADS, WARPS, ArgumentKind, Loads, RowStrategy, short_row_bits
from lowlevel_reduce.strategy.whole import PORTABLE_CLUSTER, REGISTERS_PER_MULTIPROCESSOR, Strategy

__all__ = [
    "ANYWHERE",
    "FIELDS",
    "OPTIONS",
    "ArgumentKind",
    "KernelSource",
    "OperatorText",
    "kernel_sources",
    "partials_kernel_source",
    "parts_kernel_source",
    "row_kernel_source",
    "segment_blocks",
    "segment_kernel_sources",
    "shape_values",
    "short_row_values",
    "signature",
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

FIELDS = ("elements", "result", "second", "workspace", "device_length", "length", "rows", "count", "initial0",
          "initial1")  # fmt: skip
"""The fields of `Problem` in tree/source.cuh, 8 bytes each: every entry's argument is, or starts with, a `Problem`.
A call sets the first three."""

ANYWHERE = "_anywhere"
"""What the names of kernels for arrays at any address end with, where there are others for aligned ones."""

_AXES = "Q" + "Q" * MAX_AXES * 2 + "q" * MAX_AXES * 2
_SHAPE = "qqQQQQ" + _AXES + _AXES + "q" * MAX_AXES
"""What `ShapedProblem` in cuda_src/columns/shape.cuh adds, as letters of `BoundKernel`'s signature."""

_NO_AXES = tuple((0,) * (MAX_AXES - axes) for axes in range(MAX_AXES + 1))
"""By the number of axes, the fields of those that are not there."""

_NO_AXIS, _NONE = Axis(0, 0), _NO_AXES[1]

_FAR_BYTES = 1 << 31
"""Elements of a row that lie closer than this are *near* each other: `Axes.near_offsets` in columns/axes.cuh."""

_ADDED: Mapping[ArgumentKind, str] = {
    "whole": "",
    "shaped": _SHAPE,
    "short_rows": _SHAPE + "Q" * (13 + 2 * STEP_BITS),
    "segments": "qqQQ",
    "partials": "Q",
    "parts": "Q" * 9,
}
"""What `ShortRowsProblem` and others in cuda_src, where their entries' headers are, add to `Problem`."""

_SIGNATURES = {kind: "Q" * len(FIELDS) + added for kind, added in _ADDED.items()}

_PARTIALS_WARPS = 16

_ROWS_OF_PARTS = 4
"""Rows whose partials a block folds, a warp each, where rows have few chunks."""

_SHORT_SEGMENTS = 128
"""Threads in a block of the first segment kernel: `short_segment_warps` in cuda_src."""

_FLAT = {
    "block": ("whole/reduce_cluster.cuh", "reduce_cluster<Op, {warps}, 1, {in_turns}, Begin::{begin}>"),
    "cluster": ("whole/reduce_cluster.cuh", "reduce_cluster<Op, {warps}, {cluster}, {in_turns}, Begin::{begin}>"),
    "tiles": ("whole/reduce_tiles.cuh", "reduce_tiles<Op, {warps}, {cluster}, Begin::{begin}>"),
    "few_tiles": ("whole/reduce_tiles.cuh", "reduce_tiles<Op, {warps}, {cluster}, Begin::{begin}, true>"),
    "first_pass": ("whole/reduce_two_pass.cuh", "reduce_first_pass<Op, {warps}>"),
    "whole": ("whole/reduce_anywhere.cuh", "reduce_anywhere<Op, {warps}, {cluster}>"),
    "second_pass": ("whole/reduce_two_pass.cuh", "reduce_second_pass<Op, {warps}>"),
    "cooperative": ("whole/reduce_cooperative.cuh", "reduce_cooperative<Op, {warps}>"),
}
_ALIGNED = ("block", "cluster", "tiles", "few_tiles")
"""The kernels for whole arrays that begin at multiples of 16 bytes; the others take any address."""

_ANYWHERE_WARPS, _ANYWHERE_WIDE_WARPS, _ANYWHERE_REGISTERS = 16, 8, 64
"""The warps of the largest block that the twin of these is compiled for, and a thread's registers, twice as many with
wide accumulators. What else a caller forces has a twin of its own."""

_ROWS = {
    "short_rows": ("rows/reduce_short_rows.cuh", "reduce_short_rows<Op, {lie}>"),
    "rows": ("rows/reduce_rows.cuh", "reduce_rows<Op, {lie}>"),
    "at_once": ("rows/reduce_at_once.cuh", "reduce_at_once<Op, {lie}>"),
    "batch": ("rows/reduce_batch.cuh", "reduce_batch<Op, {lie}, {warps}>"),
}

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
    if strategy.few_partials and operator.accumulator_bytes <= 8:
        name = "few_tiles"
    return _whole_sources(operator, name, warps, cluster, strategy.tiles_per_block > 1, strategy.resident_blocks)


@lru_cache(maxsize=_REMEMBERED)
def _whole_sources(
    operator: OperatorText, strategy: str, warps: int, cluster: int, in_turns: bool, resident_blocks: int
) -> tuple[KernelSource, ...]:
    def source(name: str, entry: str, begin: str) -> KernelSource:
        header, call = _FLAT[name]
        body = call.format(warps=warps, cluster=cluster, in_turns=str(in_turns).lower(), begin=begin)
        return _source(operator, entry, header, body, "Problem", (warps * LANES, resident_blocks))

    if strategy == "two_pass":
        return tuple(source(name, name, "") for name in ("first_pass", "second_pass"))
    aligned = source(strategy, strategy, "aligned")
    if strategy not in _ALIGNED:
        return (aligned,)
    most = _ANYWHERE_WIDE_WARPS if operator.wide else _ANYWHERE_WARPS
    if not in_turns and warps <= most and cluster <= (1 if strategy in ("tiles", "few_tiles") else PORTABLE_CLUSTER):
        return (aligned._replace(twin=_whole_anywhere(operator, most)),)
    return (aligned._replace(twin=source(strategy, f"{strategy}{ANYWHERE}", "anywhere")),)


@lru_cache(maxsize=_REMEMBERED)
def _whole_anywhere(operator: OperatorText, warps: int) -> KernelSource:
    """Return the twin of the kernels for whole arrays that are chosen unasked."""
    header, call = _FLAT["whole"]
    body = call.format(warps=warps, cluster=PORTABLE_CLUSTER)
    registers = _ANYWHERE_REGISTERS * (1 + (operator.accumulator_bytes > 8 or operator.wide))
    bounds = (warps * LANES, REGISTERS_PER_MULTIPROCESSOR // (registers * warps * LANES))
    return _source(operator, f"whole{ANYWHERE}", header, body, "Problem", bounds)


def row_kernel_source(operator: OperatorText, strategy: RowStrategy) -> KernelSource:
    """Return the kernel of a strategy for rows or columns."""
    resident_blocks, aligned = strategy.resident_blocks, strategy.aligned
    if strategy.name == "columns":
        straight, wide = strategy.straight, strategy.wide
        return _column_source(operator, strategy.loads, straight, wide, aligned, resident_blocks)
    kernel, contiguous = strategy.kernel, strategy.contiguous
    bounds = (strategy.most_warps, resident_blocks)
    return _row_source(operator, kernel, contiguous, aligned, (bounds, strategy.anywhere_bounds or bounds))


_Bounds = tuple[int, int]


@lru_cache(maxsize=_REMEMBERED)
def _row_source(
    operator: OperatorText, kernel: str, contiguous: bool, aligned: bool, bounds: tuple[_Bounds, _Bounds]
) -> KernelSource:
    def source(kernel: str, end: str, lie: str, bounds: _Bounds = bounds[0]) -> KernelSource:
        header, call = _ROWS[kernel]
        argument = "ShortRowsProblem" if kernel == "short_rows" else "ShapedProblem"
        warps, resident_blocks = bounds
        body = call.format(lie=f"{lie}Rows", warps=warps)
        return _source(operator, f"{kernel}{end}", header, body, argument, (warps * LANES, resident_blocks))

    if not contiguous:
        return source(kernel, "_strided", "Strided")
    if kernel in ("rows", "at_once"):  # at any address the former takes the latter's launches
        anywhere = source("rows", ANYWHERE, "Contiguous", bounds[1])
    else:
        anywhere = source(kernel, ANYWHERE, "Contiguous")
    return source(kernel, "", "Aligned")._replace(twin=anywhere) if aligned else anywhere


@lru_cache(maxsize=_REMEMBERED)
def _column_source(
    operator: OperatorText, loads: Loads, straight: bool, wide: bool, aligned: bool, resident_blocks: int
) -> KernelSource:
    def source(name: str, straight: bool, begin: str) -> KernelSource:
        body = f"reduce_columns<Op, {loads.width}, {loads.at_once}, {str(straight).lower()}, Begin::{begin}>"
        bounds = (MOST_THREADS, resident_blocks)
        return _source(operator, name, "columns/reduce_columns.cuh", body, "ShapedProblem", bounds)

    if aligned:  # the kernel for several reduced axes takes any address
        anywhere = _column_source(operator, loads, False, wide, False, resident_blocks)
        return source("columns_wide", True, "aligned")._replace(twin=anywhere)
    straight = straight and not wide
    return source(f"columns{'' if straight else '_strided'}{'_wide' if wide else ''}", straight, "anywhere")


def with_twins(sources: Iterable[KernelSource]) -> tuple[KernelSource, ...]:
    """Return kernels, each with its twin behind it if it has one."""
    return tuple(each for source in sources for each in (source, source.twin) if each is not None)


def partials_kernel_source(operator: OperatorText) -> tuple[KernelSource, int]:
    """Return the kernel that folds the partials of an array's chunks in one block, and the threads of that block."""
    threads = _PARTIALS_WARPS * 32
    body = f"reduce_partials<Op, {_PARTIALS_WARPS}>"
    return _source(operator, "partials", "whole/reduce_partials.cuh", body, "PartialsProblem", (threads, 1)), threads


def parts_kernel_source(operator: OperatorText, *, alone: bool) -> tuple[KernelSource, int, int]:
    """Return the kernel that folds each row's partials of a whole in parts, its block's threads, and rows of a block.

    With `alone` a warp folds a row, else a block of sixteen warps.
    """
    warps, name = (1, "parts_of_short_rows") if alone else (_PARTIALS_WARPS, "parts")
    threads = _ROWS_OF_PARTS * LANES if alone else warps * LANES
    body = f"reduce_parts<Op, {warps}>"
    source = _source(operator, name, "parts/reduce_parts.cuh", body, "PartsProblem", (threads, 1))
    return source, threads, _ROWS_OF_PARTS if alone else 1


def segment_blocks(accumulator_bytes: int) -> tuple[int, int]:
    """Return the threads in a block of each segment kernel; `tile_warps` in cuda_src determines those of the second."""
    return _SHORT_SEGMENTS, 512 if accumulator_bytes <= 8 else 256


def segment_kernel_sources(operator: OperatorText, offsets: str, groups: int = 1) -> tuple[KernelSource, ...]:
    """Return the two kernels of a segmented reduction, in launch order.

    `offsets` is the offsets' type; a warp of the first kernel folds `groups` times thirty-two segments.
    """
    wide = operator.accumulator_bytes > 8
    threads = segment_blocks(operator.accumulator_bytes)
    # Short segments compute a lot between two loads, which more warps hide; long ones always have loads in flight.
    short = (threads[0], 4 if operator.heavy or wide else 8)
    long = (threads[1], 1 if operator.heavy and not wide else 2)
    return tuple(
        _source(
            operator, name, f"segments/reduce_{name}.cuh", f"reduce_{name}<Op, {arguments}>", "SegmentProblem", bounds
        )
        for name, arguments, bounds in (
            ("short_segments", f"{offsets}, {groups}", short),
            ("long_segments", offsets, long),
        )
    )


def _source(
    operator: OperatorText, name: str, header: str, body: str, problem: str, bounds: tuple[int, int]
) -> KernelSource:
    entry = f"{operator.label}_{name}"
    threads, most = bounds
    texts = [_text(operator, entry, header, body, problem, (threads, blocks)) for blocks in range(most, 0, -1)]
    return KernelSource(entry, texts[0], tuple(texts[1:]))


def _text(operator: OperatorText, entry: str, header: str, body: str, problem: str, bounds: tuple[int, int]) -> str:
    return f"""\
#include "operators.cuh"
#include "{header}"
{operator.declaration}
using Op = {operator.type};
static_assert(sizeof(Op::Accumulator) == {operator.accumulator_bytes}, "the accumulator's size");
extern "C" __global__ void __launch_bounds__({bounds[0]}, {bounds[1]})
{entry}(const __grid_constant__ {problem} problem)
{{
    {body}(problem);
}}
"""


def signature(kind: ArgumentKind) -> str:
    """Return the type letters of an entry's argument, one for each field, as `BoundKernel` takes them."""
    return _SIGNATURES[kind]


def shape_values(problem: Problem) -> tuple[int, ...]:
    """Return the fields that `ShapedProblem` adds."""
    kept, reduced = problem.kept, problem.reduced
    if len(kept) <= 1 and len(reduced) <= 1:  # the same as below, of most problems
        rows, stride, second_stride, result_stride = kept[0] if kept else _NO_AXIS
        length, step, second_step, _ = reduced[0] if reduced else _NO_AXIS
        far = max((length - 1) * abs(step), (length - 1) * abs(second_step)) >= _FAR_BYTES
        return (
            problem.low, problem.high, stride % VECTOR_BYTES, second_stride % VECTOR_BYTES, int(far), 0,
            len(kept), rows, *_NONE, *_NO_AXES[0], stride, *_NONE, second_stride, *_NONE,
            len(reduced), length, *_NONE, *_NO_AXES[0], step, *_NONE, second_step, *_NONE,
            result_stride, *_NONE,
        )  # fmt: skip
    apart = second_apart = reach = second_reach = 0
    for axis in (*kept, *reduced[1:]):
        apart |= axis.stride
        second_apart |= axis.second_stride
    for axis in reduced:
        reach += (axis.size - 1) * abs(axis.stride)
        second_reach += (axis.size - 1) * abs(axis.second_stride)
    far = max(reach, second_reach) >= _FAR_BYTES
    results = [axis.result_stride for axis in kept]
    permuted = int(results != sorted(results))
    return (
        problem.low, problem.high, apart % VECTOR_BYTES, second_apart % VECTOR_BYTES, int(far), permuted,
        *_axes(kept), *_axes(reduced), *results, *_NO_AXES[len(results)],
    )  # fmt: skip


def short_row_values(problem: Problem, strategy: RowStrategy, itemsize: int, second_itemsize: int) -> tuple[int, ...]:
    """Return the fields that `ShortRowsProblem` adds to `ShapedProblem`: what would cost the kernel instructions.

    `second_itemsize` is 0 without a second array.
    """
    levels, vector = strategy.levels, VECTOR_BYTES // itemsize
    lane_bits, step_bits = min(levels, LANE_BITS), max(levels - LANE_BITS, 0)
    in_flight = STEP_BITS - (second_itemsize > 0)  # log2 of a lane's vectors
    row_bits = short_row_bits(levels, two_arrays=second_itemsize > 0)
    held_bits = row_bits + levels - LANE_BITS
    of_pass, exchanged = min(held_bits, in_flight), min(lane_bits, in_flight - min(step_bits, in_flight))
    among = (1 << exchanged) - 1
    kept = problem.kept[0] if problem.kept else Axis(1, 0)

    def apart(step_bytes: int, row_bytes: int) -> tuple[int, ...]:
        group_bytes = row_bytes << (LANE_BITS - lane_bits)
        bytes_apart = (step_bytes << j if j < step_bits else group_bytes << (j - step_bits) for j in range(STEP_BITS))
        return tuple(each % (1 << 64) for each in bytes_apart)  # of rows that are not there, it may be anything

    return (
        levels,
        lane_bits,
        step_bits,
        LANE_BITS - lane_bits,
        held_bits,
        row_bits,
        strategy.warps,
        (problem.rows >> row_bits) // strategy.warps,
        int(-(-problem.length // vector) != 1 << levels),
        (1 << (1 << of_pass)) - 1,
        among,
        (1 << lane_bits) - 1 - among,
        1 << of_pass >> min(levels, in_flight),
        *apart(LANES * VECTOR_BYTES, kept.stride),
        *apart(LANES * vector * second_itemsize, kept.second_stride),
    )


def _axes(axes: Sequence[Axis]) -> tuple[int, ...]:
    rest = _NO_AXES[len(axes)]
    if not axes:
        return (0, *rest * 4)
    sizes, strides, second_strides, _ = zip(*axes, strict=True)
    return (
        len(axes),
        *sizes, *rest,
        *map(_reciprocal, sizes[:-1]), 0, *rest,
        *strides, *rest,
        *second_strides, *rest,
    )  # fmt: skip


def _reciprocal(size: int) -> int:
    """Return the word that indices are multiplied by in place of a division by `size`: `Axes` in columns/shape.cuh.

    Only a problem without elements has axes of less than two, by which nothing is divided.
    """
    return -(-(1 << (63 + (size - 1).bit_length())) // size) if size > 1 else 0
