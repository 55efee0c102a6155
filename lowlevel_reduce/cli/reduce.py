"""The ``reduce`` command: maps a file into memory, copies it to the device in chunks, and calls `reduce`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.format import MAGIC_PREFIX

import lowlevel_reduce as lr
from lowlevel_reduce.cli.output import progress
from lowlevel_reduce.dtypes import element_type

__all__ = ["CHUNK_BYTES", "load", "parse_axis", "upload"]

CHUNK_BYTES = 64 * 2**20
"""Bytes that are read from the file and copied at a time."""


def load(path: Path) -> npt.NDArray[Any]:
    """Map a ``.npy`` file into memory, without reading it.

    Raises
    ------
    ValueError
        If it is not a ``.npy`` file, or a damaged one.
    UnsupportedError
        If its elements cannot be reduced.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
            raise ValueError(f"{path} is no .npy file, as numpy.save writes it")
    try:
        with np.errstate(over="ignore"):  # of lengths that no file has, which are refused all the same
            array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        raise
    except Exception as error:  # of a damaged header NumPy lets through what Python says: TokenError, OverflowError, …
        raise ValueError(f"{path} has a header that NumPy cannot read: {type(error).__name__}: {error}") from error
    element_type(array.dtype)
    return array


def parse_axis(text: str | None) -> int | tuple[int, ...] | None:
    """Return the axes of an argument such as ``--axis 0`` or ``--axis 0,2``; None for all axes.

    Raises
    ------
    ValueError
        If it does not consist of integers.
    """
    if text is None:
        return None
    try:
        axes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--axis takes integers with commas between them, such as 0 or 0,2; not {text!r}") from None
    return axes[0] if len(axes) == 1 else axes


def upload(array: npt.NDArray[Any], stream: lr.Stream) -> lr.DeviceArray:
    """Copy an array of any strides to the device, in C order, showing the progress.

    Parameters
    ----------
    array : ndarray
        The array, mapped or in memory; `CHUNK_BYTES` of a mapped one are in memory at a time.
    stream : Stream
        The stream in whose order the content is available.
    """
    buffer = lr.Buffer.allocate_async(array.nbytes, stream)
    items = max(1, CHUNK_BYTES // array.itemsize)
    # nditer walks in C order whatever the strides are.
    chunks = np.nditer(array, flags=["external_loop", "buffered", "zerosize_ok"], order="C", buffersize=items)
    with progress() as bar:
        task = bar.add_task("copying to the device", total=array.nbytes)
        offset = 0
        for chunk in chunks if array.size else ():
            piece: npt.NDArray[Any] = np.ascontiguousarray(chunk)
            target = lr.Buffer.from_pointer(buffer.pointer + offset, piece.nbytes, context=stream.context, owner=buffer)
            target.copy_from(piece, stream=stream)  # pageable memory has been read when the call returns
            offset += piece.nbytes
            bar.update(task, completed=offset)
    return lr.DeviceArray(buffer, array.dtype, array.shape, stream)


def reduce_on(
    stream: lr.Stream, array: npt.NDArray[Any], op: str, options: Mapping[str, Any]
) -> tuple[npt.NDArray[Any], ...]:
    """Copy an array to the device, reduce it, and return the operator's one or more results on the host.

    Parameters
    ----------
    stream : Stream
        The stream to run in; the host waits for it.
    array : ndarray
        As `load` returns it.
    op : str
        The operator's name.
    options : mapping
        The given keyword arguments of `lowlevel_reduce.reduce`.
    """
    results = lr.reduce(upload(array, stream), op, stream=stream, **options)
    return tuple(result.numpy() for result in (results if isinstance(results, tuple) else (results,)))


def describe(
    file: Path, array: npt.NDArray[Any], op: str, options: Mapping[str, Any], values: tuple[npt.NDArray[Any], ...]
) -> dict[str, Any]:
    """Return what ``--json`` prints: what was reduced and how, and the values as nested lists.

    If the operator has several results, which have the same shape, types and values are lists with an item for each.
    """
    types, items = [value.dtype.name for value in values], [value.tolist() for value in values]
    return {
        "file": str(file),
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "op": op,
        "axis": options.get("axis"),
        "result_shape": list(values[0].shape),
        "result_dtype": types if len(values) > 1 else types[0],
        "value": items if len(values) > 1 else items[0],
    }
