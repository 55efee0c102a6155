"""One array in parts, on one GPU or on many: the partials of each part, and their fold to the whole array's bits.

The tree of an array has a subtree for each chunk, a run of a power of two of leaves. Who has whole chunks folds each to
its root, the partial; the partials of all chunks, in their order, fold to what one GPU makes of the whole array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.allocator import Allocator
from lowlevel_reduce.arguments import instance
from lowlevel_reduce.chunks import check_chunk, check_length, common_chunk
from lowlevel_reduce.combining import PARTIAL_DTYPE, CombinePlan, combine_plan, rooted_of
from lowlevel_reduce.driver import Buffer, Context, Stream
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.interop import ArrayView, DeviceArray, order_after, view_array
from lowlevel_reduce.layout import is_contiguous
from lowlevel_reduce.oneshot import initial_key, kept_entry, key_options, run, stream_of
from lowlevel_reduce.plans import plan

if TYPE_CHECKING:
    from lowlevel_reduce.operators import ElementMap, Reduction

__all__ = ["combine_partials", "partials", "reduce_shards"]


def partials(
    x: Any,
    op: Any = "sum",
    *,
    chunk: int,
    accumulate: str | None = None,
    stream: Any = None,
    nan: str = "propagate",
    where: Any = None,
    second: Any = None,
    last: bool = False,
    map: str | ElementMap | None = None,
    allocator: Allocator | None = None,
) -> DeviceArray:
    """Reduce each chunk of a shard of an array to its partial, for `combine_partials`.

    Parameters
    ----------
    x : array
        The shard: contiguous, of any shape, its elements in C order. As for `lowlevel_reduce.reduce` otherwise.
    op : str or Operator
        The operator; not var, std and mean_var, which are about the whole array's first element, nor one whose map
        uses the index of an element.
    chunk : int
        Elements of a chunk, as `chunk_elements` gives it. The shard begins with a chunk, and only the last shard of
        the array may end within one.
    where, second : array, optional
        What goes with the shard's elements: of its size, contiguous.
    accumulate, stream, nan, last, map, allocator
        As for `lowlevel_reduce.reduce`.

    Returns
    -------
    DeviceArray
        uint32 of shape (chunks, words), in the order of the stream: each chunk's accumulator. Gather those of all
        shards along the first axis, by whatever means: NCCL, MPI, copies.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, and errors from below
        As `lowlevel_reduce.reduce`; or if the chunk is none, or an array is not contiguous.
    """
    if where is not None and second is not None:
        raise ValueError("a reduction takes a mask or a second array, not both")
    if allocator is not None:
        instance(allocator, Allocator, "the allocator")
    options = _options(op, accumulate=accumulate, nan=nan, last=last, map=map)
    stream = stream_of(stream)
    with stream.context.pushed():
        source = _flat_view(x, stream, "the shard")
        chunk = check_chunk(chunk, element_type(source.dtype))
        other = second if where is None else where
        views = (source,) if other is None else (source, _flat_view(other, stream, "the second array"))
        return _partials(op, views, chunk, stream, allocator, is_masked=where is not None, options=options)


def combine_partials(
    partials: Any,
    op: Any = "sum",
    *,
    length: int,
    chunk: int,
    dtype: Any,
    result_dtype: Any = None,
    accumulate: str | None = None,
    out: Any = None,
    stream: Any = None,
    nan: str = "propagate",
    where: bool = False,
    initial: Any = None,
    last: bool = False,
    map: str | ElementMap | None = None,
    allocator: Allocator | None = None,
) -> Any:
    """Fold the partials of all chunks of an array: the result has the bits of `lowlevel_reduce.reduce` of the whole.

    Parameters
    ----------
    partials : array
        uint32 of shape (chunks, words), contiguous: what `partials` returned for all shards, in their order. As for
        `lowlevel_reduce.reduce` otherwise.
    length, chunk : int
        Elements of the whole array, and of a chunk.
    dtype : dtype
        Type of the array's elements.
    result_dtype : dtype, optional
        Type of the result; by default what NumPy's function gives.
    where : bool
        Whether the partials were made with a mask.
    initial : scalar, optional
        What the reduction starts from.
    op, accumulate, nan, last, map
        As when the partials were made.
    out, stream, allocator
        As for `lowlevel_reduce.reduce`.

    Returns
    -------
    DeviceArray, named tuple of them, or object
        As `lowlevel_reduce.reduce` over all axes.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, and errors from below
        As `lowlevel_reduce.reduce`; or if the partials are not as many or as large as they must be.
    """
    if allocator is not None:
        instance(allocator, Allocator, "the allocator")
    element = element_type(dtype)
    problem: dict[str, Any] = {
        "length": check_length(length, element),
        "chunk": check_chunk(chunk, element),
        "dtype": element.dtype,
        "where": bool(where),
        "initial": initial is not None,
        **key_options(op, dtype=result_dtype, accumulate=accumulate, nan=nan, last=last, map=map),
    }
    stream = stream_of(stream)
    with stream.context.pushed():
        view = _flat_view(partials, stream, "the partials")

        def make() -> CombinePlan:
            made = combine_plan(op, context=stream.context, **problem)
            if (view.dtype, view.shape) != (PARTIAL_DTYPE, (made.chunks * made.words,)):
                raise ValueError(
                    f"{made.length} elements in chunks of {made.chunk} have partials of shape "
                    f"{(made.chunks, made.words)} and type {PARTIAL_DTYPE}; these are {view.shape[0]} of {view.dtype}"
                )
            return made

        key = ("combined", op, initial_key(initial), view.dtype, view.shape, *problem.values())
        with kept_entry(stream, key, make) as entry:
            return run(entry, (view,), out, stream, initial, allocator)


def reduce_shards(
    shards: Sequence[Any],
    op: Any = "sum",
    *,
    streams: Sequence[Any] | None = None,
    dtype: Any = None,
    accumulate: str | None = None,
    nan: str = "propagate",
    where: Sequence[Any] | None = None,
    second: Sequence[Any] | None = None,
    initial: Any = None,
    last: bool = False,
    map: str | ElementMap | None = None,
) -> Any:
    """Reduce one array whose parts lie on several devices: the bits of `lowlevel_reduce.reduce` of the whole.

    Each device reduces its part; the partials, some kilobytes, are copied to the first one, which folds them. The host
    waits for nothing.

    Parameters
    ----------
    shards : sequence of arrays
        The parts in order, each on any device, contiguous. All but the last are whole leaves of 4 KiB. The larger the
        power of two of leaves that they all are multiples of, the fewer partials: `shard_lengths` sees to that.
    streams : sequence of Stream or object with ``__cuda_stream__``, optional
        Where each part is reduced. By default a `DeviceArray`'s own stream, and of other arrays the legacy default
        stream of their device's primary context.
    dtype : dtype, optional
        Type of the result.
    where, second : sequence of arrays, optional
        What goes with each shard.
    op, accumulate, nan, initial, last, map
        As for `partials` and `combine_partials`.

    Returns
    -------
    DeviceArray or named tuple of them
        On the first shard's device, in the order of its stream.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, and errors from below
        As `partials` and `combine_partials`; or if there is no shard, one is on the host, their types differ, or one
        that is not the last does not end with a leaf.
    """
    shards = list(shards)
    if not shards:
        raise ValueError("an array has one shard or more; there is none")
    if where is not None and second is not None:
        raise ValueError("a reduction takes a mask or a second array, not both")
    options = _options(op, accumulate=accumulate, nan=nan, last=last, map=map)
    homes = [stream_of(home) for home in (_homes_of(shards) if streams is None else streams)]
    others = second if where is None else where
    beside = [()] * len(shards) if others is None else [(other,) for other in others]
    for what, count in (("streams", len(homes)), ("arrays that go with them", len(beside))):
        if count != len(shards):
            raise ValueError(f"there are {len(shards)} shards and {count} {what}")
    views = [_views_of((x, *other), home) for x, other, home in zip(shards, beside, homes, strict=True)]
    element = element_type(views[0][0].dtype)
    for number, (view, *_) in enumerate(views):
        if view.dtype != element.dtype:
            raise TypeError(f"shard {number} is of {view.dtype}, shard 0 of {element.dtype}")
    lengths = [view.shape[0] for view, *_ in views]
    chunk = common_chunk(lengths, element.dtype)
    made = []
    for home, inputs in zip(homes, views, strict=True):
        with home.context.pushed():
            made.append(_partials(op, inputs, chunk, home, None, is_masked=where is not None, options=options))
    return combine_partials(
        _gathered(made, homes[0]),
        op,
        length=sum(lengths),
        chunk=chunk,
        dtype=element.dtype,
        result_dtype=dtype,
        accumulate=accumulate,
        stream=homes[0],
        nan=nan,
        where=where is not None,
        initial=initial,
        last=last,
        map=map,
    )


def _options(op: Any, *, accumulate: Any, nan: Any, last: Any, map: Any) -> dict[str, Any]:
    plain = key_options(op, dtype=None, accumulate=accumulate, nan=nan, last=last, map=map)
    return {name: value for name, value in plain.items() if name != "result_dtype"}


def _flat_view(x: Any, stream: Stream, what: str) -> ArrayView:
    """Return a contiguous array's memory as one axis."""
    view = view_array(x, stream)
    if not is_contiguous(view.shape, view.strides_bytes, view.dtype.itemsize):
        raise ValueError(
            f"{what} of shape {view.shape} has strides {view.strides_bytes}: it is not contiguous in C order"
        )
    return view._replace(shape=(math.prod(view.shape),), strides_bytes=None)


def _partials(
    op: Any,
    views: tuple[ArrayView, ...],
    chunk: int,
    stream: Stream,
    allocator: Allocator | None,
    *,
    is_masked: bool,
    options: dict[str, Any],
) -> DeviceArray:
    """Reduce the chunks of a flat array; the context of the stream is current."""
    source = views[0]
    accumulate, *others = options.items()
    reduction = rooted_of(op, source.dtype, is_masked, accumulate[1], tuple(others))
    _check_second(reduction, views)
    length = source.shape[0]
    whole, rest = divmod(length, chunk)
    words = reduction.results
    result = DeviceArray.empty((whole + (rest > 0), words), PARTIAL_DTYPE, stream, allocator)
    # Rows of one length, and what is left of the array as one more.
    for first, rows, of_a_row in ((0, whole, chunk), (whole, 1, rest)):
        if not rows * of_a_row:
            continue
        inputs = tuple(
            view._replace(pointer=view.pointer + first * chunk * view.dtype.itemsize, shape=(rows, of_a_row))
            for view in views
        )
        part = Buffer.from_pointer(
            result.pointer + first * words * PARTIAL_DTYPE.itemsize,
            rows * words * PARTIAL_DTYPE.itemsize,
            context=stream.context,
            owner=result,
        )
        out = DeviceArray(part, PARTIAL_DTYPE, (words, rows) if words > 1 else (rows,), stream)
        key = ("partials", op, is_masked, source.dtype, rows, of_a_row, *options.values())

        def make(rows: int = rows, of_a_row: int = of_a_row) -> Any:
            return plan(reduction, shape=(rows, of_a_row), axis=1, dtype=source.dtype, context=stream.context)

        with kept_entry(stream, key, make) as entry:
            run(entry, inputs, out, stream, None, allocator)
    return result


def _check_second(reduction: Reduction, views: tuple[ArrayView, ...]) -> None:
    wanted = reduction.second_dtype(element_type(views[0].dtype))
    if (wanted is None) != (len(views) == 1):
        raise TypeError(f"{reduction.name} takes {'one array' if wanted is None else 'a second array'}")
    if wanted is not None and (views[1].dtype, views[1].shape) != (wanted, views[0].shape):
        count, other = views[0].shape[0], views[1]
        raise TypeError(f"{count} elements go with {count} of {wanted}, not with {other.shape[0]} of {other.dtype}")


def _homes_of(shards: Sequence[Any]) -> list[Stream]:
    """Return where each shard is reduced if nothing is said."""
    homes = []
    for number, x in enumerate(shards):
        if isinstance(x, (np.ndarray, np.generic)):
            raise TypeError(f"shard {number} is on the host: copy it to a device, with DeviceArray.from_numpy")
        if isinstance(x, DeviceArray):
            homes.append(x.stream)
        elif hasattr(x, "__dlpack_device__"):
            homes.append(Stream.legacy(Context.primary(int(x.__dlpack_device__()[1]))))
        else:
            raise TypeError(f"shard {number} does not tell its device: give streams=, one for each shard")
    return homes


def _views_of(arrays: Sequence[Any], home: Stream) -> tuple[ArrayView, ...]:
    with home.context.pushed():
        return tuple(_flat_view(array, home, "a shard, or what goes with it,") for array in arrays)


def _gathered(made: Sequence[DeviceArray], stream: Stream) -> DeviceArray:
    """Return the partials of all shards, one after the other, on the device of the first one's stream."""
    if len(made) == 1:
        return made[0]
    words = made[0].shape[1]
    with stream.context.pushed():
        gathered = DeviceArray.empty((sum(part.shape[0] for part in made), words), PARTIAL_DTYPE, stream)
        place = gathered.pointer
        for part in made:
            if part.nbytes:
                if not stream.is_same(part.stream):
                    stream.follow(part.stream)
                target = Buffer.from_pointer(place, part.nbytes, context=stream.context, owner=gathered)
                target.copy_from(part._buffer, stream=stream, size_bytes=part.nbytes)
                place += part.nbytes
        order_after(stream, *made)
    return gathered
