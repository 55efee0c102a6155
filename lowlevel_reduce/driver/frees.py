"""Frees of stream-ordered memory: in a stream's order, or by another way once the stream or its context has gone."""

from __future__ import annotations

import functools
from collections.abc import Callable

from lowlevel_reduce.driver import binding, captures
from lowlevel_reduce.driver.handle import Life, within
from lowlevel_reduce.driver.stream import Stream
from lowlevel_reduce.errors import CudaError

__all__ = ["free_async"]


def free_async(
    implementation: binding.Implementation,
    life: Life,
    context: int,
    home: int,
    device: int,
    of_graph: bool,
    stream: Stream,
    pointer: int,
) -> None:
    """Free memory of a pool, in the order of a stream if that can still be used.

    Parameters
    ----------
    implementation : Implementation
        The driver that allocated it.
    life : Life
        That of the context, which may have ended.
    context : int
        The stream's context.
    home : int
        The context to make current for the call.
    device : int
        The driver's device.
    of_graph : bool
        Whether it was allocated in a capture, whose graph frees it.
    stream : Stream
        In whose order. While it is captured, memory that the capture did not allocate is freed later.
    pointer : int
        The address.

    Raises
    ------
    CudaError
        If the driver refuses.
    """
    if of_graph:
        captures.forget(implementation, pointer)
    if life.ended(implementation, context):
        _free_without_context(implementation, device, pointer)
        return
    later = functools.partial(free_async, implementation, life, context, home, device, of_graph, stream, pointer)
    with within(implementation, home):
        if stream.is_closed:
            _free_without_stream(implementation, context, pointer, later)
            return
        try:
            if not of_graph and captures.take(implementation, stream.handle):
                captures.put_off(implementation, later)
            else:
                implementation.call("cuMemFreeAsync", pointer, stream.handle)
        except CudaError:  # a borrowed stream may have been destroyed by its owner
            _free_without_stream(implementation, context, pointer, later)
            raise


def _free_without_stream(
    implementation: binding.Implementation, context: int, pointer: int, later: Callable[[], None]
) -> None:
    if captures.are_under_way(implementation, context):
        captures.put_off(implementation, later)
        return
    # The order is lost with the stream. cuMemFree takes pool memory too, but does not wait for those who still use it.
    try:
        implementation.call("cuCtxSynchronize")
    finally:  # a context that cannot be waited for runs nothing any more
        implementation.call("cuMemFree", pointer)


def _free_without_context(implementation: binding.Implementation, device: int, pointer: int) -> None:
    # A pool's memory is the device's, and outlives the context in whose stream it was allocated, whose work is over.
    # Freeing it needs a context of that device, and the primary one can be had by anybody.
    primary = int(implementation.call("cuDevicePrimaryCtxRetain", device))
    try:
        with within(implementation, primary):
            implementation.call("cuMemFree", pointer)
    finally:
        implementation.call("cuDevicePrimaryCtxRelease", device)
