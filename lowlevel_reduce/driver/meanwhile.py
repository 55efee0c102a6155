"""What a thread does while the driver makes a process's first primary context: work that is waited for otherwise.

With cuInit that takes 0.1 s, in which the calling thread does nothing and holds no GIL.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from lowlevel_reduce.driver import binding

__all__ = ["begin", "register"]

_work: list[Callable[[], object]] = []


def register(work: Callable[[], object]) -> None:
    """Have `work` called once, when this process is about to make its first primary context.

    It is called in a thread, or never, and does nothing but what is done later, if it was not done before. What it
    raises is ignored, since that is raised again then.
    """
    _work.append(work)


def begin() -> None:
    """Start a thread for what was registered, if nobody has; only NVIDIA's driver takes so long that it is worth it."""
    if not _work or binding.selected().name != "cuda":
        return
    with contextlib.suppress(IndexError, RuntimeError):  # another thread was faster; no thread can be started
        threading.Thread(target=_quietly, args=(_work.pop(),), name="while a context is made").start()


def _quietly(work: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        work()
