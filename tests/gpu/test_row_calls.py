"""Repeated calls of row functions: one launch, at most two questions, memory of the pool, and the same bits."""

import sys
import types
from collections import Counter

import fake_torch
import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator, tree
from lowlevel_reduce.arrays import device_array, libraries
from lowlevel_reduce.arrays.results import Cell
from lowlevel_reduce.driver import Context, Graph, Stream

ROWS = (3, 40)
X, Y = np.random.default_rng(5).standard_normal((2, *ROWS)).astype(np.float32)
WEIGHT = np.random.default_rng(6).standard_normal(ROWS[1:]).astype(np.float32)
TARGET = np.array([0, 39, 7])


@pytest.fixture(params=["legacy", "own"])
def place(request, stream):
    """A stream that is asked about captures, and one that is not but whose context must be current."""
    return stream if request.param == "own" else Stream.legacy(stream.context)


def calls_of(function):
    before = Counter(simulator.selected().calls)
    result = function()
    return result, simulator.selected().calls - before


CALLS = {
    "softmax": (lambda x, w, t, **way: lr.softmax(x, **way), lambda x, w: tree.softmax(x)),
    "axis": (lambda x, w, t, **way: lr.normalize(x, 1, 0, **way), lambda x, w: tree.normalize(x, 1, 0)),
    "weight": (lambda x, w, t, **way: lr.rms_norm(x, w, **way), tree.rms_norm),
    "several": (lambda x, w, t, **way: lr.quantize(x, **way), lambda x, w: tree.quantize(x)),
    "group": (lambda x, w, t, **way: lr.group_norm(x, 4, w, **way), lambda x, w: tree.group_norm(x, 4, w)),
    "loss": (lambda x, w, t, **way: lr.cross_entropy(x, t, reduction="none", **way), None),
}


@pytest.mark.parametrize("given", [False, True], ids=["", "stream"])
@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_is_one_launch(place, machine, name, given):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    function, meant = CALLS[name]
    way = {"stream": place} if given else {}
    with place.context.pushed():
        x, y, w, t = (lr.DeviceArray.from_numpy(each, place) for each in (X, Y, WEIGHT, TARGET))
        for _ in range(2):
            function(x, w, t, **way)
        result, calls = calls_of(lambda: function(y, w, t, **way))
        assert calls.pop("cuLaunchKernelEx") == 1
        assert sum(calls.values()) <= 2
        assert calls.keys() <= {"cuCtxGetId", "cuStreamIsCapturing", "cuCtxGetCurrent"}
    first = result if isinstance(result, lr.DeviceArray) else result[0]
    assert isinstance(first._memory, Cell)
    assert first.stream.handle == (place.handle or 1)
    if name == "softmax":
        assert result.numpy().tobytes() == lr.softmax(Y, stream=place).numpy().tobytes()
    elif meant is not None:
        got, expected = (each if isinstance(each, tuple) else (each,) for each in (result, meant(Y, WEIGHT)))
        assert [each.numpy().tobytes() for each in got] == [each.tobytes() for each in expected]


def test_repeated_into_an_output(place):
    """In place, and into an array of another stream, whose order has it; what overlaps in part is refused again."""
    with place.context.pushed(), Stream.create(place.context) as other:
        x = lr.DeviceArray.from_numpy(X, place)
        out = lr.DeviceArray.from_numpy(np.zeros_like(X), other)
        for _ in range(3):
            assert lr.rms_norm(x, eps=1e-6, out=out) is out
            assert out.numpy().tobytes() == tree.rms_norm(X, eps=1e-6).tobytes()
        expected = X
        for _ in range(3):
            lr.rms_norm(x, eps=1e-6, out=x)
            expected = tree.rms_norm(expected, eps=1e-6)
            assert x.numpy().tobytes() == expected.tobytes()
        memory = lr.DeviceArray.from_numpy(np.zeros(200, np.float32), place)
        first, behind = memory[:120].reshape(3, 40), memory[8:128].reshape(3, 40)
        lr.rms_norm(first, eps=1e-6, out=lr.DeviceArray.from_numpy(X, place))
        with pytest.raises(ValueError, match="overlaps"):
            lr.rms_norm(first, eps=1e-6, out=behind)


def test_parameters_and_options_are_part_of_a_call(place):
    with place.context.pushed():
        x = lr.DeviceArray.from_numpy(X, place)
        for _ in range(2):
            for eps in (1e-6, 0.5):
                assert lr.rms_norm(x, eps=eps).numpy().tobytes() == tree.rms_norm(X, eps=eps).tobytes()
            assert lr.rms_norm(x, eps=1e-6, dtype="float64").dtype == np.float64
            assert lr.normalize(x, 2, 0).numpy().tobytes() == tree.normalize(X, 2, 0).tobytes()
            assert lr.normalize(x, 2, 1).numpy().tobytes() == tree.normalize(X, 2, 1).tobytes()
            with pytest.raises(ValueError, match="holds 16 leaves|no strategy"):
                lr.rms_norm(x, eps=1e-6, strategy="rows")


def test_a_repeated_call_in_a_capture_is_the_graphs(stream):
    x = lr.DeviceArray.from_numpy(X, stream)
    for _ in range(2):
        lr.rms_norm(x, eps=1e-6)
    with Graph.capture(stream) as graph:
        inside = lr.rms_norm(x, eps=1e-6)
    assert not isinstance(inside._memory, Cell)
    with graph, graph.instantiate() as executable:
        executable.launch(stream)
        assert inside.numpy().tobytes() == tree.rms_norm(X, eps=1e-6).tobytes()


@pytest.fixture
def theirs(machine, monkeypatch):
    """The stream in which a stand-in for PyTorch works."""
    if machine != "simulated":
        pytest.skip("the arrays are of a stand-in for PyTorch, whose memory is the simulated device's")
    with Context.primary() as primary, primary.pushed(), Stream.create(primary) as stream:
        monkeypatch.setitem(sys.modules, "torch", fake_torch.module(lambda ordinal: stream.handle))
        libraries._known.clear()  # of a library that another test stands in for
        yield stream


def test_an_array_of_torch_is_in_torchs_stream(theirs):
    x = fake_torch.Tensor(lr.DeviceArray.from_numpy(X, theirs), strides=(40, 1))
    for _ in range(3):
        result, calls = calls_of(lambda: lr.rms_norm(x, eps=1e-6))
        assert result.stream.handle == theirs.handle
        assert result.numpy().tobytes() == tree.rms_norm(X, eps=1e-6).tobytes()
    assert calls["cuLaunchKernelEx"] == 1
    assert sum(calls.values()) <= 3


@pytest.mark.parametrize("times", [0, 2])
def test_an_output_whose_memory_was_taken_away_is_refused(theirs, times):
    """As by ``tensor.untyped_storage().resize_(0)``, which leaves its shape as it is, in any call."""
    x = lr.DeviceArray.from_numpy(X, theirs)
    out = fake_torch.Tensor(lr.DeviceArray.from_numpy(X, theirs), strides=(40, 1))
    for _ in range(times):
        lr.rms_norm(x, eps=1e-6, out=out)
    gone = types.SimpleNamespace(shape=X.shape, dtype=X.dtype, pointer=0)
    with pytest.raises(ValueError, match="not memory that the driver knows"):
        lr.rms_norm(x, eps=1e-6, out=fake_torch.Tensor(gone, strides=(40, 1)))


def test_a_parameter_of_minus_zero_is_another_than_zero(place):
    """They are equal in Python, and so were the calls that are kept by their parameters."""
    scaled = lr.RowOperation("scaled", write={"out": "x * factor"}, parameters=("factor",))
    with place.context.pushed():
        for factor in (0.0, -0.0, 0.0):
            found = lr.row_operation(scaled, X, factor=factor, stream=place).numpy()
            assert found.tobytes() == (X * np.float32(factor)).tobytes()


def by_a_protocol(array, member):
    """Return an object that has nothing but one protocol of a device array."""
    names = ("__dlpack__", "__dlpack_device__") if member == "__dlpack__" else (member,)
    return type("ByProtocol", (), {name: property(lambda _, name=name: getattr(array, name)) for name in names})()


PROTOCOLS = ("__dlpack__", "__cuda_array_interface__")


@pytest.mark.parametrize("member", PROTOCOLS)
@pytest.mark.parametrize("name", CALLS)
def test_an_array_that_has_a_protocol_alone(place, machine, monkeypatch, name, member):
    """It tells no shape and no type before it is asked for its memory."""
    function, _ = CALLS[name]
    with place.context.pushed():
        x, w, t = (lr.DeviceArray.from_numpy(each, place) for each in (X, WEIGHT, TARGET))
        if machine == "simulated":  # whose memory cuda.core does not know: the protocol's answer is made by hand
            monkeypatch.setattr(
                device_array, "foreign_view",
                lambda _, stream: device_array.ArrayView(x.pointer, x.shape, None, x.dtype, readonly=True, owner=x),
            )  # fmt: skip
        for way in ({}, {"stream": place}):
            got = function(by_a_protocol(x, member), w, t, **way)
            expected = function(x, w, t, **way)
            pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (got, expected)), strict=True)
            assert all(one.numpy().tobytes() == other.numpy().tobytes() for one, other in pairs)


@pytest.mark.parametrize("member", PROTOCOLS)
def test_gradients_of_arrays_that_have_a_protocol_alone(place, machine, monkeypatch, member):
    """The gradients of weights and biases have their types, which nothing but the protocol tells."""
    with place.context.pushed():
        arrays = [lr.DeviceArray.from_numpy(each, place) for each in (X, WEIGHT, X[:, 0].copy())]
        others = [by_a_protocol(each, member) for each in arrays]
        if machine == "simulated":  # as above
            views = {
                other: device_array.ArrayView(x.pointer, x.shape, None, x.dtype, readonly=True, owner=x)
                for x, other in zip(arrays, others, strict=True)
            }
            monkeypatch.setattr(device_array, "foreign_view", lambda other, stream: views[other])
        for way in ({}, {"stream": place}):
            found = [
                lr.rms_norm_backward(x, x, row, w, **way) + lr.layer_norm_backward(x, x, row, row, bias=True, **way)
                for x, w, row in (arrays, others)
            ]
            for one, other in zip(*found, strict=True):
                assert (one is None and other is None) or one.numpy().tobytes() == other.numpy().tobytes()


def test_what_has_neither_a_shape_nor_a_protocol_is_no_array(place):
    with place.context.pushed():
        for wrong in ([1.0, 2.0], None, 3.0):
            with pytest.raises(TypeError, match="is no array"):
                lr.softmax(wrong)
            with pytest.raises(TypeError, match="is no array"):
                lr.rms_norm(wrong)
