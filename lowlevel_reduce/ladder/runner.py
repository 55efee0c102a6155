"""The one runner: rungs over generated elements, checked against float64 and, on a real device, timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from lowlevel_reduce.arguments import instance, integer
from lowlevel_reduce.driver import Buffer, Context, Stream, binding
from lowlevel_reduce.errors import ReduceError, UnsupportedError
from lowlevel_reduce.ladder.data import Values, elements, judge
from lowlevel_reduce.ladder.launches import ReadyRung
from lowlevel_reduce.ladder.record import Record
from lowlevel_reduce.ladder.registry import BLOCKS, Rung, as_switched
from lowlevel_reduce.ladder.timing import copies, device_us

__all__ = ["iterate", "run"]


def run(
    rungs: Sequence[Rung], *, n: int, dtype: str = "float32", block: int = 256, repeat: int = 5, context: Context,
    stream: Stream | None = None, timed: bool | None = None,
) -> list[Record]:  # fmt: skip
    """Run rungs and return all their records; the parameters are those of `iterate`."""
    options: dict[str, Any] = {"block": block, "repeat": repeat, "context": context, "stream": stream, "timed": timed}
    return list(iterate(rungs, n=n, dtype=dtype, **options))


def iterate(
    rungs: Sequence[Rung], *, n: int, dtype: str = "float32", block: int = 256, repeat: int = 5, context: Context,
    stream: Stream | None = None, timed: bool | None = None,
) -> Iterator[Record]:  # fmt: skip
    """Run rungs one by one, yielding the record of each as soon as it has run.

    Parameters
    ----------
    rungs : sequence of Rung
        The rungs to run, in this order.
    n : int
        Number of elements; `ladder.data` describes them. A rung over a matrix takes the largest one that they fill.
    dtype : {"float32", "float16"}
        Type of the elements. Rungs that are about float16 always run with float16; the record has the type.
    block : int
        Threads of a block: a power of two, 32 to 1024. Tuned rungs keep their own.
    repeat : int
        Number of replays; the time is their median.
    context : Context
        Where to run. It is current while a rung runs; when a record is yielded, the previous context is current again.
    stream : Stream, optional
        A stream of that context, not a default one; by default a new one. The host waits for every rung.
    timed : bool, optional
        Whether to measure times; by default yes, except on a simulated device, which has counters instead.

    Yields
    ------
    Record
        The record of each rung. A simulated kernel that faults raises if the rung is meant to be right; if the rung is
        wrong on purpose, its record has no value but the fault.

    Raises
    ------
    TypeError, ValueError
        If a parameter is invalid, or a rung does not take the type; raised by the call, before anything runs.
    UnsupportedError
        If the device lacks what a rung needs (see ``Rung.lacking``), or if times are requested on a simulated device;
        also raised by the call.
    CompileError, NoCompilerError, CacheError, CudaError
        From the compiler, the cache or the driver, while the rungs run.
    """
    simulated = binding.selected().image == "ptx"
    rungs = tuple(rungs)
    for rung in rungs:
        instance(rung, Rung, "what is run")
    chosen = [as_switched(rung) for rung in rungs]
    n, block, repeat = _check(chosen, n, dtype, block, repeat, context)
    stream = None if stream is None else _stream_of(stream, context)
    if timed and simulated:
        raise UnsupportedError("a simulated device tells no time")
    return _records(chosen, n, dtype, block, 0 if simulated or timed is False else repeat, context, stream)


def _check(
    rungs: Sequence[Rung], n: int, dtype: str, block: int, repeat: int, context: Context
) -> tuple[int, int, int]:
    """Refuse invalid parameters; return `n`, `block` and `repeat` as Python integers."""
    instance(context, Context, "the context")
    n, repeat = integer(n, "n is a number of elements"), integer(repeat, "repeat is an integer")
    block = integer(block, "a block's threads are an integer")
    if n < 0:
        raise ValueError(f"n is a number of elements, not {n}")
    if block not in BLOCKS:
        raise ValueError(f"a block has {', '.join(map(str, BLOCKS))} threads, not {block}")
    if repeat < 1:
        raise ValueError(f"repeat is 1 or more, not {repeat}")
    if not isinstance(dtype, str):
        raise TypeError(f"the type of the ladder's elements is named by a text, not by {dtype!r}")
    if dtype not in ("float32", "float16"):
        raise ValueError(f"the ladder's elements are float32 or float16, not {dtype}")
    for rung in rungs:
        rung.dtype(dtype)
        lacking = rung.lacking(context.device)
        if lacking is not None:
            raise UnsupportedError(f"rung {rung.id} cannot run: {lacking}")
    return n, block, repeat


def _stream_of(stream: Any, context: Context) -> Stream:
    """Return the caller's stream; refuse one that cannot be captured or is not of `context`."""
    taken: Stream = Stream.of(stream)
    if taken.is_default:
        raise ValueError("the ladder's stream is one of your own, not a default one")
    if taken.context != context:
        raise ValueError(f"the stream is of context {taken.context.handle:#x}, the ladder of {context.handle:#x}")
    return taken


def _records(
    rungs: Sequence[Rung], n: int, dtype: str, block: int, repeat: int, context: Context, stream: Stream | None
) -> Iterator[Record]:
    inputs: _Inputs | None = None
    own = Stream.create(context) if stream is None else None
    used = own if own is not None else Stream.of(stream)
    try:
        for rung in rungs:
            wanted = (rung.dtype(dtype), "max" if rung.operation == "max" else "sum")
            if inputs is None or inputs.kind != wanted:
                if inputs is not None:
                    inputs.close()
                inputs = _Inputs(n, wanted, rotated=repeat > 0, context=context)
            with context.pushed():
                record = _record(rung, inputs, rung.block or block, repeat, used)
            yield record
    finally:
        if inputs is not None:
            inputs.close()
        if own is not None:
            own.close()


class _Inputs:
    """The elements on host and device; if times are measured, there are copies on the device to alternate between."""

    def __init__(self, n: int, kind: tuple[str, str], *, rotated: bool, context: Context) -> None:
        self.kind = kind
        self.host = elements(n, *kind)
        number = copies(self.host.nbytes, context.device) if rotated else 1
        self._buffers = [Buffer.allocate(self.host.nbytes, context) for _ in range(number)]
        for buffer in self._buffers:
            buffer.copy_from(self.host)

    def pointer(self, turn: int) -> int:
        """Return the address of the elements that run number `turn` reads."""
        return self._buffers[turn % len(self._buffers)].pointer

    def close(self) -> None:
        """Free the memory."""
        for buffer in self._buffers:
            buffer.close()


def _record(rung: Rung, inputs: _Inputs, block: int, repeat: int, stream: Stream) -> Record:
    dtype = inputs.kind[0]
    ready = ReadyRung(rung, inputs.host.size, dtype, block, stream)
    launched = len(_launches())
    try:
        values = inputs.host[: ready.shape.elements].reshape(ready.shape.shape)
        facts: dict[str, Any] = {
            "rung": rung.id,
            "system": rung.system,
            "n": values.size,
            "dtype": dtype,
            "expected_correct": rung.expected_correct or values.size < 2,  # a single thread has nothing to race with
        }
        outcome = _outcome(rung, ready, inputs, values)
        facts["counters"] = _counted(launched)
        if repeat and ready.shape.elements:
            microseconds = device_us(lambda turn: ready.run(inputs.pointer(turn)), stream, repeat)
            facts |= _speed(microseconds, values.nbytes * (2 if rung.operation == "transpose" else 1), stream.context)
        return Record(**facts, **outcome)
    finally:
        ready.close()


def _outcome(rung: Rung, ready: ReadyRung, inputs: _Inputs, values: Values) -> dict[str, Any]:
    """Run once and return the fields of the record that are about the result."""
    accumulator = "float16" if rung.result == "float16" else "float32"
    ready.poison()
    try:
        ready.run(inputs.pointer(0))
        got = ready.result()
    except ReduceError as error:
        # Only a simulator detects a race and stops the kernel. A GPU raises nothing.
        if rung.expected_correct or binding.selected().image != "ptx":
            raise
        reference = float(np.sum(values, dtype=np.float64))
        fault = str(error).splitlines()[0]
        return {"value": None, "reference": reference, "relative_error": None, "correct": False, "fault": fault}
    return asdict(judge(rung.operation, values, got, ready.shape, accumulator))


def _speed(microseconds: float, moved_bytes: int, context: Context) -> dict[str, float]:
    per_second = moved_bytes / microseconds * 1e6
    return {
        "microseconds": microseconds,
        "gb_per_s": per_second / 1e9,
        "percent_of_peak": 100 * per_second / context.device.peak_bandwidth,
    }


def _launches() -> Sequence[Any]:
    """Return a simulated driver's records of the launches so far; a real driver keeps none."""
    if binding.selected().image != "ptx":
        return ()
    # An attribute of the simulated driver, read through the driver layer: the package does not import the simulator.
    found: Any = binding.selected().function("launches")
    return found  # type: ignore[no-any-return]


def _counted(since: int) -> dict[str, Any] | None:
    """Return the counters of the launches after the first `since`, added up; None on a real device."""
    if binding.selected().image != "ptx":
        return None
    total: Any = None
    for launch in _launches()[since:]:
        total = launch.counters if total is None else total + launch.counters
    return {} if total is None else asdict(total)
