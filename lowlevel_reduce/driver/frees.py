"""Frees of stream-ordered memory: in a stream's order, or by another way once the stream or its context has gone."""

from __future__ import annotations

import functools
from collections.abc import Callable

from lowlevel_reduce.driver import captures, turns
from lowlevel_reduce.driver.handle import Life, within
from lowlevel_reduce.driver.held import Held
from lowlevel_reduce.driver.stream import Stream
from lowlevel_reduce.errors import CudaError

__all__ = ["free_async"]


def free_async(held: Held, life: Life, context: int, home: int, device: int, of_graph: bool, stream: Stream) -> None:
    """Free memory of a pool, unless that was done, in the order of a stream if that can still be used.

    Parameters
    ----------
    held : Held
        The address.
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

    Raises
    ------
    CudaError
        If the driver refuses.
    """
    implementation, pointer = held.implementation, held.handle
    if pointer is None:
        return
    if of_graph:
        captures.forget(implementation, pointer)
    if life.ended(implementation, context):
        # At exit it goes with the process, in less time than a primary context takes to be made: seconds under a tool.
        if not turns.exiting:
            _free_without_context(held, device)
        return
    later = functools.partial(free_async, held, life, context, home, device, of_graph, stream)
    within(implementation, home, lambda: _free_in_order(held, context, of_graph, stream, later))


def _free_in_order(held: Held, context: int, of_graph: bool, stream: Stream, later: Callable[[], None]) -> None:
    implementation = held.implementation
    try:
        # Under the lock of closing: else another thread may destroy the stream between the look and the call, in which
        # the driver ends the process.
        with turns.exclusively():
            is_open = not stream.is_closed
            if is_open and not of_graph and captures.take(implementation, stream.handle):
                captures.put_off(implementation, later)
            elif is_open:
                held.try_to_give_back("cuMemFreeAsync", held.handle, stream.handle)
    except CudaError:  # a borrowed stream may have been destroyed by its owner
        _free_without_stream(held, context, later)
        raise
    if not is_open:
        _free_without_stream(held, context, later)


def _free_without_stream(held: Held, context: int, later: Callable[[], None]) -> None:
    implementation = held.implementation
    if captures.are_under_way(implementation, context):
        captures.put_off(implementation, later)
        return
    # The order is lost with the stream. cuMemFree takes pool memory too, but does not wait for those who still use it.
    try:
        implementation.call("cuCtxSynchronize")
    except CudaError:  # a context that cannot be waited for runs nothing any more
        held.give_back("cuMemFree", held.handle)
        raise
    held.give_back("cuMemFree", held.handle)


def _free_without_context(held: Held, device: int) -> None:
    # A pool's memory is the device's, and outlives the context in whose stream it was allocated, whose work is over.
    # Freeing it needs a context of that device, and the primary one can be had by anybody.
    retained = Held(held.implementation)
    try:
        primary = int(retained.take("cuDevicePrimaryCtxRetain", device))
        within(held.implementation, primary, lambda: held.give_back("cuMemFree", held.handle))
    finally:
        retained.give_back("cuDevicePrimaryCtxRelease", device)
