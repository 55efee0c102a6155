"""Reads a few bytes of device memory: one copy to page-locked memory and one wait, both built once.

A copy to pageable memory would be staged by the driver, which takes longer than a copy to page-locked memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.handle import Handle, Life, relaxed
from lowlevel_reduce.driver.held import Held
from lowlevel_reduce.driver.stream import Stream
from lowlevel_reduce.driver.turns import Known, Reason
from lowlevel_reduce.errors import CudaError

__all__ = ["MAX_BYTES", "read"]

MAX_BYTES = 4096
"""The most that `read` reads; what is copied once more on the host is then less than what a staged copy costs."""

_PLACES = 32  # of page-locked memory in a context: so many reads may be under way there at the same time
_KEPT = "reads"
_NOTHING_CURRENT = (201, 709)  # CUDA_ERROR_INVALID_CONTEXT and CUDA_ERROR_CONTEXT_IS_DESTROYED
_CAPTURING = 900  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED


class _Copy:
    """The driver calls of a read, of which only three numbers are open; for one call at a time."""

    __slots__ = (
        *("__weakref__", "_content", "_driver", "_enqueue", "_size_bytes", "_source", "_stream", "_wait"),
        "current_id",
    )

    def __init__(self, driver: binding.Implementation, content: Any) -> None:
        self._driver = driver
        self._content = content
        self._source, self._size_bytes, self._stream = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
        self.current_id = driver.prebuilt_number("cuCtxGetId", 0)
        self._enqueue = driver.prebuilt(
            "cuMemcpyDtoHAsync", ctypes.addressof(content), self._source, self._size_bytes, self._stream
        )
        self._wait = driver.prebuilt("cuStreamSynchronize", self._stream)

    def __call__(self, pointer: int, size_bytes: int, stream: int) -> bytes:
        """Return the content; the stream's context is current."""
        self._source.value = pointer
        self._size_bytes.value = size_bytes
        self._stream.value = stream
        code = self._enqueue()
        if code:
            self._driver.raise_for("cuMemcpyDtoHAsync", code)
        code = self._wait()
        if code:
            self._driver.raise_for("cuStreamSynchronize", code)
        content: bytes = self._content[:size_bytes]
        return content

    def is_over(self) -> bool:
        """Wait for the copy, which a relaxed thread may; tell whether it is done, and nothing writes here any more."""
        return relaxed(self._driver, self._wait) == 0


class _Reads(Handle):
    """The page-locked memory of one context, and the copies into it: a `User` of the context, which it does not keep.

    Its lists change by single, atomic operations: any thread may read, and a signal's handler inside of a read.
    """

    __slots__ = ("_context_handle", "_driver", "_free", "_halted", "_life", "_made", "idle", "number")

    _noun = "page-locked memory"

    def __init__(self, driver: binding.Implementation, context: Context) -> None:
        self._driver = driver
        self._context_handle = context.handle
        # The end of a context at the same address is seen by its number, whoever ends it.
        self._life = Life(borrowed=True)
        self._life.note(driver, context.handle)
        self.number = self._life.number
        self.idle: list[_Copy] = []
        # Not kept alive: one that an interrupt takes from a read is no read under way, and nobody will tell of it.
        self._made: Known[_Copy] = Known()
        self._halted = False
        self._free: list[int] = []
        context.serve(self)
        relaxed(driver, lambda: self._allocate(context))

    def _allocate(self, context: Context) -> None:
        with context.pushed():
            held = Held(self._driver)
            self._adopt(None, context.holder.releasing("cuMemFreeHost", held, inside=True))
            assert self._owned is not None  # noqa: S101 - it was just adopted
            self._owned.at_exit = False  # others may read after it; the process ends
            try:
                first = int(held.take("cuMemHostAlloc", _PLACES * MAX_BYTES, 0))
            except CudaError as error:
                # There is not always memory that may be locked. Reads stage through the driver then; an error of
                # earlier work comes back from their own calls.
                _warn(error)
                self._handle = 0
            else:
                self._handle = first
                self._free.extend(range(first, first + _PLACES * MAX_BYTES, MAX_BYTES))

    @property
    def is_over(self) -> bool:
        """Whether its context has ended.

        One that was closed here is not asked about: the driver may crash on the handle of a context that it destroyed.
        """
        return self._halted or self._life.ended(self._driver, self._context_handle)

    def take(self) -> _Copy | None:
        """Return a copy that nobody else has until it is back in `idle`; None if the context was closed."""
        try:
            return self.idle.pop()
        except IndexError:
            pass
        try:
            content = (ctypes.c_char * MAX_BYTES).from_address(self._free.pop())
        except IndexError:
            content = ctypes.create_string_buffer(MAX_BYTES)
        copy = _Copy(self._driver, content)
        self._made.add(copy)
        if self._halted:  # looked at after the copy is there to be counted by `halt`
            self._made.discard(copy)
            return None
        return copy

    def run(self, copy: _Copy, pointer: int, size_bytes: int, stream: int) -> bytes:
        """Read by a copy that was taken; the context is current."""
        try:
            content = copy(pointer, size_bytes, stream)
        except BaseException as error:
            over = False
            try:
                # A capture that forbids the caller's wait has not stopped the copy into another stream.
                over = isinstance(error, CudaError) and error.code == _CAPTURING and copy.is_over()
            finally:
                if over:
                    self.idle.append(copy)
                else:
                    self._made.discard(copy)  # nobody has it again: the driver may still write there
            raise
        self.idle.append(copy)
        return content

    def halt(self, reason: Reason) -> bool:
        """Lend no copy any more; False, and nothing has changed, if a read is under way.

        The next read makes another one of these then, if the context is open after all, and this one goes.
        """
        self._halted = True
        taken = []
        while self.idle:
            taken.append(self.idle.pop())
        if len(taken) == len(self._made.all()):
            return True
        self.idle.extend(taken)
        self._halted = False
        return False


def _warn(error: CudaError) -> None:
    import logging  # noqa: PLC0415 - only a failure pays for it

    text = str(error)  # alone: the error would keep, through its traceback, all that the callers hold
    logging.getLogger("lowlevel_reduce").warning("values are read more slowly, by pageable memory: %s", text)


def _taken(driver: binding.Implementation, context: Context) -> tuple[_Reads, _Copy]:
    """Return what a read in a context goes by."""
    known: dict[int, _Reads] = driver.kept.setdefault(_KEPT, {})  # by the context's handle
    reads = known.get(context.handle)
    copy = None if reads is None else reads.take()
    while reads is None or copy is None:
        for handle, old in tuple(known.items()):
            if old.is_over:
                known.pop(handle, None)
        reads = known[context.handle] = _Reads(driver, context)
        copy = reads.take()
    return reads, copy


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
    handle, context = stream.handle, stream.context
    driver = binding.selected()
    try:  # what `_taken` returns where a copy is idle
        known: dict[int, _Reads] = driver.kept[_KEPT]
        reads = known[context.handle]
        copy = reads.idle.pop()
    except (KeyError, IndexError):
        reads, copy = _taken(driver, context)
    current = copy.current_id()
    if current == reads.number:
        return reads.run(copy, pointer, size_bytes, handle)
    reads.idle.append(copy)
    if current < 0 and -current not in _NOTHING_CURRENT:
        driver.raise_for("cuCtxGetId", -current)
    with context.pushed():
        if context.id != reads.number:
            driver.kept[_KEPT].pop(context.handle, None)
        reads, copy = _taken(driver, context)
        return reads.run(copy, pointer, size_bytes, handle)
