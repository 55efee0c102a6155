r"""Sum an array that lies in parts in several processes of torchrun, with the bits that one GPU computes for the whole.

    torchrun --nproc-per-node 8 examples/torchrun_reduce.py

On two hosts, on each of them, with the name of the first:

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint FIRST_HOST:29500 \
        examples/torchrun_reduce.py

With GPUs the processes meet by NCCL, without them by Gloo, each on a simulated GPU. It needs torch.
"""

from __future__ import annotations

import itertools
import os

import numpy as np
import torch
import torch.distributed as dist
from _device import any_device

import lowlevel_reduce as lr


def main() -> None:
    """Reduce a whole array in parts, and the rows of a matrix whose columns are in parts."""
    has_gpus = torch.cuda.is_available()
    if has_gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if has_gpus else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    with any_device() as simulated:
        length = 50_000 if simulated else 400_000_000
        # Every rank makes the same array here, and keeps its part: a program would read its part alone.
        x = np.random.default_rng(0).standard_normal(length, dtype=np.float32)
        borders = [0, *itertools.accumulate(lr.shard_lengths(length, "float32", size))]
        part = x[borders[rank] : borders[rank + 1]]
        mine = torch.from_numpy(part).cuda() if has_gpus else part

        total = lr.distributed.sum(mine, length=length)  # torch's default group, on every rank
        place = lr.distributed.argmax(mine, length=length)
        told = f"rank {rank}: the bits of the whole: {total.numpy().tobytes() == lr.tree.reduce(x).tobytes()}"
        print(f"{told}, largest at {int(place)}, as in NumPy: {int(place) == int(np.argmax(x))}", flush=True)

        rows = x[: 2 * (length // 2)].reshape(2, -1)
        width = rows.shape[1]
        borders = [0, *itertools.accumulate(lr.shard_lengths(width, "float32", size))]
        columns = np.ascontiguousarray(rows[:, borders[rank] : borders[rank + 1]])
        slices = torch.from_numpy(columns).cuda() if has_gpus else columns
        largest = lr.distributed.max(slices, axis=1, length=width)
        same = np.array_equal(largest.numpy(), rows.max(axis=1))
        print(f"rank {rank}: the largest of each row, as in NumPy: {same}", flush=True)
    lr.distributed.forget(dist.group.WORLD)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
