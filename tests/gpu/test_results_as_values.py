"""A result as a value: shown, compared, computed with, taken apart and handed to a launch."""

import operator
from collections import Counter

import fake_torch
import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.arrays import exports
from lowlevel_reduce.driver import Event, Graph, MemoryPool

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]


@pytest.fixture
def total(stream):
    return lr.sum(X, stream=stream)


@pytest.fixture
def rows(stream):
    return lr.sum(X, -1, stream=stream)


def test_it_is_shown_as_its_value_and_described_without_waiting(total, rows, stream, machine):
    assert (str(total), f"{total}", f"{total:.1f}", f"{total:8.2e}") == ("276.0", "276.0", "276.0", "2.76e+02")
    assert str(rows) == str(X.sum(-1))
    assert f"{lr.argmax(X, stream=stream):03d} {lr.any(X, stream=stream)}" == "023 True"
    before = Counter(simulator.selected().calls) if machine == "simulated" else None
    assert repr(total) == f"<DeviceArray () float32 on {stream!r}>"
    if before is not None:
        assert simulator.selected().calls == before
    with pytest.raises(TypeError, match="format numpy"):
        f"{rows:.1f}"
    large = lr.DeviceArray.from_numpy(np.zeros(1001, np.float32), stream)
    assert str(large) == repr(large), "nobody waits for what is not read"


def test_within_a_capture_it_is_described(total, stream):
    with Graph.capture(stream) as graph:
        lr.sum(lr.DeviceArray.empty((3,), "float32", stream), stream=stream)
        assert str(total) == repr(total)
    graph.close()


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # of powers, as of the NumPy scalar
@pytest.mark.parametrize("function", COMPARISONS + ARITHMETIC)
def test_operators_are_those_of_the_value(total, stream, function):
    value = X.sum()
    for other in (276, 276.0, 3, np.float32(5), np.float64(276), np.arange(1, 3)):
        for mine, expected in (
            (function(total, other), function(value, other)),
            (function(other, total), function(other, value)),
        ):
            assert np.array_equal(mine, expected)
            assert type(mine) is type(expected)
    assert np.array_equal(function(total, lr.mean(X, stream=stream)), function(value, np.float32(11.5)))
    assert np.array_equal(function(total.reshape(1, 1), 2), function(value, 2))


def test_operators_of_one_value(total):
    assert (-total, +total, abs(-1 * total), round(total / 7, 2)) == (-276, 276, 276, np.float32(39.43))


def test_a_list_is_compared_as_with_a_numpy_scalar(total, stream):
    value = np.float32(276)
    for function in COMPARISONS:
        for other in ([276, 3.5], (276.0, 1.0), [[1, 2], [3, 4]]):
            for mine, expected in (
                (function(total, other), function(value, other)),
                (function(other, total), function(other, value)),
            ):
                assert np.array_equal(mine, expected)
                assert mine.dtype == bool
    count = lr.count_nonzero(X, stream=stream)
    assert [1, 2] * count == [1, 2] * int(count), "Python's repetition"


def test_an_equality_is_never_silently_false(total, rows):
    assert (total == None, total != None, total == "276") == (False, True, False)  # noqa: E711 - what is asked
    for function in COMPARISONS + ARITHMETIC:
        compared = ([66.0, 210.0], (66.0, 210.0)) if function in COMPARISONS else ()
        for other in (3, rows, np.arange(3), *compared):
            with pytest.raises(
                TypeError, match=r"shape \(2, 3\) on the device is not compared or computed with: numpy"
            ):
                function(rows, other)
        with pytest.raises(TypeError, match="not compared or computed with"):
            function(total, rows)

    class Theirs:
        __dlpack__ = None

    for function in (operator.eq, operator.ne):
        with pytest.raises(TypeError, match="a DeviceArray and a Theirs are not computed with"):
            function(total, Theirs())
    with pytest.raises(TypeError, match="unsupported operand"):
        total + "x"


def test_it_has_no_hash_since_what_is_equal_would_need_the_same(total):
    with pytest.raises(TypeError, match="unhashable"):
        hash(total)


def test_a_single_integer_is_an_index(stream, total):
    index = lr.argmax(X, stream=stream)
    assert range(100)[index] == operator.index(index.reshape(1)) == 23
    wrong = (total, lr.argmax(X, 0, stream=stream), lr.any(X, stream=stream))
    for each in wrong:
        with pytest.raises(TypeError, match="is no integer"):
            operator.index(each)


def test_length_iteration_and_lists(rows, total):
    assert (len(rows), rows.tolist(), total.tolist()) == (2, X.sum(-1).tolist(), 276.0)
    assert [row.numpy().tolist() for row in rows] == X.sum(-1).tolist()
    assert [float(each) for each in rows[1]] == X.sum(-1)[1].tolist()
    for function in (len, iter):
        with pytest.raises(TypeError, match="has no len"):
            list(function(total)) if function is iter else function(total)


def test_parts_and_shapes_lie_in_the_same_memory(rows, stream):
    assert (rows.strides, rows.device) == ((12, 4), lr.Device(0))
    part, flat = rows[1, 1:], rows.ravel()
    assert (part.pointer, part.shape, part.stream) == (rows.pointer + 16, (2,), stream)
    assert (flat.pointer, rows.reshape(3, -1).shape) == (rows.pointer, (3, 2))
    expected = X.sum(-1)
    pointer = rows.pointer
    del rows  # the parts keep the memory
    assert flat.pointer == pointer
    assert part.numpy().tobytes() == expected[1, 1:].tobytes()
    for _ in range(2):
        assert float(lr.sum(part, stream=stream)) == expected[1, 1:].sum()
        assert lr.sum(flat.reshape(2, 3), 0, stream=stream).tolist() == expected.sum(0).tolist()
    empty = lr.DeviceArray.empty((3, 0), "float32", stream)
    assert (empty[1].shape, empty.ravel().tolist(), empty[1].pointer) == ((0,), [], 0)


PLANS = {
    "one kernel": {"op": "sum", "shape": 24},
    "two kernels": {"op": "sum", "shape": 24, "strategy": "two_pass"},
    "rows": {"op": "sum", "shape": (6, 4), "axis": 1},
    "integers": {"op": "argmax", "shape": 24},
    "two arrays": {"op": "dot", "shape": 24},
}


@pytest.mark.parametrize("kind", PLANS)
def test_a_launch_takes_arrays(stream, kind):
    options = dict(PLANS[kind])
    x = lr.DeviceArray.from_numpy(X.ravel(), stream)
    with lr.plan(options.pop("op"), dtype="float32", context=stream.context, **options) as plan:
        launch = plan.bind(stream)
        outs = [lr.DeviceArray.from_numpy(np.zeros(plan.result_shape, plan.result_dtype), stream) for _ in range(4)]
        more = [[x.pointer], [x], [x], [x.pointer]] if kind == "two arrays" else [[]] * 4
        launch(x.pointer, outs[0].pointer, *more[0])
        launch(x, outs[1], *more[1])
        launch(x.pointer, outs[2], *more[2])
        launch(x, outs[3].pointer, *more[3])
        assert len({out.numpy().tobytes() for out in outs}) == 1
        assert outs[0].numpy().any()
        launch.check(x, outs[0], *more[1])
        small = lr.DeviceArray.empty((23,), "float32", stream)
        with pytest.raises(ValueError, match="the input of the launch is the bytes 0 to 95; the array has 0 to 91"):
            launch(small, outs[0], *more[1])
        with pytest.raises(ValueError, match="the result of the launch is the bytes 0 to"):
            launch(x, lr.DeviceArray.empty((0,), "float32", stream), *more[1])
        for wrong in (X, 1.5, None):
            with pytest.raises(
                TypeError, match="source is a device address, an integer, or an array on the device, not"
            ):
                launch(wrong, outs[0].pointer, *more[0])
        launch.close()


def test_a_launch_takes_arrays_of_a_known_library(stream, monkeypatch, machine):
    if machine != "simulated":
        pytest.skip("PyTorch's own tensors are in tests/with_torch and test_interop")
    monkeypatch.setitem(__import__("sys").modules, "torch", fake_torch.module(lambda ordinal: 1))
    x, out = lr.DeviceArray.from_numpy(X.ravel(), stream), lr.DeviceArray.empty((), "float32", stream)
    with lr.plan("sum", shape=12, dtype="float32", strides_bytes=(8,), context=stream.context) as plan:
        launch = plan.bind(stream)
        launch(fake_torch.Tensor(x, (12,), (2,)), fake_torch.Tensor(out, strides=()))
        assert float(out) == X.ravel()[::2].sum()
        with pytest.raises(ValueError, match="the input of the launch is the bytes 0 to 91; the array has 0 to 47"):
            launch(fake_torch.Tensor(x, (12,), (1,)), out)
        with pytest.raises(TypeError, match="or an array on the device, not"):
            launch(fake_torch.Tensor(x, (12,), (2,), negated=True), out)
        launch.close()


def test_descriptions_say_what_is_closed(context):
    stream = lr.Stream.create(context)
    plan = lr.plan("sum", shape=24, dtype="float32", context=context)
    launch = plan.bind(stream)
    kernel = launch.kernels[0]
    assert not any("closed" in repr(each) for each in (stream, plan, launch, kernel))
    plan.close()
    launch.close()
    assert repr(plan).endswith(" closed>")
    assert repr(launch).startswith("<DirectReduction closed sum_")
    stream.close()
    assert repr(stream) == "<Stream closed>"
    assert repr(kernel).endswith("on <Stream closed>>")
    with lr.Context.create(0) as created:
        borrowed = lr.Context.from_handle(created.handle)
        assert repr(borrowed) == f"<Context {created.handle:#x} borrowed>"
    assert repr(borrowed).endswith(" borrowed ended>")
    assert repr(created) == "<Context closed>"
    segments = lr.segmented_plan("sum", length=10, segments=2, dtype="float32", context=context)
    segments.close()
    assert repr(segments).endswith(" closed>")


@pytest.mark.parametrize("kind", [lr.Stream, lr.Context, lr.Buffer, Event, Graph, MemoryPool])
def test_a_handle_says_how_it_is_made(kind):
    for values in ((), (5,)):
        with pytest.raises(TypeError, match=rf"{kind.__name__}\(\) makes no .*; use {kind.__name__}\.\w+") as caught:
            kind(*values)
    for name in str(caught.value).partition("; use ")[2].split(", "):
        assert callable(getattr(kind, name.partition(".")[2]))


@pytest.mark.parametrize("kind", ["legacy", "its own"])
def test_an_export_to_who_works_in_its_stream_asks_the_driver_nothing(kind, machine, monkeypatch):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    monkeypatch.setattr(exports, "only_nvidias_memory", lambda: None)
    with lr.Context.primary(0) as primary, primary.pushed(), lr.Stream.create(primary) as made:
        stream = lr.Stream.legacy(primary) if kind == "legacy" else made
        x = lr.DeviceArray.from_numpy(np.arange(600, dtype=np.float32).reshape(20, 30), stream)
        asked = []
        for _ in range(2):
            result = lr.sum(x, axis=1)
            before = Counter(simulator.selected().calls)
            handle = result.__cuda_array_interface__["stream"]
            assert handle == (stream.handle or 1)
            assert result.__dlpack_device__() == (2, 0)
            capsule = result.__dlpack__(stream=handle, max_version=(1, 0))
            asked.append(simulator.selected().calls - before)
            del capsule
        assert sum(asked[1].values()) <= 1, asked
        del x, result


@pytest.mark.parametrize("where", [lr.Context.primary, lr.Context.create])
def test_a_consumers_stream_that_is_none_is_refused(where, monkeypatch):
    monkeypatch.setattr(exports, "only_nvidias_memory", lambda: None)
    with where(0) as context, context.pushed(), lr.Stream.create(context) as stream:
        result = lr.sum(lr.DeviceArray.from_numpy(X, stream))
        for handle in (-2, 1 << 64, -(1 << 63)):  # a driver would be given another address, or crash
            with pytest.raises(ValueError, match="the handle of a stream has 64 bits and is not negative"):
                result.__dlpack__(stream=handle)
        with pytest.raises(ValueError, match="stream 0 is ambiguous: 1 is the legacy default stream"):
            result.__dlpack__(stream=0)
        for other in (True, 1.0, "1", stream):
            with pytest.raises(TypeError, match="the consumer's stream is an integer"):
                result.__dlpack__(stream=other)
        del result


@pytest.mark.parametrize("what", ["stream", "context", "lent context"])
def test_a_value_that_cannot_be_had_any_more_is_described(device, what):
    created = lr.Context.create(device)
    own = lr.Context.from_handle(created.handle) if what == "lent context" else created
    stream = lr.Stream.create(own)
    with own.pushed():
        result = lr.sum(lr.DeviceArray.from_numpy(X, stream))
    assert str(result) == "276.0"
    (stream if what == "stream" else created).close()
    assert str(result) == f"{result}" == repr(result)
    created.close()
