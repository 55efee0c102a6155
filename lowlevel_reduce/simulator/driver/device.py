"""The driver itself and its devices: version, attributes, error texts."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

import ctypes
import uuid
from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.driver.state import State, number, refuse

__all__ = ["Devices"]

_VERSION = 13000
_ATTRIBUTE = "CU_DEVICE_ATTRIBUTE_"
_SPACE = uuid.UUID("5e3b9c52-0c4f-4f0b-9a77-6c1f0a6d5d01")

# The driver's texts for the codes that are returned here; other codes are described by their name.
_TEXTS = {
    "CUDA_SUCCESS": "no error",
    "CUDA_ERROR_INVALID_VALUE": "invalid argument",
    "CUDA_ERROR_OUT_OF_MEMORY": "out of memory",
    "CUDA_ERROR_NOT_INITIALIZED": "initialization error",
    "CUDA_ERROR_INVALID_DEVICE": "invalid device ordinal",
    "CUDA_ERROR_INVALID_IMAGE": "device kernel image is invalid",
    "CUDA_ERROR_INVALID_CONTEXT": "invalid device context",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "no kernel image is available for execution on the device: "
    "the simulated driver takes PTX, not a cubin",
    "CUDA_ERROR_INVALID_PTX": "a PTX JIT compilation failed",
    "CUDA_ERROR_INVALID_HANDLE": "invalid resource handle",
    "CUDA_ERROR_NOT_FOUND": "named symbol not found",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": "context is destroyed",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "too many resources requested for launch",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": "too many blocks in cooperative launch",
    "CUDA_ERROR_NOT_SUPPORTED": "operation not supported",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "cluster misconfiguration",
}


class Devices:
    """Functions of the driver and of its devices, which are all alike."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._attributes = state.device.attributes()

    def cuInit(self, flags: int) -> None:
        if flags:
            refuse("INVALID_VALUE")
        self._state.initialised = True

    def cuDriverGetVersion(self) -> int:
        return _VERSION

    def cuGetErrorString(self, code: Any) -> bytes:
        name: str = cu.CUresult(int(code)).name
        return _TEXTS.get(name, name.removeprefix("CUDA_ERROR_").lower().replace("_", " ")).encode()

    def cuGetErrorName(self, code: Any) -> bytes:
        return bytes(cu.CUresult(int(code)).name, "ascii")

    def cuDeviceGetCount(self) -> int:
        return len(self._state.ordinals)

    def cuDeviceGet(self, ordinal: int) -> Any:
        self._state.check_device(ordinal)
        return cu.CUdevice(ordinal)

    def cuDeviceGetName(self, length: int, device: Any) -> bytes:
        self._state.check_device(device)
        return self._state.device.name.encode()[: length - 1].ljust(length, b"\0")

    def cuDeviceGetAttribute(self, attribute: Any, device: Any) -> int:
        self._state.check_device(device)
        # Zero would be a wrong answer for an unknown attribute, so there is no answer.
        value = self._attributes.get(attribute.name.removeprefix(_ATTRIBUTE))
        return refuse("NOT_SUPPORTED") if value is None else value

    def cuDeviceGetUuid(self, device: Any) -> Any:
        ordinal, identity = self._state.check_device(device), cu.CUuuid()
        name = f"{self._state.device.key} {ordinal}" if ordinal else self._state.device.key
        ctypes.memmove(identity.getPtr(), uuid.uuid5(_SPACE, name).bytes, 16)
        return identity

    cuDeviceGetUuid_v2 = cuDeviceGetUuid  # noqa: N815

    def cuDeviceTotalMem(self, device: Any) -> int:
        self._state.check_device(device)
        return self._state.device.memory_bytes

    def cuMemGetInfo(self) -> tuple[int, int]:
        total = self._state.device.memory_bytes
        return total - self._state.allocated_bytes(self._state.current().ordinal), total

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:
        before, self._state.capture_mode = self._state.capture_mode, number(mode)
        return cu.CUstreamCaptureMode(before)
