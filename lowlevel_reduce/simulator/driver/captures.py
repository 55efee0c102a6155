"""Work and captures: work put into a stream runs at once or becomes a graph node; unsafe calls are refused."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.driver.records import Capture, Node, Stream
from lowlevel_reduce.simulator.driver.state import State, number, refuse

__all__ = ["capturing", "check_unsafe", "invalidate", "stream_of", "submit", "waiting_for"]

_LEGACY, _PER_THREAD = 1, 2
_DETACHED = "CUDA_ERROR_STREAM_DETACHED"  # came with bindings 13
_GLOBAL, _RELAXED = 0, 2


def stream_of(state: State, handle: Any) -> Stream:
    """Return the stream that a handle means; the special handles 0, 1 and 2 mean streams of the current context."""
    value = number(handle)
    if value > _PER_THREAD:
        stream = state.get(Stream, value)
        if stream.detached:
            refuse("STREAM_DETACHED" if hasattr(cu.CUresult, _DETACHED) else "INVALID_HANDLE")
        return stream
    context = state.current()
    kind = value or _LEGACY
    key = (kind, threading.get_ident() if kind == _PER_THREAD else 0)
    if key not in context.defaults:
        context.defaults[key] = Stream(kind, state.new_id(), context, non_blocking=False)
    return context.defaults[key]


def waiting_for(state: State, stream: Stream) -> list[Capture]:
    """Return the current captures for which work put into `stream` would have to wait, which is impossible.

    The legacy stream waits for all blocking streams of its context.
    """
    if stream.handle != _LEGACY:
        return []
    return [
        capture
        for capture in state.captures
        if any(other.context is stream.context and not other.non_blocking for other in capture.fronts)
    ]


def capturing(state: State, stream: Stream) -> Capture | None:
    """Return the capture that work put into `stream` becomes part of, if any; refuse if no work may be put there."""
    under_way = waiting_for(state, stream)
    if under_way:
        invalidate(under_way)
        refuse("STREAM_CAPTURE_IMPLICIT")
    if stream.capture is not None and stream.capture.invalid:
        refuse("STREAM_CAPTURE_INVALIDATED")
    return stream.capture


def submit(state: State, stream: Stream, work: Node) -> None:
    """Run work now, or make it a node of the graph if `stream` is being captured."""
    capture = capturing(state, stream)
    if capture is None:
        before = [stream.trace] if work.programmatic and stream.trace is not None else []
        stream.trace = None
        stream.trace = work.run_after(before)
    else:
        capture.add(stream, work)


def check_unsafe(state: State) -> None:
    """Refuse a call that a replay would not repeat (an allocation, a wait of the host) while a capture forbids it."""
    mode, thread = state.capture_mode, threading.get_ident()
    if mode == _RELAXED:
        return
    forbidding = [
        capture
        for capture in state.captures
        if capture.mode != _RELAXED and (capture.thread == thread or (mode == _GLOBAL and capture.mode == _GLOBAL))
    ]
    if forbidding:
        invalidate(forbidding)
        refuse("STREAM_CAPTURE_UNSUPPORTED")


def invalidate(captures: Iterable[Capture]) -> None:
    """Invalidate captures: the only thing left to do is to end them."""
    for capture in captures:
        capture.invalid = True
