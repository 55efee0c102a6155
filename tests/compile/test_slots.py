"""A partial's slot in memory: it is there when all of its units carry the flag, and empty once it was cleared."""

import struct
from functools import cache
from itertools import product

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
#include "tree/grid.cuh"
struct Wide { uint32 word[7]; };
extern "C" __global__ void look(Slot<Wide>* slot, uint32* out, uint32 flag)
{
    uint4 seen[Slot<Wide>::units];
    out[0] = slot->read(seen, flag);
    const Wide value = Slot<Wide>::value(seen);
    for (int i = 0; i < 7; ++i) out[1 + i] = value.word[i];
}
extern "C" __global__ void put(Slot<Wide>* slot, uint32* out, uint32 flag)
{
    slot->publish(Wide{{11, 12, 13, 14, 15, 16, 17}}, flag);
}
extern "C" __global__ void clear(Slot<Wide>* slot, uint32* out, uint32 flag) { slot->clear(); }
"""
UNITS = 3
VALUE = list(range(11, 18))


@cache
def kernels():
    return ptx.parse(compile_program(Program("slots", TEXT), "sm_90", output="ptx").data.decode()).kernels


def run(name, units, flag=1):
    """Run one thread of a kernel over a slot; return the slot's units and what the kernel says."""
    memory = machine.GlobalMemory()
    slot, out = memory.allocate(16 * UNITS), memory.allocate(32)
    memory.write(slot, np.asarray(units, np.uint32).tobytes())
    memory.fill(out, 0, 32)
    arguments = struct.pack("QQI", slot, out, flag)
    machine.run(machine.Launch(kernels()[name], (1, 1, 1), (1, 1, 1), None, 0, arguments, False, 1), memory)
    found = np.frombuffer(memory.read(slot, 16 * UNITS), np.uint32).reshape(UNITS, 4)
    return found, np.frombuffer(memory.read(out, 32), np.uint32).tolist()


def units_of(flags):
    return [[11, 12, 13, flags[0]], [14, 15, 16, flags[1]], [17, 0, 0, flags[2]]]


@pytest.mark.parametrize("flags", list(product((0, 1), repeat=UNITS)), ids=str)
def test_it_is_there_when_all_units_are(flags):
    _, (there, *value) = run("look", units_of(flags))
    assert there == all(flags)
    assert value == VALUE


def test_a_partial_of_a_run_is_none_of_a_block():
    for flag in (1, 2):
        assert [run("look", units_of([each] * UNITS), flag)[1][0] for each in (1, 2)] == [flag == 1, flag == 2]


def test_what_is_put_there_is_there_until_it_is_cleared():
    units, _ = run("put", np.zeros((UNITS, 4)), flag=2)
    assert units[:, 3].tolist() == [2] * UNITS
    assert units[:, :3].ravel()[:7].tolist() == VALUE
    units, _ = run("clear", units)
    assert not units.any()
