"""Which tile a block takes: every tile once, and blocks that run at the same time a run of tiles apart."""

import struct
from functools import cache

import numpy as np
import pytest

from lowlevel_reduce.compiler import Program, compile_program, supported_architectures
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.simulator import machine, ptx

try:
    supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

TEXT = """\
#include "tree/overlap.cuh"
extern "C" __global__ void tiles(uint32* out, uint32 count, uint32 apart)
{
    const uint32 block = blockIdx.x * blockDim.x + threadIdx.x;
    out[block] = tile_of(block, count, apart);
}
"""
RUN, THREADS = 8, 64


@cache
def kernel():
    return ptx.parse(compile_program(Program("tiles", TEXT), "sm_90", output="ptx").data.decode()).kernels["tiles"]


def tiles_of(blocks, count, apart):
    """Return the tile of each block, which a thread stands for."""
    memory = machine.GlobalMemory()
    grid = -(-blocks // THREADS)
    out = memory.allocate(4 * grid * THREADS)
    launch = machine.Launch(
        kernel=kernel(),
        grid=(grid, 1, 1),
        block=(THREADS, 1, 1),
        cluster=None,
        dynamic_shared_bytes=0,
        arguments=struct.pack("QII", out, count, apart),
        cooperative=False,
        resident_blocks=8,
    )
    machine.run(launch, memory)
    return np.frombuffer(memory.read(out, 4 * blocks), np.uint32)


@pytest.mark.parametrize("apart", [256, 264, 5])
@pytest.mark.parametrize("more", [-1, 0, 1, 2005])
def test_every_tile_is_some_blocks(more, apart):
    count, folders = RUN * apart + more, 3
    found = tiles_of(count + folders, count, apart)
    assert sorted(found[:count]) == list(range(count))
    assert list(found[count:]) == [count, count + 1, count + 2]


@pytest.mark.parametrize("apart", [256, 264])
def test_blocks_beside_each_other_take_tiles_a_run_apart(apart):
    found = tiles_of(RUN * apart, RUN * apart, apart)
    assert list(found[:apart]) == list(range(0, RUN * apart, RUN))
    assert list(found[apart : 2 * apart]) == list(range(1, RUN * apart, RUN))


def test_few_tiles_stay_in_order():
    found = tiles_of(RUN * 256 - 1, RUN * 256 - 1, 256)
    assert list(found) == list(range(RUN * 256 - 1))
