"""Partials of a shard's chunks and their fold, as the executor of calls knows, prepares and launches them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from lowlevel_reduce.arguments import flag, real
from lowlevel_reduce.calls.forms import Form
from lowlevel_reduce.calls.options import forced_strategy, initial_key, key_options
from lowlevel_reduce.calls.prepared import Prepared, Results
from lowlevel_reduce.driver import Buffer
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.layout import is_contiguous
from lowlevel_reduce.parts import cut
from lowlevel_reduce.parts.all_chunks import all_chunks_plan, suits
from lowlevel_reduce.parts.chunks import check_chunk, check_length
from lowlevel_reduce.parts.combining import PARTIAL_DTYPE, combine_plan, rooted_of
from lowlevel_reduce.parts.padded import ABSENT_BYTE, padded_rows
from lowlevel_reduce.plans.launch import Extents

if TYPE_CHECKING:
    from lowlevel_reduce.arrays.allocator import Allocator
    from lowlevel_reduce.arrays.device_array import ArrayView
    from lowlevel_reduce.calls.execute import Made
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.calls.threads import Thread
    from lowlevel_reduce.operators import Reduction

__all__ = ["PreparedChunks", "described_chunks", "described_fold", "flat", "fold_problem", "plain_options"]


class _Words(NamedTuple):
    """What the executor asks of a plan: one result, of words."""

    results: int = 1
    result_dtype: np.dtype[Any] = PARTIAL_DTYPE


class _Piece(NamedTuple):
    """Chunks of equal length, and where their arrays begin in bytes: in the shard, in the second array, in the result.

    A first element is the same for all of them.
    """

    launch: Prepared
    source: int
    second: int
    result: int


class PreparedChunks(Prepared):
    """The partials of a shard's chunks: the launches of the whole ones and of the rest, and the absent ones' bytes."""

    __slots__ = ("_absent_bytes", "_pieces")

    def __init__(
        self, place: Place, shape: tuple[int, int], pieces: tuple[_Piece, ...], extents: Extents, absent_bytes: int
    ) -> None:
        plan = cast("Form", _Words())  # of which no more is asked
        super().__init__(plan, place, Results.of(plan, shape), (), lambda: extents, (0, 0, 0, 0), 0)
        self._pieces, self._absent_bytes = pieces, absent_bytes

    @property
    def is_nothing(self) -> bool:
        """Whether there are no partials, absent ones included."""
        return not self.result_bytes

    @property
    def is_interrupted(self) -> bool:
        """As of its launches."""
        return any(piece.launch.is_interrupted for piece in self._pieces)

    def launch(self, source: int, result: int, second: int = 0) -> bool:
        """Put the launches into the stream; False if one of them cannot be made now: then it counts as not made."""
        if self._absent_bytes:
            self._mark(result)
        for launch, begin, beside, place in self._pieces:
            if not launch.launch(source + begin, result + place, second and second + beside):
                return False
        return True

    def launch_with(self, memory: Allocator, source: int, result: int, second: int = 0) -> None:
        """Put the launches into the stream, each with a workspace of its own."""
        if self._absent_bytes:
            self._mark(result)
        for launch, begin, beside, place in self._pieces:
            launch.launch_with(memory, source + begin, result + place, second and second + beside)

    def _mark(self, result: int) -> None:
        """Fill the absent partials, which lie behind the others, with the byte that says so."""
        size, place = self._absent_bytes, self.place
        behind = result + self.result_bytes - size
        Buffer.from_pointer(behind, size, context=place.context).fill(ABSENT_BYTE, stream=place.stream)

    def keep_loaded(self, source: int, second: int = 0) -> None:
        """Keep the kernels of all launches loaded for good, for a graph."""
        for launch, begin, beside, _ in self._pieces:
            launch.keep_loaded(source + begin, second and second + beside)

    def refuse(self) -> None:
        """Raise why it cannot be launched; as `Prepared.refuse`."""
        for piece in self._pieces:
            piece.launch.refuse()


def flat(view: ArrayView, what: str) -> ArrayView:
    """Return a view as one of a single axis; raises ValueError, which calls the array `what`, if it has gaps."""
    if not is_contiguous(view.shape, view.strides_bytes, view.dtype.itemsize):
        raise ValueError(
            f"{what} of shape {view.shape} has strides {view.strides_bytes}: it is not contiguous in C order"
        )
    return view._replace(shape=(math.prod(view.shape),), strides_bytes=None)


def plain_options(op: Any, *, accumulate: Any, nan: Any, last: Any, map: Any) -> dict[str, Any]:
    """Return the options of `partials` as they may stand in a key; raises as `key_options`."""
    plain = key_options(op, dtype=None, accumulate=accumulate, nan=nan, last=last, map=map)
    return {name: value for name, value in plain.items() if name != "result_dtype"}


def described_chunks(
    thread: Thread,
    place: Place,
    views: tuple[ArrayView, ...],
    op: Any,
    options: dict[str, Any],
    chunk: int,
    rows: int | None = None,
    *,
    is_masked: bool,
) -> tuple[tuple[Any, ...], Made]:
    """Return the key of the partials of a flat array's chunks, and what prepares them.

    `views` are the array and, if the operator takes one, the mask, second array or first element. `options` are those
    of `plain_options`. Raises as `partials`.
    """
    others = dict(options)
    accumulate = others.pop("accumulate")
    source = views[0]
    element = element_type(source.dtype)
    chunk = check_chunk(chunk, element)
    reduction = rooted_of(op, element.dtype, is_masked, accumulate, tuple(others.items()))
    _check_beside(reduction, views)
    length, words = source.shape[0], reduction.results
    whole, rest = divmod(length, chunk)
    chunks = whole + (rest > 0)
    padded = chunks if rows is None else padded_rows(rows, chunks)

    def made() -> Prepared:
        step, size = element.itemsize, words * PARTIAL_DTYPE.itemsize
        beside = views[1].dtype.itemsize if len(views) > 1 else 0
        apart = 0 if reduction.second == "first" else beside  # of a first element there is but one
        pieces = []
        held = cut.Place(0, length, whole, rest)
        if forced_strategy() is None and suits(reduction, element.dtype, (1, 1), held, chunk):
            plan = all_chunks_plan(reduction, element.dtype, 1, held, chunk, place.context)
            pieces.append(_Piece(Prepared.of_plan(plan, place, None), 0, 0, 0))
        else:
            form = _form(thread, place, reduction, views)
            # The little rest first: the launch of the whole chunks begins while that runs, and not the other way round.
            for first, number, of_a_row in ((whole, 1, rest), (0, whole, chunk)):
                if number * of_a_row:
                    begin = first * chunk
                    launch = form.prepared((number, of_a_row), None, None, None)
                    pieces.append(_Piece(launch, begin * step, begin * apart, first * size))
        high = (length * apart if apart else beside) if length else 0
        extents = Extents(
            0, length * step, padded * size, PARTIAL_DTYPE.itemsize, has_second=beside > 0, second_high=high
        )
        return PreparedChunks(place, (padded, words), tuple(pieces), extents, (padded - chunks) * size)

    key = ("partials", op, is_masked, element.dtype, length, chunk, rows, forced_strategy(), *options.values())
    return key, made


def _form(thread: Thread, place: Place, reduction: Reduction, views: tuple[ArrayView, ...]) -> Form:
    """Return the form of rows of chunks, of which another length makes no plan."""
    kinds = tuple(view.dtype for view in views)
    key = (place, reduction, *kinds, forced_strategy())
    second = kinds[1] if len(kinds) > 1 else None
    return thread.form(key, lambda: Form(reduction, place, kinds[0], second, axis=1, keepdims=False, strategy=None))


def fold_problem(
    op: Any,
    length: int,
    chunk: int,
    dtype: Any,
    *,
    where: bool,
    initial: Any,
    ddof: float,
    result_dtype: Any,
    accumulate: Any,
    nan: Any,
    last: Any,
    map: Any,
) -> dict[str, Any]:
    """Return the arguments of `combine_plan` as they may stand in a key; raises as `combine_partials`."""
    element = element_type(dtype)
    return {
        "length": check_length(length, element),
        "chunk": check_chunk(chunk, element),
        "dtype": element.dtype,
        "where": flag(where, "where"),
        "initial": initial is not None,
        "ddof": real(ddof, "ddof is a real number"),
        **key_options(op, dtype=result_dtype, accumulate=accumulate, nan=nan, last=last, map=map),
    }


def described_fold(
    place: Place, views: tuple[ArrayView, ...], op: Any, problem: dict[str, Any], initial: Any
) -> tuple[tuple[Any, ...], Made]:
    """Return the key of the fold of all chunks' partials, and what prepares it.

    `views` are the partials and, if it is given, the first element; `problem` is that of `fold_problem`. Raises as
    `combine_partials`, some of it when it is prepared.
    """
    view, *beside = views

    def made() -> Prepared:
        plan = combine_plan(op, context=place.context, **problem)
        if (view.dtype, view.shape) != (PARTIAL_DTYPE, (plan.chunks * plan.words,)):
            raise ValueError(
                f"{plan.length} elements in chunks of {plan.chunk} have partials of shape "
                f"{(plan.chunks, plan.words)} and type {PARTIAL_DTYPE}; these are {view.shape[0]} of {view.dtype}"
            )
        if plan.takes_first or beside:
            _check_beside(plan.reduction, (view._replace(dtype=plan.dtype), *beside))
        return Prepared.of_plan(plan, place, initial)

    kinds = [(each.dtype, each.shape) for each in views]
    return ("combined", op, initial_key(initial), *kinds, *problem.values()), made


def _check_beside(reduction: Reduction, views: tuple[ArrayView, ...]) -> None:
    """Refuse what goes with an array, if it is missing, too much, or of the wrong type or size."""
    source, *others = views
    wanted = reduction.second_dtype(element_type(source.dtype))
    if (wanted is None) != (not others):
        takes = {None: "one array", "mask": "a mask", "operand": "a second array"}
        takes["first"] = "the whole array's first element, about which it is computed: pass first="
        raise TypeError(f"{reduction.name} takes {takes[reduction.second]}")
    if wanted is None:
        return
    other, count = others[0], 1 if reduction.second == "first" else source.shape[0]
    fits = other.shape[0] >= count if reduction.second == "first" else other.shape[0] == count
    if other.dtype != wanted or not fits:
        raise TypeError(
            f"{reduction.name} of {source.shape[0]} elements goes with {count} of {wanted}, "
            f"not with {other.shape[0]} of {other.dtype}"
        )
