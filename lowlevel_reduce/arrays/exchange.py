"""Arrays of other libraries: their memory, by attributes or a protocol, and the order between their streams and ours.

The protocols name a stream by its handle alone. The handles 1 and 2 mean a different stream in every context. If they
come from a consumer or a producer, they mean the streams of the primary context, in which these libraries work, not
those of the context that is current here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from lowlevel_reduce.arguments import integer
from lowlevel_reduce.arrays.foreign import nvidias_memory, strided_memory_view
from lowlevel_reduce.arrays.libraries import Producer
from lowlevel_reduce.arrays.protocols import (
    Export,
    checked_interface,
    device_of,
    exports_by_itself,
    has_member,
    member_of,
    raise_clearly,
)
from lowlevel_reduce.driver import Context, Stream, binding
from lowlevel_reduce.driver.stream import LEGACY
from lowlevel_reduce.driver.waits import waits
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.layout import contiguous_strides

__all__ = [
    "ArrayView",
    "exported_stream",
    "foreign_view",
    "home_of",
    "known_home",
    "order_consumer",
    "produced_view",
    "view_of",
]

_PER_THREAD = 2
_NO_SYNCHRONIZATION = -1  # means "do not order the streams" to DLPack and StridedMemoryView


class ArrayView(NamedTuple):
    """An array on the device: what a launch needs to know, and the owner, which keeps the memory alive.

    `strides_bytes` is None if the array is contiguous in C order.
    """

    pointer: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...] | None
    dtype: np.dtype[Any]
    readonly: bool
    owner: Any


def view_of(x: Any, producer: Producer) -> ArrayView:
    """Return the memory of a known library's array, of which the library alone is asked; orders no streams."""
    shape, strides_bytes, dtype = producer.facts(x)
    element_type(dtype)
    contiguous = strides_bytes == contiguous_strides(shape, dtype.itemsize)
    pointer = producer.pointer(x)
    return ArrayView(pointer, shape, None if contiguous else strides_bytes, dtype, not producer.writable, x)


def produced_view(x: Any, producer: Producer, stream: Stream) -> ArrayView:
    """Return the memory of a known library's array; `stream` is made to wait for the library's current stream."""
    _, ordinal, handle, *_ = producer.known(x)  # which raises for what has no plain memory
    view = view_of(x, producer)
    working = Stream.from_handle(handle)
    if working.is_default:  # of the primary context, in which these libraries work
        working = Stream.from_handle(handle, context=Context.primary(ordinal))
    if not stream.is_same(working):
        stream.follow(working)
    return view


def foreign_view(x: Any, stream: Stream) -> ArrayView:
    """Return the memory of an array by one of its protocols; `stream` is made to wait for its producer's work.

    The stream's context must be current.
    """
    # PyTorch's own export refuses conjugated tensors; cuda.core reads the tensors of some versions without it, and
    # accepts both.
    for asked, done in (("neg", "negated"), ("conj", "conjugated")):
        is_so = member_of(x, f"is_{asked}")
        if callable(is_so) and is_so():
            raise ValueError(f"the tensor is {done} lazily, and its memory holds other values: call resolve_{asked}()")
    # DLPack comes first, as in StridedMemoryView.
    by_dlpack = callable(member_of(x, "__dlpack__")) and callable(member_of(x, "__dlpack_device__"))
    if not by_dlpack and not has_member(x, "__cuda_array_interface__"):
        raise TypeError(f"{type(x).__name__} has __dlpack__, and no __dlpack_device__(), or they are no functions")
    member = "__dlpack__" if by_dlpack else "__cuda_array_interface__"
    with nvidias_memory():
        try:
            view = _view_by_dlpack(x, stream) if by_dlpack else _view_by_interface(x, stream)
            dtype = view.dtype
            strides = view.strides  # in elements
            return ArrayView(
                pointer=view.ptr % (1 << 64),  # it is signed
                shape=tuple(view.shape),
                strides_bytes=None if strides is None else tuple(stride * dtype.itemsize for stride in strides),
                dtype=dtype,
                readonly=view.readonly,
                owner=(x, view),
            )
        except Exception as error:  # noqa: BLE001 - cuda.core's, or of another library
            raise_clearly(x, member, error)


def _view_by_dlpack(x: Any, stream: Stream) -> Any:
    """Have the producer order its work before a stream that it can name: ours, or its legacy one, which we follow."""
    # Before the producer is asked for the memory: PyTorch answers a stream with an AssertionError if there is none.
    device = device_of(x)
    asked = x if exports_by_itself(x) else Export(x, device)
    if home_of(stream.context)[1]:  # they work in ours: it need not be retained once more for that, and is current
        return strided_memory_view().from_any_interface(asked, stream_ptr=stream.handle or LEGACY)
    with _their_context(stream.context) as theirs:
        ours = not stream.is_default or stream.context == theirs
        told = stream if ours else Stream.legacy(theirs)
        with theirs.pushed():  # so that a producer that uses the current context works in its own streams, too
            view = strided_memory_view().from_any_interface(asked, stream_ptr=told.handle or LEGACY)
        if not ours:
            stream.follow(told)
    return view


def _view_by_interface(x: Any, stream: Stream) -> Any:
    """Make our stream wait for the one that the interface names, each in its own context."""
    handle = checked_interface(x).get("stream")
    named = None if handle is None else _named(x, handle)
    view = strided_memory_view().from_any_interface(x, stream_ptr=_NO_SYNCHRONIZATION)
    if named is not None:  # else there is nothing to wait for
        with _theirs(named, stream.context) as producer:
            if not stream.is_same(producer):
                stream.follow(producer)
    return view


_HOMES = "homes of contexts"  # in what is kept for a driver
_MOST_HOMES = 1024  # that are remembered
_NONE: dict[Any, Any] = {}

BOUNDS = {_HOMES: _MOST_HOMES}
"""The most entries of what is kept here, by its name: who watches for growth tells it from what has no bound."""


def known_home(number: int | None) -> tuple[int, bool] | None:
    """Return what `home_of` has returned for the context of a number, None if it was not asked."""
    known: tuple[int, bool] | None = binding.selected().kept.get(_HOMES, _NONE).get(number)
    return known


def home_of(context: Context, number: int | None = None) -> tuple[int, bool]:
    """Return the ordinal of a context's device, and whether it is the primary one there.

    The driver is asked once for each context, and for the number where it is not given.

    Parameters
    ----------
    context : Context
        The context.
    number : int, optional
        The driver's number of it, `Context.id`, which no other context will have.
    """
    homes: dict[int, tuple[int, bool]] = binding.selected().kept.setdefault(_HOMES, {})
    number = context.id if number is None else number
    known = homes.get(number)
    if known is None:
        if len(homes) >= _MOST_HOMES:
            homes.clear()
        with _their_context(context) as theirs:
            # Without a primary one, `theirs` is the context itself.
            known = context.device.ordinal, theirs is not context and theirs == context
        homes[number] = known
    return known


def order_consumer(handle: int, stream: Stream, *, is_primary: bool) -> None:
    """Make a consumer's stream, given by its handle, wait for the work of `stream`; the host does not wait.

    `is_primary` tells whether the context of `stream` is the primary one, whose the default streams of consumers are.
    The driver is asked nothing if the consumer's is the same stream.
    """
    if handle > _PER_THREAD or is_primary:
        if handle != (stream.handle or LEGACY):
            waits().of_consumer(handle, stream)
        return
    with _theirs(handle, stream.context) as consumer:
        if not consumer.is_same(stream):
            consumer.follow(stream)


def exported_stream(stream: Stream, number: int | None = None) -> int:
    """Return a handle that a consumer understands, of a stream that is ordered after all work of `stream`.

    The driver is asked as by `order_consumer`.
    """
    if not stream.is_default:
        return stream.handle
    if (known_home(number) or home_of(stream.context, number))[1]:
        return stream.handle or LEGACY  # 0 is not allowed there
    with _their_context(stream.context) as theirs:
        if stream.context != theirs:
            stand_in = Stream.legacy(theirs)
            stand_in.follow(stream)
            stream = stand_in
    return stream.handle or LEGACY


def _named(x: Any, handle: Any) -> int:
    what = f"{type(x).__name__}.__cuda_array_interface__"
    number = integer(handle, f"{what} names a stream by an integer")
    if not LEGACY <= number < 1 << 64:
        raise ValueError(f"{what} names the stream {number}; 1 is the legacy one, None is no stream")
    return number


@contextmanager
def _theirs(handle: int, ours: Context) -> Iterator[Stream]:
    """Yield the stream that another library means by a handle."""
    stream = Stream.from_handle(handle)
    if not stream.is_default:
        yield stream
        return
    with _their_context(ours) as context:
        yield Stream.from_handle(handle, context=context)


@contextmanager
def _their_context(ours: Context) -> Iterator[Context]:
    """Yield the context in which other libraries work on our device.

    That is the primary context. If it is not active, nobody works in it, and it is not created: then it is `ours`.
    """
    device = ours.device
    _, active = binding.call("cuDevicePrimaryCtxGetState", device.handle)
    if not active:
        yield ours
        return
    with Context.primary(device) as primary:
        yield primary
