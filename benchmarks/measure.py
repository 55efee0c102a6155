"""One measured cell: a plan, or a competitor, over rotated buffers, checked for its result and then timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.timing import replay_us, rotation
from lowlevel_reduce import Buffer, Plan, ReduceError, Stream, tree

__all__ = ["Inputs", "measure_call", "measure_plan"]

ROTATE_FROM_BYTES = 8 << 20
"""Smaller inputs stay in the L2 between launches, as they would in use."""

GRAPH_US = 4000.0
"""Device time that one timed graph should hold."""


@dataclass
class Inputs:
    """Copies of one array on the device, rotated so that large ones are not found in the L2, and room for a result."""

    host: npt.NDArray[Any]
    pointers: list[int]
    result: Buffer
    owners: list[Buffer]
    sums: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def upload(cls, host: npt.NDArray[Any], stream: Stream, *, offset_bytes: int = 0) -> Inputs:
        """Copy an array to the device, `offset_bytes` past an aligned address, as often as rotation needs."""
        context = stream.context
        copies = rotation(host.nbytes, context.device) if host.nbytes >= ROTATE_FROM_BYTES else 1
        owners = [Buffer.allocate(host.nbytes + 64, context) for _ in range(copies)]
        pointers = [owner.pointer + offset_bytes for owner in owners]
        for pointer in pointers:
            Buffer.from_pointer(pointer, host.nbytes, context=context).copy_from(host)
        return cls(host, pointers, Buffer.allocate(64, context), owners)

    def sum_bits(self, result_dtype: np.dtype[Any], accumulate: str) -> bytes:
        """Return the bits of the tree's sum, computed once."""
        key = f"{result_dtype.name} {accumulate}"
        if key not in self.sums:
            self.sums[key] = tree.reduce(self.host, dtype=result_dtype, accumulate=accumulate).tobytes()
        return self.sums[key]

    def close(self) -> None:
        """Free the memory."""
        for buffer in (*self.owners, self.result):
            buffer.close()


def measure_plan(plan: Plan, inputs: Inputs, stream: Stream) -> float:
    """Return the plan's device time in microseconds; its result must have the tree's bits."""
    launch = plan.bind(stream)
    try:
        return measure_call(launch, inputs, stream, inputs.sum_bits(plan.result_dtype, plan.accumulator))
    finally:
        launch.close()


def measure_call(call: Callable[[int, int], object], inputs: Inputs, stream: Stream, expected: bytes | float) -> float:
    """Return the device time in microseconds of ``call(source, result)``.

    Parameters
    ----------
    call : callable
        Puts one reduction into `stream`.
    inputs : Inputs
        What it reduces.
    stream : Stream
        Where.
    expected : bytes or float
        The result's bits; or, for a competitor, its value to a relative 1e-3, as float32 when the input is float32.

    Raises
    ------
    ReduceError
        If the result is another: nothing wrong is timed.
    """
    inputs.result.fill(0xA5)
    call(inputs.pointers[0], inputs.result.pointer)
    stream.synchronize()
    _check(inputs, expected)
    once = replay_us(
        lambda i: call(inputs.pointers[i % len(inputs.pointers)], inputs.result.pointer), stream, launches=8, rounds=2
    )
    launches = int(min(400, max(10, GRAPH_US / once)))
    return replay_us(
        lambda i: call(inputs.pointers[i % len(inputs.pointers)], inputs.result.pointer), stream, launches=launches
    )


def _check(inputs: Inputs, expected: bytes | float) -> None:
    raw = np.empty(64, np.uint8)
    inputs.result.copy_to(raw)
    if isinstance(expected, bytes):
        if raw.tobytes()[: len(expected)] != expected:
            raise ReduceError("the result does not have the tree's bits: not timed")
        return
    value = float(raw.view(inputs.host.dtype if inputs.host.dtype.kind == "f" else np.int64)[0])
    if not abs(value - expected) <= 1e-3 * abs(expected):
        raise ReduceError(f"the result is {value}, not {expected}: not timed")
