"""Data under way: what asynchronous operations have taken from their sources and not yet brought to their destinations.

An operation's data arrives when it is issued, at the earliest, or when somebody waits for it, at the latest. The seed
of the launch decides at random; without one, all arrive at the latest. A wait finds an operation by its commit group,
or by the mbarrier that counts its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lowlevel_reduce.simulator.machine.control.agents import BULK_READ, BULK_WRITE, COPY, Agents, agents_of_warp
from lowlevel_reduce.simulator.machine.control.faults import ThreadFault
from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.memory.flags import all_of, any_of
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.ptx.code import Instruction, UnknownInstruction
from lowlevel_reduce.simulator.ptx.operands import Immediate

if TYPE_CHECKING:
    from lowlevel_reduce.simulator.machine.control.flight import Flight

__all__ = ["Act", "Arrivals", "Groups", "most_groups"]

Act = Callable[[Array], None]
"""Brings the rows of these numbers to their destinations."""


@dataclass(frozen=True)
class _Late:
    """Rows of data that arrive once they are waited for.

    Attributes
    ----------
    keys : numpy.ndarray
        What each row is waited for by: its commit group, or the place of its mbarrier in shared memory.
    threads : numpy.ndarray
        Who issued each row.
    rows : numpy.ndarray
        The numbers of the rows that have not arrived.
    act : callable
        Lets rows arrive.
    """

    keys: Array
    threads: Array
    rows: Array
    act: Act

    def part(self, chosen: Array) -> _Late:
        return _Late(self.keys[chosen], self.threads[chosen], self.rows[chosen], self.act)


MOST_GROUPS = 1024
"""The most commit groups that a wait may leave: for each, every thread has a time."""


def most_groups(code: Iterable[Instruction]) -> int:
    """Return the most commit groups that a wait in this code leaves unfinished."""
    most = 0
    for one in code:
        if one.opcode == "cp" and "wait_group" in one.modifiers:
            left = one.operands[0] if len(one.operands) == 1 else None
            if not isinstance(left, Immediate) or not 0 <= left.value <= MOST_GROUPS:
                raise UnknownInstruction(one.text, one.line, f"it leaves 0 to {MOST_GROUPS} groups, as a constant")
            most = max(most, left.value)
    return most


def _arrive(late: list[_Late], due: Callable[[_Late], Array]) -> list[_Late]:
    """Let rows arrive that are due, in the order in which they were issued; return those that are not."""
    left = []
    for one in late:
        now = due(one)
        if any_of(now):
            one.act(one.rows[now])
        if not all_of(now):
            left.append(one.part(~now))
    return left


class Groups:
    """The commit groups of each thread, of one kind: those of small copies, or those of bulk ones.

    Parameters
    ----------
    agents : Agents
        Whose clocks tell which groups a warp has waited for.
    kinds : tuple of str
        The agents whose operations the groups hold.
    threads, most : int
        Threads in flight, and the most groups that a wait leaves unfinished.
    """

    def __init__(self, agents: Agents, kinds: tuple[str, ...], threads: int, most: int) -> None:
        self._agents = agents
        self._width = most + 1
        self.committed: Array = np.zeros(threads, np.int64)
        self.finished: Array = np.zeros(threads, np.int64)
        """How many groups of each thread are closed, and how many have arrived."""
        self._times = {kind: np.zeros((threads, self._width), np.int32) for kind in kinds}

    def start(self, threads: Array) -> None:
        """Begin anew for the threads of new blocks."""
        self.committed[threads] = self.finished[threads] = 0

    def commit(self, threads: Array) -> None:
        """End the open group of these threads."""
        for kind, times in self._times.items():
            times[threads, self.committed[threads] % self._width] = self._agents.next_group(kind, threads)
        self.committed[threads] += 1

    def wait(self, threads: Array, most: int, kinds: tuple[str, ...]) -> None:
        """Let threads wait until at most so many groups are unfinished, as far as agents of these kinds act in them."""
        last = self.committed[threads] - 1 - most
        some, last = threads[last >= 0], last[last >= 0]
        if some.size:
            for kind in kinds:
                self._agents.learn(kind, some, self._times[kind][some, last % self._width])
            self.finished[some] = np.maximum(self.finished[some], last + 1)

    def arrive(self, threads: Array) -> None:
        """Close the open groups of threads and let all their groups arrive, of which nobody learns by that."""
        self.commit(threads)
        self.finished[threads] = self.committed[threads]


class Arrivals:
    """What is under way in a launch of a kernel whose asynchronous instructions are `code`.

    Attributes
    ----------
    active : bool
        Whether the kernel has asynchronous operations.
    copies, bulk : Groups
        The commit groups of small copies, and of bulk ones.
    """

    def __init__(self, flight: Flight, code: tuple[Instruction, ...]) -> None:
        self.active = bool(agents_of_warp(code))
        agents, seed, most = flight.races.agents, flight.launch.seed, most_groups(code)
        count = flight.count if self.active else 0
        self._flight = flight
        self._random = None if seed is None else np.random.default_rng((seed, count))
        self.copies = Groups(agents, (COPY,), count, most)
        self.bulk = Groups(agents, (BULK_READ, BULK_WRITE), count, most)
        self._in_groups: dict[Groups, list[_Late]] = {self.copies: [], self.bulk: []}
        self._counted: list[_Late] = []
        self._early: Array = np.zeros(count, np.bool_)
        self._barrier: Array = np.zeros(count, np.int64)

    def groups(self, *, bulk: bool) -> Groups:
        """Return the commit groups of bulk copies, or those of small ones."""
        return self.bulk if bulk else self.copies

    def start(self, slots: Array) -> None:
        """Begin anew for the blocks that come into these slots."""
        stride = self._flight.geometry.stride
        threads = (slots[:, None] * stride + np.arange(stride)).ravel()
        self.copies.start(threads)
        self.bulk.start(threads)

    def issue(self, threads: Array, barriers: Array | int = 0) -> None:
        """Decide when the data of the operations arrives that threads issue now; the same for all lanes of a warp.

        `barriers` are the places in shared memory of the mbarriers that count it.
        """
        self._barrier[threads] = barriers
        if self._random is not None:
            self._early[threads] = (self._random.random(self._flight.count // WARP) < 0.5)[threads // WARP]

    def in_copy_group(self, threads: Array, act: Act) -> None:
        """Let rows arrive now, or when the open group of small copies of their threads is waited for."""
        self._in_group(self.copies, threads, act)

    def in_bulk_group(self, threads: Array, act: Act) -> None:
        """Let rows arrive now, or when the open group of bulk copies of their threads is waited for."""
        self._in_group(self.bulk, threads, act)

    def _in_group(self, groups: Groups, threads: Array, act: Act) -> None:
        self._in_groups[groups] += self._not_now(
            _Late(groups.committed[threads], threads, np.arange(threads.size), act)
        )

    def counted(self, threads: Array, act: Act) -> None:
        """Let rows arrive now, or when the mbarriers that count them are waited for."""
        self._counted += self._not_now(_Late(self._barrier[threads], threads, np.arange(threads.size), act))

    def waited(self, groups: Groups) -> None:
        """Let what belongs to finished groups arrive."""
        late = self._in_groups[groups]
        if late:
            self._in_groups[groups] = _arrive(late, lambda one: one.keys < groups.finished[one.threads])

    def polled(self, places: Array, test: Callable[[], None]) -> None:
        """Test mbarriers at these places of shared memory, and let what they count arrive.

        It arrives before the test. With a seed it arrives after it, too late for a thread that ignores that it failed.
        """
        if self._random is not None:
            test()
        if self._counted:
            self._counted = _arrive(self._counted, lambda one: np.isin(one.keys, places))
        if self._random is None:
            test()

    def leave(self, threads: Array) -> None:
        """Let threads exit: what is in their groups arrives; nothing may be under way to a block that has exited."""
        if not self.active:
            return
        live = self._flight.live
        for groups, late in self._in_groups.items():
            if late:
                self._in_groups[groups] = _arrive(late, lambda one: ~live[one.threads])
        running: Array = np.any(live.reshape(self._flight.geometry.slots, -1), axis=1)
        if any(not running[late.keys // self._flight.shared_stride].all() for late in self._counted):
            reason = "its block exits before what is stored to its shared memory asynchronously has arrived"
            raise ThreadFault(int(threads[0]), reason)

    def _not_now(self, late: _Late) -> list[_Late]:
        """Let the rows arrive that do so at the earliest; return the others."""
        return [late] if self._random is None else _arrive([late], lambda one: self._early[one.threads])
