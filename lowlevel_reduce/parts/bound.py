"""A plan over ranks in a stream: launches for the partials, one gather, and one launch for the fold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.driver import Buffer, Stream
from lowlevel_reduce.errors import GroupError
from lowlevel_reduce.parts.borders import SharedChunks
from lowlevel_reduce.parts.fold import TAG_BYTES
from lowlevel_reduce.parts.free_cut import FreeCut
from lowlevel_reduce.parts.groups import REFUSAL, Gather
from lowlevel_reduce.parts.local import launch_all
from lowlevel_reduce.parts.padded import ABSENT_BYTE
from lowlevel_reduce.parts.placed import PlacedLaunch

if TYPE_CHECKING:
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.parts.plan import DistributedPlan
    from lowlevel_reduce.plans.base import BasePlan
    from lowlevel_reduce.plans.launch import BoundReduction

__all__ = ["BoundDistributed"]


class BoundDistributed:
    """A `DistributedPlan` in a stream: a call puts launches, gather and fold there, and allocates nothing.

    With an engine that gathers in the order of streams, as NCCL, the host waits for nothing, and a call can be captured
    into a graph. All ranks call, in the same order, as for any collective.
    """

    def __init__(self, plan: DistributedPlan, stream: Stream, place: Place | None = None) -> None:
        described, group = plan.described, plan.group

        def bound(each: BasePlan, initial: Any = None) -> BoundReduction | PlacedLaunch:
            return each.bind(stream, initial=initial) if place is None else PlacedLaunch(each, place, initial)

        self.plan, self.stream, self.tag = plan, stream, described.tag
        self._checked: tuple[int, int | None] | None = None
        with stream.context.pushed():
            *before, self.gather = (group.gather(size, stream) for size in described.gathered)
            self.first = before[0] if plan.takes_first else None
            self.borders: SharedChunks | None = None
            if isinstance(plan.cut, FreeCut) and plan.cut.head:
                here = plan.cut, group.rank, described.kept, plan.dtype.itemsize
                self.borders = SharedChunks(before[-1], *here, stream)
            begin = self.gather.mine + TAG_BYTES
            self._launches, self._shared = (
                [(bound(each.plan), each.source, begin + each.result, each.second) for each in pieces]
                for pieces in (plan.pieces, plan.shared)
            )
            self._pivots = None if plan.pivots is None else bound(plan.pivots)
            self._fold = None if plan.fold is None else bound(plan.fold, described.initial)
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
        launch_all(self._launches, source, second)
        if self.borders is not None:
            self.borders(source, self.tag)
            launch_all(self._shared, self.borders.source, second)
        self.gather(self.tag)
        if self._fold is not None:
            self._fold(self.gather.everyone, result, None if about is None else second)

    def check(self, source: int, result: int, second: int | None = None) -> None:
        """Refuse addresses that a call must not be given; launches and sends nothing.

        A part that the last call was given is not asked about again.

        Raises
        ------
        TypeError, ValueError
            As `BoundReduction.check`.
        """
        if self._fold is not None and self._fold.extents.result_bytes:
            self._fold.check(self.gather.everyone, result, self._firsts())
        if (source, second) == self._checked:
            return
        for launch, start, place, apart in self._launches:
            other = self._firsts() if second is None else second
            launch.check(source + start, place, None if other is None else other + apart)
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
                    if self.plan.group.sees_tags:  # all others stop here
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
