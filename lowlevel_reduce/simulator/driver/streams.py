"""Streams and events; work runs as soon as it is put into a stream, so nothing is ever pending.

What a stream's last kernel did is remembered until the host waits for it, or other work follows: a launch that may
overlap with it must not touch that before it has waited.
"""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.driver.captures import capturing, check_unsafe, invalidate, stream_of, waiting_for
from lowlevel_reduce.simulator.driver.records import Context, Event, Stream
from lowlevel_reduce.simulator.driver.state import State, refuse

__all__ = ["Events", "Streams", "finish", "mark", "new_stream"]

_NON_BLOCKING = 1
_LEAST, _GREATEST = 0, -5
_POLICY = 3  # CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
_POLICIES = range(1, 5)
_DISABLE_TIMING = 2
_EVENT_FLAGS = 7


class Streams:
    """Functions of streams."""

    def __init__(self, state: State) -> None:
        self._state = state

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> Any:
        return new_stream(self._state, self._state.current(), flags, priority)

    def cuStreamCreate(self, flags: int) -> Any:
        return self.cuStreamCreateWithPriority(flags, 0)

    def cuStreamDestroy(self, stream: Any) -> None:
        record = self._state.get(Stream, stream)
        self._state.turn.soon(lambda: self._end(record))

    def _end(self, record: Stream) -> None:
        if record.capture is not None:
            capture = record.capture
            invalidate([capture])
            if capture.origin is record:
                self._state.end_capture(capture)
            else:
                capture.fronts.pop(record, None)
        self._state.drop(record.handle)

    def cuStreamGetCtx(self, stream: Any) -> Any:
        return cu.CUcontext(stream_of(self._state, stream).context.handle)

    def cuStreamGetId(self, stream: Any) -> int:
        record = stream_of(self._state, stream)
        return record.id if record.capture is None else refuse("STREAM_CAPTURE_UNSUPPORTED")

    def cuStreamGetPriority(self, stream: Any) -> int:
        return stream_of(self._state, stream).priority

    def cuStreamGetFlags(self, stream: Any) -> int:
        return int(stream_of(self._state, stream).non_blocking)

    def cuStreamGetAttribute(self, stream: Any, attribute: Any) -> Any:
        record = self._with_policy(stream, attribute)
        value = cu.CUstreamAttrValue()
        _policy_of(value).value = record.policy
        return value

    def cuStreamSetAttribute(self, stream: Any, attribute: Any, value: Any) -> None:
        record = self._with_policy(stream, attribute)
        policy = _policy_of(value).value
        if policy not in _POLICIES:
            refuse("INVALID_VALUE")
        record.policy = policy

    def cuStreamIsCapturing(self, stream: Any) -> Any:
        status, _ = self._capture_of(stream)
        return status

    def cuStreamGetCaptureInfo(self, stream: Any) -> tuple[Any, int, Any, Any, int]:
        status, number = self._capture_of(stream)
        return status, number, cu.CUgraph(0), None, 0  # its graph and its last nodes are not shown before it has ended

    def _capture_of(self, stream: Any) -> tuple[Any, int]:
        record = stream_of(self._state, stream)
        if waiting_for(self._state, record):
            refuse("STREAM_CAPTURE_IMPLICIT")
        capture = record.capture
        status = 0 if capture is None else 2 if capture.invalid else 1
        return cu.CUstreamCaptureStatus(status), 0 if capture is None else capture.number

    def cuStreamSynchronize(self, stream: Any) -> None:
        self._wait(stream)

    def cuStreamQuery(self, stream: Any) -> None:
        self._wait(stream)

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        if flags & ~1:
            refuse("INVALID_VALUE")
        waiting, record = stream_of(self._state, stream), self._state.get(Event, event)
        capture, other = capturing(self._state, waiting), record.capture
        if other is None or other not in self._state.captures:
            return  # the recorded work has run; a capture's wait for work outside of it becomes no node
        if other.invalid:
            refuse("STREAM_CAPTURE_INVALIDATED")
        if capture is not None and capture is not other:
            invalidate([capture, other])
            refuse("STREAM_CAPTURE_MERGE")
        other.fronts[waiting] = other.fronts.get(waiting, frozenset()) | record.behind
        waiting.capture = other  # last: a stream in a capture has a front there

    def _with_policy(self, stream: Any, attribute: Any) -> Stream:
        record = stream_of(self._state, stream)
        if int(attribute) != _POLICY:
            refuse("NOT_SUPPORTED")
        return record

    def _wait(self, stream: Any) -> None:
        capture = capturing(self._state, stream_of(self._state, stream))
        if capture is not None:
            invalidate([capture])
            refuse("STREAM_CAPTURE_UNSUPPORTED")
        check_unsafe(self._state)
        finish(stream_of(self._state, stream))
        self._state.done()


class Events:
    """Functions of events. There is no clock: it is known whether an event was recorded, but not how long work took."""

    def __init__(self, state: State) -> None:
        self._state = state

    def cuEventCreate(self, flags: int) -> Any:
        context = self._state.current()
        if flags & ~_EVENT_FLAGS:
            refuse("INVALID_VALUE")
        handle = self._state.new_handle()
        self._state.keep(Event(handle, context, timing=not flags & _DISABLE_TIMING), handle)
        return cu.CUevent(handle)

    def cuEventDestroy(self, event: Any) -> None:
        record = self._state.get(Event, event)
        self._state.turn.soon(lambda: self._state.drop(record.handle))

    def cuEventRecord(self, event: Any, stream: Any) -> None:
        record, source = self._state.get(Event, event), stream_of(self._state, stream)
        if record.context is not source.context:
            refuse("INVALID_HANDLE")
        mark(self._state, record, source)

    def cuEventSynchronize(self, event: Any) -> None:
        self._check_done(event)
        check_unsafe(self._state)
        finish(self._state.get(Event, event))

    def cuEventQuery(self, event: Any) -> None:
        check_unsafe(self._state)
        self._check_done(event)
        finish(self._state.get(Event, event))

    def cuEventElapsedTime(self, start: Any, end: Any) -> float:
        for event in (start, end):
            record = self._state.get(Event, event)
            if not (record.timing and record.recorded):
                refuse("INVALID_HANDLE")
        return refuse("NOT_SUPPORTED")

    def _check_done(self, event: Any) -> None:
        record = self._state.get(Event, event)
        if record.capture is not None:
            invalidate([record.capture])
            refuse("CAPTURED_EVENT")


def _policy_of(value: Any) -> ctypes.c_int:
    """Return the raw value: the attribute in the bindings accepts and returns only values of its enumeration."""
    return ctypes.c_int.from_address(int(value.getPtr()))


def new_stream(state: State, context: Context, flags: int, priority: int) -> Any:
    """Make a stream of a context and return its handle; a priority out of range is clamped."""
    if flags & ~_NON_BLOCKING:
        refuse("INVALID_VALUE")
    clamped = min(max(priority, _GREATEST), _LEAST)
    handle = state.new_handle()
    state.keep(Stream(handle, state.new_id(), context, bool(flags & _NON_BLOCKING), clamped), handle)
    return cu.CUstream(handle)


def finish(source: Stream | Event) -> None:
    """Note that the host knows that all work of a stream, or all before an event, has ended."""
    if source.trace is not None:
        source.trace.finish()
        source.trace = None


def mark(state: State, event: Event, stream: Stream) -> None:
    """Record an event after all work that `stream` has so far."""
    capture = capturing(state, stream)
    event.behind = frozenset() if capture is None else capture.fronts[stream]
    event.trace = stream.trace if capture is None else None
    event.recorded = capture is None
    event.capture = capture
