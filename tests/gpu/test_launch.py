"""Launches on a real GPU: every attribute that a kernel can see, and every refusal in words."""

import ctypes
import struct

import numpy as np
import pytest

from lowlevel_reduce.compiler import Program, compile_program
from lowlevel_reduce.driver import (
    AccessPolicyWindow,
    BoundKernel,
    Buffer,
    Context,
    Event,
    Graph,
    LaunchConfig,
    Library,
    Stream,
    binding,
    launch,
    occupancy,
)
from lowlevel_reduce.driver.checks import check_launch
from lowlevel_reduce.errors import CudaError, UnsupportedError

pytestmark = pytest.mark.bindings

SOURCE = r"""
extern "C" __global__ void arguments(unsigned long long *out, long long q, double d, unsigned I, int i, float f)
{
    out[0] = (unsigned long long)q;
    out[1] = __double_as_longlong(d);
    out[2] = I;
    out[3] = (unsigned long long)(long long)i;
    out[4] = __float_as_uint(f);
}

extern "C" __global__ void count(unsigned *out) { atomicAdd(out, 1u); }

extern "C" __global__ void ranks(unsigned *out)
{
    unsigned rank, size;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    if (threadIdx.x == 0) { out[2 * blockIdx.x] = rank; out[2 * blockIdx.x + 1] = size; }
}

extern "C" __global__ void shared_size(unsigned *out, unsigned words)
{
    extern __shared__ unsigned tile[];
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) tile[i] = i;
    __syncthreads();
    unsigned size;
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(size));
    if (threadIdx.x == 0) { out[0] = size; out[1] = tile[words - 1]; }
}

// Every block waits for all others: it ends only if all are resident at once.
extern "C" __global__ void meet(unsigned *arrived)
{
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (atomicAdd(arrived, 0u) < gridDim.x) { }
    }
}

extern "C" __global__ void __launch_bounds__(128) narrow(unsigned *out) { out[threadIdx.x] = threadIdx.x; }

extern "C" __global__ void first_half(unsigned *out)
{
    asm volatile("griddepcontrol.launch_dependents;");
    out[threadIdx.x] = threadIdx.x + 1;
}

extern "C" __global__ void second_half(unsigned *out)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
    out[threadIdx.x] *= 2;
}
"""


def image(device):
    """Return the kernels as the driver loads them: a cubin, or PTX for a simulated one."""
    return compile_program(
        Program(name="probe", source=SOURCE), device.architecture, output=binding.selected().image
    ).data


@pytest.fixture(scope="module")
def library(device):
    if device.compute_capability < (9, 0):
        pytest.skip("these kernels use thread-block clusters, which came with sm_90")
    with Library.load(image(device), name="probe") as library:
        yield library


@pytest.fixture
def words(context):
    """Zeroed device memory for 4096 unsigned words."""
    with Buffer.allocate(4096 * 4, context) as buffer:
        buffer.fill(0)
        yield buffer


def read(buffer, stream, dtype=np.uint32):
    stream.synchronize()
    array = np.empty(buffer.size_bytes // np.dtype(dtype).itemsize, dtype)
    buffer.copy_to(array)
    return array


def test_every_type_of_argument_arrives(library, words, stream):
    values = (-(2**62), 0.1, 2**32 - 1, -7, 1.5)
    launch(library.kernel("arguments"), LaunchConfig(1, 1), stream, "QqdIif", words.pointer, *values)
    slots = read(words, stream, np.uint64)[:5].tobytes()
    assert struct.unpack("<q", slots[:8])[0] == values[0]
    assert struct.unpack("<d", slots[8:16])[0] == values[1]
    assert struct.unpack("<Q", slots[16:24])[0] == values[2]
    assert struct.unpack("<q", slots[24:32])[0] == values[3]
    assert struct.unpack("<f", slots[32:36])[0] == values[4]


def test_a_bound_launch_repeats(library, words, stream, cut):
    times = cut(1000, 20)
    bound = BoundKernel(library.kernel("count"), LaunchConfig(3, 32), stream, "Q")
    for _ in range(times):
        bound(words.pointer)
    assert read(words, stream)[0] == 3 * 32 * times


def test_no_current_context_is_needed(device, library):
    with Context.primary(device) as primary, Stream.create(primary) as stream, Buffer.allocate(16, primary) as out:
        bound = BoundKernel(library.kernel("count"), LaunchConfig(1, 32), stream, "Q")
        out.fill(0)
        before = Context.current()
        bound(out.pointer)
        assert read(out, stream)[0] == 32
        assert Context.current() == before


def test_default_streams_launch_in_their_context(device, library):
    with Context.create(device) as created, Buffer.allocate(16, created) as out:
        out.fill(0)
        for stream in (Stream.legacy(created), Stream.per_thread(created)):
            before = Context.current()
            launch(library.kernel("count"), LaunchConfig(1, 32), stream, "Q", out.pointer)
            stream.synchronize()
            assert Context.current() == before
        assert read(out, stream)[0] == 64


def test_a_library_serves_every_context(device, library, context, words, stream):
    bound = BoundKernel(library.kernel("count"), LaunchConfig(1, 32), stream, "Q")
    bound(words.pointer)
    with Context.create(device) as created, Stream.create(created) as other, Buffer.allocate(4, created) as out:
        out.fill(0)
        launch(library.kernel("count"), LaunchConfig(2, 32), other, "Q", out.pointer)
        assert read(out, other)[0] == 64
    assert read(words, stream)[0] == 32


@pytest.mark.parametrize("cluster", [1, 2, 4, 8])
def test_the_rank_within_a_cluster(library, words, stream, cluster):
    launch(library.kernel("ranks"), LaunchConfig(16, 32, cluster=cluster), stream, "Q", words.pointer)
    seen = read(words, stream)[:32].reshape(16, 2)
    np.testing.assert_array_equal(seen[:, 0], np.arange(16) % cluster)
    assert (seen[:, 1] == cluster).all()


def test_a_grid_that_its_cluster_does_not_divide():
    with pytest.raises(ValueError, match="is not a multiple of cluster"):
        LaunchConfig(15, 32, cluster=2)


def test_sixteen_blocks_need_a_permission(device, library, words, stream):
    kernel = library.kernel("ranks")
    config = LaunchConfig(32, 32, cluster=16)
    kernel.allow_non_portable_cluster(device, allow=False)
    assert occupancy.max_cluster_size(kernel, config) == 8
    with pytest.raises(ValueError, match="allow_non_portable_cluster"):
        launch(kernel, config, stream, "Q", words.pointer)
    kernel.allow_non_portable_cluster(device)
    try:
        if occupancy.max_cluster_size(kernel, config) < 16:
            pytest.skip(f"{device.name} runs no cluster of 16 blocks")
        launch(kernel, config, stream, "Q", words.pointer)
        seen = read(words, stream)[:64].reshape(32, 2)
        np.testing.assert_array_equal(seen[:, 0], np.arange(32) % 16)
    finally:
        kernel.allow_non_portable_cluster(device, allow=False)


def test_shared_memory_above_48_kib_needs_a_permission(device, library, words, stream):
    kernel = library.kernel("shared_size")
    most = device.shared_memory_per_block_optin_bytes - kernel.static_shared_bytes(device)
    config = LaunchConfig(1, 128, dynamic_shared_bytes=most)
    with pytest.raises(ValueError, match="set_max_dynamic_shared_bytes"):
        launch(kernel, config, stream, "QI", words.pointer, most // 4)
    kernel.set_max_dynamic_shared_bytes(most, device)
    assert kernel.max_dynamic_shared_bytes(device) == most
    launch(kernel, config, stream, "QI", words.pointer, most // 4)
    assert list(read(words, stream)[:2]) == [most, most // 4 - 1]
    with pytest.raises(UnsupportedError, match="exceed"):
        kernel.set_max_dynamic_shared_bytes(most + 1, device)
    with pytest.raises(UnsupportedError, match="bytes of shared memory a block"):
        LaunchConfig(1, 32, dynamic_shared_bytes=device.shared_memory_per_block_optin_bytes + 1).check_device(device)


def test_48_kib_need_none(device, library, words, stream):
    launch(
        library.kernel("shared_size"),
        LaunchConfig(1, 128, dynamic_shared_bytes=49152),
        stream,
        "QI",
        words.pointer,
        12288,
    )
    assert read(words, stream)[0] == 49152


def test_a_cooperative_grid_as_large_as_fits(library, context, words, stream):
    kernel = library.kernel("meet")
    fits = occupancy.max_cooperative_blocks(kernel, 256, 0, context)
    assert fits == occupancy.blocks_per_multiprocessor(kernel, 256) * context.multiprocessor_count
    launch(kernel, LaunchConfig(fits, 256, cooperative=True), stream, "Q", words.pointer)
    assert read(words, stream)[0] == fits
    with pytest.raises(ValueError, match=rf"grid of {fits + 1} blocks .* does not fit: {fits} blocks do"):
        launch(kernel, LaunchConfig(fits + 1, 256, cooperative=True), stream, "Q", words.pointer)


def test_what_a_kernel_costs(device, library):
    kernel = library.kernel("narrow")
    assert 1 <= kernel.registers(device) <= 255
    assert kernel.max_threads_per_block(device) == 128
    assert kernel.local_bytes(device) == 0
    assert kernel.constant_bytes(device) >= 0
    assert kernel.static_shared_bytes(device) >= 0


@pytest.mark.parametrize("priority", [1, -100])
def test_a_priority_that_the_device_has_not(library, stream, priority):
    with pytest.raises(ValueError, match=rf"priority {priority} is outside this device's range"):
        BoundKernel(library.kernel("count"), LaunchConfig(1, 32, priority=priority), stream, "Q")


def test_a_block_above_the_launch_bounds(library, words, stream):
    with pytest.raises(ValueError, match="at most 128 threads a block, not 256"):
        launch(library.kernel("narrow"), LaunchConfig(1, 256), stream, "Q", words.pointer)


def test_kernel_names(library):
    assert {"arguments", "count", "ranks", "meet"} <= set(library.kernel_names())
    with pytest.raises(ValueError, match=r"has no kernel 'sum'; it has .*ranks"):
        library.kernel("sum")


def test_clusters_that_fit(library, context):
    kernel = library.kernel("ranks")
    assert occupancy.max_active_clusters(kernel, LaunchConfig(8, 1024, cluster=8)) >= 1
    small = occupancy.max_active_clusters(kernel, LaunchConfig(8, 32, cluster=2))
    assert small > occupancy.max_active_clusters(kernel, LaunchConfig(8, 32, cluster=8))


def test_programmatic_serialization_keeps_the_order(library, words, stream, cut):
    first = BoundKernel(library.kernel("first_half"), LaunchConfig(1, 256), stream, "Q")
    config = LaunchConfig(1, 256, programmatic_stream_serialization=True)
    second = BoundKernel(library.kernel("second_half"), config, stream, "Q")
    for _ in range(cut(100, 5)):
        first(words.pointer)
        second(words.pointer)
    np.testing.assert_array_equal(read(words, stream)[:256], 2 * np.arange(1, 257))


@pytest.mark.parametrize("field", ["programmatic_event", "launch_completion_event"])
def test_an_event_of_a_launch(library, context, words, stream, field):
    with Event.create(context, timing=False) as event, Stream.create(context) as other:
        launch(library.kernel("count"), LaunchConfig(1, 32, **{field: event}), stream, "Q", words.pointer)
        other.wait(event)
        other.synchronize()
        event.synchronize()
        assert read(words, stream)[0] == 32


@pytest.mark.parametrize(
    "options",
    [
        {"priority": -1},
        {"priority": 0},
        {"cluster": 2, "cluster_scheduling": "spread"},
        {"cluster": 2, "cluster_scheduling": "load_balancing"},
        {"memory_sync_domain": "remote"},
        {"memory_sync_domain_map": (0, 1)},
        {"shared_memory_carveout": 0},
        {"shared_memory_carveout": 100},
    ],
    ids=str,
)
def test_an_attribute_that_changes_no_result(library, words, stream, options):
    launch(library.kernel("count"), LaunchConfig(8, 32, **options), stream, "Q", words.pointer)
    assert read(words, stream)[0] == 256


@pytest.mark.parametrize(
    "options",
    [
        {"cluster": 2, "preferred_cluster": 4},
        {"nvlink_centric_scheduling": True},
        {"cluster": 2, "portable_cluster_size_mode": "require_portable"},
        {"shared_memory_mode": "require_portable"},
    ],
    ids=str,
)
def test_a_young_attribute_works_or_is_refused(library, words, stream, options):
    # Bindings may be newer than the driver, and the driver newer than the device.
    try:
        launch(library.kernel("count"), LaunchConfig(8, 32, **options), stream, "Q", words.pointer)
    except UnsupportedError as error:
        pytest.skip(f"the bindings: {error}")
    except CudaError as error:
        if error.name not in ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_SUPPORTED"):
            raise
        pytest.skip(f"the driver or the device: {error}")
    assert read(words, stream)[0] == 256


def test_an_access_policy_window(library, words, stream):
    window = AccessPolicyWindow(words.pointer, words.size_bytes, 0.5, "streaming", "normal")
    launch(library.kernel("count"), LaunchConfig(8, 32, access_policy_window=window), stream, "Q", words.pointer)
    assert read(words, stream)[0] == 256


def test_launches_are_captured_and_replayed(library, words, stream):
    bound = BoundKernel(library.kernel("count"), LaunchConfig(2, 32, cluster=2), stream, "Q")
    with Graph.capture(stream) as graph:
        bound(words.pointer)
        bound(words.pointer)
    assert read(words, stream)[0] == 0
    with graph, graph.instantiate() as executable:
        for _ in range(5):
            executable.launch(stream)
        assert read(words, stream)[0] == 5 * 2 * 64


def test_a_device_updatable_launch_is_for_captures_only(library, words, stream):
    config = LaunchConfig(1, 32, device_updatable=True)
    bound = BoundKernel(library.kernel("count"), config, stream, "Q")
    with pytest.raises(CudaError):
        bound(words.pointer)
    with Graph.capture(stream) as graph:
        bound(words.pointer)
    with graph:
        assert graph.node_count == 1


def test_binding_a_kernel_is_possible_during_a_capture(library, words, stream):
    with Graph.capture(stream) as graph:
        launch(library.kernel("count"), LaunchConfig(2, 32, cluster=2, cooperative=True), stream, "Q", words.pointer)
    with graph, graph.instantiate() as executable:
        executable.launch(stream)
        assert read(words, stream)[0] == 64


def test_a_closed_library_launches_nothing(device, words, stream):
    library = Library.load(image(device))
    bound = BoundKernel(library.kernel("count"), LaunchConfig(1, 32), stream, "Q")
    library.close()
    with pytest.raises(ValueError, match="closed"):
        bound(words.pointer)
    assert read(words, stream)[0] == 0


def test_the_checks_leave_the_context_as_it_was(device, library):
    with Context.create(device) as created:
        before = Context.current()
        check_launch(library.kernel("meet"), LaunchConfig(8, 32, cluster=2, cooperative=True), created)
        with pytest.raises(ValueError, match="does not fit"):
            check_launch(library.kernel("meet"), LaunchConfig(2**20, 32, cooperative=True), created)
        assert Context.current() == before


def test_the_argument_slots_are_eight_bytes(library, stream):
    bound = BoundKernel(library.kernel("count"), LaunchConfig(1, 32), stream, "Q")
    assert ctypes.sizeof(bound._slots) == 8
