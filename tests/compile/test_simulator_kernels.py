"""What the simulated machine sees of the kernels that nobody else looks at: other architectures, seeds, memory, counts.

That every kernel has the tree's bits is tested in tests/gpu, which a simulated H200 runs too.
"""

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.compiler import supported_architectures
from lowlevel_reduce.dtypes import COMPENSATED
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.simulator import machine

try:
    ARCHITECTURES = supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

MAPPINGS = [
    {"strategy": "block"},
    {"strategy": "cluster"},
    {"strategy": "tiles"},
    {"strategy": "tiles", "cluster": 4},
    {"strategy": "two_pass"},
    {"strategy": "cooperative"},
]
DEVICES = {"T4": "sm_75", "A100": "sm_80", "H200": "sm_90", "B200": "sm_100"}


def values(dtype, shape):
    rng = np.random.default_rng(0)
    return (rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, shape)).astype(dtype)


def reduce(array, device="H200", *, seed=None, repeat=1, short_by=0, **options):
    """Reduce in memory that holds the elements and not a byte more; return the result and what was counted."""
    if DEVICES[device] not in ARCHITECTURES:
        pytest.skip(f"this NVRTC does not know {DEVICES[device]}")
    with simulator.use(device, seed=seed), lr.Context.primary() as context, context.pushed():
        with (
            lr.Stream.create(context) as stream,
            lr.plan("sum", shape=array.shape, dtype=array.dtype, context=context, **options) as plan,
            lr.Buffer.allocate(array.nbytes - short_by, context) as memory,
            lr.Buffer.allocate(plan.problem.rows * plan.result_dtype.itemsize, context) as result,
        ):
            memory.fill(0, stream=stream)
            if not short_by:
                memory.copy_from(array, stream=stream)
            launch = plan.bind(stream)
            for _ in range(repeat):
                launch(memory.pointer, result.pointer)
            out = np.empty(plan.result_shape, plan.result_dtype)
            result.copy_to(out, stream=stream)
            stream.synchronize()
            slots = np.empty(max(launch.workspace.size_bytes - 256, 0), np.uint8)
            if slots.size:
                space = lr.Buffer.from_pointer(launch.workspace.pointer + 256, slots.size, context=context)
                space.copy_to(slots, stream=stream)
                stream.synchronize()
            assert not slots.any(), "the workspace is not fit for the next launch"
            launch.close()
        (counted,) = [each for name, each in simulator.counters().items() if not name.endswith("second_pass")]
        return out, counted


def check(array, device="H200", *, axis=None, accumulate=None, **options):
    got, counters = reduce(array, device, axis=axis, accumulate=accumulate, **options)
    assert got.tobytes() == lr.tree.reduce(array, accumulate=accumulate, axis=axis).tobytes()
    return counters


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mapping", MAPPINGS, ids=lambda mapping: "-".join(map(str, mapping.values())))
def test_same_bits_on_every_architecture_in_any_order_of_blocks(mapping, device):
    if device in ("T4", "A100") and (mapping["strategy"] == "cluster" or "cluster" in mapping):
        pytest.skip("no clusters before compute capability 9.0")
    for dtype, accumulate, seed in (("float32", None, 0), ("float16", None, 1), ("float64", COMPENSATED, None)):
        check(values(dtype, 20_001), device, accumulate=accumulate, seed=seed, repeat=2, **mapping)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("shape", "axis"), [((40, 5), 1), ((9, 300), 1), ((5, 5000), 1), ((2, 60_000), 1), ((300, 6), 0), ((40_000, 2), 0)]
)
def test_rows_and_columns_on_every_architecture(shape, axis, device):
    for seed in (None, 0):
        check(values("float32", shape), device, axis=axis, seed=seed, repeat=2)


@pytest.mark.parametrize("cluster", [2, 8, 16])
@pytest.mark.parametrize("seed", [None, 0])
def test_cluster_sizes(cluster, seed):
    for strategy in ("cluster", "tiles"):
        check(values("float32", 70_001), strategy=strategy, cluster=cluster, seed=seed)


def test_a_cooperative_grid_arrives_once_a_block():
    array = values("float32", 70_001)
    counters = check(array, strategy="cooperative")
    assert counters.atomics == -(-array.size // (8 * 1024))


def test_one_element_less_in_memory_is_noticed():
    with pytest.raises(machine.KernelFault, match="past the end of the allocation"):
        reduce(values("float32", 5000), strategy="tiles", short_by=4)


def test_whole_leaves_are_read_once_and_without_waste():
    counters = check(values("float32", 64 * 1024), strategy="tiles")
    polls = counters.global_loads - 64 * 8
    assert polls >= 1
    assert counters.bytes_read - 64 * 4096 <= polls * 32 * 16
    assert counters.bank_conflicts == 64 * 2, "a warp stores what its lanes have in four turns of the banks, not two"


def test_aligned_rows_are_read_once_and_without_waste():
    for shape, strategy in (((512, 8), "short_rows"), ((64, 256), None), ((16, 4096), None)):
        counters = check(values("float32", shape), axis=1, strategy=strategy)
        assert counters.bytes_read == shape[0] * shape[1] * 4
        assert counters.global_load_sectors * 32 == counters.bytes_read
