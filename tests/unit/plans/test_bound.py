"""Bound reductions on a driver that only records: what is launched with what, and what is refused."""

import contextlib
import struct

import pytest
from fake_driver import FakeDriver, in_use

from lowlevel_reduce.driver import BoundKernel, Buffer, Context, LaunchConfig, Library, Stream, binding
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.plans.launch import BoundReduction, DirectReduction, Extents


@pytest.fixture
def fake():
    driver = FakeDriver()
    driver.arguments = 5
    with in_use(driver, "fake-bound"):
        yield driver


@pytest.fixture
def parts(fake):
    with Context.create(0) as context, Stream.create(context) as stream, Library.load(b"\x7fELF") as library:
        yield library.kernel("probe"), stream, Buffer.allocate(0, context)


EXTENTS = Extents(low=0, high=4000, result_bytes=4, result_alignment=4)
TWO = EXTENTS._replace(has_second=True, second_high=1000)


def bind(kind, parts, kernels=1, second=None):
    kernel, stream, workspace = parts
    bound = [BoundKernel(kernel, LaunchConfig(1, 32), stream, "QQQQI", constants=(1000 + i, 7)) for i in range(kernels)]
    return kind(bound, stream, workspace, EXTENTS if second is None else second)


def seen(fake):
    return [tuple(struct.unpack_from("<Q", slot)[0] for slot in slots[:4]) for _, _, slots, _ in fake.launches]


@pytest.mark.parametrize(("kind", "kernels"), [(BoundReduction, 1), (BoundReduction, 2), (DirectReduction, 1)])
def test_a_call_passes_both_addresses_and_nothing_else(fake, parts, kind, kernels):
    launch = bind(kind, parts, kernels)
    fake.calls.clear()
    launch(0xA000, 0xB000)
    launch(2**64 - 1, 0)
    assert [name for name, _ in fake.calls] == ["cuLaunchKernelEx"] * 2 * kernels
    expected = [
        (source, result, 0, 1000 + i) for source, result in ((0xA000, 0xB000), (2**64 - 1, 0)) for i in range(kernels)
    ]
    assert seen(fake) == expected


@pytest.mark.parametrize("kind", [BoundReduction, DirectReduction])
@pytest.mark.parametrize("address", [-1, 2**64, 1.5, None])
def test_what_is_no_address_is_refused_before_a_launch(fake, parts, kind, address):
    launch = bind(kind, parts)
    for arguments, name in (((address, 0xB000), "source"), ((0xA000, address), "result")):
        with pytest.raises((TypeError, ValueError), match=f"^{name} is a device address"):
            launch(*arguments)
    assert not fake.launches


@pytest.mark.parametrize("kind", [BoundReduction, DirectReduction])
def test_a_check_of_a_closed_launch_raises_what_its_call_does(fake, parts, kind):
    for close in ("launch", "stream"):
        launch = bind(kind, parts)
        (launch if close == "launch" else launch.stream).close()
        for use in (launch, launch.check):
            with pytest.raises(ValueError, match="is closed"):
                use(0xA000, 0xB000)
    assert not fake.launches


@pytest.mark.parametrize("kind", [BoundReduction, DirectReduction])
def test_a_closed_stream_is_refused(fake, parts, kind):
    launch = bind(kind, parts)
    launch.stream.close()
    with pytest.raises(ValueError, match="stream is closed"):
        launch(0xA000, 0xB000)
    assert not fake.launches


@pytest.mark.parametrize("kind", [BoundReduction, DirectReduction])
def test_a_refused_launch_is_a_typed_error(fake, parts, kind):
    launch = bind(kind, parts)
    fake.fails["cuLaunchKernelEx"] = binding.native().CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(CudaError, match="cuLaunchKernelEx failed with CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        launch(0xA000, 0xB000)
    fake.fails.clear()
    launch(0xA000, 0xB000)
    assert seen(fake) == [(0xA000, 0xB000, 0, 1000)]


def test_what_a_call_of_two_kernels_left_half_done_is_cleared_by_the_next(fake, parts):
    """By an error or an interrupt between them: the first leaves in the workspace what the second takes out of it."""
    kernel, stream, _ = parts
    launch = bind(BoundReduction, (kernel, stream, Buffer.allocate(512, stream.context)), kernels=2)
    kernels = launch.kernels

    class Fails:
        def put(self, *values):
            raise KeyboardInterrupt

    launch.kernels = (kernels[0], Fails())
    with pytest.raises(KeyboardInterrupt):
        launch(0xA000, 0xB000)
    launch.kernels = kernels
    for cleared in (["cuMemsetD8Async"], []):
        fake.calls.clear()
        launch(0xA000, 0xB000)
        names = [name for name, _ in fake.calls if name.startswith(("cuMemset", "cuLaunch"))]
        assert names == [*cleared, "cuLaunchKernelEx", "cuLaunchKernelEx"]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["nothing", "another context"])
def test_a_default_stream_is_cleared_in_where_it_was_bound(fake, parts, monkeypatch, elsewhere):
    kernel, stream, _ = parts
    memset, seen = fake.cuMemsetD8Async, []
    monkeypatch.setattr(
        fake, "cuMemsetD8Async", lambda *args: seen.append(fake.cuCtxGetCurrent()[1]) or memset(*args), raising=False
    )
    with stream.context.pushed():
        launch = bind(BoundReduction, (kernel, Stream.legacy(), Buffer.allocate(512)), kernels=2)
    fake.fails["cuLaunchKernelEx"] = binding.native().CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(CudaError):
        launch(0xA000, 0xB000)
    fake.fails.clear()
    with Context.create(1) as other, other.pushed() if elsewhere else contextlib.nullcontext():
        launch(0xA000, 0xB000)
    assert seen == [stream.context.handle]


def test_a_default_stream_has_its_context_current_for_the_launch(fake, parts):
    kernel, stream, workspace = parts
    default = Stream.legacy(stream.context)
    bound = [BoundKernel(kernel, LaunchConfig(1, 32), default, "QQQQI", constants=(5, 7))]
    launch = BoundReduction(bound, default, workspace, EXTENTS)
    launch(0xA000, 0xB000)
    assert fake.launches[0][3] == stream.context.handle
    assert Context.current() is None


def test_a_second_address_is_passed_on_where_there_is_a_second_array(fake, parts):
    launch = bind(BoundReduction, parts, second=TWO)
    launch(0xA000, 0xB000, 0xC000)
    assert seen(fake) == [(0xA000, 0xB000, 0xC000, 1000)]


@pytest.mark.parametrize(
    ("kind", "second", "addresses", "message"),
    [
        (BoundReduction, TWO, (0xA000, 0xB000), "takes two arrays"),
        (BoundReduction, None, (0xA000, 0xB000, 0xC000), "takes one array"),
        (DirectReduction, None, (0xA000, 0xB000, 0xC000), "takes one array"),
    ],
)
def test_a_second_address_too_few_or_too_many_is_refused(fake, parts, kind, second, addresses, message):
    with pytest.raises(TypeError, match=message):
        bind(kind, parts, second=second)(*addresses)
    assert not fake.launches


@pytest.mark.parametrize("kernels", [0, 1, 2])
def test_a_closed_launch_is_refused_also_where_there_is_nothing_to_launch(fake, parts, kernels):
    launch = bind(BoundReduction, parts, kernels)
    launch(16, 32)
    launch.close()
    with pytest.raises(ValueError, match="the bound launch is closed"):
        launch(16, 32)
    assert len(fake.launches) == kernels
