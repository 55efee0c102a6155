"""Memory pools: where stream-ordered allocations come from, and how much freed memory they keep."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lowlevel_reduce.arguments import handle_of
from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.device import Device
from lowlevel_reduce.driver.handle import Handle
from lowlevel_reduce.driver.held import Held
from lowlevel_reduce.driver.memory import Buffer
from lowlevel_reduce.driver.stream import Stream
from lowlevel_reduce.errors import CudaError, UnsupportedError

__all__ = ["MemoryPool", "PoolStatistics"]


@dataclass(frozen=True)
class PoolStatistics:
    """What a pool holds, in bytes.

    Attributes
    ----------
    reserved_bytes, reserved_high_bytes : int
        Device memory that the pool holds: now, and at most since the last `MemoryPool.reset_high`.
    used_bytes, used_high_bytes : int
        The part of it that is allocated: now, and at most since then.
    """

    reserved_bytes: int
    reserved_high_bytes: int
    used_bytes: int
    used_high_bytes: int


class MemoryPool(Handle):
    """A pool of device memory. Make one with `create`; `default` and `current` borrow the device's.

    According to the driver's documentation, a pool that is closed while memory of it is in use ends when the last of
    that memory is freed.

    Examples
    --------
    >>> pool = MemoryPool.create(device, release_threshold_bytes=1 << 30)  # doctest: +SKIP
    >>> buffer = pool.allocate(4096, stream)  # doctest: +SKIP
    """

    __slots__ = ("_device",)

    _noun = "memory pool"
    _makers = ("create", "default", "current", "from_handle")

    _device: Device

    @classmethod
    def create(
        cls, device: Device | int = 0, *, release_threshold_bytes: int = 0, max_size_bytes: int = 0
    ) -> MemoryPool:
        """Create a pool of memory of `device`; ``close()`` destroys it.

        Parameters
        ----------
        device : Device or int
            Whose memory.
        release_threshold_bytes : int
            See `release_threshold_bytes`.
        max_size_bytes : int
            Maximum size of the pool, rounded by the driver; 0 for no limit of its own.

        Raises
        ------
        ValueError
            If a size is negative.
        UnsupportedError
            If the device has no memory pools.
        """
        device = Device.of(device)
        _check_size("release_threshold_bytes", release_threshold_bytes)
        properties = _properties(device, _check_size("max_size_bytes", max_size_bytes))
        held = Held(binding.selected())
        self = cls._of(None, (held, functools.partial(_destroy, held)), device)
        self._handle = int(_call("cuMemPoolCreate", device, properties, by=held.take))
        if release_threshold_bytes:
            try:
                self.release_threshold_bytes = release_threshold_bytes
            except CudaError:
                self.close()
                raise
        return self

    @classmethod
    def default(cls, device: Device | int = 0) -> MemoryPool:
        """Borrow the default pool of `device`."""
        device = Device.of(device)
        return cls._of(int(_call("cuDeviceGetDefaultMemPool", device, device.handle)), None, device)

    @classmethod
    def current(cls, device: Device | int = 0) -> MemoryPool:
        """Borrow the current pool of `device`, from which allocations that name no pool come."""
        device = Device.of(device)
        return cls._of(int(_call("cuDeviceGetMemPool", device, device.handle)), None, device)

    @classmethod
    def from_handle(cls, handle: int, device: Device | int = 0, owner: Any = None) -> MemoryPool:
        """Borrow somebody's ``CUmemoryPool``; `owner` is kept alive, and the pool is never destroyed here."""
        handle = handle_of(handle, "memory pool")
        if not handle:
            raise ValueError("a null handle is no memory pool")
        return cls._of(handle, None, Device.of(device), owner)

    @classmethod
    def _of(cls, handle: int | None, release: Any, device: Device, owner: Any = None) -> MemoryPool:
        self = cls.__new__(cls)
        self._device = device
        self._adopt(handle, release, owner)
        return self

    @property
    def device(self) -> Device:
        """The device whose memory it is."""
        return self._device

    def allocate(self, size_bytes: int, stream: Stream) -> Buffer:
        """Allocate in the order of `stream`: ``Buffer.allocate_async(size_bytes, stream, pool=self)``."""
        return Buffer.allocate_async(size_bytes, stream, pool=self)

    @property
    def release_threshold_bytes(self) -> int:
        """How much unused memory the pool keeps, instead of giving it back when a stream or event is waited for."""
        return self._get("RELEASE_THRESHOLD")

    @release_threshold_bytes.setter
    def release_threshold_bytes(self, size_bytes: int) -> None:
        self._set("RELEASE_THRESHOLD", _check_size("release_threshold_bytes", size_bytes))

    def statistics(self) -> PoolStatistics:
        """Return what the pool holds now; a stream-ordered free counts once the stream has executed it."""
        names = ("RESERVED_MEM_CURRENT", "RESERVED_MEM_HIGH", "USED_MEM_CURRENT", "USED_MEM_HIGH")
        return PoolStatistics(*map(self._get, names))

    def reset_high(self) -> None:
        """Reset the high-water marks to what the pool holds now."""
        for name in ("RESERVED_MEM_HIGH", "USED_MEM_HIGH"):
            self._set(name, 0)

    def trim(self, keep_bytes: int = 0) -> None:
        """Give unused memory back to the device until no more than `keep_bytes` is held, or all of it is in use."""
        binding.call("cuMemPoolTrimTo", self.handle, _check_size("keep_bytes", keep_bytes))

    def _get(self, name: str) -> int:
        return int(binding.call("cuMemPoolGetAttribute", self.handle, _attribute(name)))

    def _set(self, name: str, value: int) -> None:
        # The bindings want a typed value here, and take no integer.
        binding.call("cuMemPoolSetAttribute", self.handle, _attribute(name), binding.native().cuuint64_t(value))


def _attribute(name: str) -> Any:
    return getattr(binding.native().CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{name}")


def _properties(device: Device, max_size_bytes: int) -> Any:
    native = binding.native()
    properties = native.CUmemPoolProps()
    properties.allocType = native.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.handleTypes = native.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
    properties.location.type = native.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device.ordinal
    properties.maxSize = max_size_bytes
    return properties


def _check_size(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name} is not negative: {value}")
    return value


def _call(name: str, device: Device, *args: Any, by: Callable[..., Any] = binding.call) -> Any:
    try:
        return by(name, *args)
    except CudaError as error:
        if error.name != "CUDA_ERROR_NOT_SUPPORTED":
            raise
        raise UnsupportedError(f"{device.name} has no memory pools ({error})") from error


def _destroy(held: Held) -> None:
    held.give_back("cuMemPoolDestroy", held.handle)
