"""The plan of a reduction over ranks: what it is, checked, and the kernels of this rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lowlevel_reduce.arguments import integer
from lowlevel_reduce.calls.options import initial_key
from lowlevel_reduce.closing import Closing
from lowlevel_reduce.driver import Context, Stream, binding
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators import result_tuple
from lowlevel_reduce.parts.agreement import digest
from lowlevel_reduce.parts.borders import pieces_at_borders
from lowlevel_reduce.parts.bound import BoundDistributed
from lowlevel_reduce.parts.combining import divided, rooted_for
from lowlevel_reduce.parts.cut import Cut, cut_of
from lowlevel_reduce.parts.fold import TAG_BYTES, FoldPlan, fold_plan, share_bytes, share_of
from lowlevel_reduce.parts.free_cut import FreeCut, free_cut
from lowlevel_reduce.parts.groups import Group, kept_of_stream
from lowlevel_reduce.parts.letters import BoundHead, BoundLetter, Head, can_be_sent
from lowlevel_reduce.parts.local import Piece, pieces_of, pivot_plan
from lowlevel_reduce.strategy.selection import operator_text

if TYPE_CHECKING:
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.operators import Reduction, Types
    from lowlevel_reduce.plans.array import Plan

__all__ = ["Described", "DistributedPlan", "axis_in", "describe"]


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

    @property
    def gathered(self) -> list[int]:
        """Bytes of the shares of a call's gathers, one after the other: first elements, shared chunks', partials."""
        (before, behind), cut, size = self.kept, self.cut, self.types.element.itemsize
        head = cut.head if isinstance(cut, FreeCut) else 0
        first = [share_of(before * behind * size)] if self.folded.second == "first" else []
        borders = [share_of(before * head * behind * size)] if head else []
        return [*first, *borders, share_bytes(cut, before * behind, self.rooted.results)]

    @property
    def folded_tuple(self) -> Any:
        """The type of the operator's several results, a named tuple."""
        return result_tuple(self.folded.name, self.folded.result_names)


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
        axis = axis_in(shape, integer(axis, "axis is one integer, or None for a whole array"))
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


def axis_in(shape: tuple[int, ...], axis: int) -> int:
    """Return which axis of an array's it is, counted from the first; raises ValueError if there is none such."""
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis {axis} does not exist in an array of {len(shape)} axes")
    return axis % len(shape)


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
        self._where, self._elsewhere = (binding.selected(), context.id), dict[Any, DistributedPlan]()
        cut, kept, types = described.cut, described.kept, described.types
        self.op, self.cut, self.root = described.folded.name, cut, described.root
        self.dtype, self.result_dtype, self.result_shape = types.element.dtype, types.result_dtype, described.shape
        place = cut.place(group.rank)
        self.length = place.length
        self.share_bytes = described.gathered[-1]
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
        self._bound: dict[Place, BoundDistributed] = {}
        self._letters: dict[Place, BoundLetter | BoundHead] = {}

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

    def within(self, context: Context) -> DistributedPlan:
        """Return the plan of what the ranks agreed about in a context of this rank, of which the others need not hear.

        Raises as `DistributedPlan`; it stays agreed about.
        """
        where = binding.selected(), context.id
        if where == self._where:
            return self
        found = kept_of_stream(self._elsewhere, where, lambda: DistributedPlan(self.described, self.group, context))
        found.is_kept = self.is_kept
        return found

    def keep(self, *, is_kept: bool) -> None:
        """Say whether its group keeps it, in all contexts."""
        for each in (self, *self._elsewhere.values()):
            each.is_kept = is_kept

    def bound_to(self, place: Place) -> BoundDistributed:
        """Return the bound launch that is kept for a place, for calls of its thread while its context is current."""
        return kept_of_stream(self._bound, place, lambda: BoundDistributed(self, place.stream, place))

    def letter_to(self, place: Place, head: Head) -> BoundLetter | BoundHead:
        """Return the launch that is kept for a place, and sends a letter with this head, with partials if they fit it.

        The place's context must be current.
        """

        def made() -> BoundLetter | BoundHead:
            if can_be_sent(self):
                return BoundLetter(self, self.group.letters_in(place.stream), head, place)
            return BoundHead(self, self.bound_to(place), head, place)

        return kept_of_stream(self._letters, place, made)

    def close(self) -> None:
        """Drop the kernels; bound launches keep theirs."""
        self.keep(is_kept=False)
        for plan in self._elsewhere.values():
            plan.close()
        self._bound.clear()
        self._letters.clear()
        for each in (*(piece.plan for piece in (*self.pieces, *self.shared)), self.pivots, self.fold):
            if each is not None:
                each.close()

    def __repr__(self) -> str:
        where = f"on rank {self.group.rank} of {self.cut.ranks}"
        return f"<DistributedPlan {self.op} of {self.cut.length} {self.dtype} {where}>"
