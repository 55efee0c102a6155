"""``cuda.compute`` of the package cuda-cccl: CUB compiled at run time, from Python."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.measure.harness import SPOILT, Inputs, Maker, Ready
from benchmarks.measure.problems import Case
from benchmarks.peers.common import Missing, RawArray, closer, raw_arrays, reader
from benchmarks.peers.cub import TYPES
from lowlevel_reduce import Buffer, Stream
from lowlevel_reduce.dtypes import numpy_dtype

__all__ = ["open_peer"]

_LACKS = ("bfloat16",)

BORDERED_ROWS = 1024
"""Rows of at least so many elements are reduced as segments: borders are then below one percent of what is read."""


class ComputePeer:
    """Sums of whole arrays, of segments, and of rows that are long enough to be treated as segments."""

    def __init__(self, compute: Any) -> None:
        self._compute = compute

    def ready(self, case: Case, inputs: Inputs, stream: Stream) -> list[Maker]:
        """Return the sum, prepared beforehand (``make_reduce_into``, ``make_segmented_reduce``)."""
        if case.op != "sum" or case.dtype not in TYPES or case.dtype in _LACKS or not case.is_plain:
            return []
        rows = case.axis is not None and case.axis == len(case.shape) - 1 and case.shape[-1] >= BORDERED_ROWS
        if case.offsets is not None or rows:
            return [Maker("cuda.compute segmented", lambda: self._segments(case, inputs, stream))]
        return [] if case.axis is not None else [Maker("cuda.compute", lambda: self._whole(case, inputs, stream))]

    def _whole(self, case: Case, inputs: Inputs, stream: Stream) -> Ready:
        make = self._compute.make_reduce_into
        return self._made("cuda.compute", make, case, inputs, stream, {}, {"num_items": case.size})

    def _segments(self, case: Case, inputs: Inputs, stream: Stream) -> Ready:
        borders, own = inputs.offsets, list[Buffer]()
        if borders is None:
            host = np.arange(case.rows + 1, dtype=np.int64) * case.shape[-1]
            borders = Buffer.allocate(host.nbytes, stream.context)
            borders.copy_from(host)
            own = [borders]
        integer = np.dtype(np.int64)
        ends = {
            "start_offsets_in": RawArray(borders.pointer, (case.rows,), integer),
            "end_offsets_in": RawArray(borders.pointer + integer.itemsize, (case.rows,), integer),
        }
        make, count = self._compute.make_segmented_reduce, {"num_segments": case.rows}
        return self._made("cuda.compute segmented", make, case, inputs, stream, ends, count, own)

    def _made(
        self,
        name: str,
        make: Callable[..., Any],
        case: Case,
        inputs: Inputs,
        stream: Stream,
        borders: Mapping[str, RawArray],
        count: Mapping[str, int],
        own: Sequence[Buffer] = (),
    ) -> Ready:
        """Return the call that `make` returns as a contender, which frees its buffers and those in `own`."""
        result = numpy_dtype(TYPES[case.dtype][2])
        out = Buffer.allocate(max(64, case.rows * result.itemsize), stream.context)
        target = RawArray(out.pointer, (case.rows,), result)
        arrays = raw_arrays(inputs.pointers, (case.size,), case.dtype)
        common = {"d_out": target, "op": self._compute.OpKind.PLUS, "h_init": np.zeros(1, result), **borders}
        call = make(d_in=arrays[0], **common)
        common |= {"stream": stream, **count}
        size = int(call(temp_storage=None, d_in=arrays[0], **common))
        workspace = Buffer.allocate(max(size, 1), stream.context)
        storage = RawArray(workspace.pointer, (size,), np.dtype(np.uint8))
        storage.nbytes = size  # type: ignore[attr-defined]  # which cuda.compute asks a workspace for

        def enqueue(i: int) -> None:
            call(temp_storage=storage, d_in=arrays[i % len(arrays)], **common)

        results, close = reader(out, case.rows, result, stream), closer(stream, workspace, out, *own)
        return Ready(name, enqueue, results, spoil=lambda: out.fill(SPOILT, stream=stream), close=close)


def open_peer(stream: Stream) -> ComputePeer:
    """Return ``cuda.compute``; raise `Missing` if it is not installed."""
    try:
        return ComputePeer(importlib.import_module("cuda.compute"))
    except ImportError as error:
        raise Missing(f"cuda-cccl is not installed: {error}") from error
