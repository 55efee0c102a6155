"""Every launch attribute of the driver, by number: its name, since when it exists, and what it does on this device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lowlevel_reduce.driver import AccessPolicyWindow, Context, LaunchConfig
from lowlevel_reduce.errors import CudaError, UnsupportedError
from lowlevel_reduce.study import links, memory, placement, timing
from lowlevel_reduce.study.bench import NO_CLOCK, Bench
from lowlevel_reduce.study.purposes import MEASURED, PURPOSES

__all__ = ["ATTRIBUTES", "Attribute", "rows"]

# The result codes of a driver or a device that does not know an attribute, or not this use of it.
_REFUSALS = frozenset({"CUDA_ERROR_INVALID_CLUSTER_SIZE", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_SUPPORTED"})


@dataclass(frozen=True)
class Attribute:
    """A launch attribute and its demonstration.

    Attributes
    ----------
    id : int
        Its number, a ``CUlaunchAttributeID``.
    name : str
        Its name in that enumeration, without the prefix.
    field : str
        What sets it: a field of `LaunchConfig`, or a property of `Stream`.
    since : str
        The first of the supported releases of the bindings that knows it.
    demonstrate : callable
        Makes its effect visible and returns it in words; raises what the driver raises if the attribute is lacking.
    sample : callable, optional
        For an effect that only a clock shows: the options of a plain launch with the attribute, which is all that can
        be shown on a device without a clock.
    """

    id: int
    name: str
    field: str
    since: str
    demonstrate: Callable[[Bench], str]
    sample: Callable[[Bench], dict[str, Any]] | None = None


def rows(context: Context) -> list[dict[str, Any]]:
    """Demonstrate every launch attribute in `context`; takes a second or two, and up to 1 GiB of device memory.

    The host waits for all work of the context. The observations are meaningful only on an otherwise idle device.
    Nothing is left behind: limits and permissions are restored.

    Returns
    -------
    list of dict
        One for each attribute, by number, with the keys ``id`` (int), ``name``, ``field``, ``since`` (str),
        ``supported`` (bool: bindings, driver and device have it), ``observed`` (str: its effect here in words and
        numbers, or what is lacking), ``purpose`` (str: what it is for) and ``measured`` (str: what it did on an H200).

    Raises
    ------
    ReduceError
        If a demonstration fails for another reason than a lacking attribute.
    """
    with context.pushed(), Bench(context) as bench:
        return [_row(bench, attribute) for attribute in ATTRIBUTES]


def _row(bench: Bench, attribute: Attribute) -> dict[str, Any]:
    try:
        observed, supported = _observe(bench, attribute), True
    except UnsupportedError as error:
        observed, supported = str(error), False
    except CudaError as error:
        if error.name not in _REFUSALS:
            raise
        observed, supported = f"the driver or the device refuses it: {error}", False
    return {
        "id": attribute.id,
        "name": attribute.name,
        "field": attribute.field,
        "since": attribute.since,
        "supported": supported,
        "observed": observed,
        "purpose": PURPOSES[attribute.id],
        "measured": MEASURED[attribute.id],
    }


def _observe(bench: Bench, attribute: Attribute) -> str:
    if bench.has_clock or attribute.sample is None:
        return attribute.demonstrate(bench)
    bench.where(LaunchConfig(1, 32, **attribute.sample(bench)))
    return NO_CLOCK


def _window(bench: Bench) -> dict[str, Any]:
    memory = bench.memory(4096)
    return {"access_policy_window": AccessPolicyWindow(memory.pointer, memory.size_bytes)}


def _programmatic_event(bench: Bench) -> dict[str, Any]:
    return {"programmatic_event": bench.new_event()}


def _completion_event(bench: Bench) -> dict[str, Any]:
    return {"launch_completion_event": bench.new_event()}


def _options(**options: Any) -> Callable[[Bench], dict[str, Any]]:
    return lambda bench: options


ATTRIBUTES = (
    Attribute(1, "ACCESS_POLICY_WINDOW", "access_policy_window", "12.9", memory.access_window, _window),
    Attribute(2, "COOPERATIVE", "cooperative", "12.9", placement.cooperative),
    Attribute(
        3,
        "SYNCHRONIZATION_POLICY",
        "Stream.synchronization_policy",
        "12.9",
        timing.synchronization_policy,
        _options(),
    ),
    Attribute(4, "CLUSTER_DIMENSION", "cluster", "12.9", placement.cluster),
    Attribute(5, "CLUSTER_SCHEDULING_POLICY_PREFERENCE", "cluster_scheduling", "12.9", placement.scheduling),
    Attribute(
        6,
        "PROGRAMMATIC_STREAM_SERIALIZATION",
        "programmatic_stream_serialization",
        "12.9",
        timing.serialization,
        _options(programmatic_stream_serialization=True),
    ),
    Attribute(7, "PROGRAMMATIC_EVENT", "programmatic_event", "12.9", timing.programmatic_event, _programmatic_event),
    Attribute(8, "PRIORITY", "priority", "12.9", timing.priority, _options(priority=0)),
    Attribute(
        9,
        "MEM_SYNC_DOMAIN_MAP",
        "memory_sync_domain_map",
        "12.9",
        memory.domain_map,
        _options(memory_sync_domain_map=(0, 1)),
    ),
    Attribute(
        10, "MEM_SYNC_DOMAIN", "memory_sync_domain", "12.9", memory.domain, _options(memory_sync_domain="remote")
    ),
    Attribute(11, "PREFERRED_CLUSTER_DIMENSION", "preferred_cluster", "12.9", placement.preferred_cluster),
    Attribute(
        12, "LAUNCH_COMPLETION_EVENT", "launch_completion_event", "12.9", timing.completion_event, _completion_event
    ),
    Attribute(13, "DEVICE_UPDATABLE_KERNEL_NODE", "device_updatable", "12.9", placement.device_updatable),
    Attribute(
        14,
        "PREFERRED_SHARED_MEMORY_CARVEOUT",
        "shared_memory_carveout",
        "12.9",
        timing.carveout,
        _options(shared_memory_carveout=100),
    ),
    Attribute(16, "NVLINK_UTIL_CENTRIC_SCHEDULING", "nvlink_centric_scheduling", "13.0", links.nvlink_centric),
    Attribute(17, "PORTABLE_CLUSTER_SIZE_MODE", "portable_cluster_size_mode", "13.2", placement.portable_cluster),
    Attribute(18, "SHARED_MEMORY_MODE", "shared_memory_mode", "13.2", placement.shared_memory_mode),
)
"""All launch attributes; number 15 was never assigned."""
