"""What other libraries' arrays say of themselves by their protocols, checked before anybody relies on it.

Each error names the class of the array and the field that is wrong. Errors that a library raises itself pass through,
if they are of a kind that says something: a BufferError of a sparse array, for one.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import sys
from typing import Any, NoReturn

import numpy as np

from lowlevel_reduce.arguments import retold, shown
from lowlevel_reduce.errors import ReduceError, UnsupportedError

__all__ = ["Export", "checked_interface", "device_of", "exports_by_itself", "has_member", "member_of", "raise_clearly"]

_CUDA, _MANAGED = 2, 13  # DLPack's kDLCUDA and kDLCUDAManaged
_HOST = (1, 3)  # kDLCPU and kDLCUDAHost
_VERSION = 3  # of __cuda_array_interface__
_MAJOR = 1  # of DLPack
_MOST_AXES = 64  # of a NumPy array
_MOST_BYTES = 1 << 63
_PLAIN_TYPES = frozenset(np.dtype(code).str for code in "?bhiqBHIQefdFD")


def _name(x: Any) -> str:
    return type(x).__name__


def said_clearly(x: Any, member: str, error: Exception) -> Exception:
    """Return an error of cuda.core's, or of an array that it asks, as one that names the array and one of its members.

    TypeErrors, ValueErrors and BufferErrors stay of their kind, and errors of this package, of the driver and of memory
    as they are. What cuda.core does not implement is an UnsupportedError, and what says nothing, such as an
    AssertionError, a BufferError.
    """
    if isinstance(error, NotImplementedError):
        return UnsupportedError(f"{_name(x)}.{member}: {error}")
    if isinstance(error, (ReduceError, RuntimeError, MemoryError)):
        return error
    if isinstance(error, (TypeError, ValueError, BufferError)):
        return error if _name(x) in str(error) else retold(error, f"{_name(x)}.{member}: {error}")
    return BufferError(f"{_name(x)}.{member} gives no array ({type(error).__name__}: {error})")


def member_of(x: Any, member: str) -> Any:
    """Return a member of a protocol, None if the array has none; what it raises is told as `said_clearly` does."""
    try:
        return getattr(x, member, None)
    except Exception as error:  # noqa: BLE001 - a property may raise anything
        raise_clearly(x, member, error)


def has_member(x: Any, member: str) -> bool:
    """Tell whether an array has a member, even if that is None; raises as `member_of`."""
    try:
        return hasattr(x, member)
    except Exception as error:  # noqa: BLE001 - a property may raise anything
        raise_clearly(x, member, error)


def raise_clearly(x: Any, member: str, error: Exception) -> NoReturn:
    """Raise what `said_clearly` returns for an error that is handled."""
    clear = said_clearly(x, member, error)
    if clear is error:
        raise error
    raise clear from error


def device_of(x: Any) -> tuple[int, int]:
    """Return the type and ordinal of the device that ``__dlpack_device__`` names: a CUDA device.

    Raises
    ------
    TypeError, ValueError
        If it does not return two integers, or they are those of the host or of no device.
    UnsupportedError
        If it is a device of another kind.
    BufferError, and errors that pass through
        What it raises itself, as `said_clearly` tells it.
    """
    asked = member_of(x, "__dlpack_device__")
    if not callable(asked):
        raise TypeError(f"{_name(x)}.__dlpack_device__ is no function, but {shown(asked)}")
    try:
        given = asked()
    except Exception as error:  # noqa: BLE001 - another library's function may raise anything
        raise_clearly(x, "__dlpack_device__", error)
    try:
        kind, ordinal = given
        kind, ordinal = operator.index(kind), operator.index(ordinal)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{_name(x)}.__dlpack_device__() returns a type and an ordinal, not {shown(given)}") from error
    if kind in _HOST:
        raise ValueError(f"{_name(x)} is in host memory; move it to the device, or pass it as a NumPy array")
    if kind not in (_CUDA, _MANAGED):
        raise UnsupportedError(
            f"{_name(x)}.__dlpack_device__() names a device of type {kind}; CUDA's are {_CUDA} and {_MANAGED}"
        )
    if not 0 <= ordinal < 1 << 31:
        raise ValueError(f"{_name(x)}.__dlpack_device__() names the device {ordinal}, which there is not")
    return kind, ordinal


def exports_by_itself(x: Any) -> bool:
    """Tell whether cuda.core does not ask for a capsule, but reads the array by a table of functions of its class."""
    torch = sys.modules.get("torch")
    return hasattr(type(x), "__dlpack_c_exchange_api__") or (torch is not None and isinstance(x, torch.Tensor))


class Export:
    """An array's export by DLPack, to be handed to cuda.core in place of the array: what it gives is looked at.

    Attributes
    ----------
    array : object
        The array.
    device : tuple of int
        What `device_of` returned for it.
    """

    __slots__ = ("array", "device")

    def __init__(self, array: Any, device: tuple[int, int]) -> None:
        self.array = array
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device, which the array is not asked for again."""
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        """Return the array's capsule.

        Raises
        ------
        TypeError
            If it is no capsule with a tensor that nobody has taken yet.
        ValueError
            If the tensor has no shape, no such axes, or is on another device than the array says.
        UnsupportedError
            If it is of a later version of DLPack, or its device is not CUDA's.
        """
        capsule = self.array.__dlpack__(**options)
        _check_capsule(self.array, capsule, self.device)
        return capsule


_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.restype, _is_capsule.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)

# DLTensor up to its shape: data, device, axes, type, shape. The versioned one comes behind the version, the manager's
# context, the deleter and the flags.
_TENSOR = struct.Struct("=QiiiIQ")
_HEADER_BYTES = 32


def _check_capsule(x: Any, capsule: Any, device: tuple[int, int]) -> None:
    address = 0
    if _is_capsule(capsule, b"dltensor"):
        address = _pointer_of(capsule, b"dltensor")
    elif _is_capsule(capsule, b"dltensor_versioned"):
        address = _pointer_of(capsule, b"dltensor_versioned")
        major = ctypes.c_uint32.from_address(address).value
        if major > _MAJOR:
            raise UnsupportedError(f"{_name(x)}.__dlpack__ gives a tensor of DLPack {major}; up to {_MAJOR} is read")
        address += _HEADER_BYTES
    else:
        raise TypeError(f"{_name(x)}.__dlpack__ returns no capsule with a tensor, but {shown(capsule)}")
    _, kind, ordinal, axes, _, shape = _TENSOR.unpack(ctypes.string_at(address, _TENSOR.size))
    if not 0 <= axes <= _MOST_AXES or (axes and not shape):
        raise ValueError(f"{_name(x)}.__dlpack__ gives a tensor of {axes} axes{'' if shape else ' without a shape'}")
    if kind != device[0] or ordinal != device[1]:
        raise ValueError(
            f"{_name(x)}.__dlpack__ gives a tensor on the device {(kind, ordinal)}; __dlpack_device__() says {device}"
        )


def checked_interface(x: Any) -> dict[str, Any]:
    """Return an array's ``__cuda_array_interface__``, which is as version 3 of it says.

    Raises
    ------
    TypeError, ValueError
        If a field is missing, of another type or out of its range, or there is a mask, which would be lost.
    UnsupportedError
        If it is of another version.
    """
    interface: dict[str, Any] = x.__cuda_array_interface__
    try:  # what most have is seen to be right at once
        pointer, readonly = interface["data"]
        plain = (
            type(pointer) is int
            and type(readonly) is bool
            and 0 <= pointer < _MOST_BYTES
            and interface["version"] == _VERSION
            and interface["typestr"] in _PLAIN_TYPES
            and interface.get("mask") is None
            and interface.get("strides") is None
            and len(interface["shape"]) <= _MOST_AXES
            and all(type(size) is int and 0 <= size < _MOST_BYTES for size in interface["shape"])
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        plain = False
    if not plain:
        _check_fields(f"{_name(x)}.__cuda_array_interface__", interface)
    return interface


def _check_fields(what: str, interface: Any) -> None:
    if not isinstance(interface, dict):
        raise TypeError(f"{what} is a dict, not {type(interface).__name__}")
    for field in ("version", "shape", "typestr", "data"):
        if interface.get(field) is None:
            raise TypeError(f"{what} has no {field!r}")
    version = _integer(what, "version", interface["version"], 1, 1 << 31)
    if version != _VERSION:
        raise UnsupportedError(f"{what} is of version {version}; {_VERSION} is read")
    shape = _integers(what, "shape", interface["shape"], 0)
    _check_type(what, interface["typestr"])
    data = interface["data"]
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise TypeError(f"{what}: 'data' is an address and whether it is read-only, not {shown(data)}")
    _integer(what, "data", data[0], 0, 1 << 64)
    if not isinstance(data[1], (bool, np.bool_, int)):
        raise TypeError(f"{what}: 'data' says by a bool whether it is read-only, not by {shown(data[1])}")
    if interface.get("strides") is not None:
        strides = _integers(what, "strides", interface["strides"], -_MOST_BYTES)
        if strides != shape:
            raise ValueError(f"{what}: 'strides' has {strides} entries, 'shape' {shape}")
    if interface.get("mask") is not None:
        raise TypeError(f"{what}: the mask of a masked array would be lost: pass where= if that makes sense")


def _check_type(what: str, typestr: Any) -> None:
    if not isinstance(typestr, str):
        raise TypeError(f"{what}: 'typestr' is a text, not {shown(typestr)}")
    try:
        np.dtype(typestr)
    except (TypeError, ValueError, SyntaxError) as error:
        raise TypeError(f"{what}: 'typestr' {typestr!r} is no type") from error


def _integers(what: str, field: str, values: Any, least: int) -> int:
    """Check a field of integers, and return how many there are."""
    if not isinstance(values, (tuple, list)):
        raise TypeError(f"{what}: {field!r} is a tuple of integers, not {shown(values)}")
    if len(values) > _MOST_AXES:
        raise ValueError(f"{what}: {field!r} has {len(values)} entries; an array has at most {_MOST_AXES} axes")
    for value in values:
        _integer(what, field, value, least, _MOST_BYTES)
    return len(values)


def _integer(what: str, field: str, value: Any, least: int, beyond: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what}: {field!r} holds integers, not {shown(value)}")
    if not least <= number < beyond:
        raise ValueError(f"{what}: {field!r} holds {number}, which is not from {least} to {beyond - 1}")
    return number
