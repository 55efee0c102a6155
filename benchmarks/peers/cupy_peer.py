"""CuPy, with CUB as its accelerator, on the harness's stream."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measure.harness import SPOILT, Inputs, Maker, Ready
from benchmarks.measure.problems import Case
from benchmarks.measure.timing import Replay, captured
from benchmarks.peers.common import Leaving, RawArray, gpu_module
from lowlevel_reduce import Stream
from lowlevel_reduce.dtypes import numpy_dtype

__all__ = ["open_peer"]


class CupyPeer:
    """CuPy's reductions, one call each."""

    def __init__(self, cupy: Any, stream: Stream) -> None:
        self.cupy = cupy
        self.external = cupy.cuda.ExternalStream(stream.handle)

    def array(self, raw: RawArray) -> Any:
        """Return memory as a CuPy array, without a copy."""
        return self.cupy.asarray(raw)

    def function(self, case: Case) -> Callable[..., Any] | None:
        """Return the call that reduces a case; None if there is none or CuPy lacks the type."""
        cupy, axis = self.cupy, case.axis
        native = numpy_dtype(case.dtype).kind in "biufc" and case.dtype not in ("bfloat16",) and "8_e" not in case.dtype
        if case.offsets is not None or not native:
            return None

        def logsumexp(x: Any) -> Any:
            # As CuPy's own, which asks on the host whether the maximum is finite, and so cannot be captured.
            top = cupy.max(x, axis=axis, keepdims=True)
            return cupy.log(cupy.sum(cupy.exp(x - top), axis=axis, keepdims=True)) + top

        table: dict[str, Callable[..., Any]] = {
            "sum": lambda x: cupy.sum(x, axis=axis),
            "max": lambda x: cupy.max(x, axis=axis),
            "mean": lambda x: cupy.mean(x, axis=axis),
            "norm_inf": lambda x: cupy.max(cupy.abs(x), axis=axis),
            "mean_var": lambda x: (cupy.mean(x, axis=axis), cupy.var(x, axis=axis)),
            "logsumexp": logsumexp,
            "dot": cupy.dot if len(case.shape) == 1 else (lambda x, y: cupy.sum(x * y, axis=axis)),
        }
        if not isinstance(axis, tuple):
            table["argmax"] = lambda x: cupy.argmax(x, axis=axis)
            table["norm2"] = lambda x: cupy.linalg.norm(x, axis=axis)
        return table.get(case.op)

    def ready(self, case: Case, inputs: Inputs, stream: Stream) -> list[Maker]:
        """Return the maker of CuPy's call for the case, if there is one."""
        function = self.function(case)
        return [] if function is None else [Maker("CuPy", lambda: self._made(function, case, inputs, stream))]

    def _made(self, function: Callable[..., Any], case: Case, inputs: Inputs, stream: Stream) -> Ready:
        dtype, strides = numpy_dtype(case.dtype), case.strides_bytes
        of_all = [
            [RawArray(pointer, case.shape, dtype, strides) for pointer in pointers]
            for pointers in (inputs.pointers, inputs.seconds)
        ]
        arrays = [tuple(map(self.array, raw)) for raw in zip(*filter(None, of_all), strict=True)]
        external, last = self.external, list[Any]([None])

        def enqueue(i: int) -> None:
            with external:
                last[0] = function(*arrays[i % len(arrays)])

        def planes() -> tuple[Any, ...]:
            return last[0] if isinstance(last[0], tuple) else (last[0],)

        def results() -> list[npt.NDArray[Any]]:
            external.synchronize()
            return [np.asarray(self.cupy.asnumpy(plane)).reshape(-1) for plane in planes()]

        def spoil() -> None:
            with external:
                for plane in planes():
                    plane.reshape(-1).view("uint8").fill(SPOILT)

        def close() -> None:
            external.synchronize()
            last[0] = None

        def record(enqueue: Callable[[int], object], launches: int) -> Replay:
            return Leaving(captured(enqueue, stream, launches), last)

        return Ready("CuPy", enqueue, results, record=record, outputs=lambda: planes()[0], spoil=spoil, close=close)


def open_peer(stream: Stream) -> CupyPeer:
    """Return CuPy; raise `Missing` if it is not installed or finds no device."""
    cupy = gpu_module("cupy", lambda module: module.cuda.is_available())
    core = importlib.import_module("cupy._core")
    core.set_routine_accelerators(["cub"])
    core.set_reduction_accelerators(["cub"])
    return CupyPeer(cupy, stream)
