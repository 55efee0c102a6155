"""Sum an array on the GPU through thread-block clusters of every size, and compare the bits with NumPy's.

    python examples/cluster_reduce.py                        100 million float32 between 0 and 1
    python examples/cluster_reduce.py --input x.npy          your own data
    python examples/cluster_reduce.py --n 1000003 --dtype float16 --cluster 2 16

The blocks of a cluster exchange partials through distributed shared memory, one partial per cluster goes to global
memory, and the last cluster in folds these partials. On a GPU without clusters, every block writes a partial of its
own. Without a GPU, or with --device simulator, the same kernels run on a simulated one, which counts, without times.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

import lowlevel_reduce as lr
from lowlevel_reduce import driver, simulator
from lowlevel_reduce.driver import occupancy
from lowlevel_reduce.dtypes import ELEMENT_TYPES, numpy_dtype

ROUNDS, LAUNCHES = 9, 20
HEADINGS = f"{'cluster':>7} {'active':>7} {'blocks':>8} {'partials':>8} {'µs':>9} {'GB/s':>7} {'% peak':>7}  bits"


def parse() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description="Sum an array through thread-block clusters of every size.")
    parser.add_argument("--input", metavar="FILE.npy", help="the array to sum")
    parser.add_argument("--n", type=int, help="elements to generate without --input: 1e8, or 1e6 where simulated")
    parser.add_argument("--dtype", default="float32", choices=[entry.name for entry in ELEMENT_TYPES])
    parser.add_argument("--cluster", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="blocks in a cluster")
    parser.add_argument("--device", choices=["cuda", "simulator"], help="default: a GPU if there is one")
    return parser.parse_args()


def load(path: str | None, n: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the file's array, made contiguous, or `n` generated elements."""
    if path:
        return np.ascontiguousarray(np.load(path))
    if n < 0:
        raise ValueError(f"--n {n} is negative")
    uniform = np.random.default_rng(0).random(n, dtype=np.float32)
    return (uniform * 100).astype(dtype) if dtype.kind in "iu" else uniform.astype(dtype)


def show_device(context: lr.Context, kernel: lr.Kernel, config: lr.LaunchConfig) -> None:
    """Print the device, and the largest clusters of this kernel that it supports."""
    device = context.device
    major, minor = device.compute_capability
    print(
        f"{device.name}: compute capability {major}.{minor}, {context.multiprocessor_count} multiprocessors, ", end=""
    )
    print(f"{device.peak_bandwidth / 1e9:.0f} GB/s by the memory clock")
    if not device.supports_clusters:
        print("It has no thread-block clusters, which came with 9.0: every block stands for itself.")
        return
    portable = occupancy.max_cluster_size(kernel, config)
    kernel.allow_non_portable_cluster(device)
    print(
        f"largest cluster: {portable} blocks, {occupancy.max_cluster_size(kernel, config)} if it need not be portable"
    )


def time_us(launch: lr.BoundReduction, source: int, result: int, *, simulated: bool) -> float:
    """Return the device time of a launch in microseconds, measured by events: the median of several rounds."""
    stream, times = launch.stream, []
    if simulated:
        launch(source, result)
        return math.nan
    with lr.Event.create(stream.context) as start, lr.Event.create(stream.context) as end:
        for _ in range(ROUNDS):
            stream.record(start)
            for _ in range(LAUNCHES):
                launch(source, result)
            stream.record(end)
            end.synchronize()
            times.append(end.elapsed_ms(start) * 1e3 / LAUNCHES)
    return statistics.median(times)


def run(x: npt.NDArray[Any], context: lr.Context, clusters: list[int], *, simulated: bool) -> bool:
    """Print a row for each cluster size; return whether all of them have NumPy's bits."""
    device, stream = context.device, lr.Stream.create(context)
    clusters = clusters if device.supports_clusters else [1]
    plans = [lr.plan("sum", shape=x.shape, dtype=x.dtype, strategy="tiles", cluster=size) for size in clusters]
    show_device(context, *plans[0].launches[0])

    expected = lr.tree.reduce(x)
    print(f"sum of {x.size} {x.dtype}, {x.nbytes / 1e6:.1f} MB; the same tree in NumPy gives {expected}\n\n{HEADINGS}")
    source = lr.DeviceArray.from_numpy(x, stream)
    result = lr.DeviceArray.empty((), plans[0].result_dtype, stream)
    all_equal = True
    for size, plan in zip(clusters, plans, strict=True):
        kernel, config = plan.launches[0]  # config.cluster becomes an attribute of cuLaunchKernelEx
        active = occupancy.max_active_clusters(kernel, config) if config.cluster else "-"
        us = time_us(plan.bind(stream), source.pointer, result.pointer, simulated=simulated)
        rate, value = x.nbytes / us * 1e6, result.numpy()
        figures = (f"{us:.1f}", f"{rate / 1e9:.0f}", f"{100 * rate / device.peak_bandwidth:.1f}")
        measured = [figure if math.isfinite(us) else "-" for figure in figures]
        equal = value.tobytes() == expected.tobytes()
        all_equal &= equal
        print(
            f"{size:>7} {active:>7} {config.grid_blocks:>8} {plan.strategy.partials:>8} "
            f"{measured[0]:>9} {measured[1]:>7} {measured[2]:>7}  {'equal' if equal else f'DIFFER: {value}'}"
        )
    return all_equal


def select(stack: contextlib.ExitStack, asked: str | None) -> bool:
    """Select the requested driver, else the environment's or a simulated one; return whether it is simulated."""
    if asked == "cuda":
        stack.enter_context(driver.binding.use("cuda"))
        return False
    why = "as asked" if asked else driver.why_unavailable()
    if why is not None:
        stack.enter_context(simulator.use(os.environ.get(simulator.DEVICE_VARIABLE) or "H200"))
    elif driver.binding.selected().image == "ptx":
        why = f"{driver.binding.VARIABLE} says so"
    else:
        return False
    print(f"simulated {driver.Device(0).name}: {why}")
    return True


def main() -> int:
    """Run the command line; return its exit status."""
    arguments = parse()
    try:
        with contextlib.ExitStack() as stack:
            simulated = select(stack, arguments.device)
            context = stack.enter_context(lr.Context.primary())
            stack.enter_context(context.pushed())
            n = arguments.n if arguments.n is not None else 1_000_000 if simulated else 100_000_000
            x = load(arguments.input, n, numpy_dtype(arguments.dtype))
            return 0 if run(x, context, arguments.cluster, simulated=simulated) else 1
    except (lr.ReduceError, OSError, EOFError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
