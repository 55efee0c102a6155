"""The plan of a reduction over ranks, and its bound form: launches for the partials, one gather, one for the fold."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lowlevel_reduce.arguments import integer
from lowlevel_reduce.calls.options import initial_key
from lowlevel_reduce.closing import Closing
from lowlevel_reduce.driver import Buffer, Context, Stream
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import GroupError, UnsupportedError
from lowlevel_reduce.operators import result_tuple
from lowlevel_reduce.parts.agreement import digest
from lowlevel_reduce.parts.borders import SharedChunks, pieces_at_borders
from lowlevel_reduce.parts.combining import divided
from lowlevel_reduce.parts.cut import Cut, cut_of
from lowlevel_reduce.parts.fold import TAG_BYTES, FoldPlan, fold_plan, share_bytes
from lowlevel_reduce.parts.free_cut import FreeCut, free_cut
from lowlevel_reduce.parts.groups import REFUSAL, Gather, Group
from lowlevel_reduce.parts.letters import BoundLetter, Head
from lowlevel_reduce.parts.local import Piece, pieces_of, pivot_plan, rooted_for
from lowlevel_reduce.parts.padded import ABSENT_BYTE
from lowlevel_reduce.strategy.selection import operator_text

if TYPE_CHECKING:
    from lowlevel_reduce.operators import Reduction, Types
    from lowlevel_reduce.plans.array import Plan

__all__ = ["BoundDistributed", "Described", "DistributedPlan", "describe"]

_MOST_STREAMS = 4
"""How many streams a plan keeps bound launches for: the least recently used is dropped."""


class Described(NamedTuple):
    """A reduction over ranks as it was asked for, checked, and nothing of it compiled yet.

    Attributes
    ----------
    facts : dict
        What all ranks must agree about.
    tag : bytes
        What stands for the facts.
    rooted, folded : Reduction
        The operator of the partials and that of the fold.
    types : Types
        Of the fold.
    cut : Cut
        How each row is cut.
    kept : tuple of int
        Rows before and behind the reduced axis.
    shape : tuple of int
        Shape of the results.
    root : int or None
        The rank that has the results; None for all.
    initial : object
        The start value, if there is one.
    """

    facts: dict[str, Any]
    tag: bytes
    rooted: Reduction
    folded: Reduction
    types: Types
    cut: Cut | FreeCut
    kept: tuple[int, int]
    shape: tuple[int, ...]
    root: int | None
    initial: Any

    def cut_at(self, lengths: Sequence[int]) -> Described:
        """Return the same for rows of which ranks have parts of these lengths; raises CutError alike on every rank."""
        assert isinstance(self.cut, Cut)  # noqa: S101 - as `describe` made it
        cut = free_cut(lengths, self.types.element.dtype, self.cut)
        facts = {**self.facts, "lengths": list(cut.lengths), "chunk": cut.chunk}
        return self._replace(cut=cut, facts=facts, tag=digest(facts))

    def folded_tuple(self, results: Iterable[Any]) -> Any:
        """Return the operator's several results as its named tuple."""
        return result_tuple(self.folded.name, self.folded.result_names)(*results)


def describe(
    op: Any,
    group: Group,
    *,
    shape: tuple[int, ...],
    dtype: Any,
    length: object,
    axis: int | None,
    keepdims: bool,
    chunk: object,
    root: object,
    where: bool,
    initial: Any,
    accumulate: str | None,
    result_dtype: Any,
    versions: tuple[str, int],
    **options: Any,
) -> Described:
    """Return what a reduction over ranks is; `shape` is that of this rank's part, whose reduced axis is not looked at.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As `lowlevel_reduce.plan` and `shard_lengths`; or if `root` is no rank, or the operator cannot be cut.
    """
    element = element_type(dtype)
    if axis is not None:
        axis = integer(axis, "axis is one integer, or None for a whole array")
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"axis {axis} does not exist in an array of {len(shape)} axes")
        axis %= len(shape)
    if root is not None:
        root = integer(root, "root is a rank")
        if not 0 <= root < group.size:
            raise ValueError(f"root {root} is not among the {group.size} ranks of the group")
    kept = (1, 1) if axis is None else (math.prod(shape[:axis]), math.prod(shape[axis + 1 :]))
    rows = kept[0] * kept[1]
    cut = cut_of(length, element.dtype, group.size, chunk)
    ddof = options.pop("ddof", 0)
    rooted = rooted_for(op, element.dtype, rows=rows, where=where, accumulate=accumulate, **options)
    folded = divided(op, where=where, initial=initial is not None, ddof=ddof, **options)
    types = folded.types(element, accumulate, result_dtype)
    if initial is not None:
        folded.initial_words(initial, types)  # raises what is wrong with it
    if axis is not None and where and folded.second == "mask" and folded.pivot is not None:
        raise UnsupportedError(f"{folded.name} takes no mask along an axis in parts")
    if cut.length == 0 and not folded.has_initial:
        folded.empty_results(types)  # raises where there is none
    text = operator_text(folded, types)
    results = () if axis is None else tuple(shape[:axis]) + ((1,) if keepdims else ()) + tuple(shape[axis + 1 :])
    if axis is None and keepdims:
        results = (1,) * len(shape)
    facts = {
        "library version": versions[0],
        "tree version": versions[1],
        "type": element.name,
        "operator": f"{text.label} {text.type} {text.declaration}".strip(),
        "options": f"ddof={ddof}, initial={initial_key(initial)}, where={where}",
        "length": cut.length,
        "chunk": cut.chunk,
        "ranks": cut.ranks,
        "rows before and behind the axis": kept,
        "root": root,
    }
    return Described(facts, digest(facts), rooted, folded, types, cut, kept, results, root, initial)


class DistributedPlan(Closing):
    """A reduction of an array in parts, one on each rank of a group. Make one with `lr.distributed.plan`.

    Attributes
    ----------
    op : str
        Name of the operator.
    group : Group
        The ranks.
    cut : Cut
        How the array, or each row of it, is cut.
    length : int
        Elements of the reduced axis that this rank has.
    dtype, result_dtype : numpy.dtype
        Types of the elements and of the results.
    result_shape : tuple of int
        Shape of each result.
    root : int or None
        The rank that has the results; None for all.
    share_bytes : int
        Bytes that each rank sends in the gather.
    is_kept : bool
        Whether its group keeps it for later calls.
    """

    def __init__(self, described: Described, group: Group, context: Context) -> None:
        self.described, self.group, self.context, self.is_kept = described, group, context, False
        cut, kept, types = described.cut, described.kept, described.types
        self.op, self.cut, self.root = described.folded.name, cut, described.root
        self.dtype, self.result_dtype, self.result_shape = types.element.dtype, types.result_dtype, described.shape
        place = cut.place(group.rank)
        self.length = place.length
        self.share_bytes = share_bytes(cut, kept[0] * kept[1], described.rooted.results)
        self.pieces: list[Piece] = []
        self.shared: list[Piece] = []  # of the chunk that other ranks complete
        if isinstance(cut, FreeCut):
            self.pieces, self.shared = pieces_at_borders(described.rooted, self.dtype, kept, cut, group.rank, context)
        else:
            self.pieces = pieces_of(described.rooted, self.dtype, kept, place, cut.chunk, context)
        self.takes_first = described.folded.second == "first"
        # The first element of each row is on the first rank that has any.
        self.first_rank = next((rank for rank, length in enumerate(cut.lengths) if length), 0)
        self.pivots: Plan | None = None
        if self.takes_first and group.rank == self.first_rank and place.length:
            self.pivots = pivot_plan(types, kept, place.length, context)
        self.fold: FoldPlan | None = None
        if described.root in (None, group.rank):
            self.fold = fold_plan(
                described.folded,
                types,
                cut,
                kept=kept,
                apart=self.share_bytes,
                lead=TAG_BYTES,
                tag=described.tag,
                shape=described.shape,
                context=context,
            )
        self._bound: OrderedDict[int, BoundDistributed] = OrderedDict()
        self._letters: OrderedDict[int, BoundLetter] = OrderedDict()

    @property
    def results(self) -> int:
        """Number of results per row; all first results are stored before all second ones."""
        return self.described.folded.results

    @property
    def has_second(self) -> bool:
        """Whether a launch takes the address of a mask or of a second array."""
        return self.described.rooted.two_arrays and not self.takes_first

    def bind(self, stream: Any) -> BoundDistributed:
        """Bind the plan to a stream of its context: everything is allocated here, so that a call only launches.

        Nothing is sent: ranks need not bind at the same time.
        """
        return BoundDistributed(self, Stream.of(stream).fixed())

    def bound_to(self, stream: Stream) -> BoundDistributed:
        """Return the bound launch that is kept for a stream."""
        key = stream.id
        found = self._bound.get(key)
        if found is None:
            found = self._bound[key] = self.bind(stream)
            if len(self._bound) > _MOST_STREAMS:
                self._bound.popitem(last=False)
        return found

    def letter_to(self, stream: Stream, head: Head) -> BoundLetter:
        """Return the launch that is kept for a stream, and sends a letter with this head; see `letters.can_be_sent`."""
        key = stream.id
        found = self._letters.get(key)
        if found is None:
            with stream.context.pushed():
                found = self._letters[key] = BoundLetter(self, self.group.letters_in(stream), head)
            if len(self._letters) > _MOST_STREAMS:
                self._letters.popitem(last=False)
        return found

    def close(self) -> None:
        """Drop the kernels; bound launches keep theirs."""
        self.is_kept = False
        self._bound.clear()
        self._letters.clear()
        for each in (*(piece.plan for piece in (*self.pieces, *self.shared)), self.pivots, self.fold):
            if each is not None:
                each.close()

    def __repr__(self) -> str:
        where = f"on rank {self.group.rank} of {self.cut.ranks}"
        return f"<DistributedPlan {self.op} of {self.cut.length} {self.dtype} {where}>"


class BoundDistributed:
    """A `DistributedPlan` in a stream: a call puts launches, gather and fold there, and allocates nothing.

    With an engine that gathers in the order of streams, as NCCL, the host waits for nothing, and a call can be captured
    into a graph. All ranks call, in the same order, as for any collective.
    """

    def __init__(self, plan: DistributedPlan, stream: Stream) -> None:
        described, group = plan.described, plan.group
        self.plan, self.stream, self.tag = plan, stream, described.tag
        self._checked: tuple[int, int | None] | None = None
        with stream.context.pushed():
            self.gather = group.gather(plan.share_bytes, stream)
            self.first: Gather | None = None
            if plan.takes_first:
                rows = described.kept[0] * described.kept[1] * plan.dtype.itemsize
                self.first = group.gather(TAG_BYTES + -(-rows // TAG_BYTES) * TAG_BYTES, stream)
            self.borders: SharedChunks | None = None
            if isinstance(plan.cut, FreeCut) and plan.cut.head:
                self.borders = SharedChunks(group, plan.cut, described.kept, plan.dtype.itemsize, stream)
            begin = self.gather.mine + TAG_BYTES
            self._launches, self._shared = (
                [(each.plan.bind(stream), each.source, begin + each.result, each.second) for each in pieces]
                for pieces in (plan.pieces, plan.shared)
            )
            self._pivots = None if plan.pivots is None else plan.pivots.bind(stream)
            self._fold = None if plan.fold is None else plan.fold.bind(stream, initial=described.initial)
            for each in self._gathers():
                self._memory(each.mine, each.share_bytes).fill(ABSENT_BYTE, stream=stream)
            self._tag_shares()

    @property
    def capturable(self) -> bool:
        """Whether a call may be captured into a graph."""
        return self.gather.capturable

    def __call__(self, source: int, result: int, second: int | None = None) -> None:
        """Reduce.

        Parameters
        ----------
        source : int
            Device address of this rank's part; anything if it has no elements.
        result : int
            Device address of the results; anything on a rank that gets none.
        second : int, optional
            That of the part's mask or second array, for plans with one.

        Raises
        ------
        GroupError
            If a rank refused, or reduces something else, and the engine gathers on the host. Otherwise the driver
            reports a failed launch when the stream is waited for.
        """
        about = self.first
        if about is not None:
            if self._pivots is not None:
                self._pivots(source, about.mine + TAG_BYTES)
            about(self.tag)
            second = self._firsts()
            assert second is not None  # noqa: S101 - there is a gather of them
            for launch, start, place, apart in self._launches:
                launch(source + start, place, second + apart)
        elif second is None:
            for launch, start, place, _ in self._launches:
                launch(source + start, place)
        else:
            for launch, start, place, apart in self._launches:
                launch(source + start, place, second + apart)
        if self.borders is not None:
            self.borders(source, self.tag)
            for launch, start, place, apart in self._shared:
                launch(self.borders.source + start, place, None if second is None else second + apart)
        self.gather(self.tag)
        if self._fold is None:
            return
        if about is None:
            self._fold(self.gather.everyone, result)
        else:
            self._fold(self.gather.everyone, result, second)

    def check(self, source: int, result: int, second: int | None = None) -> None:
        """Refuse addresses that a call must not be given; launches and sends nothing.

        An array that the last call was given is not asked about again.

        Raises
        ------
        TypeError, ValueError
            As `BoundReduction.check`.
        """
        if (source, second) == self._checked:
            return
        for launch, start, place, apart in self._launches:
            other = self._firsts() if second is None else second
            launch.check(source + start, place, None if other is None else other + apart)
        if self._fold is not None and self._fold.extents.result_bytes:
            self._fold.check(self.gather.everyone, result, self._firsts())
        self._checked = (source, second)

    def refuse(self) -> None:
        """Take part without a part, so that no rank waits for this one; all other ranks get an error, and no result.

        Where ranks gather on the device, their next wait for the stream tells of a failed launch.
        """
        with self.stream.context.pushed():
            for each in self._gathers():
                self._memory(each.mine, TAG_BYTES).fill(REFUSAL[0], stream=self.stream)
            try:
                for each in self._gathers():
                    each(self.tag)
                    if each.sees_tags:  # all others stop here
                        break
            except GroupError:
                return  # another rank refused as well; this one raises its own reason
            finally:
                self._tag_shares()

    def _firsts(self) -> int | None:
        """Return the device address of every row's first element, of operators that are about it."""
        about = self.first
        return None if about is None else about.everyone + self.plan.first_rank * about.share_bytes + TAG_BYTES

    def _gathers(self) -> list[Gather]:
        borders = None if self.borders is None else self.borders.gather
        return [each for each in (self.first, borders, self.gather) if each is not None]

    def _memory(self, pointer: int, size_bytes: int) -> Buffer:
        return Buffer.from_pointer(pointer, size_bytes, context=self.stream.context, owner=self)

    def _tag_shares(self) -> None:
        tag = np.frombuffer(self.tag, np.uint8)
        for each in self._gathers():
            self._memory(each.mine, TAG_BYTES).copy_from(tag, stream=self.stream)

    def __repr__(self) -> str:
        return f"<BoundDistributed {self.plan!r} in {self.stream!r}>"
