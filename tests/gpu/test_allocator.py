"""A caller's allocator: what is taken from it, and that everything goes back to it once, whatever happens."""

import contextlib
import gc

import numpy as np
import pytest
from in_threads import in_threads

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.calls.prepared import Prepared
from lowlevel_reduce.driver import Buffer, Context, Stream
from lowlevel_reduce.errors import CudaError

pytestmark = pytest.mark.bindings

N = 20_000
X = np.random.default_rng(3).standard_normal(N).astype(np.float32)
BITS = lr.tree.reduce(X).tobytes()


class Arena:
    """An allocator that notes what it gives and takes, and can be told to give something else."""

    def __init__(self, context):
        self.context = context
        self.held, self.given, self.back = {}, [], []
        self.instead = None

    def alloc(self, size_bytes, stream_handle):
        if self.instead is not None:
            pointer = self.instead(size_bytes)
        else:
            buffer = Buffer.allocate(size_bytes, self.context)
            pointer = buffer.pointer
            self.held[pointer] = buffer
        self.given.append((pointer, size_bytes, stream_handle))
        return pointer

    def free(self, pointer, size_bytes, stream_handle):
        self.back.append((pointer, size_bytes, stream_handle))

    def settled(self):
        gc.collect()
        return sorted(self.given) == sorted(self.back)


@pytest.fixture
def arena(context):
    return Arena(context)


@pytest.fixture
def allocator(arena):
    return lr.Allocator(arena.alloc, arena.free)


@pytest.fixture
def plan(context):
    with lr.plan("sum", shape=N, dtype="float32", context=context, strategy="tiles", cluster=1) as plan:
        yield plan


def test_a_workspace_comes_from_it_and_goes_back_once(arena, allocator, plan, stream):
    bound = plan.bind(stream, allocator=allocator)
    assert [entry[1:] for entry in arena.given] == [(plan.workspace_bytes, stream.handle)]
    source, result = lr.DeviceArray.from_numpy(X, stream), lr.DeviceArray.empty((), "float32", stream)
    bound(source.pointer, result.pointer)
    assert result.numpy().tobytes() == BITS
    assert not arena.back
    bound.close()
    bound.close()
    assert arena.settled()
    assert len(arena.back) == 1


def test_a_bound_launch_that_is_let_go_gives_it_back(arena, allocator, plan, stream):
    bound = plan.bind(stream, allocator=allocator)
    del bound
    assert arena.settled()
    assert len(arena.back) == 1


def test_a_one_shot_sum_takes_all_from_it(arena, allocator, stream, monkeypatch):
    source = lr.DeviceArray.from_numpy(X, stream)
    first = lr.sum(source, stream=stream, strategy="tiles", allocator=allocator)
    assert first.numpy().tobytes() == BITS
    assert first.pointer in arena.held
    assert len(arena.given) == 2
    assert len(arena.back) == 1, "the workspace, at once"
    monkeypatch.setattr(Buffer, "allocate", None)
    monkeypatch.setattr(Buffer, "allocate_async", None)
    held = arena.held
    arena.instead = lambda size: sorted(held)[-1] if size > 4 else sorted(held)[0]
    second = lr.sum(source, stream=stream, strategy="tiles", allocator=allocator)
    assert second.numpy().tobytes() == BITS
    del first, second
    assert arena.settled()


def test_a_workspace_of_the_allocators_is_cleared(arena, allocator, stream, context, monkeypatch):
    """Whatever was there before; it is looked at before the launch, for a block may find it as it should be by luck."""
    found = np.empty(256, np.uint8)
    put = Prepared._put

    def looked_at(self, source, result, second, workspace):
        Buffer.from_pointer(workspace, found.nbytes, context=context).copy_to(found, stream=stream)
        stream.synchronize()
        return put(self, source, result, second, workspace)

    with Buffer.allocate(1 << 16, context) as memory:
        free = iter(range(memory.pointer, memory.pointer + (1 << 16), 1 << 14))
        memory.fill(0xFF, stream=stream)
        arena.instead = lambda size: next(free)
        monkeypatch.setattr(Prepared, "_put", looked_at)
        result = lr.sum(X, stream=stream, strategy="tiles", allocator=allocator)
        assert not found.any()
        assert result.numpy().tobytes() == BITS
        del result


def test_a_one_shot_sum_that_is_refused_takes_nothing(arena, allocator, stream):
    source = lr.DeviceArray.from_numpy(X, stream)
    inside = lr.DeviceArray(Buffer.from_pointer(source.pointer + 8, 4), "float32", (), stream)
    with pytest.raises(ValueError, match="overlaps") as refused:
        lr.sum(source, stream=stream, strategy="tiles", out=inside, allocator=allocator)
    assert not arena.given, f"{refused.value!r} comes first"


def test_two_results_go_back_when_both_are_let_go(arena, allocator, stream):
    source = lr.DeviceArray.from_numpy(X, stream)
    low, high = lr.minmax(source, stream=stream, allocator=allocator)
    assert (float(low), float(high)) == (X.min(), X.max())
    del low
    gc.collect()
    assert not arena.settled()
    del high
    assert arena.settled()


def test_segments(arena, allocator, stream):
    offsets = lr.DeviceArray.from_numpy(np.array([0, 10, 10, N], np.int64), stream)
    sums = lr.segmented_reduce(lr.DeviceArray.from_numpy(X, stream), offsets, stream=stream, allocator=allocator)
    assert sums.numpy()[0] == lr.tree.reduce(X[:10])
    assert len(arena.given) == 2
    del sums
    assert arena.settled()


def test_nothing_is_taken_for_no_bytes(arena, allocator, context, stream):
    with lr.plan("sum", shape=4, dtype="float32", context=context) as plan:
        plan.bind(stream, allocator=allocator).close()
    assert not arena.given


@pytest.mark.parametrize(
    ("instead", "error", "message"),
    [
        (lambda size: 0, ValueError, "null pointer"),
        (lambda size: "memory", TypeError, "integer"),
        (lambda size: None, TypeError, "integer"),
        (lambda size: np.zeros(size, np.uint8).ctypes.data, ValueError, "not memory that the driver knows"),
    ],
)
def test_what_is_no_device_memory_is_refused(arena, allocator, plan, stream, instead, error, message):
    arena.instead = instead
    with pytest.raises(error, match=message):
        plan.bind(stream, allocator=allocator)
    with pytest.raises(error, match=message):
        lr.sum(lr.DeviceArray.from_numpy(X, stream), stream=stream, allocator=allocator)
    gc.collect()
    expected = [entry for entry in arena.given if isinstance(entry[0], int) and entry[0]]
    assert sorted(arena.back) == sorted(expected), "an address goes back, null does not"


def test_misaligned_and_short_memory_is_refused_and_goes_back(arena, allocator, plan, stream, context):
    with Buffer.allocate(plan.workspace_bytes + 8, context) as memory, Context.create(0) as other:
        arena.instead = lambda size: memory.pointer + 8
        with pytest.raises(ValueError, match="aligned to 16 bytes") as misaligned:
            plan.bind(stream, allocator=allocator)
        arena.instead = lambda size: memory.pointer + 16
        with pytest.raises(ValueError, match="its allocation ends") as short:
            plan.bind(stream, allocator=allocator)
        with Buffer.allocate(plan.workspace_bytes, other) as foreign:
            arena.instead = lambda size: foreign.pointer
            with pytest.raises(ValueError, match="of context") as elsewhere:
                plan.bind(stream, allocator=allocator)
    assert len(arena.back) == 3, "at once, though the tracebacks keep all that the calls held"
    del misaligned, short, elsewhere
    assert arena.settled()
    assert len(arena.back) == 3


def test_everything_goes_back_if_something_raises(arena, allocator, plan, stream, monkeypatch):
    from lowlevel_reduce.plans.launch import BoundReduction

    def refusing(*args, **options):
        raise KeyError

    source = lr.DeviceArray.from_numpy(X, stream)
    lr.sum(source, stream=stream, strategy="tiles")
    with monkeypatch.context() as patch:
        patch.setattr(Prepared, "_put", refusing)
        with pytest.raises(KeyError) as caught:
            lr.sum(source, stream=stream, strategy="tiles", allocator=allocator)
        assert len(arena.back) == 1, "the workspace at once; the result is the traceback's still"
        del caught
    assert len(arena.given) == 2
    assert arena.settled()
    for owner, name, count in ((BoundReduction, "__init__", 3), (Buffer, "fill", 4)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, refusing)
            with pytest.raises(KeyError) as caught:
                plan.bind(stream, allocator=allocator)
            assert len(arena.back) == count, "at once, though the traceback keeps all that the call held"
            del caught
        assert len(arena.given) == count
        assert arena.settled()


def test_memory_of_a_threads_stream_goes_back_though_the_driver_refuses_what_comes_next(machine, arena, context):
    if machine != "simulated":
        pytest.skip("a real driver's calls do not fail to order")

    def alloc(size_bytes, stream_handle):
        simulator.selected().fail_call("cuCtxGetId", 1, "CUDA_ERROR_UNKNOWN")
        return arena.alloc(size_bytes, stream_handle)

    stream = Stream.per_thread(Context.from_handle(context.handle)).fixed()
    with contextlib.suppress(CudaError):
        lr.Allocator(alloc, arena.free).allocate(64, stream)
        context.id  # noqa: B018 - is refused, if nothing has been
    assert arena.settled()
    assert len(arena.back) == 1


def test_memory_of_a_thread_goes_back_on_another_whose_wait_is_refused(machine, arena, context):
    if machine != "simulated":
        pytest.skip("a real driver's calls do not fail to order")
    memory = lr.Allocator(arena.alloc, arena.free).allocate(64, Stream.per_thread(context))

    def close():
        simulator.selected().fail_call("cuStreamWaitEvent", 1, "CUDA_ERROR_UNKNOWN")
        with pytest.raises(CudaError, match="cuStreamWaitEvent failed with CUDA_ERROR_UNKNOWN"):
            memory.close()

    in_threads(close)
    assert arena.settled()
    assert len(arena.back) == 1


def test_an_alloc_that_raises_is_heard(arena, plan, stream, context):
    def alloc(size_bytes, stream_handle):
        raise MemoryError("none left")

    with pytest.raises(MemoryError, match="none left"):
        plan.bind(stream, allocator=lr.Allocator(alloc, arena.free))
    assert not arena.back
    assert Context.current() == context


def test_what_makes_no_sense_is_refused(arena, allocator, plan, stream, context):
    with pytest.raises(TypeError, match="free is a function"):
        lr.Allocator(print, None)
    with pytest.raises(TypeError, match="the allocator is"):
        lr.sum(X, stream=stream, allocator=arena.alloc)
    with pytest.raises(TypeError, match="the allocator is"):  # also where nothing is asked of it
        lr.sum(X, stream=stream, allocator=arena.alloc, out=lr.DeviceArray.empty((), X.dtype, stream))
    with pytest.raises(TypeError, match="the allocator is"):
        lr.DeviceArray.empty((4,), "float32", stream, arena.alloc)
    with (
        Buffer.allocate(plan.workspace_bytes, context) as workspace,
        pytest.raises(ValueError, match="not both"),
    ):
        plan.bind(stream, workspace, allocator=allocator)
