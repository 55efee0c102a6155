"""The ``info`` command: collects and shows driver, devices, compiler, cache, prebuilt kernels and bindings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.table import Table

import lowlevel_reduce as lr
from lowlevel_reduce import compiler, driver
from lowlevel_reduce.cli.output import NONE
from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import CacheError, NoCompilerError

__all__ = ["gather", "render"]


def gather() -> dict[str, Any]:
    """Return what was found, in types of JSON; for what is missing, the reason is under ``unavailable``."""
    missing = driver.why_unavailable()
    return {
        "version": lr.__version__,
        "bindings": binding.bindings_version(),
        "driver": {
            "name": binding.selected().name,
            "cuda_version": None if missing else "{}.{}".format(*driver.version()),
            "unavailable": missing,
        },
        "nvrtc": _nvrtc(),
        "cache": _directory(compiler.open_cache),
        "prebuilt": _directory(compiler.open_prebuilt),
        "kernels": _installed(),
        "devices": [] if missing else [_device(device) for device in lr.Device.all()],
    }


def _nvrtc() -> dict[str, Any]:
    try:
        version, architectures = compiler.version(), compiler.supported_architectures()
    except NoCompilerError as error:
        return {"version": None, "architectures": [], "unavailable": str(error)}
    return {"version": "{}.{}".format(*version), "architectures": list(architectures), "unavailable": None}


def _directory(opened: Callable[[], compiler.DiskCache | None]) -> dict[str, Any]:
    """Return what a directory of compiled kernels has; without one, or where it is of no use, nothing."""
    found: dict[str, Any] = {"directory": None, "entries": 0, "bytes": 0, "limit_bytes": None, "unavailable": None}
    try:
        directory = opened()
        if directory is None:
            return found
        directory.check()
    except CacheError as error:
        return found | {"unavailable": str(error)}
    sizes = [entry.size_bytes for entry in directory.entries()]
    return found | {
        "directory": directory.directory,
        "entries": len(sizes),
        "bytes": sum(sizes),
        "limit_bytes": directory.limit_bytes,
    }


def _installed() -> dict[str, Any]:
    """Return what the installed package of kernels has; every file of it is read and verified."""
    kernels = compiler.installed_kernels()
    if kernels is None:
        return {"directory": None, "version": None, "unavailable": None, "packs": []}
    packs = [state._asdict() for state in kernels.states()]
    return {
        "directory": kernels.directory or None,
        "version": kernels.version,
        "unavailable": kernels.problem,
        "packs": packs,
    }


def _device(device: lr.Device) -> dict[str, Any]:
    return {
        "ordinal": device.ordinal,
        "name": device.name,
        "uuid": device.uuid,
        "compute_capability": "{}.{}".format(*device.compute_capability),
        "architecture": device.architecture,
        "multiprocessors": device.multiprocessor_count,
        "threads_per_multiprocessor": device.max_threads_per_multiprocessor,
        "registers_per_multiprocessor": device.registers_per_multiprocessor,
        "memory_bytes": device.total_memory_bytes,
        "l2_bytes": device.l2_bytes,
        "memory_bus_bits": device.memory_bus_bits,
        "memory_clock_khz": device.memory_clock_khz,
        "clock_khz": device.attribute("CLOCK_RATE"),
        "peak_gb_per_s": device.peak_bandwidth / 1e9,
        "shared_per_block_bytes": device.shared_memory_per_block_bytes,
        "shared_per_block_optin_bytes": device.shared_memory_per_block_optin_bytes,
        "shared_per_multiprocessor_bytes": device.shared_memory_per_multiprocessor_bytes,
        "clusters": device.supports_clusters,
        "cooperative_launch": device.supports_cooperative_launch,
        "memory_pools": device.supports_memory_pools,
    }


def render(facts: dict[str, Any]) -> list[Table]:
    """Return what `gather` found as tables: first the software, then one table for each device."""
    software = _pairs("")
    nvrtc, cache, selected = facts["nvrtc"], facts["cache"], facts["driver"]
    software.add_row("lowlevel_reduce", facts["version"])
    software.add_row("bindings", facts["bindings"])
    software.add_row("driver", selected["unavailable"] or f"CUDA {selected['cuda_version']} ({selected['name']})")
    software.add_row("NVRTC", nvrtc["unavailable"] or nvrtc["version"])
    software.add_row("architectures", " ".join(nvrtc["architectures"]) or NONE)
    software.add_row("cubin cache", cache["unavailable"] or cache["directory"] or "off")
    if cache["directory"]:
        limit = f"{cache['limit_bytes'] / 2**20:.0f} MiB"
        software.add_row("", f"{cache['entries']} entries, {cache['bytes']:,} bytes of at most {limit}")
    prebuilt = facts["prebuilt"]
    software.add_row("prebuilt kernels", prebuilt["unavailable"] or prebuilt["directory"] or NONE)
    if prebuilt["directory"]:
        software.add_row("", f"{prebuilt['entries']} entries, {prebuilt['bytes']:,} bytes")
    _add_installed(software, facts["kernels"], {device["architecture"] for device in facts["devices"]})
    return [software, *map(_device_table, facts["devices"])]


def _add_installed(table: Table, kernels: dict[str, Any], wanted: set[str]) -> None:
    table.add_row("installed kernels", kernels["unavailable"] or kernels["directory"] or NONE)
    if kernels["directory"] is None or kernels["unavailable"]:
        return
    for pack in kernels["packs"]:
        found = f"{pack['kernels']} kernels, {pack['size_bytes']:,} bytes"
        table.add_row("", f"{pack['architecture']}: {pack['problem'] or found}")
    for architecture in sorted(wanted - {pack["architecture"] for pack in kernels["packs"]}):
        table.add_row("", f"{architecture}: none, which this machine's GPU needs")


def _device_table(device: dict[str, Any]) -> Table:
    table = _pairs(f"device {device['ordinal']}: {device['name']}")
    kib, yes = 2**10, {True: "yes", False: "no"}
    table.add_row("UUID", device["uuid"])
    table.add_row("compute capability", device["compute_capability"])
    table.add_row("multiprocessors", f"{device['multiprocessors']}, at {device['clock_khz'] / 1e3:.0f} MHz at most")
    table.add_row(
        "of which each holds",
        f"{device['threads_per_multiprocessor']} threads, {device['registers_per_multiprocessor']} registers, "
        f"{device['shared_per_multiprocessor_bytes'] / kib:.0f} KiB of shared memory",
    )
    table.add_row(
        "shared memory of a block",
        f"{device['shared_per_block_bytes'] / kib:.0f} KiB, {device['shared_per_block_optin_bytes'] / kib:.0f} KiB "
        "by opt-in",
    )
    table.add_row("memory", f"{device['memory_bytes'] / 2**30:.1f} GiB; L2 cache {device['l2_bytes'] / 2**20:.0f} MiB")
    table.add_row(
        "memory bus",
        f"{device['memory_bus_bits']} bits at {device['memory_clock_khz'] / 1e3:.0f} MHz: "
        f"{device['peak_gb_per_s']:.0f} GB/s",
    )
    table.add_row("thread-block clusters", yes[device["clusters"]])
    table.add_row("cooperative launch", yes[device["cooperative_launch"]])
    table.add_row("memory pools", yes[device["memory_pools"]])
    return table


def _pairs(title: str) -> Table:
    table = Table(title=title or None, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table
