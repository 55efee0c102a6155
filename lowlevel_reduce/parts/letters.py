"""What ranks send each other in a call without a length: one letter each, of one size whatever they call.

A letter has the length of the rank's part and a digest of what is asked for. Where an equal call was made before, it
also has the partials for the lengths that the parts had then. If all ranks expected the same, one collective was
enough: every rank sees that, or that it was not, in the letters, and so none waits for another that expected more.
Where partials do not fit a letter, an equal call sends one without, and looks only whether the lengths are the same.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from lowlevel_reduce.driver import Buffer
from lowlevel_reduce.parts.agreement import MARK_END, another_call
from lowlevel_reduce.parts.driver_calls import raising
from lowlevel_reduce.parts.fold import TAG_BYTES, fold_plan
from lowlevel_reduce.parts.free_cut import FreeCut
from lowlevel_reduce.parts.local import launch_all
from lowlevel_reduce.parts.placed import PlacedLaunch

if TYPE_CHECKING:
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.driver import Stream
    from lowlevel_reduce.parts.bound import BoundDistributed
    from lowlevel_reduce.parts.groups import Group
    from lowlevel_reduce.parts.plan import DistributedPlan

__all__ = [
    "HEADER_BYTES",
    "BoundHead",
    "BoundLetter",
    "Head",
    "Letters",
    "can_be_sent",
    "check_letters",
    "heads_of",
    "letter_bytes",
    "letter_of",
]

HEADER_BYTES = 64
"""What a letter begins with: the tag of the plan that its partials are of, then the length, then the digest."""

_HEADER = struct.Struct(f"<{TAG_BYTES}sq{TAG_BYTES}s")
_MOST_BYTES, _LEAST_BYTES, _ALL_BYTES = 1 << 14, 1 << 10, 1 << 15
"""Of a letter, and of those of up to 32 ranks together: with 1,024 chunks a sum has 8 KiB of partials on all ranks."""


class Head(NamedTuple):
    """What a rank tells: the length of its part, -1 if it cannot take part, and what stands for all that is asked."""

    length: int
    mark: bytes


def letter_bytes(ranks: int) -> int:
    """Return the bytes of every rank's letter, where these are gathered on the device: they depend on nothing else."""
    return max(_LEAST_BYTES, min(_MOST_BYTES, _ALL_BYTES >> (ranks - 1).bit_length()))


def letter_of(head: Head, size_bytes: int, tag: bytes = b"") -> bytes:
    """Return a letter without partials, of so many bytes, or of its header's if these are more."""
    return _HEADER.pack(tag, *head).ljust(max(HEADER_BYTES, size_bytes), b"\0")


def heads_of(letters: Sequence[bytes]) -> list[Head]:
    """Return what all ranks told."""
    return [Head(*_HEADER.unpack_from(each)[1:]) for each in letters]


def check_letters(letters: Sequence[bytes], error: Exception | None) -> None:
    """Refuse what is no letter but a share of the same size, of a rank that calls with a length.

    A letter has zeros behind its head, and a share has partials; without the mark of a head a rank cannot take part.

    Raises
    ------
    Exception
        `error`, if this rank has one of its own, else a GroupError. The other rank has not more to hear.
    """
    for rank, (each, head) in enumerate(zip(letters, heads_of(letters), strict=True)):
        is_head = head.mark.endswith(MARK_END) or (head.length == -1 and not any(head.mark))
        if any(each[_HEADER.size : HEADER_BYTES]) or not is_head:
            raise error or another_call(rank)


def can_be_sent(plan: DistributedPlan) -> bool:
    """Tell whether all that a rank sends fits a letter: partials for everyone, in one collective."""
    borders = isinstance(plan.cut, FreeCut) and plan.cut.head > 0
    fits = plan.share_bytes - TAG_BYTES <= plan.group.letter_bytes - HEADER_BYTES
    return fits and not borders and not plan.takes_first and plan.root is None


class Letters:
    """Memory for the letters of a group in a stream, which calls use one after the other.

    Attributes
    ----------
    gather : Gather
        Of letters.
    verdict : Buffer
        A word on the device: 0 where all letters of a fold had its tag.
    """

    def __init__(self, group: Group, stream: Stream) -> None:
        context = stream.context
        self.group, self.stream = group, stream
        self.gather = group.gather(group.letter_bytes, stream)
        self.verdict, found = Buffer.allocate(8, context), Buffer.pinned(8, context)
        self.verdict.fill(0, stream=stream)
        self._header = Buffer.pinned(HEADER_BYTES, context)
        self._word, self._bytes = found.host_view(), self._header.host_view()
        self._fetch = raising("cuMemcpyAsync", found.pointer, self.verdict.pointer, found.size_bytes, stream.handle)
        self._wait = raising("cuStreamSynchronize", stream.handle)
        self._mine = Buffer.from_pointer(self.gather.mine, HEADER_BYTES, context=context, owner=self.gather)
        self._written, self._read = b"", cast("tuple[Buffer, Buffer] | None", None)

    def write(self, header: bytes) -> None:
        """Put a header in front of this rank's letter. The host has waited for the one before."""
        if header is not self._written:
            self._bytes[:] = np.frombuffer(header, np.uint8)
            self._written = b""
            self._mine.copy_from(self._header, stream=self.stream)
            self._written = header

    def are_alike(self) -> bool:
        """Wait for the stream, and tell whether all letters had the tag that the fold looked for.

        The context of a default stream must be current.
        """
        self._fetch()
        self._wait()
        if not self._word[0]:
            return True
        self.verdict.fill(0, stream=self.stream)
        return False

    def exchange(self, header: bytes) -> list[bytes]:
        """Send a letter without partials, and return the headers of all."""
        self.write(header)
        self.gather(b"")
        return self.read()

    def read(self) -> list[bytes]:
        """Return the headers of all letters, which the host waits for."""
        size, ranks, context = self.gather.share_bytes, self.group.size, self.stream.context
        if self._read is None:
            there = Buffer.from_pointer(self.gather.everyone, size * ranks, context=context, owner=self.gather)
            self._read = there, Buffer.pinned(size * ranks, context)
        there, here = self._read
        there.copy_to(here, stream=self.stream)
        self._wait()
        return [each[:HEADER_BYTES].tobytes() for each in here.host_view().reshape(ranks, size)]


class BoundLetter:
    """A plan's launches in a place, with letters for shares: a call is one collective, which the host waits for.

    It is for calls of the place's thread, while its context is current, and that are not captured.

    Attributes
    ----------
    plan : DistributedPlan
        Of the lengths that are expected.
    """

    def __init__(self, plan: DistributedPlan, letters: Letters, head: Head, place: Place) -> None:
        described = plan.described
        self.plan, self._letters = plan, letters
        self._header = letter_of(head, HEADER_BYTES, described.tag)
        begin = letters.gather.mine + HEADER_BYTES
        self._launches = [
            (PlacedLaunch(each.plan, place), each.source, begin + each.result, each.second) for each in plan.pieces
        ]
        fold = fold_plan(
            described.folded, described.types, plan.cut, kept=described.kept, apart=letters.gather.share_bytes,
            lead=HEADER_BYTES, tag=described.tag, verdict=letters.verdict, shape=described.shape, context=plan.context,
        )  # fmt: skip
        self._fold = PlacedLaunch(fold, place, described.initial)

    def __call__(self, source: int, result: int, second: int | None = None) -> bool:
        """Reduce, as `BoundDistributed` does; False if other ranks expected something else, and there is no result.

        Then all ranks know it, and `Group.told` is what they told.
        """
        letters = self._letters
        letters.write(self._header)
        launch_all(self._launches, source, second)
        letters.gather(self.plan.described.tag)
        self._fold(letters.gather.everyone, result)
        if letters.are_alike():
            return True
        letters.group.told = letters.read()
        return False


class BoundHead:
    """A plan's launches in a place, behind an exchange of lengths: a call where partials do not fit a letter.

    It is for calls as those of a `BoundLetter`.

    Attributes
    ----------
    plan : DistributedPlan
        Of the lengths that are expected.
    """

    def __init__(self, plan: DistributedPlan, bound: BoundDistributed, head: Head, place: Place) -> None:
        group = plan.group
        self.plan, self._bound = plan, bound
        self._letter = letter_of(head, HEADER_BYTES)
        self._exchange = group.letters_in(place.stream).exchange if group.letter_bytes else group.exchange
        self._expected = [Head(length, head.mark) for length in plan.cut.lengths]

    def __call__(self, source: int, result: int, second: int | None = None) -> bool:
        """Reduce, as `BoundDistributed` does; False if ranks tell of something else, as of a `BoundLetter`."""
        told = self._exchange(self._letter)
        if heads_of(told) != self._expected:
            self.plan.group.told = told
            return False
        self._bound(source, result, second)
        return True
