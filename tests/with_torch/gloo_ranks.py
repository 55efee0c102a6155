"""What each of four processes does that torch's Gloo connects, each with a simulated GPU of its own.

Run as ``python gloo_ranks.py RANK DIRECTORY``: it writes what it found to a file there. With ``--dies``, the last rank
ends in the middle.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from lowlevel_reduce import simulator

GPUS = ("H200", "A100", "RTX 4090", "B200")
"""The GPU of each rank: bits do not depend on it."""
RANKS = len(GPUS)
LENGTH = 9 * 1024 + 77
SECONDS = 30
"""After which Gloo gives up a rank that does not answer."""
SHAPE = (3, 5 * 1024 + 4)
ROWS = ("sum", "max", "argmax", "logsumexp", "softmax_stats", "mean_var")
WHOLE = ("sum", "argmax", "mean_var", "logsumexp")


def values(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return numbers of so many magnitudes that almost any other order of a sum has other bits."""
    rng = np.random.default_rng(3)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(np.float32)


def part_of(x: np.ndarray[Any, Any], rank: int) -> np.ndarray[Any, Any]:
    """Return a rank's part of the last axis."""
    borders = [0, *itertools.accumulate(lr.shard_lengths(x.shape[-1], x.dtype, RANKS))]
    return np.ascontiguousarray(x[..., borders[rank] : borders[rank + 1]])


def text_of(results: Any) -> str:
    """Return the bits of the result or results as text."""
    parts = results if isinstance(results, tuple) else (results,)
    return " ".join(np.asarray(each).tobytes().hex() for each in parts)


def outcome(call: Callable[[], Any]) -> str:
    """Return the bits of what a call returns, or its error in words."""
    try:
        return text_of(call())
    except Exception as error:  # noqa: BLE001 - whatever it is, a test looks at it
        return f"{type(error).__name__}: {error}"


def results(rank: int) -> dict[str, str]:
    """Reduce whole arrays and rows in parts."""
    found = {}
    x, rows = values((LENGTH,)), values(SHAPE)
    for op in WHOLE:
        for length in (None, LENGTH):
            found[f"{op}, {length}"] = text_of(lr.distributed.reduce(part_of(x, rank), op, length=length))
    for op in ROWS:
        found[f"{op} of rows"] = text_of(lr.distributed.reduce(part_of(rows, rank), op, axis=1, length=SHAPE[1]))
    at_root = lr.distributed.sum(part_of(x, rank), root=2)
    found["at the root"] = "" if at_root is None else text_of(at_root)
    return found


def faults(rank: int) -> dict[str, str]:
    """Do on rank 1 what it should not, and otherwise the same everywhere; then reduce once more."""
    is_wrong = rank == 1
    ones = np.ones(4096, np.int32 if is_wrong else np.float32)
    fine = np.ones(4096, np.float32)
    whole = RANKS * 4096
    found = {
        "dtype": outcome(lambda: lr.distributed.sum(ones, length=whole)),
        "operator": outcome(lambda: lr.distributed.reduce(fine, "max" if is_wrong else "prod", length=whole)),
        "chunk": outcome(lambda: lr.distributed.sum(fine, chunk=2048 if is_wrong else 1024)),
        "length": outcome(lambda: lr.distributed.sum(fine[: 4000 if is_wrong else 4096])),
        "before": outcome(lambda: lr.distributed.sum(fine, length=whole)),
        "told length": outcome(lambda: lr.distributed.sum(fine[: 4000 if is_wrong else 4096], length=whole)),
    }
    version = lr.__version__
    lr.__version__ = "0.0.9" if is_wrong else version
    found["version"] = outcome(lambda: lr.distributed.min(fine, length=whole))
    lr.__version__ = version
    found["after"] = outcome(lambda: lr.distributed.sum(fine, length=whole))
    return found


def death(rank: int) -> dict[str, str]:
    """End the last rank between two reductions."""
    fine = np.ones(4096, np.float32)
    found = {"before": outcome(lambda: lr.distributed.sum(fine))}
    if rank == RANKS - 1:
        os._exit(3)
    found["after"] = outcome(lambda: lr.distributed.sum(fine))
    return found


def main() -> None:
    """Run one rank."""
    import torch.distributed as dist  # the tests import this module, too

    parser = argparse.ArgumentParser()
    parser.add_argument("rank", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--dies", action="store_true")
    arguments = parser.parse_args()
    rank, directory = arguments.rank, arguments.directory
    dist.init_process_group(
        "gloo",
        init_method=f"file://{directory}/meeting",
        rank=rank,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=SECONDS),
    )
    with simulator.use(GPUS[rank]), lr.Context.primary() as context, context.pushed():
        found = death(rank) if arguments.dies else {**results(rank), **faults(rank)}
    (directory / f"{rank}.json").write_text(json.dumps(found))
    if arguments.dies:
        os._exit(0)  # what is left of the group cannot be ended in order
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
