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
#include "overlap.cuh"
extern "C" __global__ void tiles(uint32* out, uint32* streams, uint32 count)
{
    out[blockIdx.x] = tile_of<16>(blockIdx.x, count);
    if (blockIdx.x == 0) *streams = places<16>();
}
"""
RUN = 8
RESIDENT = 8  # blocks of the simulated device


@cache
def kernel():
    return ptx.parse(compile_program(Program("tiles", TEXT), "sm_90", output="ptx").data.decode()).kernels["tiles"]


def tiles_of(blocks, count):
    """Return the tile of each block, and how many blocks of 16 warps the device has room for."""
    memory = machine.GlobalMemory()
    out, streams = memory.allocate(4 * blocks), memory.allocate(4)
    launch = machine.Launch(
        kernel=kernel(),
        grid=(blocks, 1, 1),
        block=(1, 1, 1),
        cluster=None,
        dynamic_shared_bytes=0,
        arguments=struct.pack("QQI", out, streams, count),
        cooperative=False,
        resident_blocks=RESIDENT,
    )
    machine.run(launch, memory)
    return np.frombuffer(memory.read(out, 4 * blocks), np.uint32), int.from_bytes(memory.read(streams, 4), "little")


STREAMS = tiles_of(RESIDENT, RESIDENT)[1]


@pytest.mark.parametrize("more", [-1, 0, 1, RUN * STREAMS + 5])
def test_every_tile_is_some_blocks(more):
    count, folders = RUN * STREAMS + more, 3
    found, _ = tiles_of(count + folders, count)
    assert sorted(found[:count]) == list(range(count))
    assert list(found[count:]) == [count, count + 1, count + 2]


def test_blocks_beside_each_other_take_tiles_a_run_apart():
    found, _ = tiles_of(RUN * STREAMS, RUN * STREAMS)
    assert list(found[:STREAMS]) == list(range(0, RUN * STREAMS, RUN))
    assert list(found[STREAMS : 2 * STREAMS]) == list(range(1, RUN * STREAMS, RUN))


def test_few_tiles_stay_in_order():
    found, _ = tiles_of(RUN * STREAMS - 1, RUN * STREAMS - 1)
    assert list(found) == list(range(RUN * STREAMS - 1))
