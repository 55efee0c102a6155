"""Time the sum of an array in parts, from the call to its value on the host: on one GPU, on two, in two processes.

python -m benchmarks.profile.parts --way one|shards|processes --elements N [--rounds 30]

It prints a JSON object: by the name of each contender its samples in microseconds. Two processes meet by NCCL, with
a GPU each: this library's gather partials, PyTorch's add up their sums by ``all_reduce``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lowlevel_reduce as lr
from benchmarks.measure.figures import OURS

__all__ = ["ROUNDS", "WAYS", "in_drawn_order", "joined", "main", "samples_us"]

WAYS = ("one", "shards", "processes")
ROUNDS, WARM = 30, 3

Calls = dict[str, Callable[[], Any]]


def samples_us(
    calls: Calls,
    expected: float,
    rounds: int,
    meet: Callable[[], object] = lambda: None,
    *,
    within: float = 1e-3,
    read: Callable[[Any], float] = float,
) -> dict[str, list[float]]:
    """Return the times of each call, taken in turn; each returns a result on the host, which must be right.

    The order is that of `in_drawn_order`. A result is right if what `read` returns for it, which is not timed, is
    `within` so much of what is expected.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for name, is_warm in in_drawn_order(calls, rounds, meet):
        call = calls[name]
        begin = time.perf_counter_ns()
        result = call()
        took = (time.perf_counter_ns() - begin) / 1e3
        value = read(result)
        if not abs(value - expected) <= within * abs(expected):
            raise lr.ReduceError(f"{name} of {expected:.0f} ones is {value}: not timed")
        samples[name] += [round(took, 2)] if is_warm else []
    return samples


def in_drawn_order(
    names: Iterable[str], rounds: int, meet: Callable[[], object], warm: int = WARM
) -> Iterator[tuple[str, bool]]:
    """Yield each name once a round, in an order drawn for it, and whether the `warm` first rounds are over.

    The order is alike in all processes: what a call finds in the cache and on the host depends on the one before it.
    `meet` is called before each: it waits until all processes are there.
    """
    order, drawn = list(names), random.Random(0)
    for number in range(warm + rounds):
        drawn.shuffle(order)
        for name in order:
            meet()
            yield name, number >= warm


def one(torch: Any, elements: int, rounds: int) -> dict[str, list[float]]:
    """Time the sum of an array on one GPU."""
    x = torch.ones(elements, device="cuda:0")
    return samples_us({OURS: lambda: float(lr.sum(x)), "torch": lambda: float(x.sum().item())}, elements, rounds)


def shards(torch: Any, elements: int, rounds: int) -> dict[str, list[float]]:
    """Time the sum of an array on two GPUs in one process; PyTorch's two sums are added up on the host."""
    lengths = lr.shard_lengths(elements, "float32", 2)
    parts = [torch.ones(length, device=f"cuda:{i}") for i, length in enumerate(lengths)]

    def both() -> float:
        sums = [part.sum() for part in parts]
        return sum(float(each.item()) for each in sums)

    return samples_us({OURS: lambda: float(lr.reduce_shards(parts)), "torch": both}, elements, rounds)


def processes(torch: Any, elements: int, rounds: int) -> dict[str, list[float]]:
    """Time the sum of an array of which each of two processes has a part."""
    with tempfile.TemporaryDirectory() as folder:
        context = importlib.import_module("torch.multiprocessing")
        context.spawn(_rank, args=(folder, elements, rounds), nprocs=2)
        samples: dict[str, list[float]] = json.loads((Path(folder) / "samples").read_text(encoding="utf-8"))
        return samples


@contextmanager
def joined(rank: int, folder: str) -> Iterator[tuple[Any, Any, Callable[[], None]]]:
    """Make this process one of two that meet by NCCL; yield torch, its distributed, and what waits for both."""
    torch = importlib.import_module("torch")
    distributed = importlib.import_module("torch.distributed")
    torch.cuda.set_device(rank)
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    distributed.init_process_group("nccl", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)

    def meet() -> None:
        torch.cuda.synchronize()
        distributed.barrier()
        torch.cuda.synchronize()

    yield torch, distributed, meet
    # Not after an error: the other process would not come to the end of the group.
    lr.distributed.forget(distributed.group.WORLD)
    distributed.destroy_process_group()


def _rank(rank: int, folder: str, elements: int, rounds: int) -> None:
    """Run one of two processes; the first writes the samples."""
    with joined(rank, folder) as (torch, distributed, meet):
        samples = _sums(torch, distributed, rank, elements, rounds, meet)
        if rank == 0:
            (Path(folder) / "samples").write_text(json.dumps(samples), encoding="utf-8")


def _sums(
    torch: Any, distributed: Any, rank: int, elements: int, rounds: int, meet: Callable[[], None]
) -> dict[str, list[float]]:
    x = torch.ones(lr.shard_lengths(elements, "float32", 2)[rank], device="cuda")

    def theirs() -> float:
        total = x.sum()
        distributed.all_reduce(total)
        return float(total.item())

    calls: Calls = {OURS: lambda: float(lr.distributed.sum(x, length=elements)), "torch": theirs}
    return samples_us(calls, elements, rounds, meet)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the samples that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args(argv)
    torch = importlib.import_module("torch")
    run = {"one": one, "shards": shards, "processes": processes}[arguments.way]
    print(json.dumps(run(torch, arguments.elements, arguments.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
