"""The argument of a kernel, field by field: what a problem's shape and strategy put there, and its types' letters."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from lowlevel_reduce.dtypes import LANE_BITS, LANES, STEP_BITS, VECTOR_BYTES
from lowlevel_reduce.layout import MAX_AXES, Axis, Problem
from lowlevel_reduce.strategy.base import ArgumentKind, RowStrategy, short_row_bits

__all__ = ["FIELDS", "matrix_words", "put_matrix", "put_whole", "reciprocal", "shape_values", "short_row_values",
           "signature"]  # fmt: skip

FIELDS = ("elements", "result", "second", "workspace", "device_length", "length", "rows", "count", "initial0",
          "initial1")  # fmt: skip
"""The fields of `Problem` in tree/source.cuh, 8 bytes each: every entry's argument is, or starts with, a `Problem`.
A call sets the first three."""

_SHAPE = "QqQQ" + "QQ" + "QQqqq" * MAX_AXES + "Q" * MAX_AXES * 2 + "q" * MAX_AXES * 2 + "qqQQQQQ"
"""What `ShapedProblem` in cuda_src/columns/shape.cuh adds, as letters of `BoundKernel`'s signature."""

_WORD_BYTES = 8

_others = f"{_WORD_BYTES * (MAX_AXES - 1)}x"
_none = f"{_WORD_BYTES * MAX_AXES}x"  # pad bytes are zero: faster than a zero that is given
_of_matrix = struct.Struct(f"=2Q8xQ 8x5Q QqQ8x 2Q Q8xq8xq{5 * _others} Q{_others} {_none} q{_others} {_none} 8xq Q8x3Q")
_put_matrix, _matrix_bytes = _of_matrix.pack_into, _of_matrix.size
_put_whole = struct.Struct("=2Q8xQ 8x5Q").pack_into
"""They put a whole argument in place: four addresses, and the fields after the workspace, and of a matrix those of
`_SHAPE` for one kept and one reduced axis."""

_ADDRESSES_BYTES = 4 * _WORD_BYTES

_HALF = (1 << 32) - 1

_FAR_BYTES = 1 << 31
"""Elements of a row that lie closer than this are *near* each other: `Axes.near_offsets` in columns/axes.cuh."""

_ADDED: Mapping[ArgumentKind, str] = {
    "whole": "",
    "shaped": _SHAPE,
    "short_rows": _SHAPE + "QQ" + "Q" * (2 * STEP_BITS) + "qq",
    "segments": "qqQQ",
    "partials": "Q",
    "parts": "Q" * 9,
    "chunks": "Q" * 3,
}
"""What `ShortRowsProblem` and others in cuda_src, where their entries' headers are, add to `Problem`."""

_SIGNATURES = {kind: "Q" * len(FIELDS) + added for kind, added in _ADDED.items()}


def signature(kind: ArgumentKind) -> str:
    """Return the type letters of an entry's argument, one for each field, as `BoundKernel` takes them."""
    return _SIGNATURES[kind]


def shape_values(
    problem: Problem, joined: int = 1, run: int = 1, folders: int = 0, results: tuple[Axis, ...] = ()
) -> tuple[int, ...]:
    """Return the fields that `ShapedProblem` adds; `joined`, `run` and `folders` are of `RowStrategy`.

    `results` are the axes of the results, if the kept ones are those of memory alone.
    """
    kept, reduced = problem.kept, problem.reduced
    apart = second_apart = reach = second_reach = 0
    for axis in (*kept, *reduced[1:]):
        apart |= axis.stride
        second_apart |= axis.second_stride
    for axis in reduced:
        reach += (axis.size - 1) * abs(axis.stride)
        second_reach += (axis.size - 1) * abs(axis.second_stride)
    far = max(reach, second_reach) >= _FAR_BYTES
    strides = [axis.result_stride for axis in results or kept]
    permuted = 0
    if joined > 1 or strides != sorted(strides):
        permuted = len(strides) << 32 | (len(kept) if results else 0)
    innermost = reduced[0] if reduced else Axis(0, 0)
    return (
        _with_stride(apart, kept[0].stride if kept else 0), innermost.stride, innermost.size,
        second_apart % VECTOR_BYTES, *_axes(kept, reduced, results),
        problem.low, problem.high, int(far), permuted, joined, run, folders,
    )  # fmt: skip


def _with_stride(bits: int, stride: int) -> int:
    """Return the word `apart` of a `ShapedProblem`: strides' lowest bits, and above them the innermost kept axis's."""
    return bits % VECTOR_BYTES | (stride & _HALF) << 32


def matrix_words(
    rows: int, length: int, apart: int, step: int, itemsize: int, count: int, initial: tuple[int, int], folders: int
) -> bytes:
    """Return the fields after the workspace of a `ShapedProblem`, of what `layout.matrix_of` returned, as bytes.

    They are what `shape_values` says of `layout.matrix_problem`, in a fifth of the time.
    """
    words = bytearray(_matrix_bytes)
    put_matrix(words, 0, 0, 0, (rows, length, apart, step), itemsize, count, initial, folders)
    return bytes(words[_ADDRESSES_BYTES:])


def put_matrix(
    words: Any, source: int, result: int, workspace: int, matrix: tuple[int, int, int, int], itemsize: int, count: int,
    initial: tuple[int, int], folders: int,
) -> None:  # fmt: skip
    """Put a whole argument of a `ShapedProblem` in place, of one array: its addresses, and what `matrix_words` says."""
    rows, length, apart, step = matrix
    first, last = initial
    reach = (length - 1) * step
    _put_matrix(
        words, 0, source, result, workspace, length, rows, count, first, last,
        _with_stride(apart, apart), step, length, 1, 1, rows, apart, 1, length, step,
        reach + (rows - 1) * apart + itemsize, reach >= _FAR_BYTES, 1, 1, folders,
    )  # fmt: skip


def put_whole(
    words: Any, source: int, result: int, workspace: int, length: int, count: int, initial: tuple[int, int]
) -> None:
    """Put a whole argument of a whole array in place: its addresses, and the fields of `Problem` after these."""
    first, last = initial
    _put_whole(words, 0, source, result, workspace, length, 1, count, first, last)


def short_row_values(problem: Problem, strategy: RowStrategy, itemsize: int, second_itemsize: int) -> tuple[int, ...]:
    """Return the fields that `ShortRowsProblem` adds to `ShapedProblem`: what would cost the kernel instructions.

    `second_itemsize` is 0 without a second array.
    """
    levels, vector = strategy.levels, VECTOR_BYTES // itemsize
    lane_bits, step_bits = min(levels, LANE_BITS), max(levels - LANE_BITS, 0)
    in_flight = STEP_BITS - (second_itemsize > 0)  # log2 of a lane's vectors
    row_bits = short_row_bits(levels, two_arrays=second_itemsize > 0, halved=strategy.halved)
    held_bits = row_bits + levels - LANE_BITS
    of_pass, exchanged = min(held_bits, in_flight), min(lane_bits, in_flight - min(step_bits, in_flight))
    among = (1 << (exchanged - (strategy.halved and levels >= in_flight))) - 1
    kept = problem.kept[0] if problem.kept else Axis(1, 0)

    def apart(step_bytes: int, row_bytes: int) -> tuple[int, ...]:
        group_bytes = row_bytes << (LANE_BITS - lane_bits)
        bytes_apart = (step_bytes << j if j < step_bits else group_bytes << (j - step_bits) for j in range(STEP_BITS))
        return tuple(each % (1 << 64) for each in bytes_apart)  # of rows that are not there, it may be anything

    in_part = int(-(-problem.length // vector) != 1 << levels)
    present, idle = (1 << (1 << of_pass)) - 1, (1 << lane_bits) - 1 - among
    rows = held_bits, row_bits, strategy.warps, in_part
    held = present, among, idle, 1 << of_pass >> min(levels, of_pass)
    return (
        _bytes(levels, lane_bits, step_bits, LANE_BITS - lane_bits, *rows),
        (problem.rows >> row_bits) // strategy.warps | _bytes(*held) << 32,
        *apart(LANES * VECTOR_BYTES, kept.stride),
        *apart(LANES * vector * second_itemsize, kept.second_stride),
        *(_second_bounds(problem, second_itemsize) if second_itemsize else (0, 0)),
    )


def _second_bounds(problem: Problem, itemsize: int) -> tuple[int, int]:
    """Return the second array's `low` and `high`, as `Problem` has the first one's."""
    reaches = [axis.second_stride * (axis.size - 1) for axis in (*problem.kept, *problem.reduced)]
    return sum(reach for reach in reaches if reach < 0), sum(reach for reach in reaches if reach > 0) + itemsize


def _bytes(*values: int) -> int:
    """Return the word in whose bytes these values are, the first of them in the lowest."""
    return int.from_bytes(bytes(values), "little")


def _axes(kept: Sequence[Axis], reduced: Sequence[Axis], results: Sequence[Axis]) -> tuple[int, ...]:
    """Return the fields of both: how many there are, kept ones axis by axis, and reduced ones word by word.

    Axes of the results stand behind the kept ones.
    """
    beside = [word for axis in _words((*kept, *results)) for word in axis]
    return (len(kept), len(reduced), *beside, *[axis[kind] for kind in range(4) for axis in _words(reduced)])


def _words(axes: Sequence[Axis]) -> list[tuple[int, ...]]:
    """Return the words of each axis, and of those that are not there; by an outermost one nothing is divided."""
    words: list[tuple[int, ...]] = [
        (size, reciprocal(size) if number < len(axes) else 0, stride, second_stride, result_stride)
        for number, (size, stride, second_stride, result_stride) in enumerate(axes, 1)
    ]
    return words + [(0,) * 5] * (MAX_AXES - len(axes))


def reciprocal(size: int) -> int:
    """Return the word that indices are multiplied by in place of a division by `size`: `Axes` in columns/shape.cuh.

    Only a problem without elements has axes of less than two, by which nothing is divided.
    """
    return -(-(1 << (63 + (size - 1).bit_length())) // size) if size > 1 else 0
