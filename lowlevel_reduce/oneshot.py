"""What the one-shot functions share: plans and bound launches kept from call to call, and the run of one of them."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.driver import Context, Stream, binding
from lowlevel_reduce.driver.handle import quietly
from lowlevel_reduce.dtypes import accumulator_dtype, numpy_dtype
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.interop import DeviceArray, order_after, view_output

if TYPE_CHECKING:
    from lowlevel_reduce.allocator import Allocator
    from lowlevel_reduce.base_plan import BasePlan
    from lowlevel_reduce.bound import BoundReduction
    from lowlevel_reduce.interop import ArrayView

__all__ = ["MAX_BOUND", "Entry", "LaunchCache", "initial_key", "kept_entry", "key_options", "run", "stream_of"]

MAX_BOUND = 128
"""Problems of which bound launches are kept, with their workspaces; the least recently used goes first."""

_Key = tuple[Any, ...]


class Entry:
    """A plan and, once it was needed, a launch of it, which is for one thread at a time.

    Attributes
    ----------
    plan : BasePlan
        The plan.
    bound : BoundReduction or None
        The launch that is kept.
    lent_to : weakref.ref or None
        Of who calls `bound` without asking here, always from the same thread: as long as it lives, nobody else may.
    """

    __slots__ = ("bound", "lent_to", "plan")

    def __init__(self, plan: BasePlan) -> None:
        self.plan = plan
        self.bound: BoundReduction | None = None
        self.lent_to: weakref.ref[Any] | None = None

    def bind(self, stream: Stream, initial: Any) -> BoundReduction:
        """Return the launch that is kept, bound now if there is none."""
        if self.bound is None:
            self.bound = self.plan.bind(stream, initial=initial, allocator=_in_order())
        return self.bound

    def another(self, stream: Stream) -> BoundReduction | None:
        """Return one more launch, in another object for the same stream; None if the driver has no memory for it.

        The call for whose successors it is has been made: it lacks nothing.
        """
        try:
            return self.plan.bind(stream, allocator=_in_order())
        except CudaError:
            return None

    @contextmanager
    def launch(self, stream: Stream, initial: Any, allocator: Allocator | None) -> Iterator[BoundReduction]:
        """Give the launch that is kept; for an allocator one of its own, with a workspace for this call alone."""
        if allocator is None:
            yield self.bind(stream, initial)
            return
        bound = self.plan.bind(stream, initial=initial, allocator=allocator)
        try:
            yield bound
        finally:
            bound.close()

    def keep_loaded(self, bound: BoundReduction) -> None:
        """Keep the kernels of a launch of it for good: a graph may have them, whose end nobody tells of.

        The caller, who keeps alive what is captured, has no object for them.
        """
        kept = binding.selected().kept.setdefault("kernels of graphs", {})
        kept.update(dict.fromkeys(each.kernel for each in bound.kernels))

    def borrower(self) -> Any:
        """Return who it is lent to, or None."""
        return None if self.lent_to is None else self.lent_to()

    def is_over(self) -> bool:
        """Tell whether its launch refuses every call, as its stream or context was closed."""
        bound = self.bound
        return bound is not None and (bound.stream.is_closed or bound.context.is_closed or bound.context.life.over)


class LaunchCache:
    """Entries by problem, context and stream. The driver numbers contexts and streams, and reuses no number.

    A bound launch is for one thread at a time, so an entry that is in use is not here.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal's handler may reduce while this thread is at it
        self._idle: OrderedDict[_Key, list[Entry]] = OrderedDict()

    def take(self, key: _Key, user: object = None) -> Entry | None:
        """Return an entry that nobody else has until `give`, or None; one that is lent only to its borrower.

        Not one whose launch is in use all the same: by its borrower, of whom this is a signal's handler.
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
            if taken is not None:
                idle.remove(taken)
            else:  # a plan will be made: time enough to let go of all that streams have left which were closed
                over += self._take_over(*self._idle)
        del over  # frees their workspaces, by finalizers: outside of the lock, and allowed during a capture
        return taken

    def _take_over(self, *keys: _Key) -> list[Entry]:
        over = []
        for key in keys:
            idle = self._idle.get(key, [])
            over += [entry for entry in idle if entry.is_over()]
            idle[:] = [entry for entry in idle if not entry.is_over()]
            if not idle:
                self._idle.pop(key, None)
        return over

    def give(self, key: _Key, entry: Entry) -> None:
        """Keep an entry for a later call."""
        with self._lock:
            self._idle.setdefault(key, []).append(entry)
            self._idle.move_to_end(key)
            dropped = self._idle.popitem(last=False) if len(self._idle) > MAX_BOUND else (key, [])
        for old in dropped[1]:
            if old.borrower() is None:  # else it is the borrower's from now on
                _discard(old, dropped[0])


def _discard(entry: Entry, key: _Key) -> None:
    """Free a workspace in its stream's order; one whose context is gone went with it. It is nothing of the caller's."""
    bound = entry.bound
    if bound is None:
        return
    if not (bound.context.is_closed or bound.context.life.over) and _is_gone(bound.context, *key[:2]):
        bound.context.life.over = True  # its handle may be another context's by now: nothing of it may be freed
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
    """Have an entry for the block that nobody else has: one that was kept, or a new one.

    Parameters
    ----------
    stream : Stream
        Where it runs; its context is current.
    problem : tuple
        All that the plan depends on besides the context, hashable.
    make : callable
        Makes the plan.
    user : object, optional
        Who asks, as for `LaunchCache.take`.
    """
    if not stream.has_number and stream.is_capturing:  # nor can it be asked for, to find what was kept
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
    """Launch once, every address looked at, and return what a one-shot function returns.

    Parameters
    ----------
    entry : Entry
        What to launch.
    inputs : tuple of ArrayView
        The array, and the second one if there is one.
    out, initial, allocator
        As for `lowlevel_reduce.reduce`.
    stream : Stream
        Where; its context is current.
    """
    made = entry.plan
    shape = made.result_shape if made.results == 1 else (made.results, *made.result_shape)
    some = math.prod(made.result_shape) > 0
    captured = some and stream.is_capturing
    workspaces = _in_order() if captured and allocator is None and made.has_workspace else allocator
    if workspaces is None or not some:  # what is bound for no results has no workspace
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
    """Return what takes workspaces in the order of their stream.

    So one that is dropped is not waited for, and one of a captured call is the graph's own: nobody else uses it
    meanwhile, and it is there as long as the graph is.
    """
    from lowlevel_reduce.allocator import StreamOrdered  # noqa: PLC0415 - the first plan has imported it

    return StreamOrdered()


def key_options(op: Any, *, dtype: Any, accumulate: Any, nan: Any, last: Any, map: Any) -> dict[str, Any]:
    """Return options of a plan as they may stand in a key, where those that are equal mean the same; the others' are.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        In the words of who takes them, and not only because one cannot be hashed.
    """
    from lowlevel_reduce.operators import check_options  # noqa: PLC0415 - with the first plan

    check_options(op, nan=nan, map=map)
    return {
        "result_dtype": dtype if dtype is None or isinstance(dtype, str) else numpy_dtype(dtype),
        "accumulate": accumulate if isinstance(accumulate, str) else accumulator_dtype(accumulate),
        "nan": nan,
        "last": bool(last),
        "map": map,
    }


def initial_key(value: Any) -> _Key | None:
    """Return what tells one initial value from all that are not the same to the last bit; None for None."""
    if value is None:
        return None
    number = np.asarray(value)
    # An integer of more than 64 bits is an object. Of all others `repr` may leave digits out, or the type.
    content = repr(value) if number.dtype.hasobject else number.tobytes()
    return (type(value), number.dtype, number.shape, content)


def stream_of(stream: Any) -> Stream:
    """Return the fixed stream of a one-shot call: by default the legacy one of the current context, or of device 0."""
    return Stream.legacy(Context.current_or_primary()) if stream is None else Stream.of(stream).fixed()
