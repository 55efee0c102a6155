"""A launch as requested: reads the driver's configuration, and checks it as far as that depends only on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from lowlevel_reduce.simulator.devices import SimulatedDevice
from lowlevel_reduce.simulator.driver.state import refuse

__all__ = ["Extents", "Request", "check_clusters", "read_attribute", "request_of", "request_of_node"]

Extents = tuple[int, int, int]

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_BLOCK_LIMITS = (1024, 1024, 64)
_MOST_THREADS = 1024
_LARGEST_CLUSTER = 16
_ALLOW_NON_PORTABLE = 2


@dataclass
class Request:
    """What a configuration requests; `events` are the handles of the events that the launch records."""

    grid: Extents
    block: Extents
    dynamic_bytes: int
    stream: Any
    cluster: Extents | None = None
    preferred_cluster: Extents | None = None
    cooperative: bool = False
    programmatic: bool = False
    non_portable: bool = False
    captured_only: bool = False
    events: list[Any] = field(default_factory=list)

    @property
    def block_threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def grid_blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster, 1 without one."""
        return 1 if self.cluster is None else math.prod(self.cluster)


def request_of(config: Any, device: SimulatedDevice) -> Request:
    """Read a ``CUlaunchConfig``; refuse one with which no kernel could be launched on `device`."""
    request = Request(
        (config.gridDimX, config.gridDimY, config.gridDimZ),
        (config.blockDimX, config.blockDimY, config.blockDimZ),
        config.sharedMemBytes,
        config.hStream,
    )
    _check_sizes(request, device)
    for attribute in config.attrs[: config.numAttrs]:
        read_attribute(request, attribute.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_"), attribute.value, device)
    check_clusters(request)
    return request


def request_of_node(parameters: Any, device: SimulatedDevice, old: Request | None) -> Request:
    """Read the parameters of a kernel node; its attributes are those of the `old` request."""
    grid = parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ
    block = parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ
    request = replace(old or Request(grid, block, 0, None), grid=grid, block=block)
    request.dynamic_bytes = parameters.sharedMemBytes
    _check_sizes(request, device)
    return request


def read_attribute(request: Request, name: str, value: Any, device: SimulatedDevice) -> None:
    """Apply one launch attribute to a request, or refuse it."""
    read = _READERS.get(name)
    if read is None:
        refuse("INVALID_VALUE")
    read(request, value, device)


def _check_sizes(request: Request, device: SimulatedDevice) -> None:
    _check_extents(request.grid, _GRID_LIMITS)
    _check_extents(request.block, _BLOCK_LIMITS)
    if request.block_threads > _MOST_THREADS or request.dynamic_bytes > device.shared_per_block_optin:
        refuse("INVALID_VALUE")


def _check_extents(extents: Extents, limits: Extents) -> None:
    if not all(1 <= extent <= limit for extent, limit in zip(extents, limits, strict=True)):
        refuse("INVALID_VALUE")


def check_clusters(request: Request) -> None:
    """Refuse clusters that no device has, or that do not divide the grid."""
    preferred, cluster = request.preferred_cluster, request.cluster
    for extents in (cluster, preferred):
        if extents is None:
            continue
        if not all(extents) or math.prod(extents) > _LARGEST_CLUSTER:
            refuse("INVALID_CLUSTER_SIZE")
        if any(blocks % extent for blocks, extent in zip(request.grid, extents, strict=True)):
            refuse("INVALID_CLUSTER_SIZE")
    if preferred is not None and (
        cluster is None or any(large % small for large, small in zip(preferred, cluster, strict=True))
    ):
        refuse("INVALID_CLUSTER_SIZE")


# One reader for each attribute: it stores what matters to a simulated launch, and refuses what the device refuses.


def _read_window(request: Request, value: Any, device: SimulatedDevice) -> None:
    window = value.accessPolicyWindow
    if window.num_bytes > device.access_window_bytes or not 0 <= window.hitRatio <= 1:
        refuse("INVALID_VALUE")


def _read_cooperative(request: Request, value: Any, device: SimulatedDevice) -> None:
    request.cooperative = bool(value.cooperative)


def _read_programmatic(request: Request, value: Any, device: SimulatedDevice) -> None:
    request.programmatic = bool(value.programmaticStreamSerializationAllowed)


def _read_cluster(request: Request, value: Any, device: SimulatedDevice) -> None:
    if not device.clusters:
        refuse("NOT_SUPPORTED")
    request.cluster = value.clusterDim.x, value.clusterDim.y, value.clusterDim.z


def _read_preferred_cluster(request: Request, value: Any, device: SimulatedDevice) -> None:
    if not device.clusters:
        refuse("NOT_SUPPORTED")
    extents = value.preferredClusterDim
    request.preferred_cluster = extents.x, extents.y, extents.z


def _read_programmatic_event(request: Request, value: Any, device: SimulatedDevice) -> None:
    request.events.append(value.programmaticEvent.event)


def _read_completion_event(request: Request, value: Any, device: SimulatedDevice) -> None:
    request.events.append(value.launchCompletionEvent.event)


def _read_domain_map(request: Request, value: Any, device: SimulatedDevice) -> None:
    domains = value.memSyncDomainMap
    if max(domains.default_, domains.remote) >= device.attributes()["MEM_SYNC_DOMAIN_COUNT"]:
        refuse("INVALID_VALUE")


def _read_carveout(request: Request, value: Any, device: SimulatedDevice) -> None:
    if not -1 <= int(value.sharedMemCarveout) <= 100:
        refuse("INVALID_VALUE")


def _read_updatable(request: Request, value: Any, device: SimulatedDevice) -> None:
    request.captured_only = bool(value.deviceUpdatableKernelNode.deviceUpdatable)


def _read_portable_cluster(request: Request, value: Any, device: SimulatedDevice) -> None:
    request.non_portable = int(value.portableClusterSizeMode) == _ALLOW_NON_PORTABLE


def _accept(request: Request, value: Any, device: SimulatedDevice) -> None:
    """Ignore what changes neither result nor counters, since work runs in program order, one launch at a time."""


_READERS: dict[str, Callable[[Request, Any, SimulatedDevice], None]] = {
    "IGNORE": _accept,
    "ACCESS_POLICY_WINDOW": _read_window,
    "COOPERATIVE": _read_cooperative,
    "CLUSTER_DIMENSION": _read_cluster,
    "CLUSTER_SCHEDULING_POLICY_PREFERENCE": _accept,
    "PROGRAMMATIC_STREAM_SERIALIZATION": _read_programmatic,
    "PROGRAMMATIC_EVENT": _read_programmatic_event,
    "PRIORITY": _accept,
    "MEM_SYNC_DOMAIN_MAP": _read_domain_map,
    "MEM_SYNC_DOMAIN": _accept,
    "PREFERRED_CLUSTER_DIMENSION": _read_preferred_cluster,
    "LAUNCH_COMPLETION_EVENT": _read_completion_event,
    "DEVICE_UPDATABLE_KERNEL_NODE": _read_updatable,
    "PREFERRED_SHARED_MEMORY_CARVEOUT": _read_carveout,
    "NVLINK_UTIL_CENTRIC_SCHEDULING": _accept,
    "PORTABLE_CLUSTER_SIZE_MODE": _read_portable_cluster,
    "SHARED_MEMORY_MODE": _accept,
}
