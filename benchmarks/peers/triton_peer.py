"""Triton: a plain sum in two stages, as one would write it by hand."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Inputs, Maker
from benchmarks.peers.common import Missing
from benchmarks.peers.torch_peer import TorchPeer, open_torch
from benchmarks.problems import Case
from lowlevel_reduce import Stream

__all__ = ["open_peer"]


class TritonPeer(TorchPeer):
    """A two-stage sum of float32; tensors, streams and graphs are PyTorch's."""

    def __init__(self, torch: Any, stream: Stream, two_stages: Callable[[Any, Any], Any]) -> None:
        super().__init__(torch, stream)
        self._two_stages = two_stages

    def ready(self, case: Case, inputs: Inputs, stream: Stream) -> list[Maker]:
        """Return the sum, for whole arrays of float32."""
        if case.op != "sum" or case.dtype != "float32" or not case.is_plain_whole:
            return []
        return [Maker("Triton", lambda: self.made("Triton", self._sum, self.tensors(case, inputs)))]

    def _sum(self, x: Any) -> Any:
        return self._two_stages(self.torch, x)


def open_peer(stream: Stream) -> TritonPeer:
    """Return Triton; raise `Missing` if it or PyTorch is not installed."""
    torch = open_torch(stream)
    try:
        kernels = importlib.import_module("benchmarks.peers.triton_sum")
    except ImportError as error:
        raise Missing(f"triton is not installed: {error}") from error
    return TritonPeer(torch, stream, kernels.two_stages)
