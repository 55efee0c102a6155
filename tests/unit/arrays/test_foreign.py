"""What this package trusts cuda.core with: its view of somebody's DLPack tensor, which needs no driver."""

import pytest

from lowlevel_reduce.arrays.foreign import strided_memory_view
from tests.fuzz.capsules import CUDA, DELETER, capsule_of, tensor_of

pytest.importorskip("cuda.core", reason="cuda-core is not installed")


class Producer:
    """Three float32 that lie `byte_offset` behind the address that is given for them."""

    def __init__(self, address, byte_offset):
        self.deleted = []
        self.tensor = tensor_of(address, (3,), byte_offset=byte_offset, deleter=DELETER(self.deleted.append))

    def __dlpack_device__(self):
        return CUDA, 0

    def __dlpack__(self, **options):
        return capsule_of(self.tensor)


def test_a_tensor_begins_at_its_byte_offset_and_is_deleted_once():
    producer = Producer(0x1000, 256)
    view = strided_memory_view().from_any_interface(producer, stream_ptr=1)
    assert (view.ptr, view.shape, view.dtype.name, view.is_device_accessible) == (0x1100, (3,), "float32", True)
    assert producer.deleted == []
    del view
    assert len(producer.deleted) == 1
