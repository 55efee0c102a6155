"""Streams: made, borrowed, or taken from any object that speaks the ``__cuda_stream__`` protocol."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import Any

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.event import Event, ready
from lowlevel_reduce.driver.green import context_of, create_stream
from lowlevel_reduce.driver.handle import Handle
from lowlevel_reduce.driver.thread_end import wait_at_end
from lowlevel_reduce.errors import ReduceError

__all__ = ["Stream", "ThreadStream"]

_NULL, _LEGACY, _PER_THREAD = 0, 1, 2  # the driver's special handles, valid in every context
_NON_BLOCKING = 1
_SYNCHRONIZATION = {"auto": 1, "spin": 2, "yield": 3, "blocking_sync": 4}

# What tells one thread from another: an object that ends with it, where a thread's number is soon another one's.
_threads = threading.local()


class Stream(Handle):
    """A CUDA stream. Make one with `create`, `from_handle`, `legacy`, `per_thread` or `of`.

    Every method works in the stream's own context, whatever is current, and leaves what is current as it was.
    """

    __slots__ = ("_context", "_number")

    _noun = "stream"

    _context: Context | None
    _number: int | None

    @classmethod
    def create(cls, context: Context | None = None, *, non_blocking: bool = True, priority: int = 0) -> Stream:
        """Create a stream.

        Parameters
        ----------
        context : Context, optional
            Where; without one the current context, else the primary one of device 0.
        non_blocking : bool
            Whether it does without the implicit synchronisation with the legacy default stream.
        priority : int
            0 is the lowest; the device's range ends at a negative number, the greatest priority.

        Raises
        ------
        ValueError
            If the priority lies outside the device's range, or a blocking stream is asked of a green context, which
            has none.
        """
        context = Context.of(context)
        context.check_priority(priority)
        with contextlib.ExitStack() as undo:  # if the inner block's end is refused: a green context ends no stream
            with context.pushed():
                holder = context.holder
                handle = _create(context, priority, non_blocking=non_blocking)
                release = holder.releasing("cuStreamDestroy", handle)
                self = undo.enter_context(cls._of(handle, release, None, context))
            undo.pop_all()
        return self

    @classmethod
    def from_handle(cls, handle: int, *, context: Context | None = None, owner: Any = None) -> Stream:
        """Borrow somebody's ``CUstream``, or one of the special handles 0, 1 and 2.

        Parameters
        ----------
        handle : int
            The address. An address that is no stream is undefined behaviour in the driver.
        context : Context, optional
            Its context; without one the driver is asked, for a special handle at every use.
        owner : object, optional
            Kept alive as long as this object; the stream is never destroyed here.
        """
        if int(handle) < 0:
            raise ValueError(f"a stream handle is not negative: {handle}")
        return cls._of(int(handle), None, owner, context)

    @classmethod
    def legacy(cls, context: Context | None = None) -> Stream:
        """Return the legacy default stream of `context`, or of whatever is current at each use."""
        return cls._of(_LEGACY, None, None, context)

    @classmethod
    def per_thread(cls, context: Context | None = None) -> Stream:
        """Return the default stream of whichever thread uses it, in `context`, or in what is current at each use."""
        return cls._of(_PER_THREAD, None, None, context)

    @classmethod
    def of(cls, obj: Any) -> Stream:
        """Return `obj` if it is a `Stream`, else borrow from its ``__cuda_stream__()`` and keep it alive.

        Raises
        ------
        TypeError
            If `obj` is neither. A bare integer is refused: say ``Stream.from_handle(handle)``, and mean it.
        """
        if isinstance(obj, cls):
            return obj
        if isinstance(obj, int):
            raise TypeError("a bare integer is not taken for a stream: use Stream.from_handle(handle)")
        protocol = getattr(obj, "__cuda_stream__", None)
        if not callable(protocol):
            raise TypeError(f"a stream is a Stream or has __cuda_stream__(), not {type(obj).__name__}")
        version, handle = protocol()
        if version != 0:
            raise TypeError(f"{type(obj).__name__}.__cuda_stream__() speaks version {version}; only 0 is known")
        return cls.from_handle(handle, owner=obj)

    @classmethod
    def _of(cls, handle: int, release: Any, owner: Any, context: Context | None) -> Stream:
        self = cls.__new__(cls)
        self._context = context
        self._number = None
        self._adopt(handle, release, owner)
        return self

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return (0, handle): the protocol by which other libraries take this stream."""
        return 0, self.handle

    @property
    def is_default(self) -> bool:
        """Whether it is one of the special handles: null, legacy or per-thread."""
        return self.handle <= _PER_THREAD

    @property
    def context(self) -> Context:
        """The stream's context; for a special handle the one that it was given, else the current one.

        Raises
        ------
        ReduceError
            If a special handle has neither.
        """
        if self._context is not None:
            return self._context
        if not self.is_default:
            self._context = Context.from_handle(context_of(self.handle), owner=self._owner)
            return self._context
        current = Context.current()
        if current is None:
            raise ReduceError("a default stream belongs to the current context, and none is current: give it a context")
        return current

    def fixed(self) -> Stream:
        """Return what this stream is here and now: the same stream whatever is current later, and on whichever thread.

        That is this object, save for a default stream that has no context, which is that of the current one, and for a
        per-thread one, which is the calling thread's: see `ThreadStream`.

        Raises
        ------
        ValueError
            If it is closed.
        ReduceError
            If it is a default stream without a context, and none is current.
        """
        handle = self.handle
        if handle == _PER_THREAD:
            return ThreadStream.here(self.context)
        return self if handle > _PER_THREAD or self._context is not None else self._of(handle, None, None, self.context)

    def is_same(self, other: Stream) -> bool:
        """Tell whether work put into this one here and now is in the order of `other`: the null stream is legacy."""
        handle = self.handle or _LEGACY
        # The handle of a default stream means another one in each context.
        return handle == (other.handle or _LEGACY) and (handle > _PER_THREAD or self.context == other.context)

    def follow(self, other: Stream) -> None:
        """Let work put into this stream from now on wait for all that `other` has, by an event; returns at once."""
        with Event.create(other.context, timing=False) as event:
            other.record(event)
            self.wait(event)

    @property
    def id(self) -> int:
        """The driver's number of this stream, unique in this process. The driver tells it only outside of a capture."""
        if not self.has_number:  # a default stream is another one in another context
            self._number = int(self._ask("cuStreamGetId"))
        return self._number  # type: ignore[return-value]  # it was just asked for

    @property
    def priority(self) -> int:
        """Its priority: 0 is the lowest, negative is greater."""
        return int(self._ask("cuStreamGetPriority"))

    @property
    def is_capturing(self) -> bool:
        """Whether work put into it is captured into a graph rather than run; true of an invalidated capture too.

        Never of the legacy stream, which cannot be captured.
        """
        return self.handle not in (_NULL, _LEGACY) and bool(int(self._ask("cuStreamIsCapturing")))

    @property
    def has_number(self) -> bool:
        """Whether `id` is known without asking the driver, which does not tell it during a capture."""
        return self._number is not None and not self.is_default

    @property
    def synchronization_policy(self) -> str:
        """How a thread waits in ``synchronize()``: "auto", "spin", "yield" or "blocking_sync"."""
        value = self._ask("cuStreamGetAttribute", _synchronization_attribute())
        # The word itself: until somebody sets a policy it is none of the enumeration's values, for which some bindings
        # raise and others return None.
        number = ctypes.c_int.from_address(int(value.getPtr())).value
        return {value: name for name, value in _SYNCHRONIZATION.items()}.get(number, "auto")

    @synchronization_policy.setter
    def synchronization_policy(self, policy: str) -> None:
        if policy not in _SYNCHRONIZATION:
            raise ValueError(f"synchronization_policy is one of {', '.join(_SYNCHRONIZATION)}, not {policy!r}")
        native = binding.native()
        value = native.CUstreamAttrValue()
        value.syncPolicy = native.CUsynchronizationPolicy(_SYNCHRONIZATION[policy])
        self._ask("cuStreamSetAttribute", _synchronization_attribute(), value)

    def synchronize(self) -> None:
        """Block until all work put into the stream so far is done."""
        self._ask("cuStreamSynchronize")

    def query(self) -> bool:
        """Tell whether all work put into the stream so far is done, without waiting."""
        with self.context.pushed():
            return ready("cuStreamQuery", self.handle)

    def record(self, event: Event | None = None) -> Event:
        """Record `event`, or a new one with timing, behind the work put into the stream so far, and return it."""
        event = event or Event.create(self.context)
        event.record(self)
        return event

    def wait(self, event: Event) -> None:
        """Let work put into the stream from now on wait for what `event` recorded; returns at once."""
        self._ask("cuStreamWaitEvent", event.handle, 0)

    def _ask(self, name: str, *args: Any) -> Any:
        handle = self.handle
        with self.context.pushed():
            return binding.call(name, handle, *args)


class ThreadStream(Stream):
    """One thread's default stream, which no other thread can name: on others it is the context's legacy stream.

    To that the driver gives the same order. The legacy stream waits for all that any thread's default stream was given
    before, since these are blocking streams, and each of them waits for what the legacy stream is given. So what is
    recorded, waited for, copied or freed here by another thread is behind all work of the one thread, and before all
    that it is given later, without an event of each result's. A thread that ends waits for what is left in it.
    """

    __slots__ = ("_thread",)

    _thread: object

    @property
    def is_here(self) -> bool:
        """Whether it is the calling thread's own."""
        return getattr(_threads, "mark", None) is self._thread

    @classmethod
    def here(cls, context: Context) -> ThreadStream:
        """Return the calling thread's default stream of a context."""
        self = cls.__new__(cls)
        self._context = context
        self._number = None
        try:
            self._thread = _threads.mark
        except AttributeError:
            self._thread = _threads.mark = object()
        self._adopt(_PER_THREAD, None)
        wait_at_end(context)
        return self

    @property
    def handle(self) -> int:
        """The driver's handle: 2 on the stream's thread, 1 on every other."""
        _ = super().handle  # raises if it is closed
        try:
            return _PER_THREAD if _threads.mark is self._thread else _LEGACY
        except AttributeError:  # a thread that has never used its own
            return _LEGACY

    def fixed(self) -> Stream:
        """Return this object."""
        return self


def _create(context: Context, priority: int, *, non_blocking: bool) -> int:
    if not context.is_green:
        return int(binding.call("cuStreamCreateWithPriority", _NON_BLOCKING if non_blocking else 0, priority))
    if not non_blocking:
        raise ValueError("a green context has non-blocking streams only")
    return create_stream(context.green_handle, priority)


def _synchronization_attribute() -> Any:
    return binding.native().CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
