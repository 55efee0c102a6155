"""Repeated calls over ranks: what the executor of calls keeps of one, to launch it again with another array."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any, cast

from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.arrays.results import Cell, cell_size
from lowlevel_reduce.calls.execute import repeated
from lowlevel_reduce.calls.prepared import arrays_in
from lowlevel_reduce.calls.threads import here
from lowlevel_reduce.calls.views import are_of, spot_in
from lowlevel_reduce.plans.launch import Extents

if TYPE_CHECKING:
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.calls.prepared import Prepared
    from lowlevel_reduce.driver import Stream
    from lowlevel_reduce.parts.asked import Part as Found
    from lowlevel_reduce.parts.bound import BoundDistributed
    from lowlevel_reduce.parts.groups import Group
    from lowlevel_reduce.parts.letters import BoundHead, BoundLetter
    from lowlevel_reduce.parts.plan import DistributedPlan

__all__ = ["PreparedParts", "again", "keep"]


class PreparedParts:
    """A bound launch of a plan that its group keeps, as the executor launches what is prepared.

    It keeps neither the plan nor the group alive: a thread that calls no more would hold the engine's memory.
    """

    __slots__ = (
        *("_bound", "_second", "cell_bytes", "dtype", "extents", "folded_tuple", "place", "refused", "results"),
        *("second_refused", "shape"),
    )

    is_nothing = False

    def __init__(
        self, made: DistributedPlan, bound: BoundDistributed | BoundLetter | BoundHead, found: Found, place: Place
    ) -> None:
        self._bound, self._second, self.place = weakref.ref(bound), made.has_second, place
        self.dtype, self.shape, self.results = made.result_dtype, made.result_shape, made.results
        self.folded_tuple = made.described.folded_tuple
        sizes = [math.prod(view.shape) * view.dtype.itemsize for view in found.views]
        size = self.results * math.prod(self.shape) * self.dtype.itemsize
        self.cell_bytes = cell_size(size)
        second = sizes[1] if len(sizes) > 1 else 0
        self.extents = Extents(0, sizes[0], size, self.dtype.itemsize, has_second=self._second, second_high=second)
        self.refused, self.second_refused = 0, found.views[1].dtype.itemsize - 1 if self._second else 0

    def launch(self, source: int, result: int, second: int = 0) -> bool:
        """Put it into the stream; False if there is no result, as the plan was dropped or other ranks call another."""
        bound = self._bound()
        if bound is None or not bound.plan.is_kept:
            return False
        return bound(source, result, second if self._second else None) is not False

    def wrapped(self, cell: Cell, stream: Stream) -> Any:
        """Return results that lie in a cell, as arrays of a stream."""
        if self.results == 1:
            return DeviceArray.of_cell(self.dtype, self.shape, cell, stream)
        return arrays_in(self.folded_tuple, self.results, self.dtype, self.shape, cell, stream)


def again(members: Group, part: Any, op: Any, options: tuple[Any, ...], beside: Any, out: Any, stream: Any) -> Any:
    """Repeat an earlier call; None if there was none, if equality is not certain, or if other ranks call another.

    `options` are all other arguments, hashable; `beside` is the mask or the second array.
    """
    _, result = repeated(here(), part, op, ("parts", members.number, *options), beside, out, stream)
    return result


def keep(
    members: Group,
    arrays: tuple[Any, Any, Any],
    op: Any,
    options: tuple[Any, ...],
    stream: Any,
    found: Found,
    bound: BoundDistributed | BoundLetter | BoundHead,
    place: Place,
) -> None:
    """Keep a launch for later equal calls, if it can be known without the driver that these are safe.

    `arrays` are the part, what goes with it, and the output; `place` is where it was bound.
    """
    part, beside, out = arrays
    thread, made = here(), bound.plan
    if made.root not in (None, members.rank) or math.prod(made.result_shape) == 0:
        return
    key, _ = repeated(thread, part, op, ("parts", members.number, *options), beside, out, stream, is_asked=False)
    if key is None or not are_of(place, *key[1:4]):
        return
    if stream is None and spot_in(key)[2] != place.handle:  # where its library works, and not where the engine does
        return
    thread.calls.pop(key, None)
    thread.keep(key, cast("Prepared", PreparedParts(made, bound, found, place)))  # what `repeated` needs of one
