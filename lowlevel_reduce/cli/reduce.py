"""The ``reduce`` command: checks files, and reduces them as one array in pieces, of any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.format import MAGIC_PREFIX

import lowlevel_reduce as lr
from lowlevel_reduce.cli.arrays import ZIP_PREFIX, from_archive, from_stdin, worded
from lowlevel_reduce.cli.output import progress
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.parts.sources import source_of

__all__ = ["load", "parse_axis", "reduce_on", "result_names"]

_WHOLE = frozenset({"where", "second", "strategy"})
"""Options that `lowlevel_reduce.reduce` takes and `lowlevel_reduce.reduce_large` does not."""


def load(path: Path, key: str | None = None) -> npt.NDArray[Any]:
    """Map a ``.npy`` file into memory, without reading it, or read an array of a ``.npz`` archive or standard input.

    Parameters
    ----------
    path : Path
        The file, or ``-`` for standard input.
    key : str, optional
        The name of an array in an archive.

    Raises
    ------
    ValueError
        If it is neither kind of file, a damaged one, or has no such array.
    UnsupportedError
        If its elements cannot be reduced.
    """
    array = from_stdin(key) if str(path) == "-" else _from_file(path, key)
    element_type(array.dtype)
    return array


def _from_file(path: Path, key: str | None) -> npt.NDArray[Any]:
    with path.open("rb") as file:
        start = file.read(len(MAGIC_PREFIX))
    if start.startswith(ZIP_PREFIX):
        with path.open("rb") as file:  # of a damaged archive NumPy would leave its own file open
            return from_archive(file, str(path), key)
    if start != MAGIC_PREFIX:
        raise ValueError(f"{path} is no .npy file, as numpy.save writes it, and no .npz archive")
    if key is not None:
        raise ValueError(f"{path} has one array, which has no name: --key is for .npz archives")
    with worded(str(path)):
        mapped: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


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
    arrays: Sequence[npt.NDArray[Any]],
    op: str,
    options: Mapping[str, Any],
    max_device_bytes: int | None = None,
) -> tuple[npt.NDArray[Any], ...]:
    """Reduce files as one array, showing the progress, and return the operator's one or more results on the host.

    Parameters
    ----------
    stream : Stream
        The stream to run in; the host waits for it.
    files, arrays : sequences
        Files, and what `load` returned for each; several are joined along their first axis.
    op : str
        The operator's name.
    options : mapping
        The given keyword arguments of `lowlevel_reduce.reduce`.
    max_device_bytes : int, optional
        As for `lowlevel_reduce.reduce_large`.

    Raises
    ------
    ValueError
        If an option that needs the array as a whole is given together with several files or a limit of memory.
    """
    whole = sorted(_WHOLE & options.keys())
    if whole and (len(files) > 1 or max_device_bytes is not None):
        raise ValueError(f"--{whole[0]} goes with one array that is reduced as a whole, not with pieces of it")
    # Files are read anew, since their mapping is slower; what an archive or standard input had is in memory.
    pieces = [file if isinstance(array, np.memmap) else array for file, array in zip(files, arrays, strict=True)]
    with progress() as bar:
        task = bar.add_task("reducing")
        if whole:
            read = {name: _in_memory(value) for name, value in options.items()}
            results = lr.reduce(_in_memory(arrays[0]), op, stream=stream, **read)
        else:
            results = lr.reduce_large(
                pieces if len(pieces) > 1 else pieces[0],
                op,
                stream=stream,
                max_device_bytes=max_device_bytes,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
                **options,
            )
        if not isinstance(results, tuple):
            return (results.numpy(),)
        on_host: tuple[npt.NDArray[Any], ...] = type(results)(*(result.numpy() for result in results))  # named
        return on_host


def _in_memory(value: Any) -> Any:
    """Return what a mapped file has, read without its mapping: somebody may cut it short; other values as they are."""
    if not isinstance(value, np.memmap):
        return value
    with closing(source_of(str(value.filename))) as source:
        found = np.empty(source.shape, source.dtype)
        if found.size:
            source.read(found.reshape(-1), 0)
    return found


def result_names(op: str, values: tuple[npt.NDArray[Any], ...]) -> tuple[str, ...]:
    """Return the names of an operator's results: those of its named tuple, or that of the operator for a single one."""
    return getattr(values, "_fields", (op,))


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
