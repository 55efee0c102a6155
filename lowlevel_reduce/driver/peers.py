"""Access of one device's kernels to the memory of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import CudaError

if TYPE_CHECKING:
    from lowlevel_reduce.driver.context import Context

__all__ = ["reaches"]


def reaches(context: Context, other: Context) -> bool:
    """Tell whether kernels of a context can access what ``cuMemAlloc`` allocated in another one, and let them.

    Within a device they can. To another device access is enabled where NVLink connects them, which is known by native
    atomics, and stays enabled: what other libraries do with their own memory does not depend on it. On a bus the driver
    may offer access that goes wrong behind an IOMMU, as NCCL's documentation warns, so that none is taken there.

    Raises
    ------
    CudaError
        If the driver refuses it for a reason other than that there is no connection left.
    """
    if context.device == other.device:
        return True
    if context.is_green or other.is_green:
        return False
    driver = binding.selected()
    known: dict[tuple[int, int], bool] = driver.kept.setdefault("peers", {})
    key = (context.id, other.id)
    found = known.get(key)
    if found is None:
        found = known[key] = _are_connected(context, other) and _enabled(context, other)
    return found


def _are_connected(context: Context, other: Context) -> bool:
    devices = context.device.handle, other.device.handle
    if not binding.call("cuDeviceCanAccessPeer", *devices):
        return False
    atomics = binding.native().CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
    return bool(binding.call("cuDeviceGetP2PAttribute", atomics, *devices))


def _enabled(context: Context, other: Context) -> bool:
    try:
        with context.pushed():
            binding.call("cuCtxEnablePeerAccess", other.handle, 0)
    except CudaError as error:
        if error.name == "CUDA_ERROR_TOO_MANY_PEERS":
            return False
        if error.name != "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED":
            raise
    return True
