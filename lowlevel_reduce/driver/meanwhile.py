"""What a thread does while the driver makes a process's first primary context: work that is waited for otherwise.

With cuInit that takes 0.1 s, in which the calling thread does nothing and holds no GIL.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from lowlevel_reduce.driver import binding

__all__ = ["begun", "register"]

_work: list[Callable[[], object]] = []


def register(work: Callable[[], object]) -> None:
    """Have `work` called once, when this process is about to make its first primary context.

    It is called in a thread, or never, and does nothing but what is done later, if it was not done before. What it
    raises is ignored, since that is raised again then.
    """
    _work.append(work)


@contextlib.contextmanager
def begun() -> Iterator[None]:
    """Do what was registered, unless that was done, in a thread that ends with the ``with`` block, at the latest.

    It is waited for: whoever forks, or puts other modules in the place of ours, meets no thread that imports. Only for
    NVIDIA's driver is it worth a thread.
    """
    thread = None
    if _work and binding.selected().name == "cuda":
        with contextlib.suppress(IndexError, RuntimeError):  # another thread was faster; no thread can be started
            starting = threading.Thread(target=_quietly, args=(_work.pop(),), name="while a context is made")
            starting.start()
            thread = starting
    try:
        yield
    finally:
        if thread is not None:
            thread.join()


def _quietly(work: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        work()
