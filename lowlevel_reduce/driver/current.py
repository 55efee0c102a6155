"""The calling thread's current context: a query for it, and pushing another one for the length of a block."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import CudaError, ReduceError

__all__ = ["Pushed", "current_handle"]


_Push = tuple[Any, int]  # a push that was not popped yet: the one around it, or None, and the context's handle


class _Pushes:
    """The pushes of a thread's blocks, of which the innermost has all others.

    An interrupt that comes as the end of a block begins, before its first line, leaves a push behind. It is popped by
    the end of the next outer block, or as the traceback goes, which has the block's `Pushed`: whichever is first.

    To forget one is to set an attribute, which needs no memory, and in which Python looks for no signals.
    """

    __slots__ = ("innermost",)

    def __init__(self) -> None:
        self.innermost: _Push | None = None

    def have(self, push: _Push | None) -> bool:
        """Tell whether a push is there still: else the end of an outer block has popped it. None is always there."""
        one = self.innermost
        while one is not push and one is not None:
            one = one[0]
        return one is push

    def pop_to(self, push: _Push | None) -> None:
        """Pop what lies above a push that is there; raises nothing that the driver says."""
        with contextlib.suppress(ReduceError):  # nobody can tell what is current
            while (one := self.innermost) is not push and one is not None:
                if current_handle() == one[1]:
                    binding.call("cuCtxPopCurrent")
                self.innermost = one[0]


_MOST_CONTEXTS = 64
"""The most contexts of which a thread keeps the call that pushes them; before it exceeds that, it forgets them all."""

BOUNDS = {"push": _MOST_CONTEXTS}
"""The most entries of what is kept here, by its name: who watches for growth tells it from what has no bound."""


class _Thread(threading.local):
    """A thread's pushes, and the driver's functions for them, by their addresses and with the interpreter's lock kept.

    A thread without a current context, as of a pool, makes five of these calls around each launch in a default stream.
    Through the bindings each would let another thread run, which has to be waited for then: 80 us a call of eight
    threads, where launches alone take 40.
    """

    def __init__(self) -> None:
        self.pushes = _Pushes()
        self.driver: binding.Implementation | None = None
        self.current: Callable[[], int] = int
        self.pop: Callable[[], int] = int
        self.push: dict[int, Callable[[], int]] = {}

    def of_driver(self) -> _Thread:
        """Return this, with the functions of the selected driver."""
        driver = binding.selected()
        if self.driver is not driver:
            self.driver = None
            self.current = driver.prebuilt_number("cuCtxGetCurrent")
            self.pop = driver.prebuilt_number("cuCtxPopCurrent")
            self.push = {}
            self.driver = driver
        return self


_thread = _Thread()


def _in_child() -> None:
    _thread.driver = None  # of the parent, and not to be called


binding.after_fork(_in_child)


class Pushed:
    """One push and its pop, on one thread; it keeps `owner`, whose context it is, alive that long.

    For one block at a time: within it, and on another thread, ask for another one.
    """

    __slots__ = ("_around", "_before", "_entered", "_ours", "_owner", "_push", "_thread")

    _around: _Push | None
    _push: _Push | None

    def __init__(self, ours: int, owner: object) -> None:
        self._entered = False
        self._ours = ours
        self._owner = owner
        self._before = self._thread = 0
        self._around = self._push = None

    def __enter__(self) -> None:
        if self._entered:  # the inner block would forget what was current before the outer one
            raise ReduceError("this push of a context is under way: call pushed() for each block")
        # Already current is the common case in a runtime: then one query replaces the push and the pop.
        of = _thread.of_driver()  # a hot path of threads that have no context: each call of a function counts
        before = of.current()
        self._before = before if before >= 0 else _number("cuCtxGetCurrent", before)
        pushes = of.pushes
        self._around = self._push = pushes.innermost
        if self._before != self._ours:
            self._thread = threading.get_ident()
            self._push = (self._around, self._ours)
            try:
                _push(of.push, self._ours)
                pushes.innermost = self._push
            except BaseException:  # an interrupt may come behind the push, and there will be no end of the block
                self._pop()
                raise
        self._entered = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        on_top = self._before != self._ours  # our own push, for all that is known
        pushes, gone = _thread.pushes, False
        try:
            of = _thread.of_driver()
            gone = pushes.innermost is not self._push and not pushes.have(self._push)
            left = of.current()
            if left < 0:
                _number("cuCtxGetCurrent", left)
            balanced = (on_top and gone) or left == self._ours
            behind = not gone and pushes.innermost is not self._push
            if behind:
                pushes.pop_to(self._push)
                balanced = current_handle() == self._ours
            if balanced and on_top and not gone:
                _number("cuCtxPopCurrent", of.pop())
                on_top = False
                balanced = _number("cuCtxGetCurrent", of.current()) == self._before
        except BaseException:  # a refused call, or an interrupt, must not leave our context on the caller's stack
            try:
                current_handle()
            except CudaError:
                # The driver does not say what is current, and most blocks leave what they found.
                if on_top:
                    binding.call("cuCtxPopCurrent")
            else:
                self._restore()
            raise
        finally:
            if not gone:
                pushes.innermost = self._around
        if not balanced:
            self._restore()
        if on_top and gone and kind is None:
            raise ReduceError(f"the block that had context {self._ours:#x} current ended after one around it")
        if kind is None and (behind or not balanced):  # an error under way says more than this one
            raise ReduceError(
                f"the block that had context {self._ours:#x} current ended with {left:#x} current: "
                f"a push and its pop did not match; {self._before:#x} is current again"
            )

    def __del__(self) -> None:
        # An interrupt that comes as the end of the block begins, before its first line: the push is still there.
        entered = getattr(self, "_entered", False)  # not there where an interrupt came as this was made
        if entered and self._before != self._ours and self._thread == threading.get_ident():
            self._entered = False
            if _thread.pushes.have(self._push):
                _thread.pushes.pop_to(self._around)

    def _pop(self) -> None:
        """Take our own push off, if it lies on top; raises nothing that the driver says."""
        with contextlib.suppress(ReduceError):  # nobody can tell what is current
            if current_handle() == self._ours:
                binding.call("cuCtxPopCurrent")

    def _restore(self) -> None:
        # The driver does not tell how deep its stack is, only what lies on top: take off what the block left until
        # our own context or the bottom appears.
        taken: list[int] = []
        while (top := current_handle()) not in (0, self._ours, self._before):
            taken.append(top)
            binding.call("cuCtxPopCurrent")
        if self._ours != self._before and top == self._ours:
            while current_handle() == self._ours:
                binding.call("cuCtxPopCurrent")
        elif not top:  # what was current before is not there any more: the block took it off too
            for handle in reversed(taken):
                binding.call("cuCtxPushCurrent", handle)
            if self._before:
                binding.call("cuCtxPushCurrent", self._before)
        if current_handle() != self._before:
            binding.call("cuCtxSetCurrent", self._before or None)


def current_handle() -> int:
    """Return the handle of the calling thread's current context, 0 if there is none."""
    return _number("cuCtxGetCurrent", _thread.of_driver().current())


def _push(known: dict[int, Callable[[], int]], handle: int) -> None:
    """Make a context the calling thread's current one, above the one that is; raises CudaError.

    `known` are the calls that the thread keeps for that.
    """
    push = known.get(handle)
    if push is None:
        if len(known) >= _MOST_CONTEXTS:
            known.clear()
        push = known[handle] = binding.prebuilt("cuCtxPushCurrent", handle)
    if code := push():
        binding.raise_for("cuCtxPushCurrent", code)


def _number(name: str, answer: int) -> int:
    """Return what a driver's function has answered; raises CudaError for a negated result code."""
    if answer < 0:
        binding.raise_for(name, -answer)
    return answer
