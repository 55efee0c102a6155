"""Tensors as arrays: torch's types and NumPy's, tensors of the CPU as NumPy arrays without a copy, and back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from lowlevel_reduce.errors import UnsupportedError

__all__ = ["as_numpy", "as_tensor", "number_type", "numpy_type", "torch_type"]

_BUILT_IN = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
             "float16", "float32", "float64", "complex64", "complex128")  # fmt: skip
_OTHER = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
_NUMPY_TYPES: dict[torch.dtype, Any] = {
    **{getattr(torch, name): np.dtype(name) for name in _BUILT_IN},
    **{getattr(torch, name): np.dtype(getattr(ml_dtypes, name)) for name in _OTHER},
}
_TORCH_TYPES = {dtype: own for own, dtype in _NUMPY_TYPES.items()}
_CARRIERS = {1: torch.uint8, 2: torch.int16}


def numpy_type(dtype: torch.dtype) -> Any:
    """Return NumPy's type for one of torch's.

    Raises
    ------
    UnsupportedError
        If there is none.
    """
    found = _NUMPY_TYPES.get(dtype)
    if found is None:
        raise UnsupportedError(f"{dtype} is no type of elements")
    return found


def torch_type(dtype: Any) -> torch.dtype:
    """Return torch's type for one of NumPy's that `numpy_type` returns."""
    return _TORCH_TYPES[dtype]


def as_numpy(tensor: torch.Tensor) -> Any:
    """Return a tensor of the CPU as an array; types that torch does not convert are looked at as bytes."""
    tensor = tensor.detach()
    dtype = numpy_type(tensor.dtype)
    if dtype.isbuiltin == 1:
        return tensor.numpy()
    return tensor.contiguous().view(_CARRIERS[dtype.itemsize]).numpy().view(dtype)


def as_tensor(array: Any) -> torch.Tensor:
    """Return an array as a tensor of the CPU; of a scalar a tensor of no axes."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    carrier = {1: np.uint8, 2: np.int16}[array.dtype.itemsize]
    return torch.from_numpy(array.view(carrier)).view(torch_type(array.dtype))


def number_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which row operations compute: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32
