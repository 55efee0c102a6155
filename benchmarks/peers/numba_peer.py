"""Numba's ``cuda.reduce``. It allocates at each call and so cannot be captured: it is timed between events."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measure.harness import Inputs, Maker, Ready
from benchmarks.measure.problems import Case
from benchmarks.peers.common import gpu_module, raw_arrays
from lowlevel_reduce import Stream

__all__ = ["open_peer"]


class NumbaPeer:
    """Sums of whole arrays of float32, float64 and int64, whose accumulator is the element's type."""

    def __init__(self, cuda: Any, stream: Stream) -> None:
        self._cuda = cuda
        self._stream = cuda.external_stream(stream.handle)
        self._reduce = cuda.Reduce(lambda a, b: a + b)

    def ready(self, case: Case, inputs: Inputs, stream: Stream) -> list[Maker]:
        """Return the sum of a whole array."""
        whole = case.op == "sum" and case.is_plain_whole
        if not whole or case.dtype not in ("float32", "float64", "int64"):
            return []
        return [Maker("Numba", lambda: self._made(case, inputs))]

    def _made(self, case: Case, inputs: Inputs) -> Ready:
        cuda, stream = self._cuda, self._stream
        arrays = [cuda.as_cuda_array(raw) for raw in raw_arrays(inputs.pointers, (case.size,), case.dtype)]
        out = cuda.device_array(1, np.dtype(case.dtype))

        def enqueue(i: int) -> None:
            self._reduce(arrays[i % len(arrays)], res=out, stream=stream)

        def results() -> list[npt.NDArray[Any]]:
            stream.synchronize()
            return [np.asarray(out.copy_to_host())]

        return Ready("Numba", enqueue, results, graph=False)


def open_peer(stream: Stream) -> NumbaPeer:
    """Return Numba; raise `Missing` if it is not installed or finds no device."""
    return NumbaPeer(gpu_module("numba.cuda", lambda cuda: cuda.is_available()), stream)
