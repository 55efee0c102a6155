"""One call over ranks: what this rank has, what all agree about, the plan that is kept, and its launch."""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from lowlevel_reduce.arrays.device_array import DeviceArray, order_after, view_output
from lowlevel_reduce.calls.threads import here
from lowlevel_reduce.driver import Context
from lowlevel_reduce.errors import GroupError
from lowlevel_reduce.layout import lengths_of
from lowlevel_reduce.parts.agreement import OWN, agree, agreed, digest, together
from lowlevel_reduce.parts.asked import Part, Request, check_part, part_of, request_of
from lowlevel_reduce.parts.bound import BoundDistributed
from lowlevel_reduce.parts.cut import cut_of
from lowlevel_reduce.parts.groups import Group, group_of
from lowlevel_reduce.parts.letters import HEADER_BYTES, Head, check_letters, heads_of, letter_of
from lowlevel_reduce.parts.plan import Described, DistributedPlan
from lowlevel_reduce.parts.repeat import again, keep

if TYPE_CHECKING:
    from lowlevel_reduce.operators import ElementMap

__all__ = ["plan", "reduce"]

_T = TypeVar("_T")

_MOST_PLANS = 64
"""How many plans a group keeps, every rank the same ones, of which it drops the oldest; and how many marks."""

BOUNDS = {"plans": _MOST_PLANS, "marks": _MOST_PLANS}
"""The most entries of what is kept here, by its name: who watches for growth tells it from what has no bound."""

_LENGTH = f"{OWN}length"
"""How a rank names the length of its own part among what it tells."""


def reduce(
    part: Any,
    op: Any = "sum",
    group: Any = None,
    *,
    axis: int | None = None,
    length: int | None = None,
    root: int | None = None,
    keepdims: bool = False,
    chunk: int | None = None,
    dtype: Any = None,
    accumulate: str | None = None,
    out: Any = None,
    stream: Any = None,
    nan: str = "propagate",
    where: Any = None,
    second: Any = None,
    initial: Any = None,
    ddof: float = 0,
    last: bool = False,
    map: str | ElementMap | None = None,
) -> Any:
    """Reduce an array of which each rank has a part; the bits are those of `lowlevel_reduce.reduce` of the whole.

    Parameters
    ----------
    part : array
        This rank's part, contiguous in C order, of any length, also none. Without an axis it is a run of the whole
        array's elements, with an axis a slice along it; the parts follow each other in the order of the ranks, and are
        cut where `lowlevel_reduce.shard_lengths` says for the length of the whole, or of the axis. A rank that has none
        may pass the exception that says why, which is raised when the others know.
    op : str or Operator
        The operator, or its name. A user's may not use an element's index.
    group : object, optional
        The ranks, as the module says; by default torch's default group.
    axis : int, optional
        The one axis that is in parts, and reduced; by default the whole array is in parts.
    length : int, optional
        Elements of the whole array, or of the whole axis. Without it, every call exchanges the lengths of the parts, on
        every rank, which the host waits for. Where ranks gather on the device, an equal call sends its partials along,
        for the lengths that the last one had: if these are right, that is the only collective. Where partials are too
        many, or a cut is within leaves, an equal call exchanges the lengths first, and asks for nothing else.
    root : int, optional
        The rank that gets the result; the others get None. By default all get it.
    chunk : int, optional
        Elements of a chunk where the cut is not the default one, as for `shard_lengths`.
    where, second : array, optional
        The part's mask, or its second array, of the same shape.
    stream : Stream or object with ``__cuda_stream__``, optional
        Where this rank works. By default a `DeviceArray`'s own stream, torch's current stream with its NCCL groups, and
        else the legacy default stream.
    keepdims, dtype, accumulate, out, nan, initial, ddof, last, map
        As for `lowlevel_reduce.reduce`.

    Returns
    -------
    DeviceArray, named tuple of them, object or None
        As of `lowlevel_reduce.reduce`, on this rank's device, available in the order of the stream.

    Raises
    ------
    CutError
        If a part does not fit the cut. The message says where to cut; with a `length` that was used before, other ranks
        get a GroupError, or, where the engine gathers on the device, the driver's error at their next wait.
    GroupError
        If ranks do not ask for the same, or one of them failed: on every rank.
    TypeError, ValueError, UnsupportedError, and errors from below
        As `lowlevel_reduce.reduce`; the other ranks as for a CutError. A ValueError if the stream is being captured, of
        which others hear only where the host gathers.
    """
    members = group_of(group)
    asked = (length, axis, root, keepdims, chunk, dtype, accumulate, nan, ddof, last, map, second is None)
    beside = second if where is None else where
    # Where types differ, keys take 1 and True for the same.
    is_plain = type(ddof) is int and (axis is None or type(axis) is int) and (length is None or type(length) is int)
    is_plain = is_plain and initial is None and (where is None or second is None)
    if is_plain and (result := again(members, part, op, asked, beside, out, stream)) is not None:
        return result
    told, members.told = members.told, None
    request: Request | None = None
    try:
        request = request_of(
            op, axis, keepdims, chunk, root, where is not None, second is not None, initial, ddof,
            accumulate=accumulate, dtype=dtype, nan=nan, last=last, map=map,
        )  # fmt: skip
        found = part_of(part, beside, members, stream, request.axis)
    except Exception as error:
        _fail(members, error, request, length, told)
        raise
    if found.home.is_capturing:
        refused = ValueError(
            "a call over ranks cannot be captured, for it may exchange what it asks for, and allocates: bind "
            "lr.distributed.plan before the capture, and call what that returns"
        )
        if members.sees_tags:  # others would work on the device to tell it, which spoils the capture
            _fail(members, refused, request, length, told)
        raise refused
    with found.home.context.pushed():
        head, whole = (None, length) if length is not None else _lengths(members, request, found, initial, told)
        arrays, known = (part, beside, out), (whole, *asked[1:])
        is_again = head is not None and is_plain
        result = again(members, part, op, known, beside, out, stream) if is_again else None
        made = _plan_of(members, request, found, whole, initial)
        place = here().place_of(found.home)
        if result is None:
            with _or_refused(members, made):
                bound = made.bound_to(place)
            result = _run(bound, request, found, out)
            if is_plain:
                keep(members, arrays, op, known, stream, found, bound, place)
        if head is not None and is_plain:
            keep(members, arrays, op, asked, stream, found, made.letter_to(place, head), place)
        return result


def plan(
    op: Any = "sum",
    group: Any = None,
    *,
    length: int,
    dtype: Any,
    shape: Any = None,
    axis: int | None = None,
    root: int | None = None,
    keepdims: bool = False,
    chunk: int | None = None,
    accumulate: str | None = None,
    result_dtype: Any = None,
    where: bool = False,
    initial: Any = None,
    context: Context | None = None,
    nan: str = "propagate",
    ddof: float = 0,
    last: bool = False,
    map: str | ElementMap | None = None,
) -> DistributedPlan:
    """Make the plan of a reduction over ranks, which all make at the same time: they compare what they ask for.

    ``plan.bind(stream)`` allocates what calls need, and ``launch(part, result)``, with device addresses, puts a
    reduction into the stream: one launch for the partials (two on the rank whose part ends within a chunk), one gather,
    one launch for the fold. var, std and mean_var gather the first elements before, with one launch on the first rank.

    Parameters
    ----------
    length : int
        Elements of the whole array, or of the whole axis.
    dtype : dtype
        Type of the elements.
    shape : int or sequence of int, optional
        Shape of this rank's part; needed with `axis`. Its reduced axis must have the length that the cut says.
    initial : scalar, optional
        The start value itself.
    context : Context, optional
        Where; by default the current context, else the primary one of device 0.
    op, group, axis, root, keepdims, chunk, accumulate, result_dtype, where, nan, ddof, last, map
        As for `reduce`; `result_dtype` is its `dtype`.

    Raises
    ------
    CutError, GroupError, and as `lowlevel_reduce.plan`
        On every rank if on one.
    """
    members = group_of(group)

    def asked() -> tuple[dict[str, Any], Described]:
        request = request_of(
            op, axis, keepdims, chunk, root, where, False, initial, ddof,
            accumulate=accumulate, dtype=result_dtype, nan=nan, last=last, map=map,
        )  # fmt: skip
        if shape is None and axis is not None:
            raise TypeError("with an axis, shape= is needed: that of this rank's part")
        lengths = () if shape is None else lengths_of(shape)
        described = request.described(members, lengths, dtype, length, initial)
        if shape is not None and axis is None:
            described.cut.check(members.rank, math.prod(lengths))
        return {**described.facts, _LENGTH: 0 if axis is None else lengths[axis]}, described

    described = _agreed(members, asked, axis)
    return together(members, "compilation", lambda: DistributedPlan(described, members, Context.of(context)))


def _agreed(members: Group, asked: Callable[[], tuple[dict[str, Any], Described]], axis: int | None) -> Described:
    """Return what all ranks ask for, along an axis with the cut that their parts make; raises as `agree`."""
    described, told = agreed(members, asked)
    return described if axis is None else described.cut_at([int(each[_LENGTH]) for each in told])


def _fail(
    members: Group, error: Exception, request: Request | None, length: int | None, told: list[bytes] | None
) -> None:
    """Tell all ranks that this one has no part, in the way that they expect; who calls raises why, if this does not."""
    if length is None and told is None:
        members.exchange(letter_of(Head(-1, b""), members.letter_bytes))
    # With a length that was used before they send partials; of parts of which type, if of several, is not known.
    known = [made for key, made in members.plans.items() if key[:2] == (request, length)]
    if known:
        members.refuse(known[-1].described.gathered)
    else:
        agree(members, {}, error)


def _lengths(
    members: Group, request: Request, found: Part, initial: Any, told: list[bytes] | None
) -> tuple[Head, int | tuple[int, ...]]:
    """Exchange the lengths of the parts, unless letters have told them already; raises alike on every rank.

    Returns what this rank tells, and what determines the cut: of a whole array its length, of an axis, which may be cut
    anywhere, all lengths.
    """
    error, facts, mark, extent, letters = found.fault, dict[str, Any](), b"", -1, None
    try:
        extent = found.extent(request.axis)
        key = (request, found.source.dtype, found.kept(request.axis, keepdims=request.keepdims))
        facts, mark = _kept(members.marks, key, lambda: _without_length(members, request, found, initial))
        if told is None and members.letter_bytes:
            letters = members.letters_in(here().place_of(found.home).stream)
    except Exception as caught:  # noqa: BLE001 - it is raised again, once all ranks have been told
        error = error or caught
    head = Head(-1 if error is not None else extent, mark)
    if letters is not None:
        told = letters.exchange(letter_of(head, HEADER_BYTES))
    told = told or members.exchange(letter_of(head, members.letter_bytes))
    heads = heads_of(told)
    lengths = tuple(each.length for each in heads)
    if min(lengths) < 0 or len({each.mark for each in heads}) > 1:
        check_letters(told, error)
        agree(members, facts, error)
        raise GroupError("the ranks disagree about the reduction, in what no rank can name")
    if request.axis is None:
        cut_of(sum(lengths), found.source.dtype, members.size, request.chunk).check_all(lengths)
        return head, sum(lengths)
    return head, lengths


def _without_length(members: Group, request: Request, found: Part, initial: Any) -> tuple[dict[str, Any], bytes]:
    """Return what ranks must agree about before they know the length of the whole, and what stands for it."""
    facts = request.described(members, found.source.shape, found.source.dtype, 1, initial).facts
    less = {name: value for name, value in facts.items() if name not in ("length", "chunk")}
    less |= {
        "chunk": request.chunk,
        "axes besides the reduced one": found.kept(request.axis, keepdims=request.keepdims),
    }
    return less, digest(less)


def _plan_of(members: Group, request: Request, found: Part, whole: Any, initial: Any) -> DistributedPlan:
    """Return the plan of a call, kept from an earlier one or made by all ranks together."""
    source, home = found.source, found.home
    length = sum(whole) if isinstance(whole, tuple) else whole

    def make() -> DistributedPlan:
        def asked() -> tuple[dict[str, Any], Described]:
            if found.fault is not None:
                raise found.fault
            described = request.described(members, source.shape, source.dtype, length, initial)
            if request.axis is None:
                described.cut.check(members.rank, found.extent(None))
            if described.rooted.two_arrays and described.folded.second != "first" and len(found.views) < 2:
                raise TypeError(f"{described.folded.name} takes a second array")
            return {**described.facts, _LENGTH: found.extent(request.axis)}, described

        described = _agreed(members, asked, request.axis)
        return together(members, "compilation", lambda: DistributedPlan(described, members, home.context))

    kept = found.kept(request.axis, keepdims=request.keepdims)
    agreed_about = _kept(members.plans, (request, whole, source.dtype, kept), make)
    with _or_refused(members, agreed_about):
        return agreed_about.within(home.context)


def _kept(kept: OrderedDict[Any, _T], key: Any, make: Callable[[], _T]) -> _T:
    """Return what is kept under a key, or is made now.

    The oldest is dropped, not the least recently used: which that is, ranks would see differently.
    """
    found = kept.get(key)
    if found is None:
        found = kept[key] = make()
        if isinstance(found, DistributedPlan):
            found.keep(is_kept=True)
        if len(kept) > _MOST_PLANS:
            _, dropped = kept.popitem(last=False)
            if isinstance(dropped, DistributedPlan):
                dropped.keep(is_kept=False)
    return found


@contextlib.contextmanager
def _or_refused(members: Group, made: DistributedPlan) -> Iterator[None]:
    """Refuse a call of a plan where something is raised, so that the others do not wait: they may not know of it."""
    try:
        yield
    except Exception:
        members.refuse(made.described.gathered)
        raise


def _run(bound: BoundDistributed, request: Request, found: Part, out: Any) -> Any:
    """Launch once and return what a one-shot function returns; a rank that cannot does not let the others wait."""
    home, made = found.home, bound.plan
    has_result = made.root in (None, made.group.rank)
    shape = made.result_shape if made.results == 1 else (made.results, *made.result_shape)
    try:
        check_part(made, request, found)
        result, address = None, 0
        if has_result:
            result = DeviceArray.empty(shape, made.result_dtype, home) if out is None else out
            address = view_output(result, made.result_dtype, shape, home).pointer
        second = found.views[1].pointer if made.has_second else None
        bound.check(found.source.pointer, address, second)
    except Exception:
        bound.refuse()
        raise
    bound(found.source.pointer, address, second)
    order_after(home, result, *(view.owner for view in found.views))
    if not has_result or out is not None or made.results == 1:
        return result
    assert isinstance(result, DeviceArray)  # noqa: S101 - there is no `out`
    return made.described.folded_tuple(*(result.plane(k) for k in range(made.results)))
