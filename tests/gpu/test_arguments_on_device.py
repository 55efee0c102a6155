"""Arguments that make no sense, or that a key would take for others: typed errors in words, on every call."""

from fractions import Fraction

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import driver

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def x(context):
    return lr.DeviceArray.from_numpy(X, lr.Stream.legacy(context))


@pytest.mark.parametrize("one", [True, 1.0, np.True_, (True,), (1.0,)], ids=repr)
def test_an_axis_that_equals_one(x, one):
    for _ in range(3):
        assert lr.sum(x, axis=1).numpy().tolist() == [6, 15]
        assert lr.sum(x, axis=(1,)).numpy().tolist() == [6, 15]
        for array in (x, X):
            with pytest.raises(TypeError, match="an axis is an integer, not "):
                lr.sum(array, axis=one)


@pytest.mark.parametrize("one", [True, np.True_, "1"], ids=repr)
def test_a_ddof_that_equals_one(x, one):
    for _ in range(3):
        assert float(lr.var(x, ddof=1)) == 3.5
        for array in (x, X):
            with pytest.raises(TypeError, match="ddof is a real number, not "):
                lr.var(array, ddof=one)


@pytest.mark.parametrize("ddof", [1.5, np.float32(1.5), np.array(1.5), Fraction(3, 2)], ids=repr)
def test_a_ddof_that_is_no_integer(x, ddof):
    """Kernels take it as a number, so each value has the same ones."""
    for array in (x, X):
        assert float(lr.var(array, ddof=1)) == 3.5
        assert lr.var(array, ddof=ddof).numpy() == lr.tree.reduce(X, "var", ddof=1.5) == np.float32(17.5 / 4.5)
        assert (lr.std(array, correction=ddof, axis=1).numpy() == np.float32(np.sqrt(2 / 1.5))).all()
    assert lr.segmented_reduce(X[0], np.array([0, 3]), "var", ddof=ddof).numpy() == np.float32(2 / 1.5)
    flat = lr.DeviceArray.from_numpy(X.ravel(), x.stream)
    assert lr.reduce_shards([flat], "var", ddof=ddof).numpy() == np.float32(17.5 / 4.5)
    with pytest.raises(TypeError, match="correction= is the array API's name of ddof="):
        lr.mean_var(x, ddof=1, correction=1)


def test_integers_of_numpy_are_integers(x):
    for axis in (1, np.int64(1), np.array(1), [1], (np.int8(-1),)):
        assert lr.sum(x, axis=axis).numpy().tolist() == [6, 15]
    for ddof in (1, np.uint8(1), np.array(1)):
        assert float(lr.var(x, ddof=ddof)) == 3.5
        assert lr.segmented_reduce(X[0], np.array([0, 3]), "var", ddof=ddof).numpy().tolist() == [1]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"axis": {0}}, TypeError, r"an axis is an integer, not \{0\}"),
        ({"axis": np.array([0, 1])}, TypeError, "an axis is an integer, not array"),
        ({"op": ["sum"]}, TypeError, r"a name or an Operator, not \['sum'\]"),
        ({"nan": ["ignore"]}, ValueError, 'nan is "propagate" or "ignore"'),
        ({"nan": np.array(["ignore"])}, ValueError, 'nan is "propagate" or "ignore"'),
        ({"ddof": [1]}, TypeError, "ddof is a real number"),
        ({"ddof": 2**63, "op": "var"}, ValueError, "ddof is 0 or more, and at most"),
        ({"map": ["x"]}, TypeError, "a map is CUDA C[+][+] text or an ElementMap, not"),
        ({"dtype": [("a", "f4")]}, lr.UnsupportedError, "gives .*, not void"),
        ({"dtype": ">f4"}, lr.UnsupportedError, "byte order"),
        ({"accumulate": [("a", "f4")]}, lr.UnsupportedError, "accumulates in .*, not in void"),
        ({"accumulate": 3}, TypeError, "accumulate is a dtype or 'compensated', not 3"),
        ({"accumulate": "kahan"}, TypeError, "accumulate is a dtype or 'compensated', not 'kahan'"),
        ({"strategy": ["tiles"]}, TypeError, "a strategy is a name"),
        ({"allocator": "mine"}, TypeError, "the allocator is an Allocator, not str"),
        ({"initial": {1}}, ValueError, "the initial value is a number"),
    ],
    ids=str,
)
def test_options_that_have_no_place_in_a_key(x, options, error, message):
    for array in (x, X):
        with pytest.raises(error, match=message):
            lr.reduce(array, **options)
    if not {"axis", "strategy"} & options.keys():
        with pytest.raises(error, match=message):
            lr.segmented_reduce(X[0], np.array([0, 3]), **options)


@pytest.mark.parametrize("order", [[2], {2}, True, "two"], ids=repr)
def test_orders_of_norms(order):
    with pytest.raises(ValueError, match="1, 2 or inf"):
        lr.norm(X, order)


def test_last_may_be_an_array():
    assert int(lr.argmax(np.array([1, 3, 3]), last=np.array(True))) == 2


def test_masked_arrays(x):
    masked = np.ma.masked_array(X, X > 3)
    for call in (
        lambda: lr.sum(masked),
        lambda: lr.dot(x, masked),
        lambda: lr.sum(x, where=np.ma.masked_array(X > 3)),
        lambda: lr.segmented_reduce(masked[0], np.array([0, 3])),
        lambda: lr.segmented_reduce(X[0], np.ma.masked_array([0, 3])),
        lambda: lr.DeviceArray.from_numpy(masked, x.stream),
    ):
        with pytest.raises(TypeError, match=r"where=~x\.mask"):
            call()
    assert float(lr.sum(masked.data, where=~masked.mask)) == 6


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shape": True}, TypeError, "a shape holds integers, not True"),
        ({"shape": "ab"}, TypeError, "a shape holds integers, not 'a'"),
        ({"dtype": None}, TypeError, "a dtype is due, not None"),
        ({"dtype": ">f4"}, lr.UnsupportedError, "byte order"),
        ({"result_dtype": ">f4"}, lr.UnsupportedError, "byte order"),
        ({"cluster": True}, TypeError, "cluster is an integer, not True"),
        ({"cluster": 2.0}, TypeError, "cluster is an integer, not 2.0"),
        ({"block_threads": 256.0}, TypeError, "block_threads is an integer, not 256.0"),
        ({"block_threads": True}, TypeError, "block_threads is an integer, not True"),
        ({"strategy": 5}, TypeError, "a strategy is a name, not 5"),
        ({"context": 5}, TypeError, "the context is a Context, not int"),
        ({"op": "var", "ddof": 2**64}, ValueError, "at most"),
        ({"strides_bytes": (4, 4)}, ValueError, "strides_bytes has 2 strides; the shape has 1 axes"),
        ({"strides_bytes": (4.0,)}, TypeError, "strides_bytes holds integers"),
        ({"strides_bytes": (2**63,)}, ValueError, "64 bits"),
        ({"second_strides_bytes": (4,)}, TypeError, "sum takes one array"),
        ({"op": "dot", "second_strides_bytes": (4, 4)}, ValueError, "second_strides_bytes has 2 strides"),
        ({"op": "dot", "second_strides_bytes": ("4",)}, TypeError, "second_strides_bytes holds integers"),
    ],
    ids=str,
)
def test_plans(context, options, error, message):
    with pytest.raises(error, match=message):
        lr.plan(**{"op": "sum", "shape": 1000, "dtype": "float32", "context": context, **options})


def test_a_shape_is_of_any_integers(context):
    for shape in (6, np.int64(6), np.array(6), [6], np.array([6]), range(6, 7)):
        with lr.plan("sum", shape=shape, dtype="float32", context=context) as plan:
            assert plan.shape == (6,)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"offsets_dtype": ">i8"}, lr.UnsupportedError, "byte order"),
        ({"offsets_dtype": None}, TypeError, "a dtype is due"),
        ({"length": True}, TypeError, "length is an integer"),
        ({"segments": 2.0}, TypeError, "segments is an integer"),
        ({"context": "this"}, TypeError, "the context is a Context, not str"),
    ],
    ids=str,
)
def test_segmented_plans(context, options, error, message):
    with pytest.raises(error, match=message):
        lr.segmented_plan(**{"length": 10, "segments": 2, "dtype": "float32", "context": context, **options})


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.int64, np.array])
def test_sizes_of_segmented_plans_are_of_any_integers(context, kind):
    def made(length, segments):
        with lr.segmented_plan("sum", length=length, segments=segments, dtype="float32", context=context) as plan:
            return plan.length, plan.segments, plan.workspace_bytes, [entry.config for entry in plan._kernels]

    assert made(kind(200), kind(5)) == made(200, 5)


def test_binding(stream):
    with lr.Buffer.allocate(64, stream.context) as memory:
        with lr.plan("sum", shape=10, dtype="float32", context=stream.context) as plan:
            with pytest.raises(TypeError, match="the workspace is a Buffer, not ndarray"):
                plan.bind(stream, workspace=np.zeros(9))
            with pytest.raises(TypeError, match="the allocator is an Allocator, not int"):
                plan.bind(stream, allocator=5)
            for length in ("x", 3.5, memory, True):
                with pytest.raises(TypeError, match="the length is a device address, an integer, not"):
                    plan.bind(stream, length=length)
            with pytest.raises(ValueError, match="^the length begins at -8, which is not a 64-bit address"):
                plan.bind(stream, length=-8)


def test_what_a_call_refuses_a_check_refuses(stream):
    context = stream.context
    with (
        lr.Buffer.allocate(64, context) as a,
        lr.Buffer.allocate(64, context) as b,
        lr.plan("sum", shape=10, dtype="float32", context=context) as one,
        lr.plan("dot", shape=10, dtype="float32", context=context) as two,
    ):
        sums, dots = one.bind(stream), two.bind(stream)
        for refusing in (sums.check, sums):
            with pytest.raises(TypeError, match="takes one array"):
                refusing(a.pointer, b.pointer, a.pointer)
        for refusing in (dots.check, dots):
            with pytest.raises(TypeError, match="takes two arrays"):
                refusing(a.pointer, b.pointer)
        for addresses in (("a", b.pointer), (a.pointer, None), (a.pointer, 1.5)):
            with pytest.raises(TypeError, match="a device address is an integer, not"):
                sums.check(*addresses)
        with pytest.raises(TypeError, match="a device address is an integer"):
            dots.check(a.pointer, b.pointer, "c")
        for address in (-1, 2**64):
            with pytest.raises(ValueError, match=f"^the input begins at {address}, which is not a 64-bit address"):
                sums.check(address, b.pointer)
        sums.check(a.pointer, b.pointer)
        dots.check(a.pointer, b.pointer, a.pointer)
        with lr.plan("dot", shape=10, dtype="float32", strides_bytes=(-4,), context=context) as backwards:
            for kind in (np.uint64, np.int64, np.array):
                backwards.bind(stream).check(kind(a.pointer + 36), kind(b.pointer), kind(a.pointer))


@pytest.mark.parametrize(
    "make",
    [
        lambda: lr.Buffer.allocate(5, "foo"),
        lambda: lr.Buffer.pinned(5, "foo"),
        lambda: lr.Stream.create("foo"),
        lambda: driver.Event.create("foo"),
    ],
)
def test_a_context_is_a_context(make):
    with pytest.raises(TypeError, match="the context is a Context, not str"):
        make()


def test_device_arrays(stream, x):
    with pytest.raises(TypeError, match="a DeviceArray's memory is a Buffer, not int"):
        lr.DeviceArray(5, "float32", (), stream)
    with lr.Buffer.allocate(64, stream.context) as memory:
        with pytest.raises(TypeError, match="a DeviceArray's stream is a Stream, not NoneType"):
            lr.DeviceArray(memory, "float32", (), None)
        with pytest.raises(TypeError, match="a dtype is due"):
            lr.DeviceArray(memory, None, (), stream)
        with pytest.raises(ValueError, match=r"\(17,\) of float32 needs 68 bytes; the buffer has 64"):
            lr.DeviceArray(memory, "float32", 17, stream)
        assert lr.DeviceArray(memory, "float32", 16, stream).nbytes == 64
    with pytest.raises(IndexError, match=r"shape \(\) has no plane 0"):
        lr.sum(x).plane(0)
    for index in (True, 0.0, "0"):
        with pytest.raises(TypeError, match="a plane's index is an integer"):
            x.plane(index)
    for index in (1, np.int64(1), np.int32(1), np.uint8(1), np.array(1)):
        assert x.plane(index).numpy().tolist() == [4, 5, 6]
    for index in (-1, 2):
        with pytest.raises(IndexError, match=rf"shape \(2, 3\) has no plane {index}"):
            x.plane(index)


def test_shapes_of_device_arrays(stream):
    for shape in ((np.int32(2), np.uint8(3)), [2, 3], np.array([2, 3])):
        array = lr.DeviceArray.empty(shape, "float32", stream)
        assert (array.shape, array.nbytes) == ((2, 3), 24)
    with lr.Buffer.allocate(64, stream.context) as memory:
        assert lr.DeviceArray(memory, "float32", 16, stream).shape == (16,)
        for make in (
            lambda shape: lr.DeviceArray(memory, "float32", shape, stream),
            lambda shape: lr.DeviceArray.empty(shape, "float32", stream),
        ):
            for shape in ((-1,), (-2, -3)):
                with pytest.raises(ValueError, match="has a negative length"):
                    make(shape)
            for shape in ((2.5,), (True,), "ab"):
                with pytest.raises(TypeError, match="a shape holds integers"):
                    make(shape)


@pytest.mark.parametrize("borrowed", [False, True])
def test_an_array_whose_context_has_ended_has_no_address(device, borrowed):
    context = lr.Context.create(device)
    own = lr.Context.from_handle(context.handle) if borrowed else context
    with own.pushed():
        x = lr.DeviceArray.from_numpy(X, lr.Stream.legacy(own))
        results = [lr.sum(x, stream=lr.Stream.legacy(own)) for _ in range(3)]
        results += lr.minmax(x, stream=lr.Stream.legacy(own))
        assert all(each.pointer for each in results)
    context.close()
    for array in (x, *results):
        with pytest.raises(ValueError, match="context .*has ended|context is closed"):
            _ = array.pointer
        with pytest.raises(ValueError, match="context .*has ended|context is closed"):
            _ = array.__cuda_array_interface__


def test_arrays_of_other_libraries_are_nvidias(context, machine, monkeypatch):
    if machine != "simulated":
        pytest.skip("a real device has such arrays")
    x = lr.DeviceArray.from_numpy(X, lr.Stream.legacy(context))

    class Foreign:
        __cuda_array_interface__ = x.__cuda_array_interface__

    with pytest.raises(lr.UnsupportedError, match="NVIDIA's driver, and calls go to the driver 'simulator"):
        lr.sum(Foreign())

    class View:  # where there is an NVIDIA driver, which was not initialized: the simulator answers the calls
        def from_any_interface(*arguments, **options):
            raise type("CUDAError", (Exception,), {"__module__": "cuda.core._utils"})("CUDA_ERROR_NOT_INITIALIZED")

    monkeypatch.setattr("lowlevel_reduce.arrays.foreign._strided", View)
    with pytest.raises(lr.UnsupportedError, match="the driver 'simulator.*NOT_INITIALIZED"):
        lr.sum(Foreign())
    with pytest.raises(lr.UnsupportedError, match="NVIDIA's driver, and calls go to the driver 'simulator"):
        x.__dlpack__()
