"""Times copies between host and device beside the reduction of what was copied: what a kernel's time leaves out.

python -m benchmarks.profile.copies --json benchmarks/results/DATE-DEVICE-copies.jsonl

All are times on the host, from the call until the stream has passed it, of arrays in pageable and in pinned memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from benchmarks.measure import records
from benchmarks.measure.figures import figure
from benchmarks.measure.timing import conditions
from lowlevel_reduce.driver import binding

__all__ = ["LENGTHS", "NAMES", "main", "rows"]

LENGTHS = (1 << 10, 1 << 16, 1 << 20, 1 << 24, 100_000_000)
ROUNDS = 9

NAMES = (
    "copy there, pageable",
    "copy there, pinned",
    "sum",
    "sum and its value",
    "copy back, pageable",
    "copy back, pinned",
)
"""What is timed, in the order of a program."""


def _samples(call: Callable[[], object], stream: lr.Stream) -> list[float]:
    """Return the microseconds of some calls, each with what it put into the stream; one before them is not timed."""
    found = []
    for _ in range(ROUNDS + 1):
        stream.synchronize()
        begin = time.perf_counter_ns()
        call()
        stream.synchronize()
        found.append((time.perf_counter_ns() - begin) / 1e3)
    return found[1:]


def rows(stream: lr.Stream, n: int) -> list[dict[str, Any]]:
    """Return the figures of an array of `n` float32, a row for each of `NAMES`."""
    pageable = np.random.default_rng(0).random(n, np.float32)
    back = np.empty_like(pageable)
    context = stream.context
    with (
        lr.Buffer.pinned(pageable.nbytes, context) as pinned,
        lr.Buffer.allocate(pageable.nbytes, context) as device,
        lr.Buffer.allocate(4, context) as result,
        lr.plan("sum", shape=n, dtype="float32", context=context) as plan,
    ):
        pinned.host_view()[:] = pageable.view(np.uint8)
        launch = plan.bind(stream)
        value = np.empty(1, np.float32)

        def with_value() -> None:
            launch(device.pointer, result.pointer)
            result.copy_to(value, stream=stream)

        calls: Sequence[Callable[[], object]] = (
            lambda: device.copy_from(pageable, stream=stream),
            lambda: device.copy_from(pinned, stream=stream),
            lambda: launch(device.pointer, result.pointer),
            with_value,
            lambda: device.copy_to(back, stream=stream),
            lambda: device.copy_to(pinned, stream=stream),
        )
        made = [
            {"name": name, "n": n, **figure(_samples(call, stream))} for name, call in zip(NAMES, calls, strict=True)
        ]
        launch.close()
    if value[0] != lr.tree.reduce(pageable) or (back != pageable).any():
        raise lr.ReduceError(f"what came back of {n} elements is not what was sent")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write the file; return 2, having measured nothing, on a simulated device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", required=True, type=Path)
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    parser.add_argument("--n", type=int, nargs="+", default=list(LENGTHS), help="elements of float32")
    arguments = parser.parse_args(argv)
    if binding.selected().image == "ptx":
        print("benchmarks.profile.copies: a simulated device tells no time", file=sys.stderr)
        return 2
    with lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
        found = [row for n in arguments.n for row in rows(stream, n)]
        records.begin(arguments.json, "copies", conditions(context.device, arguments.commit))
    records.add(arguments.json, *found)
    for row in found:
        print(f"{row['n']:12,} {row['name']:24} {row['us']:12,.1f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
