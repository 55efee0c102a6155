"""What other libraries' arrays say of themselves: what is wrong is refused by an error that names array and field."""

import numpy as np
import pytest

from lowlevel_reduce.arrays import libraries
from lowlevel_reduce.arrays.foreign import strided_memory_view
from lowlevel_reduce.arrays.protocols import Export, checked_interface, device_of, said_clearly
from lowlevel_reduce.driver import Context, Event, MemoryPool, Stream
from lowlevel_reduce.errors import UnsupportedError
from tests.fuzz.capsules import FLOAT, Versioned, axes, capsule_of, tensor_of

RIGHT = {"shape": (2, 3), "typestr": "<f4", "data": (0x1000, False), "version": 3, "strides": None, "stream": 1}


class Array:
    """An array with an interface."""

    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"shape": ()},
        {"shape": [2, 3]},
        {"shape": (np.int64(2), 3)},
        {"strides": (12, 4)},
        {"strides": (-12, 0)},
        {"data": (0, True)},
        {"data": (2**64 - 1, 0)},
        {"data": [np.uint64(5), np.True_]},
        {"mask": None},
        {"typestr": np.dtype("f2").str, "descr": [("", "<f2")]},
    ],
)
def test_an_interface_that_is_right(change):
    interface = {**RIGHT, **change}
    assert checked_interface(Array(interface)) is interface


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        *(({field: ...}, TypeError, f"has no '{field}'") for field in ("shape", "typestr", "data", "version")),
        *(({field: None}, TypeError, f"has no '{field}'") for field in ("shape", "typestr", "data", "version")),
        ({"shape": "23"}, TypeError, "'shape' is a tuple of integers"),
        ({"shape": 6}, TypeError, "'shape' is a tuple of integers, not 6"),
        ({"shape": (2.0, 3)}, TypeError, "'shape' holds integers, not 2.0"),
        ({"shape": (True, 3)}, TypeError, "'shape' holds integers, not True"),
        ({"shape": (2**63,)}, ValueError, f"'shape' holds {2**63}, which"),
        ({"shape": (-1,)}, ValueError, "'shape' holds -1, which"),
        ({"shape": (1,) * 65}, ValueError, "'shape' has 65 entries"),
        ({"strides": (4,)}, ValueError, "'strides' has 1 entries, 'shape' 2"),
        ({"strides": "ab"}, TypeError, "'strides' is a tuple"),
        ({"strides": (-(2**64), 4)}, ValueError, "'strides' holds -"),
        ({"strides": (2**63, 4)}, ValueError, "'strides' holds "),
        ({"typestr": 4}, TypeError, "'typestr' is a text, not 4"),
        ({"typestr": "<f3"}, TypeError, "'typestr' '<f3' is no type"),
        ({"typestr": "(2,f4"}, TypeError, "is no type"),
        ({"data": 5}, TypeError, "'data' is an address and whether it is read-only, not 5"),
        ({"data": (5,)}, TypeError, "'data' is an address"),
        ({"data": b"xy"}, TypeError, "'data' is an address"),
        ({"data": (True, False)}, TypeError, "'data' holds integers, not True"),
        ({"data": ("5", False)}, TypeError, "'data' holds integers, not '5'"),
        ({"data": (-1, False)}, ValueError, "'data' holds -1"),
        ({"data": (2**64, False)}, ValueError, "'data' holds "),
        ({"data": (5, None)}, TypeError, "read-only, not by None"),
        ({"version": 2}, UnsupportedError, "is of version 2; 3 is read"),
        ({"version": 2**40}, ValueError, "'version' holds "),
        ({"version": "3"}, TypeError, "'version' holds integers, not '3'"),
        ({"version": 3.5}, TypeError, "'version' holds integers"),
        ({"mask": object()}, TypeError, "the mask of a masked array would be lost"),
    ],
)
def test_a_wrong_field_is_named(change, error, words):
    interface = {name: value for name, value in {**RIGHT, **change}.items() if value is not ...}
    with pytest.raises(error) as caught:
        checked_interface(Array(interface))
    assert str(caught.value).startswith("Array.__cuda_array_interface__")
    assert words in str(caught.value)


@pytest.mark.parametrize("interface", [None, 5, [], "x"])
def test_what_is_no_interface(interface):
    with pytest.raises(TypeError, match=r"Array.__cuda_array_interface__ is a dict, not"):
        checked_interface(Array(interface))


class Tensor:
    """An array with DLPack, whose parts may be anything."""

    def __init__(self, returned=None, device=(2, 0)):
        self.returned, self.device = returned, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        return self.returned


@pytest.mark.parametrize(
    ("device", "error", "words"),
    [
        (None, TypeError, "returns a type and an ordinal, not None"),
        (5, TypeError, "returns a type and an ordinal, not 5"),
        ((2,), TypeError, "returns a type and an ordinal"),
        ("ab", TypeError, "returns a type and an ordinal"),
        ((2.0, 0), TypeError, "returns a type and an ordinal"),
        ((1, 0), ValueError, "Tensor is in host memory"),
        ((3, 0), ValueError, "Tensor is in host memory"),
        ((77, 0), UnsupportedError, "names a device of type 77"),
        ((2**40, 0), UnsupportedError, "names a device of type"),
        ((2, -1), ValueError, "names the device -1"),
        ((2, 2**40), ValueError, "names the device "),
    ],
)
def test_a_device_that_is_none(device, error, words):
    with pytest.raises(error, match="^Tensor") as caught:
        device_of(Tensor(device=device))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [(TypeError, TypeError), (ValueError, ValueError), (KeyError, BufferError), (RuntimeError, RuntimeError)],
)
@pytest.mark.parametrize("is_property", [False, True], ids=["function", "property"])
def test_a_device_that_raises(raised, kind, is_property):
    def device(tensor):
        raise raised("not today")

    raising = type("Tensor", (Tensor,), {"__dlpack_device__": property(device) if is_property else device})
    with pytest.raises(kind, match="not today") as caught:
        device_of(raising())
    assert str(caught.value).startswith("Tensor.__dlpack_device__") or raised is RuntimeError


def test_devices_of_cuda():
    assert device_of(Tensor()) == (2, 0)
    assert device_of(Tensor(device=[np.int32(13), 7])) == (13, 7)


TENSOR = tensor_of(0x1000, (3,))


def versioned(major):
    deleter = type(TENSOR.deleter)()
    return Versioned(major, 0, None, deleter, 0, 0x1000, (2, 0), 1, FLOAT, 32, 1, axes((3,)), None, 0)


def viewed(tensor):
    view = strided_memory_view().from_any_interface(Export(tensor, (2, 0)), stream_ptr=1)
    return view.ptr, view.shape, view.dtype.name


V1, V2 = versioned(1), versioned(2)


def test_a_capsule_that_is_right():
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    assert viewed(Tensor(capsule_of(TENSOR))) == (0x1000, (3,), "float32")
    assert viewed(Tensor(capsule_of(V1, b"dltensor_versioned"))) == (0x1000, (3,), "float32")


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: None, TypeError, "returns no capsule with a tensor, but None"),
        (lambda: 5, TypeError, "returns no capsule with a tensor, but 5"),
        (lambda: capsule_of(TENSOR, b"used_dltensor"), TypeError, "returns no capsule with a tensor"),
        (lambda: capsule_of(V2, b"dltensor_versioned"), UnsupportedError, "a tensor of DLPack 2; up to 1 is read"),
        (lambda: capsule_of(WRONG["ndim"]), ValueError, "a tensor of -1 axes"),
        (lambda: capsule_of(WRONG["axes"]), ValueError, "a tensor of 65 axes"),
        (lambda: capsule_of(WRONG["shape"]), ValueError, "a tensor of 1 axes without a shape"),
        (lambda: capsule_of(WRONG["device"]), ValueError, "on the device (77, 0); __dlpack_device__() says (2, 0)"),
    ],
)
def test_a_capsule_that_is_wrong(make, error, words):
    with pytest.raises(error, match=r"^Tensor\.__dlpack__") as caught:
        Export(Tensor(make()), (2, 0)).__dlpack__(stream=1)
    assert words in str(caught.value)


WRONG = {
    "ndim": tensor_of(0x1000, (3,), ndim=-1),
    "axes": tensor_of(0x1000, (3,), ndim=65),
    "shape": tensor_of(0x1000, (3,)),
    "device": tensor_of(0x1000, (3,), device=(77, 0)),
}
WRONG["shape"].shape = None


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        (AssertionError("there is none"), BufferError, "gives no array (AssertionError: there is none)"),
        (KeyError("x"), BufferError, "gives no array (KeyError"),
        (OverflowError("large"), BufferError, "gives no array (OverflowError: large)"),
        (TypeError("no"), TypeError, "Tensor.__dlpack__: no"),
        (BufferError("Tensor is sparse"), BufferError, "Tensor is sparse"),
        (NotImplementedError("lanes"), UnsupportedError, "Tensor.__dlpack__: lanes"),
        (UnsupportedError("of ours"), UnsupportedError, "of ours"),
        (RuntimeError("no driver"), RuntimeError, "no driver"),
    ],
)
def test_errors_that_say_nothing_are_put_into_words(raised, kind, words):
    said = said_clearly(Tensor(), "__dlpack__", raised)
    assert type(said) is kind
    assert words in str(said)
    assert (said is raised) == ("Tensor" not in str(said) or "Tensor" in str(raised))


def test_classes_are_not_kept_without_end():
    for _ in range(300):
        assert libraries.producer_of(type("Made", (), {})) is None
        assert 0 < len(libraries._known) <= 256


@pytest.mark.parametrize("given", [5, None, (0,), (0, 1, 2), "ab", (0, None), (0, 1.5), (0, "1"), (0, True)])
def test_a_stream_that_is_none(given):
    class Foreign:
        def __cuda_stream__(self):
            return given

    with pytest.raises(TypeError, match=r"Foreign\.__cuda_stream__\(\)"):
        Stream.of(Foreign())


@pytest.mark.parametrize("is_property", [False, True], ids=["function", "property"])
def test_a_stream_that_raises(is_property):
    due = [TypeError("not today"), ValueError("not today"), UnicodeDecodeError("utf-8", b"x", 0, 1, "not today")]

    def stream(foreign):
        raise due.pop()

    foreign = type("Foreign", (), {"__cuda_stream__": property(stream) if is_property else stream})()
    for kind in (ValueError, ValueError, TypeError):
        with pytest.raises(kind, match=r"^Foreign\.__cuda_stream__\(\): .*not today") as caught:
            Stream.of(foreign)
        assert type(caught.value) is kind


@pytest.mark.parametrize("handle", [-1, 2**64])
def test_a_stream_whose_handle_has_other_bits(handle):
    class Foreign:
        def __cuda_stream__(self):
            return 0, handle

    with pytest.raises(ValueError, match=r"Foreign\.__cuda_stream__\(\): the handle of a stream has 64 bits"):
        Stream.of(Foreign())


@pytest.mark.parametrize("kind", [Stream, Event, Context, MemoryPool])
def test_what_is_no_handle(kind):
    noun = {"MemoryPool": "memory pool"}.get(kind.__name__, kind.__name__.lower())
    for value in (1.9, "1", None, True, np.True_, [], b"1"):
        with pytest.raises(TypeError, match=f"the handle of a {noun} is an integer"):
            kind.from_handle(value)
    for value in (-5, 2**64, -(2**80)):
        with pytest.raises(ValueError, match=f"the handle of a {noun} has 64 bits"):
            kind.from_handle(value)
