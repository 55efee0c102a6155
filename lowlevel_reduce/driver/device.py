"""A GPU as a value: its ordinal, and the facts that the driver tells about it."""

from __future__ import annotations

from typing import Any

from lowlevel_reduce.arguments import instance
from lowlevel_reduce.driver import binding

__all__ = ["Device"]


class Device:
    """A CUDA device, by ordinal. Cheap to make, compared by ordinal; it holds no driver resource.

    Parameters
    ----------
    ordinal : int
        0 to ``Device.count() - 1``, in the order of CUDA_VISIBLE_DEVICES.

    Raises
    ------
    ValueError
        If there is no such device.
    """

    __slots__ = ("ordinal",)

    ordinal: int

    def __init__(self, ordinal: int = 0) -> None:
        if isinstance(ordinal, bool) or not isinstance(ordinal, int):
            raise TypeError(f"a device ordinal is an int, not {type(ordinal).__name__}")
        count = self.count()
        if not 0 <= ordinal < count:
            raise ValueError(f"no device {ordinal}: there are {count}")
        self.ordinal = ordinal

    @classmethod
    def of(cls, device: Device | int) -> Device:
        """Return `device` itself, or the device of that ordinal."""
        return device if isinstance(device, cls) else cls(device)  # type: ignore[arg-type]

    @staticmethod
    def count() -> int:
        """Return how many devices this process sees."""
        return int(binding.call("cuDeviceGetCount"))

    @classmethod
    def all(cls) -> tuple[Device, ...]:
        """Return every device that this process sees, by ordinal."""
        return tuple(cls(ordinal) for ordinal in range(cls.count()))

    def attribute(self, name: str) -> int:
        """Return a device attribute; asked of the driver once.

        Parameters
        ----------
        name : str
            A name of ``CUdevice_attribute`` without its prefix, e.g. ``"MULTIPROCESSOR_COUNT"``; any case.
        """
        instance(name, str, "the name of a device attribute")
        return _attribute(binding.selected(), self.handle, name.upper())

    @property
    def handle(self) -> int:
        """The driver's ``CUdevice``, an integer."""
        return int(_fact(binding.selected(), "cuDeviceGet", self.ordinal))

    @property
    def name(self) -> str:
        """The product's name, e.g. ``"NVIDIA H200"``."""
        text: bytes = _fact(binding.selected(), "cuDeviceGetName", 256, self.handle)
        return text.split(b"\0", 1)[0].decode(errors="replace").strip()

    @property
    def uuid(self) -> str:
        """The device's UUID as nvidia-smi prints it, without the leading ``GPU-``; of the instance on a MIG device."""
        from uuid import UUID  # noqa: PLC0415 - few ask

        # CUDA 13 gave the plain name the second version's meaning.
        name = "cuDeviceGetUuid_v2" if hasattr(binding.native(), "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
        return str(UUID(bytes=bytes(_fact(binding.selected(), name, self.handle).bytes)))

    @property
    def compute_capability(self) -> tuple[int, int]:
        """The (major, minor) compute capability, e.g. ``(9, 0)``."""
        return self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")

    @property
    def architecture(self) -> str:
        """The real architecture to compile for, e.g. ``"sm_90"``."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    @property
    def total_memory_bytes(self) -> int:
        """The device memory, in bytes."""
        return int(_fact(binding.selected(), "cuDeviceTotalMem", self.handle))

    @property
    def multiprocessor_count(self) -> int:
        """Multiprocessors of the device; a context may have fewer, see `Context.multiprocessor_count`."""
        return self.attribute("MULTIPROCESSOR_COUNT")

    @property
    def max_threads_per_block(self) -> int:
        """The most threads that a block may have."""
        return self.attribute("MAX_THREADS_PER_BLOCK")

    @property
    def max_threads_per_multiprocessor(self) -> int:
        """The most threads that can be resident on a multiprocessor."""
        return self.attribute("MAX_THREADS_PER_MULTIPROCESSOR")

    @property
    def shared_memory_per_block_bytes(self) -> int:
        """Shared memory that any block may use, in bytes; 49152 on every device so far."""
        return self.attribute("MAX_SHARED_MEMORY_PER_BLOCK")

    @property
    def shared_memory_per_block_optin_bytes(self) -> int:
        """Shared memory of a block whose kernel opted in to more, in bytes."""
        return self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")

    @property
    def shared_memory_per_multiprocessor_bytes(self) -> int:
        """Shared memory of a multiprocessor, in bytes."""
        return self.attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR")

    @property
    def registers_per_multiprocessor(self) -> int:
        """32-bit registers of a multiprocessor."""
        return self.attribute("MAX_REGISTERS_PER_MULTIPROCESSOR")

    @property
    def l2_bytes(self) -> int:
        """The level-2 cache, in bytes."""
        return self.attribute("L2_CACHE_SIZE")

    @property
    def warp_size(self) -> int:
        """Lanes of a warp."""
        return self.attribute("WARP_SIZE")

    @property
    def memory_clock_khz(self) -> int:
        """The memory's peak clock, in kHz."""
        return self.attribute("MEMORY_CLOCK_RATE")

    @property
    def memory_bus_bits(self) -> int:
        """The width of the memory bus, in bits."""
        return self.attribute("GLOBAL_MEMORY_BUS_WIDTH")

    @property
    def peak_bandwidth(self) -> float:
        """The memory's peak bandwidth in bytes per second: two transfers a clock over the whole bus."""
        return 2.0 * self.memory_clock_khz * 1e3 * self.memory_bus_bits / 8

    @property
    def supports_clusters(self) -> bool:
        """Whether blocks can be launched in clusters."""
        return bool(self.attribute("CLUSTER_LAUNCH"))

    @property
    def supports_cooperative_launch(self) -> bool:
        """Whether a grid can be launched cooperatively."""
        return bool(self.attribute("COOPERATIVE_LAUNCH"))

    @property
    def supports_memory_pools(self) -> bool:
        """Whether memory can be allocated in stream order."""
        return bool(self.attribute("MEMORY_POOLS_SUPPORTED"))

    def __eq__(self, other: object) -> bool:
        return self.ordinal == other.ordinal if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return hash((Device, self.ordinal))

    def __repr__(self) -> str:
        return f"Device({self.ordinal})"


# Facts about a device do not change while the process lives. They are kept with the implementation, which may.
def _fact(implementation: binding.Implementation, name: str, *args: Any) -> Any:
    key = ("device", name, *args)
    if key not in implementation.kept:
        implementation.kept[key] = implementation.call(name, *args)
    return implementation.kept[key]


def _attribute(implementation: binding.Implementation, handle: int, name: str) -> int:
    # By its name: to look the enumeration's member up, and to hash it, takes longer than all the rest.
    key = ("device attribute", name, handle)
    if key not in implementation.kept:
        attribute = getattr(binding.native().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
        if attribute is None:
            raise ValueError(f"{binding.bindings_version()} knows no device attribute {name!r}")
        implementation.kept[key] = int(implementation.call("cuDeviceGetAttribute", attribute, handle))
    return int(implementation.kept[key])
