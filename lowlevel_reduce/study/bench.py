"""A bench for demonstrations: the kernels of ``cuda_src/study``, and what it takes to launch them and read results."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.compiler import Output, Program, compile_program
from lowlevel_reduce.driver import BoundKernel, Buffer, Context, Event, Kernel, LaunchConfig, Library, Stream, binding

__all__ = ["NO_CLOCK", "STAMP", "WHERE", "Bench"]

NO_CLOCK = "not available: this driver simulates the device and tells no time"

WHERE = np.dtype([("rank", "u4"), ("size", "u4"), ("multiprocessor", "u4"), ("arrived", "u4")])
"""What ``study_where`` and ``study_meet`` write for each block."""

STAMP = np.dtype([("begin", "u8"), ("released", "u8"), ("end", "u8"), ("multiprocessor", "u8")])
"""What ``study_spin`` writes for each block, in nanoseconds of the device's clock."""

_SIGNATURES = {
    "study_where": "Q",
    "study_meet": "QQ",
    "study_spin": "QQII",
    "study_read": "QQQ",
    "study_write": "QQ",
    "study_chase": "QIQ",
    "study_flood": "QIQQ",
    "study_update": "QQQ",
}
_HEADERS = {"study_where": "placement", "study_meet": "placement", "study_update": "update"}  # all others: timing


class Bench:
    """Kernels, streams, events and memory of one context, all closed with the bench. The context must be current.

    Attributes
    ----------
    context : Context
        Where demonstrations run.
    device : Device
        Its device.
    has_clock : bool
        Whether the device has a clock, which a simulated one has not.
    stream : Stream
        A stream of the lowest priority.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.device = context.device
        self.has_clock = binding.selected().image == "cubin"
        self._stack = contextlib.ExitStack()
        self._libraries: dict[str, Library] = {}
        self.stream = self.new_stream()

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            self.context.synchronize()

    def new_stream(self) -> Stream:
        """Return a new stream."""
        return self._stack.enter_context(Stream.create(self.context))

    def new_event(self, *, timing: bool = False) -> Event:
        """Return a new event."""
        return self._stack.enter_context(Event.create(self.context, timing=timing))

    def memory(self, size_bytes: int) -> Buffer:
        """Return `size_bytes` of device memory, filled with zeros."""
        buffer = self._stack.enter_context(Buffer.allocate(size_bytes, self.context))
        buffer.fill(0)
        return buffer

    def host_memory(self, size_bytes: int) -> Buffer:
        """Return page-locked memory of the host, which kernels can write."""
        return self._stack.enter_context(Buffer.pinned(size_bytes, self.context))

    def kernel(self, name: str) -> Kernel:
        """Return a kernel of ``cuda_src/study``; those that read the clock are compiled only when one is requested."""
        header = _HEADERS.get(name, "timing")
        if header not in self._libraries:
            output: Output = "cubin" if self.has_clock else "ptx"
            program = Program(f"study_{header}", f'#include "study/{header}.cuh"\n')
            image = compile_program(program, self.device.architecture, output=output)
            self._libraries[header] = self._stack.enter_context(Library.load(image.data, name=program.name))
        return self._libraries[header].kernel(name)

    def bind(self, name: str, config: LaunchConfig, stream: Stream | None = None) -> BoundKernel:
        """Bind a kernel of ``cuda_src/study`` to the bench's stream or another one."""
        return BoundKernel(self.kernel(name), config, stream or self.stream, _SIGNATURES[name])

    def run(self, name: str, config: LaunchConfig, *values: int, stream: Stream | None = None) -> None:
        """Launch a kernel of ``cuda_src/study`` once, in the bench's stream or another one, without waiting."""
        self.bind(name, config, stream)(*values)

    def where(self, config: LaunchConfig) -> npt.NDArray[Any]:
        """Launch ``study_where`` and return its rows, one for each block."""
        out = self.memory(config.grid_blocks * WHERE.itemsize)
        self.run("study_where", config, out.pointer)
        return self.read(out, WHERE)

    def meet(self, config: LaunchConfig) -> npt.NDArray[Any]:
        """Launch ``study_meet`` and return its rows, one for each block."""
        out, arrived = self.memory(config.grid_blocks * WHERE.itemsize), self.memory(4)
        self.run("study_meet", config, out.pointer, arrived.pointer)
        return self.read(out, WHERE)

    def read(self, buffer: Buffer, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Wait for all work of the context and return a buffer's content."""
        self.context.synchronize()
        array = np.empty(buffer.size_bytes // np.dtype(dtype).itemsize, dtype)
        buffer.copy_to(array)
        return array
