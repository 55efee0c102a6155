"""DLPack capsules of device memory, made by NumPy and then aimed at the device; neither asks the driver anything.

A capsule's tensor is deleted by C code, from any thread, with or without the interpreter's lock, while an exception may
be under way, or after the interpreter has ended. A function in Python cannot do that: it would lose the exception, or
crash the end of the process. NumPy's deleter does. So a NumPy array is made over the device's addresses, which nobody
dereferences, since nobody but the capsule ever has it; NumPy exports that, and of the exported struct the fields for
the device are written here. When the tensor is deleted, that array goes, and with it what keeps the memory alive.

The structs are those of https://dmlc.github.io/dlpack/latest/c_api.html: a DLManagedTensor begins with its DLTensor; a
DLManagedTensorVersioned has that behind the version (two uint32), manager_ctx, deleter and flags (8 bytes each).
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

__all__ = ["capsule_of"]

_CUDA = 2  # kDLCUDA
_ANY_ADDRESS = 256  # for an array of no elements, which some versions of NumPy do not take for one at address 0

# Types that NumPy, or an older one, does not export: those of the same size that stand in for them there, and their
# DLDataTypeCode.
_STAND_INS = {
    "bool": ("|u1", 6),
    "bfloat16": ("<u2", 4),
    "float8_e4m3fn": ("|u1", 10),
    "float8_e5m2": ("|u1", 12),
}

_TENSOR = 32  # bytes before the DLTensor of a DLManagedTensorVersioned
_Place = ctypes.c_uint64 * 2  # how a DLTensor begins: data, and the device's type and ordinal, an int32 each
_CODE = 20  # bytes of a DLTensor before its type's code, behind the number of axes
_MOST_BYTES = 1 << 46

# NumPy writes the versioned struct from 2.1 on. Before, a consumer gets the other one, which each has to understand.
_VERSIONED = tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 1)

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class _Memory(ctypes.c_char * _MOST_BYTES):  # type: ignore[misc]
    """Memory as NumPy is told of it, from an address on, and its owner."""

    __slots__ = ("owner",)

    owner: object


def capsule_of(
    owner: object, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], ordinal: int, *, versioned: bool
) -> Any:
    """Return a capsule with a tensor in C order, in memory of a CUDA device.

    Parameters
    ----------
    owner : object
        Kept alive until the tensor is deleted, or the capsule goes without having been taken.
    pointer, shape, dtype : int, tuple of int, numpy.dtype
        Device address of the first element, lengths of the axes, and type of the elements.
    ordinal : int
        Number of the device.
    versioned : bool
        Whether the consumer takes a struct of DLPack 1, named "dltensor_versioned", instead of "dltensor".

    Raises
    ------
    BufferError
        If DLPack has no such type: dates, texts and records.
    """
    told, code = _told(dtype)
    memory = _Memory.from_address(pointer or _ANY_ADDRESS)
    memory.owner = owner
    array: Any = np.ndarray(shape, told, memory)
    if versioned and _VERSIONED:
        capsule = array.__dlpack__(max_version=(1, 0))
        tensor = _pointer_of(capsule, b"dltensor_versioned") + _TENSOR
    else:
        capsule = array.__dlpack__()
        tensor = _pointer_of(capsule, b"dltensor")
    # The address once more: for an array of no elements, NumPy may have another one.
    place = _Place.from_address(tensor)
    place[0], place[1] = pointer, _CUDA | ordinal << 32
    if code is not None:
        ctypes.c_uint8.from_address(tensor + _CODE).value = code
    return capsule


@functools.lru_cache(maxsize=64)  # a type's name takes as long as all the rest
def _told(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], int | None]:
    """Return the type that NumPy is told of, and the code that is written over it, if it is another one."""
    if dtype.name in _STAND_INS:
        stand_in, code = _STAND_INS[dtype.name]
        return np.dtype(stand_in), code
    if dtype.isbuiltin != 1:
        raise BufferError(f"DLPack has no type for {dtype}")
    return dtype, None
