"""``cuda.compute`` of the package cuda-cccl: CUB compiled at run time, from Python."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from benchmarks.harness import Inputs, Maker, Ready
from benchmarks.peers.common import Missing, RawArray, closer, raw_arrays, reader
from benchmarks.peers.cub import TYPES
from benchmarks.problems import Case
from lowlevel_reduce import Buffer, Stream
from lowlevel_reduce.dtypes import numpy_dtype

__all__ = ["open_peer"]

_LACKS = ("bfloat16",)


class ComputePeer:
    """Sums of whole arrays and of segments."""

    def __init__(self, compute: Any) -> None:
        self._compute = compute

    def ready(self, case: Case, inputs: Inputs, stream: Stream) -> list[Maker]:
        """Return the sum of a whole array, prepared beforehand (``make_reduce_into``)."""
        known = case.dtype in TYPES and case.dtype not in _LACKS
        if case.op != "sum" or case.axis is not None or case.offsets is not None or not known:
            return []
        return [Maker("cuda.compute", lambda: self._made(case, inputs, stream))]

    def _made(self, case: Case, inputs: Inputs, stream: Stream) -> Ready:
        result = numpy_dtype(TYPES[case.dtype][2])
        out = Buffer.allocate(64, stream.context)
        target = RawArray(out.pointer, (1,), result)
        arrays = raw_arrays(inputs.pointers, (case.size,), case.dtype)
        plus, zero = self._compute.OpKind.PLUS, np.zeros(1, result)
        call = self._compute.make_reduce_into(d_in=arrays[0], d_out=target, op=plus, h_init=zero)
        common = {"d_out": target, "num_items": case.size, "op": plus, "h_init": zero, "stream": stream}
        size = int(call(temp_storage=None, d_in=arrays[0], **common))
        workspace = Buffer.allocate(max(size, 1), stream.context)
        storage = RawArray(workspace.pointer, (size,), np.dtype(np.uint8))
        storage.nbytes = size  # type: ignore[attr-defined]  # which cuda.compute asks a workspace for

        def enqueue(i: int) -> None:
            call(temp_storage=storage, d_in=arrays[i % len(arrays)], **common)

        results = reader(out, 1, result, stream)
        return Ready("cuda.compute", enqueue, results, close=closer(stream, workspace, out))


def open_peer(stream: Stream) -> ComputePeer:
    """Return ``cuda.compute``; raise `Missing` where it is not there."""
    try:
        return ComputePeer(importlib.import_module("cuda.compute"))
    except ImportError as error:
        raise Missing(f"cuda-cccl is not installed: {error}") from error
