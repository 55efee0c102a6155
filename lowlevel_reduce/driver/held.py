"""What was made and is still to be given back: noted by the call that makes it, and forgotten by the one that ends it.

An exception from a signal's handler, such as KeyboardInterrupt, may come between any two bytecodes. Between a call that
makes something and a line that notes it, the thing would be lost; between one that ends it and a line that notes that,
it would be ended twice. So both are called by C code, which Python does not interrupt.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any, TypeVar

from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import CudaError

__all__ = ["Held", "for_a_while"]

_T = TypeVar("_T")

_ALL = 0  # the only key of the dictionary
_NOTHING = (1,)  # as a refusal, which is nothing to be held
_DONE = (0,)  # as the driver's answer of a call that gives nothing
_second = operator.itemgetter(1)


class Held:
    """One thing, from the call that makes it to the call that ends it, each of which may be interrupted at any place.

    Parameters
    ----------
    implementation : Implementation
        The driver that is called.
    """

    __slots__ = ("_answer", "implementation")

    def __init__(self, implementation: binding.Implementation) -> None:
        self.implementation = implementation
        # The result code and the handle, as the driver returns them. Its changes are single operations of a dictionary,
        # which has its memory from here on: none may be needed behind the driver's call.
        self._answer: dict[int, Any] = {_ALL: _NOTHING}

    @property
    def is_held(self) -> bool:
        """Whether there is something to be given back."""
        return not self._answer.get(_ALL, _NOTHING)[0]

    @property
    def handle(self) -> Any:
        """The handle that is held, None if there is none."""
        answer = self._answer.get(_ALL, _NOTHING)
        return None if answer[0] else int(answer[1])

    def take(self, name: str, *args: Any) -> Any:
        """Call the driver as `Implementation.call` does, and hold what it returns, until it is given back."""
        try:
            return self.implementation.call(name, *args, by=self._take)
        except BaseException:
            if not self.is_held:  # a refusal
                self.forget()
            raise

    def _take(self, routine: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        # One step: the function is called, and the dictionary takes what it returns.
        self._answer.update(zip((_ALL,), itertools.starmap(routine, (args,)), strict=False))
        return self._answer[_ALL]

    def take_from(self, function: Callable[..., Any], *args: Any) -> Any:
        """Hold what a function of the caller's returns; if that is no integer, raise TypeError and hold nothing."""
        results = itertools.starmap(function, (args,))
        self._answer.update(zip((_ALL,), zip((0,), results, strict=False), strict=False))
        try:
            return operator.index(self._answer[_ALL][1])
        except TypeError:
            self.forget()
            raise

    def forget(self) -> None:
        """Hold nothing, where there is nothing to be ended."""
        self._answer[_ALL] = _NOTHING  # in its memory: without an entry, `take` might need some

    def give_back(self, name: str, *args: Any) -> None:
        """Call the driver's function that ends the thing, unless that was done. If it is refused, it counts as done.

        Raises
        ------
        CudaError
            If the driver refuses.
        """
        if self.is_held:
            self.implementation.call(name, *args, by=self._spend)

    def try_to_give_back(self, name: str, *args: Any) -> None:
        """Call the driver's function that ends the thing, unless that was done. If it is refused, the thing is held."""
        answer = self._answer.get(_ALL, _NOTHING)
        try:
            self.give_back(name, *args)
        except CudaError:
            self._answer.setdefault(_ALL, answer)
            raise

    def give_back_by(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function of the caller's that ends the thing, unless that was done."""
        self._spend(function, args)

    def _spend(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        # One step: the answer is taken out of the dictionary, and the function is called, if there was one.
        taken = filter(None, map(self._answer.pop, (_ALL,), (None,)))
        results = list(itertools.starmap(function, map(_second, zip(taken, (args,), strict=False))))
        return results[0] if results else _DONE


def for_a_while(
    implementation: binding.Implementation,
    taking: tuple[Any, ...],
    giving: Callable[[Held], tuple[Any, ...]],
    work: Callable[[Held], _T],
) -> _T:
    """Hold something while `work` is called with it, and return what that returns.

    Parameters
    ----------
    implementation : Implementation
        The driver that is called.
    taking : tuple
        The call that takes it: the function's name and the arguments.
    giving : callable
        Returns the same of the call that gives it back, for what is held.
    work : callable
        What is to be done meanwhile.

    A refusal of either is tried once more, for one would leave things as they are for good. It is raised all the same,
    when the work is done.

    This is no context manager. At the end of a ``with`` block an interrupt may come as the function that would give the
    thing back begins, and a generator's may lack the memory to begin at all; then nobody is left to do it. Here the
    frame that sees to it is there before anything is taken, whatever comes.
    """
    held = Held(implementation)
    refusals: list[CudaError] = []

    def twice(call: Callable[..., object], *args: Any) -> None:
        try:
            call(*args)
        except CudaError as error:
            # Neither here nor where it is raised does it hold a frame that holds it: such a circle would keep what the
            # callers have until the collector runs.
            refusals.append(error.with_traceback(None))
            call(*args)

    def give(by: Callable[..., None]) -> None:
        if held.is_held:
            by(*giving(held))

    try:
        twice(held.take, *taking)
        result = work(held)
    finally:
        try:
            twice(give, held.try_to_give_back)
        finally:  # where an interrupt came first, or there was no memory; else it is done
            give(held.give_back)
    if refusals:
        raise refusals.pop(0)
    return result
