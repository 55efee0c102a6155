"""A few bytes of device memory, read by the host: one copy and one wait, which each thread builds once."""

from __future__ import annotations

import ctypes
import threading

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.stream import Stream

__all__ = ["MAX_BYTES", "read"]

MAX_BYTES = 256
"""The most that `read` reads; more than that is worth an array of its own to be copied into."""


class _Copy:
    """The driver calls of a read, of which only three numbers are open; for one call at a time."""

    __slots__ = ("_content", "_enqueue", "_size_bytes", "_source", "_stream", "_wait", "current", "driver")

    def __init__(self, driver: binding.Implementation) -> None:
        self.driver = driver
        # Not page-locked: that would be memory of one context, to be given back before that ends.
        self._content = ctypes.create_string_buffer(MAX_BYTES)
        self._source, self._size_bytes, self._stream = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
        self.current = driver.prebuilt_number("cuCtxGetCurrent")
        self._enqueue = driver.prebuilt(
            "cuMemcpyAsync", ctypes.addressof(self._content), self._source, self._size_bytes, self._stream
        )
        self._wait = driver.prebuilt("cuStreamSynchronize", self._stream)

    def __call__(self, pointer: int, size_bytes: int, stream: int) -> bytes:
        """Return the content; the stream's context is current."""
        self._source.value = pointer
        self._size_bytes.value = size_bytes
        self._stream.value = stream
        code = self._enqueue()
        if code:
            self.driver.raise_for("cuMemcpyAsync", code)
        # The driver has mostly waited by now, but it promises that of no copy that is asked for in a stream.
        code = self._wait()
        if code:
            self.driver.raise_for("cuStreamSynchronize", code)
        return self._content.raw[:size_bytes]


_threads = threading.local()


def _in_child() -> None:
    global _threads  # noqa: PLW0603 - of the parent's driver
    _threads = threading.local()


binding.after_fork(_in_child)


def read(pointer: int, size_bytes: int, stream: Stream) -> bytes:
    """Return the content of memory, as it is behind all work put into a stream so far; waits for that.

    Parameters
    ----------
    pointer, size_bytes : int
        The memory: up to `MAX_BYTES`.
    stream : Stream
        In whose order.

    Raises
    ------
    ValueError
        If the stream or its context is closed.
    CudaError
        If the driver refuses, or an error of earlier work surfaces.
    """
    handle = stream.handle
    driver = binding.selected()
    # Nothing is left here while a call is under way, so that a signal's handler inside of it makes its own.
    copy: _Copy | None = getattr(_threads, "kept", None)
    _threads.kept = None
    if copy is None or copy.driver is not driver:
        copy = _Copy(driver)
    try:
        current, context = copy.current(), stream.context
        if current == context.handle:
            return copy(pointer, size_bytes, handle)
        if current < 0:
            driver.raise_for("cuCtxGetCurrent", -current)
        with context.pushed():
            return copy(pointer, size_bytes, handle)
    finally:
        _threads.kept = copy
