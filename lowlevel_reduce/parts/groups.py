"""What `lr.distributed` needs of an engine that connects ranks: a group, and gathers of device memory in it."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lowlevel_reduce.arguments import integer, shown
from lowlevel_reduce.driver import Buffer, Stream
from lowlevel_reduce.errors import GroupError
from lowlevel_reduce.parts.fold import TAG_BYTES
from lowlevel_reduce.parts.letters import Letters

if TYPE_CHECKING:
    from lowlevel_reduce.parts.plan import DistributedPlan

__all__ = [
    "REFUSAL",
    "BytesGroup",
    "Gather",
    "Group",
    "StagedGather",
    "forget",
    "group_of",
    "kept_of_stream",
    "new_group",
]

_K = TypeVar("_K")
_T = TypeVar("_T")

_MOST_STREAMS = 4
"""For how many streams a group keeps memory for letters, and a plan what is bound to them."""

BOUNDS = {"_letters": _MOST_STREAMS}
"""The most entries of what is kept here, by its name: who watches for growth tells it from what has no bound."""

_numbers = itertools.count(1)

REFUSAL = b"\xff" * TAG_BYTES
"""What stands for the tag in the share of a rank that refuses to take part; no tag is this."""


class Gather(ABC):
    """One all-gather of device memory, prepared: every call gathers the same bytes at the same addresses.

    Attributes
    ----------
    mine, everyone : int
        Device address of this rank's share, and of the shares of all ranks, one after the other.
    share_bytes : int
        Bytes of a share, a multiple of 16.
    capturable : bool
        Whether a call may be captured into a graph.
    """

    mine: int
    everyone: int
    share_bytes: int
    capturable: bool = True

    @abstractmethod
    def __call__(self, tag: bytes) -> None:
        """Gather in the order of the stream; raises GroupError if a share has another tag and the host sees it."""


class Group(ABC):
    """Ranks that an engine connects, as this rank sees them.

    Attributes
    ----------
    rank, size : int
        This rank's number, and how many there are.
    plans : OrderedDict
        Plans of earlier calls. Their keys are the same on every rank, and so is which of them are still there.
    marks : OrderedDict
        What stands for what was asked for, in calls without a length, of this rank alone.
    number : int
        What tells it from all other groups of this process.
    sees_tags : bool
        Whether a gather looks at the tags itself; otherwise the launch that folds the shares does.
    letter_bytes : int
        Bytes of each rank's letter in a call without a length, the same on every rank; 0 where the host exchanges them.
    told : list of bytes or None
        The letters of a call that had no result, until another one is made by what they say: see the module `letters`.
    """

    letter_bytes = 0
    sees_tags = False

    def __init__(self, rank: object, size: object) -> None:
        self.rank, self.size = integer(rank, "a rank is an integer"), integer(size, "a group's size is an integer")
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank {self.rank} is not among the {self.size} ranks of the group")
        self.plans: OrderedDict[Any, DistributedPlan] = OrderedDict()
        self.marks: OrderedDict[Any, tuple[dict[str, Any], bytes]] = OrderedDict()
        self.number = next(_numbers)
        self.told: list[bytes] | None = None
        self._letters: dict[int, Letters] = {}

    @abstractmethod
    def exchange(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks, which have the same length; the host waits for them."""

    @abstractmethod
    def gather(self, share_bytes: int, stream: Stream) -> Gather:
        """Return an all-gather in the order of a stream, whose context must be current; nothing is sent yet."""

    def default_stream(self) -> Stream | None:
        """Return the stream in which the engine's own library works, if it has one."""
        return None

    def refuse(self, sizes: Sequence[int]) -> None:
        """Take part in the gathers of a call, of shares of these bytes, without a part, so that no rank waits.

        All other ranks get an error, as `BoundDistributed.refuse` says, for which this needs nothing that is bound.
        """
        with contextlib.suppress(GroupError):  # another rank has ended; this one raises its own reason
            for size in sizes[:1] if self.sees_tags else sizes:  # all others stop at the first
                self.exchange(REFUSAL.ljust(size, b"\0"))

    def drop(self) -> None:
        """Drop the plans that are kept, with what is bound to streams."""
        for each in self.plans.values():
            each.close()
        self.plans.clear()
        self.marks.clear()
        self._letters.clear()

    def letters_in(self, stream: Stream) -> Letters:
        """Return the memory for letters in a stream, whose context must be current."""
        return kept_of_stream(self._letters, stream.id, lambda: Letters(self, stream))


def kept_of_stream(kept: dict[_K, _T], key: _K, make: Callable[[], _T]) -> _T:
    """Return what is kept for a stream, or is made now; before there is too much the oldest is dropped.

    Who is bound to what was dropped keeps it alive.
    """
    found = kept.get(key)
    if found is None:
        while len(kept) >= _MOST_STREAMS:
            del kept[next(iter(kept))]
        found = kept[key] = make()
    return found


class StagedGather(Gather):
    """A gather through page-locked host memory, for engines that take no device memory; the host waits for it."""

    capturable = False

    def __init__(self, group: BytesGroup, share_bytes: int, stream: Stream) -> None:
        self.group, self.stream, self.share_bytes = group, stream, share_bytes
        context = stream.context
        whole = share_bytes * group.size
        self._there = Buffer.allocate(whole, context)
        self._own = Buffer.allocate(share_bytes, context)
        self._host, self._host_own = Buffer.pinned(whole, context), Buffer.pinned(share_bytes, context)
        self._bytes, self._bytes_own = self._host.host_view(), self._host_own.host_view()
        self.mine, self.everyone = self._own.pointer, self._there.pointer

    def __call__(self, tag: bytes) -> None:
        """Copy to the host, gather there, look at the tags, and copy back; as of `Gather`."""
        if self.stream.is_capturing:
            raise ValueError("this engine gathers on the host, which a capture cannot: NCCL's groups can be captured")
        self._own.copy_to(self._host_own, stream=self.stream)
        # Also for what the last call copied to the device out of the memory that is about to be written.
        self.stream.synchronize()
        self.group.gather_bytes(self._bytes_own, self._bytes)
        check_tags(self._bytes.reshape(self.group.size, self.share_bytes), tag, self.group.rank)
        self._there.copy_from(self._host, stream=self.stream)


class BytesGroup(Group):
    """Ranks that are connected on the host: any object with ``rank``, ``size`` and ``all_gather(bytes)``.

    ``all_gather`` takes the same number of bytes on every rank, and returns those of all, as a sequence or joined.
    """

    sees_tags = True

    def __init__(self, engine: Any) -> None:
        super().__init__(engine.rank, engine.size)
        self._engine = engine

    def exchange(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks."""
        found = self._engine.all_gather(message)
        parts = [found] if isinstance(found, (bytes, bytearray, memoryview)) else list(found)
        joined = b"".join(bytes(part) for part in parts)
        if len(joined) != len(message) * self.size:
            raise GroupError(
                f"all_gather returned {len(joined)} bytes for {len(message)} of each of {self.size} ranks: "
                "a rank that calls another reduction sends another number of bytes"
            )
        return [joined[start : start + len(message)] for start in range(0, len(joined), len(message))]

    def gather_bytes(self, mine: np.ndarray[Any, Any], everyone: np.ndarray[Any, Any]) -> None:
        """Gather the bytes of one array into another, on the host."""
        everyone[:] = np.frombuffer(b"".join(self.exchange(mine.tobytes())), np.uint8)

    def gather(self, share_bytes: int, stream: Stream) -> Gather:
        """Return a gather through page-locked memory."""
        return StagedGather(self, share_bytes, stream)


def check_tags(shares: np.ndarray[Any, Any], tag: bytes, rank: int) -> None:
    """Refuse shares of another reduction, and those of ranks that refused; raises GroupError alike on every rank."""
    tags = [shares[number, :TAG_BYTES].tobytes() for number in range(len(shares))]
    refusing = [number for number, each in enumerate(tags) if each == REFUSAL and number != rank]
    if refusing:
        raise GroupError(f"rank {refusing[0]} could not take part in the reduction: its own error says why")
    others = [number for number, each in enumerate(tags) if each not in (tag, REFUSAL)]
    if others:
        raise GroupError(
            f"rank {others[0]} reduces something else than rank {rank}: all ranks make the same calls in the same order"
        )


_of_engines: dict[int, tuple[Any, Group]] = {}
"""By the identity of each object, which is kept alive: an engine's objects need neither a hash nor weak references."""


def group_of(engine: Any) -> Group:
    """Return the group of an engine's object, the same one each time.

    Parameters
    ----------
    engine : object or None
        A `Group`; a ``ProcessGroup`` of torch, None being its default one; a communicator of nccl4py or mpi4py; or an
        object with ``rank``, ``size`` and ``all_gather(bytes)``.

    Raises
    ------
    TypeError
        If it is none of these, or None while torch has no default group.
    """
    if isinstance(engine, Group):
        return engine
    if engine is None:
        engine = _default_group()
    known = _of_engines.get(id(engine))
    if known is None:
        known = _of_engines[id(engine)] = (engine, new_group(engine))
    return known[1]


def forget(engine: Any) -> None:
    """Drop what is kept for an engine's object, or of its group, plans and memory, before the engine ends.

    None is torch's default group, as everywhere. For an object that was no group yet, nothing is kept.
    """
    engine = _default_group() if engine is None else engine
    for key, (known, group) in list(_of_engines.items()):
        if engine is known or engine is group:
            del _of_engines[key]
            group.drop()


def new_group(engine: Any) -> Group:
    """Return a new group of an engine's object, as `group_of`."""
    modules = {each.__module__.partition(".")[0] for each in type(engine).__mro__}
    for library, module, name in (
        ("torch", "torch_group", "torch_group"),
        ("nccl", "nccl_group", "NcclGroup"),
        ("mpi4py", "mpi_group", "mpi_group"),
    ):
        if library in modules:
            made: Group = getattr(importlib.import_module(f"lowlevel_reduce.parts.{module}"), name)(engine)
            return made
    if all(hasattr(engine, name) for name in ("rank", "size", "all_gather")):
        return BytesGroup(engine)
    raise TypeError(
        "a group is torch's, nccl4py's, mpi4py's, or an object with rank, size and all_gather(bytes); "
        f"not {shown(engine)}"
    )


def _default_group() -> Any:
    # What distributed.is_available() and is_initialized() tell as well, which each call would wait for.
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    world = getattr(getattr(distributed, "group", None), "WORLD", None)
    if world is None:
        raise TypeError("group= is needed: torch has no default group, as torch.distributed.init_process_group makes")
    return world
