"""Checks of CSR offsets, which give a plausible number where they are wrong: on the host, or by a reduction of ours.

Offsets are right if none falls, none is negative and none lies past the end of the array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.arrays.device_array import ArrayView, DeviceArray
from lowlevel_reduce.calls.execute import launched
from lowlevel_reduce.calls.prepared import Prepared
from lowlevel_reduce.calls.threads import here
from lowlevel_reduce.driver import Buffer, Stream, readback
from lowlevel_reduce.driver.pointers import check_pointer
from lowlevel_reduce.plans.array import plan

if TYPE_CHECKING:
    from lowlevel_reduce.arrays.allocator import Allocator
    from lowlevel_reduce.calls.places import Place

__all__ = ["check_on_device", "check_on_host", "offsets_of_host"]

_ENDS = "(y < x || x < 0) ? -1 : y"
"""Of an offset and the next one: where the segment ends, -1 if it lies wrong. The extremes of this tell all that there
is to know: one below 0 of an offset that falls or is negative, and one past the array's length of such an offset. The
length is no part of the text, so a type of offsets has one kernel for all arrays."""


def offsets_of_host(offsets: Any) -> Any:
    """Return offsets given as a list or tuple as an array of int64; anything else as it is.

    Raises
    ------
    TypeError
        If they are None, or not integers of 64 bits.
    """
    if offsets is None:  # which `execute` takes for no second array
        raise TypeError("offsets are integers of 64 bits, in one row, not None")
    if not isinstance(offsets, (list, tuple)):
        return offsets
    try:
        array = np.array(offsets) if len(offsets) else np.zeros(0, np.int64)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:  # ragged, or of objects that refuse
        raise TypeError(f"offsets are integers of 64 bits, in one row: {error}") from error
    if array.ndim != 1 or array.dtype.kind != "i":
        raise TypeError(f"offsets are integers of 64 bits, in one row, not {array.dtype} of shape {array.shape}")
    return array.astype(np.int64, copy=False)


def check_on_host(offsets: np.ndarray[Any, Any], length: int) -> None:
    """Refuse wrong offsets, which lie on the host in one axis and are not none.

    Raises
    ------
    ValueError
        That names the first place where one is wrong.
    """
    falls = offsets[1:] < offsets[:-1]
    if offsets[0] >= 0 and offsets[-1] <= length and not falls.any():
        return
    wrong = (offsets < 0) | (offsets > length)
    wrong[1:] |= falls
    place = int(np.argmax(wrong))
    value = int(offsets[place])
    if value < 0:
        why = "which is negative"
    elif value > length:
        why = f"past the end of the array, which has {length} elements"
    else:
        why = f"less than offsets[{place - 1}], which is {int(offsets[place - 1])}: they must ascend"
    raise ValueError(f"offsets[{place}] is {value}, {why}")


def check_on_device(borders: ArrayView, length: int, place: Place, allocator: Allocator | None) -> None:
    """Refuse wrong offsets on the device, which are not none; the host waits for the place's stream.

    Its context must be current. A few are read; of more the segments' ends are reduced by one launch, and two
    numbers are read. Only if these say that offsets are wrong, all are read, to name the place.

    Raises
    ------
    ValueError
        As `check_on_host`; if they are not memory of the stream's context; or if the stream is being captured, in which
        nothing can be read.
    """
    stream = place.stream
    if stream.is_capturing:
        raise ValueError("offsets cannot be checked in a capture, in which the host can read nothing: pass check=False")
    count, itemsize = borders.shape[0], borders.dtype.itemsize
    if count * itemsize <= readback.MAX_BYTES:
        check_pointer(borders.pointer, count * itemsize, stream.context, what="the offsets", alignment=itemsize)
        content = readback.read(borders.pointer, count * itemsize, stream)
        check_on_host(np.frombuffer(content, borders.dtype), length)
        return

    def made() -> Prepared:
        checking = plan("minmax", shape=(count - 1,), dtype=borders.dtype, map=_ENDS, context=place.context)
        return Prepared.of_plan(checking, place, None)

    begins = borders._replace(shape=(count - 1,))
    ends = begins._replace(pointer=begins.pointer + itemsize)
    key = ("checked offsets", borders.dtype, count)
    (least, most), _ = launched(here(), place, key, made, (begins, ends), allocator)
    if int(least) < 0 or int(most) > length:
        check_on_host(_copied(borders, stream), length)


def _copied(borders: ArrayView, stream: Stream) -> np.ndarray[Any, Any]:
    size = borders.shape[0] * borders.dtype.itemsize
    memory = Buffer.from_pointer(borders.pointer, size, context=stream.context, owner=borders.owner)
    return DeviceArray(memory, borders.dtype, borders.shape, stream).numpy()
