"""Repeated one-shot calls: two driver calls, the same bits, and only what is known to be safe unasked."""

import gc
import itertools
import sys
import types
import weakref
from collections import Counter
from functools import partial

import fake_torch
import interrupts
import numpy as np
import pytest
from fake_torch import Tensor
from in_threads import in_threads

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.arrays import libraries as producers
from lowlevel_reduce.arrays import results
from lowlevel_reduce.arrays.results import CELL_BYTES, Cell
from lowlevel_reduce.calls import places, threads
from lowlevel_reduce.calls.places import Workspace
from lowlevel_reduce.calls.prepared import Prepared
from lowlevel_reduce.driver import Context, Graph, Stream, waits
from lowlevel_reduce.driver.waits import Waits

N = 20_000
X, Y = np.random.default_rng(9).standard_normal((2, N)).astype(np.float32)


def bits(array):
    return lr.tree.reduce(array).tobytes()


def is_quick(result):
    return isinstance(result._memory, Cell)


def warm(x, **options):
    lr.sum(x, **options)
    assert is_quick(lr.sum(x, **options))


def prepared_in(stream):
    """Return what this thread has prepared for calls in a stream."""
    return [each for each in threads.here().calls.values() if each.place.stream is stream]


def launchers():
    return {each for place in threads.here()._places.values() for each in place._launchers.values()}


@pytest.fixture
def legacy(context):
    return Stream.legacy(context)


def test_a_repeated_call_has_the_bits_of_its_own_input(legacy):
    x, y = lr.DeviceArray.from_numpy(X, legacy), lr.DeviceArray.from_numpy(Y, legacy)

    def work():
        with legacy.context.pushed():
            return lr.sum(x), lr.sum(x), lr.sum(y)

    [(first, second, third)] = in_threads(work)  # a new thread remembers no calls of other tests
    assert all(map(is_quick, (first, second, third)))
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


class Theirs:
    """A stream of somebody else's, the default one if no other."""

    def __init__(self, handle=0):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


DEFAULT_STREAMS = {
    "the same": lambda context, kept: kept,
    "legacy": lambda context, kept: Stream.legacy(context),
    "legacy of what is current": lambda context, kept: Stream.legacy(),
    "null": lambda context, kept: Stream.from_handle(0, context=context),
    "none": lambda context, kept: None,
    "of another library": lambda context, kept: Theirs(),
}


@pytest.mark.parametrize("kind", DEFAULT_STREAMS)
def test_every_object_for_the_legacy_stream_is_quick(context, legacy, kind):
    x, y = lr.DeviceArray.from_numpy(X, Stream.from_handle(0, context=context)), lr.DeviceArray.from_numpy(Y, legacy)
    warm(x, stream=legacy)
    for array, expected in ((x, X), (y, Y)):
        stream = DEFAULT_STREAMS[kind](context, legacy)
        result = lr.sum(array, stream=stream)
        assert is_quick(result)
        assert result.numpy().tobytes() == bits(expected)
        assert result.stream.is_same(legacy)
        assert result.stream._context == context, "whatever is current later"


def test_the_stream_of_a_thread_is_quick(context):
    def work():
        with context.pushed():
            mine = Stream.per_thread(context)
            x = lr.DeviceArray.from_numpy(X, mine)
            warm(x, stream=mine)
            return lr.sum(x, stream=Stream.per_thread(context)).numpy().tobytes()

    for _ in range(2):
        assert in_threads(work) == [bits(X)]


@pytest.mark.parametrize("legacy_of", [Stream.legacy, Stream.per_thread])
def test_a_default_stream_of_a_context_that_is_not_current(device, legacy_of):
    with Context.create(device) as created, Context.create(device) as other, other.pushed():
        stream = legacy_of(created)
        x, y = lr.DeviceArray.from_numpy(X, stream), lr.DeviceArray.from_numpy(Y, legacy_of(other))
        for _ in range(3):
            mine, theirs = lr.sum(x, stream=stream), lr.sum(y, stream=legacy_of(other))
            assert (mine.context, theirs.context) == (created, other)
            assert [mine.numpy().tobytes(), theirs.numpy().tobytes()] == [bits(X), bits(Y)]
        assert is_quick(mine)
        assert is_quick(theirs)
        assert Context.current() == other
        there = lr.sum(y, stream=stream)  # where the array is not
        assert (there.context, there.numpy().tobytes()) == (created, bits(Y))
        del x, y, mine, theirs, there


def test_what_a_thread_keeps_is_of_one_driver(machine):
    if machine != "simulated":
        pytest.skip("there is one real driver")
    with simulator.use("H200") as outer, Context.primary(0) as context, context.pushed():
        x = lr.DeviceArray.from_numpy(X, Stream.legacy(context))
        warm(x)
        before = outer.calls["cuLaunchKernelEx"]
        with simulator.use("H200") as inner, Context.primary(0) as another, another.pushed():
            y = lr.DeviceArray.from_numpy(Y, Stream.legacy(another))
            warm(y)
            assert counts(partial(lr.sum, y)) == TAKEN, "that driver is asked what is current"
            assert lr.sum(y).numpy().tobytes() == bits(Y)
            assert (inner.calls["cuLaunchKernelEx"], outer.calls["cuLaunchKernelEx"]) == (4, before)
            del y
            gc.collect()
        assert lr.sum(x).numpy().tobytes() == bits(X)
        del x
        gc.collect()


def test_a_default_stream_without_a_context_is_that_of_the_current_one(device, legacy):
    x, unbound = lr.DeviceArray.from_numpy(X, legacy), Stream.legacy()
    with Context.create(device) as created:
        for _ in range(3):
            for each in (legacy.context, created):
                with each.pushed():
                    result = lr.sum(x, stream=unbound)
                assert (result.context, result.numpy().tobytes()) == (each, bits(X))
        del result


@pytest.mark.parametrize("handle", [0, 1, 2])
def test_a_default_stream_of_somebody_else_is_that_of_the_current_context(device, handle):
    theirs = Theirs(handle)
    with Context.create(device) as first, Context.create(device) as second:
        for context in (first, second, first, second):
            with context.pushed():
                assert lr.sum(X, stream=theirs).context == context
        with pytest.raises(lr.ReduceError, match="none is current"):
            lr.sum(X, stream=theirs)


def test_an_error_of_the_launch_is_told(legacy, machine):
    if machine != "simulated":
        pytest.skip("the simulated driver fails when it is told to")
    x = lr.DeviceArray.from_numpy(X, legacy)
    warm(x)
    before = launchers()
    simulator.selected().fail_call("cuLaunchKernelEx", 1, "LAUNCH_OUT_OF_RESOURCES")
    with pytest.raises(lr.CudaError, match="LAUNCH_OUT_OF_RESOURCES"):
        lr.sum(x)
    assert lr.sum(x).numpy().tobytes() == bits(X)
    assert launchers() == before, "it is free for the next call"


def test_a_default_stream_that_was_closed_is_refused_and_others_are_not(context):
    threads.here().forget()
    first, second = Stream.legacy(context), Stream.legacy(context)
    x = lr.DeviceArray.from_numpy(X, second)
    warm(x, stream=first)
    kept = launchers()
    first.close()
    with pytest.raises(ValueError, match="closed"):
        lr.sum(x, stream=first)
    warm(x, stream=second)
    assert lr.sum(x, stream=second).numpy().tobytes() == bits(X)
    assert launchers() == kept, "they are bound to an object of their own"


def test_a_result_that_is_held_is_not_written_again(legacy):
    x = lr.DeviceArray.from_numpy(X, legacy)
    warm(x)
    results = [lr.sum(x) for _ in range(5)]
    assert len({result.pointer for result in results}) == 5
    assert all(result.pointer % CELL_BYTES == 0 for result in results)
    buffer, pointer = results[0]._buffer, results[0].pointer
    del results[0]
    gc.collect()
    assert pointer not in {lr.sum(x).pointer for _ in range(3)}, "somebody still borrows it"
    del buffer
    gc.collect()
    again = lr.sum(x)
    assert again.pointer == pointer, "the next takes the place of one that was let go"


def test_more_results_than_a_chunk_has(legacy, monkeypatch, context):
    monkeypatch.setattr(results, "_CHUNK_BYTES", 2 * CELL_BYTES)
    some = results.Pool(legacy, context)
    held = [some.take() for _ in range(5)]
    assert len({cell.pointer for cell in held}) == 5
    assert some.stats() == (6 * CELL_BYTES, CELL_BYTES)
    held[:4] = []
    some.release()
    assert some.stats() == (2 * CELL_BYTES, CELL_BYTES), "the chunk of the last is in use"


def test_options_and_shapes_are_told_apart(stream):
    x = lr.DeviceArray.from_numpy(X.reshape(100, 200), stream)
    flat, short = lr.DeviceArray.from_numpy(X, stream), lr.DeviceArray.from_numpy(X[:100], stream)
    for _ in range(3):
        assert lr.sum(flat, stream=stream).numpy().tobytes() == bits(X)
        assert lr.sum(short, stream=stream).numpy().tobytes() == bits(X[:100])
        assert lr.sum(x, stream=stream, keepdims=True).shape == (1, 1)
        assert lr.sum(x, stream=stream, axis=0).shape == (200,)
        assert lr.sum(x, stream=stream, axis=[1]).shape == (100,)
        assert lr.max(flat, stream=stream).numpy() == X.max()
        assert lr.sum(flat, stream=stream, dtype="float64").dtype == np.float64
        assert lr.std(flat, stream=stream, ddof=0).numpy() != lr.std(flat, stream=stream, ddof=1000).numpy()


def test_what_is_more_than_an_array_is_not_passed_over(stream):
    """A call with a mask, a second array or an initial value is none that went before it without."""
    x, mask = lr.DeviceArray.from_numpy(X, stream), np.arange(N) % 3 == 0
    there = lr.DeviceArray.from_numpy(mask, stream)
    warm(x, stream=stream)
    for _ in range(2):
        assert lr.sum(x, stream=stream, where=there).numpy().tobytes() == lr.tree.reduce(X, where=mask).tobytes()
        with pytest.raises(TypeError, match="sum takes one array"):
            lr.reduce(x, "sum", stream=stream, second=there)
    for given in ({"where": mask}, {"initial": 1e6}):
        for _ in range(2):
            assert lr.sum(x, stream=stream, **given).numpy().tobytes() == lr.tree.reduce(X, **given).tobytes()
        assert is_quick(lr.sum(x, stream=stream))


def test_a_slot_is_used_again(stream):
    x = lr.DeviceArray.from_numpy(X, stream)
    warm(x, stream=stream)
    first = lr.sum(x, stream=stream)
    assert is_quick(first)
    address = first.pointer
    second = lr.sum(x, stream=stream)
    assert second.pointer != address
    del first
    gc.collect()
    assert lr.sum(x, stream=stream).pointer == address


def test_the_variable_is_read_at_every_call(legacy, monkeypatch):
    x = lr.DeviceArray.from_numpy(X, legacy)
    warm(x)
    monkeypatch.setenv("LOWLEVEL_REDUCE_STRATEGY", "nonsense")
    with pytest.raises(ValueError, match="nonsense"):
        lr.sum(x)


def test_an_array_is_reduced_in_its_own_context_whichever_is_current(context, device, legacy):
    x = lr.DeviceArray.from_numpy(X, legacy)
    warm(x)
    with Context.create(device) as created, created.pushed():
        result = lr.sum(x)
        assert result.context == context
        assert result.stream.is_same(legacy)
        assert Context.current() == created
        assert result.numpy().tobytes() == bits(X)
        there = lr.sum(X[:100])
        assert there.context == created, "NumPy's arrays have none"
        del there
        mine = lr.DeviceArray.from_numpy(Y, Stream.legacy(created))
        warm(mine)
        found = lr.sum(mine)
        assert (found.context, found.numpy().tobytes()) == (created, bits(Y))
        del mine, result, found
    assert is_quick(lr.sum(x))
    assert Context.current() == context


def test_nothing_is_current_and_stays_so(context):
    with Stream.create(context) as stream:
        x = lr.DeviceArray.from_numpy(X, stream)
        warm(x, stream=stream)

        def work():
            return [(lr.sum(x, stream=stream).numpy().tobytes(), Context.current()) for _ in range(3)]

        assert in_threads(work) == [[(bits(X), None)] * 3]


@pytest.mark.parametrize("is_warm", [False, True])
def test_an_array_of_another_stream_is_waited_for(context, machine, is_warm):
    with Stream.create(context) as mine, Stream.create(context) as other:
        x, y = lr.DeviceArray.from_numpy(X, mine), lr.DeviceArray.from_numpy(Y, other)
        if is_warm:
            warm(x, stream=mine)
        for _ in range(2):
            if machine == "simulated":
                before = Counter(simulator.selected().calls)
            result = lr.sum(y, stream=mine)
            if machine == "simulated":  # and its stream waits for the reader
                assert (simulator.selected().calls - before)["cuStreamWaitEvent"] == 2
            assert result.numpy().tobytes() == bits(Y)


def test_the_legacy_stream_of_another_context_is_another_stream(legacy, device, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    x = lr.DeviceArray.from_numpy(X, legacy)
    with Context.create(device) as created:
        before = Counter(simulator.selected().calls)
        result = lr.sum(x, stream=Stream.legacy(created))
        assert (simulator.selected().calls - before)["cuStreamWaitEvent"] == 2
        assert result.numpy().tobytes() == bits(X)
        del result


def test_borrowed_memory_is_always_looked_at(stream, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    x = lr.DeviceArray.from_numpy(X, stream)
    borrowed = lr.DeviceArray(lr.Buffer.from_pointer(x.pointer, x.nbytes, owner=x), X.dtype, X.shape, stream)
    for _ in range(3):
        assert counts(partial(lr.sum, borrowed, stream=stream))["cuPointerGetAttributes"] == 1


def test_a_stream_that_was_closed_is_refused(context):
    with Stream.create(context) as stream:
        x = lr.DeviceArray.from_numpy(X, stream)
        warm(x, stream=stream)
    with pytest.raises(ValueError, match="closed"):
        lr.sum(x, stream=stream)


def test_a_captured_call_keeps_its_result_to_the_graph(stream):
    x, y = (lr.DeviceArray.from_numpy(each, stream) for each in (X, X[1:]))
    out = lr.DeviceArray.empty((), "float32", stream)
    warm(x, stream=stream)
    with Graph.capture(stream) as graph:
        lr.sum(x, stream=stream, out=out)
    with graph, graph.instantiate() as executable:
        executable.launch(stream)
        assert out.numpy().tobytes() == bits(X)
    with Graph.capture(stream) as graph:
        result = lr.sum(x, stream=stream)
        assert type(result._memory) is results._OfCapture, "another cell is nothing for a graph"
        shorter = lr.sum(y, stream=stream)
        assert type(shorter._memory) is results._OfCapture, "also of a call that is made for the first time"
        del result, shorter
    graph.close()


def test_a_capture_in_a_thread_without_a_context_keeps_its_result(context):
    def work():
        mine = Stream.per_thread(context)
        x = lr.DeviceArray.from_numpy(X, mine)
        warm(x)
        with Graph.capture(mine) as graph:
            assert Context.current() is None
            result = lr.sum(x)
            assert type(result._memory) is results._OfCapture, "another cell is nothing for a graph"
            del result
        graph.close()

    in_threads(work)


def test_results_of_a_capture_share_memory_of_its_graph(stream):
    x, y = (lr.DeviceArray.from_numpy(each, stream) for each in (X, Y))
    warm(x, stream=stream)
    outside = {lr.sum(x, stream=stream).pointer for _ in range(3)}
    with Graph.capture(stream) as graph:
        first = lr.sum(x, stream=stream)
        second, other = lr.sum(y, stream=stream), lr.sum(x.reshape(100, 200), axis=1, stream=stream)
        pointers = first.pointer, second.pointer, other.pointer
        assert len({*pointers, *outside}) == 3 + len(outside)
        del second
        assert lr.sum(x, stream=stream).pointer == pointers[1], "it is given to the next in the stream"
        large = lr.sum(x.reshape(N // 2, 2), axis=1, stream=stream)
    with Graph.capture(stream) as another:
        apart = lr.sum(y, stream=stream)
        assert apart.pointer not in pointers, "what is left of one capture is for no other"
        del apart
    assert lr.sum(x, stream=stream).pointer in outside
    with graph, graph.instantiate() as executable:
        executable.launch(stream)
        assert first.numpy().tobytes() == bits(X)
        assert other.numpy().tobytes() == lr.tree.reduce(X.reshape(100, 200), axis=1).tobytes()
        assert large.numpy().tobytes() == lr.tree.reduce(X.reshape(N // 2, 2), axis=1).tobytes()
        del first, other, large
    with another, another.instantiate() as executable:
        for _ in range(2):  # which takes memory that the graph frees
            executable.launch(stream)
        stream.synchronize()


def test_more_results_in_a_capture_than_its_memory_has(stream):
    x = lr.DeviceArray.from_numpy(np.arange(40, dtype=np.float32), stream)
    lr.sum(x, stream=stream)
    with Graph.capture(stream) as graph:
        sums = [lr.sum(x[k:], stream=stream) for k in range(results._OF_CAPTURE_BYTES // CELL_BYTES // 8)]
        whole = sums[0]._memory._memory
        whole.left = whole.end - 2 * CELL_BYTES
        sums += [lr.sum(x[k:], stream=stream) for k in range(4)]
        assert [each._memory._memory is whole for each in sums[-4:]] == [True, True, False, False]
    with graph, graph.instantiate() as executable:
        executable.launch(stream)
        assert [float(each) for each in sums[-4:]] == [float(np.arange(k, 40).sum()) for k in range(4)]
        del whole, sums


def test_what_goes_during_a_capture_does_not_spoil_it(context, stream, monkeypatch):
    monkeypatch.setattr(threads, "MAX_PREPARED", 1)
    x, y = (lr.DeviceArray.from_numpy(each, stream) for each in (np.tile(X, 5), Y[:100]))
    out = lr.DeviceArray.empty((), "float32", stream)

    def work():
        with context.pushed():
            lr.sum(x, stream=stream, strategy="tiles")  # which has a workspace, and is lent to nobody afterwards

    lr.sum(y, stream=stream, out=lr.DeviceArray.empty((), "float32", stream))  # loads the kernel
    in_threads(work)
    shorter = lr.DeviceArray.from_numpy(Y[:99], stream)
    with Graph.capture(stream) as graph:
        lr.sum(shorter, stream=stream, out=out)
    with graph, graph.instantiate() as executable:
        executable.launch(stream)
        assert out.numpy().tobytes() == bits(Y[:99])


def test_a_thread_keeps_only_so_many(stream, monkeypatch):
    threads.here().forget()
    monkeypatch.setattr(threads, "MAX_CALLS", 3)
    monkeypatch.setattr(threads, "MAX_PREPARED", 2)
    for n in range(1, 9):
        warm(lr.DeviceArray.from_numpy(X[:n], stream), stream=stream)
        assert len(threads.here().calls) <= 3
        assert threads.here().spots, "where calls were made is known from the first that is kept again"
        assert len(threads.here().problems[threads.here().place_of(stream)]) <= 2


def test_a_place_keeps_only_so_many_kernels(stream, monkeypatch):
    """Each operator or map of a user's has a kernel of its own, which would stay loaded."""
    thread = threads.here()
    thread.forget()
    x = lr.DeviceArray.from_numpy(X, stream)
    place = thread.place_of(stream)
    monkeypatch.setattr(places, "MAX_LAUNCHERS", 2)
    monkeypatch.setattr(threads, "MAX_FORMS", 1)
    bound = []
    for op in ("sum", "max", "prod", "min", "sum", "prod"):
        assert lr.reduce(x, op).numpy().tobytes() == lr.tree.reduce(X, op).tobytes()
        assert len(place._launchers) <= 2
        bound += [weakref.ref(each.bound) for each in place._launchers.values()]
    thread.calls.clear()
    thread.problems.clear()
    gc.collect()
    assert len({each() for each in bound if each() is not None}) <= 3, "those of the last form, besides"
    thread.forget()


def test_the_least_recently_used_problem_goes_first(stream, monkeypatch):
    monkeypatch.setattr(threads, "MAX_PREPARED", 2)
    thread, place = threads.here(), threads.here().place_of(stream)
    thread.problems.pop(place, None)
    for key in "ab":
        thread.prepare(place, key, key)
    assert thread.prepared(place, "a") == "a"
    thread.prepare(place, "c", "c")
    assert [thread.prepared(place, key) for key in "abc"] == ["a", None, "c"]
    del thread.problems[place]


def test_calls_in_two_streams_by_turns(context):
    with Stream.create(context) as one, Stream.create(context) as other:
        arrays = {each: lr.DeviceArray.from_numpy(X, each) for each in (one, other)}
        for _ in range(3):
            for each, x in arrays.items():
                for stream in ({}, {"stream": each}):
                    result = lr.sum(x, **stream)
                    assert (result.stream.handle, result._memory.pool.stream.handle) == (each.handle, each.handle)
        del arrays, x, result


def test_a_workspace_grows_with_what_it_is_for(stream):
    """From less than a problem needs; it is at least doubled, so a thousand sizes are few allocations."""
    for each in (X, np.tile(X, 3), X):
        x = lr.DeviceArray.from_numpy(each, stream)
        assert lr.sum(x, stream=stream, strategy="tiles").numpy().tobytes() == bits(each)
    workspace = Workspace(stream)
    found = {workspace.at_least(size) for size in range(256, 2048, 16)}
    assert (len(found), workspace.size_bytes) == (4, 2048)


def test_segments_whose_second_kernel_was_refused_leave_nothing_to_the_next(stream, machine):
    """What the first kernel has put into the workspace is for a second one that does not come."""
    if machine != "simulated":
        pytest.skip("the simulated driver fails when it is told to")
    x, borders = lr.DeviceArray.from_numpy(X, stream), np.array([0, 5, 18_000, N])
    offsets = [lr.DeviceArray.from_numpy(each, stream) for each in (borders, np.array([0, 1, 2, N]))]
    lr.segmented_reduce(x, offsets[0], stream=stream)
    for _ in range(2):
        simulator.selected().fail_call("cuLaunchKernelEx", 2, "LAUNCH_OUT_OF_RESOURCES")
        with pytest.raises(lr.CudaError, match="LAUNCH_OUT_OF_RESOURCES"):
            lr.segmented_reduce(x, offsets[0], stream=stream)
        found = lr.segmented_reduce(x, offsets[1], stream=stream).numpy()
        assert [each.tobytes() for each in found] == [bits(part) for part in np.split(X, [1, 2])]


@pytest.mark.parametrize(
    ("shapes", "axis"),
    [([(3,), (5000,), (2000,)], None), ([(2, 3), (2, 3000), (100, 7)], 0), ([(3, 600), (29, 600), (7, 600)], 1)],
)
def test_one_kernel_in_blocks_of_several_sizes(stream, machine, shapes, axis):
    threads.here().forget()
    for _ in range(2):
        for shape in shapes:
            x = X[: np.prod(shape)].reshape(shape)
            found = lr.sum(lr.DeviceArray.from_numpy(x, stream), axis=axis, stream=stream)
            assert found.numpy().tobytes() == lr.tree.reduce(x, axis=axis).tobytes()
    if machine == "simulated":  # of another device the blocks may be others
        assert len({launcher.bound.kernel for launcher in launchers()}) == 1
        assert len(launchers()) == 1, "its grid and blocks change with each launch"


def test_an_interrupt_while_a_launcher_changes_its_problem_spoils_no_call(stream, machine):
    """One problem's constants with another one's grid are neither."""
    few, many, next_one = (
        lr.DeviceArray.from_numpy(each[:n].reshape(-1, 100), stream) for each, n in ((X, 800), (X, 4000), (Y, 4000))
    )

    def rows(x):
        return lr.sum(x, axis=1, stream=stream).numpy().tobytes()

    expected = [rows(x) for x in (next_one, few)]
    for step in itertools.count():
        rows(many)
        error = interrupts.interrupted(lambda: rows(few), step, files={places.__file__}, signals_only=True)
        assert [rows(next_one), rows(few)] == expected
        if error is None:
            break
    assert step > 3 or machine != "simulated"  # of another device each problem may have a launcher


def test_a_thread_keeps_only_so_many_streams(context, stream, monkeypatch):
    threads.here().forget()
    monkeypatch.setattr(threads, "MAX_PLACES", 2)
    monkeypatch.setattr(waits, "MAX_KEPT", 3)
    streams = [Stream.create(context) for _ in range(5)]
    for each in streams:
        x = lr.DeviceArray.from_numpy(X, each)
        warm(x)
        lr.sum(x, stream=stream)  # which waits for the array, and is waited for
        lr.sum(x, stream=Theirs(each.handle))
        assert len(threads.here()._places) <= 2
        assert len(threads.here()._streams) <= 2
        assert len(threads.here().wait._kept) <= 3
    del x
    for each in streams:
        each.close()


def test_many_threads_have_each_their_own(context, cut):
    rounds = cut(200, 4)
    arrays = [X, Y]

    def work(index):
        with context.pushed(), Stream.create(context) as stream:
            array = arrays[index % 2]
            x = lr.DeviceArray.from_numpy(array, stream)
            held = [lr.sum(x, stream=stream) for _ in range(rounds)]
            return {result.numpy().tobytes() for result in held}

    assert in_threads(*(partial(work, index) for index in range(8))) == [{bits(array)} for array in arrays * 4]


def test_it_is_the_launch_that_was_bound_at_first(legacy, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    threads.here().forget()
    x = lr.DeviceArray.from_numpy(np.tile(X, 5), legacy)
    before = Counter(simulator.selected().calls)
    warm(x, strategy="tiles")
    assert (simulator.selected().calls - before)["cuMemAllocAsync"] == 2, "one workspace, and a chunk for results"
    assert not is_quick(lr.sum(x, strategy="tiles", allocator=own_allocator(legacy.context)))
    before = Counter(simulator.selected().calls)
    out = lr.DeviceArray.empty((), "float32", legacy)
    lr.sum(x, strategy="tiles", out=out)
    assert (simulator.selected().calls - before)["cuMemAllocAsync"] == 1, "the output: the checked way has it as well"
    assert out.numpy().tobytes() == bits(np.tile(X, 5))


def own_allocator(context):
    held = {}

    def alloc(size_bytes, stream_handle):
        buffer = lr.Buffer.allocate(size_bytes, context)
        held[buffer.pointer] = buffer
        return buffer.pointer

    return lr.Allocator(alloc, lambda pointer, size_bytes, stream_handle: held.pop(pointer).close())


def test_a_second_thread_in_the_same_stream_has_a_launch_of_its_own(context, stream):
    x = lr.DeviceArray.from_numpy(np.tile(X, 5), stream)
    expected = bits(np.tile(X, 5))
    warm(x, stream=stream, strategy="tiles")
    mine = launchers()

    def work():
        with context.pushed():
            results = [lr.sum(x, stream=stream, strategy="tiles") for _ in range(3)]
            return *(result.numpy().tobytes() for result in results), is_quick(results[-1]), mine & launchers()

    assert in_threads(work) == [(*[expected] * 3, True, set())]


def test_a_call_inside_of_a_call_has_a_launch_of_its_own(stream):
    """As by a signal's handler: this thread's launch is under way."""
    x = lr.DeviceArray.from_numpy(X, stream)
    warm(x, stream=stream)
    (prepared,) = prepared_in(stream)
    launcher = prepared._steps[0].kernel.launcher(twin=False)
    words = launcher.turn.idle.pop()
    inner = lr.sum(x, stream=stream)
    launcher.turn.idle.append(words)
    assert inner.numpy().tobytes() == bits(X)
    assert lr.sum(x, stream=stream).numpy().tobytes() == bits(X)


def test_each_object_for_a_stream_is_closed_by_itself(context):
    with Stream.create(context) as stream:
        x = lr.DeviceArray.from_numpy(X, stream)
        first = Stream.from_handle(stream.handle, context=context)
        second = Stream.from_handle(stream.handle, context=context)
        assert stream.id == second.id
        warm(x, stream=first)
        warm(x, stream=second)
        found = lr.sum(x, stream=second)
        first.close()
        assert found.numpy().tobytes() == bits(X)
        with pytest.raises(ValueError, match="closed"):
            lr.sum(x, stream=first)
        assert is_quick(lr.sum(x, stream=second))
        second.close()
        with pytest.raises(ValueError, match="closed"):
            lr.sum(x, stream=second)
        shorter = lr.DeviceArray.from_numpy(X[1:], stream)  # a new call, where another object was closed
        assert lr.sum(shorter, stream=stream).numpy().tobytes() == bits(X[1:])
        for _ in range(3):
            assert lr.sum(x, stream=stream).numpy().tobytes() == bits(X)


PAIRS = [(partial(lr.sum, axis=1), 10_000), (lr.softmax, 5000)]


@pytest.mark.parametrize(("call", "rows"), PAIRS, ids=["sum", "softmax"])
def test_a_stream_is_used_as_long_as_one_object_for_it_is_open(stream, context, call, rows):
    other = Stream.from_handle(stream.handle, context=context)
    pairs = np.ones((rows, 2), np.float32)
    x = lr.DeviceArray.from_numpy(pairs, other)
    held = [call(x) for _ in range(3)]  # each an allocation of its own, and the next would be another one
    expected = held[0].numpy()
    mine = lr.DeviceArray.from_numpy(pairs, stream)
    other.close()
    assert call(mine).numpy().tobytes() == expected.tobytes()


STREAMS = [Stream.create, Stream.legacy, Stream.per_thread]


@pytest.mark.parametrize("make", STREAMS)
@pytest.mark.parametrize("is_lent", [False, True], ids=["own", "lent"])
def test_nothing_is_asked_about_a_context_that_was_closed(device, machine, is_lent, make):
    created = Context.create(device)
    own = Context.from_handle(created.handle) if is_lent else created
    with own.pushed():
        mine = make(own)
        x = lr.DeviceArray.from_numpy(X, mine)
        results = [lr.sum(x, stream=mine) for _ in range(3)]
        rows = lr.DeviceArray.from_numpy(X.reshape(40, -1), mine)
        results += [lr.softmax(rows) for _ in range(3)]
    place = next(each for each in threads.here()._places.values() if each.context == own)
    created.close()
    before = Counter(simulator.selected().calls) if machine == "simulated" else None
    uses = [
        *(lambda: lr.sum(x), lambda: lr.sum(x, stream=mine), lambda: lr.max(x), lambda: lr.sum(x, out=results[1])),
        *(lambda: lr.softmax(rows), lambda: lr.softmax(rows, stream=mine)),
        *(results[0].numpy, results[0].item, mine.synchronize, lambda: own.id, own.pushed),
        *(lambda: lr.plan("sum", shape=(3,), dtype="float32", context=own), lambda: lr.Buffer.allocate(8, own)),
    ]
    for use in uses:
        with pytest.raises(ValueError, match=r"context .*has ended|context is closed"):
            use()
    if before is not None:  # a driver may crash on the handle of what has gone
        made = simulator.selected().calls - before
        assert set(made) <= {"cuCtxGetId", "cuCtxGetCurrent"}, "about what is current alone"
    with Context.primary(device) as primary, Stream.create(primary) as another:
        lr.sum(X, stream=another)
    assert place not in threads.here()._places.values(), "a new stream lets go of it"


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        (np.array(0.1234567890123), np.array(0.1234567890999), "float64"),  # the same by repr
        (np.array(0.1), np.array(0.1, np.float32), "float64"),
        (np.array(1), np.array(1).view(np.float64), "float64"),  # the same bytes, by another type
        (-0.0, 0.0, "float64"),
        (2**64 - 1, 2**64 - 2, "uint64"),
    ],
)
def test_initial_values_are_told_apart_to_the_last_bit(stream, first, second, dtype):
    x = lr.DeviceArray.from_numpy(np.full(1, -0.0).astype(dtype), stream)
    offsets = lr.DeviceArray.from_numpy(np.array([0, 1]), stream)
    for initial in (first, second, first):
        expected = np.asarray(initial).astype(dtype).tobytes()
        assert lr.sum(x, stream=stream, initial=initial).numpy().tobytes() == expected
        assert lr.segmented_reduce(x, offsets, stream=stream, initial=initial).numpy().tobytes() == expected


def test_initial_values_of_what_is_looked_at_each_time(stream):
    """Of an array of NumPy's, and of calls with an allocator of their own."""
    x = lr.DeviceArray.from_numpy(X[:300], stream)
    for each, options in ((X[:300], {}), (x, {"allocator": own_allocator(stream.context)})):
        for initial in (1.5, 2.5, 1.5):
            found = lr.sum(each, stream=stream, initial=initial, **options)
            assert found.numpy().tobytes() == lr.tree.reduce(X[:300], initial=initial).tobytes()


def test_copies_of_numpy_arrays_lie_in_cells(stream):
    """And beside the result, though both are as large."""
    x = X[:4000].reshape(20, 200)
    for each in (x, x[:, ::2], x.T, x[::-1], np.broadcast_to(x[0], x.shape), x[:1, :50]):
        for axis in (0, None):
            found = lr.sum(each, axis=axis, stream=stream)
            assert found.numpy().tobytes() == lr.tree.reduce(each, axis=axis).tobytes()


def test_memory_of_another_context_is_looked_at(device, legacy, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    mine = lr.DeviceArray.from_numpy(X, legacy)
    with Context.create(device) as created:
        with created.pushed():
            x = lr.DeviceArray.from_numpy(X, Stream.legacy(created))
        for _ in range(3):
            assert counts(partial(lr.sum, x, stream=legacy))["cuPointerGetAttributes"] == 1
            assert counts(partial(lr.dot, mine, x, stream=legacy))["cuPointerGetAttributes"] == 1
        del x


def test_an_error_of_a_wait_is_told(context, machine):
    if machine != "simulated":
        pytest.skip("the simulated driver fails when it is told to")
    with Stream.create(context) as mine, Stream.create(context) as other:
        x = lr.DeviceArray.from_numpy(X, other)
        for call in ("cuEventRecord", "cuStreamWaitEvent") * 2:
            simulator.selected().fail_call(call, 1, "UNKNOWN")
            with pytest.raises(lr.CudaError, match=f"{call} failed"):
                lr.sum(x, stream=mine)
            assert lr.sum(x, stream=mine).numpy().tobytes() == bits(X)
        del x


def test_a_workspace_is_cleared_when_it_is_new(stream, monkeypatch):
    allocate = lr.Buffer.allocate_async

    def used_before(size_bytes, stream):
        buffer = allocate(size_bytes, stream)
        buffer.fill(0xFF, stream=stream)
        return buffer

    monkeypatch.setattr(lr.Buffer, "allocate_async", used_before)
    workspace, found = Workspace(stream), np.ones(512, np.uint8)
    for size in (256, 512):
        workspace.at_least(size)
        workspace._memory[-1].copy_to(found[:size], stream=stream)
        stream.synchronize()
        assert not found[:size].any()


# With an output


def counts(call):
    """Return the driver's calls in a call, by name: only the simulated one counts them."""
    gc.collect()  # what earlier tests left is not freed meanwhile
    before = Counter(simulator.selected().calls)
    call()
    return simulator.selected().calls - before


TAKEN = {"cuCtxGetId": 1, "cuLaunchKernelEx": 1}


def test_a_thread_without_a_context_pushes_it_with_five_calls(legacy, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    x = lr.DeviceArray.from_numpy(X, legacy)

    def of_a_thread():
        warm(x)
        return counts(lambda: lr.sum(x))

    (made,) = in_threads(of_a_thread)
    assert made == {**TAKEN, "cuCtxGetCurrent": 3, "cuCtxPushCurrent": 1, "cuCtxPopCurrent": 1}


def test_the_second_call_into_an_output_is_two_driver_calls(legacy, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    x, out = lr.DeviceArray.from_numpy(X, legacy), lr.DeviceArray.empty((), "float32", legacy)
    first = counts(lambda: lr.sum(x, out=out))
    assert not first["cuPointerGetAttributes"], "both are known to be whole"
    assert counts(lambda: lr.sum(x, out=out)) == TAKEN
    assert out.numpy().tobytes() == bits(X)


def test_outputs_by_turns(stream, machine):
    arrays = [lr.DeviceArray.from_numpy(each, stream) for each in (X, Y)]
    lr.sum(arrays[0], stream=stream, out=lr.DeviceArray.empty((), "float32", stream), strategy="tiles")
    outs = [lr.DeviceArray.from_numpy(np.full((), -1, np.float32), stream) for _ in range(3)]
    expected = [out.numpy().tobytes() for out in outs]
    for turn in range(6):
        out, x = outs[turn % 3], arrays[turn % 2]

        def call(x=x, out=out):
            assert lr.sum(x, stream=stream, out=out, strategy="tiles") is out

        if machine == "simulated":
            # What has a workspace that is used again must not become a graph's.
            assert counts(call) == {"cuLaunchKernelEx": 1, "cuStreamIsCapturing": 1}
        else:
            call()
        expected[turn % 3] = bits((X, Y)[turn % 2])
        assert [each.numpy().tobytes() for each in outs] == expected, "that one alone is written"
    held = lr.sum(arrays[1], stream=stream)
    assert held.numpy().tobytes() == bits(Y)


@pytest.mark.parametrize(
    ("op", "options", "shape", "dtype"),
    [
        ("sum", {"dtype": "float64"}, (), "float64"),
        ("sum", {}, (1, 1), "float32"),
        ("sum", {"axis": 0}, (200,), "float32"),
        ("argmax", {"axis": 1}, (100,), "int64"),
        ("minmax", {"axis": 1}, (2, 100), "float32"),
        ("mean", {"axis": 1, "keepdims": True}, (100, 1), "float32"),
    ],
)
def test_outputs_of_every_kind_have_the_bits_of_the_checked_way(stream, machine, op, options, shape, dtype):
    arrays = [lr.DeviceArray.from_numpy(each.reshape(100, 200), stream) for each in (X, Y)]
    checked = lr.DeviceArray.empty(shape, dtype, stream)
    out = lr.DeviceArray(checked._buffer, dtype, shape, stream)  # borrowed: always looked at
    quickly = lr.DeviceArray.empty(shape, dtype, stream)
    lr.reduce(arrays[0], op, stream=stream, out=quickly, **options)
    lr.reduce(arrays[1], op, stream=stream, out=out, **options)
    again = lambda: lr.reduce(arrays[1], op, stream=stream, out=quickly, **options)  # noqa: E731
    if machine == "simulated":
        made = counts(again)
        assert made.pop("cuStreamIsCapturing", 1) == 1
        assert made == {"cuLaunchKernelEx": 1}
    else:
        again()
    assert quickly.numpy().tobytes() == checked.numpy().tobytes()


def test_an_output_of_another_type_is_refused_after_one_that_is_right(legacy):
    x, right = lr.DeviceArray.from_numpy(X, legacy), lr.DeviceArray.empty((), "float32", legacy)
    for _ in range(2):
        lr.sum(x, out=right)
    wrong = [
        (lr.DeviceArray.empty((), "float64", legacy), TypeError, "out is of float64; the result is float32"),
        (lr.DeviceArray.empty((2,), "float32", legacy), ValueError, "out has shape"),
        (np.empty((), np.float32), TypeError, "out is a NumPy array"),
        (x.plane(0) if x.ndim > 1 else inside(x), ValueError, "overlaps the input"),
        ([], TypeError, "no array"),
    ]
    for out, error, message in wrong:
        for _ in range(2):
            with pytest.raises(error, match=message):
                lr.sum(x, out=out)
    assert lr.sum(x, out=right) is right
    assert right.numpy().tobytes() == bits(X)


def inside(x):
    """Return one element of an array's memory."""
    return lr.DeviceArray(lr.Buffer.from_pointer(x.pointer + 8, 4, owner=x), x.dtype, (), x.stream)


def test_an_output_that_overlaps_is_refused_though_its_memory_is_known(legacy):
    """The key says nothing of addresses: an array of one element is a good output, save for itself."""
    one, other = lr.DeviceArray.from_numpy(X[:1], legacy), lr.DeviceArray.from_numpy(Y[:1], legacy)
    for _ in range(2):
        assert lr.sum(one, out=other) is other
    for _ in range(2):
        with pytest.raises(ValueError, match="overlaps the input"):
            lr.sum(one, out=one)
    assert one.numpy().tobytes() == X[:1].tobytes()
    lr.sum(one, out=other)
    assert other.numpy().tobytes() == bits(X[:1])
    third = lr.DeviceArray.from_numpy(X[1:2], legacy)
    for _ in range(2):
        lr.dot(one, other, out=third)
    for _ in range(2):
        with pytest.raises(ValueError, match="overlaps"):
            lr.dot(one, other, out=other)


def test_the_call_after_a_refused_output_is_quick(legacy, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    one, other = lr.DeviceArray.from_numpy(X[:1], legacy), lr.DeviceArray.from_numpy(Y[:1], legacy)
    for _ in range(2):
        lr.sum(one, out=other)
    with pytest.raises(ValueError, match="overlaps the input"):
        lr.sum(one, out=one)
    assert counts(partial(lr.sum, one, out=other)) == TAKEN


def test_an_output_that_was_closed_is_refused(legacy):
    x = lr.DeviceArray.from_numpy(X, legacy)
    outs = [lr.DeviceArray.empty((), "float32", legacy) for _ in range(2)]
    for _ in range(2):
        lr.sum(x, out=outs[0])
    outs[0]._memory.close()
    for _ in range(2):
        with pytest.raises(ValueError, match="closed"):
            lr.sum(x, out=outs[0])
    assert lr.sum(x, out=outs[1]).numpy().tobytes() == bits(X)


def test_an_output_in_a_slot(legacy):
    x, y = lr.DeviceArray.from_numpy(X, legacy), lr.DeviceArray.from_numpy(Y, legacy)
    warm(x)
    held, kept = lr.sum(x), lr.sum(x)
    for _ in range(3):
        assert lr.sum(y, out=held) is held
    assert held.numpy().tobytes() == bits(Y)
    assert kept.numpy().tobytes() == bits(X)


def test_an_output_of_another_stream_is_waited_for_and_waits(context, monkeypatch):
    """Its own stream's order is the one that it is read and freed in."""
    order, wait, launch, again = [], Stream.wait, Prepared.launch, Waits.__call__
    monkeypatch.setattr(Stream, "wait", lambda self, event: order.append(self.handle) or wait(self, event))
    monkeypatch.setattr(Waits, "__call__", lambda self, to, *of: order.append(to.handle) or again(self, to, *of))
    monkeypatch.setattr(Prepared, "launch", lambda self, *each: order.append("launch") or launch(self, *each))
    with Stream.create(context) as mine, Stream.create(context) as other:
        x = lr.DeviceArray.from_numpy(X, mine)
        there = [mine.handle, "launch", other.handle]
        for stream, expected in ((mine, ["launch"]), (other, there), (other, there), (mine, ["launch"])):
            out = lr.DeviceArray.empty((), "float32", stream)
            order.clear()
            lr.sum(x, stream=mine, out=out)
            assert order == expected
            assert out.numpy().tobytes() == bits(X)


def test_an_output_of_another_context_is_refused(context, device, legacy):
    x = lr.DeviceArray.from_numpy(X, legacy)
    lr.sum(x, out=lr.DeviceArray.empty((), "float32", legacy))
    with Context.create(device) as created:
        with created.pushed():
            memory = lr.Buffer.allocate(4, created)
            out = lr.DeviceArray(memory, "float32", (), Stream.legacy(created))
        for _ in range(2):
            with pytest.raises(ValueError, match="is of context"):
                lr.sum(x, out=out)
        memory.close()


def test_a_captured_call_into_an_output(stream):
    x, y = lr.DeviceArray.from_numpy(X, stream), lr.DeviceArray.from_numpy(Y, stream)
    out = lr.DeviceArray.empty((), "float32", stream)
    for _ in range(2):
        lr.sum(x, stream=stream, out=out)
    with Graph.capture(stream) as graph:
        lr.sum(y, stream=stream, out=out)
    with graph, graph.instantiate() as executable:
        assert out.numpy().tobytes() == bits(X), "nothing ran"
        executable.launch(stream)
        assert out.numpy().tobytes() == bits(Y)


def test_segments_are_bound_once(stream, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    x, y = lr.DeviceArray.from_numpy(X, stream), lr.DeviceArray.from_numpy(Y, stream)
    borders = np.array([0, 5, 18_000, N], np.int64)
    offsets = lr.DeviceArray.from_numpy(borders, stream)

    def expected(array):
        return [bits(part) for part in np.split(array, borders[1:-1])]

    first = lr.segmented_reduce(x, offsets, stream=stream)
    held = []
    made = counts(lambda: held.append(lr.segmented_reduce(y, offsets, stream=stream)))
    assert made.pop("cuLaunchKernelEx") == 2
    assert made == {"cuStreamIsCapturing": 1}
    assert [each.tobytes() for each in first.numpy()] == expected(X)
    assert [each.tobytes() for each in held[0].numpy()] == expected(Y)
    low = lr.segmented_reduce(x, offsets, "min", stream=stream, initial=-9)
    lower = lr.segmented_reduce(x, offsets, "min", stream=stream, initial=-10)
    assert (low.numpy().tolist(), lower.numpy().tolist()) == ([-9] * 3, [-10] * 3)


def test_repeated_calls_without_results(stream):
    """Of arrays that are not empty, too: one offset is no segment."""
    x, empty = lr.DeviceArray.from_numpy(X, stream), lr.DeviceArray.from_numpy(X[:0].reshape(0, 5), stream)
    offset = lr.DeviceArray.from_numpy(np.array([5]), stream)
    none = lr.DeviceArray.empty((0,), "float32", stream)
    for _ in range(3):
        assert lr.segmented_reduce(x, offset, stream=stream).shape == (0,)
        assert lr.segmented_reduce(x, offset, stream=stream, out=none) is none
        assert lr.sum(empty, axis=1, stream=stream).shape == (0,)
        assert [each.shape for each in lr.mean_var(empty, axis=1, stream=stream)] == [(0,)] * 2


def test_an_allocator_gives_the_first_call_too_all_that_it_needs(context, stream, monkeypatch):
    x = lr.DeviceArray.from_numpy(np.tile(X, 3), stream)
    offsets = lr.DeviceArray.from_numpy(np.array([0, 3 * N], np.int64), stream)
    arena = lr.Buffer.allocate(1 << 20, context)
    free = iter(range(arena.pointer, arena.pointer + (1 << 20), 1 << 17))
    allocator = lr.Allocator(lambda size_bytes, handle: next(free), lambda *back: None)
    for taken in ("allocate", "allocate_async"):
        monkeypatch.setattr(lr.Buffer, taken, None)
    total = lr.sum(x, stream=stream, strategy="tiles", allocator=allocator)
    assert total.numpy().tobytes() == bits(np.tile(X, 3))
    one = lr.segmented_reduce(x, offsets, stream=stream, allocator=allocator)
    assert one.numpy().tobytes() == bits(np.tile(X, 3))


# PyTorch and CuPy as the package sees them, over memory of a simulated device


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
    working = types.SimpleNamespace(handle=0, elsewhere=0)
    cupy = types.ModuleType("cupy")
    cupy.ndarray = Array
    cupy.cuda = types.SimpleNamespace(  # -1 is the current device
        get_current_stream=lambda device_id=-1: types.SimpleNamespace(
            ptr=working.handle if device_id in (-1, 0) else working.elsewhere
        )
    )
    monkeypatch.setitem(sys.modules, "torch", fake_torch.module(lambda ordinal: working.handle))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    producers._known.clear()  # of a library that another test stands in for
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


def test_the_stream_that_cupy_works_in_is_that_of_the_arrays_device(libraries):
    with simulator.use("H200", devices=2), Context.primary(0) as current, Context.primary(1) as other, current.pushed():
        with Stream.create(other) as mine, Stream.create(other) as theirs:
            keep = lr.DeviceArray.from_numpy(X, mine)
            x = Array(keep)
            x.device.id = 1
            for handle, waits in ((mine.handle, 0), (mine.handle, 0), (theirs.handle, 1), (mine.handle, 0)):
                libraries.elsewhere = handle
                before = Counter(simulator.selected().calls)
                result = lr.sum(x, stream=mine)
                assert (simulator.selected().calls - before)["cuStreamWaitEvent"] == waits
                assert result.numpy().tobytes() == bits(X)
            del keep, x, result
            gc.collect()


@pytest.mark.parametrize("of_x", [Tensor, Array])
@pytest.mark.parametrize("of_out", [Tensor, Array, None])
def test_outputs_of_known_libraries(libraries, legacy, of_x, of_out):
    keep = lr.DeviceArray.from_numpy(X, legacy), lr.DeviceArray.from_numpy(Y, legacy)
    results = [lr.DeviceArray.empty((), "float32", legacy) for _ in range(2)]
    first, second = (each if of_out is None else of_out(each) for each in results)
    lr.sum(of_x(keep[0]), out=first)
    assert counts(lambda: lr.sum(of_x(keep[1]), out=second)) == TAKEN
    assert [each.numpy().tobytes() for each in results] == [bits(X), bits(Y)]


def test_an_output_of_a_library_that_works_in_another_stream_is_waited_for(libraries, context):
    with Stream.create(context) as mine, Stream.create(context) as theirs:
        x = lr.DeviceArray.from_numpy(X, mine)
        memory = lr.DeviceArray.empty((), "float32", mine)
        for handle, waits in ((mine.handle, 0), (mine.handle, 0), (theirs.handle, 1), (mine.handle, 0)):
            libraries.handle = handle
            assert counts(lambda: lr.sum(x, stream=mine, out=Tensor(memory)))["cuStreamWaitEvent"] == waits
            assert memory.numpy().tobytes() == bits(X)


def test_an_output_that_is_negated_strided_or_misaligned_is_refused(libraries, legacy):
    x = lr.DeviceArray.from_numpy(X.reshape(100, 200), legacy)
    memory = lr.DeviceArray.empty((200,), "float32", legacy)
    for _ in range(2):
        lr.sum(x, axis=0, out=Tensor(memory))
    with pytest.raises((ValueError, TypeError)):
        lr.sum(x, axis=0, out=Tensor(memory, negated=True))
    with pytest.raises(ValueError, match="not contiguous"):
        lr.sum(x, axis=0, out=Tensor(memory, (200,), (2,)))
    shifted = types.SimpleNamespace(shape=(200,), dtype=memory.dtype, pointer=memory.pointer + 2)
    with pytest.raises(ValueError, match="its allocation ends"):
        lr.sum(x, axis=0, out=Tensor(shifted))
    two = lr.DeviceArray.empty((2,), "float32", legacy)
    for _ in range(2):
        lr.sum(x, out=Tensor(two, (1,)))
    shifted = types.SimpleNamespace(shape=(1,), dtype=two.dtype, pointer=two.pointer + 2)
    with pytest.raises(ValueError, match="not aligned"):
        lr.sum(x, out=Tensor(shifted))


def test_offsets_at_odd_addresses_are_refused_again(libraries, legacy):
    x, memory = lr.DeviceArray.from_numpy(X, legacy), lr.DeviceArray.from_numpy(np.arange(9, dtype=np.int32), legacy)
    shifted = types.SimpleNamespace(shape=(7,), dtype=memory.dtype, pointer=memory.pointer + 2)
    for _ in range(2):
        found = lr.segmented_reduce(x, Tensor(memory, (7,)))
        assert found.numpy().tobytes() == X[:6].tobytes()
    for _ in range(2):
        with pytest.raises(ValueError, match="not aligned"):
            lr.segmented_reduce(x, Tensor(shifted))


@pytest.mark.parametrize(
    ("shape", "strides"), [((1, 200), (1, 1)), ((1, 200), (7000, 1)), ((200, 1), (1, 1)), ((200, 1), (1, 9))]
)
def test_an_output_whose_axes_of_one_element_have_other_strides_is_contiguous(libraries, legacy, shape, strides):
    x = X[:2000].reshape(10, 200).T if shape[1] == 1 else X[:2000].reshape(10, 200)
    keep = lr.DeviceArray.from_numpy(x, legacy)
    memory = lr.DeviceArray.empty((200,), "float32", legacy)
    axis = shape.index(1)
    for _ in range(3):
        lr.sum(keep, axis=axis, keepdims=True, out=Tensor(memory, shape, strides))
        assert memory.numpy().tobytes() == lr.tree.reduce(x, axis=axis).tobytes()


def test_strides_of_a_tensor(libraries, legacy):
    keep = lr.DeviceArray.from_numpy(X, legacy)
    every_other = Tensor(keep, (N // 2,), (2,))
    for _ in range(3):
        assert lr.sum(every_other).numpy().tobytes() == bits(X[::2])
    offsets = lr.DeviceArray.from_numpy(np.array([0, N // 2]), legacy)
    with pytest.raises(ValueError, match=r"x has shape \(10000,\); it must have one contiguous axis"):
        lr.segmented_reduce(every_other, offsets)


def test_the_stream_that_a_library_works_in_is_waited_for(libraries, context):
    with Stream.create(context) as mine, Stream.create(context) as theirs:
        x = Tensor(lr.DeviceArray.from_numpy(X, mine))
        libraries.handle = mine.handle
        warm(x, stream=mine)
        libraries.handle = theirs.handle
        before = Counter(simulator.selected().calls)
        result = lr.sum(x, stream=mine)
        assert (simulator.selected().calls - before)["cuStreamWaitEvent"] == 1
        assert result.numpy().tobytes() == bits(X)
        libraries.handle = mine.handle
        assert counts(partial(lr.sum, x, stream=mine)) == {"cuLaunchKernelEx": 1, "cuStreamIsCapturing": 1}
        libraries.handle = theirs.handle
        assert counts(partial(lr.partials, x, chunk=1024, stream=mine))["cuStreamWaitEvent"] == 1


def test_arrays_at_odd_addresses_have_launchers_of_their_own(libraries, legacy):
    keep = lr.DeviceArray.from_numpy(X, legacy)
    for shift in (0, 1, 0, 1, 3, 2, 0):
        part = types.SimpleNamespace(shape=(15_000,), dtype=keep.dtype, pointer=keep.pointer + 4 * shift)
        assert lr.sum(Tensor(part)).numpy().tobytes() == bits(X[shift : shift + 15_000])


def test_second_arrays_at_odd_addresses(libraries, legacy):
    x, keep = lr.DeviceArray.from_numpy(X[:4000], legacy), lr.DeviceArray.from_numpy(Y, legacy)
    for shift in (0, 1, 0, 1, 3):
        part = types.SimpleNamespace(shape=(4000,), dtype=keep.dtype, pointer=keep.pointer + 4 * shift)
        expected = lr.tree.reduce(X[:4000], "dot", second=Y[shift : shift + 4000])
        assert lr.dot(x, Tensor(part)).numpy().tobytes() == expected.tobytes()


def test_without_a_stream_it_is_that_in_which_a_library_works_now(libraries, context):
    with Stream.create(context) as mine, Stream.create(context) as theirs:
        x = Tensor(lr.DeviceArray.from_numpy(X, mine))
        for each in (mine, theirs) * 3:
            libraries.handle = each.handle
            assert lr.sum(x).stream.handle == each.handle
        del x


def test_a_tensor_whose_memory_holds_other_values_is_refused(libraries, legacy):
    x = Tensor(lr.DeviceArray.from_numpy(X, legacy))
    warm(x)
    x.negated = True
    with pytest.raises((ValueError, TypeError)):
        lr.sum(x)


def test_a_thread_asks_no_tensor_like_one_that_was_met_what_lets_others_run(libraries, legacy, monkeypatch):
    """Asking PyTorch whether a tensor is negated or conjugated lets go of the interpreter's lock each time."""
    keep = lr.DeviceArray.from_numpy(X, legacy), lr.DeviceArray.from_numpy(Y, legacy)

    def work():
        warm(Tensor(keep[0]))
        with monkeypatch.context() as patched:
            for name in ("is_neg", "is_conj"):
                patched.setattr(Tensor, name, lambda self: pytest.fail("it is asked"))
            result = lr.sum(Tensor(keep[1]))
        with pytest.raises((ValueError, TypeError)):
            lr.sum(Tensor(keep[1], negated=True))
        return result.numpy().tobytes()

    assert in_threads(work) == [bits(Y)]


def test_a_tensor_whose_memory_was_taken_away_is_refused(libraries, legacy):
    """As by ``tensor.untyped_storage().resize_(0)``, which leaves its shape as it is."""
    keep = lr.DeviceArray.from_numpy(X, legacy)
    out = lr.DeviceArray.empty((), "float32", legacy)
    gone = types.SimpleNamespace(shape=X.shape, dtype=keep.dtype, pointer=0)
    for options in ({}, {"out": out}):
        for _ in range(2):
            lr.sum(Tensor(keep), **options)
        with pytest.raises(ValueError, match="not memory that the driver knows"):
            lr.sum(Tensor(gone), **options)
    assert is_quick(lr.sum(Tensor(keep)))


def test_a_tensor_outside_of_the_primary_context_is_looked_at(libraries, device):
    with Context.create(device) as created, created.pushed():
        x = Tensor(lr.DeviceArray.from_numpy(X, Stream.legacy(created)))
        for _ in range(3):
            assert counts(partial(lr.sum, x, stream=Stream.legacy(created)))["cuPointerGetAttributes"]
        del x


def test_the_default_stream_of_a_library_is_the_primary_contexts(libraries, device):
    """Whatever context is current; another one's default stream has the same handle."""
    with Context.create(device) as created, created.pushed():
        mine = Stream.legacy(created)
        x = Tensor(lr.DeviceArray.from_numpy(X, mine))
        waits = counts(partial(lr.sum, x, stream=mine))
        assert (waits["cuEventRecord"], waits["cuStreamWaitEvent"]) == (1, 1)
        del x


def test_without_a_stream_a_librarys_default_one_is_the_primary_contexts(libraries, legacy, device):
    threads.here().forget()
    x = Tensor(lr.DeviceArray.from_numpy(X, legacy))
    with Context.create(device) as created, created.pushed():
        for _ in range(3):
            result = lr.sum(x)
            assert (result.context, result.numpy().tobytes()) == (legacy.context, bits(X))


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
