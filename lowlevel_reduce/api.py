"""The one-shot functions: an array in, a `DeviceArray` out, the plan looked up or made."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any

from lowlevel_reduce import layout
from lowlevel_reduce.bound import BoundReduction
from lowlevel_reduce.driver import Context, Stream, binding
from lowlevel_reduce.dtypes import element_type, numpy_dtype
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.interop import DeviceArray, view_array, view_output
from lowlevel_reduce.plan import plan

__all__ = ["reduce", "sum"]

MAX_BOUND = 128
"""Bound launches that the one-shot functions keep, with their workspaces; the least recently used goes first."""

_Key = tuple[Any, ...]


class _Cache:
    """Bound launches by problem, context and stream. The driver numbers contexts and streams, and reuses no number.

    A bound launch is for one thread at a time, so one that is in use is not here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: OrderedDict[_Key, list[BoundReduction]] = OrderedDict()

    def take(self, key: _Key) -> BoundReduction | None:
        """Return a bound launch that nobody else has until `give`, or None."""
        with self._lock:
            idle = self._idle.get(key)
            return idle.pop() if idle else None

    def give(self, key: _Key, bound: BoundReduction) -> None:
        """Keep a bound launch for a later call."""
        with self._lock:
            self._idle.setdefault(key, []).append(bound)
            self._idle.move_to_end(key)
            dropped = self._idle.popitem(last=False) if len(self._idle) > MAX_BOUND else (key, [])
        for old in dropped[1]:
            _discard(old, dropped[0])


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


_cache = _Cache()


def reduce(
    x: Any,
    op: str = "sum",
    *,
    dtype: Any = None,
    accumulate: str | None = None,
    out: Any = None,
    stream: Any = None,
    strategy: str | None = None,
) -> Any:
    """Reduce all elements of an array, in C order, by the one tree.

    Parameters
    ----------
    x : array
        A `DeviceArray`, anything with ``__dlpack__`` or ``__cuda_array_interface__`` on the device, or a NumPy array,
        which is copied there. Contiguous in C order, of any shape and byte alignment.
    op : str
        Name of the operator.
    dtype : dtype, optional
        Type of the result; by default the input's for floats, int64 for bool and signed, uint64 for unsigned integers.
    accumulate : str, optional
        The accumulator, as for `lowlevel_reduce.tree.reduce`.
    out : array, optional
        Where to write the result: a device array of one element of the result's type.
    stream : Stream or object with ``__cuda_stream__``, optional
        Where to run; its context is used. By default the legacy default stream of the current context, or, if none is
        current, of the primary context of device 0.
    strategy : str, optional
        As for `lowlevel_reduce.plan`; all give the same bits.

    Returns
    -------
    DeviceArray or object
        The result, 0-d, in the order of the stream; `out` if that was given. The host does not wait.

    Raises
    ------
    TypeError, ValueError
        If an argument is no array, of the wrong size or type, on the host, or of another device or context.
    UnsupportedError
        If the type cannot be reduced so, the array is not contiguous, or the device lacks what the strategy needs.
    NoDriverError, NoCompilerError, CompileError, CacheError, CudaError
        From below. Whatever was current before the call is current after it.
    """
    if stream is None:
        stream = Stream.legacy(Context.current_or_primary())
    stream = Stream.of(stream)
    context = stream.context
    with context.pushed():
        source = view_array(x, stream)
        element = element_type(source.dtype)
        layout.whole_array(source.shape, element.itemsize, source.strides_bytes)
        result_dtype = numpy_dtype(element.result_type(dtype, accumulate))
        result = DeviceArray.empty((), result_dtype, stream) if out is None else out
        target = view_output(result, result_dtype, stream)
        strategy = strategy or os.environ.get("LOWLEVEL_REDUCE_STRATEGY") or None
        key = (
            binding.selected(),
            context.id,
            stream.id,
            op,
            source.shape,
            source.dtype,
            accumulate,
            result_dtype,
            strategy,
        )
        bound = _cache.take(key)
        if bound is None:
            bound = plan(
                op,
                shape=source.shape,
                dtype=source.dtype,
                accumulate=accumulate,
                result_dtype=result_dtype,
                context=context,
                strategy=strategy,
            ).bind(stream)
        try:
            bound.check(source.pointer, target.pointer)
            bound(source.pointer, target.pointer)
        finally:
            _cache.give(key, bound)
    return result


def sum(
    x: Any,
    *,
    dtype: Any = None,
    accumulate: str | None = None,
    out: Any = None,
    stream: Any = None,
    strategy: str | None = None,
) -> Any:
    """Sum all elements of an array by the one tree: `reduce` with ``op="sum"``, whose parameters these are."""
    return reduce(x, "sum", dtype=dtype, accumulate=accumulate, out=out, stream=stream, strategy=strategy)
