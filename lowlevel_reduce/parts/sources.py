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
from lowlevel_reduce.parts.files import ArrayFile, Box, mapping_of

__all__ = ["Source", "chunks_source", "source_of"]

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

    def transposed(self, axes: tuple[int, ...]) -> Source:
        """Return the same elements with the axes in another order, which is closed with this one.

        Raises ValueError if there is no such order.
        """
        raise ValueError("several arrays that are one are reduced over neighbouring axes, and in C order")

    def in_order(self) -> None:  # noqa: B027 - only files have somebody to tell
        """Say that parts will be read in about the order in which they lie."""

    def close(self) -> None:  # noqa: B027 - only files have something to close
        """Close files; a second call does nothing."""


class _Memory(Source):
    """An array in memory, or mapped into it: contiguous, or of any strides, and then NumPy gathers its elements."""

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype, self.is_contiguous = array.shape, array.dtype, array.flags.c_contiguous
        self._array, self._mapping = array, mapping_of(array)
        self._elements = array.reshape(-1) if self.is_contiguous else array

    def read(self, out: Array, start: int) -> None:
        if self._mapping is not None:
            self._mapping.check()
        _gather(out, self._elements, start)

    def transposed(self, axes: tuple[int, ...]) -> Source:
        return _Memory(self._array.transpose(axes))


def _gather(out: Array, array: Array | Box, start: int) -> None:
    """Fill `out` with the elements of an array of one axis or more, from number `start` in C order on."""
    if array.ndim == 1:
        _copy(out, array[start : start + len(out)])
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
        _copy(place, array[number : number + whole])
        number, done = number + whole, done + whole * inner
    if done < len(out):
        _gather(out[done:], array[number], 0)


def _copy(out: Array, part: Array | Box) -> None:
    if isinstance(part, Box):
        part.copy_to(out)
    else:
        np.copyto(out, part)


class _File(Source):
    """A ``.npy`` file, read without a mapping; one that is not in C order in runs, whose elements NumPy gathers."""

    def __init__(self, file: ArrayFile, elements: Box, dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype, self.is_contiguous = elements.shape, dtype, elements.is_contiguous
        self._file, self._whole = file, elements
        self._elements = elements.flat() if self.is_contiguous else elements

    def read(self, out: Array, start: int) -> None:
        inner = math.prod(self._elements.shape[1:])
        if self.is_contiguous or inner > len(out):
            _gather(out, self._elements, start)
            return
        # Whole rows at once: the parts of the first and the last would each be read by themselves, with all that lies
        # between their elements.
        first, begin = divmod(start, inner)
        rows = np.empty((-(-(start + len(out)) // inner) - first) * inner, self.dtype)
        _gather(rows, self._elements, first * inner)
        np.copyto(out, rows[begin : begin + len(out)])

    def transposed(self, axes: tuple[int, ...]) -> Source:
        return _File(self._file, self._whole.transposed(axes), self.dtype)

    def in_order(self) -> None:
        if self.is_contiguous:
            self._file.in_order()

    def close(self) -> None:
        self._file.close()


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
        return _Memory(array)
    if isinstance(x, (list, tuple)) and x and all(isinstance(each, (str, os.PathLike, np.ndarray)) for each in x):
        with ExitStack() as opened:  # what is open when a later one is refused is closed
            sources = [opened.enter_context(closing(source_of(each))) for each in x]
            joined = _Joined(sources)
            opened.pop_all()
        return joined
    raise TypeError(f"what is reduced in chunks is an array of NumPy's, a .npy file or several; not {type(x).__name__}")


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
    if not isinstance(mapped, np.memmap):  # NumPy maps no file without elements
        return _Memory(mapped)
    file = ArrayFile(path, mapped.shape)
    return _File(file, Box(file, mapped.offset, mapped.shape, mapped.strides, mapped.dtype), mapped.dtype)
