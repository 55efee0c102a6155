"""Files of arrays, read without a mapping, and mappings of the caller's: neither may end the process."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["ArrayFile", "Box", "Mapping", "mapping_of"]

Array = np.ndarray[Any, Any]

GAP_BYTES = 4096
"""Bytes between two elements that are read with them: a call of the system takes about as long as these. Shares of
4 MiB of 1,000 rows in Fortran order took 45 ms of a processor, and 99 with a quarter of it; more made none faster."""

MEMORY_BYTES = 1 << 20
"""What is read at once before its elements are brought into their order, out of a processor's cache: with a quarter or
with eight times of it shares took up to a third longer."""


class ArrayFile:
    """A file, open for reading, that must not end before its array does.

    A mapping would have page faults, one a 4 KiB, which take longer; and what is read of it past the end of a file that
    somebody cuts short ends the process, by SIGBUS, where a read is told so.
    """

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self._path, self._shape = path, shape
        self._file: int | None = os.open(path, os.O_RDONLY)

    def read(self, into: memoryview, place: int) -> None:
        """Fill memory with the bytes from number `place` on; raises ValueError if the file ends before or is closed."""
        if self._file is None:
            raise ValueError(f"{self._path} is closed")
        done = 0
        while done < len(into):
            count = os.preadv(self._file, [into[done:]], place + done)
            if count == 0:
                raise ValueError(f"{self._path} ends after {self.size} bytes, before its array of shape {self._shape}")
            done += count

    def in_order(self) -> None:
        """Say that it will be read in about the order in which it lies."""
        # Threads that read shares in turn do not look sequential to the system, which then reads little ahead: a file
        # that was not in memory took 2 to 8 times as long.
        if self._file is not None and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    @property
    def size(self) -> int:
        """Bytes that it has now."""
        return 0 if self._file is None else os.fstat(self._file).st_size

    def close(self) -> None:
        """Close it; a second call does nothing."""
        if self._file is not None:
            os.close(self._file)
        self._file = None


class Box:
    """Elements of a file that lie apart as an array's strides, none negative, say; parts are taken as of an array."""

    def __init__(
        self, file: ArrayFile, place: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.shape, self.strides, self.ndim = shape, strides, len(shape)
        self._file, self._place, self._dtype = file, place, dtype

    def __getitem__(self, part: int | slice) -> Box:
        if isinstance(part, slice):
            return self._part(0, part.start, part.stop)
        place = self._place + part * self.strides[0]
        return Box(self._file, place, self.shape[1:], self.strides[1:], self._dtype)

    def transposed(self, axes: tuple[int, ...]) -> Box:
        """Return it with its axes in another order."""
        shape, strides = (tuple(of[each] for each in axes) for of in (self.shape, self.strides))
        return Box(self._file, self._place, shape, strides, self._dtype)

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie side by side in C order."""
        extent = self._dtype.itemsize
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1 and stride != extent:
                return False
            extent *= size
        return True

    def flat(self) -> Box:
        """Return a contiguous one as one axis."""
        return Box(self._file, self._place, (math.prod(self.shape),), (self._dtype.itemsize,), self._dtype)

    def copy_to(self, out: Array) -> None:
        """Fill an array of its shape.

        Elements with little between them are read together, the nearest first, and NumPy brings them into their order.
        """
        if self.is_contiguous and out.flags.c_contiguous:
            self._file.read(out.reshape(-1).view(np.uint8).data, self._place)
            return
        axes = sorted((each for each, size in enumerate(self.shape) if size > 1), key=self.strides.__getitem__)
        near, extent = 0, self._dtype.itemsize
        while near < len(axes) and self.strides[axes[near]] <= extent + GAP_BYTES:
            extent += (self.shape[axes[near]] - 1) * self.strides[axes[near]]
            near += 1
        runs = math.prod(self.shape[each] for each in axes[near:])
        if runs * extent > MEMORY_BYTES and axes:
            self._by_halves(out, axes[-1])
            return
        places, strides = [self._place], [0] * self.ndim
        for each in axes[:near]:
            strides[each] = self.strides[each]
        for each in axes[near:]:
            strides[each] = len(places) * extent
            places = [step * self.strides[each] + place for step in range(self.shape[each]) for place in places]
        memory = np.empty(runs * extent, np.uint8)
        for number, place in enumerate(places):
            self._file.read(memory[number * extent : (number + 1) * extent].data, place)
        np.copyto(out, np.ndarray(self.shape, self._dtype, memory.data, strides=strides))

    def _by_halves(self, out: Array, axis: int) -> None:
        size = self.shape[axis]
        half = size // 2
        before = (slice(None),) * axis
        for start, stop in ((0, half), (half, size)):
            place = (*before, slice(start, stop))
            self._part(axis, start, stop).copy_to(out[place])

    def _part(self, axis: int, start: int, stop: int) -> Box:
        shape = (*self.shape[:axis], stop - start, *self.shape[axis + 1 :])
        return Box(self._file, self._place + start * self.strides[axis], shape, self.strides, self._dtype)


class Mapping:
    """The mapping of a file behind a `numpy.memmap` of the caller's, who alone can keep the file as long as it was.

    What is read of it past the file's end ends the process, so it is asked before each read. That does not help if the
    file is cut short during the read; a file that is given by its path is read without a mapping.
    """

    def __init__(self, mapped: np.memmap[Any, Any], memory: Any, end: int) -> None:
        self._name, self._memory, self._end = mapped.filename, memory, end

    def check(self) -> None:
        """Raise ValueError if the file no longer has the array's last byte."""
        size = self._memory.size()  # of the file that is mapped, whatever its name now belongs to
        if size < self._end:
            raise ValueError(f"{self._name} ends after {size} bytes, before the array that is mapped from it")


def mapping_of(array: Array) -> Mapping | None:
    """Return the mapping of which an array's elements are, if it is a `numpy.memmap` or a view of one."""
    root, base = array, array.base
    while isinstance(base, np.ndarray):
        root, base = base, base.base
    if not isinstance(root, np.memmap) or base is None or not array.size:
        return None
    from mmap import mmap  # noqa: PLC0415 - what made the memmap has imported it; arrays in memory do without

    if not isinstance(base, mmap):
        return None
    last = sum((size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True) if stride > 0)
    begin = root.offset + array.ctypes.data - root.ctypes.data
    return Mapping(root, base, begin + last + array.dtype.itemsize)
