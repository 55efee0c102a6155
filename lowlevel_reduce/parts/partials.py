"""One array in parts, on one GPU or several: each part's partials, and their fold, with the bits of the whole array.

The tree of an array has a subtree for each chunk, which is a power of two of leaves. Whoever holds whole chunks folds
each of them to the root of its subtree, the partial. The partials of all chunks, in order, fold to the same result that
one GPU computes for the whole array.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lowlevel_reduce.arguments import flag, instance, real
from lowlevel_reduce.arrays.allocator import Allocator
from lowlevel_reduce.arrays.device_array import ArrayView, DeviceArray, view_array
from lowlevel_reduce.arrays.results import Cell, Part
from lowlevel_reduce.calls.execute import launched
from lowlevel_reduce.calls.options import initial_key, key_options
from lowlevel_reduce.calls.places import Place
from lowlevel_reduce.calls.threads import here
from lowlevel_reduce.driver import Buffer, Stream
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.layout import is_contiguous
from lowlevel_reduce.parts.chunks import check_chunk, check_length
from lowlevel_reduce.parts.combining import PARTIAL_DTYPE, CombinePlan, combine_plan, rooted_of
from lowlevel_reduce.parts.padded import ABSENT_BYTE, fold_shares, padded_rows, words_of
from lowlevel_reduce.plans.array import plan
from lowlevel_reduce.plans.base import BasePlan

if TYPE_CHECKING:
    from lowlevel_reduce.operators import ElementMap, Reduction

__all__ = [
    "ChunksPlan",
    "combine_partials",
    "flat_view",
    "fold_of_views",
    "fold_problem",
    "partials",
    "partials_of_views",
    "plain_options",
]


class ChunksPlan(NamedTuple):
    """The plan that makes the partials of some chunks of a shard.

    Attributes
    ----------
    plan : BasePlan
        The plan.
    source, result : int
        Bytes from the beginning of the shard to that of the chunks, and the same of the shard's partials.
    """

    plan: BasePlan
    source: int
    result: int


def partials(
    x: Any,
    op: Any = "sum",
    *,
    chunk: int,
    rows: int | None = None,
    accumulate: str | None = None,
    stream: Any = None,
    nan: str = "propagate",
    where: Any = None,
    second: Any = None,
    first: Any = None,
    last: bool = False,
    map: str | ElementMap | None = None,
    allocator: Allocator | None = None,
) -> DeviceArray:
    """Reduce each chunk of a shard, a part of an array, to its partial; `combine_partials` folds the partials.

    Parameters
    ----------
    x : array
        The shard: contiguous, of any shape, its elements taken in C order. Otherwise as for `lowlevel_reduce.reduce`.
    op : str or Operator
        The operator, or its name; not an operator of your own that uses the index of an element, nor one with a `map`
        that does.
    chunk : int
        Elements of a chunk, e.g. from `chunk_elements`: a power of two of leaves, the same for all shards. The shard
        begins with a chunk, and only the last shard of the array may end within one.
    rows : int, optional
        How many partials to return: the chunks', and absent ones behind them, whose bytes are all 255. With the same
        number on every rank a plain all-gather is right, and `combine_partials` takes what it gives with ``shards=``.
        By default as many as there are chunks.
    where, second : array, optional
        Mask of bool, or second array, of the shard's elements: contiguous, with as many elements.
    first : array, optional
        The whole array's first element, for var, std and mean_var, which are computed about it: an array on this
        device, of which the first element is taken.
    accumulate, stream, nan, last, map, allocator
        As for `lowlevel_reduce.reduce`.

    Returns
    -------
    DeviceArray
        Each chunk's accumulator: uint32 of shape (chunks, words), where words is the accumulator's size in units of 4
        bytes. The content is available in the order of the stream; the host does not wait for it. Gather the partials
        of all shards along the first axis, in the order of the shards, by any means: NCCL, MPI, copies.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, and errors from below
        As `lowlevel_reduce.reduce`; or if `chunk` is not a power of two of leaves, if an array is not contiguous, or if
        the operator cannot be divided into chunks.
    """
    given = [each for each in (where, second, first) if each is not None]
    if len(given) > 1:
        raise ValueError("a reduction takes a mask, a second array or the first element, not several of them")
    if allocator is not None:
        instance(allocator, Allocator, "the allocator")
    options = plain_options(op, accumulate=accumulate, nan=nan, last=last, map=map)
    stream = here().stream_of(stream, x)
    with stream.context.pushed():
        source = flat_view(x, stream, "the shard")
        chunk = check_chunk(chunk, element_type(source.dtype))
        views = (source, *(flat_view(other, stream, "what goes with the shard") for other in given))
        made, _ = partials_of_views(
            op, views, chunk, stream, allocator, is_masked=where is not None, options=options, rows=rows
        )
        return made


def combine_partials(
    partials: Any,
    op: Any = "sum",
    *,
    length: int,
    chunk: int,
    dtype: Any,
    shards: int | None = None,
    result_dtype: Any = None,
    accumulate: str | None = None,
    out: Any = None,
    stream: Any = None,
    nan: str = "propagate",
    where: bool = False,
    first: Any = None,
    initial: Any = None,
    ddof: float = 0,
    last: bool = False,
    map: str | ElementMap | None = None,
    allocator: Allocator | None = None,
) -> Any:
    """Fold the partials of all chunks of an array; the bits are those of `lowlevel_reduce.reduce` of the whole array.

    Parameters
    ----------
    partials : array
        What `partials` returned for all shards, in their order, gathered into one contiguous array: uint32 of shape
        (chunks, words), or the same memory as int32 or as bytes. Otherwise as for `lowlevel_reduce.reduce`.
    length, chunk : int
        Elements of the whole array, and of a chunk.
    dtype : dtype
        Type of the array's elements, not of the partials.
    shards : int, optional
        How many shards there are, where each has the same number of rows, of which some are absent, as ``rows=`` of
        `partials` pads them; the array is cut as `shard_lengths` says. By default no partial is absent.
    result_dtype : dtype, optional
        Type of the result; by default what NumPy's function gives.
    where : bool
        Whether the partials were made with a mask.
    first : array, optional
        As when the partials were made.
    ddof : float
        What var and std subtract from the number of elements before dividing by it.
    initial : scalar, optional
        Start value of the reduction, combined at the root of the tree.
    op, accumulate, nan, last, map
        The same as when the partials were made.
    out, stream, allocator
        As for `lowlevel_reduce.reduce`.

    Returns
    -------
    DeviceArray, named tuple of them, or object
        As `lowlevel_reduce.reduce` over all axes: available in the order of the stream; the host does not wait for it.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, and errors from below
        As `lowlevel_reduce.reduce`; or if the number, size or type of the partials does not fit the other arguments.
    """
    if allocator is not None:
        instance(allocator, Allocator, "the allocator")
    options = {"result_dtype": result_dtype, "accumulate": accumulate, "nan": nan, "last": last, "map": map}
    problem = fold_problem(op, length, chunk, dtype, where=where, initial=initial, ddof=ddof, **options)
    stream = here().stream_of(stream, partials)
    with stream.context.pushed():
        view = words_of(flat_view(partials, stream, "the partials"))
        beside = () if first is None else (flat_view(first, stream, "the first element"),)
        if shards is not None:
            return fold_shares(op, problem, (view, *beside), shards, out, stream, initial, allocator)
        result, _ = fold_of_views(op, problem, (view, *beside), out, stream, initial, allocator)
        return result


def fold_problem(
    op: Any,
    length: int,
    chunk: int,
    dtype: Any,
    *,
    where: bool,
    initial: Any,
    ddof: float,
    result_dtype: Any,
    accumulate: Any,
    nan: Any,
    last: Any,
    map: Any,
) -> dict[str, Any]:
    """Return the arguments of `combine_plan` as they may stand in a key; raises as `combine_partials`."""
    element = element_type(dtype)
    return {
        "length": check_length(length, element),
        "chunk": check_chunk(chunk, element),
        "dtype": element.dtype,
        "where": flag(where, "where"),
        "initial": initial is not None,
        "ddof": real(ddof, "ddof is a real number"),
        **key_options(op, dtype=result_dtype, accumulate=accumulate, nan=nan, last=last, map=map),
    }


def fold_of_views(
    op: Any,
    problem: dict[str, Any],
    views: tuple[ArrayView, ...],
    out: Any,
    stream: Stream,
    initial: Any,
    allocator: Allocator | None,
) -> tuple[Any, CombinePlan]:
    """Fold partials, and return the result and the plan; the stream's context must be current.

    `views` are the partials and, if it is given, the first element; `problem` is that of `fold_problem`.
    """
    view, *beside = views

    def make(_: tuple[ArrayView, ...], place: Place) -> CombinePlan:
        made = combine_plan(op, context=place.context, **problem)
        if (view.dtype, view.shape) != (PARTIAL_DTYPE, (made.chunks * made.words,)):
            raise ValueError(
                f"{made.length} elements in chunks of {made.chunk} have partials of shape "
                f"{(made.chunks, made.words)} and type {PARTIAL_DTYPE}; these are {view.shape[0]} of {view.dtype}"
            )
        if made.takes_first or beside:
            _check_beside(made.reduction, (view._replace(dtype=made.dtype), *beside))
        return made

    kinds = [(each.dtype, each.shape) for each in views]
    key = ("combined", op, initial_key(initial), *kinds, *problem.values())
    result, prepared = launched(here(), here().place_of(stream), key, make, views, out, initial, allocator)
    return result, cast("CombinePlan", prepared.plan)


def plain_options(op: Any, *, accumulate: Any, nan: Any, last: Any, map: Any) -> dict[str, Any]:
    """Return the options of `partials` as they may stand in a key; raises as `oneshot.key_options`."""
    plain = key_options(op, dtype=None, accumulate=accumulate, nan=nan, last=last, map=map)
    return {name: value for name, value in plain.items() if name != "result_dtype"}


def flat_view(x: Any, stream: Stream, what: str) -> ArrayView:
    """Return a contiguous array's memory as an array of one axis, ready for work in `stream`.

    The stream's context must be current. Raises ValueError, which calls the array `what`, if it is not contiguous.
    """
    view = view_array(x, stream)
    if not is_contiguous(view.shape, view.strides_bytes, view.dtype.itemsize):
        raise ValueError(
            f"{what} of shape {view.shape} has strides {view.strides_bytes}: it is not contiguous in C order"
        )
    return view._replace(shape=(math.prod(view.shape),), strides_bytes=None)


def partials_of_views(
    op: Any,
    views: tuple[ArrayView, ...],
    chunk: int,
    stream: Stream,
    allocator: Allocator | None,
    *,
    is_masked: bool,
    options: dict[str, Any],
    rows: int | None = None,
) -> tuple[DeviceArray, list[ChunksPlan]]:
    """Reduce the chunks of a flat array, and return their partials and what made them.

    The stream's context must be current. `views` are the array and, if the operator takes one, the mask, second array
    or first element. `options` are those of `plain_options`.
    """
    source = views[0]
    others = dict(options)
    accumulate = others.pop("accumulate")
    reduction = rooted_of(op, source.dtype, is_masked, accumulate, tuple(others.items()))
    _check_beside(reduction, views)
    words, length = reduction.results, source.shape[0]
    whole, rest = divmod(length, chunk)
    place = here().place_of(stream)
    chunks = whole + (rest > 0)
    padded = chunks if rows is None else padded_rows(rows, chunks)
    result = _empty((padded, words), place, allocator)
    if padded > chunks:
        result._buffer.fill(ABSENT_BYTE, stream=stream)
    used = []
    # The whole chunks as rows of equal length, and the rest of the array as one more row.
    for first, number, of_a_row in ((0, whole, chunk), (whole, 1, rest)):
        if number * of_a_row == 0:
            continue
        key = ("partials", op, is_masked, source.dtype, number, of_a_row, *options.values())

        def make(_: tuple[ArrayView, ...], where: Place, number: int = number, of_a_row: int = of_a_row) -> BasePlan:
            shape = (number, of_a_row)
            return plan(reduction, shape=shape, axis=1, dtype=source.dtype, context=where.context)

        out = _part(result, first, number, stream)
        arrays = _rows_of(reduction, views, first * chunk, (number, of_a_row))
        _, prepared = launched(here(), place, key, make, arrays, out, None, allocator)
        begin = first * chunk * source.dtype.itemsize
        used.append(ChunksPlan(cast("BasePlan", prepared.plan), begin, first * words * PARTIAL_DTYPE.itemsize))
    return result, used


def _empty(shape: tuple[int, int], place: Place, allocator: Allocator | None) -> DeviceArray:
    """Return memory for partials, of the place's pool where no allocator is given and nothing is captured."""
    size = math.prod(shape) * PARTIAL_DTYPE.itemsize
    if allocator is not None or not size or place.stream.is_capturing:
        return DeviceArray.empty(shape, PARTIAL_DTYPE, place.stream, allocator)
    return DeviceArray.of_cell(place.pool.take(size), PARTIAL_DTYPE, shape, place.stream)


def _part(result: DeviceArray, first: int, rows: int, stream: Stream) -> DeviceArray:
    """Return the partials of some chunks as the array that the plan of so many rows writes."""
    words = result.shape[1]
    size, shape = words * PARTIAL_DTYPE.itemsize, (words, rows) if words > 1 else (rows,)
    if isinstance(result._memory, Cell):
        return DeviceArray.of_cell(Part(result._memory, first * size), PARTIAL_DTYPE, shape, stream)
    memory = Buffer.from_pointer(result.pointer + first * size, rows * size, context=stream.context, owner=result)
    return DeviceArray(memory, PARTIAL_DTYPE, shape, stream)


def _rows_of(
    reduction: Reduction, views: tuple[ArrayView, ...], begin: int, shape: tuple[int, int]
) -> tuple[ArrayView, ...]:
    """Return the elements from number `begin` on as rows, of all arrays but a first element, which is all rows'."""
    moved = tuple(
        view._replace(pointer=view.pointer + begin * view.dtype.itemsize, shape=shape, strides_bytes=None)
        for view in views
    )
    return (moved[0], *views[1:]) if reduction.second == "first" else moved


def _check_beside(reduction: Reduction, views: tuple[ArrayView, ...]) -> None:
    """Refuse what goes with an array, if it is missing, too much, or of the wrong type or size."""
    source, *others = views
    wanted = reduction.second_dtype(element_type(source.dtype))
    if (wanted is None) != (not others):
        takes = {None: "one array", "mask": "a mask", "operand": "a second array"}
        takes["first"] = "the whole array's first element, about which it is computed: pass first="
        raise TypeError(f"{reduction.name} takes {takes[reduction.second]}")
    if wanted is None:
        return
    other, count = others[0], 1 if reduction.second == "first" else source.shape[0]
    fits = other.shape[0] >= count if reduction.second == "first" else other.shape[0] == count
    if other.dtype != wanted or not fits:
        raise TypeError(
            f"{reduction.name} of {source.shape[0]} elements goes with {count} of {wanted}, "
            f"not with {other.shape[0]} of {other.dtype}"
        )
