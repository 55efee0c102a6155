"""Time calls whose shape is another one each time, as of sequences that grow, in a process that has just begun.

python -m benchmarks.measure.new_shapes --library ours|torch|cupy --kind KIND [--calls 600] --seed N

It prints a JSON object: the median, the 99th percentile and the longest of the calls in microseconds, and of this
library how many kernels were compiled by these calls, which come after one `lowlevel_reduce.warm_up`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np

import lowlevel_reduce as lr
from benchmarks.measure.figures import OURS
from benchmarks.measure.timing import opened
from lowlevel_reduce.compiler import program

__all__ = ["CALLS", "KINDS", "LIBRARIES", "entry_of", "main"]

CALLS = 600
LIBRARIES: Mapping[str, str] = {OURS: "ours", "torch": "torch", "CuPy": "cupy"}
"""By the names of their entries."""

LENGTH, ROWS, COLUMNS = 1 << 20, 512, 8192

TOGETHER = 50
"""The device is waited for, without being timed, after so many calls."""

Call = Callable[[int], object]


class Ours:
    """Views of one array of PyTorch's; without PyTorch, contiguous arrays of this library in one memory."""

    def __init__(self, stream: lr.Stream, torch: Any) -> None:
        self._torch, self._stream = torch, stream
        host = np.ones(ROWS * COLUMNS, np.float32)
        self._x: Any = lr.DeviceArray.from_numpy(host, stream) if torch is None else torch.from_numpy(host).cuda()

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """Return a view with strides in elements."""
        if self._torch is not None:
            return self._x.as_strided(shape, strides)
        size = 4 * math.prod(shape)
        memory = lr.Buffer.from_pointer(self._x.pointer, size, context=self._stream.context, owner=self._x)
        return lr.DeviceArray(memory, "float32", shape, self._stream)


def _slices(view: Callable[..., Any]) -> dict[str, Callable[[int], Any]]:
    """Return what makes the array of each kind, of a length."""
    return {
        "sum(x[:n])": lambda n: view((n,), (1,)),
        "sum(z[:, :n], axis=1)": lambda n: view((ROWS, n), (COLUMNS, 1)),
        "logsumexp(z[:, :n], axis=1)": lambda n: view((ROWS, n), (COLUMNS, 1)),
        "sum(z[:k], axis=0)": lambda n: view((n, ROWS), (ROWS, 1)),
    }


KINDS: Mapping[str, int] = {
    "sum(x[:n])": LENGTH,
    "sum(z[:, :n], axis=1)": COLUMNS,
    "logsumexp(z[:, :n], axis=1)": COLUMNS,
    "sum(z[:k], axis=0)": COLUMNS,
}
"""By its text, the longest that each kind of call has."""


def _axis(kind: str) -> int | None:
    return 1 if "axis=1" in kind else 0 if "axis=0" in kind else None


def call_of(library: str, kind: str, stream: lr.Stream, torch: Any, cupy: Any) -> Call | None:
    """Return the call of a library as a function of the length; None if the library has none."""
    axis = _axis(kind)
    if library == "cupy":
        if cupy is None or kind.startswith("logsumexp"):
            return None
        x = cupy.ones(ROWS * COLUMNS, cupy.float32)
        strided = cupy.lib.stride_tricks.as_strided
        array = _slices(lambda shape, strides: strided(x, shape, [4 * stride for stride in strides]))[kind]
        return lambda n: cupy.sum(array(n), axis=axis)
    array = _slices(Ours(stream, torch).view)[kind]
    if library == "ours":
        reduce = lr.logsumexp if kind.startswith("logsumexp") else lr.sum
        return lambda n: reduce(array(n), axis=axis)
    if torch is None:
        return None
    if kind.startswith("logsumexp"):
        return lambda n: torch.logsumexp(array(n), 1)
    return (lambda n: torch.sum(array(n))) if axis is None else (lambda n: torch.sum(array(n), axis))


def entry_of(call: Call, longest: int, calls: int, seed: int, wait: Callable[[], object]) -> dict[str, Any]:
    """Return the figures of calls of different lengths, which the seed says, after one call of the longest."""
    lengths = np.random.default_rng(seed).permutation(np.arange(2, longest))[:calls]
    call(longest)
    wait()
    times = []
    for number, length in enumerate(lengths.tolist()):
        begin = time.perf_counter_ns()
        call(length)
        times.append((time.perf_counter_ns() - begin) / 1e3)
        if number % TOGETHER == TOGETHER - 1:
            wait()
    times.sort()
    median = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4)
    return {
        "us": round(median, 3),
        "spread_percent": round(100 * (high - low) / median, 2),
        "rounds": len(times),
        "p99_us": round(times[max(0, -(-99 * len(times) // 100) - 1)], 3),
        "worst_us": round(times[-1], 3),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures that the command line asks for; an empty object if the library has no such call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=tuple(LIBRARIES.values()), required=True)
    parser.add_argument("--kind", choices=tuple(KINDS), required=True)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args(argv)
    with opened() as stream, ExitStack() as stack:
        torch, cupy = _module("torch"), _module("cupy") if arguments.library == "cupy" else None
        if arguments.library == "ours":
            lr.warm_up("logsumexp" if arguments.kind.startswith("logsumexp") else "sum", "float32").wait()
        compiled = stack.enter_context(mock.patch.object(program, "_compile", wraps=program._compile))
        call = call_of(arguments.library, arguments.kind, stream, torch, cupy)
        entry: dict[str, Any] = {}
        if call is not None:
            entry = entry_of(call, KINDS[arguments.kind], arguments.calls, arguments.seed, stream.context.synchronize)
            entry |= {"compilations": compiled.call_count} if arguments.library == "ours" else {}
        print(json.dumps(entry))
    return 0


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


if __name__ == "__main__":
    sys.exit(main())
