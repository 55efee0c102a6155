"""JAX as the package sees it, over memory of a simulated device."""

import types
from typing import Any, NamedTuple


class Array:
    """The class that all of JAX's arrays are of."""


class Sharding(NamedTuple):
    """On which devices an array lies, and in which of their memories."""

    device_set: frozenset[Any]
    memory_kind: str | None = "device"


class Device(NamedTuple):
    """A device, by its ordinal in CUDA."""

    local_hardware_id: int = 0
    platform: str = "gpu"
    version: str = "PJRT C API\ncuda 13000"

    @property
    def client(self) -> Any:
        return types.SimpleNamespace(platform_version=self.version)


class Layout(NamedTuple):
    """The axes of an array, from the one that changes slowest in memory."""

    major_to_minor: tuple[int, ...]


class Format(NamedTuple):
    """How and where an array lies."""

    layout: Layout
    sharding: Sharding


class ArrayImpl(Array):
    """What of an array is looked at.

    Parameters
    ----------
    array : DeviceArray
        The memory.
    sharding : Sharding, optional
        Where it lies.
    order : tuple of int, optional
        Its axes, from the one that changes slowest in memory; by default those of C order.
    """

    sharding = Sharding(frozenset({Device()}))

    def __init__(self, array: Any, sharding: Sharding | None = None, order: tuple[int, ...] | None = None) -> None:
        self.array, self.shape, self.dtype, self.ndim = array, array.shape, array.dtype, array.ndim
        self.sharding = sharding or self.sharding
        self.order = tuple(range(self.ndim)) if order is None else order
        self.computed, self.deleted, self.waits, self.exports = True, False, 0, 0

    @property
    def format(self) -> Format:
        assert not self.deleted, "which ends the process"
        return Format(Layout(self.order), self.sharding)

    def is_deleted(self) -> bool:
        return self.deleted

    def is_ready(self) -> bool:
        assert not self.deleted, "which ends the process"
        return self.computed

    def block_until_ready(self) -> "ArrayImpl":
        self.computed = True
        self.waits += 1
        return self

    def unsafe_buffer_pointer(self) -> int:
        return int(self.array.pointer)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **options: Any) -> Any:
        self.exports += 1
        raise BufferError("ArrayImpl exports nothing here")


def module() -> Any:
    """Return a module of such arrays."""
    jax: Any = types.ModuleType("jax")
    jax.Array = Array
    return jax
