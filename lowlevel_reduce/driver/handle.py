"""What all handles have in common: they are open or closed, owned or borrowed, and released once, if owned."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar

from lowlevel_reduce.closing import Closing
from lowlevel_reduce.driver import binding, owned, turns
from lowlevel_reduce.driver.held import Held, for_a_while
from lowlevel_reduce.driver.owned import Owned
from lowlevel_reduce.driver.turns import Known, Reason, exclusively
from lowlevel_reduce.errors import CudaError, ReduceError

__all__ = ["Handle", "Life", "Release", "User", "quietly", "relaxed", "within"]

# What a release may meet after its driver or its context has gone: there is nothing left to release.
_GONE = frozenset(
    {
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "CUDA_ERROR_DEINITIALIZED",
        "CUDA_ERROR_NOT_INITIALIZED",
    }
)


_T = TypeVar("_T")

_EXCHANGE = "cuThreadExchangeStreamCaptureMode"

_NO_CONTEXT = frozenset({"CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_CONTEXT_IS_DESTROYED", "CUDA_ERROR_INVALID_VALUE"})


def within(implementation: binding.Implementation, context: int, work: Callable[[], _T]) -> _T:
    """Do some work, such as a release, with `context` current. A push or a pop that is refused is tried once more.

    Without the push nothing would be released, and without the pop the context would stay on the caller's stack.
    """
    return for_a_while(implementation, ("cuCtxPushCurrent", context), lambda _: ("cuCtxPopCurrent",), lambda _: work())


class Life:
    """Whether a context still lives: shared by the context and the releases of all that was made in it.

    What was made in a created context dies with it, so its release must not touch the driver afterwards. The end of a
    borrowed context is its owner's doing, and nobody tells: its number tells it from another one at the same address.

    Attributes
    ----------
    over : bool
        Whether the context is known to be gone.
    borrowed : bool
        Whether others end it.
    number : int or None
        The driver's number of a borrowed one, once something was made in it.
    left : dict
        Of what the driver does not end with the context, the releases that were not called yet, the newest last: `end`
        calls them.
    closed : Reason
        Why users are halted, once it was closed by any of its objects: users keep one of these, and so this.
    """

    __slots__ = ("_ask", "borrowed", "closed", "left", "number", "over")

    closed: Reason

    def __init__(self, *, borrowed: bool = False) -> None:
        self.over = False
        self.borrowed = borrowed
        self.number: int | None = None
        self._ask: tuple[binding.Implementation, Callable[[], int]] | None = None
        self.left: dict[Release, None] = {}

    def note(self, implementation: binding.Implementation, context: int) -> None:
        """Remember a borrowed context's number, before the first thing is made in it that will have to be released."""
        if self.borrowed and self.number is None:
            self.number = int(implementation.call("cuCtxGetId", context))
            # Threads share it: whoever reads the answer to another's question, to the same one, reads a later one.
            self._ask = implementation, implementation.prebuilt_number("cuCtxGetId", context)

    def ended(self, implementation: binding.Implementation, context: int) -> bool:
        """Say whether the context is gone; asks the driver for a borrowed one."""
        if not self.over and self.number is not None:
            if self._ask is not None:  # a third of the time of a call by its name, which says what is wrong
                asked, number = self._ask
                if asked is implementation and not asked.forked and number() == self.number:
                    return False
            try:
                self.over = int(implementation.call("cuCtxGetId", context)) != self.number
            except CudaError as error:
                self.over = error.name in _NO_CONTEXT
                if not self.over:  # taken for alive, since what is not released would be lost
                    _report(error)
        return self.over

    def end(self) -> None:
        """Release what the context leaves, which is about to end; raises the first refusal, when all is done."""
        refusals: list[CudaError] = []
        while self.left:
            release = next(reversed(self.left))
            try:
                release.run()
            except CudaError as error:
                refusals.append(error)
            self.left.pop(release, None)  # last: an interrupt before leaves it to the next try
        if refusals:
            raise refusals[0]


class Release:
    """The release of something that was made in a context, by one driver call, unless it has ended with that context.

    Parameters
    ----------
    life, context : Life, int
        Of the context.
    name, held : str, Held
        The driver's call, and what it is given, which need not be made yet.
    leaves : bool
        Whether the context is ended here and leaves this behind, so that it is to be released before.
    asks : bool
        Whether the driver may be asked if a borrowed context is gone, as this would be with it.
    within : int or None
        The context that must be current for the call, if one must.
    """

    __slots__ = ("_asks", "_context", "_held", "_leaves", "_life", "_name", "_within")

    def __init__(
        self, life: Life, context: int, name: str, held: Held, *, leaves: bool, asks: bool, within: int | None
    ) -> None:
        self._life, self._context = life, context
        self._name, self._held = name, held
        self._leaves, self._asks, self._within = leaves, asks, within
        if leaves:
            life.left[self] = None

    def __call__(self) -> None:
        """Release it, if it is still there."""
        if self._leaves:
            due = self in self._life.left  # else `Life.end` has released it
        else:
            due = not (self._life.ended(self._held.implementation, self._context) if self._asks else self._life.over)
        if due:
            self.run()
        self._life.left.pop(self, None)

    def run(self) -> None:
        """Release it, unless that was done."""
        handle, current = self._held.handle, self._within
        if handle is not None:
            if current is None:
                self._held.give_back(self._name, handle)
            else:
                within(self._held.implementation, current, lambda: self._held.give_back(self._name, handle))


class User(Protocol):
    """What makes driver calls with a handle that it does not ask for each time: a bound launch."""

    def halt(self, reason: Reason) -> bool:
        """Refuse every later call as long as `reason` lives; False, and nothing has changed, if a call is under way."""


class Handle(Closing):
    """A driver object that is released once: by ``close()``, at the end of a ``with`` block, or by its finalizer.

    A borrowed handle has the same class, but releases nothing. It keeps `owner`, which holds the driver object, alive.
    """

    __slots__ = ("__weakref__", "_closed", "_handle", "_is_owner", "_owned", "_owner", "_users")

    _noun: ClassVar[str] = "handle"
    _makers: ClassVar[tuple[str, ...]] = ()

    _closed: Reason
    _handle: int | None
    _is_owner: bool
    _owned: Owned | None
    _owner: Any
    _users: Known[User]

    def __init__(self, *_: object, **__: object) -> None:
        """Refuse to be called: what makes a handle says by its name whose the driver object is."""
        name = type(self).__name__
        makers = ", ".join(maker if "." in maker else f"{name}.{maker}" for maker in self._makers)
        raise TypeError(f"{name}() makes no {self._noun}; use {makers}")

    def _adopt(self, handle: int | None, release: tuple[Held, Callable[[], None]] | None, owner: Any = None) -> None:
        """Be a handle; None if what is held is made only now, as it should be: from the first moment it has an owner.

        The release is what it is to give back, and what does that, which must not refer to this object.
        """
        if owned.due:
            owned.release_due()
        self._handle = handle
        self._owner = owner
        self._owned = None
        self._is_owner = release is not None
        if release is not None:
            self._owned = Owned(self, *release, functools.partial(quietly, release[0].implementation))

    @property
    def handle(self) -> int:
        """The driver's handle, an integer.

        Raises
        ------
        ValueError
            If it is closed, or the interpreter is exiting.
        """
        if self._handle is None:
            raise ValueError(f"{self._noun} is closed")
        if turns.exiting and not turns.is_releasing():  # it is released, or about to be
            raise ValueError(f"{self._noun} cannot be used: the interpreter is exiting")
        return self._handle

    @property
    def owner(self) -> Any:
        """What a borrowed handle keeps alive, or None."""
        return self._owner

    @property
    def is_borrowed(self) -> bool:
        """Whether the driver object belongs to someone else, so that closing does not release it."""
        return not self._is_owner

    @property
    def is_closed(self) -> bool:
        """Whether ``close()`` was called."""
        return self._handle is None

    def close(self) -> None:
        """Release the driver object if it is owned; a second call does nothing.

        Bound launches that use it refuse every later call. In a forked child nothing is released: the parent owns it.

        Raises
        ------
        ReduceError
            If another thread is in a call of a bound launch that uses it; the handle stays open.
        CudaError
            If the driver refuses; the handle counts as closed all the same.

        After an interrupt it is closed, or can be closed again; what is not released by then is so with the object.
        """
        with exclusively():
            if self._handle is not None:
                self._keep(self._halt_users())
            # An interrupt here leaves users that refuse, and the handle to be closed once more.
            self._handle = None
            self._owner = None
        if self._owned is not None:
            self._owned.make()
            self._owned = None  # which would tell of the end of this object
        if owned.due:
            owned.release_due()

    def serve(self, user: User) -> None:
        """Tell of a user, which is halted when this is closed, and not kept alive.

        Raises
        ------
        ValueError
            If it is closed.
        """
        with exclusively():
            _ = self.handle
            if not hasattr(self, "_users"):
                self._users = Known()
            self._users.add(user)

    def _keep(self, reason: Reason) -> None:
        """Keep why users are halted, as long as any of them lives, who keep this handle."""
        self._closed = reason

    def _halt_users(self) -> Reason:
        """Halt all users for as long as what this returns lives; none, if one of them is in a call."""
        reason = Reason(f"{self._noun} is closed")
        for user in self._users.all() if hasattr(self, "_users") else ():
            if not user.halt(reason):
                del reason  # now, not when the traceback has gone: it ends, and with it what it did to the others
                raise ReduceError(f"{self._noun} cannot be closed: another thread is in a launch that uses it")
        return reason

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"{self._handle:#x}"
        return f"<{type(self).__name__} {state}{' borrowed' if self.is_borrowed and not self.is_closed else ''}>"


_UNRELEASED = "a handle that was never closed could not be released"


def quietly(implementation: binding.Implementation, release: Callable[[], None], failure: str = _UNRELEASED) -> None:
    """Release what nobody waits for, in the garbage collector or at interpreter exit, for one.

    What the driver refuses is logged as a `failure`. Nothing is raised but what may come anywhere, an interrupt or a
    MemoryError, after which the release is tried again.
    """
    if implementation.forked:  # what a forked child inherited is its parent's
        return
    try:
        relaxed(implementation, lambda: turns.releasing(release))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - nobody is there to catch it; what matters is reported
        _report(error, failure)


def relaxed(implementation: binding.Implementation, work: Callable[[], _T]) -> _T:
    """Do some work that frees memory which is no part of a capture that this thread may be in, and would invalidate it.

    That is where the collector runs, or old things are let go of.
    """
    modes = binding.native().CUstreamCaptureMode
    taking = _EXCHANGE, modes.CU_STREAM_CAPTURE_MODE_RELAXED
    return for_a_while(implementation, taking, lambda before: (_EXCHANGE, modes(before.handle)), lambda _: work())


def _report(error: Exception, failure: str = _UNRELEASED) -> None:
    if isinstance(error, CudaError) and error.name in _GONE:
        return
    import logging  # noqa: PLC0415 - only a failure pays for it

    # The text alone: a log that kept the error would keep, through its traceback, all that the callers hold.
    logging.getLogger("lowlevel_reduce").warning("%s: %s", failure, str(error))
