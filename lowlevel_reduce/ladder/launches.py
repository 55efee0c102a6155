"""A rung ready to run: compiled, loaded, mapped to a device, with its memory; a run is then a few driver calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.driver import BoundKernel, Buffer, Context, LaunchConfig, Stream, occupancy
from lowlevel_reduce.ladder.plans import Pointer, Problem, Production, Step
from lowlevel_reduce.ladder.program import kernel_source
from lowlevel_reduce.ladder.registry import Rung
from lowlevel_reduce.plans.array import plan
from lowlevel_reduce.plans.loading import LoadedKernel, load_kernel

__all__ = ["ReadyRung"]

_PORTABLE_CLUSTER = 8
_POISON = 0xA5

Launch = Callable[[int], object]


class ReadyRung:
    """A rung bound to a problem, a stream and memory of its own.

    Parameters
    ----------
    rung : Rung
        The rung to run.
    n : int
        Number of available elements; `shape` says how many of them take part.
    dtype : str
        Their type, one that the rung takes.
    block : int
        Threads of a block.
    stream : Stream
        The stream to run in. Only `result` waits for it.

    Attributes
    ----------
    shape : Shape
        How the rung runs.

    Raises
    ------
    UnsupportedError
        If the device does not support the launch.
    CompileError, NoCompilerError, CacheError, CudaError
        From the compiler, the cache or the driver.
    """

    def __init__(self, rung: Rung, n: int, dtype: str, block: int, stream: Stream) -> None:
        context = stream.context
        loaded = [load_kernel(kernel_source(rung, entry, dtype, block), context.device.architecture)
                  for entry in rung.entries]  # fmt: skip
        resident = 1
        if "cooperative" in rung.needs:
            resident = occupancy.max_cooperative_blocks(loaded[0].kernel, block, context=context)
        self.shape = rung.plan.shape(Problem(n, block, rung.entries, resident))
        self._dtype = np.dtype(rung.result or dtype)
        self._stream = stream
        self._result = Buffer.allocate(max(self.shape.results, 1) * self._dtype.itemsize, context)
        self._workspace = Buffer.allocate(self.shape.workspace_bytes, context)
        if isinstance(rung.plan, Production):
            self._closing, self._launches = self._library_launch(n, dtype, context)
        else:
            self._closing, self._launches = (), self._own_launches(rung, loaded, context)

    def run(self, source: int) -> None:
        """Put one run over the elements at `source`, an address aligned to 16 bytes, into the stream. Capturable."""
        clear = self.shape.clear
        if clear is not None:
            (self._result if clear.place == "result" else self._workspace).fill(clear.byte, stream=self._stream)
        for launch in self._launches:
            launch(source)

    def poison(self) -> None:
        """Set the result to bytes that no run writes, so that a run that writes nothing is noticed."""
        self._result.fill(_POISON, stream=self._stream)

    def result(self) -> npt.NDArray[Any]:
        """Wait for the stream and return the result, 1-d; if there is a scale, multiplied by it in float64."""
        host = np.empty(self.shape.results, self._dtype)
        self._result.copy_to(host, stream=self._stream, size_bytes=host.nbytes)
        self._stream.synchronize()
        return host if self.shape.scale == 1.0 else host.astype(np.float64) * self.shape.scale

    def close(self) -> None:
        """Free the memory; all launches must have run before."""
        for handle in (*self._closing, self._result, self._workspace):
            handle.close()

    def _own_launches(self, rung: Rung, loaded: list[LoadedKernel], context: Context) -> tuple[Launch, ...]:
        kernels = {held.kernel.name: held for held in loaded}
        return tuple(self._bound(step, kernels[step.entry], context) for step in self.shape.steps)

    def _bound(self, step: Step, held: LoadedKernel, context: Context) -> Launch:
        if step.cluster > _PORTABLE_CLUSTER:
            held.kernel.allow_non_portable_cluster(context.device)
        config = LaunchConfig(
            step.grid,
            step.block,
            cluster=step.cluster if step.cluster > 1 else None,
            cooperative=step.cooperative,
        )
        first, *others = step.arguments
        constants = [self._address(value) for value in others]
        if first == Pointer("input"):
            return BoundKernel(held.kernel, config, self._stream, step.signature, constants=constants)
        bound = BoundKernel(
            held.kernel, config, self._stream, step.signature, constants=[self._address(first), *constants]
        )
        return lambda _: bound()

    def _address(self, value: Pointer | int) -> int:
        if isinstance(value, int):
            return value
        buffer = self._result if value.place == "result" else self._workspace
        return buffer.pointer + value.offset_bytes

    def _library_launch(self, n: int, dtype: str, context: Context) -> tuple[tuple[Any, ...], tuple[Launch, ...]]:
        made = plan("sum", shape=n, dtype=dtype, context=context)
        bound = made.bind(self._stream)
        target = self._result.pointer
        return (bound, made), (lambda source: bound(source, target),)
