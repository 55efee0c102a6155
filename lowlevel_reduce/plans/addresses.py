"""Arrays in place of device addresses at a bound launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.arrays.libraries import producer_of

if TYPE_CHECKING:
    from lowlevel_reduce.plans.launch import Extents

__all__ = ["addresses_of"]


def addresses_of(extents: Extents, source: Any, result: Any, second: Any) -> tuple[Any, Any, Any]:
    """Return the addresses of arrays; what is no array on a device is returned as it is.

    Parameters
    ----------
    extents : Extents
        Which bytes a launch touches.
    source, result, second : array or object
        A `DeviceArray`, or an array of a library whose arrays are read by their attributes.

    Raises
    ------
    ValueError
        If a launch would read or write past the memory of an array, or write to a read-only one; if it was closed.
    """
    return (
        _address(source, extents.low, extents.high, "the input"),
        _address(result, 0, extents.result_bytes, "the result", is_written=True),
        _address(second, extents.second_low, extents.second_high, "the second input"),
    )


def _address(x: Any, low: int, high: int, what: str, *, is_written: bool = False) -> Any:
    """Return an array's address, if it has the bytes from `low` to `high`, counted from its first element."""
    if isinstance(x, DeviceArray):
        pointer, first, end = x.pointer, 0, x.nbytes
    else:
        producer = producer_of(type(x))
        if producer is None:
            return x
        if is_written and not producer.writable:
            raise ValueError(f"{what} of the launch is read-only: {producer.name}'s arrays are not written to")
        if producer.finish is not None:
            producer.finish(x)
        if not producer.plain(x):
            return x
        shape, strides, dtype = producer.facts(x)
        pointer, first, end = producer.pointer(x), 0, 0
        if 0 not in shape:
            farthest = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
            first = sum(offset for offset in farthest if offset < 0)
            end = sum(offset for offset in farthest if offset > 0) + dtype.itemsize
    if low < high and (low < first or high > end):
        raise ValueError(f"{what} of the launch is the bytes {low} to {high - 1}; the array has {first} to {end - 1}")
    return pointer
