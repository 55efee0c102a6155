"""One-shot calls of shapes that were not met before: forms, their kernels, and what is kept of them."""

import gc
import itertools
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.calls import forms, threads
from lowlevel_reduce.driver import Graph, Stream

DRAWN = np.random.default_rng(30).standard_normal((60, 70)).astype(np.float32)


def on(stream, array):
    return lr.DeviceArray.from_numpy(np.ascontiguousarray(array), stream)


def test_options_of_new_shapes_are_told_apart(stream):
    """Each call has a shape of its own, so that only forms could be taken for one another."""
    options = [
        {}, {"axis": 0}, {"axis": 1}, {"axis": -1}, {"axis": 0, "keepdims": True}, {"dtype": "float64"},
        {"accumulate": "float32"}, {"nan": "ignore"}, {"initial": 3.0},
    ]  # fmt: skip
    sizes = iter(range(3, 60))
    for _ in range(2):
        for given, dtype in itertools.product(options, ("float32", "float64")):
            if dtype == "float64" and given.get("accumulate"):
                continue
            x = DRAWN[: next(sizes), :5].astype(dtype)
            found = lr.sum(on(stream, x), stream=stream, **given)
            expected = lr.tree.reduce(x, "sum", **given)
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype), given
            assert found.numpy().tobytes() == expected.tobytes(), given


def test_operators_with_a_second_array_are_told_apart(stream):
    for size in range(20, 26):
        x, mask = DRAWN[:size, :6], DRAWN[:size, :6] > 0
        there, taken = on(stream, x), on(stream, mask)
        assert lr.sum(there, stream=stream, where=taken).numpy() == lr.tree.reduce(x, where=mask)
        assert lr.dot(there, on(stream, x + 1), stream=stream).numpy() == lr.tree.reduce(x, "dot", second=x + 1)
        row = on(stream, mask[0])
        for given in (row, row.reshape(1, 6)):
            assert lr.sum(there, stream=stream, where=given).numpy() == lr.tree.reduce(x, where=mask[:1])
        with pytest.raises(TypeError, match="a mask of sum is of bool"):
            lr.sum(there, stream=stream, where=there)
        with pytest.raises(ValueError, match="cannot be broadcast"):
            lr.sum(there, stream=stream, where=on(stream, mask[1:]))


def test_new_shapes_in_two_streams_by_turns(context):
    with Stream.create(context) as first, Stream.create(context) as second:
        for size in range(5, 11):
            for stream in (first, second):
                for _ in range(2):  # the second one is kept
                    found = lr.sum(on(stream, DRAWN[:size]), axis=0, stream=stream)
                *_, prepared = threads.here().calls.values()
                assert prepared.place.stream.is_same(stream), "it was launched there"
                assert found.numpy().tobytes() == lr.tree.reduce(DRAWN[:size], axis=0).tobytes()
                del found


def test_new_shapes_in_the_stream_that_is_given_by_turns(context):
    """Of arrays of one stream: by all else the calls are alike."""
    with Stream.create(context) as first, Stream.create(context) as second:
        assert first.id != second.id
        for size in range(5, 11):
            x = on(first, DRAWN[:size])
            for stream in (first, second):
                for _ in range(2):  # the second one is kept
                    found = lr.sum(x, axis=0, stream=stream)
                *_, prepared = threads.here().calls.values()
                assert prepared.place.stream.is_same(stream), "it was launched there"
                assert found.numpy().tobytes() == lr.tree.reduce(DRAWN[:size], axis=0).tobytes()
                del found
            del x


def test_long_rows_and_columns_of_new_lengths_share_their_choices(stream):
    """As wide as a memory line is for columns; rows lie apart, at odd addresses, or one after the other."""
    flat = np.random.default_rng(33).standard_normal(70_000).astype(np.float32)
    whole = on(stream, flat)
    threads.here().forget()
    for rows, first, last in ((3, 1025, 1600), (5, 1030, 1200), (3, 3000, 3200)):
        for length in range(first, last, 83):
            x, there = (each[: rows * length].reshape(rows, length) for each in (flat, whole))
            for keepdims in (False, True):
                found = lr.sum(there, axis=1, keepdims=keepdims, stream=stream)
                expected = lr.tree.reduce(x, axis=1, keepdims=keepdims)
                assert (found.shape, found.numpy().tobytes()) == (expected.shape, expected.tobytes()), length
            columns, below = (each[: rows * length].reshape(length, rows) for each in (flat, whole))
            found = lr.sum(below, axis=0, stream=stream)
            assert found.numpy().tobytes() == lr.tree.reduce(columns, axis=0).tobytes(), length
    *_, of_columns = threads.here().forms.values()
    assert len(of_columns._choices) == 4, "one for each number of rows and of begun leaves"


@pytest.mark.parametrize(("axis", "rows"), [(None, 5), (1, 3)])
def test_a_call_that_is_kept_is_as_before_after_a_shape_that_comes_once(stream, axis, rows):
    """Both take one launcher, which holds the argument of the call that is kept only until another one comes."""
    flat = np.random.default_rng(35).standard_normal(6000).astype(np.float32)
    whole = on(stream, flat)
    for length in (1100, 1100, 1104, 1100, 1108, 1100):  # the first other one is prepared as well
        shape = rows, length
        x, there = (each[: shape[0] * shape[1]].reshape(shape) for each in (flat, whole))
        found = lr.sum(there, axis=axis, stream=stream)
        assert found.numpy().tobytes() == lr.tree.reduce(x, axis=axis).tobytes(), shape


def test_the_stream_of_an_array_waits_for_a_shape_that_comes_once(context, monkeypatch):
    with Stream.create(context) as first, Stream.create(context) as second:
        arrays = [on(first, DRAWN[:size]) for size in (5, 6, 7)]
        for x in arrays[:2]:
            lr.sum(x, stream=second)
        waited = []
        monkeypatch.setattr(threads.here(), "wait", lambda *pair: waited.append(tuple(each.id for each in pair)))
        lr.sum(arrays[2], stream=second)
        assert waited == [(second.id, first.id), (first.id, second.id)]
        context.synchronize()
        del arrays, x


def test_strides_count_elements_or_bytes(stream):
    """As the library of an array has them: what is laid out is the same."""
    threads.here().forget()
    whole = on(stream, np.zeros(8000, np.float32))
    for shape, axis, strides, apart in (((3, 1100), 1, (1100, 1), (1400, 1)), ((3300,), None, (1,), (2,))):
        size = int(np.prod(shape))
        for _ in range(2):
            lr.sum(whole[:size].reshape(shape), axis=axis, stream=stream)
        *_, form = threads.here().forms.values()
        _, results, _, expected = form.laid((lr.DeviceArray, 0, 0, None, shape))
        assert results.shape == shape[:-1]
        for unit, in_elements in ((1, True), (4, False)):
            library = SimpleNamespace(in_elements=in_elements)
            known = (library, 0, 0, None, shape, tuple(unit * stride for stride in strides))
            assert form.laid(known)[3] == expected
            other = form.laid((*known[:5], tuple(unit * stride for stride in apart)))
            assert other is None if axis is None else other[3][0] == (3, 1100, 5600, 4)


def test_no_more_choices_are_kept_than_the_bound(stream, monkeypatch):
    monkeypatch.setattr(forms, "MAX_CHOICES", 3)
    threads.here().forget()
    whole = on(stream, np.zeros(20_000, np.float32))
    for length in range(1025, 5000, 300):
        lr.sum(whole[: 3 * length].reshape(3, length), axis=1, stream=stream)
        (form,) = threads.here().forms.values()
        assert 0 < len(form._choices) <= 3


def test_of_shapes_that_come_once_nothing_is_kept(stream, monkeypatch):
    """What is kept for each is looked through by the collector; of a shape that comes again, the call is kept."""
    monkeypatch.setattr(threads, "MAX_MET", 8)
    whole = on(stream, DRAWN.reshape(-1))
    lr.sum(whole[:5])
    mine = threads.here()
    before = len(mine.calls)
    for size in range(6, 26):
        assert lr.sum(whole[:size]).numpy() == lr.tree.reduce(DRAWN.reshape(-1)[:size])
    assert (len(mine.calls), len(mine._met) <= 8) == (before, True)
    for expected in (before + 1, before + 1):
        assert lr.sum(whole[:25]).numpy() == lr.tree.reduce(DRAWN.reshape(-1)[:25])
        assert len(mine.calls) == expected


SHAPES = [
    ((300,), None), ((1025,), None), ((2900,), None), ((4600,), None), ((17, 64), 1), ((17, 63), 1), ((3, 1400), 1),
    ((3, 1401), 1), ((40, 8), 0), ((40, 9), 0), ((30, 4, 5), (0, 2)), ((30, 4, 5), 1), ((2, 0), 0), ((0, 2), 0),
    ((1, 1), None), ((7, 1), 1), ((1, 7), 1),
]  # fmt: skip


def test_new_shapes_take_the_kernels_of_their_strategies(stream):
    """One form meets shapes of all kinds by turns, each of them once and once more at an odd address."""
    flat = np.random.default_rng(31).standard_normal(8000).astype(np.float32)
    whole = on(stream, flat)
    for more in (0, 1, 0):
        for first, axis in SHAPES:
            shape = (first[0] + 2 * more * (0 not in first), *first[1:])
            size = int(np.prod(shape))
            x = whole[more : more + size].reshape(shape)
            found = lr.sum(x, axis=axis, stream=stream)
            expected = np.asarray(lr.tree.reduce(flat[more : more + size].reshape(shape), axis=axis))
            assert found.shape == expected.shape
            assert found.numpy().tobytes() == expected.tobytes(), (shape, axis, more)


def test_few_tiles_and_many_have_kernels_of_their_own(stream):
    """That of up to 256 tiles, of eight leaves here, would leave out the others' partials."""
    x = np.random.default_rng(32).standard_normal((256 * 8 + 9) * 512)
    whole = on(stream, x)
    for size in (100 * 512, x.size, 101 * 512):
        found = lr.dot(whole[:size], whole[:size], stream=stream)
        assert found.numpy().tobytes() == lr.tree.reduce(x[:size], "dot", second=x[:size]).tobytes(), size


def test_forms_go_with_their_place(context, monkeypatch):
    monkeypatch.setattr(threads, "MAX_FORMS", 3)
    threads.here().forget()
    with Stream.create(context) as stream:
        for accumulate, size in itertools.product(("float32", "float64", "compensated"), range(4, 7)):
            x = on(stream, DRAWN[0, :size])
            for axis in (None, 0):
                lr.sum(x, axis=axis, accumulate=accumulate, stream=stream)
                assert 0 < len(threads.here().forms) <= 3
                assert len(threads.here().kinds) <= 3
        assert threads.here().kinds
        del x
    with Stream.create(context) as another:
        lr.sum(on(another, DRAWN[0]), stream=another)
        (form,) = threads.here().forms.values()
        assert form.place.stream.handle == another.handle, "what the closed stream had has gone"
        assert not threads.here().kinds
        del form
    threads.here().forget()
    gc.collect()


def test_captures_of_new_streams_leave_nothing(context):
    """Such a stream gets its number later, and then a place that lasts."""
    threads.here().forget()
    with Stream.create(context) as stream:
        x, out = on(stream, DRAWN), lr.DeviceArray.empty((), "float32", stream)
        assert not stream.has_number
        with Graph.capture(stream) as graph:
            lr.sum(x, stream=stream, out=out)
        graph.close()
        assert not threads.here().forms
        assert not threads.here().problems
        lr.sum(x, stream=stream, out=out)
        assert len(threads.here().forms) == 1
        del x, out


def test_a_strategy_that_is_forced_goes_with_whole_arrays_alone(stream, monkeypatch):
    monkeypatch.setenv("LOWLEVEL_REDUCE_STRATEGY", "two_pass")
    for size in (40, 41):
        x = on(stream, DRAWN[:size])
        assert lr.sum(x, stream=stream).numpy().tobytes() == lr.tree.reduce(DRAWN[:size]).tobytes()
        assert lr.sum(x, axis=1, stream=stream).numpy().tobytes() == lr.tree.reduce(DRAWN[:size], axis=1).tobytes()
    with pytest.raises(ValueError, match="nonsense"):
        lr.sum(x, stream=stream, strategy="nonsense")


def test_options_without_a_hash_are_looked_at_each_time(stream):
    for size in (5, 5, 6):
        x = on(stream, DRAWN[0, :size])
        assert lr.argmax(x, stream=stream, last=np.array(True)).item() == DRAWN[0, :size].argmax()


def test_a_repeated_call_in_a_capture_asks_little(stream, machine):
    """And its result lies in memory of the graph, which replays compute anew."""
    x = on(stream, DRAWN)
    for _ in range(2):
        lr.sum(x, axis=1, stream=stream)
    with Graph.capture(stream) as graph:
        before = Counter(simulator.selected().calls) if machine == "simulated" else None
        rows = lr.sum(x, axis=1, stream=stream)
        if before is not None:
            asked = simulator.selected().calls - before
            assert (asked.pop("cuLaunchKernelEx"), asked.pop("cuMemAllocAsync")) == (1, 1)
            assert sum(asked.values()) <= 5, asked
            before = Counter(simulator.selected().calls)
            again = lr.sum(x, axis=1, stream=stream)
            asked = simulator.selected().calls - before
            assert asked == {"cuLaunchKernelEx": 1, "cuStreamIsCapturing": 1, "cuStreamGetCaptureInfo": 1}
            del again
        out = lr.DeviceArray.empty((), "float32", stream)
        lr.sum(rows, stream=stream, out=out)
        copied = np.empty((), np.float32)
    del rows, out, copied
    graph.close()


def test_replays_of_repeated_calls_reduce_what_is_there_then(stream):
    x, out = on(stream, DRAWN), lr.DeviceArray.empty((60,), "float32", stream)
    for _ in range(2):
        lr.sum(x, axis=1, stream=stream, out=out)
    with Graph.capture(stream) as graph:
        lr.sum(x, axis=1, stream=stream, out=out)
    with graph, graph.instantiate() as executable:
        x._buffer.copy_from(DRAWN + 1, stream=stream)
        executable.launch(stream)
        assert out.numpy().tobytes() == lr.tree.reduce(DRAWN + 1, axis=1).tobytes()
