"""Memory: device memory at simulated addresses, pinned memory at real ones, and copies between all of them."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.driver.captures import capturing, check_unsafe, invalidate, stream_of, submit
from lowlevel_reduce.simulator.driver.records import Context, MemoryRecord, Node, Pool, Stream
from lowlevel_reduce.simulator.driver.state import State, number, refuse

__all__ = ["Memories"]

_PAGE = 4096
_MOST_PINNED = 1 << 46  # no host has more
_GAP = 1 << 26  # an address this close to device memory is taken for a stray device address, not for a host address
_HOST, _DEVICE = 1, 2  # CUmemorytype
_HOST_FLAGS = 7


class Memories:
    """Functions of memory. Kernels can access only device memory; pinned memory is for copies."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lowest, self._end = 0, 0  # the range of all device memory that was ever allocated

    # allocating and freeing

    def cuMemAlloc(self, size_bytes: int) -> Any:
        context = self._state.current()
        check_unsafe(self._state)
        return self._allocate(size_bytes, "device", context)

    def cuMemAllocAsync(self, size_bytes: int, stream: Any) -> Any:
        where = stream_of(self._state, stream)
        return self._allocate_in_order(size_bytes, where, self._state.current_pools[where.context.ordinal])

    def cuMemAllocFromPoolAsync(self, size_bytes: int, pool: Any, stream: Any) -> Any:
        record = self._state.get(Pool, pool, "INVALID_VALUE")
        return self._allocate_in_order(size_bytes, stream_of(self._state, stream), record)

    def cuMemHostAlloc(self, size_bytes: int, flags: int) -> int:
        context = self._state.current()
        check_unsafe(self._state)
        if size_bytes <= 0 or flags & ~_HOST_FLAGS:
            refuse("INVALID_VALUE")
        if size_bytes > _MOST_PINNED:
            refuse("OUT_OF_MEMORY")
        storage = (ctypes.c_uint8 * (size_bytes + _PAGE))()
        pointer = -(-ctypes.addressof(storage) // _PAGE) * _PAGE
        self._state.allocations[pointer] = MemoryRecord(
            pointer, size_bytes, "pinned", context, context.ordinal, storage
        )
        return pointer

    def cuMemHostRegister(self, pointer: Any, size_bytes: int, flags: int) -> None:
        context = self._state.current()
        check_unsafe(self._state)
        begin = number(pointer)
        if size_bytes <= 0 or not begin or flags & ~_HOST_FLAGS:
            refuse("INVALID_VALUE")
        if any(begin < each.pointer + each.size_bytes and each.pointer < begin + size_bytes for each in self._all()):
            refuse("HOST_MEMORY_ALREADY_REGISTERED")
        record = MemoryRecord(begin, size_bytes, "pinned", context, context.ordinal)  # without storage: the caller's
        self._state.allocations[begin] = record

    def cuMemHostUnregister(self, pointer: Any) -> None:
        self._state.current()
        check_unsafe(self._state)
        record = self._state.allocations.get(number(pointer))
        if record is None or record.kind != "pinned" or record.storage is not None:
            refuse("HOST_MEMORY_NOT_REGISTERED")
        self._state.turn.soon(lambda: self._state.release(record))

    def cuMemFree(self, pointer: Any) -> None:
        self._state.current()
        if number(pointer):
            check_unsafe(self._state)
            record = self._owned(pointer, "device", "pool", "graph")
            self._state.turn.soon(lambda: self._state.release(record))

    def cuMemFreeHost(self, pointer: Any) -> None:
        self._state.current()
        check_unsafe(self._state)
        record = self._owned(pointer, "pinned")
        if record.storage is None:  # registered
            refuse("INVALID_VALUE")
        self._state.turn.soon(lambda: self._state.release(record))

    def cuMemFreeAsync(self, pointer: Any, stream: Any) -> None:
        where = stream_of(self._state, stream)
        capture = capturing(self._state, where)
        if capture is None:
            owned = self._owned(pointer, "pool", "graph")
            self._state.turn.soon(lambda: self._state.release(owned))
            return
        record = self._state.reserved.get(number(pointer))
        if record is None:  # a graph can free only what a graph allocates
            invalidate([capture])
            refuse("INVALID_VALUE")
        node = Node("free", lambda: self._state.release(self._owned(record.pointer, "graph")))
        self._state.turn.soon(lambda: capture.add(where, node))

    # copying and filling

    def cuMemcpyAsync(self, destination: Any, source: Any, size_bytes: int, stream: Any) -> None:
        records = [self._holding(number(pointer)) for pointer in (destination, source)]
        of_devices = {record.ordinal for record in records if record is not None and record.kind != "pinned"}
        # Another device can access a pool's memory only if it was given access, which this driver cannot do.
        if size_bytes and len(of_devices) > 1 and any(record.pool for record in records if record is not None):
            refuse("INVALID_VALUE")
        self._submit_copy(number(destination), number(source), size_bytes, stream)

    def cuMemcpyPeerAsync(self, destination: Any, to: Any, source: Any, of: Any, size_bytes: int, stream: Any) -> None:
        for pointer, context in ((destination, to), (source, of)):
            record = self._holding(number(pointer))
            if size_bytes and (record is None or record.ordinal != self._state.context(context).ordinal):
                refuse("INVALID_VALUE")
        self._submit_copy(number(destination), number(source), size_bytes, stream)

    def cuMemcpyDtoHAsync(self, destination: Any, source: Any, size_bytes: int, stream: Any) -> None:
        self.cuMemcpyAsync(destination, source, size_bytes, stream)

    def cuMemsetD8Async(self, pointer: Any, byte: int, size_bytes: int, stream: Any) -> None:
        where, target = stream_of(self._state, stream), number(pointer)
        if not size_bytes:
            return
        self._check_fill(target, size_bytes, later=True)
        submit(self._state, where, Node("memset", lambda: self._fill(target, byte & 0xFF, size_bytes)))

    # queries

    def cuPointerGetAttribute(self, attribute: Any, pointer: Any) -> Any:
        if self._known(number(pointer)) is None:  # cuPointerGetAttributes returns zeros instead
            refuse("INVALID_VALUE")
        return self.cuPointerGetAttributes(1, [attribute], pointer)[0]

    def cuPointerGetAttributes(self, count: int, attributes: Any, pointer: Any) -> list[Any]:
        if count != len(attributes):
            refuse("INVALID_VALUE")
        record = self._known(number(pointer))
        facts = _facts(record, number(pointer))
        names = [attribute.name.removeprefix("CU_POINTER_ATTRIBUTE_") for attribute in attributes]
        if any(name not in facts for name in names):
            refuse("NOT_SUPPORTED")
        return [facts[name] for name in names]

    # implementation

    def _allocate(self, size_bytes: int, kind: str, context: Context | None, pool: Pool | None = None) -> Any:
        state = self._state
        ordinal = pool.ordinal if pool is not None else context.ordinal if context is not None else 0
        if context is not None and context.green:
            context = state.primary(ordinal)  # a green context shares its memory
        if size_bytes <= 0:
            refuse("INVALID_VALUE")
        if state.allocated_bytes(ordinal) + size_bytes > state.device.memory_bytes:
            refuse("OUT_OF_MEMORY")
        if pool is not None and not pool.has_room(size_bytes, state.used_bytes(pool)):
            refuse("OUT_OF_MEMORY")
        pointer = state.memory.allocate(size_bytes, alignment=256)
        self._widen(pointer, size_bytes)
        state.allocations[pointer] = MemoryRecord(pointer, size_bytes, kind, context, ordinal, pool=pool)
        if pool is not None:
            pool.count(state.used_bytes(pool))
        return cu.CUdeviceptr(pointer)

    def _widen(self, pointer: int, size_bytes: int) -> None:
        self._lowest = min(self._lowest or pointer, pointer)
        self._end = max(self._end, pointer + size_bytes)

    def _allocate_in_order(self, size_bytes: int, stream: Stream, pool: Pool) -> Any:
        capture = capturing(self._state, stream)
        if capture is None:
            return self._allocate(size_bytes, "pool", None, pool)
        if size_bytes <= 0:
            refuse("INVALID_VALUE")
        if size_bytes > self._state.device.memory_bytes:
            refuse("OUT_OF_MEMORY")
        # The address belongs to the graph from now on; there is memory at it only while the graph runs.
        record = MemoryRecord(0, size_bytes, "graph", None, stream.context.ordinal)
        record.pointer = pointer = self._state.memory.reserve(size_bytes, record, alignment=256)
        self._state.reserved[pointer] = record
        capture.add(stream, Node("allocation", lambda: self._revive(record)))
        return cu.CUdeviceptr(pointer)

    def _revive(self, record: MemoryRecord) -> None:
        if record.pointer in self._state.allocations:  # the graph is launched again before the memory was freed
            refuse("INVALID_VALUE")
        if self._state.allocated_bytes(record.ordinal) + record.size_bytes > self._state.device.memory_bytes:
            refuse("OUT_OF_MEMORY")
        found = self._state.memory.find(record.pointer)
        if found is None or found.freed:  # else an interrupt came between the two lines
            self._state.memory.revive(record.pointer)
        self._state.allocations[record.pointer] = record

    def _owned(self, pointer: Any, *kinds: str) -> MemoryRecord:
        record = self._state.allocations.get(number(pointer))
        return record if record is not None and record.kind in kinds else refuse("INVALID_VALUE")

    def _known(self, address: int) -> MemoryRecord | None:
        """Return what holds an address; of memory of a graph the driver tells nothing before the graph runs."""
        record = self._holding(address)
        return record if record is not None and record.pointer in self._state.allocations else None

    def _all(self) -> tuple[MemoryRecord, ...]:
        return *self._state.allocations.values(), *self._state.reserved.values()

    def _holding(self, address: int) -> MemoryRecord | None:
        for record in self._all():
            if record.pointer <= address < record.pointer + record.size_bytes:
                return record
        return None

    def _on_device(self, address: int, size_bytes: int, *, later: bool = False) -> bool:
        """Tell whether an address is in device memory; refuse one with too few bytes, or with no memory at it now."""
        found = self._state.memory.find(address)
        if found is None:
            if self._lowest - _GAP <= address < self._end + _GAP:
                refuse("INVALID_VALUE")
            return False
        is_there = not found.freed or (later and found.base in self._state.reserved)
        if not is_there or address + size_bytes > found.base + found.size_bytes:
            refuse("INVALID_VALUE")
        return True

    def _check_host(self, address: int, size_bytes: int) -> None:
        record = self._holding(address)
        if not address or (record is not None and address + size_bytes > record.pointer + record.size_bytes):
            refuse("INVALID_VALUE")

    def _check_copy(self, destination: int, source: int, size_bytes: int, *, later: bool = False) -> tuple[bool, bool]:
        """Return for each of the two whether it is device memory; refuse what cannot be copied."""
        to, of = (self._on_device(address, size_bytes, later=later) for address in (destination, source))
        for address, on_device in ((destination, to), (source, of)):
            if not on_device:
                self._check_host(address, size_bytes)
        return to, of

    def _submit_copy(self, destination: int, source: int, size_bytes: int, stream: Any) -> None:
        where = stream_of(self._state, stream)
        if size_bytes:
            self._check_copy(destination, source, size_bytes, later=True)
            submit(self._state, where, Node("memcpy", lambda: self._copy(destination, source, size_bytes)))

    def _copy(self, destination: int, source: int, size_bytes: int) -> None:
        memory = self._state.memory
        match self._check_copy(destination, source, size_bytes):  # again: memory may have been freed before a replay
            case True, True:
                memory.copy(destination, source, size_bytes)
            case True, False:
                memory.write(destination, ctypes.string_at(source, size_bytes))
            case False, True:
                ctypes.memmove(destination, memory.read(source, size_bytes), size_bytes)
            case _:
                ctypes.memmove(destination, source, size_bytes)

    def _fill(self, pointer: int, byte: int, size_bytes: int) -> None:
        if self._check_fill(pointer, size_bytes):
            self._state.memory.fill(pointer, byte, size_bytes)
        else:
            ctypes.memset(pointer, byte, size_bytes)

    def _check_fill(self, pointer: int, size_bytes: int, *, later: bool = False) -> bool:
        """Tell whether memory is device memory; refuse memory that is neither that nor pinned."""
        if self._on_device(pointer, size_bytes, later=later):
            return True
        self._check_host(pointer, size_bytes)
        return False if self._holding(pointer) else refuse("INVALID_VALUE")


def _facts(record: MemoryRecord | None, address: int) -> dict[str, Any]:
    """Return the driver's attributes of an address; zeros for those that do not apply."""
    if record is None:
        return {
            "MEMORY_TYPE": 0,
            "CONTEXT": cu.CUcontext(0),
            "DEVICE_ORDINAL": -2,
            "RANGE_START_ADDR": cu.CUdeviceptr(0),
            "RANGE_SIZE": 0,
            "IS_MANAGED": False,
            "DEVICE_POINTER": cu.CUdeviceptr(0),
            "HOST_POINTER": 0,
        }
    pinned = record.kind == "pinned"
    return {
        "MEMORY_TYPE": _HOST if pinned else _DEVICE,
        "CONTEXT": cu.CUcontext(record.context.handle if record.context else 0),
        "DEVICE_ORDINAL": record.ordinal,
        "RANGE_START_ADDR": cu.CUdeviceptr(record.pointer),
        "RANGE_SIZE": record.size_bytes,
        "IS_MANAGED": False,
        "DEVICE_POINTER": cu.CUdeviceptr(0 if pinned else address),
        "HOST_POINTER": address if pinned else 0,
    }
