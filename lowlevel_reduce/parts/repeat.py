"""Repeated calls over ranks: what an equal call prepared is found by the part's attributes, and launched again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.arrays.libraries import producer_of
from lowlevel_reduce.arrays.results import CELL_BYTES, Pool
from lowlevel_reduce.driver import Context, binding

if TYPE_CHECKING:
    from lowlevel_reduce.driver import Stream
    from lowlevel_reduce.parts.groups import Group
    from lowlevel_reduce.parts.plan import BoundDistributed, DistributedPlan

__all__ = ["Repeat", "again", "offer"]

MOST_REPEATS = 64
"""How many calls a group remembers; before it exceeds that, it forgets them all. Their plans it keeps."""


class Repeat:
    """A bound launch of a plan that the group keeps, for arrays of one library and shape in one stream of it."""

    __slots__ = ("bound", "capturing", "handle", "made", "ordinal", "pool", "producer", "stream")

    def __init__(self, made: DistributedPlan, bound: BoundDistributed, producer: Any, ordinal: int) -> None:
        self.made, self.bound, self.producer, self.ordinal = made, bound, producer, ordinal
        self.stream: Stream = bound.stream
        self.handle = self.stream.handle or 1
        self.pool = Pool(self.stream, self.stream.context)
        # A graph must not get memory that other calls reuse. The legacy stream cannot be captured.
        prebuilt = binding.selected().prebuilt_number
        self.capturing = None if self.stream.is_default else prebuilt("cuStreamIsCapturing", self.stream.handle)

    def fits(self, part: Any) -> bool:
        """Tell whether the launch is for this array, which is as its key says, now."""
        return (
            self.made.is_kept
            and self.producer.stream(self.ordinal) == self.handle
            and self.producer.plain(part)
            and (self.capturing is None or self.capturing() == 0)
        )


def again(members: Group, part: Any, op: Any, options: tuple[Any, ...]) -> DeviceArray | None:
    """Repeat an earlier call; return None if there was none or if equality is not certain.

    `options` are all other arguments, hashable, none of which is an array.
    """
    producer = producer_of(type(part))
    if producer is None:
        return None
    try:
        kept: Repeat | None = members.repeats.get((op, options, type(part), producer.key(part)))
    except (TypeError, RuntimeError, ValueError):  # not hashable, or not a plain array: others raise a clear error
        return None
    if kept is None or not kept.fits(part):
        return None
    source = producer.pointer(part)
    if not source:
        return None
    cell = kept.pool.take()
    kept.bound(source, cell.pointer)
    return DeviceArray.of_cell(cell, kept.made.result_dtype, kept.made.result_shape, kept.stream)


def offer(
    members: Group, part: Any, op: Any, options: tuple[Any, ...], made: DistributedPlan, bound: BoundDistributed
) -> None:
    """Keep a launch for later equal calls, if it can be known without the driver that these are safe."""
    size_bytes = math.prod(made.result_shape) * made.result_dtype.itemsize
    has_result = made.root in (None, made.group.rank)
    producer = producer_of(type(part))
    if producer is None or not has_result or made.results != 1 or not 0 < size_bytes <= CELL_BYTES:
        return
    try:
        if not producer.plain(part):
            return
        known = producer.key(part)
        with Context.primary(known[0]) as primary:  # which is active: there is an array of a library that works there
            if primary.handle != bound.stream.context.handle:
                return
        if producer.stream(known[0]) != (bound.stream.handle or 1) or bound.stream.is_capturing:
            return
        if len(members.repeats) >= MOST_REPEATS:
            members.repeats.clear()
        members.repeats[op, options, type(part), known] = Repeat(made, bound, producer, known[0])
    except (TypeError, RuntimeError, ValueError):
        return
