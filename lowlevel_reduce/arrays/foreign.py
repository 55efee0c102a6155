"""Memory of other libraries by their protocols, through cuda.core's view of it, which calls NVIDIA's driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import ReduceError, UnsupportedError

__all__ = ["nvidias_memory", "strided_memory_view"]

_strided: Callable[..., Any] | None = None


def strided_memory_view() -> Any:
    """Return cuda.core's StridedMemoryView, imported at first use, which takes 85 ms.

    Raises
    ------
    ReduceError
        If it is not installed.
    """
    global _strided  # noqa: PLW0603
    if _strided is None:
        try:
            from cuda.core.utils import StridedMemoryView  # noqa: PLC0415
        except ImportError as error:
            raise ReduceError(
                'DLPack and __cuda_array_interface__ need cuda-core: pip install "lowlevel-reduce[cu12]" or "[cu13]"'
            ) from error
        _strided = StridedMemoryView
    return _strided


@contextmanager
def nvidias_memory() -> Iterator[None]:
    """If calls go to another driver, turn a failure in the block into an `UnsupportedError` that says so clearly.

    The block views memory by cuda.core, which knows only memory of NVIDIA's driver.
    """
    try:
        yield
    except RuntimeError as error:  # from whatever cuda.core asked, which found no driver, or not this memory
        driver = binding.selected().name
        if driver == "cuda":
            raise
        raise UnsupportedError(
            f"arrays of other libraries lie in memory of NVIDIA's driver, and calls go to the driver {driver!r}: pass "
            f"NumPy arrays or DeviceArrays, which .numpy() makes NumPy's ({error})"
        ) from error
