"""Arrays of the command line: ``.npz`` archives, standard input and result files, their errors in words."""

from __future__ import annotations

import io
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.format import MAGIC_PREFIX

__all__ = ["ZIP_PREFIX", "check_target", "from_archive", "from_stdin", "parse_scalar", "save", "worded"]

Values = npt.NDArray[Any]

ZIP_PREFIX = b"PK\x03\x04"
_TARGETS = (".npy", ".npz")


@contextmanager
def worded(name: str) -> Iterator[None]:
    """Say in words what is damaged about a file that NumPy cannot read in the block.

    Raises
    ------
    ValueError
        In place of what NumPy and Python raise; errors of the system, such as a file that is not there, stay.
    """
    try:
        with np.errstate(over="ignore"):  # of lengths that no file has, which are refused all the same
            yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(f"{name} is damaged, so that its archive cannot be read: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise ValueError(f"{name} cannot be read: {error}") from error
    except ValueError as error:
        raise ValueError(f"{name} {_reason(str(error))}") from error
    except Exception as error:  # of a damaged header NumPy lets through what Python says: TokenError, OverflowError, …
        if isinstance(error, MemoryError) and str(error):  # NumPy says how much memory is missing, the parser nothing
            raise
        raise ValueError(f"{name} has a header that NumPy cannot read: {type(error).__name__}: {error}") from error


def _reason(said: str) -> str:
    """Return what NumPy says of a file in the words of somebody who has the file."""
    if "mmap length is greater than" in said or "reshape array" in said or "EOF" in said:
        return "is cut off: it has fewer elements than its header says"
    if "Object arrays" in said or "allow_pickle" in said or "Python objects" in said:
        return "holds Python objects, which are not read because they could run code"
    if "Cannot parse header" in said or "header" in said.lower():
        return f"has a damaged header: {said}"
    return f"cannot be read: {said}"


def from_archive(file: Any, name: str, key: str | None) -> Values:
    """Read one array of a ``.npz`` archive.

    Parameters
    ----------
    file : file
        The archive.
    name : str
        Its name in errors.
    key : str, optional
        The array's name; without it the archive must have one array.

    Raises
    ------
    ValueError
        If there is no such array, if there are several and none is named, or if the archive is damaged.
    """
    with worded(name):
        archive = np.load(file, allow_pickle=False)
        with archive:
            there = list(archive.files)
            if key is None and len(there) == 1:
                (key,) = there
            if key in there:
                found: Values = archive[key]
                return found
    listed = ", ".join(there) or "none"
    if key is None:
        raise ValueError(f"{name} has {len(there)} arrays, of which --key names one: {listed}")
    raise ValueError(f"{name} has no array {key!r}; it has {listed}")


def from_stdin(key: str | None) -> Values:
    """Read the array that comes from standard input as a ``.npy`` file, or one of a ``.npz`` archive.

    Raises
    ------
    ValueError
        If it is neither, or damaged.
    """
    data = sys.stdin.buffer.read()
    if data.startswith(ZIP_PREFIX):
        return from_archive(io.BytesIO(data), "standard input", key)
    if not data.startswith(MAGIC_PREFIX):
        raise ValueError("standard input is neither a .npy file nor a .npz archive")
    with worded("standard input"):
        found: Values = np.load(io.BytesIO(data), allow_pickle=False)
    return found


def parse_scalar(text: str) -> complex:
    """Return the number of an argument: an integer if it is written as one, else a float, else a complex number.

    Raises
    ------
    ValueError
        If it is no number.
    """
    for kind in (int, float, complex):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ValueError(f"a start value is a number, not {text!r}")


def check_target(path: Path, results: int = 1) -> None:
    """Refuse a result file that could not be written after the reduction has run.

    Raises
    ------
    ValueError
        If its suffix is another, or that of one array where there are several.
    FileNotFoundError, IsADirectoryError
        If its directory does not exist, or it is one.
    """
    if path.suffix not in _TARGETS:
        raise ValueError(f"{path} ends in none of {', '.join(_TARGETS)}")
    if results > 1 and path.suffix == ".npy":
        raise ValueError(f"a .npy file holds one array, and there are {results}: name a .npz archive")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.parent}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")


def save(path: Path, values: Sequence[Values], names: Sequence[str]) -> None:
    """Write results: one array to a ``.npy`` file, or all by their names to a ``.npz`` archive."""
    check_target(path, len(values))
    with path.open("wb") as file:
        if path.suffix == ".npy":
            np.save(file, values[0], allow_pickle=False)
        else:
            np.savez(file, **dict(zip(names, values, strict=True)))  # type: ignore[arg-type]
