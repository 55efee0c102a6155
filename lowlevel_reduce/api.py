"""The one-shot reduction: an array in, a `DeviceArray` out, the plan looked up or made."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowlevel_reduce import layout, operators, quick
from lowlevel_reduce.allocator import Allocator
from lowlevel_reduce.bound import BoundReduction
from lowlevel_reduce.driver import Context, Stream, binding
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.interop import ArrayView, DeviceArray, view_array, view_output
from lowlevel_reduce.plan import Plan, plan

__all__ = ["reduce"]

MAX_BOUND = 128
"""Bound launches that the one-shot functions keep, with their workspaces; the least recently used goes first."""

_Key = tuple[Any, ...]


class _Cache:
    """Bound launches by problem, context and stream. The driver numbers contexts and streams, and reuses no number.

    A bound launch is for one thread at a time, so one that is in use is not here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: OrderedDict[_Key, list[_Entry]] = OrderedDict()

    def take(self, key: _Key) -> _Entry | None:
        """Return a bound launch that nobody else has until `give`, or None."""
        with self._lock:
            idle = self._idle.get(key)
            return idle.pop() if idle else None

    def give(self, key: _Key, entry: _Entry) -> None:
        """Keep a bound launch for a later call."""
        with self._lock:
            self._idle.setdefault(key, []).append(entry)
            self._idle.move_to_end(key)
            dropped = self._idle.popitem(last=False) if len(self._idle) > MAX_BOUND else (key, [])
        for old in dropped[1]:
            _discard(old.bound, dropped[0])


def _discard(bound: BoundReduction, key: _Key) -> None:
    """Free a workspace, which waits for the device; one whose context is gone went with it."""
    context = bound.context
    try:
        driver, identity = key[:2]  # as `reduce` builds it
        gone = driver.call("cuCtxGetId", context.handle) != identity
    except CudaError:
        gone = True
    if gone:
        context.life.over = True  # its handle may be another context's by now: nothing of it may be freed
    bound.close()


def _cache(driver: binding.Implementation) -> _Cache:
    """Return what is kept for as long as the driver is registered."""
    cache: _Cache = driver.kept.setdefault("bound reductions", _Cache())
    return cache


def reduce(
    x: Any,
    op: Any = "sum",
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    accumulate: str | None = None,
    out: Any = None,
    stream: Any = None,
    nan: str = "propagate",
    where: Any = None,
    initial: Any = None,
    second: Any = None,
    ddof: int = 0,
    last: bool = False,
    map: str | None = None,
    strategy: str | None = None,
    allocator: Allocator | None = None,
) -> Any:
    """Reduce an array over some of its axes by the one tree.

    Parameters
    ----------
    x : array
        A `DeviceArray`, anything with ``__dlpack__`` or ``__cuda_array_interface__`` on the device, or a NumPy array,
        which is copied there. Any shape, strides and byte alignment; nothing on the device is copied.
    op : str or Operator
        The operator, or its name.
    axis : int, sequence of int or None
        What to reduce; None for all axes. A row's elements come in C order of the reduced axes.
    keepdims : bool
        Whether reduced axes stay in the result's shape with one element.
    dtype : dtype, optional
        Type of the result; by default what NumPy's function gives.
    accumulate : str, optional
        The accumulator, as for `lowlevel_reduce.tree.reduce`.
    out : array, optional
        Where to write the result: a contiguous device array of its shape and type. For an operator of two results,
        of shape ``(2, *shape)``.
    stream : Stream or object with ``__cuda_stream__``, optional
        Where to run; its context is used. By default the legacy default stream of the current context, or, if none is
        current, of the primary context of device 0.
    nan : {"propagate", "ignore"}
        What a NaN does, for sum, mean, min and max.
    where : array of bool, optional
        Which elements take part; broadcast to `x`.
    initial : scalar, optional
        What the reduction starts from; it is combined at the tree's root.
    second : array, optional
        The second array of an operator that has one; broadcast to `x`.
    ddof : int
        What var and std subtract from the number of elements before dividing by it.
    last : bool
        Whether argmin and argmax return the last of equal values instead of the first.
    map : str, optional
        A CUDA C++ expression in ``x`` (and ``y``, of the second array) that each element becomes first.
    strategy : str, optional
        As for `lowlevel_reduce.plan`; all give the same bits.
    allocator : Allocator, optional
        Where workspace and result come from, instead of the driver. The workspace goes back before the call returns,
        the result when the last reference to it goes.

    Returns
    -------
    DeviceArray, named tuple of them, or object
        The result, or one for each of the operator's results, in the order of the stream; `out` if that was given. The
        host does not wait.

    Raises
    ------
    TypeError, ValueError
        If an argument is no array, of the wrong shape or type, on the host, or of another device or context; if an
        axis or option makes no sense; if rows are empty and the operator has no result for that.
    UnsupportedError
        If the type cannot be reduced so, or the device lacks what the strategy needs.
    NoDriverError, NoCompilerError, CompileError, CacheError, CudaError
        From below. Whatever was current before the call is current after it.
    """
    if where is not None and second is not None:
        raise ValueError("a reduction takes a mask or a second array, not both")
    simple = out is None and where is None and second is None and initial is None and allocator is None
    options = (axis, keepdims, dtype, accumulate, nan, ddof, last, map, strategy)
    if simple:
        result = quick.call(x, op, stream, options)
        if result is not None:
            return result
    given = stream
    if stream is None:
        stream = Stream.legacy(Context.current_or_primary())
    stream = Stream.of(stream)
    context = stream.context
    with context.pushed():
        source = view_array(x, stream)
        other = _second_view(second if where is None else where, source, stream)
        problem = {
            "shape": source.shape,
            "dtype": source.dtype,
            "axis": tuple(axis) if isinstance(axis, Sequence) else axis,
            "keepdims": bool(keepdims),
            "strides_bytes": source.strides_bytes,
            "second_strides_bytes": None if other is None else other.strides_bytes,
            "accumulate": accumulate,
            "result_dtype": dtype,
            "where": where is not None,
            "initial": initial is not None,
            "strategy": strategy,
            "nan": nan,
            "ddof": ddof,
            "last": last,
            "map": map,
        }
        start = None if initial is None else repr(initial)
        forced = os.environ.get("LOWLEVEL_REDUCE_STRATEGY")
        key = (binding.selected(), context.id, stream.id, op, start, forced, *problem.values())
        cache = _cache(binding.selected())
        entry = cache.take(key)
        if entry is None:
            made = plan(op, context=context, **problem)
            _check_second(made, other)
            entry = _Entry(made, made.bind(stream, initial=initial))
        try:
            result = _run(entry, source, other, out, stream, initial, allocator)
        finally:
            cache.give(key, entry)
        if simple and entry.plan.results == 1 and entry.plan.problem.rows:
            made = entry.plan
            kept = made.result_dtype, made.result_shape
            quick.offer(x, op, given, options, lambda: made.bind(stream), kept, stream)
        return result


@dataclass(frozen=True)
class _Entry:
    """A plan and a launch of it, which is for one thread at a time."""

    plan: Plan
    bound: BoundReduction


def _run(
    entry: _Entry,
    source: ArrayView,
    other: ArrayView | None,
    out: Any,
    stream: Stream,
    initial: Any,
    allocator: Allocator | None,
) -> Any:
    made = entry.plan
    shape = made.result_shape if made.results == 1 else (made.results, *made.result_shape)
    result = DeviceArray.empty(shape, made.result_dtype, stream, allocator) if out is None else out
    target = view_output(result, made.result_dtype, shape, stream)
    addresses = (source.pointer, target.pointer, *(() if other is None else (other.pointer,)))
    if made.problem.rows:
        with _launch(entry, stream, initial, allocator) as launch:
            launch.check(*addresses)
            launch(*addresses)
    if out is not None or made.results == 1:
        return result
    names = made.reduction.result_names
    return operators.result_tuple(made.op, names)(*(result.plane(k) for k in range(made.results)))


@contextmanager
def _launch(entry: _Entry, stream: Stream, initial: Any, allocator: Allocator | None) -> Iterator[BoundReduction]:
    """Give the bound launch that is kept; for an allocator one of its own, with a workspace for this call alone."""
    if allocator is None:
        yield entry.bound
        return
    bound = entry.plan.bind(stream, initial=initial, allocator=allocator)
    try:
        yield bound
    finally:
        bound.close()


def _second_view(second: Any, source: ArrayView, stream: Stream) -> ArrayView | None:
    """Return a mask's or second array's memory, its strides those of an array that is broadcast to the first."""
    if second is None:
        return None
    view = view_array(second, stream)
    strides = view.strides_bytes or layout.contiguous_strides(view.shape, view.dtype.itemsize)
    missing = len(source.shape) - len(view.shape)
    sizes = (1,) * missing + view.shape
    if missing < 0 or any(size not in (1, length) for size, length in zip(sizes, source.shape, strict=True)):
        raise ValueError(f"shape {view.shape} cannot be broadcast to {source.shape}")
    spread = tuple(
        0 if size == 1 else stride for size, stride in zip(sizes, (0,) * missing + tuple(strides), strict=True)
    )
    return replace(view, shape=source.shape, strides_bytes=spread)


def _check_second(made: Plan, other: ArrayView | None) -> None:
    if (made.second_dtype is None) != (other is None):
        raise TypeError(f"{made.op} takes {'one array' if other is not None else 'a second array'}")
    if other is not None and other.dtype != made.second_dtype:
        what = "a mask" if made.second_dtype == np.dtype(bool) else "the second array"
        raise TypeError(f"{what} of {made.op} is of {made.second_dtype}, not of {other.dtype}")
