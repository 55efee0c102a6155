"""Offsets along several axes, one of which has 2^32 elements or more: too many to reduce in a test, few to compute."""

import struct

import numpy as np
import pytest
from one_warp import launch

from lowlevel_reduce.compiler import Program, compile_program, supported_architectures
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.layout import MAX_AXES
from lowlevel_reduce.simulator import machine, ptx

try:
    supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

TEXT = """\
#include "operators.cuh"
#include "shape.cuh"
extern "C" __global__ void offset_of(const __grid_constant__ Axes axes, uint64 index, int64* out)
{
    *out = axes.offset(index, false);
}
"""


@pytest.mark.parametrize("size", [2**31 + 1, 2**32 - 1, 2**32, 2**32 + 5, 5_000_000_000])
def test_offset_along_an_axis_past_32_bits(size):
    image = compile_program(Program("offset_of", TEXT), "sm_90", output="ptx")
    kernel = ptx.parse(image.data.decode()).kernels["offset_of"]
    stride = size + 16
    rest = (0,) * (MAX_AXES - 2)
    for index in (0, 7, size // 2, 2**32 - 1, size - 1, size, size + 7, 2 * size - 1):
        memory = machine.GlobalMemory()
        out = memory.allocate(8)
        axes = struct.pack(f"Q{MAX_AXES}Q{MAX_AXES}q{MAX_AXES}q", 2, size, 2, *rest, 1, stride, *rest, *(0,) * MAX_AXES)
        launch(kernel, memory, axes + struct.pack("2Q", index, out), threads=1)
        row, place = divmod(index, size)
        assert np.frombuffer(memory.read(out, 8), np.int64)[0] == row * stride + place, index
