"""``torch.compile``: the same calls through Inductor, which writes Triton kernels for them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measure.harness import Inputs, Maker, Ready
from benchmarks.measure.problems import Case
from benchmarks.peers.common import Missing
from benchmarks.peers.inductor import compile_ahead, configure
from benchmarks.peers.torch_peer import Function, TorchPeer, open_torch
from lowlevel_reduce import Stream

__all__ = ["open_peer"]


class TorchCompiledPeer(TorchPeer):
    """PyTorch's reductions, compiled for the case's shape."""

    name = "torch.compile"

    def function(self, case: Case) -> Function | None:
        """Return the call to compile; for a dot product one that does not end in a library's call."""
        if case.op != "dot":
            return super().function(case)
        axes = case.axes
        return lambda pair: (pair[0] * pair[1]).sum(axes)

    def ready(self, case: Case, inputs: Inputs, stream: Stream) -> list[Maker]:
        """Return the compiled call of the case, if there is one."""
        function = self.function(case)
        if function is None:
            return []
        torch = self.torch

        def make() -> Ready:
            torch._dynamo.reset()
            compiled = torch.compile(function, fullgraph=True, dynamic=False)
            return self.made(self.name, compiled, self.tensors(case, inputs))

        return [Maker(self.name, make)]

    def prefetch(self, cases: Sequence[Case]) -> None:
        """Compile what the cases will need, and wait for it."""
        compile_ahead([case for case in cases if case.offsets is None])


def open_peer(stream: Stream) -> TorchCompiledPeer:
    """Return ``torch.compile``; raise `Missing` if Triton is not installed."""
    torch = open_torch(stream)
    try:
        import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401, PLC0415
    except ImportError as error:
        raise Missing(f"torch.compile has no Triton: {error}") from error
    configure()
    return TorchCompiledPeer(torch, stream)
