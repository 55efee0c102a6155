"""Runs one's own kernel over elements: grid, memory and passes by the options, the result read back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.driver import BoundKernel, Buffer, Context, Kernel, LaunchConfig, Library, Stream, occupancy
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.workbench.program import OwnKernel, OwnSource

__all__ = ["OPERATIONS", "RESULTS", "LaunchOptions", "ReadyKernel", "ready"]

RESULTS = ("auto", "total", "partials")
OPERATIONS = ("sum", "max")

_PORTABLE_CLUSTER = 8
_PLAIN_SHARED_BYTES = 48 * 1024
_WORKSPACE_HEADER_BYTES = 256
_POISON = 0xA5  # a value that no sum of the elements has, so that what a kernel writes is noticed

Values = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """How one's own kernel is launched.

    Attributes
    ----------
    block : int
        Threads of a block.
    per_thread : int
        Elements for each thread, from which the grid follows.
    grid : int, optional
        Blocks, whatever the number of elements: for a kernel that strides over them.
    shared_bytes : int, optional
        Dynamic shared memory; by default one element a thread where the kernel has an ``extern __shared__`` array.
    cluster : int
        Blocks of a cluster; grids are rounded up to whole ones.
    cooperative : bool
        All blocks are resident at once: a larger grid becomes as large as fits.
    result : {"auto", "total", "partials"}
        Whether the kernel leaves the sum, or a partial for each block, which are folded by the same kernel or by
        another one. By default what it is seen to write.
    operation : {"sum", "max"}
        What the kernel computes, and so what the result holds before: 0, or for a maximum all bits set, as in the
        ladder. That is below every float as the integers compare by which atomics order them, and NaN to `fmaxf`.
    """

    block: int = 256
    per_thread: int = 1
    grid: int | None = None
    shared_bytes: int | None = None
    cluster: int = 1
    cooperative: bool = False
    result: str = "auto"
    operation: str = "sum"

    def __post_init__(self) -> None:
        for name in ("block", "per_thread", "cluster"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is 1 or more, not {getattr(self, name)}")
        if self.grid is not None and self.grid < 1:
            raise ValueError(f"the grid has 1 block or more, not {self.grid}")
        if self.shared_bytes is not None and self.shared_bytes < 0:
            raise ValueError(f"shared memory is a number of bytes, not {self.shared_bytes}")
        if self.result not in RESULTS:
            raise ValueError(f"the result is one of {', '.join(RESULTS)}, not {self.result!r}")
        if self.operation not in OPERATIONS:
            raise ValueError(f"the operation is one of {', '.join(OPERATIONS)}, not {self.operation!r}")

    def blocks(self, n: int, *, first: bool) -> int:
        """Return the grid for `n` elements; the fixed grid is for the first pass only."""
        wanted = self.grid if first and self.grid is not None else max(1, -(-n // (self.block * self.per_thread)))
        return -(-wanted // self.cluster) * self.cluster


class ReadyKernel:
    """A kernel that is loaded, with memory for `n` elements; a context manager.

    Attributes
    ----------
    grids : list of int
        The grids of the passes, after `sum` has run.
    partials : bool
        Whether the kernel leaves partials, after `sum` has run.
    """

    def __init__(
        self, source: OwnSource, kernel: OwnKernel, then: OwnKernel | None, n: int, options: LaunchOptions,
        context: Context,
    ) -> None:  # fmt: skip
        self.n, self.options, self._own, self._then = n, options, kernel, then
        self.grids: list[int] = []
        self.partials = False
        self._stream = Stream.create(context)
        self._library = Library.load(source.image, name=str(source.path))
        self._kernels = {own.entry: self._library.kernel(own.entry) for own in (kernel, then) if own is not None}
        self._input_type, self._result_type = np.dtype(kernel.convention.dtype), np.dtype(kernel.convention.result)
        self._shared = self._shared_bytes(source)
        self._prepare(context)
        most = self._most_blocks(context)
        size = max(1, most) * self._result_type.itemsize
        self._input = Buffer.allocate(max(1, n) * self._input_type.itemsize, context)
        self._buffers = [Buffer.allocate(size, context) for _ in range(3)]  # two that alternate, and the last result
        self._workspace = Buffer.allocate(_WORKSPACE_HEADER_BYTES + 8 * max(1, most), context)
        self._copies: list[Buffer] = []
        self._last = self._buffers[0]

    def __enter__(self) -> ReadyKernel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def input_type(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self._input_type

    def close(self) -> None:
        """Free the memory and unload the kernel."""
        self._stream.synchronize()
        for handle in (self._input, *self._copies, *self._buffers, self._workspace, self._library, self._stream):
            handle.close()

    def sum(self, values: Values) -> Values:
        """Run over these elements and return the result as an array of one.

        Raises
        ------
        UnsupportedError
            If the kernel leaves partials and nothing can fold them.
        KernelFault
            On the simulator, if the kernel does something wrong.
        """
        if values.size:
            self._input.copy_from(np.ascontiguousarray(values, self._input_type), stream=self._stream)
        grid = self._grid(self.n, first=True)
        first = self._buffers[0]
        self._clear(first)
        self._launch(self._own, grid, self._input.pointer, first.pointer, self.n)
        self.grids = [grid]
        self.partials = self._left_partials(first, grid)
        if self.partials:
            return self._read(self._folded(grid), 1)
        return self._read(first, 1)

    def copy(self, values: Values, count: int) -> None:
        """Put `count` copies of the elements into memory of their own, for `once` to take turns with."""
        for _ in range(count - 1):
            buffer = Buffer.allocate(self._input.size_bytes, self._stream.context)
            self._copies.append(buffer)
            buffer.copy_from(np.ascontiguousarray(values, self._input_type), stream=self._stream)
        self._stream.synchronize()

    def once(self, turn: int = 0) -> None:
        """Put one more run over the elements of the last `sum`, or a copy of them, into the stream. Capturable."""
        inputs, grid = [self._input, *self._copies], self.grids[0]
        self._clear(self._buffers[0], whole=False)
        self._launch(self._own, grid, inputs[turn % len(inputs)].pointer, self._buffers[0].pointer, self.n)
        self._last = self._folded(grid) if self.partials else self._buffers[0]

    def result(self) -> Values:
        """Wait for the runs of `once`, and return the result of the last one as an array of one."""
        return self._read(self._last, 1)

    @property
    def stream(self) -> Stream:
        """The stream of all its work."""
        return self._stream

    def _folded(self, count: int) -> Buffer:
        """Fold partials until one is left; return where it is."""
        source, target = self._buffers[0], self._buffers[1]
        if self._then is not None:
            self._clear(target, whole=False)
            self._launch(self._then, 1, source.pointer, target.pointer, count)
            return target
        if not self._own.convention.folds_itself:
            raise UnsupportedError(
                f"{self._own.name} leaves partials of type {self._result_type} and reads {self._input_type}: "
                "name the kernel that folds them by --then"
            )
        while count > 1:
            grid = self._grid(count, first=False)
            if grid >= count:
                raise UnsupportedError(f"{self._own.name} makes {grid} partials of {count}: it does not fold them")
            self._clear(target, whole=False)
            self._launch(self._own, grid, source.pointer, target.pointer, count)
            source, target, count = target, source, grid
            if len(self.grids) < 64:
                self.grids.append(grid)
        return source

    def _left_partials(self, buffer: Buffer, grid: int) -> bool:
        if self.options.result != "auto":
            return self.options.result == "partials"
        if grid == 1:
            return False
        unwritten = np.full(self._result_type.itemsize, _POISON, np.uint8).view(self._result_type)[0]
        return bool((self._bits(self._read(buffer, grid))[1:] != self._bits(np.array([unwritten]))).all())

    @staticmethod
    def _bits(values: Values) -> Values:
        return values.view(f"u{values.dtype.itemsize}")

    def _clear(self, buffer: Buffer, *, whole: bool = True) -> None:
        """Set the first result to where kernels begin, and the others to what no kernel writes."""
        if whole:
            buffer.fill(_POISON, stream=self._stream)
        first = Buffer.from_pointer(buffer.pointer, self._result_type.itemsize, context=buffer.context)
        first.fill(0 if self.options.operation == "sum" else 0xFF, stream=self._stream)
        self._workspace.fill(0, stream=self._stream)

    def _read(self, buffer: Buffer, count: int) -> Values:
        host = np.empty(count, self._result_type)
        buffer.copy_to(host, stream=self._stream, size_bytes=host.nbytes)
        self._stream.synchronize()
        return host

    def _launch(self, own: OwnKernel, grid: int, source: int, target: int, count: int) -> None:
        values = {"input": source, "result": target, "count": count, "workspace": self._workspace.pointer}
        config = LaunchConfig(
            grid,
            self.options.block,
            dynamic_shared_bytes=self._shared,
            cluster=self.options.cluster if self.options.cluster > 1 and grid > 1 else None,
            cooperative=self.options.cooperative and own is self._own,
        )
        bound = BoundKernel(self._kernels[own.entry], config, self._stream, own.convention.signature)
        bound(*(values[role] for role in own.convention.roles))

    def _grid(self, n: int, *, first: bool) -> int:
        grid = self.options.blocks(n, first=first)
        return min(grid, self._resident) if self.options.cooperative else grid

    def _most_blocks(self, context: Context) -> int:
        self._resident = 1
        if self.options.cooperative:
            kernel = self._kernels[self._own.entry]
            self._resident = occupancy.max_cooperative_blocks(kernel, self.options.block, context=context)
        return self._grid(self.n, first=True)

    def _shared_bytes(self, source: OwnSource) -> int:
        if self.options.shared_bytes is not None:
            return self.options.shared_bytes
        dynamic = ".extern .shared" in source.text if source.is_ptx else "extern __shared__" in source.text
        return self.options.block * max(self._input_type.itemsize, self._result_type.itemsize) if dynamic else 0

    def _prepare(self, context: Context) -> None:
        for kernel in self._kernels.values():
            self._allow(kernel, context)

    def _allow(self, kernel: Kernel, context: Context) -> None:
        if self._shared > _PLAIN_SHARED_BYTES:
            kernel.set_max_dynamic_shared_bytes(self._shared, context.device)
        if self.options.cluster > _PORTABLE_CLUSTER:
            kernel.allow_non_portable_cluster(context.device)


def ready(
    source: OwnSource, kernel: OwnKernel, then: OwnKernel | None, n: int, options: LaunchOptions, context: Context
) -> ReadyKernel:
    """Return the kernel ready to run over `n` elements.

    Raises
    ------
    UnsupportedError
        If a launch is impossible on the device, or a second kernel does not take what the first one leaves.
    """
    if then is not None and then.convention.dtype != kernel.convention.result:
        raise UnsupportedError(
            f"{then.name} reads {then.convention.dtype}, and {kernel.name} leaves {kernel.convention.result}"
        )
    if options.cluster > 1 and not context.device.supports_clusters:
        raise UnsupportedError(f"{context.device.name} has no clusters")
    if not math.log2(options.cluster).is_integer() or options.cluster > 16:
        raise UnsupportedError(f"a cluster has 1, 2, 4, 8 or 16 blocks, not {options.cluster}")
    return ReadyKernel(source, kernel, then, n, options, context)


Runner = Callable[[Values], Values]
