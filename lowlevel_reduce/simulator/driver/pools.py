"""Memory pools: functions that create, query and trim them; reserved memory is only counted, not set aside."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.driver.records import Pool
from lowlevel_reduce.simulator.driver.state import State, refuse

__all__ = ["Pools"]

_ATTRIBUTE = "CU_MEMPOOL_ATTR_"
_FIELDS = {
    "REUSE_FOLLOW_EVENT_DEPENDENCIES": "follow_events",
    "REUSE_ALLOW_OPPORTUNISTIC": "opportunistic",
    "REUSE_ALLOW_INTERNAL_DEPENDENCIES": "internal_dependencies",
    "RELEASE_THRESHOLD": "threshold",
    "RESERVED_MEM_CURRENT": "reserved",
    "RESERVED_MEM_HIGH": "reserved_high",
    "USED_MEM_CURRENT": "used",
    "USED_MEM_HIGH": "used_high",
}
_HIGH = {"RESERVED_MEM_HIGH": "reserved", "USED_MEM_HIGH": "used"}  # can only be set to zero, which resets them


class Pools:
    """Functions of memory pools."""

    def __init__(self, state: State) -> None:
        self._state = state

    def cuMemPoolCreate(self, properties: Any) -> Any:
        location = properties.location
        if (
            properties.allocType != cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            or location.type != cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        ):
            refuse("INVALID_VALUE")
        ordinal = self._state.check_device(location.id)
        if properties.handleTypes != cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE:
            refuse("NOT_SUPPORTED")
        pool = Pool(self._state.new_handle(), ordinal, max_size=int(properties.maxSize))
        self._state.keep(pool, pool.handle)
        return cu.CUmemoryPool(pool.handle)

    def cuMemPoolDestroy(self, pool: Any) -> None:
        record = self._pool(pool)
        if record.default:
            refuse("INVALID_VALUE")
        self._state.turn.soon(lambda: self._end(record))

    def _end(self, record: Pool) -> None:
        if self._state.current_pools[record.ordinal] is record:
            self._state.current_pools[record.ordinal] = self._state.default_pools[record.ordinal]
        self._state.drop(record.handle)  # its memory lives on until it is freed

    def cuMemPoolGetAttribute(self, pool: Any, attribute: Any) -> Any:
        field = _FIELDS.get(attribute.name.removeprefix(_ATTRIBUTE)) or refuse("NOT_SUPPORTED")
        return cu.cuuint64_t(getattr(self._pool(pool), field))

    def cuMemPoolSetAttribute(self, pool: Any, attribute: Any, value: Any) -> None:
        record, name, number = self._pool(pool), attribute.name.removeprefix(_ATTRIBUTE), int(value)
        if name in _HIGH:
            if number:
                refuse("INVALID_VALUE")
            setattr(record, _FIELDS[name], getattr(record, _HIGH[name]))
        elif name == "RELEASE_THRESHOLD" or name.startswith("REUSE_"):
            setattr(record, _FIELDS[name], number)
        else:
            refuse("INVALID_VALUE")

    def cuMemPoolTrimTo(self, pool: Any, keep_bytes: int) -> None:
        self._pool(pool).give_back(keep_bytes)

    def cuDeviceGetDefaultMemPool(self, device: Any) -> Any:
        return cu.CUmemoryPool(self._state.default_pools[self._state.check_device(device)].handle)

    def cuDeviceGetMemPool(self, device: Any) -> Any:
        return cu.CUmemoryPool(self._state.current_pools[self._state.check_device(device)].handle)

    def cuDeviceSetMemPool(self, device: Any, pool: Any) -> None:
        ordinal, record = self._state.check_device(device), self._pool(pool)
        if record.ordinal != ordinal:
            refuse("INVALID_VALUE")
        self._state.current_pools[ordinal] = record

    def _pool(self, pool: Any) -> Pool:
        return self._state.get(Pool, pool, "INVALID_VALUE")
