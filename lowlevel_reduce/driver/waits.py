"""One stream waits for another again and again: by an event that is kept, two driver calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from lowlevel_reduce.arguments import handle_of
from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.event import Event
from lowlevel_reduce.driver.stream import Stream

__all__ = ["MAX_KEPT", "Waits", "waits"]

MAX_KEPT = 32
"""The most pairs of streams of which a thread keeps an event; before it exceeds that, it forgets them all."""

BOUNDS = {"_kept": MAX_KEPT}
"""The most entries of what is kept here, by its name: who watches for growth tells it from what has no bound."""

_NOTHING = nullcontext()
_PER_THREAD = 2  # the greatest handle of a default stream


class _Wait(NamedTuple):
    """The event, kept alive, and the calls that record it and wait for it."""

    event: Event
    record: Callable[[], int]
    wait: Callable[[], int]


class Waits:
    """What one thread keeps to make streams wait for each other.

    A wait is for what the event has recorded when it is put into the stream, so the event may be recorded again at
    once.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[tuple[Stream | int, Stream], _Wait] = {}

    def clear(self) -> None:
        """Forget all events."""
        self._kept.clear()

    def __call__(self, waiting: Stream, done: Stream) -> None:
        """Make later work in the one stream wait for all work that the other has now; returns at once.

        Raises
        ------
        ValueError
            If one of them, or its context, is closed.
        CudaError
            If the driver refuses.
        """
        before, after = _scope(done), _scope(waiting)
        self._wait(waiting, waiting.handle, done, before, after)

    def of_consumer(self, handle: int, done: Stream) -> None:
        """Make somebody's stream wait, of which there is only a handle; a default one is that of the context of `done`.

        Raises
        ------
        ValueError
            If the latter, or its context, is closed, or the handle is none.
        CudaError
            If the driver refuses.
        """
        before = _scope(done)
        self._wait(handle, handle, done, before, done.context.pushed() if handle <= _PER_THREAD else _NOTHING)

    def _wait(
        self,
        waiting: Stream | int,
        handle: int,
        done: Stream,
        before: AbstractContextManager[None],
        after: AbstractContextManager[None],
    ) -> None:
        kept = self._kept.get((waiting, done))
        if kept is None:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            driver, event = binding.selected(), Event.create(done.context, timing=False)
            kept = self._kept[waiting, done] = _Wait(
                event,
                driver.prebuilt("cuEventRecord", event.handle, done.handle),
                driver.prebuilt("cuStreamWaitEvent", handle_of(handle, "stream"), event.handle, 0),
            )
        with before:
            code = kept.record()
        if code:
            binding.raise_for("cuEventRecord", code)
        with after:
            code = kept.wait()
        if code:
            binding.raise_for("cuStreamWaitEvent", code)


def _scope(stream: Stream) -> AbstractContextManager[None]:
    """Return a block in which a stream's handle means that stream: that of a default one is the current context's.

    Raises ValueError if it or its context is closed: with the handle of a stream that has ended a driver may crash.
    """
    is_default, context = stream.is_default, stream.context
    if is_default:
        return context.pushed()
    _ = context.handle
    return _NOTHING


class _Kept(threading.local):
    driver: binding.Implementation | None = None
    waits: Waits


_kept = _Kept()


def _in_child() -> None:
    global _kept  # noqa: PLW0603 - of the parent's driver
    _kept = _Kept()


binding.after_fork(_in_child)


def waits() -> Waits:
    """Return what the calling thread keeps for the driver that is selected."""
    driver = binding.selected()
    if _kept.driver is not driver:
        _kept.driver, _kept.waits = driver, Waits()
    return _kept.waits
