"""What one call over ranks asks for, the same on every rank, and the part that this rank has."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from lowlevel_reduce.arguments import flag, integer, real
from lowlevel_reduce.arrays.device_array import ArrayView, DeviceArray
from lowlevel_reduce.calls.options import initial_key, key_options
from lowlevel_reduce.calls.threads import here
from lowlevel_reduce.calls.views import view_in
from lowlevel_reduce.driver import Stream
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.layout import is_contiguous
from lowlevel_reduce.parts.groups import Group
from lowlevel_reduce.parts.plan import Described, axis_in, describe

if TYPE_CHECKING:
    from lowlevel_reduce.parts.plan import DistributedPlan

__all__ = ["Part", "Request", "check_part", "part_of", "request_of"]


class Request(NamedTuple):
    """What was asked for, besides the part, as it may stand in a key; the same on every rank."""

    op: Any
    axis: int | None
    keepdims: bool
    chunk: int | None
    root: int | None
    where: bool
    second: bool
    initial: Any
    ddof: float
    options: tuple[tuple[str, Any], ...]

    def described(self, members: Group, shape: tuple[int, ...], dtype: Any, length: object, initial: Any) -> Described:
        """Return the reduction of arrays of such parts."""
        package = sys.modules["lowlevel_reduce"]
        return describe(
            self.op,
            members,
            shape=shape,
            dtype=dtype,
            length=length,
            axis=self.axis,
            keepdims=self.keepdims,
            chunk=self.chunk,
            root=self.root,
            where=self.where,
            initial=initial,
            ddof=self.ddof,
            versions=(package.__version__, package.__tree_version__),
            **dict(self.options),
        )


class Part(NamedTuple):
    """What this rank has, in a stream, and what is wrong with it, if anything is."""

    home: Stream
    views: tuple[ArrayView, ...]
    fault: Exception | None

    @property
    def source(self) -> ArrayView:
        """The part's memory."""
        return self.views[0]

    def extent(self, axis: int | None) -> int:
        """Return how many elements of the reduced axis it has."""
        if axis is not None:
            return self.source.shape[axis]
        return math.prod(self.source.shape)

    def kept(self, axis: int | None, *, keepdims: bool) -> tuple[int, ...]:
        """Return its shape with nothing along the reduced axes: what must be the same on every rank.

        Without an axis it matters only for results that keep all axes, how many there are.
        """
        if axis is None:
            return (0,) * len(self.source.shape) if keepdims else ()
        at = axis_in(self.source.shape, axis)
        return tuple(0 if number == at else size for number, size in enumerate(self.source.shape))


def request_of(
    op: Any,
    axis: Any,
    keepdims: Any,
    chunk: Any,
    root: Any,
    where: bool,
    second: bool,
    initial: Any,
    ddof: Any,
    **asked: Any,
) -> Request:
    """Return what was asked for, checked as far as a key needs it; raises as `lowlevel_reduce.reduce`."""
    if where and second:
        raise ValueError("a reduction takes a mask or a second array, not both")
    return Request(
        op,
        None if axis is None else integer(axis, "axis is one integer, or None for a whole array"),
        flag(keepdims, "keepdims"),
        None if chunk is None else integer(chunk, "chunk is an integer"),
        None if root is None else integer(root, "root is a rank"),
        where,
        second,
        initial_key(initial),
        real(ddof, "ddof is a real number"),
        tuple(key_options(op, **asked).items()),
    )


def part_of(part: Any, beside: Any, members: Group, stream: Any, axis: int | None) -> Part:
    """Return this rank's part, which has that axis, ready for work in its stream; not to be contiguous is a fault."""
    if isinstance(part, Exception):  # which the caller tells all ranks
        raise part
    if stream is None:
        own = part.stream if isinstance(part, DeviceArray) else members.default_stream()
        home = own or here().stream_of(None, None)
    else:
        home = here().stream_of(stream, None)
    with home.context.pushed():
        thread = here()
        place = thread.place_of(home)
        views = tuple(view_in(thread, place, each) for each in ((part,) if beside is None else (part, beside)))
    element_type(views[0].dtype)
    if axis is not None:
        axis_in(views[0].shape, axis)  # raises if there is none
    for view in views:
        if not is_contiguous(view.shape, view.strides_bytes, view.dtype.itemsize):
            text = f"a part of shape {view.shape} has strides {view.strides_bytes}: it is not contiguous in C order"
            return Part(home, views, ValueError(text))
    if len(views) > 1 and views[1].shape != views[0].shape:
        text = f"what goes with a part of shape {views[0].shape} has shape {views[1].shape}"
        return Part(home, views, ValueError(text))
    return Part(home, views, None)


def check_part(made: DistributedPlan, request: Request, found: Part) -> None:
    """Refuse a part that the plan is not for; raises what `reduce` says."""
    if found.fault is not None:
        raise found.fault
    made.cut.check(made.group.rank, found.extent(request.axis))
    wanted = made.described.rooted.second_dtype(made.described.types.element) if made.has_second else None
    if (wanted is None) != (len(found.views) == 1):
        raise TypeError(f"{made.op} takes {'one array' if wanted is None else 'a second array'}")
    if wanted is not None and found.views[1].dtype != wanted:
        raise TypeError(f"what goes with a part of {made.dtype} is of {wanted}, not of {found.views[1].dtype}")
