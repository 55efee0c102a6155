"""Captures that are under way, and the frees that would spoil one: they are put off until it has ended.

Memory freed in the order of a stream under capture would have to be the graph's. Where the stream has gone, a free
waits for the context, which cannot be waited for during a capture. One that others began is known by its stream alone,
and nobody tells of its end: what was put off for it is tried again at the next allocation in a stream's order.
"""

from __future__ import annotations

from collections.abc import Callable

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.handle import quietly
from lowlevel_reduce.errors import CudaError

__all__ = ["are_under_way", "begin", "end", "forget", "free_put_off", "holding", "note", "put_off", "take"]

_CONTEXTS, _FREES = "contexts of captures", "frees put off"  # lists, which change by single, atomic operations
_MEMORY = "memory of graphs"
_IMPLICIT = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"


def begin(implementation: binding.Implementation, context: int) -> None:
    """Note that a stream of a context is about to be captured."""
    implementation.kept.setdefault(_CONTEXTS, []).append(context)


def end(implementation: binding.Implementation, context: int) -> None:
    """Note that a capture has ended, and free what was put off."""
    noted: list[int] = implementation.kept.get(_CONTEXTS, [])
    if context in noted:  # not in a forked child
        noted.remove(context)
    free_put_off(implementation)


def are_under_way(implementation: binding.Implementation, context: int) -> bool:
    """Tell whether a stream of a context is captured, by `Graph.capture`: nobody may wait for the context then."""
    return context in implementation.kept.get(_CONTEXTS, ())


def take(implementation: binding.Implementation, stream: int) -> bool:
    """Tell whether a capture would take work that is put into a stream, or be spoilt by it; whoever began it."""
    try:
        return bool(int(implementation.call("cuStreamIsCapturing", stream)))
    except CudaError as error:  # of the legacy stream, which waits for the blocking ones
        if error.name != _IMPLICIT:
            raise
        return True


def put_off(implementation: binding.Implementation, free: Callable[[], None]) -> None:
    """Keep a free for later."""
    implementation.kept.setdefault(_FREES, []).append(free)


def free_put_off(implementation: binding.Implementation) -> None:
    """Free what was put off, or put it off again; never raises, for it is nothing of the caller's."""
    frees: list[Callable[[], None]] = implementation.kept.get(_FREES, [])
    for _ in range(len(frees)):
        try:
            free = frees[0]
        except IndexError:  # another thread was faster
            return
        quietly(implementation, free)
        # Last: an interrupt before leaves it to the next try, and a second free of the same does nothing.
        if free in frees:
            frees.remove(free)


def note(implementation: binding.Implementation, pointer: int, size_bytes: int, ordinal: int) -> None:
    """Note memory that a capture allocated: a driver knows nothing of it before the graph runs."""
    implementation.kept.setdefault(_MEMORY, {})[pointer] = (size_bytes, ordinal)


def forget(implementation: binding.Implementation, pointer: int) -> None:
    """Forget memory that is about to be freed."""
    implementation.kept.get(_MEMORY, {}).pop(pointer, None)


def holding(implementation: binding.Implementation, address: int) -> tuple[int, int, int] | None:
    """Return base, size in bytes and device of the noted memory that an address lies in; None for other addresses."""
    noted: dict[int, tuple[int, int]] = implementation.kept.get(_MEMORY, {})
    for base, (size_bytes, ordinal) in list(noted.items()):
        if base <= address < base + size_bytes:
            return base, size_bytes, ordinal
    return None
