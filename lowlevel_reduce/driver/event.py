"""Events: points in a stream that can be waited for and timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lowlevel_reduce.arguments import handle_of, instance
from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.handle import Handle
from lowlevel_reduce.driver.held import Held

if TYPE_CHECKING:
    from lowlevel_reduce.driver.stream import Stream

__all__ = ["Event"]

_BLOCKING_SYNC = 1
_DISABLE_TIMING = 2


class Event(Handle):
    """A CUDA event. Make one with `create` or `from_handle`."""

    __slots__ = ("_context", "_timing")

    _noun = "event"
    _makers = ("create", "from_handle")

    _context: Context | None
    _timing: bool | None

    @classmethod
    def create(cls, context: Context | None = None, *, timing: bool = True, blocking_sync: bool = False) -> Event:
        """Create an event.

        Parameters
        ----------
        context : Context, optional
            The context whose streams will record it; without one the current context, else the primary one of device 0.
        timing : bool
            Whether it can be timed. An event without timing is cheaper, and launch attributes take only such events.
        blocking_sync : bool
            Whether ``synchronize()`` puts the thread to sleep rather than spin.
        """
        context = Context.of(context)
        flags = (0 if timing else _DISABLE_TIMING) | (_BLOCKING_SYNC if blocking_sync else 0)
        with context.pushed():
            holder = context.holder
            held = Held(binding.selected())
            self = cls._of(None, holder.releasing("cuEventDestroy", held), None, context, timing)
            self._handle = int(held.take("cuEventCreate", flags))
        return self

    @classmethod
    def from_handle(cls, handle: int, *, context: Context | None = None, owner: Any = None) -> Event:
        """Borrow somebody's ``CUevent``; `owner` is kept alive, and the event is never destroyed here."""
        handle = handle_of(handle, "event")
        if not handle:
            raise ValueError("a null handle is no event")
        if context is not None:
            instance(context, Context, "the context")
        return cls._of(handle, None, owner, context, None)

    @classmethod
    def _of(cls, handle: int | None, release: Any, owner: Any, context: Context | None, timing: bool | None) -> Event:
        self = cls.__new__(cls)
        self._context = context
        self._timing = timing
        self._adopt(handle, release, owner)
        return self

    @property
    def context(self) -> Context | None:
        """The context that it was made in; None for a borrowed event that came without one."""
        return self._context

    @property
    def timing(self) -> bool | None:
        """Whether it can be timed; None if it is borrowed, because the driver does not tell."""
        return self._timing

    def record(self, stream: Stream) -> None:
        """Record the work that `stream`, or an object with ``__cuda_stream__``, holds now; returns at once."""
        from lowlevel_reduce.driver.stream import Stream  # noqa: PLC0415 - which imports this module

        stream = Stream.of(stream)  # another handle would be taken for a stream's
        with stream.context.pushed():
            binding.call("cuEventRecord", self.handle, stream.handle)

    def synchronize(self) -> None:
        """Block until the recorded work is done; at once if nothing was recorded."""
        with self._scope():
            binding.call("cuEventSynchronize", self.handle)

    def query(self) -> bool:
        """Tell whether the recorded work is done, without waiting."""
        with self._scope():
            return ready("cuEventQuery", self.handle)

    def elapsed_ms(self, since: Event) -> float:
        """Return the milliseconds from `since` to this event, to about half a microsecond.

        Raises
        ------
        TypeError, ValueError
            If `since` is no event, or one of them was created without timing.
        CudaError
            If one of them was not recorded, or has not completed (``CUDA_ERROR_NOT_READY``).
        """
        instance(since, Event, "what a time is measured from")
        if self._timing is False or since._timing is False:
            raise ValueError("an event created with timing=False cannot be timed")
        with self._scope():
            return float(binding.call("cuEventElapsedTime", since.handle, self.handle))

    def _scope(self) -> Any:
        # A borrowed event without a context is used in whatever is current, as its owner would.
        return Context.current_or_primary().pushed() if self._context is None else self._context.pushed()


def ready(name: str, handle: int) -> bool:
    """Ask the query `name` whether the work behind `handle` is done; "not ready" is an answer, not an error."""
    code = binding.function(name)(handle)[0]
    if code == binding.native().CUresult.CUDA_ERROR_NOT_READY:
        return False
    binding.raise_for(name, code)
    return True
