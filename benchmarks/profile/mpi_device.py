"""See whether an MPI takes device memory, and time a sum over its ranks with it and through page-locked memory.

mpiexec -n 2 python -m mpi4py -m benchmarks.profile.mpi_device [--elements 16000000] [--rounds 30] [--device-memory]

Each rank takes the GPU of its number, or the last one. It prints what the MPI says of itself and of the memory that it
takes (``mpi_memory_alloc_kinds``, by which `lr.distributed` chooses), and for each way the median of the time from the
call to the value on the host; the bits are those of the tree in NumPy. An MPI that does not say that it takes ``cuda``
memory is given it with ``--device-memory`` alone: one that does not take it ends in a fault.

Of the packages that pip installs, Open MPI 5.0.11 and MPICH 5.0.2 are built without CUDA. Intel MPI (``impi-rt``
2021.18.1) contains support for CUDA, which ``I_MPI_OFFLOAD=1`` enables.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

import lowlevel_reduce as lr
from lowlevel_reduce.parts.groups import Group
from lowlevel_reduce.parts.mpi_group import MpiDeviceGroup, MpiHostGroup, mpi_group

__all__ = ["main"]


def median_us(group: Group, part: lr.DeviceArray, length: int, expected: bytes, rounds: int) -> float:
    """Return the time of a sum over the ranks of a group; raises if its bits are not those expected."""
    times = []
    for number in range(3 + rounds):
        MPI.COMM_WORLD.Barrier()
        begin = time.perf_counter_ns()
        value = lr.distributed.sum(part, group, length=length).numpy()
        took = (time.perf_counter_ns() - begin) / 1e3
        if value.tobytes() != expected:
            raise lr.ReduceError(f"the sum is {value}, which has other bits than the tree's")
        times += [took] if number >= 3 else []
    return statistics.median(times)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print on the first rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=16_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device-memory", action="store_true")
    arguments = parser.parse_args(argv)
    world = MPI.COMM_WORLD
    whole = np.random.default_rng(1).random(arguments.elements, dtype=np.float32)
    lengths = lr.shard_lengths(arguments.elements, "float32", world.size)
    start, end = list(itertools.pairwise([0, *itertools.accumulate(lengths)]))[world.rank]
    expected = lr.tree.reduce(whole).tobytes()
    context = lr.Context.primary(min(world.rank, lr.Device.count() - 1))
    with context, context.pushed(), lr.Stream.create(context) as stream:
        part = lr.DeviceArray.from_numpy(whole[start:end], stream)
        is_aware = isinstance(mpi_group(world), MpiDeviceGroup)
        groups: dict[str, Group] = {"page-locked memory": MpiHostGroup(world)}
        if is_aware or arguments.device_memory:
            groups["device memory"] = MpiDeviceGroup(world)
        found = {
            name: median_us(each, part, arguments.elements, expected, arguments.rounds) for name, each in groups.items()
        }
        del part, groups
    if world.rank == 0:
        print(MPI.Get_library_version().splitlines()[0])
        print(f"mpi_memory_alloc_kinds: {world.Get_info().Get('mpi_memory_alloc_kinds')}; taken for aware: {is_aware}")
        for name, median in found.items():
            print(f"sum of {arguments.elements} over {world.size} ranks, {name}: {median:.1f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
