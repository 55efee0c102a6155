"""`LaunchConfig`: everything about a launch except its arguments, checked without a driver."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.driver import attributes, binding
from lowlevel_reduce.driver.attributes import integer, native_attributes, word
from lowlevel_reduce.errors import UnsupportedError

if TYPE_CHECKING:
    from lowlevel_reduce.driver.attribute_values import AccessPolicyWindow, LaunchCompletionEvent, ProgrammaticEvent
    from lowlevel_reduce.driver.device import Device
    from lowlevel_reduce.driver.event import Event

__all__ = ["Dimensions", "LaunchConfig", "native_config"]

Dimensions = int | tuple[int, ...]
"""One to three extents, x first; an int is the extent in x."""

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_BLOCK_LIMITS = (1024, 1024, 64)
_MAX_BLOCK_THREADS = 1024
_MAX_CLUSTER_BLOCKS = 16  # the largest that any device runs, and only if the kernel allows more than the portable 8
_BOOLEANS = ("cooperative", "programmatic_stream_serialization", "device_updatable", "nvlink_centric_scheduling")
_STRUCTURED = ("programmatic_event", "launch_completion_event", "access_policy_window")


@dataclass(frozen=True)
class LaunchConfig:
    """A grid of blocks and the attributes of their launch. Immutable; every attribute is off unless it is named.

    Parameters
    ----------
    grid : int or tuple of int
        Extents of the grid in BLOCKS, with or without clusters. It is launched exactly so, never resized.
    block : int or tuple of int
        Extents of a block in threads, at most 1024 threads in all.
    dynamic_shared_bytes : int
        Dynamic shared memory per block. Above 48 KiB the kernel must opt in, see
        ``Kernel.set_max_dynamic_shared_bytes``.
    cluster : int or tuple of int, optional
        Extents of a cluster in blocks; each must divide the grid's. For more than 8 blocks see
        ``Kernel.allow_non_portable_cluster``.
    preferred_cluster : int or tuple of int, optional
        A larger cluster, a multiple of `cluster` in x and y and equal to it in z, that the device uses where there is
        room for it.
    cluster_scheduling : str, optional
        "spread", "load_balancing" or "default": how the blocks of a cluster are distributed over multiprocessors.
    cooperative : bool
        All blocks are resident at the same time, so that they may wait for each other.
    programmatic_stream_serialization : bool
        The kernel may begin before its predecessor in the stream has ended. Only for a kernel that executes
        ``griddepcontrol.wait`` before its first dependent read.
    programmatic_event : ProgrammaticEvent or Event, optional
        Recorded when every block has triggered it.
    launch_completion_event : LaunchCompletionEvent or Event, optional
        Recorded when all blocks have begun.
    priority : int, optional
        Priority of this launch in place of its stream's, in the device's range; negative numbers are greater
        priorities.
    memory_sync_domain : str, optional
        "default" or "remote": the kernel's logical memory synchronisation domain. The memory flush at its end waits for
        outstanding writes of other kernels in the same domain, but not of those in another.
    memory_sync_domain_map : tuple of int, optional
        The physical domains to which the logical domains (default, remote) are mapped.
    access_policy_window : AccessPolicyWindow, optional
        How the level-2 cache treats one window of memory.
    shared_memory_carveout : int, optional
        Preferred share of the L1 storage for shared memory, in percent, 0 to 100; None leaves it to the driver.
    device_updatable : bool
        Device code can update the kernel node, see ``KernelNode.device_handle``. Only for captures and graph nodes.
    nvlink_centric_scheduling : bool
        A hint to spread NVLink traffic evenly; needs bindings 13.0.
    portable_cluster_size_mode : str, optional
        "require_portable", "allow_non_portable" or "default"; needs bindings 13.2.
    shared_memory_mode : str, optional
        "require_portable", "allow_non_portable", "allow_oversized", "prefer_oversized" or "default"; needs bindings
        13.2.

    Notes
    -----
    The synchronisation policy (attribute 3) applies to streams only: ``Stream.synchronization_policy``.

    Raises
    ------
    TypeError, ValueError
        Naming the wrong value and what is allowed.
    """

    grid: Dimensions
    block: Dimensions
    _: KW_ONLY
    dynamic_shared_bytes: int = 0
    cluster: Dimensions | None = None
    preferred_cluster: Dimensions | None = None
    cluster_scheduling: str | None = None
    cooperative: bool = False
    programmatic_stream_serialization: bool = False
    programmatic_event: ProgrammaticEvent | Event | None = None
    launch_completion_event: LaunchCompletionEvent | Event | None = None
    priority: int | None = None
    memory_sync_domain: str | None = None
    memory_sync_domain_map: tuple[int, int] | None = None
    access_policy_window: AccessPolicyWindow | None = None
    shared_memory_carveout: int | None = None
    device_updatable: bool = False
    nvlink_centric_scheduling: bool = False
    portable_cluster_size_mode: str | None = None
    shared_memory_mode: str | None = None

    def __post_init__(self) -> None:
        self._set("grid", _extents("grid", self.grid, _GRID_LIMITS))
        self._set("block", _extents("block", self.block, _BLOCK_LIMITS))
        if self.block_threads > _MAX_BLOCK_THREADS:
            raise ValueError(
                f"block {self.block} has {self.block_threads} threads; at most {_MAX_BLOCK_THREADS} are allowed"
            )
        self._set("dynamic_shared_bytes", integer("dynamic_shared_bytes", self.dynamic_shared_bytes, 0, 2**31 - 1))
        for name in _BOOLEANS:
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} is a bool, not {type(getattr(self, name)).__name__}")
        self._check_clusters()
        if any(getattr(self, name) is not None for name in _STRUCTURED):
            self._check_structured()
        self._check_values()

    def with_grid(self, blocks: int) -> LaunchConfig:
        """Return the same launch of another number of blocks in a row, of which nothing else is checked again.

        Raises
        ------
        TypeError, ValueError
            If the number is no integer in the grid's limits, or the cluster does not divide it.
        """
        made = object.__new__(LaunchConfig)
        made.__dict__.update(self.__dict__)
        made._set("grid", (integer("grid.x", blocks, 1, _GRID_LIMITS[0]), 1, 1))
        if self.cluster is not None and blocks % _product(_three(self.cluster)):
            raise ValueError(f"grid {made.grid} is not a multiple of cluster {self.cluster}")
        return made

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # frozen for everybody else

    def _check_clusters(self) -> None:
        if self.cluster is not None:
            self._set("cluster", self._checked_cluster("cluster", self.cluster, 1))
        if self.preferred_cluster is not None:
            if self.cluster is None:
                raise ValueError("preferred_cluster takes effect only beside a cluster: set cluster= too")
            preferred = self._checked_cluster("preferred_cluster", self.preferred_cluster, self.cluster)
            if preferred[2] != _three(self.cluster)[2]:
                raise ValueError(f"preferred_cluster {preferred} and cluster {self.cluster} differ in z, but must not")
            self._set("preferred_cluster", preferred)

    def _checked_cluster(self, name: str, value: Dimensions, divisor: Dimensions) -> tuple[int, int, int]:
        extents = _extents(name, value, (_MAX_CLUSTER_BLOCKS,) * 3)
        if _product(extents) > _MAX_CLUSTER_BLOCKS:
            raise ValueError(
                f"{name} {extents} has {_product(extents)} blocks; at most {_MAX_CLUSTER_BLOCKS} are allowed"
            )
        if any(blocks % extent for blocks, extent in zip(_three(self.grid), extents, strict=True)):
            raise ValueError(f"grid {self.grid} is not a multiple of {name} {extents}: the grid is counted in blocks")
        if any(extent % part for extent, part in zip(extents, _three(divisor), strict=True)):
            raise ValueError(f"{name} {extents} is not a multiple of cluster {divisor}")
        return extents

    def _check_structured(self) -> None:
        from lowlevel_reduce.driver.attribute_values import (  # noqa: PLC0415 - few launches have one
            AccessPolicyWindow,
            LaunchCompletionEvent,
            ProgrammaticEvent,
        )
        from lowlevel_reduce.driver.event import Event  # noqa: PLC0415

        # A bare event means the attribute's plain form.
        if isinstance(self.programmatic_event, Event):
            self._set("programmatic_event", ProgrammaticEvent(self.programmatic_event))
        if isinstance(self.launch_completion_event, Event):
            self._set("launch_completion_event", LaunchCompletionEvent(self.launch_completion_event))
        for name, kind in (
            ("programmatic_event", ProgrammaticEvent),
            ("launch_completion_event", LaunchCompletionEvent),
        ):
            if not isinstance(getattr(self, name), (kind, type(None))):
                raise TypeError(f"{name} is a {kind.__name__} or an Event, not {type(getattr(self, name)).__name__}")
        if not isinstance(self.access_policy_window, (AccessPolicyWindow, type(None))):
            kind_given = type(self.access_policy_window).__name__
            raise TypeError(f"access_policy_window is an AccessPolicyWindow, not {kind_given}")

    def _check_values(self) -> None:
        for name, words in (
            ("cluster_scheduling", attributes.SCHEDULING),
            ("memory_sync_domain", attributes.DOMAIN),
            ("portable_cluster_size_mode", attributes.PORTABLE_CLUSTER),
            ("shared_memory_mode", attributes.SHARED_MEMORY),
        ):
            if getattr(self, name) is not None:
                word(name, getattr(self, name), words)
        if self.priority is not None:
            self._set("priority", integer("priority", self.priority, -(2**31), 2**31 - 1))
        if self.shared_memory_carveout is not None:
            self._set("shared_memory_carveout", integer("shared_memory_carveout", self.shared_memory_carveout, 0, 100))
        if self.memory_sync_domain_map is not None:
            self._set("memory_sync_domain_map", _domain_map(self.memory_sync_domain_map))

    @property
    def grid_blocks(self) -> int:
        """Blocks of the grid, all extents together."""
        return _product(_three(self.grid))

    @property
    def block_threads(self) -> int:
        """Threads of a block, all extents together."""
        return _product(_three(self.block))

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster, 1 without one."""
        return 1 if self.cluster is None else _product(_three(self.cluster))

    def check_device(self, device: Device) -> None:
        """Refuse what `device` cannot do, before the driver refuses it with an error code.

        Raises
        ------
        UnsupportedError
            Naming what the device lacks.
        """
        if self.cluster is not None and not device.supports_clusters:
            raise UnsupportedError(f"{_name_of(device)} has no thread-block clusters; they came with sm_90")
        if self.cooperative and not device.supports_cooperative_launch:
            raise UnsupportedError(f"{_name_of(device)} has no cooperative launch")
        if self.block_threads > device.max_threads_per_block:
            raise UnsupportedError(
                f"{_name_of(device)} runs {device.max_threads_per_block} threads a block, not {self.block_threads}"
            )
        if self.dynamic_shared_bytes > device.shared_memory_per_block_optin_bytes:
            raise UnsupportedError(
                f"{_name_of(device)} has {device.shared_memory_per_block_optin_bytes} bytes of shared memory a block, "
                f"not {self.dynamic_shared_bytes}"
            )
        self._check_device_limits(device)

    def _check_device_limits(self, device: Device) -> None:
        if self.memory_sync_domain_map is not None:
            domains = device.attribute("MEM_SYNC_DOMAIN_COUNT")
            if max(self.memory_sync_domain_map) >= domains:
                raise UnsupportedError(
                    f"{_name_of(device)} has {domains} memory synchronisation domains, numbered from 0: "
                    f"memory_sync_domain_map {self.memory_sync_domain_map} is out of range"
                )
        if self.access_policy_window is not None:
            most = device.attribute("MAX_ACCESS_POLICY_WINDOW_SIZE")
            if self.access_policy_window.size_bytes > most:
                size_bytes = self.access_policy_window.size_bytes
                raise UnsupportedError(
                    f"{_name_of(device)} takes access policy windows of {most} bytes, not {size_bytes}"
                )


def native_config(config: LaunchConfig, stream: int = 0) -> Any:
    """Return the driver's ``CUlaunchConfig`` for `config` on the stream of the handle `stream`.

    Raises
    ------
    UnsupportedError
        If the installed bindings do not know an attribute that is on.
    """
    native = binding.native().CUlaunchConfig()
    native.gridDimX, native.gridDimY, native.gridDimZ = _three(config.grid)
    native.blockDimX, native.blockDimY, native.blockDimZ = _three(config.block)
    native.sharedMemBytes = config.dynamic_shared_bytes
    native.hStream = binding.native().CUstream(stream)
    # The list is copied when it is assigned: it must be complete, a later append or write would go unseen.
    structs = native_attributes(config)
    if structs:
        native.attrs = structs
    native.numAttrs = len(structs)
    return native


def _name_of(device: Device) -> str:
    return f"{device.name} ({device.architecture})"


def _extents(name: str, value: Any, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(given) <= 3:
        raise ValueError(f"{name} has one to three extents, not {len(given)}")
    padded = given + (1,) * (3 - len(given))
    x, y, z = (integer(f"{name}.{axis}", *rest) for axis, *rest in zip("xyz", padded, (1, 1, 1), limits, strict=True))
    return x, y, z


def _three(value: Dimensions) -> tuple[int, int, int]:
    # After construction every extent is a triple; an int stands for itself along x.
    x, y, z = (value, 1, 1) if isinstance(value, int) else value
    return x, y, z


def _product(extents: tuple[int, int, int]) -> int:
    return extents[0] * extents[1] * extents[2]


def _domain_map(value: Any) -> tuple[int, int]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"memory_sync_domain_map is two ints, the domains of (default, remote), not {value!r}")
    default, remote = (integer("memory_sync_domain_map", domain, 0, 255) for domain in value)
    return default, remote
