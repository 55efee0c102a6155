"""Bound launches: a reduction of which only the two addresses are still open, and the check of such addresses."""

from __future__ import annotations

from collections.abc import Sequence

from lowlevel_reduce.driver import BoundKernel, Buffer, Context, Stream, binding, pointer_info

__all__ = ["BoundReduction", "DirectReduction", "check_pointer"]


class BoundReduction:
    """A plan bound to a stream. Calling it launches: one driver call (two for `two_pass`), nothing else.

    It allocates nothing, synchronises nothing and can be captured into a graph. Launches of one stream follow each
    other and may share a workspace; a bound launch is for one thread at a time.

    Attributes
    ----------
    stream : Stream
        Where it runs.
    context : Context
        The stream's context when it was bound.
    workspace : Buffer
        Partials; of zero bytes where the strategy needs none.
    source_bytes, result_bytes : int
        What the two addresses of a call must offer.
    """

    __slots__ = ("_kernels", "context", "result_bytes", "source_bytes", "stream", "workspace")

    def __init__(
        self,
        kernels: Sequence[BoundKernel],
        stream: Stream,
        workspace: Buffer,
        *,
        source_bytes: int,
        result_bytes: int,
    ) -> None:
        self._kernels = tuple(kernels)
        self.stream = stream
        self.context = stream.context
        self.workspace = workspace
        self.source_bytes = source_bytes
        self.result_bytes = result_bytes
        self._prepare()

    def _prepare(self) -> None:
        """Build what the calls of a subclass need."""

    def __call__(self, source: int, result: int) -> None:
        """Put the reduction into the stream.

        Parameters
        ----------
        source, result : int
            Device addresses of the elements, at any alignment, and of the result, aligned to its size. They are taken
            as they are: `check` looks at them, and costs driver calls.

        Raises
        ------
        TypeError, ValueError, struct.error
            If an address is no unsigned 64-bit integer; nothing is launched.
        ValueError
            If the stream was closed.
        CudaError
            If the driver refuses the launch, or an error of an earlier one surfaces.
        """
        for kernel in self._kernels:
            kernel(source, result)

    def check(self, source: int, result: int) -> None:
        """Refuse addresses that a launch must not be given; launches nothing.

        Raises
        ------
        ValueError
            If one is no device memory, or of another device or context, if the allocation ends too early, if the
            result is not aligned, or if it overlaps the elements.
        """
        if self.source_bytes:
            check_pointer(source, self.source_bytes, self.context, what="the input")
        check_pointer(result, self.result_bytes, self.context, what="the result", alignment=self.result_bytes)
        if source < result + self.result_bytes and result < source + self.source_bytes:
            raise ValueError(f"the result at {result:#x} overlaps the input at {source:#x}")

    def close(self) -> None:
        """Free the workspace, if the bound launch allocated it; what was launched must have run. Twice is once."""
        self.workspace.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {' '.join(kernel.kernel.name for kernel in self._kernels)} on {self.stream!r}>"


class DirectReduction(BoundReduction):
    """One kernel on a real stream: what `BoundKernel` does, written out, so that Python costs 0.1 µs and not 0.7."""

    __slots__ = ("_arguments", "_launch", "_slots")

    def _prepare(self) -> None:
        self._slots, self._launch, self._arguments = self._kernels[0].prebuilt()

    def __call__(self, source: int, result: int) -> None:
        """Put the reduction into the stream, as `BoundReduction` does."""
        # The hot path. No property, no method of ours: each would cost as much as all of this.
        if self.stream._handle is None:
            raise ValueError("stream is closed")
        slots = self._slots
        slots[0] = source
        slots[1] = result
        code = self._launch(*self._arguments)[0]
        if code:
            binding.raise_for("cuLaunchKernelEx", code)


def check_pointer(pointer: int, size_bytes: int, context: Context, *, what: str, alignment: int = 1) -> None:
    """Refuse an address that is not `size_bytes` of device memory of `context`.

    Raises
    ------
    ValueError
        Saying which of that it is not.
    """
    info = pointer_info(pointer)
    if info.kind not in {"device", "managed"}:
        where = "page-locked host memory" if info.kind == "host" else "not memory that the driver knows"
        raise ValueError(f"{what} at {pointer:#x} is {where}; a device pointer is due")
    ordinal = context.device.ordinal
    if info.device_ordinal is not None and info.device_ordinal != ordinal:
        raise ValueError(f"{what} at {pointer:#x} is on device {info.device_ordinal}; this runs on device {ordinal}")
    if info.context_handle is not None and info.context_handle != context.handle:
        raise ValueError(
            f"{what} at {pointer:#x} is of context {info.context_handle:#x}; this runs in context {context.handle:#x}"
        )
    left = info.base + info.size_bytes - pointer
    if left < size_bytes:
        raise ValueError(f"{what} at {pointer:#x} needs {size_bytes} bytes; its allocation ends after {left}")
    if pointer % alignment:
        raise ValueError(f"{what} at {pointer:#x} is not aligned to {alignment} bytes")
