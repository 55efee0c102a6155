"""The arrays of a call, as seen from a place: what tells them apart, whether they are trusted, addresses, views.

An array is trusted if it is known to be whole memory of the place's context without asking the driver: a `DeviceArray`
that was allocated here, or an array of a library that is read by its attributes and works in that context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.arguments import not_masked
from lowlevel_reduce.arrays.device_array import ArrayView, DeviceArray, view_array
from lowlevel_reduce.arrays.exchange import view_of
from lowlevel_reduce.arrays.libraries import producer_of
from lowlevel_reduce.driver import Stream, binding
from lowlevel_reduce.driver.stream import ThreadStream
from lowlevel_reduce.dtypes import element_type

if TYPE_CHECKING:
    from lowlevel_reduce.arrays.libraries import Producer
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.calls.threads import Thread

__all__ = ["CURRENT", "UNKNOWN", "address_of", "are_of", "is_current", "is_here", "is_trusted", "known_as", "spot_in",
           "spot_of", "trusted_view", "view_in", "wait_behind"]  # fmt: skip

UNKNOWN = object()
"""What stands for an array or a stream of which the driver must be asked."""

CURRENT = object()
"""What a spot begins with whose context is the current one, as was just asked."""

_view = tuple.__new__  # without the Python function that `ArrayView` itself is made by

_PER_THREAD = 2
"""The greatest handle of a default stream."""


def known_as(x: Any) -> Any:
    """Return how an array is read and what a launch depends on; `UNKNOWN` if the driver must be asked about its memory.

    The former is the class of our own arrays, and the producer of another library's. Behind it are the context's number
    or the device's ordinal, the handle of the array's stream or of that in which its library works now, and the rest.
    It raises a TypeError, ValueError or RuntimeError for an array whose memory does not hold its values.
    """
    kind = type(x)
    if kind is DeviceArray:
        home = x._home
        return UNKNOWN if home is None else (kind, home, x.stream.handle or 1, x.dtype, x.shape)
    producer = producer_of(kind)
    return UNKNOWN if producer is None else producer.known(x)


def spot_of(thread: Thread, known: Any, stream: Any) -> Any:
    """Return what tells where a call of an array and a given stream is made; `UNKNOWN` if the driver must be asked.

    `known` is what `known_as` returned for the array.
    """
    if stream is None:
        return known[:3]
    if type(stream) is not Stream and type(stream) is not ThreadStream:
        return UNKNOWN
    handle = stream.handle
    if handle > _PER_THREAD:
        return UNKNOWN if stream._number is None else (None, stream._number)
    # Of a default one, whichever object it is; it is that of the current context.
    own = stream._context
    is_current = own is None or own._handle == thread.context()
    return (CURRENT, handle or 1, thread.context_id()) if is_current else UNKNOWN


def spot_in(key: Any) -> Any:
    """Return the spot of a call's key, which begins with it, or with None where the array tells it, which is next."""
    return key[1][:3] if key[0] is None else key[0]


def is_current(thread: Thread, place: Place, spot: Any) -> bool:
    """Tell whether a place's context is current, or need not be; `spot` is what `spot_of` returned, or None."""
    if not place.is_default or (spot is not None and spot[0] is CURRENT):
        return True
    return thread.context_id() == place.context_id


def address_of(thread: Thread, place: Place, x: Any, known: Any) -> int:
    """Return an array's address, for work in a place, whose stream waits for the array's; 0 if it is empty, or gone.

    `known` is what `known_as` has just returned for it.
    """
    if known[0] is DeviceArray:
        pointer: int = x._memory.pointer  # raises if the memory was closed
        if x.stream is not place.stream and not is_here(place, x):
            thread.wait(place.stream, x.stream)
        return pointer
    producer: Producer = known[0]
    if known[2] != place.handle:
        thread.wait(place.stream, thread.working_stream(producer, known[1]))
    return producer.pointer(x)


def is_here(place: Place, x: DeviceArray) -> bool:
    """Tell whether an array's stream is the place's: a default one is another one in each context."""
    handle = x.stream.handle or 1
    return handle == place.handle and (handle > _PER_THREAD or x._home == place.context_id)


def wait_behind(thread: Thread, place: Place, *arrays: Any) -> None:
    """Let other streams, in whose order arrays are overwritten or read, wait for what the place has with them."""
    for each in arrays:
        if type(each) is DeviceArray and not is_here(place, each):
            thread.wait(each.stream, place.stream)


def view_in(thread: Thread, place: Place, x: Any) -> ArrayView:
    """Return an array's memory, ready for work in a place, whose context is current; raises as `view_array`.

    Nothing is asked of the driver about an array of a library that works in this context. A view stands for itself: it
    was made for this place.
    """
    if isinstance(x, (np.ndarray, np.generic)):
        return _copied(place, x)
    if type(x) is ArrayView:
        return x
    if type(x) is DeviceArray:
        if not is_here(place, x):
            thread.wait(place.stream, x.stream)
        return ArrayView(x.pointer, x.shape, None, x.dtype, readonly=False, owner=x)
    producer = producer_of(type(x))
    if producer is None or not producer.plain(x):
        return view_array(x, place.stream)
    ordinal = producer.ordinal(x)
    if not place.is_primary_of(ordinal):
        return view_array(x, place.stream)
    view = view_of(x, producer)
    if producer.stream(ordinal) != place.handle:
        thread.wait(place.stream, thread.working_stream(producer, ordinal))
    return view


def trusted_view(known: Any) -> ArrayView:
    """Return what an array is like that is trusted, and of which `known_as` returned this: nothing is asked again.

    It has no address and no owner, which who launches has. That its type can be reduced, who prepares finds out. The
    strides of a contiguous array may be there or not.
    """
    if known[0] is DeviceArray:
        return _view(ArrayView, (0, known[4], None, known[3], False, None))
    shape, strides_bytes, dtype = known[0].read(*known[3:])
    return _view(ArrayView, (0, shape, strides_bytes, dtype, True, None))


def is_trusted(place: Place, x: Any) -> bool:
    """Tell whether an array is known to be whole memory of the place's context, without asking the driver."""
    if type(x) is DeviceArray:
        return x._home == place.context_id
    producer = producer_of(type(x))
    return producer is not None and producer.plain(x) and place.is_primary_of(producer.ordinal(x))


def are_of(place: Place, *known: Any) -> bool:
    """Tell whether arrays are trusted of which `known_as` returned these; None stands for no array."""
    for each in known:
        if each is not None and not (
            each[1] == place.context_id if each[0] is DeviceArray else place.is_primary_of(each[1])
        ):
            return False
    return True


def _copied(place: Place, x: Any) -> ArrayView:
    """Return a copy of a NumPy array, in memory of the place's pool; from pageable memory it is made at once."""
    if not x.size or place.is_capturing:
        return view_array(x, place.stream)
    element_type(x.dtype)
    host = np.ascontiguousarray(not_masked(x)).reshape(x.shape)  # a host copy where it lies otherwise
    copy = DeviceArray.of_cell(host.dtype, host.shape, place.pool.take(host.nbytes), place.stream)
    address = host.__array_interface__["data"][0]
    binding.call("cuMemcpyAsync", copy.pointer, address, host.nbytes, place.stream.handle)
    return ArrayView(copy.pointer, host.shape, None, host.dtype, readonly=False, owner=copy)
