"""Threads of a test: begun and waited for together, and what they return or raise is the test's."""

import threading
from collections.abc import Callable
from typing import Any


def in_threads(*works: Callable[[], Any], timeout: float | None = None) -> list[Any]:
    """Run each of `works` on a thread of its own, all at once, and return what they returned, in their order.

    Raises what one of them raised, the first in their order; `AssertionError` if one has not ended after `timeout`
    seconds.
    """
    outcomes: list[Any] = [None] * len(works)
    raised: dict[int, BaseException] = {}

    def run(index: int, work: Callable[[], Any]) -> None:
        try:
            outcomes[index] = work()
        except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
            raised[index] = error

    # Daemons, lest one that never ends keep the process.
    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    if raised:
        raise raised[min(raised)]
    assert not any(thread.is_alive() for thread in threads), f"a thread has not ended after {timeout} seconds"
    return outcomes
