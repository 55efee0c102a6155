"""The machine: executes a kernel, one instruction at a time for all threads that have reached it.

Most of its time is the fixed cost of calls of NumPy, since a test's launch has few warps: a move or an addition takes
3 us, a shuffle 20, a load 90 from global and 140 from shared memory, mostly to count and to detect races, and to bind
an instruction to its registers takes 30. So it pays to do things once: `decoded` binds for all launches of a kernel,
and straight lines of code run in one loop that does not look for branches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

import numpy as np

from lowlevel_reduce.simulator.machine.control import warps
from lowlevel_reduce.simulator.machine.control.barriers import ANY_WARP_BARRIER, EXITED, RUNNING, Barriers
from lowlevel_reduce.simulator.machine.control.calls import Calls
from lowlevel_reduce.simulator.machine.control.cohorts import Cohorts
from lowlevel_reduce.simulator.machine.control.counters import Counters
from lowlevel_reduce.simulator.machine.control.decoded import Decoded, decoded
from lowlevel_reduce.simulator.machine.control.faults import UNFIT, ThreadFault, unfit
from lowlevel_reduce.simulator.machine.control.flight import Launch, check_launch, unknown
from lowlevel_reduce.simulator.machine.control.instructions import WARP_INSTRUCTIONS
from lowlevel_reduce.simulator.machine.control.progress import Progress
from lowlevel_reduce.simulator.machine.control.reports import INSTRUCTIONS, deadlock, endless, fault_at
from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.memory.flags import all_of, any_of, indices_of
from lowlevel_reduce.simulator.machine.memory.spaces import GlobalMemory
from lowlevel_reduce.simulator.machine.memory.storage import Array
from lowlevel_reduce.simulator.machine.races.meetings import BARRIERS_OF_A_BLOCK
from lowlevel_reduce.simulator.ptx.code import Instruction
from lowlevel_reduce.simulator.ptx.declared import END_OF_CODE
from lowlevel_reduce.simulator.ptx.operands import Immediate, Operand
from lowlevel_reduce.simulator.ptx.variables import place_variables

__all__ = ["run"]

TURNS = 4
"""A thread yields to others after 2**TURNS backward branches, so that loops reconverge and polling starves nobody."""

NO_LIMIT = 1 << 60


def run(launch: Launch, memory: GlobalMemory) -> Counters:
    """Execute a kernel to its end and return what was counted.

    Raises
    ------
    KernelFault
        If a thread does something wrong, or no thread can go on.
    UnknownInstruction
        If the machine does not know an instruction that is executed.
    ValueError
        If the launch is impossible because the sizes do not fit together.
    """
    check_launch(launch)
    own: dict[str, int] = {}
    if launch.addresses is None and launch.kernel.module_variables:
        own = place_variables(launch.kernel.module_variables, memory)
        launch = replace(launch, addresses=own)
    try:
        with np.errstate(all="ignore"), decoded(launch, memory) as code:
            return _Machine(launch, code).run()
    finally:
        for address in own.values():
            memory.free(address)


class _Machine:
    """One launch."""

    def __init__(self, launch: Launch, code: Decoded) -> None:
        self._launch = launch
        self._decoded = code
        self._flight = code.flight
        self._code = launch.kernel.instructions
        self._executed = [0] * (len(self._code) + 1)  # how many warps more than at the instruction before
        self._control: dict[str, Callable[[Instruction, int, Array], int | None]] = {
            "bra": self._branch,
            "ret": self._return,
            "call": self._call,
            "brx": self._switch,
            "exit": self._exit,
            "trap": self._trap,
            END_OF_CODE: self._overrun,
            "nanosleep": self._sleep,
            "bar": self._barrier,
            "barrier": self._barrier,
            **dict.fromkeys(WARP_INSTRUCTIONS, self._together),
        }
        if launch.watch is not None:
            self._control = launch.watch.control(self._flight, self._control)
        self._pc: Array = np.zeros(self._flight.count, np.int64)
        self._barriers = Barriers(self._flight, self._pc)
        self._calls = Calls(self._flight, self._pc)
        self._turns: Array = np.zeros(self._flight.count, np.int64)
        units = self._flight.geometry.units
        self._order: Array = np.arange(units)
        self._cohorts: Cohorts | None = None  # in the natural order
        if launch.seed is not None:
            random = np.random.default_rng(launch.seed)
            wave = self._flight.geometry.resident_units if launch.in_waves else units
            self._order = np.concatenate([random.permutation(self._order[i : i + wave]) for i in range(0, units, wave)])
            self._cohorts = Cohorts(random, self._flight.count // WARP)
        self._next = 0
        self._vacant = True
        self._progress = Progress()
        self._group: slice | Array = slice(0, 0)
        self._now = 0
        self._warps = 0  # of the group
        self._whole: bool | None = None
        self._jumped: int | None = None  # where threads last branched backwards

    def run(self) -> Counters:
        """Run until every block has exited."""
        limit = INSTRUCTIONS if self._launch.instructions is None else self._launch.instructions
        while True:
            if self._vacant:
                self._fill()
            picked = self._pick()
            if picked is None:
                if not any_of(self._flight.live):
                    return self._count()
                raise deadlock(self._flight, self._barriers, self._pc, "nobody can go on")
            else:
                self._advance(*picked)
                if self._flight.clock > limit and any_of(self._flight.live):
                    raise endless(self._flight, self._barriers, self._pc, self._jumped, limit)

    def _fill(self) -> None:
        """Put the next blocks into the slots of clusters that have exited."""
        self._vacant = False
        flight, geometry = self._flight, self._flight.geometry
        unit = geometry.stride * geometry.cluster_blocks
        vacant: Array = ~np.any(flight.live.reshape(-1, unit), axis=1)
        free = indices_of(vacant)[: self._order.size - self._next]
        if not free.size:
            return
        slots = (free[:, None] * geometry.cluster_blocks + np.arange(geometry.cluster_blocks)).ravel()
        given = self._order[self._next : self._next + free.size]
        self._next += free.size
        geometry.unit_of_slot[slots] = np.repeat(given, geometry.cluster_blocks)
        threads = (slots[:, None] * geometry.stride + np.arange(geometry.stride)).ravel()
        threads = threads[geometry.exists[threads]]
        flight.live[threads] = True
        self._pc[threads] = self._launch.kernel.start
        self._turns[threads] = 0
        self._calls.depth[threads] = 0
        self._barriers.start(threads)
        for slot in slots.tolist():
            flight.shared.forget(slot * flight.shared_stride, flight.shared_stride)
            unit = flight.local_stride * geometry.stride
            flight.local.forget(slot * unit, unit)
        flight.start(slots)

    def _pick(self) -> tuple[Array, int] | None:
        """Return the threads to run next, and the place of other threads, which they must not pass."""
        ready = indices_of(self._barriers.state == RUNNING)
        if not ready.size:
            return None
        shuffled = self._cohorts is not None and self._progress.lively(self._flight)
        if self._cohorts is not None and shuffled:
            ready = self._cohorts.pick(ready)
        turns, places = self._turns[ready] >> TURNS, self._pc[ready]
        turn = int(turns.min())
        same = turns == turn
        if not all_of(same):
            ready, places = ready[same], places[same]
        if not shuffled and self._progress.stuck(turn, self._flight, self._state):
            why = "it waits for a change of memory that nobody will make"
            raise deadlock(self._flight, self._barriers, self._pc, why)
        place = int(places.min())
        here = places == place
        if all_of(here):
            return ready, NO_LIMIT
        return ready[here], int(places[~here].min())

    def _state(self) -> int:
        """Return a hash of the machine's state that does not depend on how long it has been running."""
        running = self._barriers.state == RUNNING
        start = int(self._turns[running].min()) >> TURNS << TURNS
        turns = np.where(running, self._turns - start, 0)
        parts = (self._flight.digest(), self._barriers.digest(), self._calls.digest())
        return hash((*parts, self._pc.tobytes(), turns.tobytes()))

    def _advance(self, threads: Array, limit: int) -> None:
        """Execute instructions for a group until it diverges, waits or reaches the place of other threads."""
        pc = int(self._pc[threads[0]])
        first, last = int(threads[0]), int(threads[-1])
        self._group = group = slice(first, last + 1) if last - first + 1 == threads.size else threads
        self._warps = warps_here = _warp_count(threads)
        self._whole = None
        ends, executed, flight = self._decoded.ends, self._executed, self._flight
        following: int | None = pc
        try:
            while following is not None and following < limit:
                self._now = pc = following
                end = min(ends[pc], limit) if ends[pc] > pc else pc + 1
                flight.clock += end - pc
                executed[pc] += warps_here
                executed[end] -= warps_here
                if ends[pc] > pc:
                    self._straight(pc, end, group)
                    following = end
                else:
                    following = self._control[self._code[pc].opcode](self._code[pc], pc, threads)
        except ThreadFault as fault:
            raise fault_at(self._flight, self._now, fault.thread, fault.reason) from None
        except UNFIT as error:
            raise unfit(self._code[self._now], error) from error
        if following is not None:
            self._pc[threads] = following

    def _straight(self, first: int, end: int, group: slice | Array) -> None:
        """Execute instructions one after another."""
        steps, step_of = self._decoded.steps, self._decoded.step
        place = first
        try:
            for place in range(first, end):
                (steps[place] or step_of(place))(group)
        except Exception:
            self._now = place
            raise

    def _branch(self, instruction: Instruction, pc: int, threads: Array) -> int | None:
        target = instruction.target
        if target is None:
            raise unknown(instruction)
        counters = self._flight.counters
        counters.branches += self._warps
        active = self._decoded.active(instruction, self._group)
        if active is not None and not any_of(active):
            return pc + 1
        if active is None:
            if target > pc:
                return target
            self._jump(threads, target, pc)
            return None
        taken, others = threads[active], threads[~active]
        counters.divergent_branches += np.intersect1d(taken // WARP, others // WARP).size
        self._pc[others] = pc + 1
        self._jump(taken, target, pc)
        return None

    def _jump(self, threads: Array, target: int, pc: int) -> None:
        self._pc[threads] = target
        if target <= pc:
            self._turns[threads] += 1
            self._jumped = pc

    def _split(self, instruction: Instruction, pc: int, threads: Array) -> Array:
        """Move the threads whose guard is false to the next instruction; return the others."""
        active = self._decoded.active(instruction, self._group)
        if active is None:
            return threads
        self._pc[threads[~active]] = pc + 1
        return threads[active]

    def _call(self, instruction: Instruction, pc: int, threads: Array) -> None:
        calling = self._split(instruction, pc, threads)
        if calling.size:
            self._calls.call(instruction, pc, calling)

    def _switch(self, instruction: Instruction, pc: int, threads: Array) -> None:
        """Execute brx: each thread goes to the target that its index selects."""
        self._flight.counters.branches += self._warps
        going = self._split(instruction, pc, threads)
        if not going.size:
            return
        targets = self._calls.switch(instruction, going)
        warps_parted = np.unique(np.stack([going // WARP, targets]), axis=1).shape[1] - _warp_count(going)
        self._flight.counters.divergent_branches += warps_parted
        self._pc[going] = targets
        self._turns[going[targets <= pc]] += 1

    def _return(self, instruction: Instruction, pc: int, threads: Array) -> None:
        self._leave(self._calls.returning(self._split(instruction, pc, threads)))

    def _exit(self, instruction: Instruction, pc: int, threads: Array) -> None:
        self._leave(self._split(instruction, pc, threads))

    def _leave(self, leaving: Array) -> None:
        if not leaving.size:
            return
        self._barriers.state[leaving] = EXITED
        self._flight.live[leaving] = False
        self._flight.arrivals.leave(leaving)
        self._flight.changes += 1
        self._vacant = True
        self._barriers.release_clusters()
        for tag in self._barriers.waiting_tags():
            self._release(tag, self._barriers.complete_warps(tag))

    def _trap(self, instruction: Instruction, pc: int, threads: Array) -> None:
        stopped = self._split(instruction, pc, threads)
        if stopped.size:
            raise ThreadFault(int(stopped[0]), "the kernel traps")

    def _overrun(self, instruction: Instruction, pc: int, threads: Array) -> None:
        raise ThreadFault(int(threads[0]), "it goes on behind the last instruction, where no ret is")

    def _sleep(self, instruction: Instruction, pc: int, threads: Array) -> None:
        sleeping = self._split(instruction, pc, threads)
        self._turns[sleeping] = ((self._turns[sleeping] >> TURNS) + 1) << TURNS
        self._pc[sleeping] = pc + 1

    def _together(self, instruction: Instruction, pc: int, threads: Array) -> int | None:
        """Execute an instruction of a warp once all lanes of the member mask have reached it."""
        if instruction.guard is None and self._whole_warps(threads):
            self._decoded.together(pc)(self._group)
            return pc + 1
        self._meet(instruction, pc, pc, self._split(instruction, pc, threads))
        return None

    def _whole_warps(self, threads: Array) -> bool:
        """Return whether the group that is executed consists of whole warps, which is found out once."""
        if self._whole is None:
            self._whole = self._barriers.whole_warps(threads)
        return self._whole

    def _meet(self, instruction: Instruction, pc: int, tag: int, threads: Array) -> None:
        if not threads.size:
            return
        self._pc[threads] = pc
        masks = self._flight.read(instruction, warps.member_mask(instruction), "u32")(threads)
        members = warps.members_of(threads, masks)
        self._release(tag, self._barriers.wait_in_warp(threads, tag, members))

    def _release(self, tag: int, ready: Array) -> None:
        """Execute the instruction at which threads waited for their warps, which are complete now."""
        if not ready.size:
            return
        if tag != ANY_WARP_BARRIER:
            self._now = tag
            self._decoded.together(tag)(ready)
        self._pc[ready] += 1
        self._barriers.state[ready] = RUNNING

    def _barrier(self, instruction: Instruction, pc: int, threads: Array) -> int | None:
        """Execute bar and barrier of warp, block or cluster."""
        modifiers = [m for m in instruction.modifiers if m not in {"aligned", "cta", "acquire", "release", "relaxed"}]
        self._flight.counters.barriers += self._warps
        if modifiers == ["warp", "sync"]:
            if instruction.guard is None and self._whole_warps(threads):
                return pc + 1
            self._meet(instruction, pc, ANY_WARP_BARRIER, self._split(instruction, pc, threads))
            return None
        coming = self._split(instruction, pc, threads)
        self._pc[coming] = pc + 1
        if not coming.size:
            return None
        if modifiers == ["cluster", "arrive"]:
            self._barriers.arrive_in_cluster(coming, release="relaxed" not in instruction.modifiers)
        elif modifiers == ["cluster", "wait"]:
            self._barriers.wait_in_cluster(coming)
        elif modifiers in (["sync"], ["arrive"]):
            wait = self._barriers.wait_in_block if modifiers == ["sync"] else self._barriers.arrive_in_block
            wait(coming, *self._block_barrier(instruction, instruction.operands, coming))
        elif modifiers[:1] == ["red"] and len(modifiers) == 3:
            votes = self._flight.read(instruction, instruction.operands[-1], "pred")(coming)
            places = self._block_barrier(instruction, instruction.operands[1:-1], coming)
            self._barriers.vote_in_block(coming, *places, votes)
        else:
            raise unknown(instruction)
        return None

    def _block_barrier(
        self, instruction: Instruction, operands: tuple[Operand, ...], threads: Array
    ) -> tuple[Array, Array]:
        """Return the number of the barrier and how many threads it expects."""
        number, *rest = operands
        expected: Operand = rest[0] if rest else Immediate(self._flight.geometry.block_threads)
        barrier, count = (
            self._flight.read(instruction, operand, "u32")(threads).astype(np.int64) for operand in (number, expected)
        )
        if (barrier >= BARRIERS_OF_A_BLOCK).any():
            raise ThreadFault(int(threads[np.argmax(barrier)]), f"a block has {BARRIERS_OF_A_BLOCK} barriers")
        return barrier, count

    def _count(self) -> Counters:
        if self._launch.trace is not None:
            self._launch.trace.note(self._launch.kernel.name, self._flight.races)
        executed = list(accumulate(self._executed[:-1]))
        if self._launch.watch is not None:
            self._launch.watch.ended(self._flight, executed)
        self._flight.counters.classify(self._decoded.classes, executed)
        self._control.clear()  # its methods refer to this object, which would be left to the garbage collector
        return self._flight.counters


def _warp_count(threads: Array) -> int:
    """Return how many warps the threads, which are in ascending order, belong to."""
    first, last = int(threads[0]), int(threads[-1])
    if last - first + 1 == threads.size:
        return last // WARP - first // WARP + 1
    warps = threads // WARP
    return int(np.count_nonzero(warps[1:] != warps[:-1])) + 1
