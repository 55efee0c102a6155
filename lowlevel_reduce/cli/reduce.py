"""The ``reduce`` command: checks files, and reduces them as one array in pieces, of any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.format import MAGIC_PREFIX

import lowlevel_reduce as lr
from lowlevel_reduce.cli.output import progress
from lowlevel_reduce.dtypes import element_type

__all__ = ["load", "parse_axis", "reduce_on"]


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


def reduce_on(
    stream: lr.Stream,
    files: Sequence[Path],
    op: str,
    options: Mapping[str, Any],
    max_device_bytes: int | None = None,
) -> tuple[npt.NDArray[Any], ...]:
    """Reduce files as one array, showing the progress, and return the operator's one or more results on the host.

    Parameters
    ----------
    stream : Stream
        The stream to run in; the host waits for it.
    files : sequence of Path
        Files that `load` takes; several are joined along their first axis.
    op : str
        The operator's name.
    options : mapping
        The given keyword arguments of `lowlevel_reduce.reduce`.
    max_device_bytes : int, optional
        As for `lowlevel_reduce.reduce_large`.
    """
    with progress() as bar:
        task = bar.add_task("reducing")
        results = lr.reduce_large(
            files[0] if len(files) == 1 else list(files),
            op,
            stream=stream,
            max_device_bytes=max_device_bytes,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            **options,
        )
        values = tuple(result.numpy() for result in (results if isinstance(results, tuple) else (results,)))
    return values


def describe(
    files: Sequence[Path],
    arrays: Sequence[npt.NDArray[Any]],
    op: str,
    options: Mapping[str, Any],
    values: tuple[npt.NDArray[Any], ...],
) -> dict[str, Any]:
    """Return what ``--json`` prints: what was reduced and how, and the values as nested lists.

    If the operator has several results, which have the same shape, types and values are lists with an item for each.
    """
    array = arrays[0]
    shape = [sum(each.shape[0] for each in arrays), *array.shape[1:]] if len(arrays) > 1 else list(array.shape)
    types, items = [value.dtype.name for value in values], [value.tolist() for value in values]
    return {
        "file": str(files[0]) if len(files) == 1 else [str(file) for file in files],
        "shape": shape,
        "dtype": array.dtype.name,
        "op": op,
        "axis": options.get("axis"),
        "result_shape": list(values[0].shape),
        "result_dtype": types if len(values) > 1 else types[0],
        "value": items if len(values) > 1 else items[0],
    }
