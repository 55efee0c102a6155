"""The harness: checks the contenders for a case, then times them in turn, for several rounds of one run."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import lowlevel_reduce
from benchmarks.measure import caches, situations
from benchmarks.measure.contenders import SPOILT, Inputs, Maker, Peer, Ready
from benchmarks.measure.figures import OURS, Row, figure, row_of
from benchmarks.measure.problems import BLOCK, LAG, Case, check, pattern
from benchmarks.measure.situations import Neighbour, added
from benchmarks.measure.timing import Replay, captured, events_us, launches_for, rotation, timed_us
from benchmarks.measure.turns import Entries, in_turn, telling
from benchmarks.peers.common import RawArray
from lowlevel_reduce import Buffer, Stream
from lowlevel_reduce.dtypes import numpy_dtype

__all__ = ["SPOILT", "Harness", "Inputs", "Maker", "Mode", "Peer", "Ready", "ours"]

ROTATE_FROM_BYTES = 8 << 20
"""Smaller inputs are not rotated: they stay in the L2 between launches, as they would in use."""

TRIAL_US = 1500.0
"""Longer launches need no trial graph to estimate their time: the host is far ahead of the device."""

SLOW_US = 20_000.0
"""Contenders whose launch takes longer are timed in the first round only: no ratio depends on them."""

Mode = Literal["rotated", "hot", "events"]


def _nothing() -> None:
    """Do nothing."""


@dataclass
class Harness:
    """Contenders compared on one stream.

    Attributes
    ----------
    stream : Stream
        Where everything runs.
    rounds : int
        How often each contender is timed back to back.
    situation_rounds : int
        How often each is timed beside other kernels.
    """

    stream: Stream
    rounds: int = 5
    situation_rounds: int = situations.ROUNDS
    _memory: Buffer | None = None
    _dtype: str = ""
    _copies: int = 1

    def inputs(self, case: Case, mode: Mode, *, spare: bool = False) -> Inputs:
        """Return the elements of a case on the device; memory that holds the same type is reused.

        With `spare`, they are there at least twice, and all but the first copy may be used by others.
        """
        itemsize, block = numpy_dtype(case.dtype).itemsize, self._block_bytes(case.dtype)
        of_array = -(-(case.array_bytes + (case.shift + LAG * (case.arrays - 1)) * itemsize) // block) * block
        stride = of_array * case.arrays
        cold = mode != "hot" and case.nbytes >= ROTATE_FROM_BYTES
        self._copies = copies = rotation(case.nbytes, self.stream.context.device, stride) if cold else 1
        first = self._filled(case.dtype, stride * (max(copies, 2) if spare else copies))
        offsets = None
        if case.offsets is not None:
            offsets = Buffer.allocate(case.offsets.nbytes, self.stream.context)
            offsets.copy_from(case.offsets)
        pointers = [first + i * stride + case.shift * itemsize for i in range(copies)]
        lags = (0, of_array + LAG * itemsize)[: case.arrays]
        seconds = [pointer + lag for pointer in pointers for lag in lags[1:]]
        again = [pointers[0] + stride + lag for lag in lags] if spare else []
        return Inputs(case, pointers, offsets, seconds, again)

    def _block_bytes(self, dtype: str) -> int:
        return BLOCK * numpy_dtype(dtype).itemsize

    def _filled(self, dtype: str, size_bytes: int) -> int:
        """Return the address of memory of at least that size, filled with repetitions of the pattern."""
        if self._memory is not None and (self._dtype != dtype or self._memory.size_bytes < size_bytes):
            self.release()
        if self._memory is not None:
            caches.make_room()
        else:
            caches.release()
            context, block = self.stream.context, self._block_bytes(dtype)
            self._memory, self._dtype = Buffer.allocate(size_bytes, context), dtype
            self._memory.copy_from(pattern(dtype).values, size_bytes=block)
            done = block
            while done < size_bytes:  # each copy doubles what is there
                size = min(done, size_bytes - done)
                target = Buffer.from_pointer(self._memory.pointer + done, size, context=context, owner=self._memory)
                target.copy_from(self._memory, size_bytes=size)
                done += size
        return self._memory.pointer

    def release(self) -> None:
        """Free the memory of the elements."""
        if self._memory is not None:
            self.stream.synchronize()
            self._memory.close()
            self._memory = None

    def compare(
        self,
        cell: str,
        case: Case,
        peers: Sequence[Peer],
        *,
        mode: Mode = "rotated",
        neighbours: Callable[[Inputs], Sequence[Neighbour]] | None = None,
        **facts: Any,
    ) -> list[Row]:
        """Return the rows of a cell: ours and every peer that offers the case, each checked and then timed in turn.

        The first row is of the mode, and there is another one for each of the `neighbours`.
        """
        inputs = self.inputs(case, mode, spare=neighbours is not None)
        makers = [Maker(OURS, lambda: ours(case, inputs, self.stream))]
        makers += [make for peer in peers for make in peer.ready(case, inputs, self.stream)]
        begin = time.perf_counter()
        try:
            around = [] if neighbours is None else neighbours(inputs)
            entries = self.measure_around(case, makers, around, mode=mode)
            self.stream.synchronize()  # raises if a contender has lost the device: then no further cell can be measured
        finally:
            if inputs.offsets is not None:
                inputs.offsets.close()
        seconds = {"seconds": round(time.perf_counter() - begin, 2)}
        shape = {"op": case.op, "shape": list(case.shape), "axis": case.axis, "dtype": case.dtype, "shift": case.shift}
        shape |= {} if case.strides is None else {"strides": list(case.strides)}
        # What the case is stands in the first row alone: it is the longest part of a row.
        return [
            row_of(
                cell,
                found,
                size_bytes=case.moved_bytes,
                mode=name,
                **(shape | seconds if name == mode else {}),
                **facts,
            )
            for name, found in entries.items()
        ]

    def measure(self, case: Case, makers: Sequence[Maker], *, mode: Mode = "rotated") -> dict[str, dict[str, Any]]:
        """Return an entry for each contender: made ready, checked, captured, timed in turn, and checked once more.

        The inputs must be those that `inputs` returned last. A contender that fails in any of these steps gets an entry
        with the error.
        """
        return self.measure_around(case, makers, (), mode=mode)[mode]

    def measure_around(
        self, case: Case, makers: Sequence[Maker], neighbours: Sequence[Neighbour], *, mode: Mode = "rotated"
    ) -> dict[str, dict[str, dict[str, Any]]]:
        """Return what `measure` returns, by the mode, and the entries of the time added beside each of the neighbours.

        Whose result is wrong in the end has failed in all of them.
        """
        failed: dict[str, dict[str, Any]] = {}
        lanes: list[_Lane] = []
        known: dict[int, tuple[float, ...]] = {}
        try:
            for make in makers:
                self._admit(make, case, lanes, failed, mode, known)
            takers = {lane.ready.name: functools.partial(lane.once_us, self.stream) for lane in lanes}
            slow = [lane.ready.name for lane in lanes if lane.slow]
            samples = in_turn(takers, self.rounds, failed, once=slow)
            usual = {name: statistics.median(taken) for name, taken in samples.items()}
            beside = {each.mode: self._added(lanes, usual, each) for each in neighbours}
            for lane in lanes:
                if lane.ready.name in samples:
                    with telling(lane.ready.name, failed):  # the result of the last replay
                        check(case, lane.ready.results(), exact=lane.ready.exact, known=known)
            right = [lane for lane in lanes if lane.ready.name not in failed]
            found = {lane.ready.name: lane.figure(samples[lane.ready.name]) for lane in right} | failed
            return {mode: found} | {name: entries | failed for name, entries in beside.items()}
        finally:
            for lane in lanes:
                with suppress(Exception) if lane.ready.name in failed else nullcontext():
                    lane.close()

    def _added(self, lanes: Sequence[_Lane], usual: Mapping[str, float], neighbour: Neighbour) -> Entries:
        """Return the entries of the time added beside other kernels; an error there loses no other figure."""
        caches.make_room()  # of the graphs of the situation before
        failed: Entries = {}
        graphs = [lane.ready for lane in lanes if lane.replay is not None and lane.ready.name in usual]
        with telling(OURS, failed):
            return added(graphs, usual, neighbour, self.stream, failed, self.situation_rounds) | failed
        return failed

    def _admit(
        self,
        make: Maker,
        case: Case,
        lanes: list[_Lane],
        failed: dict[str, dict[str, Any]],
        mode: Mode,
        known: dict[int, tuple[float, ...]],
    ) -> None:
        """Make a contender ready, check its result, capture it, and check the result of a replay."""
        ready: Ready | None = None
        with telling(make.name, failed):
            ready = make()
            ready.enqueue(0)
            check(case, ready.results(), exact=ready.exact, known=known)
            lane = _Lane.of(ready, self.stream, mode, self._copies)
            lanes.append(lane)  # `measure` closes those
            if lane.replay is not None:
                check(case, ready.results(), exact=ready.exact, known=known)
        if ready is not None and make.name in failed and all(lane.ready is not ready for lane in lanes):
            with suppress(Exception):
                ready.close()


@dataclass
class _Lane:
    """A contender with its graph."""

    ready: Ready
    launches: int
    replay: Replay | None
    slow: bool = False

    @classmethod
    def of(cls, ready: Ready, stream: Stream, mode: Mode, copies: int) -> _Lane:
        once = events_us(ready.enqueue, stream, launches=1)
        slow = once > SLOW_US and ready.name != OURS
        copies = 1 if slow else copies  # one launch is enough
        once = once if slow else min(once, events_us(ready.enqueue, stream, launches=1))
        if mode == "events" or not ready.graph:
            return cls(ready, launches_for(once, copies), None, slow)
        own = ready.record or (lambda enqueue, launches: captured(enqueue, stream, launches))
        record = functools.partial(own, ready.enqueue)
        if once < TRIAL_US:  # too short for events: they would include host time
            with _closing(record(8)) as trial:
                once = min(timed_us(trial.launch, trial.launch, stream) for _ in range(2)) / 8
        launches = launches_for(once, copies)
        replay = record(launches)
        ready.spoil()  # if the graph lacks its work, because that went to another stream, the result stays spoilt
        timed_us(_nothing, replay.launch, stream)  # the first launch uploads the graph
        return cls(ready, launches, replay, slow)

    def once_us(self, stream: Stream) -> float:
        """Return the time of one launch, in a graph or between events.

        An untimed replay precedes the timed one, so that the time of launching the graph is hidden behind it. A launch
        without a graph precedes both: graphs run in the state that the last such launch has left, whichever contender
        made it, and that matters by up to a tenth of the time (NOTES, "What the contender before leaves").
        """
        if self.replay is None:
            return events_us(self.ready.enqueue, stream, launches=self.launches)
        self.ready.enqueue(0)
        stream.synchronize()
        return timed_us(self.replay.launch, self.replay.launch, stream) / self.launches

    def figure(self, samples: Sequence[float]) -> dict[str, Any]:
        """Return the entry of a row."""
        how = {} if self.replay is not None else {"timed": "between events, without a graph"}
        return {**figure(samples), **how}

    def close(self) -> None:
        if self.replay is not None:
            self.replay.close()
        self.ready.close()


@contextmanager
def _closing(replay: Replay) -> Iterator[Replay]:
    try:
        yield replay
    finally:
        replay.close()


def ours(
    case: Case, inputs: Inputs, stream: Stream, *, package: Any = lowlevel_reduce, own: Any = None, **options: Any
) -> Ready:
    """Return this library's contender for a case; `options` go to its plan.

    Of another checkout, `package` is its package and `own` the stream as an object of its own.
    """
    own = stream if own is None else own
    common = {"dtype": case.dtype, "context": own.context, **options}
    more: list[tuple[int, ...]] = [(second,) for second in inputs.seconds] or [()]  # further arguments of a launch
    if inputs.offsets is not None:
        made = package.segmented_plan(case.op, length=case.size, segments=case.rows, **common)
        more = [(inputs.offsets.pointer,)]
    else:
        laid = {} if case.strides is None else {"strides_bytes": case.strides_bytes}
        laid |= {"second_strides_bytes": case.strides_bytes} if laid and case.arrays == 2 else {}
        made = package.plan(case.op, shape=case.shape, axis=case.axis, **laid, **common)
    planes, size = made.reduction.results, case.rows * made.result_dtype.itemsize
    launch = made.bind(own)
    out = Buffer.allocate(max(planes * size, 1), stream.context)
    pointers, target = inputs.pointers, out.pointer

    def results() -> list[npt.NDArray[Any]]:
        host = np.empty(planes * case.rows, made.result_dtype)
        stream.synchronize()
        out.copy_to(host, size_bytes=host.nbytes)
        return list(host.reshape(planes, case.rows))

    def close() -> None:
        stream.synchronize()
        for handle in (launch, out, made):
            handle.close()

    def enqueue(i: int) -> None:
        launch(pointers[i % len(pointers)], target, *more[i % len(more)])

    def spoil() -> None:
        out.fill(SPOILT, stream=stream)

    first = RawArray(target, (case.rows,), made.result_dtype)
    return Ready(OURS, enqueue, results, outputs=lambda: first, exact=True, spoil=spoil, close=close)
