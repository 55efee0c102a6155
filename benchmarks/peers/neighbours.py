"""The kernels around a reduction that are not ours: PyTorch's elementwise ones, on the harness's stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.measure.figures import AFTER, ALONE, CONSUMED
from benchmarks.measure.harness import Inputs
from benchmarks.measure.problems import Case
from benchmarks.measure.situations import Neighbour
from benchmarks.peers.common import RawArray
from benchmarks.peers.torch_peer import TorchPeer
from lowlevel_reduce.dtypes import numpy_dtype

__all__ = ["Neighbours"]

ELSEWHERE_BYTES = 100 << 20
"""What the unrelated kernel writes: more than the L2 of a Hopper card (50 and 60 MB)."""


class Neighbours:
    """Makes the neighbours of a case. They move bits as integers, which is the same for every type."""

    def __init__(self, peer: TorchPeer) -> None:
        self._torch, self._external = peer.torch, peer.external
        self._elsewhere: Any = None

    def of(self, case: Case, inputs: Inputs, *, consumed: bool = False) -> list[Neighbour]:
        """Return those of the situations after its producer and alone, and with `consumed` before a consumer, too.

        The producer copies an array of the same elements over the first copy of the input, all that it spans, with an
        elementwise kernel, one for each of the two arrays of a dot product.
        """
        pairs = [(inputs.spare[0], inputs.pointers[0])]
        pairs += [(inputs.spare[1], inputs.seconds[0])] if inputs.seconds else []
        itemsize = numpy_dtype(case.dtype).itemsize
        arrays = [tuple(self._integers(pointer, case.array_bytes, itemsize) for pointer in pair) for pair in pairs]

        def produce() -> None:
            self._copy(arrays)

        found = [Neighbour(AFTER, produce), Neighbour(ALONE, self._write_elsewhere)]
        return [*found, Neighbour(CONSUMED, produce, self._reader(case))] if consumed else found

    def _integers(self, pointer: int, size_bytes: int, itemsize: int) -> Any:
        width = min(itemsize, 8)
        raw = RawArray(pointer, (size_bytes // width,), np.dtype(f"u{width}" if width == 1 else f"i{width}"))
        return self._torch.as_tensor(raw, device="cuda")

    def _copy(self, arrays: Sequence[tuple[Any, ...]]) -> None:
        torch = self._torch
        with torch.cuda.stream(self._external):
            for source, target in arrays:
                torch.bitwise_or(source, 0, out=target)

    def _write_elsewhere(self) -> None:
        torch = self._torch
        with torch.cuda.stream(self._external):
            if self._elsewhere is None:
                self._elsewhere = torch.empty(ELSEWHERE_BYTES // 4, dtype=torch.int32, device="cuda")
            self._elsewhere.fill_(7)

    def _reader(self, case: Case) -> Callable[[Any], object]:
        """Return what reads results, four bytes a row at most, and writes them elsewhere."""
        torch = self._torch
        with torch.cuda.stream(self._external):
            source = torch.zeros(4 * case.rows, dtype=torch.uint8, device="cuda")
            sink = torch.empty_like(source)

        views: dict[int, Any] = {}  # of memory that stays where it is, because a capture need not ask what it is

        def read(results: Any) -> None:
            with torch.cuda.stream(self._external):
                there = source if results is None else views.get(id(results))
                if there is None:
                    there = torch.as_tensor(results, device="cuda")
                    if isinstance(results, RawArray):
                        views[id(results)] = there
                bits = there.reshape(-1).view(torch.uint8)[: sink.numel()]
                torch.bitwise_or(bits, 0, out=sink[: bits.numel()])

        return read
