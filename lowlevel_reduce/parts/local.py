"""What one rank launches for its part: the partials of its whole chunks, and that of the chunk that the rows end in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.parts.all_chunks import all_chunks_plan, suits
from lowlevel_reduce.parts.combining import PARTIAL_DTYPE
from lowlevel_reduce.plans.array import plan

if TYPE_CHECKING:
    from lowlevel_reduce.driver import Context
    from lowlevel_reduce.operators import Reduction, Types
    from lowlevel_reduce.parts.cut import Place
    from lowlevel_reduce.parts.placed import PlacedLaunch
    from lowlevel_reduce.plans.array import Plan
    from lowlevel_reduce.plans.base import BasePlan
    from lowlevel_reduce.plans.launch import BoundReduction

__all__ = ["Piece", "launch_all", "pieces_of", "pivot_plan"]


class Piece(NamedTuple):
    """One launch of a part, and where its arrays begin in bytes: in the part, behind the share's tag, in the second."""

    plan: BasePlan
    source: int
    result: int
    second: int


def launch_all(
    launches: Iterable[tuple[BoundReduction | PlacedLaunch, int, int, int]], source: int, second: int | None
) -> None:
    """Launch pieces, each bound and with where its arrays begin: in the part, at which address, in the second one."""
    for launch, start, place, apart in launches:
        launch(source + start, place, None if second is None else second + apart)


def pieces_of(
    reduction: Reduction,
    dtype: Any,
    kept: tuple[int, int],
    place: Place,
    chunk: int,
    context: Context,
    *,
    head: int = 0,
) -> list[Piece]:
    """Return the launches for the chunks of a contiguous part of shape ``(kept[0], place.length, kept[1])``.

    `reduction` is that of `rooted_for`. The partials of whole chunks come first, those of a row beside each other, or
    of neighbouring rows where ``kept[1]`` is not 1: as ``(kept[0], place.whole, kept[1])``. Those of the rest follow in
    memory, but are launched first: the launch of the whole chunks begins while that of the little rest runs, and not
    the other way round. Where one launch does for both, it is one. The first `head` elements of every row are left out.

    Raises
    ------
    UnsupportedError, CompileError, NoCompilerError, NoDriverError, CacheError
        As `lowlevel_reduce.plan`.
    """
    before, behind = kept
    rows, element = before * behind, element_type(dtype)
    if rows == 0 or place.length == 0:
        return []
    if suits(reduction, dtype, kept, place, chunk):
        return [Piece(all_chunks_plan(reduction, dtype, rows, place, chunk, context), head * element.itemsize, 0, 0)]
    second = reduction.second_dtype(element) if reduction.two_arrays else None
    is_pivot = reduction.second == "operand" and "about_second" in reduction.label
    step = element.itemsize
    row = behind * step
    found = []
    for shape, start in (((before, place.whole, chunk, behind), 0), ((before, 1, place.rest, behind), place.whole)):
        if shape[1] * shape[2] == 0:
            continue
        strides = (place.length * row, chunk * row, row, step)
        seconds, second_start = None, 0
        if second is not None:
            size = second.itemsize
            seconds = tuple(stride // step * size for stride in strides)
            second_start = (head + start * chunk) * behind * size
        if second is not None and is_pivot:
            seconds, second_start = (behind * second.itemsize, 0, 0, second.itemsize), 0
        made = plan(
            reduction,
            shape=shape,
            axis=2,
            dtype=element.dtype,
            strides_bytes=strides,
            second_strides_bytes=seconds,
            context=context,
        )
        size_bytes = reduction.results * PARTIAL_DTYPE.itemsize
        found.append(Piece(made, (head + start * chunk) * row, start * rows * size_bytes, second_start))
    return found[::-1]


def pivot_plan(types: Types, kept: tuple[int, int], length: int, context: Context) -> Plan:
    """Return the plan that copies each row's first element from a contiguous part of rows of `length` elements.

    It is the reduction of one element: the extreme of it has its bits, and of a complex number the sum has.
    """
    element = types.element
    before, behind = kept
    row = behind * element.itemsize
    strides = (length * row, row, element.itemsize)
    op = "sum" if element.is_complex else "max"
    return plan(
        op,
        shape=(before, 1, behind),
        axis=1,
        dtype=element.dtype,
        result_dtype=element.dtype,
        strides_bytes=strides,
        context=context,
    )
