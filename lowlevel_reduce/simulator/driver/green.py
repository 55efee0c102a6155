"""Green contexts: the device's multiprocessors are split into shares, and a green context gets such a share."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

import dataclasses
from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.devices import SimulatedDevice
from lowlevel_reduce.simulator.driver.captures import stream_of
from lowlevel_reduce.simulator.driver.contexts import release_primary, resource_of, retain_primary
from lowlevel_reduce.simulator.driver.records import Context, GreenContext, ResourceDescription, Stream
from lowlevel_reduce.simulator.driver.state import State, refuse
from lowlevel_reduce.simulator.driver.streams import new_stream

__all__ = ["GreenContexts"]

_SM = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
_NON_BLOCKING = 1
_DEFAULT_STREAM = 1
_SPLIT_FLAGS = 3
_UNITS = {7: (2, 2), 8: (4, 2)}  # the smallest group and the step of its size, by architecture; newer ones: 8 and 8


class GreenContexts:
    """Functions of green contexts."""

    def __init__(self, state: State) -> None:
        self._state = state

    def cuDeviceGetDevResource(self, device: Any, kind: Any) -> Any:
        self._state.check_device(device)
        return resource_of(self._state.device, kind)

    def cuGreenCtxGetDevResource(self, green: Any, kind: Any) -> Any:
        return resource_of(self._state.device_of(self._green(green).context), kind)

    def cuDevSmResourceSplitByCount(
        self, groups: int, resource: Any, flags: int, least: int
    ) -> tuple[list[Any], int, Any]:
        total = _multiprocessors(resource)
        if flags & ~_SPLIT_FLAGS:
            refuse("INVALID_VALUE")
        smallest, step = _UNITS.get(self._state.device.compute_capability[0], (8, 8))
        each = max(smallest, -(-least // step) * step)
        made = total // each
        if not made:
            refuse("INVALID_RESOURCE_CONFIGURATION")
        count = min(groups, made) if groups else made
        rest = total - count * each
        return [_resource(each) for _ in range(min(groups, made))], count, _resource(rest)

    def cuDevResourceGenerateDesc(self, resources: Any, count: int) -> Any:
        if not 1 <= count <= len(resources):
            refuse("INVALID_VALUE")
        total = sum(_multiprocessors(resource) for resource in resources[:count])
        if not 1 <= total <= self._state.device.multiprocessors:
            refuse("INVALID_RESOURCE_CONFIGURATION")
        handle = self._state.new_handle()
        self._state.keep(ResourceDescription(total), handle)
        return cu.CUdevResourceDesc(handle)

    def cuGreenCtxCreate(self, description: Any, device: Any, flags: int) -> Any:
        state = self._state
        ordinal = state.check_device(device)
        total = state.get(ResourceDescription, description, "INVALID_VALUE").multiprocessors
        if flags != _DEFAULT_STREAM:
            refuse("INVALID_VALUE")
        retain_primary(state, ordinal)
        handle, green = state.new_handle(), state.new_handle()
        context = Context(handle, state.new_id(), ordinal=ordinal, device=_share(state.device, total), green=green)
        state.keep(context, handle)
        state.keep(GreenContext(green, context), green)
        return cu.CUgreenCtx(green)

    def cuGreenCtxDestroy(self, green: Any) -> None:
        record = self._green(green)
        self._state.turn.soon(lambda: self._end(record))

    def _end(self, record: GreenContext) -> None:
        if self._state.records.get(record.handle) is not record:
            return
        for stream in list(self._state.records.values()):
            if isinstance(stream, Stream) and stream.context is record.context:
                stream.detached = True
        self._state.end_context(record.context)
        self._state.drop(record.handle)
        release_primary(self._state, record.context.ordinal)

    def cuCtxFromGreenCtx(self, green: Any) -> Any:
        return cu.CUcontext(self._green(green).context.handle)

    def cuGreenCtxStreamCreate(self, green: Any, flags: int, priority: int) -> Any:
        context = self._green(green).context
        if flags != _NON_BLOCKING:
            refuse("INVALID_VALUE")
        return new_stream(self._state, context, flags, priority)

    def cuStreamGetGreenCtx(self, stream: Any) -> Any:
        return cu.CUgreenCtx(stream_of(self._state, stream).context.green)

    def _green(self, green: Any) -> GreenContext:
        return self._state.get(GreenContext, green, "INVALID_VALUE")


def _multiprocessors(resource: Any) -> int:
    if resource.type != _SM:
        refuse("INVALID_RESOURCE_TYPE")
    return int(resource.sm.smCount)


def _resource(multiprocessors: int) -> Any:
    resource = cu.CUdevResource()
    resource.type = _SM if multiprocessors else cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_INVALID
    resource.sm.smCount = multiprocessors
    return resource


def _share(device: SimulatedDevice, multiprocessors: int) -> SimulatedDevice:
    """Return the device with fewer multiprocessors, assuming that they fill one processing cluster after another."""
    left, parts = multiprocessors, []
    for there in device.gpc_multiprocessors:
        parts.append(min(there, left))
        left -= parts[-1]
    return dataclasses.replace(device, multiprocessors=multiprocessors, gpc_multiprocessors=tuple(filter(None, parts)))
