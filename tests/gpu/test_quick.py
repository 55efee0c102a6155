"""The quick way of repeated one-shot calls: two driver calls, the same bits, and only what is known to be safe."""

import gc
import sys
import threading
import types
from collections import Counter

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import producers, quick, simulator
from lowlevel_reduce.driver import Context, Graph, Stream
from lowlevel_reduce.slots import SLOT_BYTES, Slot

N = 20_000
X, Y = np.random.default_rng(9).standard_normal((2, N)).astype(np.float32)


def bits(array):
    return lr.tree.reduce(array).tobytes()


def is_quick(result):
    return isinstance(result._memory, Slot)


def warm(x, **options):
    lr.sum(x, **options)
    assert is_quick(lr.sum(x, **options))


@pytest.fixture
def legacy(context):
    return Stream.legacy(context)


def test_a_repeated_call_has_the_bits_of_its_own_input(legacy):
    x, y = lr.DeviceArray.from_numpy(X, legacy), lr.DeviceArray.from_numpy(Y, legacy)
    first, second, third = lr.sum(x), lr.sum(x), lr.sum(y)
    assert (is_quick(first), is_quick(second), is_quick(third)) == (False, True, True)
    assert [r.numpy().tobytes() for r in (first, second, third)] == [bits(X), bits(X), bits(Y)]
    assert third.context == legacy.context
    assert (third.shape, third.dtype, third.stream.handle) == ((), np.float32, legacy.handle)


def test_it_is_two_driver_calls(legacy, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    x = lr.DeviceArray.from_numpy(X, legacy)
    warm(x)
    before = Counter(simulator.selected().calls)
    lr.sum(x)
    assert simulator.selected().calls - before == {"cuCtxGetId": 1, "cuLaunchKernelEx": 1}


def test_a_result_that_is_held_is_not_written_again(legacy):
    x = lr.DeviceArray.from_numpy(X, legacy)
    warm(x)
    results = [lr.sum(x) for _ in range(5)]
    assert len({result.pointer for result in results}) == 5
    assert all(result.pointer % SLOT_BYTES == 0 for result in results)
    buffer, pointer = results[0]._buffer, results[0].pointer
    del results[0]
    gc.collect()
    assert pointer not in {lr.sum(x).pointer for _ in range(3)}, "somebody still borrows it"
    del buffer
    gc.collect()
    again = lr.sum(x)
    assert again.pointer == pointer, "the next takes the place of one that was let go"


def test_more_results_than_a_chunk_has(legacy, monkeypatch, context):
    from lowlevel_reduce import slots

    monkeypatch.setattr(slots, "_SLOTS", 2)
    some = slots.Slots(legacy, context)
    held = [some.take() for _ in range(5)]
    assert len({slot.pointer for slot in held}) == 5
    assert len(some._chunks) == 3


def test_options_and_shapes_are_told_apart(stream):
    x = lr.DeviceArray.from_numpy(X.reshape(100, 200), stream)
    flat = lr.DeviceArray.from_numpy(X, stream)
    for _ in range(3):
        assert lr.sum(flat, stream=stream).numpy().tobytes() == bits(X)
        assert lr.sum(x, stream=stream, keepdims=True).shape == (1, 1)
        assert lr.sum(x, stream=stream, axis=0).shape == (200,)
        assert lr.sum(x, stream=stream, axis=[1]).shape == (100,)
        assert lr.max(flat, stream=stream).numpy() == X.max()
        assert lr.sum(flat, stream=stream, dtype="float64").dtype == np.float64
        assert lr.std(flat, stream=stream, ddof=0).numpy() != lr.std(flat, stream=stream, ddof=1000).numpy()


def test_the_variable_is_read_at_every_call(legacy, monkeypatch):
    x = lr.DeviceArray.from_numpy(X, legacy)
    warm(x)
    monkeypatch.setenv("LOWLEVEL_REDUCE_STRATEGY", "nonsense")
    with pytest.raises(ValueError, match="nonsense"):
        lr.sum(x)


def test_the_context_is_that_which_is_current(context, device, legacy):
    x = lr.DeviceArray.from_numpy(X, legacy)
    warm(x)
    with Context.create(device) as created, created.pushed():
        result = lr.sum(x)  # a pool's memory is every context's; but who says so is the driver
        assert not is_quick(result)
        assert result.context == created
        assert result.numpy().tobytes() == bits(X)
        mine = lr.DeviceArray.from_numpy(Y, Stream.legacy(created))
        warm(mine)
        assert lr.sum(mine).numpy().tobytes() == bits(Y)
        del mine, result
    assert is_quick(lr.sum(x))
    assert Context.current() == context


def test_nothing_is_current_and_stays_so(context):
    with Stream.create(context) as stream:
        x = lr.DeviceArray.from_numpy(X, stream)
        warm(x, stream=stream)
        seen = []

        def work():
            for _ in range(3):
                seen.append((lr.sum(x, stream=stream).numpy().tobytes(), Context.current()))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert seen == [(bits(X), None)] * 3


def test_an_array_of_another_stream_is_waited_for(context, machine):
    with Stream.create(context) as mine, Stream.create(context) as other:
        x, y = lr.DeviceArray.from_numpy(X, mine), lr.DeviceArray.from_numpy(Y, other)
        warm(x, stream=mine)
        if machine == "simulated":
            before = Counter(simulator.selected().calls)
        result = lr.sum(y, stream=mine)
        if machine == "simulated":
            assert (simulator.selected().calls - before)["cuStreamWaitEvent"] == 1
        assert result.numpy().tobytes() == bits(Y)


def test_the_legacy_stream_of_another_context_is_another_stream(legacy, device, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    x = lr.DeviceArray.from_numpy(X, legacy)
    with Context.create(device) as created:
        before = Counter(simulator.selected().calls)
        result = lr.sum(x, stream=Stream.legacy(created))
        assert (simulator.selected().calls - before)["cuStreamWaitEvent"] == 1
        assert result.numpy().tobytes() == bits(X)
        del result


def test_borrowed_memory_is_always_looked_at(stream):
    x = lr.DeviceArray.from_numpy(X, stream)
    borrowed = lr.DeviceArray(lr.Buffer.from_pointer(x.pointer, x.nbytes, owner=x), X.dtype, X.shape, stream)
    for _ in range(3):
        assert not is_quick(lr.sum(borrowed, stream=stream))


def test_a_stream_that_was_closed_is_refused(context):
    with Stream.create(context) as stream:
        x = lr.DeviceArray.from_numpy(X, stream)
        warm(x, stream=stream)
    with pytest.raises(ValueError, match="closed"):
        lr.sum(x, stream=stream)


def test_a_captured_call_keeps_its_result_to_the_graph(stream):
    x = lr.DeviceArray.from_numpy(X, stream)
    out = lr.DeviceArray.empty((), "float32", stream)
    warm(x, stream=stream)
    with Graph.capture(stream) as graph:
        lr.sum(x, stream=stream, out=out)
    with graph, graph.instantiate() as executable:
        executable.launch(stream)
        assert out.numpy().tobytes() == bits(X)
    (entry,) = (entry for entry in quick._thread().entries.values() if entry.slots.stream is stream)
    assert entry.fits(x)
    with Graph.capture(stream) as graph:
        assert not entry.fits(x), "a slot is nothing for a graph"
    graph.close()


def test_a_thread_keeps_only_so_many(stream, monkeypatch):
    monkeypatch.setattr(quick, "MAX_QUICK", 3)
    for n in range(1, 9):
        warm(lr.DeviceArray.from_numpy(X[:n], stream), stream=stream)
        assert len(quick._thread().entries) <= 3


def test_many_threads_have_each_their_own(context, cut):
    rounds, seen = cut(200, 4), []
    arrays = [X, Y]

    def work(index):
        with context.pushed(), Stream.create(context) as stream:
            array = arrays[index % 2]
            x = lr.DeviceArray.from_numpy(array, stream)
            held = [lr.sum(x, stream=stream) for _ in range(rounds)]
            seen.append({result.numpy().tobytes() for result in held} == {bits(array)})

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 8


# PyTorch and CuPy as the package sees them, over memory of a simulated device


class Tensor:
    """What of a tensor is looked at."""

    def __init__(self, array, shape=None, strides=None, negated=False):
        self.array, self.shape, self.steps, self.negated = array, shape or array.shape, strides or (1,), negated
        self.dtype, self.is_cuda, self.layout = f"torch.{array.dtype}", True, "strided"

    def data_ptr(self):
        return self.array.pointer

    def stride(self):
        return self.steps

    def get_device(self):
        return 0

    def is_neg(self):
        return self.negated

    def is_conj(self):
        return False


class Array:
    """What of a CuPy array is looked at."""

    def __init__(self, array, kind="PooledMemory"):
        self.dtype, self.shape, self.strides = array.dtype, array.shape, (4,)
        memory = type(kind, (), {})()
        self.data = types.SimpleNamespace(ptr=array.pointer, mem=memory)
        self.device = types.SimpleNamespace(id=0)


@pytest.fixture
def libraries(machine, monkeypatch):
    if machine != "simulated":
        pytest.skip("stands in for libraries that a simulated device has not")
    working = types.SimpleNamespace(handle=0)
    torch = types.ModuleType("torch")
    torch.Tensor, torch.strided = Tensor, "strided"
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: working.handle)
    cupy = types.ModuleType("cupy")
    cupy.ndarray = Array
    cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=working.handle))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(producers, "_known", {})
    return working


@pytest.mark.parametrize("kind", [Tensor, Array])
def test_arrays_of_known_libraries(libraries, legacy, kind):
    keep = lr.DeviceArray.from_numpy(X, legacy), lr.DeviceArray.from_numpy(Y, legacy)
    x, y = kind(keep[0]), kind(keep[1])
    warm(x)
    before = Counter(simulator.selected().calls)
    result = lr.sum(y)
    assert simulator.selected().calls - before == {"cuCtxGetId": 1, "cuLaunchKernelEx": 1}
    assert result.numpy().tobytes() == bits(Y)


def test_strides_of_a_tensor(libraries, legacy):
    keep = lr.DeviceArray.from_numpy(X, legacy)
    every_other = Tensor(keep, (N // 2,), (2,))
    for _ in range(3):
        assert lr.sum(every_other).numpy().tobytes() == bits(X[::2])


def test_the_stream_that_a_library_works_in_is_waited_for(libraries, context):
    with Stream.create(context) as mine, Stream.create(context) as theirs:
        x = Tensor(lr.DeviceArray.from_numpy(X, mine))
        libraries.handle = mine.handle
        warm(x, stream=mine)
        libraries.handle = theirs.handle
        before = Counter(simulator.selected().calls)
        result = lr.sum(x, stream=mine)
        assert (simulator.selected().calls - before)["cuStreamWaitEvent"] == 1
        assert not is_quick(result)
        assert result.numpy().tobytes() == bits(X)
        libraries.handle = mine.handle
        assert is_quick(lr.sum(x, stream=mine))


def test_a_tensor_whose_memory_holds_other_values_is_refused(libraries, legacy):
    x = Tensor(lr.DeviceArray.from_numpy(X, legacy))
    warm(x)
    x.negated = True
    with pytest.raises((ValueError, TypeError)):
        lr.sum(x)


def test_a_tensor_outside_of_the_primary_context_is_looked_at(libraries, device):
    with Context.create(device) as created, created.pushed():
        x = Tensor(lr.DeviceArray.from_numpy(X, Stream.legacy(created)))
        for _ in range(3):
            assert not is_quick(lr.sum(x))
        del x


def test_borrowed_memory_of_cupy_is_looked_at(libraries, legacy):
    keep = lr.DeviceArray.from_numpy(X, legacy)
    with pytest.raises(TypeError, match="no array"):
        lr.sum(Array(keep, "UnownedMemory"))  # it has no protocol here, which is what would be asked


def test_a_subclass_is_asked_by_its_protocol(libraries, legacy):
    class Mine(Tensor):
        pass

    assert producers.producer_of(Mine) is None
    assert producers.producer_of(Tensor).name == "PyTorch"
    with pytest.raises(TypeError, match="no array"):
        lr.sum(Mine(lr.DeviceArray.from_numpy(X, legacy)))
