"""Bytes that many threads read and write at once, each with a flag that says whether it was ever written."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Storage", "distinct", "word_bytes"]

Array = npt.NDArray[Any]

PADDING = 32
"""The storage is padded to a multiple of this, which no access exceeds, so that views of whole words cover its end."""


def word_bytes(size: int) -> int:
    """Return the size of the words in which `size` bytes are moved."""
    return min(size, 8)


def distinct(keys: Array) -> Array:
    """Return the different keys in ascending order; on few keys in a tenth of the time of ``np.unique``."""
    ordered = np.sort(keys)
    new = np.empty(ordered.size, np.bool_)
    new[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    found: Array = ordered[new]
    return found


class Storage:
    """`size` bytes of memory and their flags.

    Attributes
    ----------
    data, written : numpy.ndarray
        The bytes, and 1 for each that was ever written.
    """

    def __init__(self, size: int) -> None:
        padded = -(-size // PADDING) * PADDING
        self.size = size
        self.data: Array = np.zeros(padded, np.uint8)
        self.written: Array = np.zeros(padded, np.uint8)
        self._complete = False
        self._data = {width: self.data.view(f"u{width}") for width in (1, 2, 4, 8)}
        self._written = {width: self.written.view(f"u{width}") for width in (1, 2, 4, 8)}

    def mark(self, offset: int, size: int) -> None:
        """Flag bytes as written by the host."""
        if not self._complete:
            self.written[offset : offset + size] = 1
            self._complete = size >= self.size or bool(self.written[: self.size].all())

    def forget(self, offset: int, size: int) -> None:
        """Flag bytes as never written."""
        self.written[offset : offset + size] = 0
        self._complete = False

    def load(self, offsets: Array, size: int) -> Array:
        """Return the bytes at each offset, as rows of words."""
        width, index = _index(offsets, size)
        return self._data[width][index]

    def unwritten(self, offsets: Array, size: int) -> Array | None:
        """Return which accesses include bytes that were never written; None if there are none."""
        if self._complete:
            return None
        width, index = _index(offsets, size)
        flags = self._written[width][index] == _ALL_WRITTEN[width]
        return None if np.count_nonzero(flags) == flags.size else ~flags.all(axis=1)

    def store(self, offsets: Array, size: int, words: Array) -> bool:
        """Write rows of words; later rows overwrite earlier ones. Return whether that changed anything."""
        width, index = _index(offsets, size)
        data = self._data[width]
        changed = int(np.count_nonzero(data[index] != words)) > 0
        data[index] = words
        if not self._complete:
            self._written[width][index] = _ALL_WRITTEN[width]
        return changed


_ALL_WRITTEN = {width: int.from_bytes(b"\1" * width, "little") for width in (1, 2, 4, 8)}


def _index(offsets: Array, size: int) -> tuple[int, Array]:
    width = word_bytes(size)
    first = (offsets.astype(np.int64) // width)[:, None]
    return width, first if size == width else first + np.arange(size // width)
