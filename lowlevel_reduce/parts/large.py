"""Arrays larger than the device: read from memory, files or iterators in pieces, with the bits of the whole array."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.arguments import chosen_axes, integer
from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.calls.options import key_options
from lowlevel_reduce.calls.threads import here
from lowlevel_reduce.driver import Buffer, Stream
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.operators import resolve, result_tuple
from lowlevel_reduce.parts.chunks import check_length
from lowlevel_reduce.parts.combining import PARTIAL_DTYPE, divided, rooted_for
from lowlevel_reduce.parts.cut import Cut, Place
from lowlevel_reduce.parts.feed import Feed, Step
from lowlevel_reduce.parts.fold import fold_plan
from lowlevel_reduce.parts.local import pieces_of
from lowlevel_reduce.parts.problem import Problem
from lowlevel_reduce.parts.sources import Source, _Pieces, chunks_source, source_of
from lowlevel_reduce.parts.whole import arranged

if TYPE_CHECKING:
    from lowlevel_reduce.operators import ElementMap, Reduction

__all__ = ["PIECE_BYTES", "reduce_chunks", "reduce_large"]

PIECE_BYTES = 128 << 20
"""Bytes of device memory for pieces, if that is not limited."""

_LEAST_CHUNKS = 8
"""Into so many chunks a piece is cut if it has so many leaves: its end then wastes an eighth of it at most."""


def reduce_large(
    x: Any,
    op: Any = "sum",
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    accumulate: str | None = None,
    stream: Any = None,
    nan: str = "propagate",
    initial: Any = None,
    ddof: float = 0,
    last: bool = False,
    map: str | ElementMap | None = None,
    max_device_bytes: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Reduce an array that need not fit into device memory; the bits are those of `lowlevel_reduce.reduce` of it.

    It is read in pieces, through at most 80 MiB of page-locked memory, out of which the link copies what is read; the
    next call has it, and `lowlevel_reduce.empty_cache` frees it. Several threads read: arrays and files without gaps as
    they lie, of others what NumPy gathers. Where no order of the axes has the rows one behind the other, as for all of
    an array in Fortran order, or where a leaf's rows side by side have more than 64 MiB, so that a piece would be short
    runs of the file, it comes to the device whole if it fits; else NumPy gathers that, too. A file that is given by its
    path is read without a mapping: if somebody cuts it short meanwhile, that is a ValueError. A `numpy.memmap` is the
    caller's mapping, whose file must stay as long as it is: that is asked before each read of some MiB, but if it
    becomes shorter during one, the system ends the process by SIGBUS, as it does wherever a mapping is read.

    Parameters
    ----------
    x : numpy.ndarray, numpy.memmap, path of a ``.npy`` file, or list of them
        The array. Several are one, joined along their first axis.
    max_device_bytes : int, optional
        How much device memory may be allocated, for pieces, partials and results. By default a piece has 64 MiB, and
        an array that comes whole at most a quarter of what is free.
    progress : callable, optional
        ``progress(done, total)`` is called with bytes as they are read.
    op, axis, keepdims, dtype, accumulate, stream, nan, initial, ddof, last, map
        As for `lowlevel_reduce.reduce`.

    Returns
    -------
    DeviceArray or named tuple of them
        As of `lowlevel_reduce.reduce`. The host has waited for all of it.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, and errors from below
        As `lowlevel_reduce.reduce`; a ValueError also if `max_device_bytes` is too small for one leaf of each row that
        lies beside others, or a file ends too early, as one that was cut short since.
    OSError
        If a file cannot be read.
    """
    opened = source_of(x)
    try:
        source, problem = _arranged(
            opened, axis, keepdims, op, initial, ddof,
            accumulate=accumulate, dtype=dtype, nan=nan, last=last, map=map,
        )  # fmt: skip
        return _reduced(source, problem, here().stream_of(stream, None), max_device_bytes, progress)
    finally:
        opened.close()


def reduce_chunks(
    chunks: Iterable[Any],
    op: Any = "sum",
    *,
    length: int,
    dtype: Any = None,
    accumulate: str | None = None,
    stream: Any = None,
    nan: str = "propagate",
    initial: Any = None,
    ddof: float = 0,
    last: bool = False,
    map: str | ElementMap | None = None,
    max_device_bytes: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Any:
    """Reduce one array that an iterable yields in arrays of any length, one behind the other, as `reduce_large`.

    Parameters
    ----------
    chunks : iterable of arrays
        NumPy arrays of one type, or what NumPy makes such of; of any shape, their elements taken in C order.
    length : int
        How many elements they have together: the tree needs to know it before.
    op, dtype, accumulate, stream, nan, initial, ddof, last, map, max_device_bytes, progress
        As for `reduce_large`.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, and errors from below
        As `reduce_large`; or if there are fewer or more elements, or of another type, or there is no chunk.
    """
    whole = integer(length, "length is an integer")
    if whole < 0:
        raise ValueError(f"length is 0 or more, not {whole}")
    source = chunks_source(chunks, whole)
    check_length(whole, element_type(source.dtype))
    found, problem = _arranged(
        source, None, False, op, initial, ddof,
        accumulate=accumulate, dtype=dtype, nan=nan, last=last, map=map,
    )  # fmt: skip
    result = _reduced(found, problem, here().stream_of(stream, None), max_device_bytes, progress)
    assert isinstance(source, _Pieces)  # noqa: S101 - chunks_source returns no other
    source.check_end()
    return result


def _arranged(
    source: Source, axis: Any, keepdims: bool, op: Any, initial: Any, ddof: float, **asked: Any
) -> tuple[Source, Problem]:
    """Return an array seen as rows of one reduced axis, and what reduces it; it is read in another order if need be."""
    element, shape = element_type(source.dtype), source.shape
    axes = list(chosen_axes(axis, len(shape)))
    result = tuple(1 if each in axes else size for each, size in enumerate(shape) if keepdims or each not in axes)
    source, sizes, whole = arranged(source, axes)
    options = key_options(op, **asked)
    accumulate, result_dtype = options.pop("accumulate"), options.pop("result_dtype")
    reduction = divided(op, initial=initial is not None, ddof=ddof, **options)
    if reduction.two_arrays:
        raise ValueError(f"{reduction.name} takes two arrays, and pieces are of one: reduce takes both, by second=")
    types = reduction.types(element, accumulate, result_dtype)
    if initial is not None:
        reduction.initial_words(initial, types)
    if sizes[1] == 0:
        resolve(op, initial=initial is not None, ddof=ddof, **options).empty_results(types, initial)
    options["accumulate"] = accumulate
    return source, Problem(*sizes, result, op, reduction, types, initial, ddof, options, whole)


def _pieces_bytes(problem: Problem, most: int | None) -> int:
    """Return how many bytes pieces may have, and partials or results on their way beside them; raises ValueError."""
    total = problem.before * max(problem.row_bytes, problem.beside_bytes)
    least = min(total, 2 * problem.types.element.leaf * problem.types.element.itemsize)
    if most is None:
        return max(min(PIECE_BYTES, total), least, 16)
    most = integer(most, "max_device_bytes is an integer")
    left = (most - problem.result_bytes) // 2
    if left < least:
        raise ValueError(
            f"max_device_bytes={most} is too little: the results take {problem.result_bytes} bytes, pieces and what "
            f"is made of them {2 * least} or more"
        )
    return max(min(PIECE_BYTES, total, left), 16)


def _reduced(
    source: Source,
    problem: Problem,
    stream: Stream,
    most: int | None,
    progress: Callable[[int, int], object] | None,
) -> Any:
    pieces_bytes = _pieces_bytes(problem, most)
    total = problem.rows * problem.length * problem.types.element.itemsize
    told = None if progress is None else (lambda done: progress(done, total))
    results = problem.reduction.results
    shape = problem.shape if results == 1 else (results, *problem.shape)
    with stream.context.pushed():
        result = DeviceArray.empty(shape, problem.types.result_dtype, stream)
        lies = problem.whole
        if lies is not None and not (lies.is_needed or problem.is_wide(PIECE_BYTES // 2)):
            lies = None
        if lies is not None and lies.fits(problem.result_bytes, most):
            launch = problem.bound(stream, shape=lies.shape, strides_bytes=lies.strides, axis=lies.axes)
            lies.bring(PIECE_BYTES // 2, stream, told, lambda source: launch(source, result.pointer))
        elif problem.rows:
            with Feed(source, pieces_bytes, stream, told) as feed:
                feed.run(_Rows(problem, feed, result, stream, pieces_bytes, most).steps())
    if results == 1:
        return result
    names = problem.reduction.result_names
    return result_tuple(problem.reduction.name, names)(*(result.plane(k) for k in range(results)))


class _Rows:
    """The walk through an array: blocks of whole rows, or the parts of rows that are larger than a piece."""

    def __init__(
        self,
        problem: Problem,
        feed: Feed,
        result: DeviceArray,
        stream: Stream,
        pieces_bytes: int,
        most: int | None,
    ) -> None:
        self.problem, self.feed, self.result, self.stream = problem, feed, result, stream
        self.piece_bytes, self.pieces_bytes, self.most = feed.piece_bytes, pieces_bytes, most
        self._launches: dict[Any, Any] = {}

    def steps(self) -> Iterator[Step]:
        """Yield the pieces of all rows, each with what reduces it."""
        problem = self.problem
        wide = max(problem.row_bytes, problem.beside_bytes, 1)
        if (problem.row_bytes if self.most is None else wide) <= self.piece_bytes:
            at_once = max(self.piece_bytes // wide, 1)
            for first in range(0, problem.before, at_once):
                yield self._block(first, min(at_once, problem.before - first))
            return
        leaf_bytes = problem.types.element.leaf * problem.types.element.itemsize
        columns = min(max(self.piece_bytes // leaf_bytes, 1), problem.behind)
        for row in range(problem.before):
            for column in range(0, problem.behind, columns):
                yield from self._row(row, column, min(columns, problem.behind - column))

    def _block(self, first: int, count: int) -> Step:
        """Return the piece of some rows that fit into one."""
        problem = self.problem
        of_a_row = problem.length * problem.behind

        def make() -> Any:
            return problem.bound(self.stream, shape=(count, problem.length, problem.behind), axis=1)

        launch = self._kept(("block", count), make)
        runs = [(first * of_a_row, count * of_a_row)]
        return runs, lambda source: self._store(launch, source, first * problem.behind, count * problem.behind)

    def _row(self, row: int, column: int, columns: int) -> Iterator[Step]:
        """Yield the pieces of some rows that lie side by side and do not fit into a piece together."""
        problem, context = self.problem, self.stream.context
        element = problem.types.element
        chunk, at_once = self._cut(columns)
        cut = Cut(problem.length, chunk, 1, (problem.length,))
        rooted = rooted_for(problem.op, element.dtype, rows=columns, where=False, **problem.options)
        size = rooted.results * PARTIAL_DTYPE.itemsize
        apart = -(-cut.chunks * columns * size // 16) * 16
        # The first rows are the most: later ones share this memory.
        partials = self._kept("partials", lambda: Buffer.allocate(apart, context))
        firsts = self._kept("firsts", lambda: Buffer.allocate(columns * element.itemsize, context))

        def make() -> Any:
            made = fold_plan(problem.reduction, problem.types, cut, kept=(1, columns), apart=apart, context=context)
            return made.bind(self.stream, initial=problem.initial)

        def use(source: int, start: int, count: int) -> None:
            if start == 0 and problem.reduction.second == "first":
                there = Buffer.from_pointer(source, columns * element.itemsize, context=context, owner=self.feed)
                firsts.copy_from(there, stream=self.stream, size_bytes=there.size_bytes)
            place = Place(start, count, *divmod(count, chunk))
            self._launch_partials(rooted, columns, place, chunk, source, partials, firsts)
            if start + count == problem.length:
                about = (firsts.pointer,) if problem.reduction.second == "first" else ()
                fold = self._kept(("fold", columns), make)
                self._store(fold, partials.pointer, row * problem.behind + column, columns, *about)

        for start in range(0, problem.length, at_once):
            count = min(at_once, problem.length - start)
            begin = (row * problem.length + start) * problem.behind + column
            runs = [(begin, count * columns)]
            if columns < problem.behind:
                runs = [(begin + each * problem.behind, columns) for each in range(count)]
            yield runs, functools.partial(use, start=start, count=count)

    def _launch_partials(
        self,
        rooted: Reduction,
        columns: int,
        place: Place,
        chunk: int,
        source: int,
        partials: Buffer,
        firsts: Buffer,
    ) -> None:
        context = self.stream.context

        def make() -> list[Any]:
            pieces = pieces_of(rooted, self.problem.types.element.dtype, (1, columns), place, chunk, context)
            return [(each, each.plan.bind(self.stream)) for each in pieces]

        before = place.start // chunk * columns * rooted.results * PARTIAL_DTYPE.itemsize
        for piece, launch in self._kept(("pieces", columns, place.length), make):
            beside = () if not rooted.second else (firsts.pointer + piece.second,)
            launch(source + piece.source, partials.pointer + before + piece.result, *beside)

    def _cut(self, columns: int) -> tuple[int, int]:
        """Return the elements of a chunk and of a piece of rows that lie side by side; raises ValueError."""
        problem = self.problem
        element = problem.types.element
        fits = self.piece_bytes // (columns * element.itemsize)
        chunk = element.leaf
        while chunk * 2 * _LEAST_CHUNKS <= fits:
            chunk *= 2
        words = problem.reduction.size(problem.types)
        of_a_row = -(-problem.length // chunk) * words + element.itemsize
        needed = columns * of_a_row + problem.beside_bytes * columns // problem.behind
        if self.most is not None and needed > self.most - problem.result_bytes - self.pieces_bytes:
            raise ValueError(
                f"max_device_bytes={self.most} is too little: what is made of {columns} rows of {problem.length} "
                f"elements takes {needed} bytes beside pieces of {self.pieces_bytes}"
            )
        return chunk, fits // chunk * chunk

    def _store(self, launch: Any, source: int, first: int, count: int, *second: int) -> None:
        """Launch, and bring the results of `count` rows to where those of row `first` on are."""
        results, itemsize = self.problem.reduction.results, self.result.dtype.itemsize
        if results == 1:
            launch(source, self.result.pointer + first * itemsize, *second)
            return
        # The first rows are the most here as well.
        beside = self._kept("results", lambda: Buffer.allocate(results * count * itemsize, self.stream.context))
        launch(source, beside.pointer, *second)
        for number in range(results):
            target = self.result.pointer + (number * self.problem.rows + first) * itemsize
            place = Buffer.from_pointer(target, count * itemsize, context=self.stream.context, owner=self.result)
            part = Buffer.from_pointer(
                beside.pointer + number * count * itemsize, count * itemsize, context=self.stream.context, owner=beside
            )
            place.copy_from(part, stream=self.stream)

    def _kept(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._launches:
            self._launches[key] = make()
        return self._launches[key]
