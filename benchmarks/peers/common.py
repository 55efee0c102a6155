"""What the competitors share: how one is missing, an array protocol over somebody's memory, results in ours."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.timing import Replay
from lowlevel_reduce import Buffer, Stream
from lowlevel_reduce.dtypes import numpy_dtype

__all__ = ["Leaving", "Missing", "RawArray", "closer", "gpu_module", "raw_arrays", "reader"]


class Missing(Exception):  # noqa: N818  it is no error
    """A competitor that a machine lacks; the message says what."""


class RawArray:
    """Device memory as ``__cuda_array_interface__``; types that it does not know go as unsigned integers."""

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        known = dtype.kind in "biufc" and dtype.name not in ("bfloat16",) and "float8" not in dtype.name
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": dtype.str if known else f"<u{dtype.itemsize}",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }


class Leaving:
    """A graph of a library that makes new results at each call: after a replay they are what its capture made.

    Without it the last results would be those of a call that came since the capture, and a graph's never be looked at.
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
    """Return a module; raise `Missing` where it is not installed or, as `sees_gpu` asks it, has no device."""
    package = name.partition(".")[0]
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise Missing(f"{package} is not installed: {error}") from error
    if not sees_gpu(module):
        raise Missing(f"{package} is there, but sees no GPU")
    return module


def reader(out: Buffer, count: int, dtype: np.dtype[Any], stream: Stream) -> Callable[[], list[npt.NDArray[Any]]]:
    """Return what waits for a stream and returns the one array of results that is in a buffer."""

    def results() -> list[npt.NDArray[Any]]:
        host = np.empty(count, dtype)
        stream.synchronize()
        out.copy_to(host, size_bytes=host.nbytes)
        return [host]

    return results


def closer(stream: Stream, *buffers: Buffer) -> Callable[[], None]:
    """Return what waits for a stream and frees its buffers."""

    def close() -> None:
        stream.synchronize()
        for buffer in buffers:
            buffer.close()

    return close
