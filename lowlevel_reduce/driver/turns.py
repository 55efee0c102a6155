"""Whose turn a bound launch is: one call at a time, none once it was closed, and none lost to an interrupt."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import NoDriverError, ReduceError

__all__ = ["Known", "Reason", "Turn", "exclusively", "exiting", "is_releasing", "refuse_at_exit", "releasing"]

_T = TypeVar("_T")

_PATIENCE_S = 2.0
"""How long the interpreter's exit waits for calls that daemon threads have begun: these take microseconds, or as long
as a kernel, where the stream's queue is full."""


class Known(Generic[_T]):
    """Objects that this does not keep alive, in the order in which they were added.

    Adding, forgetting and listing are single operations of a dictionary: no thread, signal's handler or collector comes
    in between, which a ``WeakSet``, written in Python, does not promise.

    Attributes
    ----------
    references : dict
        Weak references to those that are still there.
    """

    __slots__ = ("references",)

    def __init__(self) -> None:
        self.references: dict[weakref.ref[_T], None] = {}

    def add(self, one: _T) -> None:
        """Know of one more; a second time changes nothing."""
        self.references.setdefault(weakref.ref(one, self.references.__delitem__))

    def discard(self, one: _T) -> None:
        """Forget one, if it is known."""
        self.references.pop(weakref.ref(one), None)

    def all(self) -> list[_T]:
        """Return those that are still there."""
        return [one for reference in self.references.copy() if (one := reference()) is not None]


class Reason:
    """Why calls are refused: as long as this very object lives.

    Who closes something keeps it when all that was to refuse does. It goes by itself where that fails, as something is
    in use or an interrupt comes: there is nothing to be taken back, which could be forgotten, or be another one's.
    """

    __slots__ = ("__weakref__", "_kind", "text")

    def __init__(self, text: str, kind: type[Exception] = ValueError) -> None:
        self.text = text
        self._kind = kind

    def error(self) -> Exception:
        """Return what a call raises."""
        return self._kind(self.text)


_IN_CHILD = Reason(
    "this bound launch was made before a fork: the CUDA driver cannot be used in the child", NoDriverError
)
_AT_EXIT = Reason("the interpreter is exiting")

# For what is not a call: closing, and what follows an interrupt. One for all, handles too, so that none waits for
# another; reentrant, as a signal's handler or the collector may close something while this thread is at it.
_lock = threading.RLock()
_turns: Known[Turn] = Known()
_hooked = False

exiting = False
"""Whether the interpreter is exiting, and handles are released: only releases may use them any more."""


class _Thread(threading.local):
    releases = 0


_thread = _Thread()


def is_releasing() -> bool:
    """Tell whether this thread is in a release, which may use handles also at the interpreter's exit."""
    return _thread.releases > 0


def releasing(release: Callable[[], object]) -> None:
    """Call a release; `is_releasing` meanwhile."""
    before = _thread.releases
    try:
        _thread.releases = before + 1
        release()
    finally:
        _thread.releases = before


def exclusively() -> threading.RLock:
    """Return the lock under which things are closed."""
    return _lock


class _Ended(list[Any]):
    """What `Turn.idle` is when calls are refused for good: one that is under way gives nothing back."""

    __slots__ = ()

    def append(self, item: Any) -> None:
        """Let it go."""


class Turn:
    """The one turn there is at a bound launch, taken by a call with one atomic operation, and given back with another.

    A call is ``item = turn.idle.pop()``, its work in a ``try``, and ``turn.idle.append(item)`` in its ``finally``; or
    ``item = turn.retake(...)`` where the list is empty. That costs a third of a lock, and finding the item says that
    nothing was closed. An interrupt, such as an exception from a signal's handler, may come between any two steps. The
    item is nobody's then, so it goes, a weak reference tells of that without a line of Python, and another is made.

    Parameters
    ----------
    make : callable
        Makes the item, which only who has the turn may refer to: what a call needs, at best.

    Attributes
    ----------
    idle : list
        The item, while no call is under way. It may become another list: ask for it each time.

    Raises
    ------
    ValueError
        If the interpreter is exiting.
    """

    __slots__ = ("__weakref__", "_left", "_make", "_reasons", "_watch", "idle")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._reasons: Known[Reason] = Known()
        # Not empty while the turn is neither idle nor a call's: `halt` has taken it, or it went with an interrupt.
        self._left: deque[Any] = deque((None,))
        self._watch: weakref.ref[Any] | None = None
        self.idle: list[Any] = []
        self._renew()
        _turns.add(self)
        if exiting:  # looked at after it is known, so that the exit sees it, or it the exit
            raise _AT_EXIT.error()

    @property
    def is_free(self) -> bool:
        """Whether a call would be taken now: none is under way, and nothing that it needs was closed."""
        return bool(self.idle) or (bool(self._left) and not self._reasons.references)

    def refuse(self) -> None:
        """Raise what a call would, if calls are refused; nothing if one is under way.

        Raises
        ------
        ValueError, NoDriverError
            As `retake`.
        """
        for reason in self._reasons.all():
            raise reason.error()

    def retake(self, user: object) -> Any:
        """Return the item for a call that found none, if no other call has it; `user` is named where one has.

        Raises
        ------
        ValueError, NoDriverError
            If calls are refused.
        ReduceError
            If another call is under way.
        """
        with _lock:  # so that a handle whose closing will be refused is not taken for closed
            if self._left:
                self._renew()
            try:
                return self.idle.pop()
            except IndexError:
                pass
            self.refuse()
        raise ReduceError(f"{user!r} is in use: another thread is in a call of it; bind one for each thread")

    def _renew(self) -> None:
        """Make another item, if nobody has this one, and no reason speaks against it."""
        # Its own: should this item come to nothing, it is nobody else's that is told of. Not a list, which would need
        # memory for that, and without any the turn would be nobody's for good.
        left: deque[Any] = deque()
        items = [self._make()]  # as long as it is made: a list that has grown frees its memory at each `pop`, 30 ns
        watch = weakref.ref(items[0], left.append)
        # A signal's handler may have closed something, or called, since this was begun. None runs from this look to the
        # last line, for where nothing is called, Python looks for no signals; and an exception that comes there all the
        # same finds the turn in one of the two lists, or takes the item along.
        if self._left and not self._reasons.references:
            self._watch = watch
            self._left = left
            self.idle = items

    def halt(self, reason: Reason) -> bool:
        """Refuse every later call as long as `reason` lives; False, and nothing has changed, if a call is under way."""
        with _lock:
            self._reasons.add(reason)  # first: nobody takes from `_left` what is put there now
            if not self._left:
                try:
                    self._left.append(self.idle.pop())
                except IndexError:
                    self._reasons.discard(reason)
                    return False
            return True

    def end(self, reason: Reason) -> None:
        """Refuse every later call for good, also if one is under way, which is not waited for."""
        with _lock:
            self._reasons.add(reason)
            idle, self.idle = self.idle, _Ended()  # a call that is under way finds this one when it ends
            idle.clear()

    @property
    def is_taken(self) -> bool:
        """Whether a call is under way, of a turn that was ended."""
        return not self._left


def refuse_at_exit() -> None:
    """See to it, when there is a handle whose release at exit is registered, that all is refused before that."""
    global _hooked  # noqa: PLW0603 - registered once
    if not _hooked:
        _hooked = True
        atexit.register(_exit)


def _exit() -> None:
    global exiting  # noqa: PLW0603 - once
    exiting = True
    busy = _turns.all()  # what comes later refuses by itself
    for turn in busy:
        turn.end(_AT_EXIT)
    until = time.monotonic() + _PATIENCE_S
    while (busy := [turn for turn in busy if turn.is_taken]) and time.monotonic() < until:
        time.sleep(0.001)


def _in_child() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it at the fork
    _lock = threading.RLock()
    for turn in _turns.all():
        turn._reasons = Known()  # this is to be said first
        turn.end(_IN_CHILD)


binding.after_fork(_in_child)
