"""PyTorch's deterministic mode, eager: the same bits from run to run on one kind of GPU."""

from __future__ import annotations

from benchmarks.measure.problems import Case
from benchmarks.peers.torch_peer import Function, TorchPeer, open_torch
from lowlevel_reduce import Stream

__all__ = ["open_peer"]


class TorchDeterministicPeer(TorchPeer):
    """PyTorch's reductions with ``torch.use_deterministic_algorithms(True)`` around each call."""

    name = "torch deterministic"

    def function(self, case: Case) -> Function | None:
        """Return the call in that mode; None if there is none."""
        function, torch = super().function(case), self.torch
        if function is None:
            return None

        def deterministic(x: object) -> object:
            torch.use_deterministic_algorithms(True)
            try:
                return function(x)
            finally:
                torch.use_deterministic_algorithms(False)

        return deterministic


def open_peer(stream: Stream) -> TorchDeterministicPeer:
    """Return PyTorch in that mode."""
    return TorchDeterministicPeer(open_torch(stream), stream)
