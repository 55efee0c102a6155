"""The fast path of repeated calls of `reduce_shards`: everything but the arrays' addresses is prepared once and kept.

Each thread keeps calls that it alone makes again, by everything that they depend on. An array that is not known by
`known_as`, because the driver would have to be asked about it, is none of a shard that is handled here either.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.calls.options import initial_key
from lowlevel_reduce.calls.threads import here
from lowlevel_reduce.calls.views import UNKNOWN, are_of, known_as
from lowlevel_reduce.driver import Buffer, Event, Stream, binding
from lowlevel_reduce.driver.handle import quietly, within
from lowlevel_reduce.driver.peers import reaches
from lowlevel_reduce.driver.stream import LEGACY, ThreadStream
from lowlevel_reduce.driver.turns import Turn
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.parts.driver_calls import raising

if TYPE_CHECKING:
    from lowlevel_reduce.arrays.results import Cell
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.calls.prepared import Prepared

__all__ = ["MAX_KEPT", "MAX_PARTIALS_BYTES", "call", "offer"]

MAX_KEPT = 16
"""The most calls that a thread keeps; the least recently used is dropped first."""

MAX_PARTIALS_BYTES = 1 << 20
"""Of calls with more partials than this, nothing is kept. Up to 1024 chunks, of at most 32 bytes each, are usual."""

_KEPT = "calls of reduce_shards"

BOUNDS = {_KEPT: MAX_KEPT}
"""The most entries of what is kept here, by its name: who watches for growth tells it from what has no bound."""

_PER_THREAD = 2  # the greatest handle of a default stream

PointerOf = Callable[[Any], int]
"""Returns an array's address, of an array as its key says; raises if the memory was closed."""


class _Part:
    """A shard: the launches that make its partials, and how these get into the order of the first stream.

    Its partials are written to their place among all of them, from another device by way of its access to the first
    one's memory. Where it has none, they lie in a buffer of their own, and are copied. In another stream than the
    first, what is written again must have been read: that stream waits for the event `read` before it writes to the
    place or, because the buffer is freed in its order, at the end of a call that copies. The first stream waits, in
    each call, for an event of the shard's.
    """

    __slots__ = (
        *("_event", "_chunks", "_memory", "_record", "enter", "fetch", "follow", "handle", "is_near", "join"),
        *("_to", "pointer_of"),
    )

    def __init__(
        self, pointer_of: PointerOf, where: Place, chunks: Prepared, place: Buffer, first: Stream, read: Event
    ) -> None:
        stream = where.stream
        self.pointer_of, self.handle = pointer_of, stream.handle
        context = stream.context
        self.enter = raising("cuCtxSetCurrent", context.handle)
        self.is_near = context == first.context
        in_place = self.is_near or reaches(context, first.context)
        self._memory = place if in_place else Buffer.allocate_async(place.size_bytes, stream)
        self._chunks, self._to = chunks, self._memory.pointer
        self.fetch = None if in_place else raising(*place.copy_call(self._memory, first))
        self._record: Callable[[], None] | None = None
        self.join = self.follow = _nothing
        if not stream.is_same(first):
            stream.wait(read)  # where its place is, others may have been at work until it was allocated
            self._event = Event.create(context, timing=False)
            self._record = raising("cuEventRecord", self._event.handle, self.handle)
            self.join = raising("cuStreamWaitEvent", first.handle, self._event.handle, 0)
            self.follow = raising("cuStreamWaitEvent", self.handle, read.handle, 0)

    @property
    def is_apart(self) -> bool:
        """Whether it is reduced in another stream than the first."""
        return self._record is not None

    def launch(self, address: int) -> None:
        """Make the partials, in the shard's stream, whose context is current."""
        if self.fetch is None:
            self.follow()
        if not self._chunks.launch(address, self._to):
            self._chunks.refuse()
        if self._record is not None:
            self._record()


class _Prepared:
    """A call of `reduce_shards` that lacks only the arrays and a place for the result.

    Parameters
    ----------
    pointers, places, made : sequences
        What returns each shard's address, where it is reduced, and what makes its partials.
    fold : Prepared
        What folds them all.
    sizes : sequence of int
        The bytes of each shard's partials.

    Raises
    ------
    CudaError
        If the driver has no memory, or refuses anything else.
    ValueError
        If a stream or context was closed.
    """

    def __init__(
        self,
        pointers: Sequence[PointerOf],
        places: Sequence[Place],
        made: Sequence[Prepared],
        fold: Prepared,
        sizes: Sequence[int],
    ) -> None:
        streams = [place.stream for place in places]
        first = streams[0]
        self._driver, self._streams, self._fold, self._pool = binding.selected(), streams, fold, places[0].pool
        # Other devices reach what `cuMemAlloc` allocates. Its free waits for the device.
        is_reached = any(each.device != first.context.device for each in (stream.context for stream in streams))
        whole = sum(sizes)
        self._partials = Buffer.allocate(whole, first.context) if is_reached else Buffer.allocate_async(whole, first)
        # What says that the partials were read. At the beginning, that their memory is there.
        self._read = Event.create(first.context, timing=False)
        self._read.record(first)
        self._record = raising("cuEventRecord", self._read.handle, first.handle)
        parts, begin = [], self._partials.pointer
        for pointer_of, where, chunks, size in zip(pointers, places, made, sizes, strict=True):
            place = Buffer.from_pointer(begin, size, context=first.context, owner=self._partials)
            parts.append(_Part(pointer_of, where, chunks, place, first, self._read))
            begin += size
        self._parts = parts
        self._remote = [(i, part) for i, part in enumerate(parts) if not part.is_near]
        self._near = [(i, part) for i, part in enumerate(parts) if part.is_near]
        self._apart = [part for part in parts if part.is_apart]
        self._copied = [part for part in self._apart if part.fetch is not None]
        self._current = here().context
        # Those who write into the place itself, from another stream, must wait until the fold has read it.
        self._folded_first = any(part.is_apart and part.fetch is None for part in parts)
        contexts = {stream.context.handle: stream.context for stream in streams}
        ask = self._driver.prebuilt_number
        self._numbers = [(ask("cuCtxGetId", handle), context.id) for handle, context in contexts.items()]
        # The legacy stream cannot be captured.
        handles = dict.fromkeys(stream.handle for stream in streams if (stream.handle or LEGACY) != LEGACY)
        self._capturing = [ask("cuStreamIsCapturing", handle) for handle in handles]
        # Closing a stream or context is refused while a call is under way, and takes the turn away.
        self._turn = Turn(set)
        for handle in (*streams, *contexts.values()):
            handle.serve(self._turn)

    @property
    def is_over(self) -> bool:
        """Whether no call will be made again, as a stream or context was closed."""
        return not self._turn.is_free

    def __call__(self, shards: Sequence[Any]) -> Any:
        """Reduce; return None if that cannot be done here and now, in which case nothing was launched."""
        addresses = [part.pointer_of(x) for part, x in zip(self._parts, shards, strict=True)]
        # An address of 0 means that it has no elements, or that its library has released the memory.
        if not all(addresses):
            return None
        try:
            item = self._turn.idle.pop()
        except IndexError:  # something was closed
            return None
        try:
            # A graph must get nothing that other calls use again. A context's handle may be another one's by now.
            if any(ask() for ask in self._capturing) or any(ask() != number for ask, number in self._numbers):
                return None
            return self._reduced(addresses)
        finally:
            self._turn.idle.append(item)

    def _reduced(self, addresses: Sequence[int]) -> Any:
        handle = self._pool.context.handle
        try:
            if self._current() == handle:
                cell = self._at_home(addresses)
            else:
                cell = within(self._driver, handle, lambda: self._launch(addresses))
        except BaseException:
            self._settle()
            raise
        return self._fold.wrapped(cell, self._pool.stream)

    def _at_home(self, addresses: Sequence[int]) -> Cell:
        """Do `_launch` where the first stream's context is current: then nothing need be pushed."""
        try:
            return self._launch(addresses)
        finally:
            try:
                self._come_back()
            finally:  # where that was refused, or an interrupt came first
                self._come_back()

    def _come_back(self) -> None:
        if self._current() != self._pool.context.handle:
            self._parts[0].enter()

    def _launch(self, addresses: Sequence[int]) -> Cell:
        """Put everything into the streams, and return where the result will be.

        The first stream's context is on top of the stack, and may be replaced.
        """
        cell = self._pool.take()
        for i, part in self._remote:
            part.enter()
            part.launch(addresses[i])
        if self._remote:
            self._parts[0].enter()
        for i, part in self._near:
            part.launch(addresses[i])
        for part in self._apart:
            part.join()
            if part.fetch is not None:
                part.fetch()
        if self._apart and not self._folded_first:
            self._record()
        if not self._fold.launch(self._partials.pointer, cell.pointer):
            self._fold.refuse()
        if self._folded_first:
            self._record()
        for part in self._copied:
            part.enter()
            part.follow()
        return cell

    def _settle(self) -> None:
        """Let streams wait for each other before memory is freed that one of them may read, or the others write."""
        first, *others = self._streams
        for waiting, done in (*((first, each) for each in others), *((each, first) for each in others)):
            if not waiting.is_same(done):
                quietly(self._driver, functools.partial(waiting.follow, done))


def call(shards: Sequence[Any], op: Any, streams: Sequence[Any] | None, initial: Any, options: tuple[Any, ...]) -> Any:
    """Repeat an earlier reduction with other arrays; return None if there was none, or if equality is not certain.

    Parameters
    ----------
    shards, op, streams, initial
        As for `reduce_shards`, without a mask or second arrays.
    options : tuple
        All other arguments, hashable.

    Returns
    -------
    DeviceArray or named tuple of them
        The result, in the order of the first stream.

    Raises
    ------
    ValueError
        If the memory of an array was closed.
    CudaError
        If the driver refuses anything.
    """
    kept: dict[Any, _Prepared] = here().others.setdefault(_KEPT, {})
    try:
        # Taken out, so that the handler of a signal, which may reduce as well, does not find it, and last in again.
        key = _key(shards, op, streams, initial, options)
        prepared = kept.pop(key)
    except (KeyError, TypeError, ValueError, RuntimeError, CudaError):
        return None  # there was none; or something is not hashable, closed, or no plain array: others say so
    result = prepared(shards)
    kept[key] = prepared
    return result


def offer(
    shards: Sequence[Any],
    op: Any,
    given: Sequence[Any] | None,
    initial: Any,
    options: tuple[Any, ...],
    streams: Sequence[Stream],
    partials: Sequence[tuple[DeviceArray, Prepared]],
    fold: Prepared,
) -> None:
    """Prepare later equal calls, if it can be known without asking the driver that these are safe.

    Parameters
    ----------
    shards, op, given, initial, options
        As for `call`; `given` are the streams as the caller passed them.
    streams : sequence of Stream
        Where each shard was reduced.
    partials : sequence of (DeviceArray, Prepared)
        The partials of each shard, and what made them.
    fold : Prepared
        What folded them.
    """
    sizes = [array.nbytes for array, _ in partials]
    if not all(sizes) or sum(sizes) > MAX_PARTIALS_BYTES:
        return
    kept: dict[Any, _Prepared] = here().others.setdefault(_KEPT, {})
    try:
        key = _key(shards, op, given, initial, options)
        if (old := kept.get(key)) is not None and not old.is_over:
            return
        places = [here().place_of(stream) for stream in streams]
        pointers = [_pointer_of(known, place) for known, place in zip(key[0], places, strict=True)]
    except (TypeError, ValueError, RuntimeError):  # as in `call`
        return
    found = [each for each in pointers if each is not None]
    if len(found) < len(pointers) or any(stream.is_capturing for stream in streams):
        return
    try:
        made = _Prepared(found, places, [chunks for _, chunks in partials], fold, sizes)
    except CudaError as error:
        if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
            raise
        return  # this call has been made, and later ones do without
    _keep(kept, key, made)


def _keep(kept: dict[Any, _Prepared], key: Any, made: _Prepared) -> None:
    for old in [old for old, prepared in kept.items() if prepared.is_over]:
        del kept[old]
    while len(kept) >= MAX_KEPT:
        del kept[next(iter(kept))]
    kept[key] = made


def _key(
    shards: Sequence[Any], op: Any, streams: Sequence[Any] | None, initial: Any, options: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return what a call depends on; raises if that cannot be known without the driver."""
    arrays = tuple(known_as(x) for x in shards)
    if UNKNOWN in arrays:
        raise TypeError("the driver must be asked about the memory of an array")
    if streams is None:
        # The key of an array has the context's number and a default stream's handle, or says where its library works.
        own = zip(shards, arrays, strict=True)
        places = tuple(x.stream if known[0] is DeviceArray and known[2] > _PER_THREAD else None for x, known in own)
    else:
        places = tuple(_place(stream) for stream in streams)
    return arrays, places, op, initial_key(initial), options


def _pointer_of(known: tuple[Any, ...], place: Place) -> PointerOf | None:
    """Return what reads addresses of arrays like one of which `known_as` returned this; None if that is not safe.

    It is if their memory is known to be whole, and of the place's context, and their stream is the place's.
    """
    if known[2] != place.handle or not are_of(place, known):
        return None
    return _own_pointer if known[0] is DeviceArray else known[0].pointer


def _own_pointer(x: DeviceArray) -> int:
    return x._memory.pointer


def _place(stream: Any) -> Any:
    """Return what stands for a given stream: of a default one, of which there may be many objects, its context's."""
    if type(stream) is not Stream and type(stream) is not ThreadStream:
        raise TypeError(f"{type(stream).__name__} is asked for its stream at each call")
    handle = stream.handle
    if handle > _PER_THREAD:
        return stream
    if stream._context is None:
        raise TypeError("a default stream without a context is looked at by others")
    return stream._context.id, handle or LEGACY


def _nothing() -> None:
    """Do nothing: where there is nothing to wait for."""
