"""Every strategy and type on the simulated machine, against the tree, bit for bit."""

import struct
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from lowlevel_reduce import policy, tree
from lowlevel_reduce.compiler import Program, compile_program, supported_architectures
from lowlevel_reduce.dtypes import COMPENSATED, ELEMENT_TYPES, accumulator_bytes, element_type
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.kernels import OPTIONS, SIGNATURE, kernel_sources
from lowlevel_reduce.operators import operator
from lowlevel_reduce.simulator import machine, ptx

try:
    ARCHITECTURES = supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

CAPABILITIES = {"sm_75": (7, 5), "sm_90": (9, 0), "sm_120": (12, 0)}
SUMS = [(entry.name, accumulator) for entry in ELEMENT_TYPES for accumulator in entry.accumulators]
# Length, and how far behind a 16-byte boundary the first element is.
PLACES = [(0, 0), (1, 1), (1023, 3), (4097, 4), (4096, 0), (20_001, 12), (70_001, 8)]
MAPPINGS = [
    {"strategy": "block"},
    {"strategy": "cluster"},
    {"strategy": "tiles"},
    {"strategy": "tiles", "cluster": 4},
    {"strategy": "two_pass"},
    {"strategy": "cooperative"},
]


@cache
def compiled(entry, text, architecture):
    image = compile_program(Program(entry, text, options=OPTIONS), architecture, output="ptx")
    return ptx.parse(image.data.decode()).kernels[entry]


def values(dtype, length):
    rng = np.random.default_rng(length)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, length, dtype=dtype, endpoint=True)
    if dtype.kind == "b":
        return rng.integers(0, 2, length).astype(dtype)
    return (rng.standard_normal(length) * 10.0 ** rng.uniform(-3, 3, length)).astype(dtype)


def simulate(array, accumulator, architecture, *, offset=0, seed=None, resident=40, **mapping):
    """Reduce on the machine, in memory that holds the elements and not a byte more; return result and counters."""
    element, capability = element_type(array.dtype), CAPABILITIES[architecture]
    facts = policy.DeviceFacts(capability, 132, clusters=capability >= (9, 0), cooperative=True)
    leaves = -(-array.size // element.leaf)
    chosen = policy.choose(leaves, facts, wide_accumulator=accumulator == COMPENSATED, **mapping)
    memory = machine.GlobalMemory()
    space = policy.workspace_bytes(leaves, accumulator_bytes(accumulator))
    elements = memory.allocate(max(offset + array.nbytes, 1)) + offset
    kind = np.dtype(ml_dtypes.bfloat16 if element.result == "bfloat16" else element.result)
    result = memory.allocate(kind.itemsize)
    workspace = memory.allocate(space)
    memory.fill(workspace, 0, space)
    if array.size:
        memory.write(elements, array.tobytes())
    sources = kernel_sources("sum", operator("sum").c_type(element, accumulator, element.result), chosen)
    total = machine.Counters()
    for number, source in enumerate(sources):
        kernel = compiled(source.entry, source.text, architecture)
        blocks = 1 if number else chosen.blocks or min(chosen.tiles, resident)
        count = chosen.partials if number else chosen.tiles_per_block
        total += machine.run(
            machine.Launch(
                kernel=kernel,
                grid=(blocks, 1, 1),
                block=(chosen.block_threads, 1, 1),
                cluster=(chosen.cluster, 1, 1) if chosen.cluster > 1 else None,
                dynamic_shared_bytes=0,
                arguments=struct.pack(SIGNATURE, elements, result, array.size, workspace, count),
                cooperative=chosen.name == "cooperative",
                resident_blocks=resident,
                seed=seed,
            ),
            memory,
        )
    slots = memory.read(workspace + policy.HEADER_BYTES, space - policy.HEADER_BYTES)
    assert not any(slots), "the workspace is not fit for the next launch"
    return np.frombuffer(memory.read(result, kind.itemsize), kind)[0], total


def check(array, accumulator, architecture, **options):
    got, counters = simulate(array, accumulator, architecture, **options)
    expected = tree.reduce(array, "sum", accumulator)
    assert got.tobytes() == expected.tobytes(), (got, expected)
    return counters


def cases():
    """Yield each type and accumulator with each mapping, at places and with seeds that take turns."""
    number = 0
    for i, (name, accumulator) in enumerate(SUMS):
        for j, mapping in enumerate(MAPPINGS):
            architecture = ("sm_90", "sm_120", "sm_75")[(i + j) % 3]
            if (mapping["strategy"] == "cluster" or "cluster" in mapping) and architecture == "sm_75":
                architecture = "sm_90"
            chosen = [PLACES[(number + k) % len(PLACES)] for k in (0, 3)]
            number += 1
            seed = (None, 0, 1)[number % 3]
            label = f"{architecture}-{name}-{accumulator}-{'-'.join(map(str, mapping.values()))}"
            yield pytest.param(name, accumulator, mapping, architecture, chosen, seed, id=label)


@pytest.mark.parametrize(("name", "accumulator", "mapping", "architecture", "places", "seed"), list(cases()))
def test_same_bits_as_the_tree(name, accumulator, mapping, architecture, places, seed):
    if architecture not in ARCHITECTURES:
        pytest.skip(f"this NVRTC does not know {architecture}")
    element = element_type(name)
    for length, offset in places:
        aligned = offset // element.itemsize * element.itemsize
        check(values(element.dtype, length), accumulator, architecture, offset=aligned, seed=seed, **mapping)


@pytest.mark.parametrize("cluster", [2, 8, 16])
@pytest.mark.parametrize("seed", [None, 0])
def test_cluster_sizes(cluster, seed):
    for strategy in ("cluster", "tiles"):
        check(
            values(np.dtype("f4"), 70_001), "float64", "sm_90", strategy=strategy, cluster=cluster, seed=seed, offset=4
        )


@pytest.mark.parametrize("special", [[np.nan, 1], [np.inf, -np.inf], [-0.0, -0.0], [3e38, 3e38], [1e-45, 1e-45]])
def test_special_values(special):
    array = np.zeros(3000, np.float32)
    array[:] = -0.0
    array[1234], array[2900] = special
    for accumulator in ("float32", "float64", COMPENSATED):
        check(array, accumulator, "sm_90", strategy="tiles")


def test_few_resident_blocks_are_enough_for_tiles():
    check(values(np.dtype("f4"), 70_001), "float64", "sm_90", strategy="tiles", resident=2)


def test_a_cooperative_grid_arrives_once_a_block():
    array = values(np.dtype("f4"), 70_001)
    counters = check(array, "float64", "sm_90", strategy="cooperative", resident=3)
    assert counters.atomics == 3


def test_one_element_less_in_memory_is_noticed(monkeypatch):
    array = values(np.dtype("f4"), 5000)
    allocate = machine.GlobalMemory.allocate
    monkeypatch.setattr(
        machine.GlobalMemory,
        "allocate",
        lambda self, size, **kw: allocate(self, size - 4 if size == 20_000 else size, **kw),
    )
    monkeypatch.setattr(machine.GlobalMemory, "write", lambda self, address, data: self.fill(address, 0, len(data) - 4))
    with pytest.raises(machine.KernelFault, match="past the end of the allocation"):
        simulate(array, "float64", "sm_90", strategy="tiles")


def test_whole_leaves_are_read_once_and_without_waste():
    counters = check(values(np.dtype("f4"), 64 * 1024), "float64", "sm_90", strategy="tiles")
    polls = counters.global_loads - 64 * 8
    assert polls >= 1
    assert counters.bytes_read - 64 * 4096 <= polls * 32 * 16
    assert counters.bank_conflicts == 0
