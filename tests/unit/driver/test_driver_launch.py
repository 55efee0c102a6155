"""BoundKernel over a fake driver: the bytes of the arguments, the context of the launch, and what is refused."""

import struct

import pytest
from cuda.bindings import driver as cu
from fake_driver import FakeDriver, in_use

from lowlevel_reduce.driver import BoundKernel, Context, LaunchConfig, Library, Stream, launch, occupancy
from lowlevel_reduce.errors import CudaError, ReduceError, UnsupportedError


@pytest.fixture
def fake():
    with in_use(FakeDriver()) as driver:
        yield driver


@pytest.fixture
def context(fake):
    with Context.create() as context:
        yield context


@pytest.fixture
def stream(context):
    with Stream.create(context) as stream:
        yield stream


@pytest.fixture
def library(fake):
    with Library.load(b"\x7fELF", name="study") as library:
        yield library


@pytest.fixture
def kernel(library):
    return library.kernel("probe")


def test_the_argument_block(fake, kernel, stream):
    fake.arguments = 6
    bound = BoundKernel(kernel, LaunchConfig(4, 32), stream, "QqdIif")
    bound(2**64 - 1, -(2**63), 0.1, 2**32 - 1, -5, 1.5)
    bound(1, 2, 3.0, 4, 5, 6.0)
    first, second = fake.launches
    expected = [("<Q", 2**64 - 1), ("<q", -(2**63)), ("<d", 0.1), ("<I", 2**32 - 1), ("<i", -5), ("<f", 1.5)]
    for slot, (form, value) in zip(first[2], expected, strict=True):
        assert struct.unpack_from(form, slot)[0] == value
    assert struct.unpack_from("<f", second[2][5])[0] == 6.0


def test_one_call_is_one_driver_call(fake, kernel, stream):
    bound = BoundKernel(kernel, LaunchConfig(4, 32, cluster=2), stream, "Q")
    fake.calls.clear()
    bound(1)
    bound(2)
    assert [name for name, _ in fake.calls] == ["cuLaunchKernelEx"] * 2
    config, function, *_ = fake.launches[0]
    assert fake.launches[1][0] is config
    assert (function, int(config.hStream), config.gridDimX, config.numAttrs) == (0xCE1, stream.handle, 4, 1)


def test_prebuilt_is_the_same_launch(fake, kernel, stream):
    fake.arguments = 3
    bound = BoundKernel(kernel, LaunchConfig(1, 32), stream, "QQI", constants=(9,))
    turn, call = bound.prebuilt()
    (slots,) = turn.idle
    slots[0], slots[1] = 2**64 - 1, 7
    assert call() == 0
    assert [struct.unpack_from("<Q", slot)[0] for slot in fake.launches[0][2][:2]] == [2**64 - 1, 7]
    assert struct.unpack_from("<I", fake.launches[0][2][2])[0] == 9
    for wrong in (-1, 2**64, 1.5, None):
        with pytest.raises((TypeError, ValueError)):
            slots[0] = wrong


def test_prebuilt_is_refused_on_a_default_stream(kernel, context):
    bound = BoundKernel(kernel, LaunchConfig(1, 32), Stream.legacy(context), "Q")
    with pytest.raises(ValueError, match="default stream"):
        bound.prebuilt()


def test_no_arguments(fake, kernel, stream):
    launch(kernel, LaunchConfig(1, 32), stream, "")
    assert fake.calls[-1][1][2] == 0


def test_constants_are_packed_once(fake, kernel, stream):
    fake.arguments = 4
    bound = BoundKernel(kernel, LaunchConfig(1, 32), stream, "QIfq", constants=(2.5, -3))
    for pointer in (7, 8):
        bound(pointer, 9)
    for pointer, (*_, values, _) in zip((7, 8), fake.launches, strict=True):
        unpacked = [
            struct.unpack_from(form, slot)[0] for form, slot in zip(("<Q", "<I", "<f", "<q"), values, strict=True)
        ]
        assert unpacked == [pointer, 9, 2.5, -3]
    with pytest.raises(struct.error):
        bound(7, 9, 2.5)
    with pytest.raises(ValueError, match="fewer than the 2 constants"):
        BoundKernel(kernel, LaunchConfig(1, 32), stream, "Q", constants=(1, 2))
    with pytest.raises(struct.error):
        BoundKernel(kernel, LaunchConfig(1, 32), stream, "QQ", constants=(-1,))


def test_the_parts_can_be_read(kernel, stream):
    config = LaunchConfig(1, 32)
    bound = BoundKernel(kernel, config, stream, "Q")
    assert (bound.kernel, bound.config, bound.stream, bound.signature) == (kernel, config, stream, "Q")


def test_a_foreign_stream(fake, kernel, stream):
    class Foreign:
        def __cuda_stream__(self):
            return 0, stream.handle

    launch(kernel, LaunchConfig(1, 32), Foreign(), "")
    assert int(fake.launches[0][0].hStream) == stream.handle
    with pytest.raises(TypeError, match="from_handle"):
        BoundKernel(kernel, LaunchConfig(1, 32), stream.handle, "")


@pytest.mark.parametrize("make", [Stream.legacy, Stream.per_thread])
def test_a_default_stream_launches_in_its_context(fake, kernel, context, make):
    bound = BoundKernel(kernel, LaunchConfig(1, 32), make(context), "")
    bound()
    assert (fake.launches[0][3], fake.stack) == (context.handle, [])
    with context.pushed():
        fake.calls.clear()
        bound()
        assert [name for name, _ in fake.calls] == ["cuCtxGetCurrent", "cuLaunchKernelEx"]
    fake.fails["cuLaunchKernelEx"] = cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(CudaError, match="ILLEGAL_ADDRESS"):
        bound()
    assert fake.stack == []


def test_a_default_stream_stands_for_what_was_current_at_the_binding(fake, kernel, context):
    with pytest.raises(ReduceError, match="none is current"):
        BoundKernel(kernel, LaunchConfig(1, 32), Stream.legacy(), "")
    with context.pushed():
        bound = BoundKernel(kernel, LaunchConfig(1, 32), Stream.legacy(), "")
    bound()
    assert fake.launches[0][3] == context.handle


def test_a_refused_launch_raises(fake, kernel, stream):
    bound = BoundKernel(kernel, LaunchConfig(1, 32), stream, "")
    fake.fails["cuLaunchKernelEx"] = cu.CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(CudaError, match="cuLaunchKernelEx failed with CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        bound()


@pytest.mark.parametrize("values", [(), (1,), (1, 2, 3), (1, "2"), (-1, 2), (1, 0.5)])
def test_wrong_arguments_launch_nothing(fake, kernel, stream, values):
    bound = BoundKernel(kernel, LaunchConfig(1, 32), stream, "QQ")
    with pytest.raises(struct.error):
        bound(*values)
    assert fake.launches == []


def test_an_unknown_letter(kernel, stream):
    with pytest.raises(ValueError, match=r"signature 'QP2' has '2', 'P'"):
        BoundKernel(kernel, LaunchConfig(1, 32), stream, "QP2")


@pytest.mark.parametrize("which", ["library", "stream"])
def test_a_closed_handle_launches_nothing(fake, kernel, library, stream, which):
    bound = BoundKernel(kernel, LaunchConfig(1, 32), stream, "")
    (library if which == "library" else stream).close()
    with pytest.raises(ValueError, match=f"{which}.* is closed"):
        bound()
    with pytest.raises(ValueError, match=f"{which}.* is closed"):
        BoundKernel(kernel, LaunchConfig(1, 32), stream, "")
    assert fake.launches == []


def test_it_keeps_library_and_stream(fake, context):
    bound = BoundKernel(Library.load(b"\x7fELF").kernel("probe"), LaunchConfig(1, 32), Stream.create(context), "")
    bound()
    assert fake.count("cuLibraryUnload") == fake.count("cuStreamDestroy") == 0
    del bound
    assert fake.count("cuLibraryUnload") == fake.count("cuStreamDestroy") == 1


def bind(kernel, stream, **options):
    return BoundKernel(kernel, LaunchConfig(options.pop("grid", 16), options.pop("block", 32), **options), stream, "")


def test_what_the_device_lacks(fake, kernel, stream):
    fake.attributes["CLUSTER_LAUNCH"] = 0
    with pytest.raises(UnsupportedError, match="no thread-block clusters"):
        bind(kernel, stream, cluster=2)


def test_what_the_kernel_cannot_have(fake, kernel, stream, context):
    with pytest.raises(ValueError, match="at most 512 threads a block, not 1024"):
        bind(kernel, stream, block=1024)
    with pytest.raises(
        ValueError, match=r"at most 49152 bytes .*, not 65536: call set_max_dynamic_shared_bytes\(65536"
    ):
        bind(kernel, stream, dynamic_shared_bytes=65536)
    kernel.set_max_dynamic_shared_bytes(65536, context.device)
    bind(kernel, stream, dynamic_shared_bytes=65536)
    with pytest.raises(
        ValueError, match="cluster of 16 blocks is above the portable 8: call allow_non_portable_cluster"
    ):
        bind(kernel, stream, cluster=16)
    kernel.allow_non_portable_cluster(context.device)
    bind(kernel, stream, cluster=16)


def test_a_cluster_that_cannot_be_resident(fake, kernel, stream):
    fake.active_clusters = 0
    with pytest.raises(UnsupportedError, match="cannot hold one cluster of 4 blocks"):
        bind(kernel, stream, cluster=4)
    fake.fails["cuOccupancyMaxActiveClusters"] = cu.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE
    with pytest.raises(UnsupportedError, match="cannot hold one cluster"):
        bind(kernel, stream, cluster=4)
    fake.fails["cuOccupancyMaxActiveClusters"] = cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(CudaError):
        bind(kernel, stream, cluster=4)
    assert fake.stack == []


def test_static_shared_memory_is_a_part_of_what_needs_no_permission(fake, kernel, stream):
    fake.kernel_attributes |= {"SHARED_SIZE_BYTES": 1024, "MAX_DYNAMIC_SHARED_SIZE_BYTES": 48128}
    bind(kernel, stream, dynamic_shared_bytes=48128)
    with pytest.raises(ValueError, match=r"at most 48128 bytes of dynamic shared memory, not 48129: call set_max"):
        bind(kernel, stream, dynamic_shared_bytes=48129)


def test_a_cooperative_grid_asks_the_context(fake, kernel, stream, context):
    # The fake's context has 66 of the device's 132 multiprocessors, with two blocks each.
    assert occupancy.max_cooperative_blocks(kernel, 32, 0, context) == 132
    bind(kernel, stream, grid=132, cooperative=True)
    with pytest.raises(ValueError, match=r"cooperative grid of 133 blocks .* does not fit: 132 blocks do"):
        bind(kernel, stream, grid=133, cooperative=True)
    fake.active_clusters = 10
    with pytest.raises(ValueError, match=r"grid of 44 blocks .* does not fit: 40 blocks do"):
        bind(kernel, stream, grid=44, cluster=4, cooperative=True)


def test_clusters_need_a_cluster(kernel):
    with pytest.raises(ValueError, match="no cluster"):
        occupancy.max_active_clusters(kernel, LaunchConfig(4, 32))
