"""Time the steps of a captured reduction over two GPUs, each in a graph of its own: where its time goes.

python -m benchmarks.profile.parts_steps [--json FILE] [--rounds 100] [--early]

Two processes, a GPU each, sum 1e6 and 16e6 floats, and take the logsumexp of 64 rows of 151,936 bfloat16. Graphs of
nothing but the partials, of partials and gather, of these and the fold, of the gather alone, and of the fold alone;
beside them torch's sum, its all_reduce, and all that it takes for the same. Every time is from the replay to a value on
the host, taken in turn after a barrier, in an order drawn for each round, alike on both ranks, since each way leaves
another part of the array in the cache. What the read costs by itself is timed as well. Then the same steps without
graphs: how long the host takes until each has returned, and until the stream is done.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lowlevel_reduce as lr
from benchmarks.profile.parts import in_drawn_order, joined
from benchmarks.profile.parts_table import ROWS, VOCABULARY, captured, part_of, slice_of, torch_logsumexp
from lowlevel_reduce.parts import fold
from lowlevel_reduce.parts.local import launch_all

__all__ = ["main"]

ELEMENTS = (1_000_000, 16_000_000)
WARM = 5

Steps = dict[str, Callable[[], Any]]


def our_steps(launch: Any, x: Any, out: Any) -> Steps:
    """Return what a bound plan does, step by step and together; in this order, so that a fold has what it looks for."""

    def partials() -> None:
        launch_all(launch._launches, x.data_ptr(), None)

    def gather() -> None:
        launch.gather(launch.tag)

    def folded() -> None:
        launch._fold(launch.gather.everyone, out.data_ptr(), None)

    def both() -> None:
        partials()
        gather()

    def every_step() -> None:
        launch(x.data_ptr(), out.data_ptr())

    return {"partials": partials, "gather": gather, "partials, gather": both, "fold": folded, "all": every_step}


def timed(
    torch: Any, steps: Steps, side: Any, read: Callable[[], Any], rounds: int, meet: Callable[[], None]
) -> dict[str, float]:
    """Return the median of each step's graph in microseconds; all are captured in the stream `side`."""
    graphs = {name: captured(torch, step, side) for name, step in steps.items()}
    calls: Steps = {"nothing": lambda: None} | {name: graph.replay for name, graph in graphs.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for name, is_warm in in_drawn_order(calls, rounds, meet, WARM):
        begin = time.perf_counter_ns()
        calls[name]()
        read()
        took = (time.perf_counter_ns() - begin) / 1e3
        samples[name] += [took] if is_warm else []
    return {name: round(statistics.median(times), 2) for name, times in samples.items()}


def on_the_host(
    torch: Any, steps: Steps, side: Any, rounds: int, meet: Callable[[], None]
) -> dict[str, tuple[float, float]]:
    """Return for each step the medians until it has returned, and until the stream is done, in microseconds."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    with torch.cuda.stream(side):
        for name, is_warm in in_drawn_order(steps, rounds, meet, WARM):
            begin = time.perf_counter_ns()
            steps[name]()
            returned = time.perf_counter_ns()
            side.synchronize()
            times = ((returned - begin) / 1e3, (time.perf_counter_ns() - begin) / 1e3)
            samples[name] += [times] if is_warm else []
    medians = {name: [statistics.median(each) for each in zip(*times, strict=True)] for name, times in samples.items()}
    return {name: (round(each[0], 1), round(each[1], 1)) for name, each in medians.items()}


def _sums(torch: Any, distributed: Any, rank: int, elements: int, side: Any) -> tuple[Steps, Callable[[], Any]]:
    x = part_of(torch, rank, lr.shard_lengths(elements, "float32", 2)[rank])
    out, total = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")
    launch = lr.distributed.plan("sum", length=elements, dtype="float32").bind(side)
    made = [x]  # what graphs write lives as long as they do

    def torch_sum() -> None:
        made.append(x.sum())

    def torch_reduce() -> None:
        distributed.all_reduce(total)

    def torch_both() -> None:
        made.append(x.sum())
        distributed.all_reduce(made[-1])

    theirs = {"torch sum": torch_sum, "torch all_reduce": torch_reduce, "torch": torch_both}
    return our_steps(launch, x, out) | theirs, out.item


def _logsumexps(torch: Any, distributed: Any, rank: int, side: Any) -> tuple[Steps, Callable[[], Any]]:
    x = slice_of(torch, rank, lr.shard_lengths(VOCABULARY, "bfloat16", 2)[rank])
    out = torch.zeros(ROWS, dtype=torch.bfloat16, device="cuda")
    options: dict[str, Any] = {"length": VOCABULARY, "dtype": "bfloat16", "shape": tuple(x.shape), "axis": 1}
    most = torch.zeros((ROWS, 1), device="cuda")
    made = [x]  # what graphs write lives as long as they do

    def torch_reduce() -> None:
        distributed.all_reduce(most)

    def torch_all() -> None:
        made.append(torch_logsumexp(distributed, x))

    theirs = {"torch all_reduce": torch_reduce, "torch": torch_all}
    return our_steps(lr.distributed.plan("logsumexp", **options).bind(side), x, out) | theirs, out.cpu


def _rank(rank: int, folder: str, rounds: int, early: bool) -> None:
    """Run one of two processes; the first writes what was measured."""
    fold.MAY_START_EARLY = early
    with joined(rank, folder) as (torch, distributed, meet):
        side, found = torch.cuda.Stream(), dict[str, Any]()
        problems = {f"sum {elements}": functools.partial(_sums, elements=elements) for elements in ELEMENTS}
        for name, make in (problems | {"logsumexp": _logsumexps}).items():
            steps, read = make(torch, distributed, rank, side=side)
            found[f"{name}, without graphs"] = on_the_host(torch, steps, side, rounds, meet)
            found[name] = timed(torch, steps, side, read, rounds, meet)
        if rank == 0:
            (Path(folder) / "found").write_text(json.dumps(found), encoding="utf-8")
        del steps, read  # before the group ends


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--early", action="store_true", help="folds may start before the gather has ended")
    arguments = parser.parse_args(argv)
    spawn = importlib.import_module("torch.multiprocessing").spawn
    with tempfile.TemporaryDirectory() as folder:
        spawn(_rank, args=(folder, arguments.rounds, arguments.early), nprocs=2)
        found = json.loads((Path(folder) / "found").read_text(encoding="utf-8"))
    for problem, times in found.items():
        print(problem, ", ".join(f"{name} {took}" for name, took in times.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps({"early": arguments.early, "us": found}, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
