"""Eager PyTorch on the harness's stream; it captures its own graphs, because its allocator must know of a capture."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measure.harness import SPOILT, Inputs, Maker, Ready
from benchmarks.measure.problems import Case
from benchmarks.measure.timing import Replay
from benchmarks.peers.common import Leaving, gpu_module, raw_arrays
from lowlevel_reduce import Stream
from lowlevel_reduce.dtypes import numpy_dtype

__all__ = ["Function", "TorchPeer", "host_array", "open_peer", "open_torch"]

Function = Callable[[Any], Any]


class TorchPeer:
    """PyTorch's reductions, one call each."""

    name = "torch"

    def __init__(self, torch: Any, stream: Stream) -> None:
        self.torch = torch
        self.external = torch.cuda.ExternalStream(stream.handle)

    def tensors(self, case: Case, inputs: Inputs) -> list[Any]:
        """Return the input's copies as tensors of the case's type and shape, or pairs of them, without copying."""
        wanted = getattr(self.torch, case.dtype)

        def made(pointers: Sequence[int]) -> list[Any]:
            before = case.shift * numpy_dtype(case.dtype).itemsize
            raw = raw_arrays([pointer - before for pointer in pointers], (case.shift + case.span,), case.dtype)
            memory = [self.torch.as_tensor(array, device="cuda").view(wanted) for array in raw]
            # As the part of an aligned tensor that a user would have: of an unaligned one, Inductor would make a copy.
            return [tensor.as_strided(case.shape, case.element_strides, case.shift) for tensor in memory]

        first = made(inputs.pointers)
        return list(zip(first, made(inputs.seconds), strict=True)) if inputs.seconds else first

    def function(self, case: Case) -> Function | None:
        """Return the call that reduces a case; None if there is none."""
        torch, axis, axes = self.torch, case.axis, case.axes  # here, and not in what is called: that is compiled
        if case.offsets is not None:
            return None
        whole, single = axis is None, isinstance(axis, int)
        table: dict[str, Function] = {
            "sum": torch.sum if whole else (lambda x: torch.sum(x, axis)),
            "max": torch.amax if whole else (lambda x: torch.amax(x, axis)),
            "mean": torch.mean if whole else (lambda x: torch.mean(x, axis)),
            "var": lambda x: torch.var(x, axis, correction=0),
            "std": lambda x: torch.std(x, axis, correction=0),
            "mean_var": lambda x: tuple(reversed(torch.var_mean(x, axis, correction=0))),
            "norm2": lambda x: torch.linalg.vector_norm(x, dim=axis),
            "norm_inf": lambda x: torch.linalg.vector_norm(x, torch.inf, dim=axis),
            "logsumexp": lambda x: torch.logsumexp(x, axes),
            "dot": lambda pair: (pair[0] * pair[1]).sum(axes),
        }
        if whole or single:
            table["argmax"] = torch.argmax if whole else (lambda x: torch.argmax(x, axis))
            table["minmax"] = torch.aminmax if whole else (lambda x: torch.aminmax(x, dim=axis))
        if single or len(case.shape) == 1:
            table["dot"] = (
                (lambda pair: torch.dot(*pair)) if whole else lambda pair: torch.linalg.vecdot(*pair, dim=axis)
            )
        if case.dtype.startswith(("int", "uint", "bool")):
            for op in (
                "mean",
                "var",
                "std",
                "mean_var",
                "norm2",
                "norm_inf",
                "logsumexp",
                "dot",
            ):  # which PyTorch has for floats only
                table.pop(op, None)
        return table.get(case.op)

    def ready(self, case: Case, inputs: Inputs, stream: Stream) -> list[Maker]:
        """Return the maker of PyTorch's call for the case, if there is one."""
        if case.offsets is not None:
            if case.op != "sum":
                return []
            return [Maker("torch.segment_reduce", functools.partial(self._segments, case, inputs))]
        function = self.function(case)
        if function is None:
            return []
        return [Maker(self.name, lambda: self.made(self.name, function, self.tensors(case, inputs)))]

    def _segments(self, case: Case, inputs: Inputs) -> Ready:
        if case.offsets is None:
            raise ValueError("this case has no segments")
        torch, tensors = self.torch, self.tensors(case, inputs)
        offsets = torch.from_numpy(case.offsets).cuda()
        return self.made(
            "torch.segment_reduce", lambda x: torch.segment_reduce(x, "sum", offsets=offsets, unsafe=True), tensors
        )

    def made(self, name: str, function: Function, tensors: list[Any]) -> Ready:
        """Return a function of one tensor, or of a pair, as a contender."""
        torch, external = self.torch, self.external
        last: list[Any] = [None]

        def enqueue(i: int) -> None:
            with torch.cuda.stream(external):
                last[0] = function(tensors[i % len(tensors)])

        def planes() -> tuple[Any, ...]:
            return last[0] if isinstance(last[0], tuple) else (last[0],)

        def results() -> list[npt.NDArray[Any]]:
            external.synchronize()
            return [host_array(torch, plane) for plane in planes()]

        def spoil() -> None:
            with torch.cuda.stream(external):
                for plane in planes():
                    plane.reshape(-1).view(torch.uint8).fill_(SPOILT)

        def close() -> None:
            last[0] = None
            external.synchronize()

        def record(enqueue: Callable[[int], object], launches: int) -> Replay:
            return Leaving(_TorchReplay(torch, external, enqueue, launches), last)

        return Ready(name, enqueue, results, record=record, outputs=lambda: planes()[0], spoil=spoil, close=close)


class _TorchReplay:
    """A graph that PyTorch captured and replays."""

    def __init__(self, torch: Any, external: Any, enqueue: Callable[[int], object], launches: int) -> None:
        self.torch, self._external = torch, external
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(external):
            enqueue(0)
            external.synchronize()
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                for i in range(launches):
                    enqueue(i)
            finally:
                self._graph.capture_end()

    def launch(self) -> None:
        with self.torch.cuda.stream(self._external):
            self._graph.replay()

    def close(self) -> None:
        self._external.synchronize()
        self._graph.reset()


def host_array(torch: Any, plane: Any) -> npt.NDArray[Any]:
    """Return a tensor on the host, 1-d and in its own type, because the check depends on how that type rounds."""
    dtype = numpy_dtype(str(plane.dtype).removeprefix("torch."))
    if dtype.isbuiltin == 1:
        return np.asarray(plane.cpu().numpy()).reshape(-1)
    # Types that NumPy lacks: PyTorch returns only their bits.
    bits = torch.int16 if dtype.itemsize == np.dtype(np.int16).itemsize else torch.uint8
    return np.asarray(plane.view(bits).cpu().numpy()).reshape(-1).view(dtype)


def open_torch(stream: Stream) -> Any:
    """Return torch with its context created; raise `Missing` if it is not installed or finds no device."""
    torch = gpu_module("torch", lambda module: module.cuda.is_available())
    torch.zeros(1, device="cuda")
    return torch


def open_peer(stream: Stream) -> TorchPeer:
    """Return PyTorch."""
    return TorchPeer(open_torch(stream), stream)


# Makes the type checker verify that it is a `Replay`.
_REPLAY: type[Replay] = _TorchReplay
