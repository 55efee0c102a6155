"""Numba's device arrays as the package sees them, over memory of a simulated device."""

import ctypes
import types
from typing import Any


class OwnedPointer:
    """Memory of Numba's own manager."""

    def __init__(self, pointer: int, ordinal: int = 0) -> None:
        self.device_ctypes_pointer = ctypes.c_void_p(pointer)
        self.context = types.SimpleNamespace(device=types.SimpleNamespace(id=ordinal))


class MemoryPointer(OwnedPointer):
    """Memory of somebody else."""


class DeviceNDArray:
    """What of an array is looked at.

    Parameters
    ----------
    array : DeviceArray
        The memory.
    stream : object
        The stream that the array is bound to; 0 for none.
    memory : type
        Whose memory it is.
    """

    def __init__(self, array: Any, stream: Any = 0, memory: type[OwnedPointer] = OwnedPointer) -> None:
        self.array, self.shape, self.dtype, self.stream = array, array.shape, array.dtype, stream
        self.strides = array.strides
        self.gpu_data = memory(array.pointer)
        self.exports = 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.exports += 1
        raise BufferError("DeviceNDArray exports nothing here")


def module() -> Any:
    """Return a module of such arrays."""
    devicearray: Any = types.ModuleType("numba.cuda.cudadrv.devicearray")
    devicearray.DeviceNDArray = DeviceNDArray
    return devicearray
