"""One array in parts, on one GPU or several: each part's partials, and their fold, with the bits of the whole array.

The tree of an array has a subtree for each chunk, which is a power of two of leaves. Whoever holds whole chunks folds
each of them to the root of its subtree, the partial. The partials of all chunks, in order, fold to the same result that
one GPU computes for the whole array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lowlevel_reduce.arguments import flag, integer, real
from lowlevel_reduce.calls.execute import Made, execute
from lowlevel_reduce.parts.padded import described_shares, words_of
from lowlevel_reduce.parts.prepared import described_chunks, described_fold, flat, fold_problem, plain_options

if TYPE_CHECKING:
    from lowlevel_reduce.arrays.allocator import Allocator
    from lowlevel_reduce.arrays.device_array import ArrayView, DeviceArray
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.calls.threads import Thread
    from lowlevel_reduce.operators import ElementMap

__all__ = ["combine_partials", "partials"]


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
    # In a key, True, 1 and 1.0 would be the same.
    chunk = chunk if type(chunk) is int else integer(chunk, "chunk is an integer")
    rows = rows if rows is None or type(rows) is int else integer(rows, "rows is an integer")
    options = ("partials", where is not None, chunk, rows, accumulate, nan, last, map)
    beside = next(iter(given), None)
    made: DeviceArray = execute(x, op, options, _described, second=beside, stream=stream, allocator=allocator)
    return made


def _described(
    thread: Thread, place: Place, views: tuple[ArrayView, ...], op: Any, options: tuple[Any, ...], initial: Any
) -> tuple[tuple[Any, ...], Made]:
    """Return the key of the partials of a shard, and what prepares them."""
    _, is_masked, chunk, rows, accumulate, nan, last, map = options
    plain = plain_options(op, accumulate=accumulate, nan=nan, last=last, map=map)
    source, *others = views
    arrays = flat(source, "the shard"), *(flat(other, "what goes with the shard") for other in others)
    return described_chunks(thread, place, arrays, op, plain, chunk, rows, is_masked=is_masked)


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
    # In a key, True, 1 and 1.0 would be the same.
    length = length if type(length) is int else integer(length, "length is an integer")
    chunk = chunk if type(chunk) is int else integer(chunk, "chunk is an integer")
    shards = shards if shards is None or type(shards) is int else integer(shards, "shards is an integer")
    where = flag(where, "where")
    ddof = ddof if type(ddof) is int else real(ddof, "ddof is a real number")
    options = ("combined", length, chunk, dtype, shards, result_dtype, accumulate, nan, where, ddof, last, map)
    return execute(
        partials, op, options, _described_fold, second=first, out=out, stream=stream, initial=initial,
        allocator=allocator,
    )  # fmt: skip


def _described_fold(
    thread: Thread, place: Place, views: tuple[ArrayView, ...], op: Any, options: tuple[Any, ...], initial: Any
) -> tuple[tuple[Any, ...], Made]:
    """Return the key of the fold of gathered partials, and what prepares it."""
    del thread
    _, length, chunk, dtype, shards, result_dtype, accumulate, nan, where, ddof, last, map = options
    plain = {"result_dtype": result_dtype, "accumulate": accumulate, "nan": nan, "last": last, "map": map}
    problem = fold_problem(op, length, chunk, dtype, where=where, initial=initial, ddof=ddof, **plain)
    partials, *others = views
    arrays = words_of(flat(partials, "the partials")), *(flat(other, "the first element") for other in others)
    if shards is None:
        return described_fold(place, arrays, op, problem, initial)
    return described_shares(place, arrays, op, problem, shards, initial)
