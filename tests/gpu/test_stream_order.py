"""Results and arrays of one stream in another: what reads is behind what writes, and what frees behind both."""

import contextlib
import functools
import gc
import threading
import types

import numpy as np
import pytest
from in_threads import in_threads
from stream_order import Order

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.arrays import exports, foreign, libraries
from lowlevel_reduce.arrays.device_array import view_array
from lowlevel_reduce.arrays.libraries import Producer
from lowlevel_reduce.arrays.protocols import Export
from lowlevel_reduce.arrays.results import Cell
from lowlevel_reduce.driver import Buffer, Context, Graph, Stream
from lowlevel_reduce.driver.stream import ThreadStream
from tests.fuzz.capsules import capsule_of, tensor_of

N = 4096
X = np.random.default_rng(5).standard_normal(N).astype(np.float32)
BITS = lr.tree.reduce(X).tobytes()


@pytest.fixture
def order(machine):
    """The order of everything on a simulated device of its own, so that nothing was bound before."""
    if machine != "simulated":
        pytest.skip("calls are looked at in the simulated driver")
    with simulator.use("H200") as driver:
        yield Order(driver)
        gc.collect()


@pytest.fixture
def mine(order):
    with Context.primary(0) as context, context.pushed():
        yield context


# A thread's default stream, and another thread

READERS = {"its own": Stream.per_thread, "legacy": Stream.legacy, "created": Stream.create}


@pytest.fixture
def of_a_thread():
    """``of_a_thread(context, work)``: what `work` returns for the default stream of a thread, which is there until the
    test is over, for one that ends waits for its stream."""
    over, threads = threading.Event(), []

    def of_a_thread(context, work):
        done, outcome = threading.Event(), []

        def run():
            with context.pushed():
                try:
                    outcome.append(work(Stream.per_thread(context)))
                finally:
                    done.set()
            assert over.wait(60)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        assert done.wait(60)
        return outcome.pop()

    yield of_a_thread
    over.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("reader", READERS)
def test_an_array_of_a_threads_stream_is_waited_for_by_another_thread(order, of_a_thread, mine, reader):
    x = of_a_thread(mine, lambda stream: lr.DeviceArray.from_numpy(X, stream))
    written = order.last("cuMemcpyAsync")
    stream = READERS[reader](mine)
    for _ in range(3):  # also by the quick way, where the legacy stream needs no event
        assert lr.sum(x, stream=stream).numpy().tobytes() == BITS
        assert order.before(written, order.last())
    stream.close()


@pytest.mark.parametrize("rows", [1, 128], ids=["a few bytes", "many"])
def test_a_result_of_a_threads_stream_is_read_behind_it_by_another_thread(order, of_a_thread, mine, rows):
    def work(stream):
        x = lr.DeviceArray.from_numpy(X.reshape(rows, -1), stream)
        lr.sum(x, axis=1, stream=stream)
        return lr.sum(x, axis=1, stream=stream), order.last()

    result, launch = of_a_thread(mine, work)
    result.numpy()
    (copy,) = (i for i, (name, _) in enumerate(order.works) if i > launch and name.startswith("cuMemcpy"))
    assert order.before(launch, copy)


def test_memory_in_the_order_of_a_threads_stream_is_freed_behind_it_by_another_thread(order, of_a_thread, mine):
    def work(stream):
        x = lr.DeviceArray.from_numpy(X, stream)
        memory = Buffer.allocate_async(64, stream)
        named = Buffer.allocate_async(64, Stream.legacy(mine))
        lr.sum(x, stream=stream)
        return x, memory, named, stream, order.last()

    x, memory, named, stream, launch = of_a_thread(mine, work)
    free = lambda: order.last("cuMemFreeAsync")  # noqa: E731
    del x
    gc.collect()
    assert order.before(launch, free())
    before = free()
    memory.close()
    assert free() > before
    assert order.before(launch, free())
    named.close(stream=lr.DeviceArray.empty((), "float32", stream).stream)  # this thread's, as the object is used here
    assert order.works[free()][1] == order.key(2)


def test_a_thread_of_the_same_number_is_another_thread(mine):
    seen = []

    def work():
        own = Stream.per_thread(mine).fixed()
        seen.append((threading.get_ident(), own))
        return [stream.handle for _, stream in seen]

    for count in range(1, 6):
        (handles,) = in_threads(work)
        assert handles == [1] * (count - 1) + [2]
    assert [stream.handle for _, stream in seen] == [1] * 5


def test_a_fixed_stream_is_the_same_one_elsewhere(mine):
    own, legacy = Stream.per_thread(mine), Stream.legacy(mine)
    fixed = own.fixed()
    assert isinstance(fixed, ThreadStream)
    assert fixed.fixed() is fixed
    assert legacy.fixed() is legacy
    assert (fixed.handle, fixed.context, fixed.__cuda_stream__()) == (2, mine, (0, 2))
    assert fixed.is_same(own)
    assert not fixed.is_same(legacy)
    assert in_threads(lambda: (fixed.is_here, fixed.is_same(own), fixed.is_same(legacy))) == [(False, False, True)]
    assert Stream.from_handle(0, context=mine).is_same(legacy)
    with Stream.create(mine) as made:
        assert made.fixed() is made
        assert made.is_same(Stream.from_handle(made.handle))
        assert not made.is_same(legacy)
    fixed.close()
    for closed in (fixed, made):
        with pytest.raises(ValueError, match="stream is closed"):
            closed.handle  # noqa: B018
    with pytest.raises(ValueError, match="stream is closed"):
        made.fixed()


def test_the_stream_of_a_threads_result_is_as_quick_as_the_threads(order, mine):
    x = lr.DeviceArray.from_numpy(X, Stream.per_thread(mine))
    for _ in range(2):
        result = lr.sum(x, stream=x.stream)
    assert isinstance(result._memory, Cell)
    assert order.works[order.last()][1] == order.key(2)
    assert not order.waits


def test_the_callers_allocator_frees_in_a_stream_that_is_behind(order, of_a_thread, mine):
    freed = []
    arena = Buffer.allocate(1 << 20, mine)
    free = iter(range(arena.pointer, arena.pointer + (1 << 20), 1 << 12))

    def give_back(pointer, size_bytes, handle):
        key = order.key(handle)
        freed.append((pointer, handle, set(order._all(key))))

    allocator = lr.Allocator(lambda size_bytes, handle: next(free), give_back)

    def work(stream):
        result = lr.sum(lr.DeviceArray.from_numpy(X, stream), stream=stream, allocator=allocator)
        return result, order.last()

    result, launch = of_a_thread(mine, work)
    pointer = result.pointer
    del result
    gc.collect()
    ((_, handle, behind),) = [each for each in freed if each[0] == pointer]
    assert handle == 2
    assert launch in behind


# A thread that ends


def test_a_thread_that_ends_waits_for_its_default_stream(order, mine):
    waited = []

    def work():
        with mine.pushed():
            key = order.key(2)
            order.on_wait = lambda waited_for: waited.append((waited_for, threading.get_ident()))
            x = lr.DeviceArray.from_numpy(X, Stream.per_thread(mine))
            return key, order.last("cuMemcpyAsync"), x

    ((key, copy, x),) = in_threads(work)
    assert waited == [(key, key[2])]
    lr.sum(x, stream=Stream.create(mine))
    assert order.before(copy, order.last())


def test_a_thread_that_ends_waits_in_every_context_that_is_still_there(order, mine):
    waited = []

    def work():
        order.on_wait = lambda key: waited.append(key[0])
        kept = Context.create(0)
        for context in (mine, kept, Context.create(0)):
            with context.pushed():
                lr.DeviceArray.from_numpy(X, Stream.per_thread(context))
        context.close()
        return kept

    (kept,) = in_threads(work)
    assert waited == [mine.handle, kept.handle]
    kept.close()


def test_a_thread_that_ends_in_a_capture_of_its_stream_does_not_wait_for_it(mine, caplog):
    """Which would be refused, and spoil the capture."""

    def work():
        with mine.pushed():
            stream = Stream.per_thread(mine)
            x = lr.DeviceArray.from_numpy(X, stream)
            capture = Graph.capture(stream, mode="relaxed")
            capture.__enter__()
            return x, capture

    (kept,) = in_threads(work)
    assert len(kept) == 2
    assert not caplog.text


def test_a_wait_that_is_refused_is_logged(order, mine, caplog):
    def work():
        with mine.pushed():
            x = lr.DeviceArray.from_numpy(X, Stream.per_thread(mine))
        simulator.selected().fail_call("cuStreamSynchronize", 1, "CUDA_ERROR_UNKNOWN")
        return x

    assert len(in_threads(work)) == 1
    assert "the default stream of a thread that ends could not be waited for" in caplog.text


def test_a_thread_that_has_ended_leaves_its_results(context, cut):
    """On a device with something to do when the thread's last line has run."""
    n = cut(1 << 26, 1 << 14)
    x = np.random.default_rng(6).standard_normal(n).astype(np.float32)
    expected = lr.tree.reduce(x).tobytes()

    def work():
        with context.pushed():
            stream = Stream.per_thread(context)
            source = lr.DeviceArray.from_numpy(x, stream)
            copy = lr.DeviceArray.empty(x.shape, x.dtype, stream)
            for _ in range(cut(50, 1)):
                lr.sum(source, stream=stream)
            copy._buffer.copy_from(source._buffer, stream=stream)
            return copy, lr.sum(copy, stream=stream)

    for read in (
        lambda copy, result: result.numpy(),
        lambda copy, result: lr.sum(copy).numpy(),
        lambda copy, result: lr.sum(copy, stream=Stream.per_thread(context)).numpy(),
        lambda copy, result: lr.sum(copy, stream=Stream.create(context)).numpy(),
    ):
        ((copy, result),) = in_threads(work, timeout=60)
        assert read(copy, result).tobytes() == expected


# What reads in another stream, and what comes next in the array's own


@pytest.mark.parametrize("reader", ["its own thread's", *READERS, "of a green context"])
def test_what_comes_next_in_a_threads_stream_is_behind_another_threads_readers(order, mine, reader):
    """A slot goes back to the stream of the thread whose result it was, without a driver call."""
    ready, read = threading.Event(), threading.Event()
    results, launches = [], []

    def work():
        with mine.pushed():
            stream = Stream.per_thread(mine)
            x = lr.DeviceArray.from_numpy(X.reshape(4, -1), stream)
            results.extend(lr.sum(x, axis=1, stream=stream) for _ in range(3))
            pointer = results[-1].pointer
            if reader == "its own thread's":
                use()
            ready.set()
            assert read.wait(60)
            again = lr.sum(x, axis=1, stream=stream)
            assert again.pointer == pointer, "in the slot of the one that was let go"
            launches.append(order.last())

    def use():
        with contextlib.ExitStack() as stack:
            if reader == "of a green context":
                stream = Stream.create(stack.enter_context(Context.green(0, 16)))
            else:
                stream = READERS.get(reader, Stream.create)(mine)
            lr.sum(results.pop(), stream=stream)
            launches.append(order.last())
            gc.collect()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(60)
    if not launches:
        use()
    read.set()
    thread.join()
    assert order.before(*launches)


def kinds_of_use(x, y, offsets, mask):
    return {
        "the array": lambda stream: lr.sum(y, stream=stream),
        "a mask": lambda stream: lr.sum(x, where=mask, stream=stream),
        "the second array": lambda stream: lr.dot(x, y, stream=stream),
        "segments": lambda stream: lr.segmented_reduce(x, offsets, stream=stream),
        "of an allocator": lambda stream: lr.sum(y, stream=stream, initial=1),
    }


@pytest.mark.parametrize("use", kinds_of_use(*[None] * 4))
def test_what_comes_next_in_an_arrays_stream_is_behind_its_readers(order, mine, use):
    with Stream.create(mine) as reading, Stream.create(mine) as writing:
        x = lr.DeviceArray.from_numpy(X, reading)
        y, offsets, mask = (
            lr.DeviceArray.from_numpy(each, writing) for each in (X, np.array([0, 100, N]), np.ones(N, bool))
        )
        for _ in range(3):
            kinds_of_use(x, y, offsets, mask)[use](reading)
            launch = order.last()
            assert order.before(launch, put(order, writing))
        waited = len(order.waits)
        lr.sum(x, stream=reading)
        lr.dot(x, x, stream=reading)
        assert len(order.waits) == waited, "none where it is one stream"
        lr.dot(y, y, stream=reading, out=lr.DeviceArray.empty((), "float32", writing))
        assert order.waits[waited:].count((writing.handle, reading.handle)) == 1, "one for all that is of that stream"
        del x, y, offsets, mask


def test_the_default_stream_of_another_context_is_that_of_the_array(order, mine):
    with Context.create(0) as created:
        with created.pushed():
            x = lr.DeviceArray.from_numpy(X, Stream.legacy(created))
        for _ in range(3):
            result = lr.sum(x)
            assert order.works[order.last()][1] == (created.handle, 1, None)
            assert result.context == created
        del x, result


@pytest.mark.parametrize("use", ["second", "out"])
def test_what_comes_next_is_behind_the_readers_of_a_call_without_a_stream(order, mine, use):
    with Stream.create(mine) as reading, Stream.create(mine) as writing:
        x, y = lr.DeviceArray.from_numpy(X, reading), lr.DeviceArray.from_numpy(X, writing)
        out = lr.DeviceArray.empty((), "float32", writing)
        for _ in range(3):
            _ = lr.dot(x, y) if use == "second" else lr.sum(x, out=out)
            launch = order.last()
            assert order.before(launch, put(order, writing))
        del x, y, out, _


def test_the_copy_of_a_numpy_array_is_in_the_calls_stream(order, mine):
    with Stream.create(mine) as stream:
        for _ in range(2):
            lr.sum(X, stream=stream)
            assert order.before(order.last("cuMemcpyAsync"), order.last())


def test_a_slot_is_used_again_behind_readers_in_another_stream(order, mine):
    with Stream.create(mine) as one, Stream.create(mine) as other:
        x = lr.DeviceArray.from_numpy(X.reshape(4, -1), one)
        for _ in range(2):
            result = lr.sum(x, axis=1, stream=one)
        pointer = result.pointer
        lr.sum(result, stream=other)
        reader = order.last()
        del result
        again = lr.sum(x, axis=1, stream=one)
        assert again.pointer == pointer
        assert order.before(reader, order.last())
        del x, again


def test_a_stream_does_not_become_part_of_a_capture_that_reads_its_array(order, mine):
    with Stream.create(mine) as captured, Stream.create(mine) as forked, Stream.create(mine) as outside:
        x, y, z = (lr.DeviceArray.from_numpy(X, each) for each in (outside, forked, Stream.legacy(mine)))
        outs = [lr.DeviceArray.empty((), "float32", captured) for _ in range(3)]
        for out, array in zip(outs, (x, y, z), strict=True):
            lr.sum(array, stream=captured, out=out)  # loads and binds
        memory = Buffer.allocate(4), Buffer.allocate(4)
        with Graph.capture(captured) as graph:
            forked.follow(captured)
            launches = []
            for out, array in zip(outs, (x, y, z), strict=True):
                lr.sum(array, stream=captured, out=out)
                launches.append(order.last())
            assert forked.is_capturing
            assert not outside.is_capturing
            memory[0].copy_from(memory[1], stream=forked)
            assert order.before(launches[1], order.last("cuMemcpyAsync")), "one that is part of it waits"
            captured.follow(forked)
        with graph, graph.instantiate() as executable:
            executable.launch(captured)
            captured.synchronize()
            assert [out.numpy().tobytes() for out in outs] == [BITS] * 3
        del x, y, z, outs


# A default stream without a context


@pytest.mark.parametrize("unbound", [Stream.legacy, lambda: Stream.from_handle(0), Stream.per_thread], ids=range(3))
def test_a_result_stays_in_the_context_that_it_was_computed_in(order, unbound):
    with Context.create(0) as one, Context.create(0) as other:
        with one.pushed():
            x = lr.DeviceArray.from_numpy(X, unbound())
            results = [lr.sum(x, stream=unbound()) for _ in range(3)]  # the last of them by the quick way
            keys = order.key(unbound().handle)
            launch = order.last()
        assert [result.stream.context for result in results] == [one] * 3
        with other.pushed():
            assert results[2].numpy().tobytes() == BITS
            assert order.works[order.last("cuMemcpyDtoHAsync")][1] == keys
            del results[0]
            again = lr.sum(x, stream=unbound())
            assert order.works[order.last()][1][0] == other.handle
            assert order.before(launch, order.last()), "what computed in the other context is waited for"
            assert again.stream.context == other
            assert x.stream.context == one
        assert float(results[1]) == float(results[0]), "and without any that is current"
        del x, results, again
        gc.collect()


def test_an_array_made_by_hand_is_of_the_stream_that_was_meant(order, mine):
    with Context.create(0) as other:
        memory = Buffer.allocate(4, mine)
        array = lr.DeviceArray(memory, "float32", (), Stream.legacy())
        with other.pushed():
            assert array.stream.context == mine


def test_memory_is_freed_in_the_default_stream_that_is_named(order, mine):
    with Context.create(0) as other:
        for stream, where in ((Stream.legacy(other), other), (Stream.legacy(), mine), (Stream.legacy(mine), mine)):
            memory = Buffer.allocate_async(64, Stream.legacy(mine))
            with other.pushed():
                memory.close(stream=stream)
            assert order.works[order.last("cuMemFreeAsync")][1] == (where.handle, 1, None)


# Other libraries, which work in the primary context and name streams by their handles


class Views:
    """What of cuda.core's StridedMemoryView is used, which speaks to NVIDIA's driver."""

    @staticmethod
    def from_any_interface(x, stream_ptr):
        if isinstance(x, Export):
            x.__dlpack__(stream=stream_ptr)
            x = x.array
        else:
            assert stream_ptr == -1, "it would take our streams and theirs for those of one context"
        return types.SimpleNamespace(
            **{"ptr": x.array.pointer, "shape": x.array.shape, "dtype": x.array.dtype, "strides": None},
            **{"is_device_accessible": True, "readonly": False},
        )


@pytest.fixture
def views(monkeypatch):
    monkeypatch.setattr(foreign, "_strided", Views)
    monkeypatch.setattr(exports, "only_nvidias_memory", lambda: None)  # the capsules are for nobody to read


class Produced:
    """An array of a library whose arrays are read by their attributes."""

    def __init__(self, array):
        self.array = array


@pytest.mark.parametrize("handle", [1, 2, "theirs"])
def test_the_stream_of_a_known_library_is_followed(order, mine, monkeypatch, handle):
    """At the first call, which goes through the array's view, and at the next ones, which do not."""
    with Stream.create(mine) as created, Stream.create(mine) as ours:
        theirs = created if handle == "theirs" else Stream.from_handle(handle, context=mine)
        library = Producer(
            "a library",
            known=lambda x: (library, 0, theirs.handle or 1, x.array.dtype, x.array.shape, (4,)),
            ordinal=lambda x: 0,
            pointer=lambda x: x.array.pointer,
            stream=lambda ordinal: theirs.handle or 1,
            facts=lambda x: (x.array.shape, (4,), x.array.dtype),
            read=lambda dtype, shape, strides: (shape, strides, dtype),
            plain=lambda x: True,
        )
        monkeypatch.setitem(libraries._known, Produced, library)
        x = Produced(lr.DeviceArray.from_numpy(X, theirs))
        for _ in range(3):
            x.array._buffer.copy_from(X, stream=theirs)
            written = order.last("cuMemcpyAsync")
            result = lr.sum(x, stream=ours)
            assert order.before(written, order.last())
            assert result.numpy().tobytes() == BITS


@pytest.fixture
def green(mine):
    with Context.green(0, 16) as green:
        yield green
        gc.collect()


def our_streams(mine, green):
    """Return every kind of stream of ours."""
    kinds = (Stream.legacy, Stream.create)
    return [*(make(context) for context in (mine, green) for make in kinds), Stream.per_thread(mine)]


def put(order, into):
    """Put work into a stream, and return its place."""
    memory = Buffer.allocate(4)
    memory.copy_from(Buffer.allocate(4), stream=into)
    return order.last("cuMemcpyAsync")


@pytest.mark.parametrize("handle", [None, 1, 2, "theirs"])
@pytest.mark.parametrize("kind", range(5))
def test_a_consumer_of_dlpack_waits_for_our_stream(order, views, mine, green, handle, kind):
    ours = our_streams(mine, green)[kind]
    with Stream.create(mine) as made:
        handle = made.handle if handle == "theirs" else handle
        x = lr.DeviceArray.from_numpy(X, ours)
        for current in (mine, green):
            result, launch = lr.sum(x, stream=ours), order.last()
            with current.pushed():
                result.__dlpack__(stream=handle)
            assert order.before(launch, put(order, Stream.from_handle(handle or 1, context=mine)))
        waited = len(order.waits)
        result.__dlpack__(stream=-1)
        assert len(order.waits) == waited
        del x, result


@pytest.mark.parametrize("kind", range(5))
def test_a_consumer_of_the_interface_waits_for_the_stream_that_it_names(order, mine, green, kind):
    ours = our_streams(mine, green)[kind]
    x = lr.DeviceArray.from_numpy(X, ours)
    for current in (mine, green):
        result, launch = lr.sum(x, stream=ours), order.last()
        with current.pushed():
            named = result.__cuda_array_interface__["stream"]
        consumer = Stream.create(mine)
        consumer.follow(Stream.from_handle(named, context=mine) if named <= 2 else Stream.from_handle(named))
        assert order.before(launch, put(order, consumer))
    if not (ours.is_default and ours.context == green):
        assert named == ours.handle
    del x, result


def test_the_null_stream_is_named_as_the_legacy_one(mine):
    x = lr.DeviceArray.from_numpy(X, Stream.from_handle(0, context=mine))
    assert x.__cuda_array_interface__["stream"] == 1, "0 is not allowed there"


class ByDLPack:
    def __init__(self, order, array, working, context):
        self.order, self.array, self.working, self.context = order, array, working, context

    def __dlpack__(self, *, stream):
        assert Context.current() == self.context, "in which PyTorch, for one, would make its event"
        consumer = Stream.from_handle(stream, context=self.context if stream <= 2 else None)
        if not consumer.is_same(self.working):
            consumer.follow(self.working)
        self.tensor = tensor_of(self.array.pointer, self.array.shape)
        return capsule_of(self.tensor)

    def __dlpack_device__(self):
        return 2, 0


class ByInterface:
    def __init__(self, order, array, working, context):
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "stream": working.handle}


@pytest.mark.parametrize("protocol", [ByDLPack, ByInterface])
@pytest.mark.parametrize("working", [Stream.legacy, Stream.per_thread, Stream.create])
@pytest.mark.parametrize("kind", range(5))
def test_a_producers_work_is_waited_for(order, views, mine, green, protocol, working, kind):
    ours, theirs = our_streams(mine, green)[kind], working(mine)
    x = lr.DeviceArray.from_numpy(X, Stream.legacy(mine))
    for current in (mine, green):
        foreign, written = protocol(order, x, theirs, mine), put(order, theirs)
        with current.pushed():
            result = lr.sum(foreign, stream=ours)
            assert Context.current() == current
        assert order.before(written, order.last())
        assert result.numpy().tobytes() == BITS
    del x, result, foreign


@pytest.mark.parametrize("call", [lr.normalize, functools.partial(lr.partials, chunk=1024)], ids=["rows", "partials"])
def test_an_array_of_another_stream_is_waited_for_by_what_makes_new_arrays(order, mine, call):
    with Stream.create(mine) as ours, Stream.create(mine) as theirs:
        x = lr.DeviceArray.from_numpy(X.reshape(4, -1) if call is lr.normalize else X, theirs)
        written = put(order, theirs)
        result = call(x, stream=ours)
        assert order.before(written, order.last())
        del x, result


def test_a_view_of_an_array_of_another_stream_waits_for_it(order, mine):
    """As of an output, and of shards."""
    with Stream.create(mine) as ours, Stream.create(mine) as theirs, mine.pushed():
        x = lr.DeviceArray.from_numpy(X, theirs)
        written = put(order, theirs)
        view_array(x, ours)
        assert order.before(written, put(order, ours))
        del x


def test_an_interface_without_a_stream_has_nothing_to_wait_for(order, views, mine):
    x = lr.DeviceArray.from_numpy(X, Stream.legacy(mine))
    foreign = ByInterface(order, x, Stream.legacy(mine), mine)
    with Stream.create(mine) as stream:
        foreign.__cuda_array_interface__["stream"] = None
        assert lr.sum(foreign, stream=stream).numpy().tobytes() == BITS
        assert not order.waits
        foreign.__cuda_array_interface__["stream"] = 0
        with pytest.raises(ValueError, match="names the stream 0; 1 is the legacy one"):
            lr.sum(foreign, stream=stream)


def test_a_primary_context_that_nobody_has_is_not_made(order, views):
    with Context.create(0) as created, created.pushed():
        ours = Stream.legacy(created)
        x = lr.DeviceArray.from_numpy(X, ours)
        result = lr.sum(x)
        assert result.__cuda_array_interface__["stream"] == 1
        result.__dlpack__(stream=1)
        assert not order.waits, "that is where the consumer must be"
        with contextlib.closing(Stream.create(created)) as made:
            result.__dlpack__(stream=made.handle)
            assert order.waits == [(made.handle, order.key(1))]
            foreign = ByDLPack(order, x, made, created)
            assert lr.sum(foreign, stream=ours).numpy().tobytes() == BITS
            assert order.waits[1:] == [(order.key(1), made.handle)]
        del x, result, foreign
        gc.collect()
    assert not simulator.selected().calls["cuDevicePrimaryCtxRetain"]
