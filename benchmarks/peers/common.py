"""Shared by the competitors: the error for a missing one, our memory as arrays of theirs, reading results."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measure.timing import Replay
from lowlevel_reduce import Buffer, Stream
from lowlevel_reduce.dtypes import numpy_dtype

__all__ = ["Leaving", "Missing", "RawArray", "closer", "gpu_module", "raw_arrays", "reader"]


class Missing(Exception):  # noqa: N818  it is not an error
    """A competitor that a machine lacks; the message says what."""


class RawArray:
    """Device memory with ``__cuda_array_interface__``; types that this lacks are passed as unsigned integers."""

    def __init__(
        self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], strides_bytes: tuple[int, ...] | None = None
    ) -> None:
        known = dtype.kind in "biufc" and dtype.name not in ("bfloat16",) and "float8" not in dtype.name
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": dtype.str if known else f"<u{dtype.itemsize}",
            "data": (pointer, False),
            "version": 3,
            "strides": strides_bytes,
        }


class Leaving:
    """A graph of a library whose calls allocate new results: after a replay, `last` holds those that were captured.

    Otherwise `last` would hold the result of a later call outside the graph, and the graph's would never be checked.
    """

    def __init__(self, replay: Replay, last: list[Any]) -> None:
        self._replay, self._last, self._left = replay, last, last[0]

    def launch(self) -> None:
        """Put one replay into the stream."""
        self._last[0] = self._left
        self._replay.launch()

    def close(self) -> None:
        """Destroy it."""
        self._left = None
        self._replay.close()


def raw_arrays(pointers: Sequence[int], shape: tuple[int, ...], dtype: str) -> list[RawArray]:
    """Return the copies of an input as arrays."""
    return [RawArray(pointer, shape, numpy_dtype(dtype)) for pointer in pointers]


def gpu_module(name: str, sees_gpu: Callable[[Any], bool]) -> Any:
    """Return a module; raise `Missing` if it is not installed or, according to `sees_gpu`, finds no device."""
    package = name.partition(".")[0]
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise Missing(f"{package} is not installed: {error}") from error
    if not sees_gpu(module):
        raise Missing(f"{package} is there, but sees no GPU")
    return module


def reader(out: Buffer, count: int, dtype: np.dtype[Any], stream: Stream) -> Callable[[], list[npt.NDArray[Any]]]:
    """Return a function that waits for a stream and returns the results in a buffer, as a list of one array."""

    def results() -> list[npt.NDArray[Any]]:
        host = np.empty(count, dtype)
        stream.synchronize()
        out.copy_to(host, size_bytes=host.nbytes)
        return [host]

    return results


def closer(stream: Stream, *buffers: Buffer) -> Callable[[], None]:
    """Return a function that waits for a stream and frees buffers."""

    def close() -> None:
        stream.synchronize()
        for buffer in buffers:
            buffer.close()

    return close
