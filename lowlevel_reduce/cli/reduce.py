"""The ``reduce`` command: a file mapped into memory, copied to the device in chunks, and reduced by the public call."""

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
"""How much is read from the file and copied at once."""


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
    """Return the axes that ``--axis 0`` or ``--axis 0,2`` names, None for all.

    Raises
    ------
    ValueError
        If it names none.
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
        Mapped or in memory; `CHUNK_BYTES` of it are in memory at once.
    stream : Stream
        In whose order the content is there.
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
            target.copy_from(piece, stream=stream)  # from pageable memory: read when the call returns
            offset += piece.nbytes
            bar.update(task, completed=offset)
    return lr.DeviceArray(buffer, array.dtype, array.shape, stream)


def reduce_on(
    stream: lr.Stream, array: npt.NDArray[Any], op: str, options: Mapping[str, Any]
) -> tuple[npt.NDArray[Any], ...]:
    """Copy an array to the device and return its reductions, on the host: one, or those that the operator has.

    Parameters
    ----------
    stream : Stream
        Where; waited for.
    array : ndarray
        As `load` returns it.
    op : str
        The operator's name.
    options : mapping
        Keyword arguments of `lowlevel_reduce.reduce`, those that were asked for.
    """
    results = lr.reduce(upload(array, stream), op, stream=stream, **options)
    return tuple(result.numpy() for result in (results if isinstance(results, tuple) else (results,)))


def describe(
    file: Path, array: npt.NDArray[Any], op: str, options: Mapping[str, Any], values: tuple[npt.NDArray[Any], ...]
) -> dict[str, Any]:
    """Return what ``--json`` prints: what was reduced how, and the values as nested lists.

    Of an operator with several results, whose shape is the same, types and values are a list with an item for each.
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
