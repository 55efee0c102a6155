"""Driver calls that are made again and again with the same arguments, and raise what their result code means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowlevel_reduce.driver import binding

__all__ = ["raising"]


def raising(name: str, *args: Any) -> Callable[[], None]:
    """Return a function that makes a driver call, which returns nothing, and raises CudaError where that fails."""
    driver = binding.selected()
    made = driver.prebuilt(name, *args)

    def called() -> None:
        code = made()
        if code:
            driver.raise_for(name, code)

    return called
