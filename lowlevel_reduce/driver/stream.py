"""Streams: made, borrowed, or taken from any object that speaks the ``__cuda_stream__`` protocol."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import Any

from lowlevel_reduce.arguments import handle_of, instance, integer, retold, shown
from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.event import Event, ready
from lowlevel_reduce.driver.green import context_of, create_stream
from lowlevel_reduce.driver.handle import Handle
from lowlevel_reduce.driver.held import Held
from lowlevel_reduce.driver.thread_end import wait_at_end
from lowlevel_reduce.errors import ReduceError

__all__ = ["LEGACY", "Stream", "ThreadStream"]

_NULL, LEGACY, _PER_THREAD = 0, 1, 2  # the driver's special handles, valid in every context
_NON_BLOCKING = 1
_NO_STREAM: Any = object()
_SYNCHRONIZATION = {"auto": 1, "spin": 2, "yield": 3, "blocking_sync": 4}

# What tells one thread from another: an object that ends with it, where a thread's number is soon another one's.
_threads = threading.local()


class Stream(Handle):
    """A CUDA stream. Make one with `create`, `from_handle`, `legacy`, `per_thread` or `of`.

    Every method works in the stream's own context, whichever context is current, and leaves that current.
    """

    __slots__ = ("_context", "_number")

    _noun = "stream"
    _makers = ("create", "legacy", "per_thread", "from_handle", "of")

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
            Whether it is exempt from implicit synchronisation with the legacy default stream.
        priority : int
            0 is the lowest; negative numbers are greater priorities, down to the limit of the device.

        Raises
        ------
        ValueError
            If the priority is outside the device's range, or a blocking stream is requested in a green context, which
            has none.
        """
        context = Context.of(context)
        context.check_priority(priority)
        with contextlib.ExitStack() as undo:  # if the inner block's end is refused: a green context ends no stream
            with context.pushed():
                holder = context.holder
                held = Held(binding.selected())
                self = undo.enter_context(cls._of(None, holder.releasing("cuStreamDestroy", held), None, context))
                self._handle = _create(context, priority, held, non_blocking=non_blocking)
            undo.pop_all()
        return self

    @classmethod
    def from_handle(cls, handle: int, *, context: Context | None = None, owner: Any = None) -> Stream:
        """Borrow somebody's ``CUstream``, or one of the special handles 0, 1 and 2.

        Parameters
        ----------
        handle : int
            The address of the ``CUstream``. With an address that is not a stream's, the driver's behaviour is
            undefined.
        context : Context, optional
            Its context. Without one the driver is asked for it; a special handle then means the default stream of
            whichever context is current at each use.
        owner : object, optional
            Kept alive as long as this object; the stream is never destroyed here.

        Raises
        ------
        TypeError, ValueError
            If the handle is not an integer of 64 bits; a bool is none.
        """
        return cls._of(handle_of(handle, "stream"), None, owner, context)

    @classmethod
    def legacy(cls, context: Context | None = None) -> Stream:
        """Return the legacy default stream of `context`, or of the context that is current at each use."""
        return cls._of(LEGACY, None, None, context)

    @classmethod
    def per_thread(cls, context: Context | None = None) -> Stream:
        """Return the per-thread default stream of whichever thread uses it, in `context` or in the current one."""
        return cls._of(_PER_THREAD, None, None, context)

    @classmethod
    def of(cls, obj: Any) -> Stream:
        """Return `obj` if it is a `Stream`, else borrow from its ``__cuda_stream__()`` and keep it alive.

        Raises
        ------
        TypeError
            If `obj` is neither. A bare integer is refused too: use ``Stream.from_handle(handle)``.
        TypeError, ValueError
            If ``__cuda_stream__()`` raises one, or returns no version and handle; the error names the object's class.
        """
        if isinstance(obj, cls):
            return obj
        if isinstance(obj, int):
            raise TypeError("a bare integer is not taken for a stream: use Stream.from_handle(handle)")
        what = f"{type(obj).__name__}.__cuda_stream__()"
        try:
            protocol = getattr(obj, "__cuda_stream__", None)
            given = protocol() if callable(protocol) else _NO_STREAM
        except (TypeError, ValueError) as error:
            raise retold(error, f"{what}: {error}") from error
        if given is _NO_STREAM:
            raise TypeError(f"a stream is a Stream or has __cuda_stream__(), not {type(obj).__name__}")
        try:
            version, handle = given
        except (TypeError, ValueError):
            raise TypeError(f"{what} returns a version and a handle, not {shown(given)}") from None
        if integer(version, f"the version of {what} is an integer") != 0:
            raise TypeError(f"{what} speaks version {version}; only 0 is known")
        try:
            return cls.from_handle(handle, owner=obj)
        except (TypeError, ValueError) as error:
            raise retold(error, f"{what}: {error}") from None

    @classmethod
    def _of(cls, handle: int | None, release: Any, owner: Any, context: Context | None) -> Stream:
        if context is not None:
            instance(context, Context, "the context")
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
        """The stream's context; for a special handle without one, the current context.

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
        """Return the stream that this one stands for here and now, whatever is current later and on every thread.

        That is this object itself, with two exceptions: a default stream without a context becomes that of the current
        context, and a per-thread one becomes that of the calling thread, see `ThreadStream`.

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
        """Tell whether this is the same stream as `other`, here and now; the null stream is the legacy one."""
        handle = self.handle or LEGACY
        # The handle of a default stream means another one in each context.
        return handle == (other.handle or LEGACY) and (handle > _PER_THREAD or self.context == other.context)

    def follow(self, other: Stream) -> None:
        """Make later work in this stream wait for all work that `other` has now, by an event; returns at once."""
        other = Stream.of(other)
        with Event.create(other.context, timing=False) as event:
            other.record(event)
            self.wait(event)

    @property
    def id(self) -> int:
        """The driver's number of this stream, unique in this process; not available while the stream is captured."""
        if not self.has_number:  # a default stream is another one in another context
            self._number = int(self._ask("cuStreamGetId"))
        return self._number  # type: ignore[return-value]  # it was just asked for

    @property
    def priority(self) -> int:
        """Its priority: 0 is the lowest, negative is greater."""
        return int(self._ask("cuStreamGetPriority"))

    @property
    def is_capturing(self) -> bool:
        """Whether work put into it is captured into a graph rather than run; also if the capture was invalidated.

        False for the legacy stream, which cannot be captured.
        """
        return self.handle not in (_NULL, LEGACY) and bool(int(self._ask("cuStreamIsCapturing")))

    @property
    def has_number(self) -> bool:
        """Whether `id` is known without asking the driver, which gives no answer during a capture."""
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
        """Record `event`, or a new one with timing, after the work put into the stream so far, and return it."""
        if event is None:
            event = Event.create(self.context)
        instance(event, Event, "what is recorded")
        event.record(self)
        return event

    def wait(self, event: Event) -> None:
        """Make later work in the stream wait for what `event` recorded; returns at once."""
        instance(event, Event, "what a stream waits for")  # another handle would be taken for an event's
        self._ask("cuStreamWaitEvent", event.handle, 0)

    def _ask(self, name: str, *args: Any) -> Any:
        handle = self.handle
        with self.context.pushed():
            return binding.call(name, handle, *args)


class ThreadStream(Stream):
    """One thread's default stream. No other thread can name it: there, this is the context's legacy stream.

    The driver gives that the same order. The per-thread default streams are blocking streams, so the legacy stream
    waits for all work that they have, and they wait for the work of the legacy stream. So what another thread records,
    waits for, copies or frees here comes after all work that the one thread's stream has, and before all that it gets
    later, without an event for each result. A thread that ends waits for what is left in its stream.
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
            return _PER_THREAD if _threads.mark is self._thread else LEGACY
        except AttributeError:  # a thread that has never used its own
            return LEGACY

    def fixed(self) -> Stream:
        """Return this object."""
        return self


def _create(context: Context, priority: int, held: Held, *, non_blocking: bool) -> int:
    if not context.is_green:
        return int(held.take("cuStreamCreateWithPriority", _NON_BLOCKING if non_blocking else 0, priority))
    if not non_blocking:
        raise ValueError("a green context has non-blocking streams only")
    return create_stream(context.green_handle, priority, held)


def _synchronization_attribute() -> Any:
    return binding.native().CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
