"""The reduction of an array whose parts lie on several devices, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.arguments import listed, real, retold
from lowlevel_reduce.arrays.device_array import ArrayView, DeviceArray, order_after, view_array
from lowlevel_reduce.arrays.protocols import device_of, has_member
from lowlevel_reduce.calls.execute import launched
from lowlevel_reduce.calls.threads import here
from lowlevel_reduce.driver import Buffer, Context, Stream
from lowlevel_reduce.driver.pointers import check_pointer
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.parts import quick_shards
from lowlevel_reduce.parts.chunks import common_chunk
from lowlevel_reduce.parts.combining import PARTIAL_DTYPE, divided
from lowlevel_reduce.parts.prepared import described_chunks, described_fold, flat, fold_problem, plain_options

if TYPE_CHECKING:
    from lowlevel_reduce.operators import ElementMap

__all__ = ["reduce_shards"]


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
    ddof: float = 0,
    last: bool = False,
    map: str | ElementMap | None = None,
) -> Any:
    """Reduce one array whose parts are on several devices; the bits are those of `lowlevel_reduce.reduce` of the whole.

    Each device reduces its part. The partials, a few kilobytes, are copied to the first device, which folds them. The
    host waits for nothing.

    A thread keeps what it needs to make its last 16 calls again with other arrays of the same kinds, lengths and
    streams: launches, events, and memory for the partials, of up to 1 MiB on the first device and, where NVLink does
    not connect the others to it, as much on all of them together; a call with more is not kept. Where it does, the
    driver is told to let them access the first one's memory (``cuCtxEnablePeerAccess``, which stays), and kernels write
    their partials there. Such a call takes about six driver calls a shard. Kept are calls with what `reduce` too
    repeats quickly: arrays in their own streams that this package allocated, PyTorch's tensors, and CuPy's arrays of
    its own memory, none empty. Not kept are var, std and mean_var, calls with `where` or `second`, and captured ones:
    those prepare everything each time.

    Parameters
    ----------
    shards : sequence of arrays
        The parts in order, each contiguous and on any device. All but the last consist of whole leaves of 4 KiB. The
        larger the power of two of leaves that divides all their lengths, the fewer partials there are: `shard_lengths`
        gives suitable lengths.
    streams : sequence of Stream or object with ``__cuda_stream__``, optional
        The stream in which each part is reduced. By default a `DeviceArray`'s own stream; for other arrays the legacy
        default stream of their device's primary context.
    dtype : dtype, optional
        Type of the result; by default what NumPy's function gives.
    where, second : sequence of arrays, optional
        The mask, or second array, of each shard.
    op, accumulate, nan, initial, ddof, last, map
        As for `partials` and `combine_partials`.

    Returns
    -------
    DeviceArray or named tuple of them
        On the first shard's device; available in the order of the first stream.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, and errors from below
        As `partials` and `combine_partials`; or if there are no shards, one is on the host and `streams` is not given,
        their types differ, or one that other elements follow does not end with a leaf.
    """
    shards = listed(shards, "shards is a sequence of arrays")
    streams = None if streams is None else listed(streams, "streams is a sequence of streams, one a shard")
    if not shards:
        raise ValueError("an array has one shard or more; there is none")
    if where is not None and second is not None:
        raise ValueError("a reduction takes a mask or a second array, not both")
    ddof = real(ddof, "ddof is a real number")  # in a key, a bool would be one
    simple, others_asked = where is None and second is None, (dtype, accumulate, nan, ddof, last, map)
    if simple and (result := quick_shards.call(shards, op, streams, initial, others_asked)) is not None:
        return result
    options = plain_options(op, accumulate=accumulate, nan=nan, last=last, map=map)
    thread = here()
    homes = [thread.stream_of(home, None) for home in (_homes_of(shards) if streams is None else streams)]
    what, others = ("second", second) if where is None else ("where", where)
    beside: list[tuple[Any, ...]] = [()] * len(shards)
    if others is not None:
        beside = [(other,) for other in listed(others, f"{what} is a sequence of arrays, one a shard")]
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
    reduction = divided(op, map=map, last=last)
    is_about = reduction.pivot is not None and where is None
    if is_about and second is not None:
        raise TypeError(f"{reduction.name} takes one array")
    first = _first_element(views, homes) if is_about else None
    firsts = [None if first is None else _brought(first, home) for home in homes]
    asked = {"result_dtype": dtype, "accumulate": accumulate, "nan": nan, "last": last, "map": map}
    problem = fold_problem(
        op, sum(lengths), chunk, element.dtype, where=where is not None, initial=initial, ddof=ddof, **asked
    )
    made = []
    for home, inputs, element_there in zip(homes, views, firsts, strict=True):
        with home.context.pushed():
            arrays = (*inputs, *(() if element_there is None else _views_of((element_there,), home)))
            place = thread.place_of(home)
            known = described_chunks(thread, place, arrays, op, options, chunk, is_masked=where is not None)
            made.append(launched(thread, place, *known, arrays))
    with homes[0].context.pushed():
        gathered = _gathered([part for part, _ in made], homes[0])
        folded = _views_of((gathered, *(() if firsts[0] is None else firsts[:1])), homes[0])
        place = thread.place_of(homes[0])
        result, fold = launched(thread, place, *described_fold(place, folded, op, problem, initial), folded)
    if simple and not is_about:
        quick_shards.offer(shards, op, streams, initial, others_asked, homes, made, fold)
    return result


def _homes_of(shards: Sequence[Any]) -> list[Stream]:
    """Return the default stream for each shard."""
    homes = []
    for number, x in enumerate(shards):
        if isinstance(x, (np.ndarray, np.generic)):
            raise TypeError(f"shard {number} is on the host: copy it to a device, with DeviceArray.from_numpy")
        if isinstance(x, DeviceArray):
            homes.append(x.stream)
        else:
            homes.append(_legacy_stream_of(x, number))
    return homes


def _legacy_stream_of(x: Any, number: int) -> Stream:
    """Return the legacy default stream of the device that a shard of another library tells."""
    try:
        if has_member(x, "__dlpack_device__"):
            return Stream.legacy(Context.primary(device_of(x)[1]))
    except (TypeError, ValueError, BufferError) as error:
        raise retold(error, f"shard {number}: {error}") from error
    raise TypeError(f"shard {number} does not tell its device: give streams=, one for each shard")


def _views_of(arrays: Sequence[Any], home: Stream) -> tuple[ArrayView, ...]:
    with home.context.pushed():
        return tuple(flat(view_array(array, home), "a shard, or what goes with it,") for array in arrays)


def _first_element(views: Sequence[tuple[ArrayView, ...]], homes: Sequence[Stream]) -> DeviceArray:
    """Return a copy of the whole array's first element, on its device; of an empty array one that is never read."""
    filled = (number for number, (source, *_) in enumerate(views) if source.shape[0])
    number = next(filled, None)
    source, home = views[number or 0][0], homes[number or 0]
    with home.context.pushed():
        first = DeviceArray.empty((1,), source.dtype, home)
        if number is not None:
            size = source.dtype.itemsize
            check_pointer(source.pointer, size, home.context, what="the input")  # as a launch's, before it is copied
            element = Buffer.from_pointer(source.pointer, size, context=home.context, owner=source.owner)
            first._buffer.copy_from(element, stream=home, size_bytes=size)
            order_after(home, source.owner)
    return first


def _brought(first: DeviceArray, home: Stream) -> DeviceArray:
    """Return one element, copied to the stream's device if it is on another, and then ready for work in the stream."""
    if first.context == home.context:
        return first
    with home.context.pushed():
        copy = DeviceArray.empty(first.shape, first.dtype, home)
        home.follow(first.stream)
        copy._buffer.copy_from(first._buffer, stream=home, size_bytes=first.nbytes)
        order_after(home, first)
    return copy


def _gathered(made: Sequence[DeviceArray], stream: Stream) -> DeviceArray:
    """Return the partials of all shards, one after the other, on the device of `stream` and in its order."""
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
