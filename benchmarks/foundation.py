"""The figures of the foundation: the sum at 1e8 beside CUB, every strategy and type, host time, first result.

python -m benchmarks.foundation --json FILE
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import lowlevel_reduce as lr
from benchmarks.cub import CubSum
from benchmarks.measure import Inputs, measure_call, measure_plan
from benchmarks.timing import conditions, host_us
from lowlevel_reduce.driver import binding, native_config
from lowlevel_reduce.dtypes import ELEMENT_TYPES, numpy_dtype

N = 100_000_000
ROUNDS = 5
Rows = list[dict[str, Any]]


def generate(dtype: str, n: int) -> npt.NDArray[Any]:
    """Return `n` uniform elements."""
    uniform = np.random.default_rng(n).random(n, dtype=np.float32)
    resolved = numpy_dtype(dtype)
    return (uniform * 100).astype(resolved) if resolved.kind in "iu" else uniform.astype(resolved)


def flat(context: lr.Context, stream: lr.Stream) -> Rows:
    """Time the float32 sum of 1e8 elements: CUB and every mapping in turn, several rounds."""
    inputs = Inputs.upload(generate("float32", N), stream)
    device = context.device
    mappings: list[dict[str, Any]] = [
        {},
        *({"strategy": "tiles", "cluster": size} for size in (1, 2, 4, 8, 16)),
        {"strategy": "two_pass"},
        {"strategy": "cooperative"},
    ]
    cub = CubSum("float32", device.architecture).bound(N, stream)
    exact = float(inputs.host.astype(np.float64).sum())
    plans = [lr.plan("sum", shape=N, dtype="float32", context=context, **mapping) for mapping in mappings]
    times: list[list[float]] = [[] for _ in range(len(plans) + 1)]
    for _ in range(ROUNDS):
        times[0].append(measure_call(cub, inputs, stream, exact))
        for plan, samples in zip(plans, times[1:], strict=True):
            samples.append(measure_plan(plan, inputs, stream))
    inputs.close()
    names = ["CUB DeviceReduce::Sum", *("-".join(map(str, mapping.values())) or "chosen" for mapping in mappings)]
    return [_row("flat float32 1e8", name, samples, 4 * N, device) for name, samples in zip(names, times, strict=True)]


def types(context: lr.Context, stream: lr.Stream) -> Rows:
    """Time the sum of every type at 256 MiB."""
    rows = []
    for entry in ELEMENT_TYPES:
        n = (1 << 28) // entry.itemsize
        inputs = Inputs.upload(generate(entry.name, n), stream)
        with lr.plan("sum", shape=n, dtype=entry.name, context=context) as plan:
            samples = [measure_plan(plan, inputs, stream) for _ in range(3)]
        inputs.close()
        rows.append(_row("types 256 MiB", f"{entry.name} in {plan.accumulator}", samples, 1 << 28, context.device))
    return rows


def lengths(context: lr.Context, stream: lr.Stream) -> Rows:
    """Time the float32 sum from 256 elements on, beside CUB, inputs below 8 MiB in the L2."""
    rows = []
    for exponent in range(8, 29, 2):
        n = 1 << exponent
        inputs = Inputs.upload(generate("float32", n), stream)
        cub = CubSum("float32", context.device.architecture).bound(n, stream)
        exact = float(inputs.host.astype(np.float64).sum())
        with lr.plan("sum", shape=n, dtype="float32", context=context) as plan:
            ours, theirs = [], []
            for _ in range(3):
                ours.append(measure_plan(plan, inputs, stream))
                theirs.append(measure_call(cub, inputs, stream, exact))
        inputs.close()
        rows.append(_row(f"flat float32 2^{exponent}", plan.strategy.name, ours, 4 * n, context.device))
        rows.append(_row(f"flat float32 2^{exponent}", "CUB DeviceReduce::Sum", theirs, 4 * n, context.device))
    return rows


def host(context: lr.Context, stream: lr.Stream) -> Rows:
    """Time one call on the host: bound launches, the bare driver call with everything prebuilt, the one-shot sum."""
    x = lr.DeviceArray.from_numpy(generate("float32", 4096), stream)
    out = lr.DeviceArray.empty((), "float32", stream)
    calls: dict[str, Callable[[], object]] = {}
    for strategy in ("block", "tiles", "two_pass"):
        plan = lr.plan("sum", shape=x.shape, dtype="float32", context=context, strategy=strategy)
        calls[f"bound launch, {strategy}"] = _bound_call(plan.bind(stream), x.pointer, out.pointer)
    calls["bare cuLaunchKernelEx, block"] = _bare_call(context, stream, x, out)
    calls["lr.sum(x, out=)"] = lambda: lr.sum(x, out=out, stream=stream)
    calls["lr.sum(x)"] = lambda: lr.sum(x, stream=stream)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):  # in turn, so that what drifts drifts for all
        for name, call in calls.items():
            samples[name].append(host_us(call, context))
    return [{"suite": "host", "name": name, "us": round(statistics.median(us), 3)} for name, us in samples.items()]


def _bound_call(launch: lr.BoundReduction, source: int, result: int) -> Callable[[], object]:
    return lambda: launch(source, result)


def _bare_call(context: lr.Context, stream: lr.Stream, x: lr.DeviceArray, out: lr.DeviceArray) -> Callable[[], object]:
    """Return the same launch as a driver call of which nothing is left to be built."""
    plan = lr.plan("sum", shape=x.shape, dtype="float32", context=context, strategy="block")
    kernel, config = plan.launches[0]
    values = (x.pointer, out.pointer, x.size, 0, plan.strategy.tiles_per_block)
    slots = (ctypes.c_uint64 * len(values))(*values)
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(slots) + 8 * i for i in range(len(values))))
    call = binding.function("cuLaunchKernelEx")
    arguments = (native_config(config, stream.handle), kernel.function, ctypes.addressof(pointers), 0)
    keep = (slots, pointers, plan)  # alive as long as the lambda
    return lambda: (call(*arguments), keep)


FIRST = """
import time
start = time.perf_counter()
import numpy, cuda.bindings.driver
imported = time.perf_counter()
import lowlevel_reduce as lr
package = time.perf_counter()
with lr.Context.primary() as context, context.pushed():
    context.synchronize()
    created = time.perf_counter()
    value = float(lr.sum(numpy.ones(1_000_000, numpy.float32)))
    done = time.perf_counter()
assert value == 1e6
print(*(1e3 * t for t in (imported - start, package - imported, created - package, done - created)))
"""


def first_result() -> Rows:
    """Time the first result of a process with an empty cubin cache and of the next ones, in milliseconds by part."""
    parts = ("import numpy and cuda.bindings", "import lowlevel_reduce", "context", "first result")
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "LOWLEVEL_REDUCE_CACHE_DIR": directory}
        for attempt in ("empty cache", "warm cache", "warm cache", "warm cache"):
            run = subprocess.run(
                [sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True, check=True
            )
            ms = dict(zip(parts, map(float, run.stdout.split()), strict=True))
            rows.append({"suite": "first result", "name": attempt, "ms": ms})
    return rows


def _row(suite: str, name: str, samples: list[float], size_bytes: int, device: lr.Device) -> dict[str, Any]:
    us = statistics.median(samples)
    rate = size_bytes / us * 1e6
    return {
        "suite": suite,
        "name": name,
        "us": round(us, 3),
        "samples_us": [round(sample, 3) for sample in samples],
        "gb_per_s": round(rate / 1e9, 1),
        "percent_of_peak": round(100 * rate / device.peak_bandwidth, 1),
    }


def main() -> None:
    """Measure everything, print it and write the JSON."""
    parser = argparse.ArgumentParser(description="Measure the foundation's figures.")
    parser.add_argument("--json", metavar="FILE", required=True)
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    arguments = parser.parse_args()
    with lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
        rows = [*flat(context, stream), *lengths(context, stream), *types(context, stream), *host(context, stream)]
        rows += first_result()
        document = {"conditions": conditions(context.device, arguments.commit), "rows": rows}
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    for row in rows:
        figures = [f"{key} {value}" for key, value in row.items() if key not in {"suite", "name", "samples_us"}]
        print(f"{row['suite']:22} {row['name']:34} {'  '.join(figures)}")


if __name__ == "__main__":
    main()
