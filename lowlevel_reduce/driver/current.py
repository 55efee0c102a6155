"""The calling thread's current context: a query for it, and pushing another one for the length of a block."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType

from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import CudaError, ReduceError

__all__ = ["Pushed", "current_handle"]


class _Pushes(threading.local):
    """The pushes of a thread's blocks that were not popped yet, the outermost first: each the context's handle alone.

    An interrupt that comes as the end of a block begins, before its first line, leaves a push behind. It is popped by
    the end of the next outer block, or as the traceback goes, which has the block's `Pushed`: whichever is first.
    """

    def __init__(self) -> None:
        self.left: list[tuple[int]] = []


_pushes = _Pushes()


class Pushed:
    """One push and its pop, on one thread; it keeps `owner`, whose context it is, alive that long.

    For one block at a time: within it, and on another thread, ask for another one.
    """

    __slots__ = ("_before", "_depth", "_entered", "_ours", "_owner", "_push", "_thread")

    def __init__(self, ours: int, owner: object) -> None:
        self._entered = False
        self._ours = ours
        self._owner = owner
        self._before = self._thread = self._depth = 0
        self._push = (ours,)  # an object of its own, by which it is found among those of the thread

    def __enter__(self) -> None:
        if self._entered:  # the inner block would forget what was current before the outer one
            raise ReduceError("this push of a context is under way: call pushed() for each block")
        # Already current is the common case in a runtime: then one query replaces the push and the pop.
        self._before = current_handle()
        pushes = _pushes.left
        self._depth = len(pushes)
        if self._before != self._ours:
            self._thread = threading.get_ident()
            try:
                binding.call("cuCtxPushCurrent", self._ours)
                pushes.append(self._push)
            except BaseException:  # an interrupt may come behind the push, and there will be no end of the block
                self._pop()
                del pushes[self._depth :]
                raise
        self._entered = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        on_top = self._before != self._ours  # our own push, for all that is known
        pushes, gone = _pushes.left, False
        try:
            gone = on_top and not self._is_among(pushes)
            left = current_handle()
            balanced = gone or left == self._ours
            behind = not gone and len(pushes) > self._depth + on_top
            if behind:
                _pop_behind(pushes, self._depth + on_top)
                balanced = current_handle() == self._ours
            if balanced and on_top and not gone:
                binding.call("cuCtxPopCurrent")
                on_top = False
                balanced = current_handle() == self._before
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
                del pushes[self._depth :]
        if not balanced:
            self._restore()
        if gone and kind is None:
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
            pushes = _pushes.left
            if self._is_among(pushes):
                _pop_behind(pushes, self._depth)

    def _is_among(self, pushes: list[tuple[int]]) -> bool:
        """Tell whether our push is among those of the thread: else an outer block has popped it."""
        return len(pushes) > self._depth and pushes[self._depth] is self._push

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


def _pop_behind(pushes: list[tuple[int]], depth: int) -> None:
    """Pop what ends of blocks have left, down to a depth; raises nothing that the driver says."""
    with contextlib.suppress(ReduceError):  # nobody can tell what is current
        while len(pushes) > depth:
            (handle,) = pushes[-1]
            if current_handle() == handle:
                binding.call("cuCtxPopCurrent")
            del pushes[-1:]


def current_handle() -> int:
    """Return the handle of the calling thread's current context, 0 if there is none."""
    return int(binding.call("cuCtxGetCurrent"))
