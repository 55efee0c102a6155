"""Measure the figures of docs/embedding.md: dependent launches, host time per call, a million launches, attributes.

python -m benchmarks.profile.embedding --json FILE
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import functools
import gc
import importlib
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from benchmarks.measure import records
from benchmarks.measure.figures import figure
from benchmarks.measure.timing import conditions, host_us, replay_us
from benchmarks.measure.turns import in_turn
from benchmarks.suites.host import bare_launch
from lowlevel_reduce.driver import BoundKernel, binding, native_config
from lowlevel_reduce.strategy.fields import signature
from lowlevel_reduce.study.attributes import rows as attribute_rows

N = 65_536
ROUNDS = 7
LAUNCHES = 200
MILLION = 1_000_000
Rows = list[dict[str, Any]]


def back_to_back(context: lr.Context, stream: lr.Stream) -> Rows:
    """Time launches of 65,536 floats back to back, with and without programmatic launch, in turn."""
    x, out = _arrays(stream)
    calls = {
        f"{strategy}, {'programmatic' if programmatic else 'serial'}": _launches(
            context, stream, strategy, programmatic=programmatic
        )
        for strategy in ("cluster", "tiles", "two_pass")
        for programmatic in (True, False)
    }
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            _check(name, functools.partial(call, x.pointer, out.pointer), out)
            samples[name].append(
                replay_us(lambda _, call=call: call(x.pointer, out.pointer), stream, launches=LAUNCHES)  # type: ignore[misc]
            )
    return [_row("back to back, 65536 float32", name, us) for name, us in samples.items()]


def _launches(
    context: lr.Context, stream: lr.Stream, strategy: str, *, programmatic: bool
) -> Callable[[int, int], object]:
    """Return a plan's launch; if not `programmatic`, the same kernels, grids and arguments without the attribute."""
    plan = lr.plan("sum", shape=N, dtype="float32", context=context, strategy=strategy)
    bound = plan.bind(stream)
    if programmatic:
        return bound
    serial = []
    for kernel in bound.kernels:
        words = _packed(kernel)
        config = dataclasses.replace(kernel.config, programmatic_stream_serialization=False)
        serial.append(BoundKernel(kernel.kernel, config, stream, kernel.signature, constants=words[3:], as_struct=True))

    def call(source: int, result: int) -> object:
        for kernel in serial:
            kernel(source, result, 0)
        return bound, plan  # they own the workspace

    return call


def _packed(kernel: BoundKernel) -> tuple[int, ...]:
    """Return the words of a launch's argument, the first three of which are set anew at each call."""
    table = ctypes.c_void_p.from_address(kernel.packed_for(int, 0, 0, 0))
    count = len(kernel.signature)
    if kernel.signature != signature("whole") or table.value is None:
        raise lr.ReduceError("a launch of a whole array was expected")
    return tuple((ctypes.c_uint64 * count).from_address(table.value))


def host(context: lr.Context, stream: lr.Stream) -> Rows:
    """Time one call on the host: the driver's call with everything prepared, a bound launch, the one-shot sum."""
    x, out = _arrays(stream)
    plan = lr.plan("sum", shape=N, dtype="float32", context=context)
    bound = plan.bind(stream)
    source, result = x.pointer, out.pointer
    calls: dict[str, Callable[[], object]] = {
        "bare cuLaunchKernelEx": bare_launch(bound, stream, source, result),
        "bare cuLaunchKernelEx by address": _bare_by_address(bound, stream, source, result),
        "bound launch": lambda: bound(source, result),
        "lr.sum(device_array)": lambda: lr.sum(x, stream=stream),
    }
    for name, call in calls.items():
        _check(name, call, out)
    samples = _in_turn(calls, context)
    base = statistics.median(samples["bare cuLaunchKernelEx"])
    return [
        {**_row("host", name, us), "times_bare_launch": round(statistics.median(us) / base, 3)}
        for name, us in samples.items()
    ]


def _bare_by_address(bound: lr.BoundReduction, stream: lr.Stream, source: int, result: int) -> Callable[[], object]:
    """Return a call of the driver's own function with arguments converted once: the least that Python can do."""
    (kernel,) = bound.kernels
    pointers = kernel.packed_for(int, source, result, 0)
    config = native_config(kernel.config, stream.handle)
    call = binding.prebuilt("cuLaunchKernelEx", config, kernel.kernel.function, pointers, 0)
    keep = (config, bound)
    return lambda: (call(), keep)


def beside_torch(context: lr.Context) -> Rows:
    """Time ``lr.sum(tensor)`` and ``torch.sum(tensor)``, which allocate results, in turn, if there is PyTorch."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return [{"suite": "beside torch", "name": "torch", "skipped": "PyTorch is not installed"}]
    rows = []
    for n in (4096, N, 10_000_000):
        tensor = torch.ones(n, device="cuda")
        raw = torch.cuda.current_stream().cuda_stream or 1
        stream = lr.Stream.from_handle(raw, context=context)
        plan = lr.plan("sum", shape=n, dtype="float32", context=context)
        calls: dict[str, Callable[[], object]] = {
            "torch.sum": lambda tensor=tensor: torch.sum(tensor),  # type: ignore[misc]
            "lr.sum": lambda tensor=tensor: lr.sum(tensor),  # type: ignore[misc]
            "bound launch": _bound(plan.bind(stream), tensor.data_ptr(), torch.full((), math.nan, device="cuda")),
        }
        for name, call in calls.items():
            value = call()
            if float(value) != n:  # type: ignore[arg-type]
                raise lr.ReduceError(f"{name} of {n} ones is {value}: not timed")
        samples = _in_turn(calls, context)
        base = statistics.median(samples["torch.sum"])
        rows += [
            {**_row("beside torch", f"{name} of {n}", us), "times_torch": round(statistics.median(us) / base, 3)}
            for name, us in samples.items()
        ]
    return rows


def _bound(launch: lr.BoundReduction, source: int, out: Any) -> Callable[[], object]:
    result = out.data_ptr()

    def call() -> object:
        launch(source, result)
        return out

    return call


def million(context: lr.Context, stream: lr.Stream) -> Rows:
    """Run a million launches and a million one-shot sums, and compare host and device memory before and after."""
    x, out = _arrays(stream)
    plan = lr.plan("sum", shape=N, dtype="float32", context=context)
    bound, source, result = plan.bind(stream), x.pointer, out.pointer
    calls: dict[str, Callable[[], object]] = {
        "bound launch": lambda: bound(source, result),
        "lr.sum(device_array)": lambda: lr.sum(x, stream=stream),
    }
    rows = []
    for name, call in calls.items():
        _repeat(call, 20_000, stream)  # until the driver's own queues have grown to their size
        before = _memory(context)
        _repeat(call, MILLION, stream)
        after = _memory(context)
        grown = {f"{what}_grew_bytes": after[what] - before[what] for what in before}
        rows.append({"suite": "a million launches", "name": name, "launches": MILLION, **before, **grown})
    if out.numpy().tobytes() != lr.tree.reduce(_host()).tobytes():
        raise lr.ReduceError("after a million launches the result does not have the tree's bits")
    return rows


def _check(name: str, call: Callable[[], object], out: lr.DeviceArray) -> None:
    """Raise if a call's result, in `out` or in the array that it returns, does not have the tree's bits."""
    with lr.Buffer.from_pointer(out.pointer, out.dtype.itemsize, context=out.context, owner=out) as memory:
        memory.fill(0xFF)  # the result of the call before is right, too, and must not be taken for this one's
    value = call()
    found = value if isinstance(value, lr.DeviceArray) else out
    if found.numpy().tobytes() != lr.tree.reduce(_host()).tobytes():
        raise lr.ReduceError(f"{name}: the result does not have the tree's bits: not timed")


def _repeat(call: Callable[[], object], count: int, stream: lr.Stream) -> None:
    for _ in range(count):
        call()
    stream.synchronize()


def _memory(context: lr.Context) -> dict[str, int]:
    """Return the resident bytes of this process, and the bytes in use on the device."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    with context.pushed():
        free, total = binding.call("cuMemGetInfo")
    return {"host_bytes": 4096 * pages, "device_bytes": int(total) - int(free)}


def _in_turn(calls: dict[str, Callable[[], object]], context: lr.Context) -> dict[str, list[float]]:
    failed: dict[str, dict[str, Any]] = {}
    takers = {name: functools.partial(host_us, call, context) for name, call in calls.items()}
    samples = in_turn(takers, ROUNDS, failed)
    if failed:
        raise lr.ReduceError("; ".join(f"{name}: {entry['error']}" for name, entry in failed.items()))
    return samples


def _host() -> np.ndarray[Any, Any]:
    return np.random.default_rng(N).random(N, dtype=np.float32)


def _arrays(stream: lr.Stream) -> tuple[lr.DeviceArray, lr.DeviceArray]:
    return lr.DeviceArray.from_numpy(_host(), stream), lr.DeviceArray.empty((), "float32", stream)


def _row(suite: str, name: str, samples: list[float]) -> dict[str, Any]:
    return {"suite": suite, "name": name, **figure(samples)}


def main() -> None:
    """Measure everything, print it and write the file."""
    parser = argparse.ArgumentParser(description="Measure the figures of embedding.")
    parser.add_argument("--json", metavar="FILE", required=True, type=Path)
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    arguments = parser.parse_args()
    with lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
        rows = [*back_to_back(context, stream), *host(context, stream), *beside_torch(context)]
        rows += million(context, stream)
        rows += [{"suite": "launch attributes", **row} for row in attribute_rows(context)]
        records.begin(arguments.json, "embedding", conditions(context.device, arguments.commit))
    records.add(arguments.json, *rows)
    for row in rows:
        figures = [f"{key} {value}" for key, value in row.items() if key not in {"suite", "name"}]
        print(f"{row['suite']:28} {row['name']:36} {'  '.join(figures)}")


if __name__ == "__main__":
    main()
