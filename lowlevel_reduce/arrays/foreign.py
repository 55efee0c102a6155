"""Memory of other libraries by their protocols, through cuda.core's view of it, which calls NVIDIA's driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import ReduceError, UnsupportedError

__all__ = ["nvidias_memory", "only_nvidias_memory", "strided_memory_view"]

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
    except (RuntimeError, BufferError) as error:
        # From whatever cuda.core asked, which found no driver, or not this memory.
        if binding.selected().name == "cuda" or not (isinstance(error, RuntimeError) or _of_cuda_core(error.__cause__)):
            raise
        raise UnsupportedError(f"{_of_another_driver()} ({error})") from error


def _of_cuda_core(error: BaseException | None) -> bool:
    """Tell whether cuda.core raised it for what the driver answered: an Exception that is of no other kind."""
    return type(error).__module__.startswith("cuda.core")


def only_nvidias_memory() -> None:
    """Refuse to hand memory of another driver to a library, which would take the address for one of NVIDIA's.

    Raises
    ------
    UnsupportedError
        If calls go to another driver, such as the simulator.
    """
    if binding.selected().name != "cuda":
        raise UnsupportedError(_of_another_driver())


def _of_another_driver() -> str:
    return (
        "arrays of other libraries lie in memory of NVIDIA's driver, and calls go to the driver "
        f"{binding.selected().name!r}: pass NumPy arrays or DeviceArrays, which .numpy() makes NumPy's"
    )
