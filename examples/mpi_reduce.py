"""Sum an array that lies in parts in the processes of an MPI, with the bits that one GPU computes for the whole.

    mpiexec -n 4 python -m mpi4py examples/mpi_reduce.py

On two hosts, with MPICH or Open MPI (``-m mpi4py`` ends all ranks if one fails):

    mpiexec -n 8 --host FIRST_HOST:4,SECOND_HOST:4 python -m mpi4py examples/mpi_reduce.py

An MPI that says it takes CUDA's memory (``mpi_memory_alloc_kinds``, from MPI 4.1 on) is given device memory, any other
page-locked host memory. It needs mpi4py and an MPI, such as the package mpich.
"""

from __future__ import annotations

import itertools

import numpy as np
from _device import any_device
from mpi4py import MPI

import lowlevel_reduce as lr


def main() -> None:
    """Reduce on every rank, and once for the root alone."""
    comm = MPI.COMM_WORLD
    with any_device() as simulated:
        device = lr.Device(comm.rank % len(lr.Device.all()))
        with lr.Context.primary(device) as context, context.pushed():
            length = 50_000 if simulated else 400_000_000
            # Every rank makes the same array here, and keeps its part: a program would read its part alone.
            x = np.random.default_rng(0).standard_normal(length, dtype=np.float32)
            borders = [0, *itertools.accumulate(lr.shard_lengths(length, "float32", comm.size))]
            part = x[borders[comm.rank] : borders[comm.rank + 1]]

            total = lr.distributed.sum(part, comm, length=length)
            same = total.numpy().tobytes() == lr.tree.reduce(x).tobytes()
            print(f"rank {comm.rank}: the bits of the whole: {same}", flush=True)

            moments = lr.distributed.mean_var(part, comm, root=0)  # without length=, the ranks exchange their parts'
            if comm.rank == 0:
                expected = lr.tree.reduce(x, "mean_var")
                pairs = zip(moments, expected, strict=True)
                same = all(a.numpy().tobytes() == b.tobytes() for a, b in pairs)
                print(f"rank 0 alone has mean and variance, with these bits as well: {same}", flush=True)


if __name__ == "__main__":
    main()
