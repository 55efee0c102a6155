"""Tensors as arrays: torch's types and NumPy's, tensors of the CPU as NumPy arrays without a copy, and back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

__all__ = ["NUMPY_TYPES", "as_numpy", "as_tensor", "number_type"]

NUMPY_TYPES: dict[torch.dtype, Any] = {
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.float8_e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
    torch.int8: np.dtype(np.int8),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
}
"""The types that operators read or write."""

_TORCH_TYPES = {dtype: own for own, dtype in NUMPY_TYPES.items()}
_CARRIERS = {1: torch.uint8, 2: torch.int16}


def as_numpy(tensor: torch.Tensor) -> Any:
    """Return a tensor of the CPU as an array; types that torch does not convert are looked at as bytes."""
    tensor = tensor.detach()
    dtype = NUMPY_TYPES.get(tensor.dtype)
    if dtype is None:
        return tensor.numpy()
    if dtype.isbuiltin == 1:
        return tensor.numpy()
    return tensor.contiguous().view(_CARRIERS[dtype.itemsize]).numpy().view(dtype)


def as_tensor(array: Any) -> torch.Tensor:
    """Return an array as a tensor of the CPU; of a scalar a tensor of no axes."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    carrier = {1: np.uint8, 2: np.int16}[array.dtype.itemsize]
    return torch.from_numpy(array.view(carrier)).view(_TORCH_TYPES[array.dtype])


def number_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which row operations compute: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32
