"""What the competitors share: how one is missing, and an array protocol over somebody's memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowlevel_reduce.dtypes import numpy_dtype

__all__ = ["Missing", "RawArray", "raw_arrays"]


class Missing(Exception):  # noqa: N818  it is no error
    """A competitor that a machine lacks; the message says what."""


class RawArray:
    """Device memory as ``__cuda_array_interface__``; types that it does not know go as unsigned integers."""

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        known = dtype.kind in "biufc" and dtype.name not in ("bfloat16",) and "float8" not in dtype.name
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": dtype.str if known else f"<u{dtype.itemsize}",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }


def raw_arrays(pointers: list[int], shape: tuple[int, ...], dtype: str) -> list[RawArray]:
    """Return the copies of an input as arrays."""
    return [RawArray(pointer, shape, numpy_dtype(dtype)) for pointer in pointers]
