"""Sum a dask array, whose chunks lie on the workers of a cluster, with the bits that one GPU computes for the whole.

    python examples/dask_reduce.py

Each worker folds its chunks, which are NumPy's or CuPy's, to partials of a few bytes; they are gathered here and
folded. For that the chunks must be whole chunks of the tree, which `shard_lengths` gives: others are rechunked, and it
is said.

On two hosts, start ``dask scheduler`` on the first and ``dask worker FIRST_HOST:8786`` on both, and run

    python examples/dask_reduce.py FIRST_HOST:8786

Without GPUs the workers simulate them. It needs dask with distributed (``pip install "dask[array,distributed]"``).
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import dask
import dask.array as da
import numpy as np
from _device import any_device
from dask.distributed import Client, LocalCluster

import lowlevel_reduce as lr


def partials_of(part: Any, op: str, chunk: int) -> np.ndarray[Any, Any]:
    """Fold a part to the partials of its chunks, on the worker that has it; they come to the host."""
    with any_device():
        return lr.partials(part, op, chunk=chunk).numpy()


def fitting(x: Any, parts: int) -> Any:
    """Return a dask array of one axis whose chunks fit the tree, rechunked if its own do not."""
    length, chunk = x.shape[0], lr.chunk_elements(x.shape[0], x.dtype)
    if all(size % chunk == 0 for size in x.chunks[0][:-1]):
        return x
    wanted = tuple(size for size in lr.shard_lengths(length, x.dtype, parts) if size)
    print(f"chunks of {x.chunks[0][:3]}... are rechunked to {wanted[:3]}..., multiples of {chunk} elements")
    return x.rechunk((wanted,))


def reduce(x: Any, op: str = "sum") -> Any:
    """Reduce a dask array of one axis; the bits do not depend on its chunks, nor on the workers."""
    x = fitting(x, len(x.chunks[0]))
    chunk = lr.chunk_elements(x.shape[0], x.dtype)
    made = dask.compute(*(dask.delayed(partials_of)(part, op, chunk) for part in x.to_delayed().ravel()))
    with any_device():
        found = lr.combine_partials(np.concatenate(made), op, length=x.shape[0], chunk=chunk, dtype=x.dtype)
        return found.numpy()


def main(address: str | None = None) -> None:
    """Reduce on the cluster at an address, or on one of this machine."""
    with contextlib.ExitStack() as stack:
        place: Any = address
        if address is None:
            place = stack.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
        stack.enter_context(Client(place))
        values = np.random.default_rng(0).standard_normal(50_000, dtype=np.float32)
        total = reduce(da.from_array(values, chunks=20_000))
        print(f"sum {total}, the bits of the whole in NumPy: {total.tobytes() == lr.tree.reduce(values).tobytes()}")
        place_of = reduce(da.from_array(values, chunks=10 * 1024), "argmax")
        print(f"largest at {int(place_of)}, as in NumPy: {int(place_of) == int(np.argmax(values))}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
