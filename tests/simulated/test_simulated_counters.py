"""What the simulator counts, by hand for a kernel of a few instructions, and the table that people read."""

import pytest

from lowlevel_reduce import Buffer, LaunchConfig, Library, simulator
from lowlevel_reduce.compiler import Program, compile_program
from lowlevel_reduce.driver import launch

SOURCE = r"""
extern "C" __global__ void same(unsigned *out) { atomicAdd(out, 1u); }
extern "C" __global__ void pairs(unsigned *out) { atomicAdd(out + threadIdx.x / 2, 1u); }
extern "C" __global__ void alternating(unsigned *out) { atomicAdd(out + threadIdx.x % 2, 1u); }
extern "C" __global__ void apart(unsigned *out) { atomicAdd(out + threadIdx.x, 1u); }
"""


@pytest.fixture
def library(context):
    image = compile_program(Program(name="atomics", source=SOURCE), context.device.architecture, output="ptx")
    with Library.load(image.data) as library:
        yield library


@pytest.mark.parametrize(("kernel", "collisions"), [("same", 31), ("pairs", 16), ("alternating", 30), ("apart", 0)])
def test_collisions_of_atomics(library, stream, context, kernel, collisions):
    with Buffer.allocate(256, context) as out:
        out.fill(0)
        launch(library.kernel(kernel), LaunchConfig(3, 64), stream, "Q", out.pointer)
    counted = simulator.counters()[kernel]
    assert (counted.atomics, counted.atomic_collisions) == (3 * 64, 3 * 2 * collisions)


def test_the_table_has_a_column_a_kernel_and_no_time(library, stream, context):
    assert simulator.counters_table() == "no kernel ran"
    with Buffer.allocate(256, context) as out:
        out.fill(0)
        for name in ("same", "pairs"):
            launch(library.kernel(name), LaunchConfig(20, 64), stream, "Q", out.pointer)
    lines = simulator.counters_table().splitlines()
    assert lines[0].split() == ["same", "pairs"]
    assert len({len(line) for line in lines}) == 1, "columns are aligned"
    rows = {" ".join(words[:-2]): words[-2:] for words in map(str.split, lines[1:])}
    assert rows["time"] == ["-", "-"]
    assert rows["atomics"] == ["1,280", "1,280"]
    assert rows["collisions"] == ["1,240", "640"]
    assert rows["sectors a request"] == ["1.00", "2.00"]  # of 32 bytes, that a warp's atomics touch
    assert rows["bank conflicts"] == ["0", "0"]
    assert int(rows["instructions"][0].replace(",", "")) == simulator.counters()["same"].instructions
