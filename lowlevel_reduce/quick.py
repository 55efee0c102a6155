"""The second call of a one-shot function: one dictionary look-up, a slot for the result, and the launch.

Each thread keeps bound launches of its own, by all that a call depends on. What cannot be known without asking the
driver about a pointer is not taken here, and goes the way that `api.reduce` goes at first.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from lowlevel_reduce.bound import BoundReduction
from lowlevel_reduce.driver import Context, Stream, binding
from lowlevel_reduce.interop import DeviceArray
from lowlevel_reduce.producers import Producer, producer_of
from lowlevel_reduce.slots import SLOT_BYTES, Slots

__all__ = ["MAX_QUICK", "call", "offer"]

MAX_QUICK = 64
"""Bound launches that a thread keeps, with their workspaces; when there are more it forgets them all."""

_VARIABLE = "LOWLEVEL_REDUCE_STRATEGY"
# os.environ.get encodes, looks up and decodes: 0.4 µs. Its dictionary has the answer for a tenth of that.
_environment: Any = getattr(os.environ, "_data", os.environ)
_variable: Any = os.environ.encodekey(_VARIABLE) if _environment is not os.environ else _VARIABLE


class _Entry:
    """A bound launch, and what else a call of it takes."""

    __slots__ = ("bound", "capturing", "dtype", "idle", "launch", "ordinal", "pointer", "producer", "shape", "slots")

    def __init__(
        self,
        bound: BoundReduction,
        source: tuple[Any, ...],
        result: tuple[np.dtype[Any], tuple[int, ...]],
        slots: Slots,
        *,
        may_capture: bool,
    ) -> None:
        self.bound = bound  # alive as long as this
        self.idle, self.launch = bound.kernels[0].prebuilt(in_context=True)
        known, pointer, producer = source
        self.pointer: Callable[[Any], int] = pointer
        self.producer: Producer | None = producer
        self.ordinal = known[0]
        self.dtype, self.shape = result
        self.slots = slots
        # The legacy stream cannot be captured.
        ask = binding.selected().prebuilt_number
        self.capturing = ask("cuStreamIsCapturing", slots.stream.handle) if may_capture else None

    def fits(self, x: Any) -> bool:
        """Tell whether this array is what its key says, and of this stream; and that a slot may be used now."""
        producer = self.producer
        if producer is not None and (
            producer.stream(self.ordinal) != self.slots.stream._handle or not producer.plain(x)
        ):
            return False
        # The memory of a slot is not a graph's to keep.
        return self.capturing is None or self.capturing() == 0


class _Thread:
    """What a thread keeps for one driver."""

    __slots__ = ("context_id", "driver", "entries", "slots")

    def __init__(self, driver: binding.Implementation) -> None:
        self.driver = driver
        self.entries: dict[Any, _Entry] = {}
        self.slots: dict[Any, Slots] = {}
        self.context_id = driver.prebuilt_number("cuCtxGetId", 0)  # of what is current; -1 if nothing is


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


def call(x: Any, op: Any, stream: Any, options: tuple[Any, ...]) -> DeviceArray | None:
    """Reduce `x` as it was reduced before, or return None if that was not, or cannot be known to be the same.

    Parameters
    ----------
    x, op, stream
        As for `reduce`.
    options : tuple
        All others, hashable.

    Raises
    ------
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
        # A stream has its context; without one it is what is current.
        context = thread.context_id() if stream is None else 0
        entry = thread.entries.get((kind, known, op, stream, options, _environment.get(_variable), context))
    except (TypeError, RuntimeError, ValueError):  # not hashable, or no plain array: there are words for it elsewhere
        return None
    if entry is None or not entry.fits(x):
        return None
    try:
        words = entry.idle.pop()
    except IndexError:  # closed; or this is a signal's handler, inside of a call
        return None
    try:
        slot = entry.slots.take()
        words[0] = entry.pointer(x)
        words[1] = slot.pointer
        code = entry.launch()
    finally:
        entry.idle.append(words)
    if code:
        binding.raise_for("cuLaunchKernelEx", code)
    return DeviceArray.of_slot(slot, entry.dtype, entry.shape, entry.slots.stream)


def offer(
    x: Any,
    op: Any,
    given: Any,
    options: tuple[Any, ...],
    make: Callable[[], BoundReduction],
    result: tuple[np.dtype[Any], tuple[int, ...]],
    stream: Stream,
) -> None:
    """Keep a launch for later calls of the same, if they can be known to be safe without asking the driver.

    Parameters
    ----------
    x, op, given, options
        As for `call`; `given` is the stream as it was passed.
    make : callable
        Binds the launch that is kept, which is this thread's alone.
    result : tuple
        Type and shape of the result.
    stream : Stream
        Where it ran; its context is current.
    """
    dtype, shape = result
    own_stream = given is None or (given is stream and not stream.is_default)
    if not own_stream or math.prod(shape) * dtype.itemsize > SLOT_BYTES:
        return
    thread, context = _thread(), stream.context
    try:
        source = _source(x, context, stream)
        if source is None:
            return
        key = (type(x), source[0], op, given, options, _environment.get(_variable), context.id if given is None else 0)
        kept = thread.entries.get(key)
    except (TypeError, RuntimeError, ValueError):
        return
    if kept is None or not kept.idle:
        _keep(thread, key, make, source, result, stream)


def _keep(
    thread: _Thread,
    key: tuple[Any, ...],
    make: Callable[[], BoundReduction],
    source: tuple[Any, ...],
    result: tuple[np.dtype[Any], tuple[int, ...]],
    stream: Stream,
) -> None:
    bound = make()
    if len(bound.kernels) != 1 or bound.extents.has_second:
        bound.close()
        return
    if len(thread.entries) >= MAX_QUICK:
        thread.entries.clear()
        thread.slots.clear()
    context = stream.context
    given = key[3]
    place = (context.id, given)
    if place not in thread.slots:
        thread.slots[place] = Slots(stream, context)
    thread.entries[key] = _Entry(bound, source, result, thread.slots[place], may_capture=given is not None)


def _source(x: Any, context: Context, stream: Stream) -> tuple[Any, ...] | None:
    """Return key, how to read the address, and the library; None if only the driver can tell whether `x` is good."""
    producer = producer_of(type(x))
    if producer is None:
        known = _own_key(x) if type(x) is DeviceArray else None
        if known is None or known[:2] != (context.id, stream.handle):
            return None
        return known, _own_pointer, None
    if not producer.plain(x):
        return None
    known = producer.key(x)
    return (known, producer.pointer, producer) if _is_primary(context, known[0]) else None


def _own_key(x: DeviceArray) -> tuple[Any, ...]:
    """Return what a launch depends on: the context of memory that is known to be whole, its stream, type and shape."""
    if x._home is None:
        raise ValueError("what was borrowed is looked at by the driver")
    return x._home, x.stream.handle, x.dtype, x.shape


def _own_pointer(x: DeviceArray) -> int:
    return x._memory.pointer  # raises if it was closed


def _is_primary(context: Context, ordinal: int) -> bool:
    # An array of a library that works in primary contexts is there, so retaining it for a moment creates nothing.
    with Context.primary(ordinal) as primary:
        return primary.handle == context.handle
