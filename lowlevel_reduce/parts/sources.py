"""Where elements larger than the device come from: arrays, files and iterators, all read in C order by their number."""

from __future__ import annotations

import bisect
import itertools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np

from lowlevel_reduce.arguments import not_masked, shown
from lowlevel_reduce.dtypes import element_type

__all__ = ["Source", "chunks_source", "memory_source", "source_of"]

Array = np.ndarray[Any, Any]


class Source(ABC):
    """Elements in C order.

    Attributes
    ----------
    shape : tuple of int
        The array's shape.
    dtype : numpy.dtype
        Type of the elements.
    is_random : bool
        Whether parts may be read in any order, and by several threads at once; otherwise one after the other.
    is_contiguous : bool
        Whether elements that follow each other lie side by side.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_random: bool = True
    is_contiguous: bool = True

    @abstractmethod
    def read(self, out: Array, start: int) -> None:
        """Fill an array of one axis with the elements from number `start` on."""

    def in_order(self) -> None:  # noqa: B027 - only files have somebody to tell
        """Say that parts will be read in about the order in which they lie."""

    def close(self) -> None:  # noqa: B027 - only files have something to close
        """Close files; a second call does nothing."""


class _Memory(Source):
    """A contiguous array in memory, or mapped into it."""

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        self._flat = array.reshape(-1)

    def read(self, out: Array, start: int) -> None:
        np.copyto(out, self._flat[start : start + len(out)])


class _Strided(Source):
    """An array in memory, or mapped into it, of any strides: NumPy gathers its elements."""

    is_contiguous = False

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype, self._array = array.shape, array.dtype, array

    def read(self, out: Array, start: int) -> None:
        _gather(out, self._array, start)


def _gather(out: Array, array: Array, start: int) -> None:
    """Fill `out` with the elements of an array of one axis or more, from number `start` in C order on."""
    if array.ndim == 1:
        np.copyto(out, array[start : start + len(out)])
        return
    inner = math.prod(array.shape[1:])
    number, begin = divmod(start, inner)
    done = 0
    if begin:
        done = min(inner - begin, len(out))
        _gather(out[:done], array[number], begin)
        number += 1
    whole = (len(out) - done) // inner
    if whole:
        place = out[done : done + whole * inner].reshape(whole, *array.shape[1:])
        np.copyto(place, array[number : number + whole])
        number, done = number + whole, done + whole * inner
    if done < len(out):
        _gather(out[done:], array[number], 0)


class _File(Source):
    """A ``.npy`` file in C order, read without a mapping, whose page faults, one a 4 KiB, take longer."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], begin: int) -> None:
        self.shape, self.dtype = shape, dtype
        self._path, self._begin = path, begin
        self._file: int | None = os.open(path, os.O_RDONLY)

    def read(self, out: Array, start: int) -> None:
        if self._file is None:
            raise ValueError(f"{self._path} is closed")
        into, place = out.view(np.uint8).data, self._begin + start * self.dtype.itemsize
        done = 0
        while done < len(into):
            count = os.preadv(self._file, [into[done:]], place + done)
            if count == 0:
                raise ValueError(
                    f"{self._path} ends after {place + done} bytes, before its array of shape {self.shape}"
                )
            done += count

    def in_order(self) -> None:
        # Threads that read shares in turn do not look sequential to the system, which then reads little ahead: a file
        # that was not in memory took 2 to 8 times as long.
        if self._file is not None and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None


class _Joined(Source):
    """Arrays one behind the other along their first axis."""

    def __init__(self, sources: Sequence[Source]) -> None:
        first = sources[0]
        for number, each in enumerate(sources):
            if each.dtype != first.dtype or each.shape[1:] != first.shape[1:] or not each.shape:
                raise ValueError(
                    "arrays that are joined along their first axis have one type and other axes alike: "
                    f"number {number} is of {each.dtype} and shape {each.shape}, number 0 of {first.dtype} and shape "
                    f"{first.shape}"
                )
        self._sources = sources
        self._sizes = [math.prod(each.shape) for each in sources]
        self._ends = list(itertools.accumulate(self._sizes))
        self.shape = (sum(each.shape[0] for each in sources), *first.shape[1:])
        self.dtype = first.dtype

    def read(self, out: Array, start: int) -> None:
        done, number = 0, bisect.bisect_right(self._ends, start)
        while done < len(out):
            end = self._ends[number]
            count = min(end - start - done, len(out) - done)
            if count:
                self._sources[number].read(out[done : done + count], start + done - end + self._sizes[number])
            done, number = done + count, number + 1

    def in_order(self) -> None:
        for each in self._sources:
            each.in_order()

    def close(self) -> None:
        for each in self._sources:
            each.close()


class _Pieces(Source):
    """What an iterator yields, one behind the other: read once, in order."""

    is_random = False

    def __init__(self, pieces: Iterator[Array], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        self._pieces, self._rest = pieces, np.empty(0, dtype)

    def read(self, out: Array, start: int) -> None:
        done = 0
        while done < len(out):
            if not len(self._rest):
                try:
                    piece = np.asarray(not_masked(next(self._pieces)))
                except StopIteration:
                    raise ValueError(f"the chunks end after {start + done} elements of {self.shape[0]}") from None
                if piece.dtype != self.dtype:
                    raise TypeError(f"a chunk is of {piece.dtype}, the first of {self.dtype}")
                self._rest = np.ascontiguousarray(piece).reshape(-1)
            count = min(len(self._rest), len(out) - done)
            out[done : done + count] = self._rest[:count]
            self._rest, done = self._rest[count:], done + count

    def check_end(self) -> None:
        """Refuse elements past the length that was told; raises ValueError."""
        more = len(self._rest) or next((np.size(piece) for piece in self._pieces if np.size(piece)), 0)
        if more:
            raise ValueError(f"the chunks have more than the {self.shape[0]} elements that length= says")


def source_of(x: Any) -> Source:
    """Return where the elements of an array, a ``.npy`` file, or several of them as one array, come from.

    Raises
    ------
    TypeError, ValueError
        If it is none of these, a file is damaged, or several do not fit together.
    UnsupportedError
        If the elements cannot be reduced.
    OSError
        If a file cannot be read.
    """
    if isinstance(x, (str, os.PathLike)):
        return _file_source(Path(x))
    if isinstance(x, (np.ndarray, np.generic)):
        array = np.asarray(not_masked(x))
        element_type(array.dtype)
        return memory_source(array)
    if isinstance(x, (list, tuple)) and x and all(isinstance(each, (str, os.PathLike, np.ndarray)) for each in x):
        with ExitStack() as opened:  # what is open when a later one is refused is closed
            sources = [opened.enter_context(closing(source_of(each))) for each in x]
            joined = _Joined(sources)
            opened.pop_all()
        return joined
    raise TypeError(f"what is reduced in chunks is an array of NumPy's, a .npy file or several; not {type(x).__name__}")


def memory_source(array: Array) -> Source:
    """Return where the elements of an array in memory come from, whatever its strides."""
    return _Memory(array) if array.flags.c_contiguous else _Strided(array)


def chunks_source(chunks: Iterable[Any], length: int) -> Source:
    """Return where the elements of an iterable of arrays come from; their type is that of the first.

    Raises
    ------
    TypeError
        If it is no iterable.
    ValueError
        If it is empty.
    """
    try:
        pieces = iter(chunks)
    except TypeError as error:
        raise TypeError(f"chunks are an iterable of arrays, not {shown(chunks)}") from error
    try:
        first = np.asarray(not_masked(next(pieces)))
    except StopIteration:
        raise ValueError("there is no chunk, whose type would be that of the array") from None
    element_type(first.dtype)
    return _Pieces(_behind(first, pieces), (length,), first.dtype)


def _behind(first: Array, pieces: Iterator[Any]) -> Iterator[Array]:
    yield first
    yield from pieces


def _file_source(path: Path) -> Source:
    mapped = np.load(path, mmap_mode="r", allow_pickle=False)  # reads the header alone, and checks the size
    if not isinstance(mapped, np.ndarray):
        raise TypeError(f"{path} is no .npy file, as numpy.save writes it")
    element_type(mapped.dtype)
    if isinstance(mapped, np.memmap) and mapped.flags.c_contiguous and hasattr(os, "preadv"):
        return _File(path, mapped.shape, mapped.dtype, mapped.offset)
    return source_of(np.asarray(mapped))
