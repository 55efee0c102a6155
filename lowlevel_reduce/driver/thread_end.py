"""What a thread leaves in its default streams is waited for as the thread ends.

Otherwise NVIDIA's driver stands still: a thread that ends before its default stream is idle, in whose order it has
allocated memory, never gives back a lock, and most calls of other threads wait for that for ever (seen with driver
580.159.04, by the bindings alone).
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from lowlevel_reduce.driver import binding, captures, turns
from lowlevel_reduce.driver.handle import Life, quietly, within

if TYPE_CHECKING:
    from lowlevel_reduce.driver.context import Context

__all__ = ["wait_at_end"]

_PER_THREAD = 2  # the driver's handle of the calling thread's default stream
_threads = threading.local()


def wait_at_end(context: Context) -> None:
    """Let the calling thread, when it ends, wait for its default stream in a context, if that is still there."""
    try:
        end: _End = _threads.end
    except AttributeError:
        end = _threads.end = _End()
    end.add(context)


class _End:
    """The contexts in which a thread has used its default stream; goes with the thread, on the thread."""

    __slots__ = ("_lives", "_thread")

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._lives: dict[tuple[binding.Implementation, int], Life] = {}

    def add(self, context: Context) -> None:
        driver, handle = binding.selected(), context.handle
        known = self._lives.get((driver, handle))
        if known is None or known.number != context.id:  # else there was another context at the same address
            life = Life(borrowed=True)  # of no object that may be closed before the context is gone
            life.note(driver, handle)
            self._lives[driver, handle] = life

    def __del__(
        self, ending: Callable[[], bool] = sys.is_finalizing, thread: Callable[[], int] = threading.get_ident
    ) -> None:
        # Not at the interpreter's end, where names may be gone; nor of another thread, whose stream this one cannot
        # name, as in a forked child.
        if not ending() and thread() == self._thread and not turns.exiting:
            for (driver, handle), life in self._lives.items():
                wait = functools.partial(_wait, driver, handle, life)
                quietly(driver, wait, "the default stream of a thread that ends could not be waited for")


def _wait(driver: binding.Implementation, context: int, life: Life) -> None:
    if not life.ended(driver, context):
        within(driver, context, lambda: _wait_here(driver))


def _wait_here(driver: binding.Implementation) -> None:
    if not captures.take(driver, _PER_THREAD):  # else it has nothing to do, and the wait would spoil the capture
        driver.call("cuStreamSynchronize", _PER_THREAD)
