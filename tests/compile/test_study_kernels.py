"""The kernels of demonstrations for every architecture that this NVRTC knows: they compile, and spill nothing."""

import re

import pytest

from lowlevel_reduce.compiler import Program, compile_many, compile_program, supported_architectures
from lowlevel_reduce.errors import NoCompilerError

try:
    ARCHITECTURES = supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

KERNELS = {
    "placement": {"study_where", "study_meet"},
    "timing": {"study_where", "study_meet", "study_spin", "study_read", "study_write", "study_chase", "study_flood"},
    "update": {"study_update"},
}


@pytest.mark.parametrize("header", KERNELS)
def test_study_kernels(header):
    program = Program(f"study_{header}", f'#include "study/{header}.cuh"\n')
    for cubin in compile_many([(program, architecture) for architecture in ARCHITECTURES]):
        assert set(cubin.names) == KERNELS[header]
        for name, resources in cubin.kernels.items():
            assert resources.spill_store_bytes == 0, f"{name} for {cubin.architecture}"
            assert resources.registers <= 32, f"{name} for {cubin.architecture}: blocks of 1024 threads must fit twice"


def test_a_node_is_given_a_whole_address():
    """Simulated devices do not run this kernel, and half of an address is mostly enough on others, too."""
    program = Program("study_update", '#include "study/update.cuh"\n')
    text = compile_program(program, "sm_90", output="ptx").data.decode()
    assert ".param .b64 param3;" in text
    assert re.findall(r"st\.param\.b64 \t?\[param3(?:\+0)?\], (.*);", text) == ["8"]
