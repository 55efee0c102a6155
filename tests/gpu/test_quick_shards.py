"""Repeated calls of `reduce_shards`: few driver calls, the same bits, and nothing overwritten that is still read."""

import contextlib
import gc
import sys
import weakref
from collections import Counter

import fake_torch
import numpy as np
import pytest
from cuda.bindings import driver as cu
from fake_torch import Tensor
from in_threads import in_threads
from stream_order import Order

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.arrays import libraries
from lowlevel_reduce.calls import threads
from lowlevel_reduce.driver import Context, Device, Graph, Stream
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.parts import quick_shards

X, Y = np.random.default_rng(5).standard_normal((2, 5000)).astype(np.float32)
LENGTHS = (2048, 2952)  # the second one ends within a chunk


def split(array, lengths=LENGTHS):
    return np.split(array, np.cumsum(lengths)[:-1])


def bits(array, op="sum", **options):
    results = lr.tree.reduce(array, op, **options)
    return b"".join(np.asarray(each).tobytes() for each in (results if isinstance(results, tuple) else (results,)))


def found(results):
    return b"".join(each.numpy().tobytes() for each in (results if isinstance(results, tuple) else (results,)))


QUICK = []


@pytest.fixture(autouse=True)
def repeated(monkeypatch):
    """Remember the results of calls that were repeated by what was kept of them."""
    call = quick_shards.call

    def remembering(*args):
        result = call(*args)
        if result is not None:
            QUICK.append(weakref.ref(first_of(result)))
        return result

    monkeypatch.setattr(quick_shards, "call", remembering)
    yield
    QUICK.clear()


def is_quick(result):
    return any(each() is first_of(result) for each in QUICK)


def first_of(result):
    return result[0] if isinstance(result, tuple) else result


def kept():
    return threads.here().others.get(quick_shards._KEPT, {})


def counts(call):
    """Return the driver's calls in a call, by name, and what it returned."""
    gc.collect()
    before = Counter(simulator.selected().calls)
    result = call()
    return simulator.selected().calls - before, result


@pytest.fixture
def devices(machine):
    """Two devices: real ones, or a driver of its own that simulates two."""
    with contextlib.ExitStack() as stack:
        if machine == "simulated":
            stack.enter_context(simulator.use("H200", devices=2))
        if Device.count() < 2:
            pytest.skip("needs two devices")
        yield Device.all()[:2]


@pytest.fixture
def driver(machine, devices):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    return simulator.selected()


@pytest.fixture
def contexts(devices):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Context.primary(device)) for device in devices]


@pytest.fixture
def streams(contexts):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Stream.create(context)) for context in contexts]


@pytest.fixture
def copied(monkeypatch):
    """As where devices are not connected: partials are copied from one to the other."""
    monkeypatch.setattr(quick_shards, "reaches", lambda context, other: context == other)


def on_devices(array, streams, lengths=LENGTHS):
    return [lr.DeviceArray.from_numpy(part, each) for part, each in zip(split(array, lengths), streams, strict=True)]


def warm(arrays, *args, **options):
    lr.reduce_shards(arrays, *args, **options)
    assert is_quick(lr.reduce_shards(arrays, *args, **options))


# Which driver calls are made


@pytest.mark.parametrize("way", ["connected", "copied"])
def test_a_repeated_call_makes_few_driver_calls(driver, streams, way, request):
    if way == "copied":
        request.getfixturevalue("copied")
    arrays = on_devices(X, streams)
    warm(arrays)
    others = on_devices(Y, streams)
    calls, result = counts(lambda: lr.reduce_shards(others))
    again = {"cuMemcpyPeerAsync": 1, "cuCtxSetCurrent": 3} if way == "copied" else {}  # there again, to wait
    assert calls == {
        "cuStreamIsCapturing": 2,
        "cuCtxGetId": 2,
        "cuCtxGetCurrent": 1,
        "cuCtxPushCurrent": 1,
        "cuCtxSetCurrent": 2,  # there and back
        "cuLaunchKernelEx": 3,  # the second shard's last chunk is a part of one, in the same launch
        "cuEventRecord": 2,
        "cuStreamWaitEvent": 2,
        "cuCtxPopCurrent": 1,
        **again,
    }
    assert result.numpy().tobytes() == bits(Y)
    with streams[0].context.pushed():
        calls, result = counts(lambda: lr.reduce_shards(others))
        assert (calls["cuCtxPushCurrent"], calls["cuCtxPopCurrent"], calls["cuCtxGetCurrent"]) == (0, 0, 3)
        assert Context.current() == streams[0].context
    assert result.numpy().tobytes() == bits(Y)


def test_default_streams_are_those_of_their_contexts_whichever_objects_name_them(driver, contexts):
    arrays = on_devices(X, [Stream.legacy(context) for context in contexts])
    warm(arrays)
    assert counts(lambda: lr.reduce_shards(arrays))[0]["cuPointerGetAttributes"] == 0
    given = [[Stream.legacy(contexts[0]), Stream.from_handle(0, context=contexts[1])] for _ in range(2)]
    warm(arrays, streams=given[0])
    for stream in given[0]:
        stream.close()
    calls, result = counts(lambda: lr.reduce_shards(arrays, streams=given[1]))
    assert calls["cuStreamIsCapturing"] == calls["cuPointerGetAttributes"] == 0
    assert calls["cuLaunchKernelEx"] == 3
    assert is_quick(result)
    assert result.numpy().tobytes() == bits(X)
    with pytest.raises(ValueError, match="closed"):
        lr.reduce_shards(arrays, streams=given[0])


def test_shards_of_one_stream_need_no_events(driver, streams):
    arrays = on_devices(X, [streams[0]] * 2)
    warm(arrays)
    calls, result = counts(lambda: lr.reduce_shards(arrays))
    assert calls["cuLaunchKernelEx"] == 3
    assert not [name for name in calls if "Event" in name or "Memcpy" in name or "Alloc" in name]
    assert result.numpy().tobytes() == bits(X)


# What comes out


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("sum", {"initial": 0.5}),
        ("sum", {"initial": -0.5}),
        ("sum", {"dtype": "float64", "accumulate": "compensated"}),
        ("argmax", {"last": True}),
        ("minmax", {}),
        ("softmax_stats", {}),
        ("mean", {"nan": "ignore"}),
        ("norm2", {"map": "x * 2.0f"}),
    ],
)
def test_results_have_the_bits_of_the_first_call_s(streams, op, options):
    first = [on_devices(each, streams) for each in (X, Y)]
    expected = [found(lr.reduce(each, op, stream=streams[0], **options)) for each in (X, Y)]
    for turn in (0, 0, 1, 0, 1):
        assert found(lr.reduce_shards(first[turn], op, **options)) == expected[turn]
    (prepared,) = (each for key, each in kept().items() if key[2] == op)
    assert prepared._fold.plan.results == (2 if op in ("minmax", "softmax_stats") else 1)
    results = [lr.reduce_shards(first[turn], op, **options) for turn in (0, 1)]
    assert [found(each) for each in results] == expected, "the first is held"
    one = results[0][0] if isinstance(results[0], tuple) else results[0]
    assert (one.shape, one.context) == ((), streams[0].context)


def test_options_are_told_apart(streams):
    arrays = on_devices(X, streams)
    every = [{}, {"initial": 0.5}, {"initial": -0.5}, {"initial": 1}, {"initial": True}, {"dtype": "float64"}]
    for _ in range(3):
        for options in every:
            assert found(lr.reduce_shards(arrays, **options)) == found(lr.reduce(X, stream=streams[0], **options))
        assert int(lr.reduce_shards(arrays, "argmax")) == np.argmax(X)
        assert int(lr.reduce_shards(arrays[::-1][1:], "argmax")) == np.argmax(X[:2048])
    assert len(kept()) == len(every) + 2


def test_what_takes_a_pivot_a_mask_or_a_second_array_is_not_kept(streams):
    arrays = on_devices(X, streams)
    masks = on_devices(X > 0, streams)
    for _ in range(3):
        assert found(lr.reduce_shards(arrays, "mean_var")) == bits(X, "mean_var")
        assert found(lr.reduce_shards(arrays, where=masks)) == bits(X, where=X > 0)
        assert found(lr.reduce_shards(arrays, "dot", second=arrays)) == bits(X, "dot", second=X)
    assert not [key for key in kept() if key[2] in ("mean_var", "dot")]
    assert found(lr.reduce_shards(arrays)) == bits(X)


def test_borrowed_memory_is_looked_at_each_time(streams):
    arrays = on_devices(X, streams)
    warm(arrays)
    borrowed = lr.DeviceArray(arrays[1]._buffer, arrays[1].dtype, arrays[1].shape, streams[1])
    for _ in range(3):
        result = lr.reduce_shards([arrays[0], borrowed])
        assert not is_quick(result)
        assert result.numpy().tobytes() == bits(X)
    short = lr.DeviceArray(
        lr.Buffer.from_pointer(arrays[1].pointer + 4, arrays[1].nbytes), "float32", (2952,), streams[1]
    )
    with pytest.raises(ValueError, match="its allocation ends"):
        lr.reduce_shards([arrays[0], short])


def test_bad_input_is_refused_after_good_one(driver, streams):
    arrays = on_devices(X, streams)
    warm(arrays)
    doubles = lr.DeviceArray.from_numpy(X[2048:].astype("float64"), streams[1])
    wrong = [
        ({"shards": [arrays[1], arrays[0]]}, ValueError, "shard 0 has 2952 elements, which end within a leaf"),
        ({"shards": [arrays[0], doubles]}, TypeError, "shard 1 is of float64"),
        ({"shards": [arrays[0], X]}, TypeError, "shard 1 is on the host"),
        ({"streams": streams[:1]}, ValueError, "2 shards and 1 streams"),
        ({"ddof": True}, TypeError, "ddof is a real number"),
        ({"nan": "none"}, ValueError, "nan"),
        ({"op": ["sum"]}, TypeError, ""),
        ({"initial": "x"}, (TypeError, ValueError), ""),
    ]
    for arguments, error, words in wrong:
        before = driver.calls["cuLaunchKernelEx"]
        with pytest.raises(error, match=words or None):
            lr.reduce_shards(**{"shards": arrays, **arguments})
        assert driver.calls["cuLaunchKernelEx"] == before or "initial" in arguments
    arrays[0]._memory.close()
    with pytest.raises(ValueError, match="closed"):
        lr.reduce_shards(arrays)


# What comes after what


@pytest.mark.usefixtures("copied")
def test_no_buffer_is_written_before_it_was_read(driver, contexts, streams):
    """The second shard is copied from another device, and the third is written into its place by another stream."""
    with Stream.create(contexts[0]) as beside:
        homes = [streams[0], streams[1], beside]
        lengths = (1024, 1024, 2952)
        arrays = on_devices(X, homes, lengths)
        order = Order(driver)  # before the calls are prepared
        warm(arrays)
        begin = len(order.works)
        for _ in range(2):
            lr.reduce_shards(arrays)
        launches = {each: [] for each in homes}
        copies = []
        for place, (name, key) in enumerate(order.works[begin:], begin):
            if name == "cuLaunchKernelEx":
                next(launches[home] for home in homes if home.handle == key).append(place)
            elif name.startswith("cuMemcpy"):
                copies.append(place)
                assert key == streams[0].handle
    assert [len(each) for each in launches.values()] == [4, 2, 2]
    assert len(copies) == 2, "one in each call: the others write to their place"
    folds = launches[streams[0]][1::2]
    writers = [[launches[each][turn] for each in (streams[1], beside)] for turn in range(2)]
    for fold, copy, made in zip(folds, copies, writers, strict=True):
        assert all(order.before(each, fold) for each in (copy, *made))
        assert order.before(made[0], copy)
    for written_again in (*writers[1], copies[1], launches[streams[0]][2]):
        assert order.before(copies[0], written_again)
    for written_again in (*writers[1][1:], copies[1], launches[streams[0]][2]):
        assert order.before(folds[0], written_again)


def test_what_another_device_writes_is_read_before_it_is_written_again(driver, streams):
    order = Order(driver)  # before the calls are prepared
    arrays = on_devices(X, streams)
    warm(arrays)
    begin = len(order.works)
    for _ in range(2):
        lr.reduce_shards(arrays)
    works = list(enumerate(order.works))[begin:]
    assert {name for _, (name, _) in works} == {"cuLaunchKernelEx"}
    first, second = ([place for place, (_, key) in works if key == each.handle] for each in streams)
    assert (len(first), len(second)) == (4, 2)  # launches of a call: chunks and the fold, or chunks alone
    for made, fold in zip(second, first[1::2], strict=True):
        assert order.before(made, fold)
    assert order.before(first[1], second[1])


@pytest.mark.usefixtures("copied")
def test_a_buffer_is_freed_behind_its_last_copy(driver, streams):
    order = Order(driver)

    def work():
        arrays = on_devices(X, streams)
        warm(arrays)

    in_threads(work)
    gc.collect()

    def places(name, stream):
        return [i for i, each in enumerate(order.works) if each == (name, stream.handle)]

    copy = places("cuMemcpyPeerAsync", streams[0])[-1]
    freed = places("cuMemFreeAsync", streams[1])
    assert order.before(copy, freed[-1])
    assert order.before(order.last(), places("cuMemFreeAsync", streams[0])[-1])


@pytest.mark.usefixtures("copied")
def test_a_buffer_is_freed_behind_its_copy_though_the_call_failed(driver, streams):
    order = Order(driver)  # before the calls are prepared
    arrays = on_devices(X, streams)
    launch, fails = driver._functions["cuLaunchKernelEx"], []

    def failing(config, *each):
        if fails and order.works[-1][0] == "cuMemcpyPeerAsync":
            return (fails.pop(),)
        return launch(config, *each)

    driver._functions["cuLaunchKernelEx"] = failing
    warm(arrays)
    gc.collect()
    fails.append(cu.CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
    begin = len(order.works)
    with pytest.raises(CudaError, match="cuLaunchKernelEx failed"):
        lr.reduce_shards(arrays)
    gc.collect()
    names = {(name, key): place for place, (name, key) in enumerate(order.works) if place >= begin}
    assert order.before(names["cuMemcpyPeerAsync", streams[0].handle], names["cuMemFreeAsync", streams[1].handle])


def test_a_thread_leaves_nothing(driver, contexts):
    def work(again):
        with contextlib.ExitStack() as stack:
            homes = [stack.enter_context(Stream.create(context)) for context in contexts]
            arrays = on_devices(X, homes)
            for _ in range(1 + again):
                assert lr.reduce_shards(arrays).numpy().tobytes() == bits(X)
            return len(kept())

    assert in_threads(lambda: work(0)) == [1]
    gc.collect()
    before = driver.leaks()
    for _ in range(3):
        assert in_threads(lambda: work(3)) == [1]
        gc.collect()
        assert "events" not in driver.leaks()
        assert "streams" not in driver.leaks()
    assert driver.leaks().get("allocations", 0) <= before.get("allocations", 0)


@pytest.mark.parametrize("current", ["none", "first", "second", "other"])
def test_what_was_current_is_current_afterwards(devices, contexts, streams, current):
    arrays = on_devices(X, streams)
    with contextlib.ExitStack() as stack:
        created = stack.enter_context(Context.create(devices[1]))
        expected = {"none": None, "first": contexts[0], "second": contexts[1], "other": created}[current]

        def work():
            with contextlib.ExitStack() as pushed:
                if expected is not None:
                    pushed.enter_context(expected.pushed())
                warm(arrays)
                return lr.reduce_shards(arrays).numpy().tobytes(), Context.current() == expected

        assert in_threads(work) == [(bits(X), True)]


def test_each_launch_is_made_in_the_context_of_its_stream(driver, contexts, streams):
    """Which a driver demands, and a simulated one does not."""
    launch, seen = driver._functions["cuLaunchKernelEx"], []

    def noted(config, *rest):
        seen.append((int(config.hStream), driver._state.stack[-1]))
        return launch(config, *rest)

    driver._functions["cuLaunchKernelEx"] = noted  # before the calls are prepared
    arrays = on_devices(X, streams)
    warm(arrays)
    seen.clear()
    assert is_quick(lr.reduce_shards(arrays))
    where = {stream.handle: context.handle for stream, context in zip(streams, contexts, strict=True)}
    assert {stream for stream, _ in seen} == set(where)
    assert [current for _, current in seen] == [where[stream] for stream, _ in seen]


def test_a_context_of_another_number_is_another_one(driver, contexts, streams):
    """As where its owner has ended it, and others have made one at its address."""
    ask, moved = driver._functions["cuCtxGetId"], []

    def asked(handle):
        code, *number = ask(handle)
        return (code, number[0] + 1000) if moved and int(handle) == contexts[1].handle else (code, *number)

    driver._functions["cuCtxGetId"] = asked  # before the calls are prepared
    arrays = on_devices(X, streams)
    warm(arrays)
    assert is_quick(lr.reduce_shards(arrays))
    moved.append("it")
    launches = driver.calls["cuLaunchKernelEx"]
    prepared = next(iter(kept().values()))
    assert prepared(arrays) is None
    assert driver.calls["cuLaunchKernelEx"] == launches
    moved.clear()
    assert is_quick(lr.reduce_shards(arrays))


@pytest.mark.parametrize("current", [0, 1])
def test_after_a_call_that_fails_midway_the_next_is_right(driver, contexts, streams, current):
    arrays = on_devices(X, streams)
    warm(arrays)
    quick = 0
    with contexts[current].pushed():
        usual, _ = counts(lambda: lr.reduce_shards(arrays))
        for k in range(1, sum(usual.values()) + 1):
            warm(arrays)
            gc.collect()
            driver.fail(k, cu.CUresult.CUDA_ERROR_UNKNOWN)
            try:
                result = lr.reduce_shards(arrays)
            except CudaError:
                assert not kept(), "what failed is not used again"
            else:  # an answer was missing, without which another way is taken, or a context is made current again
                quick += is_quick(result)
                assert result.numpy().tobytes() == bits(X)
            assert Context.current() == contexts[current]
            assert driver._state.stack == [contexts[current].handle]
            assert lr.reduce_shards(arrays).numpy().tobytes() == bits(X)
    assert quick <= usual["cuCtxGetCurrent"]


# When it is not taken


@pytest.mark.parametrize("known", [False, True], ids=["first", "known to the thread"])
def test_a_captured_call_gets_nothing_that_others_use_again(streams, known):
    x = lr.DeviceArray.from_numpy(X, streams[0])
    warm([x])
    if not known:
        kept().clear()
    with Graph.capture(streams[0]) as graph:
        result = lr.reduce_shards([x])
    assert not is_quick(result)
    assert len(kept()) == known
    with graph, graph.instantiate() as executable:
        executable.launch(streams[0])
        assert result.numpy().tobytes() == bits(X)
        warm([x])
        del result


def test_a_call_of_which_one_stream_is_captured_is_not_taken(streams):
    arrays = on_devices(X, streams)
    warm(arrays)
    (prepared,) = kept().values()
    assert prepared(arrays) is not None
    for stream in streams:
        with Graph.capture(stream) as graph:
            assert prepared(arrays) is None
        graph.close()
    assert prepared(arrays) is not None


@pytest.mark.parametrize("ending", [0, 1])
def test_a_closed_stream_is_refused_before_anything_is_launched(driver, contexts, ending):
    with contextlib.ExitStack() as stack:
        homes = [stack.enter_context(Stream.create(context)) for context in contexts]
        arrays = on_devices(X, homes)
        warm(arrays)
        homes[ending].close()
        before = driver.calls["cuLaunchKernelEx"]
        for _ in range(2):
            with pytest.raises(ValueError, match="closed"):
                lr.reduce_shards(arrays)
        assert driver.calls["cuLaunchKernelEx"] == before
        homes[ending] = stack.enter_context(Stream.create(contexts[ending]))
        arrays = on_devices(X, homes)
        warm(arrays)
        assert len(kept()) == 1, "what was kept in the closed stream has gone"


def test_closed_streams_and_contexts_are_refused(devices):
    with Context.create(devices[0]) as first, Context.create(devices[1]) as second:
        with Stream.create(first) as mine, Stream.create(second) as ending:
            arrays = on_devices(X, [mine, ending])
            warm(arrays)
        with pytest.raises(ValueError, match="closed"):
            lr.reduce_shards(arrays)
        del arrays
        homes = [Stream.legacy(first), Stream.legacy(second)]
        arrays = on_devices(X, homes)
        warm(arrays)
    with pytest.raises(ValueError, match=r"closed|ended"):
        lr.reduce_shards(arrays)
    with Context.create(devices[0]) as first, Context.create(devices[1]) as second:  # perhaps at the same addresses
        arrays = on_devices(Y, [Stream.legacy(first), Stream.legacy(second)])
        for _ in range(3):
            assert lr.reduce_shards(arrays).numpy().tobytes() == bits(Y)
        del arrays
        gc.collect()


def test_another_driver_keeps_its_own(driver, streams):
    arrays = on_devices(X, streams)
    warm(arrays)
    with simulator.use("H200", devices=2):
        with contextlib.ExitStack() as stack:
            theirs = [stack.enter_context(Context.primary(number)) for number in (0, 1)]
            homes = [stack.enter_context(Stream.create(context)) for context in theirs]
            others = on_devices(Y, homes)
            for _ in range(3):
                assert lr.reduce_shards(others).numpy().tobytes() == bits(Y)
            assert len(kept()) == 1
            del others
    for _ in range(3):
        result = lr.reduce_shards(arrays)
        assert result.numpy().tobytes() == bits(X)
    assert is_quick(result)


def test_threads_have_each_their_own(streams):
    pairs = [(on_devices(each, streams), bits(each)) for each in (X, Y)]

    def work(arrays, expected):
        held = [lr.reduce_shards(arrays) for _ in range(6)]
        assert {each.numpy().tobytes() for each in held} == {expected}
        return id(next(iter(kept().values())))

    found = in_threads(*(lambda pair=pair: work(*pair) for pair in pairs * 2))
    assert len(found) == 4


@pytest.mark.usefixtures("copied")
def test_a_call_inside_of_a_call_has_buffers_of_its_own(driver, streams):
    """As by a signal's handler, at the worst of places: the other's partials are about to be copied."""
    arrays, others = on_devices(X, streams), on_devices(Y, streams)
    copy, works, inner = driver._functions["cuMemcpyPeerAsync"], [], []

    def interrupted(*each):
        if works:
            works.pop()
            inner.append(lr.reduce_shards(others))
        return copy(*each)

    driver._functions["cuMemcpyPeerAsync"] = interrupted  # before the calls are prepared
    warm(arrays)
    works.append("a signal")
    outer = lr.reduce_shards(arrays)
    assert is_quick(outer)
    assert [inner[0].numpy().tobytes(), outer.numpy().tobytes()] == [bits(Y), bits(X)]
    assert len(kept()) == 1
    assert lr.reduce_shards(others).numpy().tobytes() == bits(Y)


def test_so_many_calls_are_kept_and_no_more(streams, monkeypatch):
    monkeypatch.setattr(quick_shards, "MAX_KEPT", 2)
    arrays = {length: on_devices(X[:length], streams, (1024, length - 1024)) for length in (2000, 3000, 4000)}
    for length in (2000, 3000, 2000, 4000):
        assert lr.reduce_shards(arrays[length]).numpy().tobytes() == bits(X[:length])
        assert len(kept()) <= 2
    assert is_quick(lr.reduce_shards(arrays[2000])), "used after the one that was dropped"
    assert not is_quick(lr.reduce_shards(arrays[3000]))
    kept().clear()
    monkeypatch.setattr(quick_shards, "MAX_PARTIALS_BYTES", 8)
    lr.reduce_shards(arrays[2000])
    assert not kept()


# PyTorch as the package sees it


@pytest.fixture
def working(driver, monkeypatch):
    """The streams that the library works in, by the device's ordinal."""
    working = {0: 0, 1: 0}
    monkeypatch.setitem(sys.modules, "torch", fake_torch.module(working.__getitem__))
    libraries._known.clear()  # of a library that another test stands in for
    return working


def test_tensors_in_their_library_s_streams(working, contexts, streams):
    memory = on_devices(X, [Stream.legacy(context) for context in contexts])
    tensors = [Tensor(each, device=number) for number, each in enumerate(memory)]
    warm(tensors)
    calls, result = counts(lambda: lr.reduce_shards(tensors))
    assert (calls["cuPointerGetAttributes"], calls["cuDevicePrimaryCtxRetain"], sum(calls.values())) == (0, 0, 14)
    assert result.numpy().tobytes() == bits(X)
    working.update({0: streams[0].handle, 1: streams[1].handle})
    for _ in range(2):
        calls, result = counts(lambda: lr.reduce_shards(tensors))
        assert not is_quick(result)
        assert calls["cuStreamWaitEvent"] == 2 + 2, "both shards' streams wait for the library's"
        assert result.numpy().tobytes() == bits(X)
    warm(tensors, streams=streams)
    working[1] = 0
    calls, result = counts(lambda: lr.reduce_shards(tensors, streams=streams))
    assert not is_quick(result)
    assert calls["cuStreamWaitEvent"] == 1 + 2
    assert result.numpy().tobytes() == bits(X)


def test_tensors_of_a_primary_context_that_was_made_anew(working, devices):
    for array in (X, Y, X):
        with contextlib.ExitStack() as stack:
            primaries = [stack.enter_context(Context.primary(device)) for device in devices]
            memory = on_devices(array, [Stream.legacy(context) for context in primaries])
            tensors = [Tensor(each, device=number) for number, each in enumerate(memory)]
            for _ in range(3):
                assert lr.reduce_shards(tensors).numpy().tobytes() == bits(array)
            del memory, tensors
