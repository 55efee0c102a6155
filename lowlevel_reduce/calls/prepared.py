"""What the one-shot functions share: plans and bound launches that are kept from call to call, and their execution."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.arguments import flag, shown
from lowlevel_reduce.arrays.device_array import DeviceArray, order_after, view_output
from lowlevel_reduce.driver import Context, Stream, binding
from lowlevel_reduce.driver.handle import quietly
from lowlevel_reduce.dtypes import accumulator_dtype, numpy_dtype
from lowlevel_reduce.errors import CudaError

if TYPE_CHECKING:
    from lowlevel_reduce.arrays.allocator import Allocator
    from lowlevel_reduce.arrays.device_array import ArrayView
    from lowlevel_reduce.plans.base import BasePlan
    from lowlevel_reduce.plans.launch import BoundReduction

__all__ = ["MAX_BOUND", "Entry", "LaunchCache", "initial_key", "kept_entry", "key_options", "run", "stream_of"]

MAX_BOUND = 128
"""The most problems whose bound launches and workspaces are kept; the least recently used is dropped first."""

_Key = tuple[Any, ...]


class Entry:
    """A plan and, from its first use on, a bound launch of it, which only one thread may use at a time.

    Attributes
    ----------
    plan : BasePlan
        The plan.
    bound : BoundReduction or None
        The bound launch that is kept.
    lent_to : weakref.ref or None
        The borrower, who calls `bound` without asking here, always from the same thread. As long as the borrower is
        alive, nobody else may call it.
    """

    __slots__ = ("bound", "lent_to", "plan")

    def __init__(self, plan: BasePlan) -> None:
        self.plan = plan
        self.bound: BoundReduction | None = None
        self.lent_to: weakref.ref[Any] | None = None

    def bind(self, stream: Stream, initial: Any) -> BoundReduction:
        """Return the bound launch that is kept; bind the plan now if there is none."""
        if self.bound is None:
            self.bound = self.plan.bind(stream, initial=initial, allocator=_in_order())
        return self.bound

    def another(self, stream: Stream) -> BoundReduction | None:
        """Return an additional launch, through another object for the same stream; None if the driver refuses memory.

        It is only for later calls: the current one has been made and does without it.
        """
        try:
            return self.plan.bind(stream, allocator=_in_order())
        except CudaError:
            return None

    @contextmanager
    def launch(self, stream: Stream, initial: Any, allocator: Allocator | None) -> Iterator[BoundReduction]:
        """Yield the launch that is kept; with an allocator, one whose workspace is for this call alone."""
        if allocator is None:
            yield self.bind(stream, initial)
            return
        bound = self.plan.bind(stream, initial=initial, allocator=allocator)
        try:
            yield bound
        finally:
            bound.close()

    def keep_loaded(self, bound: BoundReduction) -> None:
        """Keep the kernels of a launch loaded for good: a graph may use them, and nothing tells when the graph ends.

        The caller has to keep alive what is captured, but has no object for the kernels.
        """
        bound.keep_loaded(binding.selected().kept.setdefault("kernels of graphs", {}))

    def borrower(self) -> Any:
        """Return the borrower if it is still alive, else None."""
        return None if self.lent_to is None else self.lent_to()

    def is_over(self) -> bool:
        """Tell whether its launch refuses every call, because its stream or context was closed."""
        bound = self.bound
        return bound is not None and (bound.stream.is_closed or bound.context.is_closed or bound.context.life.over)


class LaunchCache:
    """Entries by problem, context and stream. The driver numbers contexts and streams, and never reuses a number.

    Only one thread may use a bound launch at a time, so an entry is not in here while it is in use.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler may reduce while this thread holds the lock
        self._idle: OrderedDict[_Key, list[Entry]] = OrderedDict()

    def take(self, key: _Key, user: object = None) -> Entry | None:
        """Return an entry for exclusive use until `give`, or None; only its borrower gets an entry that is lent.

        An entry is not returned while its launch is in use: the borrower may be in a call of it, and this in a signal
        handler that interrupted the call.
        """
        with self._lock:
            over = self._take_over(key)
            idle = self._idle.get(key, [])
            usable = (
                entry
                for entry in idle
                if entry.borrower() in (None, user) and (entry.bound is None or entry.bound.is_free)
            )
            taken = next(usable, None)
            if taken is not None and not _taken_from(idle, taken):
                taken = None
            if taken is None:  # a plan has to be made anyway: there is time to drop all entries of closed streams
                over += self._take_over(*self._idle)
        del over  # their finalizers free the workspaces: outside the lock, and allowed during a capture
        return taken

    def _take_over(self, *keys: _Key) -> list[Entry]:
        over = []
        for key in keys:
            idle = self._idle.get(key, [])
            over += [entry for entry in idle.copy() if entry.is_over() and _taken_from(idle, entry)]
            # An entry that a signal's handler has given since the look is kept.
            if not idle and (given := self._idle.pop(key, None)):
                self._idle.setdefault(key, []).extend(given)
        return over

    def give(self, key: _Key, entry: Entry) -> None:
        """Keep an entry for a later call."""
        with self._lock:
            idle: list[Entry] | None = None
            while idle is None or self._idle.get(key) is not idle:  # a signal's handler may have dropped the empty list
                idle = self._idle.setdefault(key, [])
                if entry not in idle:
                    idle.append(entry)
            with contextlib.suppress(KeyError):  # a signal's handler has used it
                self._idle.move_to_end(key)
            dropped = self._idle.popitem(last=False) if len(self._idle) > MAX_BOUND else (key, [])
        for old in dropped[1]:
            if old.borrower() is None:  # else it belongs to the borrower from now on
                _discard(old, dropped[0])


def _taken_from(idle: list[Entry], entry: Entry) -> bool:
    """Take an entry out of a list in one step; tell whether it was in there, and not with a signal's handler."""
    try:
        idle.remove(entry)
    except ValueError:
        return False
    return True


def _discard(entry: Entry, key: _Key) -> None:
    """Free a workspace in its stream's order, unless its context is gone and the memory with it; raises nothing."""
    bound = entry.bound
    if bound is None:
        return
    if not (bound.context.is_closed or bound.context.life.over) and _is_gone(bound.context, *key[:2]):
        bound.context.life.over = True  # another context may have its handle by now: nothing of it may be freed
    quietly(key[0], bound.close)


def _is_gone(context: Context, driver: binding.Implementation, number: int) -> bool:
    try:
        return bool(driver.call("cuCtxGetId", context.handle) != number)
    except CudaError:
        return True


@contextmanager
def kept_entry(
    stream: Stream, problem: tuple[Any, ...], make: Callable[[], BasePlan], user: object = None
) -> Iterator[Entry]:
    """Yield an entry for exclusive use in the block: one that was kept, or a new one.

    Parameters
    ----------
    stream : Stream
        Where it runs; its context must be current.
    problem : tuple
        Everything that the plan depends on besides the context, hashable.
    make : callable
        Makes the plan.
    user : object, optional
        Who asks, as for `LaunchCache.take`.
    """
    if not stream.has_number and stream.is_capturing:  # the number cannot be asked for now, so no kept entry be found
        yield Entry(make())
        return
    driver = binding.selected()
    key = (driver, stream.context.id, stream.id, *problem)
    # Kept for as long as the driver is registered.
    cache: LaunchCache = driver.kept.setdefault("bound reductions", LaunchCache())
    entry = cache.take(key, user) or Entry(make())
    try:
        yield entry
    finally:
        cache.give(key, entry)


def run(
    entry: Entry,
    inputs: tuple[ArrayView, ...],
    out: Any,
    stream: Stream,
    initial: Any,
    allocator: Allocator | None,
) -> Any:
    """Check every address, launch once, and return what a one-shot function returns.

    Parameters
    ----------
    entry : Entry
        What to launch.
    inputs : tuple of ArrayView
        The array, and the second one if there is one.
    out, initial, allocator
        As for `lowlevel_reduce.reduce`.
    stream : Stream
        Where to run; its context must be current.
    """
    made = entry.plan
    shape = made.result_shape if made.results == 1 else (made.results, *made.result_shape)
    some = math.prod(made.result_shape) > 0
    captured = some and stream.is_capturing
    workspaces = _in_order() if captured and allocator is None and made.has_workspace else allocator
    if workspaces is None or not some:  # a launch without results has no workspace
        entry.bind(stream, initial)
    result = DeviceArray.empty(shape, made.result_dtype, stream, allocator) if out is None else out
    target = view_output(result, made.result_dtype, shape, stream)
    if some:
        pointers = [view.pointer for view in inputs]
        addresses = (pointers[0], target.pointer, *pointers[1:])
        with entry.launch(stream, initial, workspaces) as launch:
            launch.check(*addresses)
            if captured:
                entry.keep_loaded(launch)
            launch(*addresses)
        order_after(stream, result, *(view.owner for view in inputs))
    if out is not None or made.results == 1:
        return result
    return made.result_tuple(result.plane(k) for k in range(made.results))


@functools.cache
def _in_order() -> Allocator:
    """Return the allocator that allocates and frees workspaces in the order of their stream.

    So nothing waits when one is dropped. The workspace of a captured call belongs to the graph: nobody else uses it
    meanwhile, and it exists as long as the graph.
    """
    from lowlevel_reduce.arrays.allocator import StreamOrdered  # noqa: PLC0415 - the first plan has imported it

    return StreamOrdered()


def key_options(op: Any, *, dtype: Any, accumulate: Any, nan: Any, last: Any, map: Any) -> dict[str, Any]:
    """Return a plan's options in a form for keys: hashable, and equal only if they mean the same.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        With the message of the function that interprets the option, rather than one about an unhashable value.
    """
    from lowlevel_reduce.operators import check_options  # noqa: PLC0415 - with the first plan

    check_options(op, nan=nan, map=map)
    return {
        "result_dtype": dtype if dtype is None or isinstance(dtype, str) else numpy_dtype(dtype),
        "accumulate": accumulate if isinstance(accumulate, str) else accumulator_dtype(accumulate),
        "nan": nan,
        "last": flag(last, "last"),
        "map": map,
    }


def initial_key(value: Any) -> _Key | None:
    """Return a key that two initial values share only if they are equal in type and in every bit; None for None."""
    if value is None:
        return None
    try:
        number = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the initial value is a number, not {shown(value)}") from error
    # An integer of more than 64 bits is an object. For all others, `repr` may leave out digits, or the type.
    content = repr(value) if number.dtype.hasobject else number.tobytes()
    return (type(value), number.dtype, number.shape, content)


def stream_of(stream: Any) -> Stream:
    """Return the fixed stream of a one-shot call; by default the legacy one of the current context, or of device 0."""
    return Stream.legacy(Context.current_or_primary()) if stream is None else Stream.of(stream).fixed()
