"""Handles that own something: each is released when it is closed or goes, and if that is interrupted, a little later.

As an object goes, C code puts its `Owned` into a list; what empties the list is Python, and may be interrupted at any
place. What is left there then is released when the next handle is made, closed or goes, and at the latest at exit.
"""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from lowlevel_reduce.driver import turns
from lowlevel_reduce.driver.held import Held

__all__ = ["Owned", "due", "release_due"]

due: deque[Owned] = deque()
"""What has lost its object, and was not released yet; the next to be released is the last.

A list would need memory as it grows, and where there was none, nobody would hear that the object has gone. A deque has
a block of 64 places from the first, and begins in its middle: it takes 32 without any. What is taken from its end
leaves it there; what is taken from elsewhere, as `remove` does, moves it on by a place.
"""

_owned: dict[Owned, None] = {}
"""All that is still to be released, the newest last."""

_hooked = _over = False


class Owned(weakref.ref[Any]):
    """What an object owns, and how that is released: more than once does no harm, as what was given back is not held.

    Make one before the driver makes what it is to hold: then there is no moment at which nobody owns that.

    Attributes
    ----------
    held : Held
        What is to be released; nothing has to be done where it holds nothing.
    release : callable
        Releases it. It must not refer to the object, which would then never go.
    quietly : callable
        Releases it by ``quietly(release)``, when nobody waits for it: raises nothing but interrupts.
    at_exit : bool
        Whether it is also released at exit.
    """

    __slots__ = ("_bell", "at_exit", "held", "quietly", "release")

    # That of the reference, not of its object as a weak reference's is: there may be none any more.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    _bell: weakref.ref[Any] | None
    at_exit: bool
    held: Held
    quietly: Callable[[Callable[[], None]], None]
    release: Callable[[], None]

    def __new__(
        cls,
        owner: object,
        held: Held,
        release: Callable[[], None],
        quietly: Callable[[Callable[[], None]], None],
    ) -> Owned:
        """Own what is held, on behalf of an object."""
        bell = weakref.ref(owner, _ring)
        self = super().__new__(cls, owner, due.append)  # of the newest reference the callback is called first
        self._bell, self.at_exit = bell, True
        self.held, self.release, self.quietly = held, release, quietly
        _hook()
        if not _over:
            _owned[self] = None
        return self

    def __init__(self, *_: Any) -> None:
        """Do nothing more."""

    def make(self) -> None:
        """Release it now, unless that was done; in a forked child nothing, for the parent owns it."""
        try:
            if self.held.handle is not None and not self.held.implementation.forked:
                turns.releasing(self.release)
        except Exception:
            if self.held.handle is None:  # it was refused where it counts; else another try is made later
                self.forget()
            raise
        self.forget()

    def make_quietly(self) -> None:
        """Do that when nobody waits for it, once, whatever comes of it."""
        if self.held.handle is not None:
            self.quietly(self.release)
        self.forget()

    def forget(self) -> None:
        """Never release it again."""
        _owned.pop(self, None)
        if due and due[-1] is self:  # nothing is called from here to the end of `pop`: nobody comes in between
            due.pop()
            return
        while due:
            try:
                due.remove(self)
            except IndexError:  # the collector came while it was looked for, and has put others there
                continue
            except ValueError:  # it is not there, or another thread has taken it
                return
            else:
                return

    def silence(self) -> None:
        """Let its object go unnoticed."""
        self._bell = None


def release_due() -> None:
    """Release what has lost its object. Anybody may call it at any time: nothing is released twice."""
    while due:
        try:
            mark = due[-1]
        except IndexError:  # another thread was faster
            return
        mark.make_quietly()


def _ring(_: object, release: Callable[[], None] = release_due) -> None:
    release()  # not by its name, which may be gone at the interpreter's end


def _hook() -> None:
    global _hooked  # noqa: PLW0603 - registered once
    if not _hooked:
        _hooked = True
        atexit.register(_release_all)
        turns.refuse_at_exit()  # what was registered last runs first: before the releases


def _release_all() -> None:
    """Release all that there is at exit, the newest first; an interrupt is raised when everything is done."""
    global _over  # noqa: PLW0603 - once
    interrupt: BaseException | None = None
    while _owned:
        mark = next(reversed(_owned))
        try:
            mark.silence()
            if mark.at_exit:
                mark.make_quietly()
            _owned.pop(mark, None)
        except BaseException as error:  # noqa: BLE001 - raised below, when this one and the others were tried again
            interrupt = error
    _over = True
    if interrupt is not None:
        raise interrupt
