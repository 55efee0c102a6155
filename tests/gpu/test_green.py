"""Green contexts: a share of the multiprocessors, which grids, occupancy and streams keep to."""

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Buffer, Context, Device, Event, Graph, LaunchConfig, Stream, binding, occupancy
from lowlevel_reduce.driver.green import create_green
from lowlevel_reduce.driver.held import Held
from lowlevel_reduce.errors import CudaError, UnsupportedError
from lowlevel_reduce.study.bench import Bench

pytestmark = pytest.mark.bindings


@pytest.fixture(autouse=True)
def the_stack_is_left_as_it_was():
    before = Context.current()
    yield
    assert Context.current() == before


@pytest.fixture
def share(device, context):
    """A green context of an eighth of the device, or of as much as can be set apart."""
    try:
        share = Context.green(device, max(device.multiprocessor_count // 8, 1))
    except UnsupportedError as error:
        pytest.skip(str(error))
    with share:
        yield share


def test_it_has_at_least_what_was_asked_and_less_than_all(device, share):
    assert device.multiprocessor_count // 8 <= share.multiprocessor_count < device.multiprocessor_count
    assert share.device == device
    assert share.is_green
    assert share.green_handle


def test_other_contexts_are_not_green(device, context):
    with Context.create(device) as created:
        borrowed = Context.from_handle(created.handle)
        assert not created.is_green
        assert not borrowed.is_green
        assert created.multiprocessor_count == device.multiprocessor_count


def test_it_is_pushed_like_any_other_and_not_left_current(context, share):
    assert Context.current() == context
    with share.pushed():
        assert Context.current() == share
        assert Context.current().is_green
    with pytest.raises(KeyError), share.pushed():
        raise KeyError
    assert Context.current() == context


def test_all_multiprocessors_are_a_share_too(device, share):
    with Context.green(device, device.multiprocessor_count) as whole:
        assert whole.multiprocessor_count == device.multiprocessor_count


def test_closing_twice_and_using_it_afterwards(device, share):
    other = Context.green(device, 1)
    other.close()
    other.close()
    assert other.is_closed
    with pytest.raises(ValueError, match="closed"):
        other.pushed()


@pytest.mark.parametrize(
    ("sm_count", "error", "message"),
    [
        (0, ValueError, "at least one"),
        (-8, ValueError, "at least one"),
        (True, TypeError, "bool"),
        (8.0, TypeError, "float"),
        (100_000, UnsupportedError, r"has \d+ multiprocessors, not 100000"),
    ],
)
def test_a_number_that_makes_no_sense(device, context, share, sm_count, error, message):
    with pytest.raises(error, match=message):
        Context.green(device, sm_count)


def test_occupancy_and_cooperative_grids_keep_to_the_share(device, context, share):
    with share.pushed(), Bench(share) as bench:
        kernel = bench.kernel("study_meet")
        each = occupancy.blocks_per_multiprocessor(kernel, 128)
        fits = occupancy.max_cooperative_blocks(kernel, 128, context=share)
        assert fits == each * share.multiprocessor_count
        seen = bench.meet(LaunchConfig(share.multiprocessor_count, 128, cooperative=True))
        assert (seen["arrived"] == share.multiprocessor_count).all()
        with pytest.raises(ValueError, match=f"{fits} blocks do"):
            bench.meet(LaunchConfig(fits + 1, 128, cooperative=True))


def test_blocks_run_on_the_multiprocessors_of_the_share(machine, share):
    if machine == "simulated":
        pytest.skip("not simulated: a simulated block is on no particular multiprocessor")
    with share.pushed(), Bench(share) as bench:
        seen = bench.where(LaunchConfig(20 * share.device.multiprocessor_count, 128))
        assert len(np.unique(seen["multiprocessor"])) <= share.multiprocessor_count


def test_streams_belong_to_the_share(share):
    with Stream.create(share, priority=-1) as stream:
        assert stream.context == share
        assert stream.priority == -1
        borrowed = Stream.from_handle(stream.handle)
        assert borrowed.context == share
        assert borrowed.context.is_green
        stream.synchronize()
        assert stream.query()
    with pytest.raises(ValueError, match="non-blocking"):
        Stream.create(share, non_blocking=False)


def test_memory_is_shared_with_the_primary_context(context, share):
    assert share.reaches(share.handle)
    assert share.reaches(context.handle)
    with Context.create(share.device) as other:
        assert not share.reaches(other.handle)
        assert not other.reaches(context.handle)
        assert not other.reaches(share.handle)
    with Buffer.allocate(64, context) as buffer, Stream.create(share) as stream:
        buffer.fill(7, stream=stream)
        stream.synchronize()
        there = np.empty(64, np.uint8)
        buffer.copy_to(there)
        assert (there == 7).all()


def executable(context):
    with Graph.create(context) as graph:
        return graph.instantiate()


MAKERS = {
    "stream": Stream.create,
    "event": Event.create,
    "memory": lambda context: Buffer.allocate(100, context),
    "page-locked memory": lambda context: Buffer.pinned(100, context),
    "graph": Graph.create,
    "executable graph": executable,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("green", [True, False])
def test_what_was_made_in_a_context_ends_with_it(machine, context, make, green):
    """With a green context the driver ends neither streams nor memory, and no context ends a graph."""
    if machine != "simulated":
        pytest.skip("what is alive is counted by the simulated driver")
    driver = simulator.selected()
    before = driver.leaks()
    share = Context.green(0, 8) if green else Context.create(0)
    made = make(share)
    share.close()
    assert driver.leaks() == before
    made.close()
    assert driver.leaks() == before


@pytest.mark.parametrize("noun", ["stream", "memory"])
def test_what_was_made_in_a_borrowed_green_context_is_released_after_its_owner_has_ended_that(machine, context, noun):
    if machine != "simulated":
        pytest.skip("what is alive is counted by the simulated driver")
    driver = simulator.selected()
    before = driver.leaks()
    held = Held(binding.selected())  # as others make one: no object of ours ends it
    green, handle = create_green(Device(0), 8, held)
    made = MAKERS[noun](Context.from_handle(handle))
    binding.call("cuGreenCtxDestroy", green)
    assert driver.leaks() != before
    made.close()
    assert driver.leaks() == before


def test_a_refused_release_does_not_keep_the_rest_alive(machine, context):
    if machine != "simulated":
        pytest.skip("a real driver's calls do not fail to order")
    driver = simulator.selected()
    before = driver.leaks()
    share = Context.green(0, 8)
    made = [Stream.create(share), Buffer.allocate(100, share), Stream.create(share)]
    driver.fail(1, "CUDA_ERROR_UNKNOWN")
    with pytest.raises(CudaError, match="cuStreamDestroy"):
        share.close()
    assert driver.leaks() == {**before, "streams": before.get("streams", 0) + 1}
    for each in made:
        each.close()


@pytest.mark.parametrize("strategy", ["tiles", "cooperative", "two_pass"])
def test_a_plan_is_sized_by_the_share_and_has_the_same_bits(share, cut, strategy):
    n = cut(10_000_000, 200_000)
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    with (
        lr.plan("sum", shape=n, dtype=x.dtype, context=share, strategy=strategy) as plan,
        Stream.create(share) as stream,
        Buffer.allocate(x.nbytes, share) as source,
        Buffer.allocate(4, share) as result,
    ):
        source.copy_from(x)
        launch = plan.bind(stream)
        launch.check(source.pointer, result.pointer)
        launch(source.pointer, result.pointer)
        value = np.empty((), np.float32)
        result.copy_to(value, stream=stream)
        stream.synchronize()
        launch.close()
        kernel, config = plan.launches[0]
        if strategy == "cooperative":
            fits = occupancy.max_cooperative_blocks(kernel, config.block_threads, context=share)
            assert config.grid_blocks <= fits
    assert value.tobytes() == lr.tree.reduce(x).tobytes()


def test_the_one_shot_function_in_a_stream_of_the_share(share):
    x = np.random.default_rng(1).standard_normal(50_000).astype(np.float32)
    with Stream.create(share) as stream:
        assert lr.sum(x, stream=stream).numpy().tobytes() == lr.tree.reduce(x).tobytes()


def test_a_device_that_cannot_says_so(device, context, monkeypatch):
    from lowlevel_reduce.driver import binding, green

    call = binding.call

    def refusing(name, *args):
        if name == "cuDeviceGetDevResource":
            binding.raise_for(name, int(binding.native().CUresult.CUDA_ERROR_NOT_SUPPORTED))
        return call(name, *args)

    monkeypatch.setattr(green.binding, "call", refusing)
    with pytest.raises(UnsupportedError, match="has no green contexts"):
        Context.green(device, 8)


def test_a_refused_conversion_leaves_no_context(device, context, share, monkeypatch):
    call, made = binding.Implementation.call, []

    def refusing(driver, name, *args, **options):
        if name == "cuCtxFromGreenCtx":
            binding.raise_for(name, int(binding.native().CUresult.CUDA_ERROR_INVALID_VALUE))
        if name.startswith("cuGreenCtx"):
            made.append(name)
        return call(driver, name, *args, **options)

    monkeypatch.setattr(binding.Implementation, "call", refusing)
    with pytest.raises(CudaError, match="cuCtxFromGreenCtx"):
        Context.green(device, 1)
    assert made == ["cuGreenCtxCreate", "cuGreenCtxDestroy"]
