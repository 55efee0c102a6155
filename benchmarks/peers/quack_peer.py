"""quack's cross entropy (CuTe DSL), which is a logsumexp of each row and one more element read, beside ours."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measure.harness import Inputs, Maker, Ready
from benchmarks.measure.problems import Case
from benchmarks.peers.common import Missing
from benchmarks.peers.torch_peer import TorchPeer, host_array, open_torch
from lowlevel_reduce import Stream

__all__ = ["open_peer"]

TYPES = ("float16", "bfloat16", "float32")


class QuackPeer(TorchPeer):
    """``quack.cross_entropy.cross_entropy_fwd`` of contiguous rows, with element 0 of each as its target."""

    name = "quack"

    def __init__(self, torch: Any, stream: Stream, cross_entropy: Any) -> None:
        super().__init__(torch, stream)
        self._cross_entropy = cross_entropy

    def ready(self, case: Case, inputs: Inputs, stream: Stream) -> list[Maker]:
        """Return the maker of the rows' cross entropy, if the case is a logsumexp of such rows."""
        rows = case.strides is None and case.axis is not None and case.axes == (len(case.shape) - 1,)
        if case.op != "logsumexp" or case.dtype not in TYPES or not rows or case.shift:
            return []
        return [Maker(self.name, functools.partial(self._rows, case, inputs))]

    def _rows(self, case: Case, inputs: Inputs) -> Ready:
        """Return the contender; what it returns is compared after element 0, which is its loss short of, is added."""
        torch = self.torch
        tensors = [tensor.view(case.rows, case.shape[-1]) for tensor in self.tensors(case, inputs)]
        target = torch.zeros(case.rows, dtype=torch.int64, device="cuda")
        ready = self.made(self.name, lambda x: self._cross_entropy(x, target), tensors)

        def results() -> list[npt.NDArray[Any]]:
            (loss,) = ready.results()
            return [(loss + host_array(torch, tensors[0][:, 0]).astype(np.float32)).astype(np.float32)]

        return Ready(
            ready.name, ready.enqueue, results, record=ready.record, outputs=ready.outputs, spoil=ready.spoil,
            close=ready.close,
        )  # fmt: skip


def open_peer(stream: Stream) -> QuackPeer:
    """Return quack; raise `Missing` if it, or what it is written in, is not installed."""
    torch = open_torch(stream)
    try:
        module = importlib.import_module("quack.cross_entropy")
    except ImportError as error:
        raise Missing(f"quack is not installed: {error}") from error
    return QuackPeer(torch, stream, module.cross_entropy_fwd)
