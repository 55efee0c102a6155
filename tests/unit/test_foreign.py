"""What this package trusts cuda.core with: its view of somebody's DLPack tensor, which needs no driver."""

import ctypes

import pytest

from lowlevel_reduce.foreign import strided_memory_view

pytest.importorskip("cuda.core", reason="cuda-core is not installed")

CUDA, FLOAT = 2, 2  # kDLCUDA, kDLFloat
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    """A DLManagedTensor of one axis."""

    _fields_ = (
        *(("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32)),
        *(("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)),
        *(("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64))),
        *(("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", DELETER)),
    )


class Producer:
    """Three float32 that lie `byte_offset` behind the address that is given for them."""

    def __init__(self, address, byte_offset):
        self.deleted = []
        shape = (ctypes.c_int64 * 1)(3)
        deleter = DELETER(self.deleted.append)
        self.tensor = Managed(address, (CUDA, 0), 1, FLOAT, 32, 1, shape, None, byte_offset, None, deleter)

    def __dlpack_device__(self):
        return CUDA, 0

    def __dlpack__(self, **options):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def test_a_tensor_begins_at_its_byte_offset_and_is_deleted_once():
    producer = Producer(0x1000, 256)
    view = strided_memory_view().from_any_interface(producer, stream_ptr=1)
    assert (view.ptr, view.shape, view.dtype.name, view.is_device_accessible) == (0x1100, (3,), "float32", True)
    assert producer.deleted == []
    del view
    assert len(producer.deleted) == 1
