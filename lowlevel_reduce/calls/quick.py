"""The fast path of repeated one-shot calls: one dictionary look-up, a slot for the result, and the launch.

Each thread keeps bound launches that it alone calls, borrowed from `oneshot`, by everything that a call depends on.
Calls for which the driver would have to be asked about a pointer are not handled here: `api.reduce` handles them in the
same way as a first call.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.arrays.libraries import Producer, producer_of
from lowlevel_reduce.arrays.results import SLOT_BYTES, Slots
from lowlevel_reduce.driver import Context, Stream, binding
from lowlevel_reduce.driver.stream import ThreadStream

if TYPE_CHECKING:
    from lowlevel_reduce.calls.prepared import Entry
    from lowlevel_reduce.plans.launch import BoundReduction

__all__ = ["MAX_QUICK", "Source", "call", "key_of", "offer", "others", "slots_of", "source_of", "user"]

MAX_QUICK = 64
"""The most calls that a thread remembers, with their bound launches; before it exceeds that, it forgets them all."""

_VARIABLE = "LOWLEVEL_REDUCE_STRATEGY"
# os.environ.get encodes, looks up and decodes: 0.4 µs. Looking into its dictionary takes a tenth of that.
_environment: Any = getattr(os.environ, "_data", os.environ)
_variable: Any = os.environ.encodekey(_VARIABLE) if _environment is not os.environ else _VARIABLE

# Within a context, all objects for one default stream mean the same stream, so in keys these stand for them.
_LEGACY, _PER_THREAD = object(), object()
_ELSEWHERE = -1  # not the number of any context
_DEFAULT: dict[int | None, object] = {0: _LEGACY, 1: _LEGACY, 2: _PER_THREAD}


class Source(NamedTuple):
    """How the arrays of one key are read.

    `producer` is set for the arrays of a library that must be asked for its stream; then the key starts with the
    device's ordinal.
    """

    key: tuple[Any, ...]
    pointer: Callable[[Any], int]
    producer: Producer | None

    def address(self, x: Any, stream: int) -> int:
        """Return an array's address; 0 if it is not as its key says, used in the stream of that handle, or is empty."""
        producer = self.producer
        if producer is not None and (producer.stream(self.key[0]) != stream or not producer.plain(x)):
            return 0
        return self.pointer(x)


class _Launch:
    """A bound launch, and everything else that a call of it needs."""

    __slots__ = (
        *("bound", "capturing", "dtype", "extents", "handle", "launch", "mask", "ordinal", "pointer", "producer"),
        *("shape", "slots", "target", "turn"),
    )

    def __init__(
        self,
        bound: BoundReduction,
        arrays: tuple[Source, Source | None],
        result: tuple[np.dtype[Any], tuple[int, ...]],
        slots: Slots,
        *,
        may_capture: bool,
    ) -> None:
        self.bound = bound  # keeps it alive
        self.turn, self.launch = bound.kernels[0].prebuilt(in_context=True)
        self.mask = bound.mask
        self.extents = bound.extents
        source, self.target = arrays
        self.pointer: Callable[[Any], int] = source.pointer
        self.producer, self.ordinal = source.producer, source.key[0]
        self.dtype, self.shape = result
        self.slots = slots  # for results if there is no target
        self.handle = slots.stream.handle  # closing the stream takes the turn away
        # The legacy stream cannot be captured. A graph must get neither a slot nor a workspace that other calls reuse.
        ask = may_capture and (self.target is None or bound.workspace.size_bytes > 0)
        prebuilt = binding.selected().prebuilt_number
        self.capturing = prebuilt("cuStreamIsCapturing", self.handle) if ask else None

    def fits(self, x: Any) -> bool:
        """Tell whether this array is as its key says and used in this stream, and whether a slot may be used now."""
        producer = self.producer
        if producer is not None and (producer.stream(self.ordinal) != self.handle or not producer.plain(x)):
            return False
        return self.capturing is None or self.capturing() == 0

    def place(self, out: Any, source: int) -> int:
        """Return an output's address; 0 if it is not as its key says, or if `BoundReduction.check` would refuse it."""
        target, extents = self.target, self.extents
        if target is None:
            return 0
        result = target.address(out, self.handle)
        overlap = extents.overlap(source + extents.low, source + extents.high, result)
        return 0 if not result or overlap or result % extents.result_alignment else result


class _Thread:
    """What a thread keeps for one driver."""

    __slots__ = ("__weakref__", "context", "context_id", "driver", "launches", "others", "slots")

    def __init__(self, driver: binding.Implementation) -> None:
        self.driver = driver
        self.launches: dict[Any, _Launch] = {}
        self.slots: dict[Any, Slots] = {}
        self.others: dict[Any, Any] = {}
        self.context = driver.prebuilt_number("cuCtxGetCurrent")
        self.context_id = driver.prebuilt_number("cuCtxGetId", 0)  # of the current context; negative without one


_threads = threading.local()


def _in_child() -> None:
    global _threads  # noqa: PLW0603 - of the parent's driver
    _threads = threading.local()


binding.after_fork(_in_child)


def _thread() -> _Thread:
    driver = binding.selected()
    try:
        thread: _Thread = _threads.kept
    except AttributeError:
        thread = _threads.kept = _Thread(driver)
    if thread.driver is not driver:
        thread = _threads.kept = _Thread(driver)
    return thread


def user() -> object:
    """Return the borrower of this thread's launches: it lives as long as the thread, or until the driver changes."""
    return _thread()


def others() -> dict[Any, Any]:
    """Return what other modules keep for this thread: it goes with the thread, or when the driver changes."""
    return _thread().others


def call(x: Any, op: Any, stream: Any, options: tuple[Any, ...], out: Any) -> Any:
    """Repeat an earlier reduction with `x`; return None if there was no such call or if equality is not certain.

    Parameters
    ----------
    x, op, stream, out
        As for `reduce`.
    options : tuple
        All other arguments, hashable.

    Returns
    -------
    DeviceArray or object
        The result; `out` if that was given.

    Raises
    ------
    ValueError
        If the memory of an array was closed.
    CudaError
        If the driver refuses the launch, or has no memory for results.
    """
    kind = type(x)
    producer = producer_of(kind)
    if producer is None and kind is not DeviceArray:
        return None
    thread = _thread()
    try:
        known = _own_key(x) if producer is None else producer.key(x)
        # A stream implies its context; a default stream is that of the current context.
        place, context = stream, 0
        if stream is None:
            place, context = _LEGACY, thread.context_id()
        elif (type(stream) is Stream and (default := _DEFAULT.get(stream._handle)) is not None) or (
            type(stream) is ThreadStream and (default := _DEFAULT.get(stream.handle)) is not None
        ):
            own = stream._context
            is_current = own is None or own._handle == thread.context()
            place, context = default, thread.context_id() if is_current else _ELSEWHERE
        key: tuple[Any, ...] = (kind, known, op, place, options, _environment.get(_variable), context)
        launch = thread.launches.get(key if out is None else (*key, *key_of(out)))
    except (TypeError, RuntimeError, ValueError):  # not hashable, or not a plain array: others raise a clear error
        return None
    # An address of 0 means that there are no elements, or that a library has released the memory.
    if launch is None or not launch.fits(x) or not (source := launch.pointer(x)):
        return None
    try:
        words = launch.turn.idle.pop()
    except IndexError:  # the launch is closed, or this is a signal handler that interrupted a call of it
        return None
    try:
        words[0] = source
        if out is None:
            slot = launch.slots.take()
            words[1] = slot.pointer
        else:
            words[1] = result = launch.place(out, source)
            if not result:
                return None
        code = launch.bound.again_for(source, in_context=True) if source & launch.mask else launch.launch()
    finally:
        launch.turn.idle.append(words)
    if code:
        binding.raise_for("cuLaunchKernelEx", code)
    where = stream if place is stream else launch.slots.stream  # that one is fixed; a given default stream need not be
    return DeviceArray.of_slot(slot, launch.dtype, launch.shape, where) if out is None else out


def offer(x: Any, op: Any, given: Any, options: tuple[Any, ...], out: Any, entry: Entry, stream: Stream) -> None:
    """Keep a launch for later equal calls, if it can be known without asking the driver that these are safe.

    Parameters
    ----------
    x, op, given, options, out
        As for `call`; `given` is the stream as the caller passed it.
    entry : Entry
        The entry that ran, still in exclusive use; from now on its launch may be lent to this thread.
    stream : Stream
        Where it ran; its context must be current.
    """
    made = entry.plan
    if not (given is stream or stream.is_default) or not math.prod(made.result_shape):
        return
    small = made.results == 1 and math.prod(made.result_shape) * made.result_dtype.itemsize <= SLOT_BYTES
    if out is None and not small:
        return
    thread, context = _thread(), stream.context
    try:
        source, target = source_of(x, context, stream), None if out is None else source_of(out, context, stream)
        if source is None or (target is None) != (out is None):
            return
        place = _DEFAULT.get(stream.handle, stream)
        number = 0 if place is stream else context.id
        into = () if target is None else (type(out), target.key)
        key = (type(x), source.key, op, place, options, _environment.get(_variable), number, *into)
        kept = thread.launches.get(key)
    except (TypeError, RuntimeError, ValueError):
        return
    if kept is None or not kept.turn.is_free:
        _keep(thread, key, entry, source, target, stream)


def _keep(
    thread: _Thread, key: tuple[Any, ...], entry: Entry, source: Source, target: Source | None, stream: Stream
) -> None:
    bound = _lent(entry, thread, stream)
    if bound is None:
        return
    for old in [old for old, launch in thread.launches.items() if launch.bound.stream.is_closed]:
        del thread.launches[old]
    if len(thread.launches) >= MAX_QUICK:
        thread.launches.clear()
        thread.slots.clear()
    made, may_capture = entry.plan, key[3] is not _LEGACY
    thread.launches[key] = kept = _Launch(
        bound, (source, target), (made.result_dtype, made.result_shape), slots_of(stream), may_capture=may_capture
    )
    if may_capture and kept.capturing is None:  # later calls may be captured into a graph unnoticed
        entry.keep_loaded(bound)


def slots_of(stream: Stream) -> Slots:
    """Return this thread's slots of a stream; those of a default one are usable whichever object for it is closed."""
    thread = _thread()
    place = _DEFAULT.get(stream.handle, stream)
    where = (stream.context.id, place)
    for old in [old for old, slots in thread.slots.items() if slots.stream.is_closed]:
        del thread.slots[old]
    if where not in thread.slots:
        if len(thread.slots) >= MAX_QUICK:
            thread.slots.clear()
        if place is not stream:
            context = Context.from_handle(stream.context.handle)
            stream = Stream.from_handle(stream.handle or 1, context=context).fixed()
        thread.slots[where] = Slots(stream, stream.context)
    return thread.slots[where]


def _lent(entry: Entry, thread: _Thread, stream: Stream) -> BoundReduction | None:
    """Return a launch that only this thread calls, in exactly that stream; None if it cannot be called from here."""
    bound = entry.bound
    if bound is None or len(bound.kernels) != 1 or bound.extents.has_second:
        return None
    if bound.stream is not stream and not stream.is_default:
        # It is bound to another object for the same stream, which may be closed while this one is open.
        return None if stream.is_capturing else entry.another(stream)
    entry.lent_to = weakref.ref(thread)
    return bound


def source_of(x: Any, context: Context, stream: Stream) -> Source | None:
    """Return how arrays like `x` are read; None if only the driver can tell whether `x` is valid."""
    producer = producer_of(type(x))
    if producer is None:
        known = _own_key(x) if type(x) is DeviceArray else None
        if known is None or known[:2] != (context.id, stream.handle or 1):
            return None
        return Source(known, _own_pointer, None)
    if not producer.plain(x):
        return None
    known = producer.key(x)
    return Source(known, producer.pointer, producer) if _is_primary(context, known[0]) else None


def key_of(x: Any) -> tuple[type, tuple[Any, ...]]:
    """Return an array's class and what a launch depends on; raises if the driver must be asked about its memory."""
    kind = type(x)
    producer = producer_of(kind)
    if producer is not None:
        return kind, producer.key(x)
    if kind is not DeviceArray:
        raise TypeError(f"{kind.__name__} is asked by its protocol")
    return kind, _own_key(x)


def _own_key(x: DeviceArray) -> tuple[Any, ...]:
    """Return what a launch depends on: the context of memory that is known to be complete, stream, type and shape."""
    if x._home is None:
        raise ValueError("what was borrowed is looked at by the driver")
    return x._home, x.stream.handle or 1, x.dtype, x.shape


def _own_pointer(x: DeviceArray) -> int:
    return x._memory.pointer  # raises if the memory was closed


def _is_primary(context: Context, ordinal: int) -> bool:
    # There is an array of a library that works in primary contexts, so retaining this one briefly creates nothing.
    with Context.primary(ordinal) as primary:
        return primary.handle == context.handle
