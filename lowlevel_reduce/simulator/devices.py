"""What the simulator knows about real GPUs: fixed facts, and the driver's attributes that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEVICES", "SimulatedDevice", "by_name", "device_names"]

_KIB = 1 << 10
_MIB = 1 << 20

# Attributes that are the same on every simulated device.
_COMMON = {
    "WARP_SIZE": 32,
    "HOST_REGISTER_SUPPORTED": 1,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_BLOCK_DIM_X": 1024,
    "MAX_BLOCK_DIM_Y": 1024,
    "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2**31 - 1,
    "MAX_GRID_DIM_Y": 65535,
    "MAX_GRID_DIM_Z": 65535,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 * _KIB,
    "MAX_REGISTERS_PER_BLOCK": 65536,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "TOTAL_CONSTANT_MEMORY": 64 * _KIB,
    "UNIFIED_ADDRESSING": 1,
    "MANAGED_MEMORY": 0,
    "CONCURRENT_KERNELS": 1,
    "STREAM_PRIORITIES_SUPPORTED": 1,
    "COOPERATIVE_LAUNCH": 1,
    "MEMORY_POOLS_SUPPORTED": 1,
    "COMPUTE_MODE": 0,
    "INTEGRATED": 0,
    "CAN_MAP_HOST_MEMORY": 0,
    "ECC_ENABLED": 0,
    "PCI_BUS_ID": 0,
    "PCI_DEVICE_ID": 0,
    "PCI_DOMAIN_ID": 0,
}


@dataclass(frozen=True)
class SimulatedDevice:
    """The facts of one GPU. The H200's memory bus and multiprocessors are what its driver (580.159) reports.

    The rest follows the vendor's publications from memory, and was not compared with a device.

    Attributes
    ----------
    key, name : str
        Its name for `by_name`, and the product's name as the driver reports it.
    compute_capability : tuple of int
        Major and minor.
    multiprocessors : int
        Number of multiprocessors.
    gpc_multiprocessors : tuple of int
        Multiprocessors of each graphics processing cluster, which contains the whole of a thread-block cluster; empty
        if the device has no thread-block clusters. The vendor publishes only the sum. The H200's split is derived: one
        H200 (driver 580.159), with two blocks of 512 threads per multiprocessor, reports 132, 62, 30 and 14 active
        clusters of 2, 4, 8 and 16 blocks, and of all splits into eight parts of at most 18 only this one gives these
        four numbers. Other H200s may be split differently. The B200's split is an assumption: none was measured.
    threads_per_multiprocessor, blocks_per_multiprocessor : int
        The most threads and blocks that are resident on a multiprocessor.
    shared_per_multiprocessor, shared_per_block_optin, shared_reserved_per_block : int
        Shared memory in bytes; the last is what the system reserves in each block.
    l2_bytes, memory_bytes : int
        Sizes of the level-2 cache and of the device memory.
    persisting_l2_bytes, access_window_bytes : int
        The part of the cache that can be set aside, and the largest access policy window; both 0 if not available. The
        part is assumed to be five eighths of the cache if the vendor does not publish it (H200, B200).
    clock_khz, memory_clock_khz, memory_bus_bits : int
        Peak clocks, and the width of the memory bus.
    """

    key: str
    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    gpc_multiprocessors: tuple[int, ...]
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    shared_per_multiprocessor: int
    shared_per_block_optin: int
    shared_reserved_per_block: int
    l2_bytes: int
    persisting_l2_bytes: int
    access_window_bytes: int
    memory_bytes: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int

    @property
    def clusters(self) -> bool:
        """Whether it has thread-block clusters."""
        return self.compute_capability >= (9, 0)

    @property
    def shared_granularity(self) -> int:
        """The granularity in bytes in which shared memory is allocated to a block."""
        return 128 if self.compute_capability >= (8, 0) else 256

    def attributes(self) -> dict[str, int]:
        """Return the attributes by the names of ``CUdevice_attribute`` without their prefix."""
        major, minor = self.compute_capability
        return _COMMON | {
            "COMPUTE_CAPABILITY_MAJOR": major,
            "COMPUTE_CAPABILITY_MINOR": minor,
            "MULTIPROCESSOR_COUNT": self.multiprocessors,
            "MAX_THREADS_PER_MULTIPROCESSOR": self.threads_per_multiprocessor,
            "MAX_BLOCKS_PER_MULTIPROCESSOR": self.blocks_per_multiprocessor,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": self.shared_per_block_optin,
            "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": self.shared_per_multiprocessor,
            "RESERVED_SHARED_MEMORY_PER_BLOCK": self.shared_reserved_per_block,
            "L2_CACHE_SIZE": self.l2_bytes,
            "MAX_PERSISTING_L2_CACHE_SIZE": self.persisting_l2_bytes,
            "MAX_ACCESS_POLICY_WINDOW_SIZE": self.access_window_bytes,
            "CLOCK_RATE": self.clock_khz,
            "MEMORY_CLOCK_RATE": self.memory_clock_khz,
            "GLOBAL_MEMORY_BUS_WIDTH": self.memory_bus_bits,
            "CLUSTER_LAUNCH": int(self.clusters),
            "MEM_SYNC_DOMAIN_COUNT": 4 if self.clusters else 1,
        }


H200 = SimulatedDevice(
    key="H200",
    name="NVIDIA H200",
    compute_capability=(9, 0),
    multiprocessors=132,
    gpc_multiprocessors=(17, 17, 17, 17, 17, 17, 15, 15),
    threads_per_multiprocessor=2048,
    blocks_per_multiprocessor=32,
    shared_per_multiprocessor=228 * _KIB,
    shared_per_block_optin=227 * _KIB,
    shared_reserved_per_block=_KIB,
    l2_bytes=60 * _MIB,
    persisting_l2_bytes=38_400 * _KIB,
    access_window_bytes=128 * _MIB,
    memory_bytes=143_771 * _MIB,
    clock_khz=1_980_000,
    memory_clock_khz=3_201_000,
    memory_bus_bits=6016,
)
A100 = SimulatedDevice(
    key="A100",
    name="NVIDIA A100-SXM4-80GB",
    compute_capability=(8, 0),
    multiprocessors=108,
    gpc_multiprocessors=(),
    threads_per_multiprocessor=2048,
    blocks_per_multiprocessor=32,
    shared_per_multiprocessor=164 * _KIB,
    shared_per_block_optin=163 * _KIB,
    shared_reserved_per_block=_KIB,
    l2_bytes=40 * _MIB,
    persisting_l2_bytes=30 * _MIB,
    access_window_bytes=134_213_632,
    memory_bytes=81_920 * _MIB,
    clock_khz=1_410_000,
    memory_clock_khz=1_593_000,
    memory_bus_bits=5120,
)
RTX_4090 = SimulatedDevice(
    key="RTX 4090",
    name="NVIDIA GeForce RTX 4090",
    compute_capability=(8, 9),
    multiprocessors=128,
    gpc_multiprocessors=(),
    threads_per_multiprocessor=1536,
    blocks_per_multiprocessor=24,
    shared_per_multiprocessor=100 * _KIB,
    shared_per_block_optin=99 * _KIB,
    shared_reserved_per_block=_KIB,
    l2_bytes=72 * _MIB,
    persisting_l2_bytes=51_904_512,
    access_window_bytes=134_213_632,
    memory_bytes=24_564 * _MIB,
    clock_khz=2_520_000,
    memory_clock_khz=10_501_000,
    memory_bus_bits=384,
)
T4 = SimulatedDevice(
    key="T4",
    name="Tesla T4",
    compute_capability=(7, 5),
    multiprocessors=40,
    gpc_multiprocessors=(),
    threads_per_multiprocessor=1024,
    blocks_per_multiprocessor=16,
    shared_per_multiprocessor=64 * _KIB,
    shared_per_block_optin=64 * _KIB,
    shared_reserved_per_block=0,
    l2_bytes=4 * _MIB,
    persisting_l2_bytes=0,
    access_window_bytes=0,
    memory_bytes=15_360 * _MIB,
    clock_khz=1_590_000,
    memory_clock_khz=5_001_000,
    memory_bus_bits=256,
)
B200 = SimulatedDevice(
    key="B200",
    name="NVIDIA B200",
    compute_capability=(10, 0),
    multiprocessors=148,
    gpc_multiprocessors=(20, 20, 18, 18, 18, 18, 18, 18),
    threads_per_multiprocessor=2048,
    blocks_per_multiprocessor=32,
    shared_per_multiprocessor=228 * _KIB,
    shared_per_block_optin=227 * _KIB,
    shared_reserved_per_block=_KIB,
    l2_bytes=126 * _MIB,
    persisting_l2_bytes=80_640 * _KIB,
    access_window_bytes=128 * _MIB,
    memory_bytes=183_359 * _MIB,
    clock_khz=1_965_000,
    memory_clock_khz=3_996_000,
    memory_bus_bits=8192,
)

DEVICES = (H200, A100, RTX_4090, T4, B200)
"""Every device that can be simulated."""


def device_names() -> tuple[str, ...]:
    """Return the names that `by_name` takes."""
    return tuple(device.key for device in DEVICES)


def by_name(name: str) -> SimulatedDevice:
    """Return the device of that name; case, spaces, hyphens and underscores do not matter.

    Raises
    ------
    ValueError
        If there is no such device; the message lists the names.
    """
    if not isinstance(name, str):
        raise TypeError(f"a device to simulate is named by a text, not by {name!r}")
    for device in DEVICES:
        if _plain(name) in (_plain(device.key), _plain(device.name)):
            return device
    raise ValueError(f"no device {name!r} to simulate; there are {', '.join(device_names())}")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
