"""Arrays that do not tell their shape and type by attributes, but by a protocol: they are asked once, before the call.

What an operation is may depend on the rows' length or type, which is known before anything is launched.
"""

from __future__ import annotations

from typing import Any

from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.arrays.protocols import has_member
from lowlevel_reduce.calls.threads import here
from lowlevel_reduce.calls.views import view_in

__all__ = ["shaped"]


def shaped(stream: Any, x: Any, *others: Any) -> tuple[Any, ...]:
    """Return the stream and the arrays of a call, those that tell no shape or type as views of their memory.

    Parameters
    ----------
    stream : Stream, object with ``__cuda_stream__``, or None
        As for `row_operation`; returned as it is if all arrays tell their shape and type.
    x : array
        The rows, by which the stream is found.
    *others : array or None
        What lies beside them.
    """
    if type(x) is DeviceArray and not others:  # what most calls are
        return stream, x
    arrays = (x, *others)
    asked = tuple(_must_be_asked(each) for each in arrays)
    if not any(asked):
        return stream, *arrays
    thread = here()
    where = thread.stream_of(stream, x)
    with where.context.pushed():
        place = thread.place_of(where)
        return where, *(view_in(thread, place, each) if ask else each for each, ask in zip(arrays, asked, strict=True))


def _must_be_asked(x: Any) -> bool:
    """Tell whether an array has no shape or type as attributes, and a protocol; what has neither is refused later."""
    if x is None or (hasattr(x, "shape") and hasattr(x, "dtype")):
        return False
    return has_member(x, "__dlpack__") or has_member(x, "__cuda_array_interface__")
