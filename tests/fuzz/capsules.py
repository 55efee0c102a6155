"""DLPack capsules made by hand, from fields that may be anything."""

import ctypes
from typing import Any

CUDA, FLOAT = 2, 2  # kDLCUDA, kDLFloat

DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

_TENSOR = (
    *(("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32)),
    *(("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)),
    *(("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64))),
    ("byte_offset", ctypes.c_uint64),
)


class Managed(ctypes.Structure):
    """A DLManagedTensor."""

    _fields_ = (*_TENSOR, ("context", ctypes.c_void_p), ("deleter", DELETER))


class Versioned(ctypes.Structure):
    """A DLManagedTensorVersioned."""

    _fields_ = (
        *(("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)),
        *(("context", ctypes.c_void_p), ("deleter", DELETER), ("flags", ctypes.c_uint64)),
        *_TENSOR,
    )


def capsule_of(tensor: ctypes.Structure, name: bytes = b"dltensor") -> Any:
    """Return a capsule with a tensor, which the caller keeps alive, as well as the name."""
    return _new(ctypes.addressof(tensor), name, None)


def axes(values: tuple[int, ...]) -> Any:
    """Return memory for a shape or strides."""
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def tensor_of(address: int, shape: tuple[int, ...], **fields: Any) -> Managed:
    """Return a float32 tensor in C order on device 0, of which some fields are others."""
    tensor = Managed(address, (CUDA, 0), len(shape), FLOAT, 32, 1, axes(shape), None, 0, None, DELETER())
    for name, value in fields.items():
        setattr(tensor, name, value)
    return tensor
