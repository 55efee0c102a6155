"""Triton: a plain sum in two stages, as one would write it by hand, and one in the order of a tree."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.measure.harness import Inputs, Maker, Ready
from benchmarks.measure.problems import Case
from benchmarks.peers.common import Missing
from benchmarks.peers.torch_peer import TorchPeer, open_torch
from lowlevel_reduce import Stream

__all__ = ["open_peer"]


class TritonPeer(TorchPeer):
    """Two-stage sums of float32; tensors, streams and graphs are PyTorch's."""

    def __init__(self, torch: Any, stream: Stream, sums: Mapping[str, Callable[[Any, Any], Any]]) -> None:
        super().__init__(torch, stream)
        self._sums = sums

    def ready(self, case: Case, inputs: Inputs, stream: Stream) -> list[Maker]:
        """Return the sums, for whole arrays of float32."""
        if case.op != "sum" or case.dtype != "float32" or not case.is_plain_whole:
            return []
        return [Maker(name, functools.partial(self._ready, name, case, inputs)) for name in self._sums]

    def _ready(self, name: str, case: Case, inputs: Inputs) -> Ready:
        return self.made(name, functools.partial(self._sums[name], self.torch), self.tensors(case, inputs))


def open_peer(stream: Stream) -> TritonPeer:
    """Return Triton; raise `Missing` if it or PyTorch is not installed."""
    torch = open_torch(stream)
    try:
        kernels = importlib.import_module("benchmarks.peers.triton_sum")
    except ImportError as error:
        raise Missing(f"triton is not installed: {error}") from error
    ordered = {"Triton inner tree": kernels.inner_tree} if kernels.HAS_INNER_TREE else {}
    return TritonPeer(torch, stream, {"Triton": kernels.two_stages, **ordered})
