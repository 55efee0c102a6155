"""Every kernel for every architecture that this NVRTC knows: compiles, keeps out of local memory, loads 16 bytes."""

import re
import subprocess

import pytest

from lowlevel_reduce import policy
from lowlevel_reduce.compiler import Program, compile_many, supported_architectures
from lowlevel_reduce.dtypes import COMPENSATED, ELEMENT_TYPES
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.kernels import OPTIONS, kernel_sources
from lowlevel_reduce.operators import OPERATORS

try:
    ARCHITECTURES = supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

SUMS = [(entry, accumulator) for entry in ELEMENT_TYPES for accumulator in entry.accumulators]
# What is forced where; the rest is the policy's, for an input of many tiles.
MAPPINGS = [
    {"strategy": "block", "leaves": 1},
    {"strategy": "block", "leaves": 64},
    {"strategy": "cluster", "leaves": 32},
    {"strategy": "tiles", "leaves": 1000},
    {"strategy": "tiles", "leaves": 100_000},
    {"strategy": "tiles", "leaves": 100_000, "block_threads": 1024},
    {"strategy": "two_pass", "leaves": 100_000},
    {"strategy": "cooperative", "leaves": 100_000},
]


def compute_capability(architecture):
    digits = re.sub(r"\D", "", architecture)
    return int(digits[:-1]), int(digits[-1])


def programs(architecture, mapping):
    """Return the programs of one mapping for all types and accumulators."""
    capability = compute_capability(architecture)
    facts = policy.DeviceFacts(capability, 100, clusters=capability >= (9, 0), cooperative=True)
    for entry, accumulator in SUMS:
        options = dict(mapping)
        wide = accumulator == COMPENSATED
        if wide:
            options.pop("block_threads", None)
        chosen = policy.choose(options.pop("leaves"), facts, wide_accumulator=wide, **options)
        for operator in OPERATORS.values():
            label = f"{operator.name}_{entry.name}_{accumulator}"
            for source in kernel_sources(label, operator.c_type(entry, accumulator, entry.result), chosen):
                yield Program(source.entry, source.text, options=OPTIONS)


def cases():
    for architecture in ARCHITECTURES:
        capability = compute_capability(architecture)
        for mapping in MAPPINGS:
            refused = (mapping["strategy"] == "cluster" and capability < (9, 0)) or (
                mapping.get("block_threads") == 1024 and capability >= (10, 0)
            )
            if not refused:
                yield pytest.param(architecture, mapping, id=f"{architecture}-{'-'.join(map(str, mapping.values()))}")


@pytest.mark.parametrize(("architecture", "mapping"), list(cases()))
def test_compiles_without_local_memory(architecture, mapping):
    cubins = compile_many([(program, architecture) for program in programs(architecture, mapping)])
    for cubin in cubins:
        assert cubin.names == (cubin.program.name,)
        use = cubin.kernels[cubin.program.name]
        assert use.stack_bytes == use.spill_store_bytes == use.spill_load_bytes == 0, cubin.program.name
        assert "warning" not in cubin.log.lower(), cubin.log


def disassembler():
    pathfinder = pytest.importorskip("cuda.pathfinder")
    found = pathfinder.find_nvidia_binary_utility("nvdisasm")
    if found is None:
        pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    return found


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_whole_leaves_are_loaded_16_bytes_at_a_time(architecture, tmp_path):
    tool = disassembler()
    for cubin in compile_many(
        [(program, architecture) for program in programs(architecture, {"strategy": "tiles", "leaves": 100_000})]
    ):
        image = tmp_path / f"{cubin.program.name}.cubin"
        image.write_bytes(cubin.data)
        listing = subprocess.run([tool, "-c", str(image)], capture_output=True, text=True, check=True).stdout
        loads = re.findall(r"\bLDG\.E\.(\S*128\S*)", listing)
        # Eight unconditional loads in a row for a whole leaf, and five for each round of any other.
        assert len(loads) >= 8 + 5, cubin.program.name
