"""The launch attributes: the words that they take, and the table that writes each into the driver's struct."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import UnsupportedError

if TYPE_CHECKING:
    from lowlevel_reduce.driver.attribute_values import AccessPolicyWindow, LaunchCompletionEvent, ProgrammaticEvent
    from lowlevel_reduce.driver.config import LaunchConfig

__all__ = ["integer", "native_attributes", "word"]

# The words that a LaunchConfig takes, and the driver's names for them.
ACCESS = {
    "normal": "CU_ACCESS_PROPERTY_NORMAL",
    "streaming": "CU_ACCESS_PROPERTY_STREAMING",
    "persisting": "CU_ACCESS_PROPERTY_PERSISTING",
}
SCHEDULING = {
    "default": "CU_CLUSTER_SCHEDULING_POLICY_DEFAULT",
    "spread": "CU_CLUSTER_SCHEDULING_POLICY_SPREAD",
    "load_balancing": "CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING",
}
DOMAIN = {"default": "CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT", "remote": "CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE"}
PORTABLE_CLUSTER = {
    "default": "CU_LAUNCH_PORTABLE_CLUSTER_MODE_DEFAULT",
    "require_portable": "CU_LAUNCH_PORTABLE_CLUSTER_MODE_REQUIRE_PORTABLE",
    "allow_non_portable": "CU_LAUNCH_PORTABLE_CLUSTER_MODE_ALLOW_NON_PORTABLE",
}
SHARED_MEMORY = {
    "default": "CU_SHARED_MEMORY_MODE_DEFAULT",
    "require_portable": "CU_SHARED_MEMORY_MODE_REQUIRE_PORTABLE",
    "allow_non_portable": "CU_SHARED_MEMORY_MODE_ALLOW_NON_PORTABLE",
    "allow_oversized": "CU_SHARED_MEMORY_MODE_ALLOW_OVERSIZED_SHARED_MEMORY",
    "prefer_oversized": "CU_SHARED_MEMORY_MODE_PREFER_OVERSIZED_SHARED_MEMORY",
}


def integer(name: str, value: Any, least: int, most: int) -> int:
    """Return `value` as an int between `least` and `most`, or say what is wrong with it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{name} is {least} to {most}, not {number}")
    return number


def word(name: str, value: Any, words: dict[str, str]) -> None:
    """Refuse a `value` that is none of the `words`."""
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name} is one of {', '.join(map(repr, words))}, not {value!r}")


def native_attributes(config: LaunchConfig) -> list[Any]:
    """Return the driver's structs for the attributes that `config` turns on, in the order of their numbers.

    Raises
    ------
    UnsupportedError
        If the installed bindings do not know one of them, or the value that it is to have.
    """
    return [
        _native_attribute(name, attribute, since, write, value)
        for name, (attribute, since, write) in _TABLE.items()
        # By identity: a priority or a carveout of 0 is on, and equal to False.
        if (value := getattr(config, name)) is not None and value is not False
    ]


def _native_attribute(name: str, attribute: str, since: str, write: Callable[[Any, Any], None], value: Any) -> Any:
    native = binding.native()
    identity = getattr(native.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{attribute}", None)
    if identity is None:
        raise UnsupportedError(f"{name} needs cuda-bindings {since}; installed is {binding.bindings_version()}")
    struct = native.CUlaunchAttribute()
    struct.id = identity
    write(struct.value, value)
    return struct


def _enumerated(enumeration: str, name: str) -> Any:
    """Return a value of one of the driver's enumerations, which may be younger than the attribute that takes it."""
    value = getattr(getattr(binding.native(), enumeration), name, None)
    if value is None:
        raise UnsupportedError(f"{name} needs newer bindings; installed is {binding.bindings_version()}")
    return value


# A nested write reaches the parent struct: value.clusterDim is a view, not a copy.


def _write_window(value: Any, window: AccessPolicyWindow) -> None:
    native = value.accessPolicyWindow
    native.base_ptr, native.num_bytes, native.hitRatio = window.pointer, window.size_bytes, window.hit_ratio
    native.hitProp = _enumerated("CUaccessProperty", ACCESS[window.hit])
    native.missProp = _enumerated("CUaccessProperty", ACCESS[window.miss])


def _write_cluster(value: Any, cluster: tuple[int, int, int]) -> None:
    value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster


def _write_preferred_cluster(value: Any, cluster: tuple[int, int, int]) -> None:
    value.preferredClusterDim.x, value.preferredClusterDim.y, value.preferredClusterDim.z = cluster


def _write_scheduling(value: Any, policy: str) -> None:
    value.clusterSchedulingPolicyPreference = _enumerated("CUclusterSchedulingPolicy", SCHEDULING[policy])


def _write_programmatic_event(value: Any, wanted: ProgrammaticEvent) -> None:
    native = value.programmaticEvent
    # Its flags stay 0: the one that cuEventRecordWithFlags knows besides, the driver does not take here.
    native.event = binding.native().CUevent(wanted.event.handle)
    native.triggerAtBlockStart = int(wanted.trigger_at_block_start)


def _write_completion_event(value: Any, wanted: LaunchCompletionEvent) -> None:
    value.launchCompletionEvent.event = binding.native().CUevent(wanted.event.handle)


def _write_domain_map(value: Any, domains: tuple[int, int]) -> None:
    value.memSyncDomainMap.default_, value.memSyncDomainMap.remote = domains


def _write_domain(value: Any, domain: str) -> None:
    value.memSyncDomain = _enumerated("CUlaunchMemSyncDomain", DOMAIN[domain])


def _write_updatable(value: Any, updatable: bool) -> None:
    value.deviceUpdatableKernelNode.deviceUpdatable = int(updatable)


def _write_portable_cluster(value: Any, mode: str) -> None:
    value.portableClusterSizeMode = _enumerated("CUlaunchAttributePortableClusterMode", PORTABLE_CLUSTER[mode])


def _write_shared_memory(value: Any, mode: str) -> None:
    value.sharedMemoryMode = _enumerated("CUsharedMemoryMode", SHARED_MEMORY[mode])


def _plain(field: str) -> Callable[[Any, Any], None]:
    return lambda value, wanted: setattr(value, field, int(wanted))


# Field of LaunchConfig: name of the CUlaunchAttributeID, the bindings that brought it, how its value is written.
# Number 3, SYNCHRONIZATION_POLICY, is valid for streams only: see Stream.synchronization_policy.
_TABLE: dict[str, tuple[str, str, Callable[[Any, Any], None]]] = {
    "access_policy_window": ("ACCESS_POLICY_WINDOW", "12.9", _write_window),
    "cooperative": ("COOPERATIVE", "12.9", _plain("cooperative")),
    "cluster": ("CLUSTER_DIMENSION", "12.9", _write_cluster),
    "cluster_scheduling": ("CLUSTER_SCHEDULING_POLICY_PREFERENCE", "12.9", _write_scheduling),
    "programmatic_stream_serialization": (
        "PROGRAMMATIC_STREAM_SERIALIZATION",
        "12.9",
        _plain("programmaticStreamSerializationAllowed"),
    ),
    "programmatic_event": ("PROGRAMMATIC_EVENT", "12.9", _write_programmatic_event),
    "priority": ("PRIORITY", "12.9", _plain("priority")),
    "memory_sync_domain_map": ("MEM_SYNC_DOMAIN_MAP", "12.9", _write_domain_map),
    "memory_sync_domain": ("MEM_SYNC_DOMAIN", "12.9", _write_domain),
    "preferred_cluster": ("PREFERRED_CLUSTER_DIMENSION", "12.9", _write_preferred_cluster),
    "launch_completion_event": ("LAUNCH_COMPLETION_EVENT", "12.9", _write_completion_event),
    "device_updatable": ("DEVICE_UPDATABLE_KERNEL_NODE", "12.9", _write_updatable),
    "shared_memory_carveout": ("PREFERRED_SHARED_MEMORY_CARVEOUT", "12.9", _plain("sharedMemCarveout")),
    "nvlink_centric_scheduling": ("NVLINK_UTIL_CENTRIC_SCHEDULING", "13.0", _plain("nvlinkUtilCentricScheduling")),
    "portable_cluster_size_mode": ("PORTABLE_CLUSTER_SIZE_MODE", "13.2", _write_portable_cluster),
    "shared_memory_mode": ("SHARED_MEMORY_MODE", "13.2", _write_shared_memory),
}
