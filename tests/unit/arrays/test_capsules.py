"""DLPack capsules: what stands in them, how long they keep the memory, and that deleting a tensor harms nobody."""

import ctypes
import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

from lowlevel_reduce.arrays import capsules
from lowlevel_reduce.arrays.capsules import capsule_of
from lowlevel_reduce.arrays.foreign import strided_memory_view
from lowlevel_reduce.dtypes import numpy_dtype
from tests.fuzz.capsules import CUDA, Managed, Versioned

ADDRESS = 0x7F00_0000_1003
KINDS = {"versioned": (b"dltensor_versioned", Versioned), "unversioned": (b"dltensor", Managed)}
TYPES = {
    **{"bool": (6, 8), "int8": (0, 8), "int64": (0, 64), "uint16": (1, 16), "uint32": (1, 32)},
    **{"float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "complex64": (5, 64), "complex128": (5, 128)},
    **{"bfloat16": (4, 16), "float8_e4m3": (10, 8), "float8_e5m2": (12, 8)},
}
set_name = ctypes.pythonapi.PyCapsule_SetName
set_name.restype, set_name.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


class Owner:
    """What keeps memory alive."""


def made(kind="versioned", dtype="float32", shape=(3, 5), owner=None, address=ADDRESS):
    return capsule_of(owner, address, shape, numpy_dtype(dtype), 3, versioned=kind == "versioned")


def struct_of(capsule, kind):
    name, struct = KINDS[kind]
    return struct.from_address(capsules._pointer_of(capsule, name))


@pytest.fixture(params=KINDS)
def kind(request):
    if request.param == "versioned" and not capsules._VERSIONED:
        pytest.skip("this NumPy has no versioned struct")
    return request.param


@pytest.mark.parametrize("dtype", TYPES)
def test_the_fields_of_each_type(kind, dtype):
    capsule = made(kind, dtype)
    told = struct_of(capsule, kind)
    assert (told.data, list(told.device), told.ndim, told.byte_offset) == (ADDRESS, [CUDA, 3], 2, 0)
    assert (told.code, told.bits, told.lanes) == (*TYPES[dtype], 1)
    assert told.shape[:2] == [3, 5]
    assert not told.strides or told.strides[:2] == [5, 1]  # none is C order
    if kind == "versioned":
        assert (told.major, told.flags) == (1, 0)


@pytest.mark.parametrize(("address", "shape"), [(0, (0,)), (0, (2, 0, 3)), ((1 << 63) + 8, ()), (1 << 12, (1 << 38,))])
def test_addresses_and_shapes_at_the_edges(kind, address, shape):
    capsule = made(kind, shape=shape, address=address)
    told = struct_of(capsule, kind)
    assert (told.data or 0, told.ndim, tuple(told.shape[: len(shape)]) if shape else ()) == (address, len(shape), shape)


@pytest.mark.parametrize("dtype", ["M8[s]", "U3", "S2", "V4", [("a", "f4")]], ids=str)
def test_a_type_that_dlpack_lacks_is_refused(kind, dtype):
    with pytest.raises(BufferError):
        capsule_of(None, ADDRESS, (3,), np.dtype(dtype), 0, versioned=kind == "versioned")


def test_a_capsule_that_nobody_takes_keeps_the_memory_as_long_as_it_lives(kind):
    owner = Owner()
    told, capsule = weakref.ref(owner), made(kind, owner=owner)
    del owner
    gc.collect()
    assert told() is not None
    del capsule
    assert told() is None


def taken(capsule, kind):
    """Take a capsule as a consumer does, and return the function that deletes its tensor."""
    tensor, name = struct_of(capsule, kind), KINDS[kind][0]
    used = b"used_" + name
    assert set_name(capsule, used) == 0
    deleter, address = tensor.deleter, ctypes.addressof(tensor)
    return lambda used=used: deleter(address)


def test_a_tensor_keeps_the_memory_until_its_consumer_deletes_it(kind):
    owner = Owner()
    told, capsule = weakref.ref(owner), made(kind, owner=owner)
    del owner
    delete = taken(capsule, kind)
    del capsule
    assert told() is not None
    delete()  # as C code does: without the interpreter's lock
    assert told() is None


def test_an_exception_that_is_under_way_survives(kind):
    """A capsule on the stack goes while it is raised; a deleter in Python would have lost it."""
    owner = Owner()
    told, capsules_of = weakref.ref(owner), []

    def export():
        return made(kind, owner=capsules_of.pop())

    capsules_of.append(owner)
    del owner
    with pytest.raises(ZeroDivisionError):
        print(export(), 1 / 0)
    assert told() is None


def test_nothing_is_left_of_many(kind):
    owner = Owner()
    before = sys.getrefcount(owner)
    for _ in range(1000):
        delete = taken(made(kind, owner=owner), kind)
        delete()
        made(kind, owner=owner)
    assert sys.getrefcount(owner) == before


def test_a_tensor_may_be_deleted_after_the_interpreter_has_ended():
    script = (
        "import ctypes; from test_capsules import *; "
        "capsule = made('unversioned', owner=Owner()); tensor = struct_of(capsule, 'unversioned'); "
        "set_name(capsule, NAME := b'used_dltensor'); "
        "deleter = ctypes.cast(tensor.deleter, ctypes.c_void_p); "
        "at_exit = ctypes.CDLL(None).__cxa_atexit; at_exit.argtypes = (ctypes.c_void_p,) * 3; "
        "ctypes.pythonapi.Py_IncRef(ctypes.py_object(NAME)); "
        "print(at_exit(deleter, ctypes.addressof(tensor), None))"
    )
    path = [*sys.path, str(__file__).rpartition("/")[0]]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {path}; {script}"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@pytest.mark.parametrize("dtype", ["float32", "bool", "bfloat16", "complex64"])
def test_a_consumer_reads_it(dtype):
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")

    class Producer:
        def __dlpack_device__(self):
            return CUDA, 3

        def __dlpack__(self, *, max_version=None, **options):
            return made("versioned" if max_version else "unversioned", dtype, owner=owner)

    owner = Owner()
    before = sys.getrefcount(owner)
    view = strided_memory_view().from_any_interface(Producer(), stream_ptr=1)
    assert (view.ptr, view.shape, view.dtype) == (ADDRESS, (3, 5), numpy_dtype(dtype))
    assert view.strides in (None, (5, 1))
    assert (view.device_id, view.readonly, sys.getrefcount(owner)) == (3, False, before + 1)
    del view
    assert sys.getrefcount(owner) == before
