"""Contexts: primary ones and created ones, and each thread's stack of them."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.devices import SimulatedDevice
from lowlevel_reduce.simulator.driver.captures import check_unsafe, invalidate
from lowlevel_reduce.simulator.driver.records import Context, Stream
from lowlevel_reduce.simulator.driver.state import State, number, refuse
from lowlevel_reduce.simulator.driver.streams import finish

__all__ = ["Contexts", "release_primary", "resource_of", "retain_primary"]

_KNOWN_FLAGS = 0xFF


class Contexts:
    """Functions of contexts."""

    def __init__(self, state: State) -> None:
        self._state = state

    def cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        return cu.CUcontext(retain_primary(self._state, self._state.check_device(device)).handle)

    def cuDevicePrimaryCtxRelease(self, device: Any) -> None:
        ordinal = self._state.check_device(device)
        if self._state.primary(ordinal) is None:
            refuse("INVALID_CONTEXT")
        self._state.turn.soon(lambda: release_primary(self._state, ordinal))

    def cuDevicePrimaryCtxGetState(self, device: Any) -> tuple[int, int]:
        return 0, int(self._state.primary(self._state.check_device(device)) is not None)

    def cuCtxCreate(self, *arguments: Any) -> Any:
        *parameters, flags, device = arguments  # bindings 13 put creation parameters first
        ordinal = self._state.check_device(device)
        if any(parameter is not None for parameter in parameters):
            refuse("NOT_SUPPORTED")
        if int(flags) & ~_KNOWN_FLAGS:
            refuse("INVALID_VALUE")
        context = Context(self._state.new_handle(), self._state.new_id(), int(flags), ordinal)
        self._state.keep(context, context.handle)
        self._state.stack.append(context.handle)
        return cu.CUcontext(context.handle)

    def cuCtxDestroy(self, context: Any) -> None:
        record = self._state.context(context)
        if record.handle in self._state.primary_handles or record.green:
            refuse("INVALID_CONTEXT")  # a primary context is released, a green one destroyed as such
        stack = self._state.stack
        if stack and stack[-1] == record.handle:  # it stays on other threads' stacks, where its use is refused
            stack.pop()
        self._state.turn.soon(lambda: self._state.end_context(record))

    def cuCtxGetCurrent(self) -> Any:
        stack = self._state.stack
        return cu.CUcontext(stack[-1] if stack else 0)

    def cuCtxSetCurrent(self, context: Any) -> None:
        stack = self._state.stack
        if not number(context):
            del stack[-1:]
            return
        record = self._state.context(context)
        stack[-1:] = [record.handle]

    def cuCtxPushCurrent(self, context: Any) -> None:
        self._state.stack.append(self._state.context(context).handle)

    def cuCtxPopCurrent(self) -> Any:
        stack = self._state.stack
        return cu.CUcontext(stack.pop()) if stack else refuse("INVALID_CONTEXT")

    def cuCtxGetDevice(self) -> Any:
        return cu.CUdevice(self._state.current().ordinal)

    def cuCtxGetFlags(self) -> int:
        return self._state.current().flags

    def cuCtxGetId(self, context: Any) -> int:
        return (self._state.context(context) if number(context) else self._state.current()).id

    def cuCtxGetDevResource(self, context: Any, kind: Any) -> Any:
        record = self._state.context(context) if number(context) else self._state.current()
        return resource_of(self._state.device_of(record), kind)

    def cuCtxSynchronize(self) -> None:
        context = self._state.current()
        under_way = [capture for capture in self._state.captures if capture.origin.context is context]
        if under_way:  # in any mode and thread: nothing can wait for a stream that is being captured
            invalidate(under_way)
            refuse("STREAM_CAPTURE_UNSUPPORTED")
        check_unsafe(self._state)
        streams = [record for record in self._state.records.values() if isinstance(record, Stream)]
        for stream in (*context.defaults.values(), *streams):
            if stream.context is context:
                finish(stream)
        self._state.done()

    def cuProfilerStart(self) -> None:
        self._state.current()  # no profiler looks at the simulator

    def cuProfilerStop(self) -> None:
        self._state.current()

    def cuCtxGetStreamPriorityRange(self) -> tuple[int, int]:
        self._state.current()
        return 0, -5


def retain_primary(state: State, ordinal: int) -> Context:
    """Count one more owner of a device's primary context, which is created for the first owner."""
    primary = state.primary(ordinal)
    if primary is None:
        handle = state.primary_handles[ordinal]
        primary = state.records.setdefault(handle, Context(handle, state.new_id(), ordinal=ordinal, owners=[]))
    primary.owners.append(None)
    return primary


def release_primary(state: State, ordinal: int) -> None:
    """Count one owner less; the primary context ends with the last owner."""
    primary = state.primary(ordinal) or refuse("INVALID_CONTEXT")
    if len(primary.owners) > 1:
        primary.owners.pop()
    else:
        state.end_context(primary)


def resource_of(device: SimulatedDevice, kind: Any) -> Any:
    """Return the multiprocessors of a device, or of a share of it, as a resource of the driver's."""
    if kind != cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM:
        refuse("INVALID_RESOURCE_TYPE")
    resource = cu.CUdevResource()
    resource.type = kind
    resource.sm.smCount = device.multiprocessors
    return resource
