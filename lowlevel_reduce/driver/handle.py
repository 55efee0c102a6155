"""The one shape of every handle: open or closed, owned or borrowed, released once and by whoever made it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import CudaError

__all__ = ["Handle", "Life"]

Self = TypeVar("Self", bound="Handle")

# What a release may meet after its driver or its context has gone: there is nothing left to release.
_GONE = frozenset(
    {
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "CUDA_ERROR_DEINITIALIZED",
        "CUDA_ERROR_NOT_INITIALIZED",
    }
)


class Life:
    """Whether a context still lives: shared by the context and the releases of all that was made in it.

    What was made in a created context dies with it, so its release must not touch the driver afterwards.
    """

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False


class Handle:
    """A driver object that is released once: by ``close()``, by leaving a ``with`` block, or by its finalizer.

    A borrowed handle is the same class without a release. It keeps `owner`, whatever holds the driver object, alive.
    """

    __slots__ = ("__weakref__", "_finalizer", "_handle", "_owner", "_release")

    _noun: ClassVar[str] = "handle"

    _handle: int | None
    _owner: Any
    _release: Callable[[], None] | None

    def _adopt(self, handle: int, release: Callable[[], None] | None, owner: Any = None) -> None:
        # `release` must not refer to self, or the finalizer would keep its own object alive.
        self._handle = handle
        self._owner = owner
        self._release = release
        self._finalizer = None if release is None else weakref.finalize(self, _quietly, binding.selected(), release)

    @property
    def handle(self) -> int:
        """The driver's handle, an integer.

        Raises
        ------
        ValueError
            If it is closed.
        """
        if self._handle is None:
            raise ValueError(f"{self._noun} is closed")
        return self._handle

    @property
    def owner(self) -> Any:
        """What a borrowed handle keeps alive, or None."""
        return self._owner

    @property
    def is_borrowed(self) -> bool:
        """Whether the driver object belongs to someone else, and closing leaves it as it is."""
        return self._release is None

    @property
    def is_closed(self) -> bool:
        """Whether ``close()`` was called."""
        return self._handle is None

    def close(self) -> None:
        """Release the driver object if it is owned; a second call does nothing.

        Raises
        ------
        CudaError
            If the driver refuses; the handle is closed all the same.
        """
        self._handle = None
        self._owner = None
        # detach() answers once, so two threads cannot both release.
        if self._finalizer is not None and self._finalizer.detach() is not None and self._release is not None:
            self._release()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"{self._handle:#x}"
        return f"<{type(self).__name__} {state}{' borrowed' if self.is_borrowed and not self.is_closed else ''}>"


def _quietly(implementation: binding.Implementation, release: Callable[[], None]) -> None:
    """Release what was never closed; runs in the garbage collector or at interpreter exit, and so never raises."""
    try:
        with _relaxed(implementation):
            release()
    except Exception as error:  # noqa: BLE001 - nobody is there to catch it; what matters is reported
        _report(error)


@contextmanager
def _relaxed(implementation: binding.Implementation) -> Iterator[None]:
    # The collector may run inside somebody's stream capture on this thread, where freeing memory would invalidate
    # the capture: the relaxed mode says that it is no part of it.
    relaxed = binding.native().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = implementation.call("cuThreadExchangeStreamCaptureMode", relaxed)
    try:
        yield
    finally:
        implementation.call("cuThreadExchangeStreamCaptureMode", before)


def _report(error: Exception) -> None:
    if isinstance(error, CudaError) and error.name in _GONE:
        return
    import logging  # noqa: PLC0415 - only a failure pays for it

    logging.getLogger("lowlevel_reduce").warning("a handle that was never closed could not be released: %s", error)
