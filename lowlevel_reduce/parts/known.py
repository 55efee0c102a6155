"""Shards whose memory is known to be whole without asking the driver: their keys, and how their addresses are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.arrays.libraries import Producer, producer_of
from lowlevel_reduce.calls.places import Place

__all__ = ["Source", "key_of", "source_of"]


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


def source_of(x: Any, place: Place) -> Source | None:
    """Return how arrays like `x` are read; None if only the driver can tell whether `x` is valid."""
    producer = producer_of(type(x))
    if producer is None:
        known = _own_key(x) if type(x) is DeviceArray else None
        if known is None or known[:2] != (place.context_id, place.handle):
            return None
        return Source(known, _own_pointer, None)
    if not producer.plain(x):
        return None
    known = producer.key(x)
    return Source(known, producer.pointer, producer) if place.is_primary_of(known[0]) else None


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
