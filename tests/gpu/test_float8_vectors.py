"""8-bit floats, which are converted in pairs: every element in every slot of a vector, bit for bit."""

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type

SLOTS, LEAF = 16, 4096
TYPES = ["float8_e4m3fn", "float8_e5m2"]


def assert_tree(x, stream, axis=None):
    found = lr.sum(lr.DeviceArray.from_numpy(x, stream), axis=axis, stream=stream).numpy()
    expected = lr.tree.reduce(x, axis=axis)
    wrong = np.flatnonzero(found.view("u4") != expected.view("u4"))
    assert not wrong.size, f"{wrong[:5]}: {found.ravel()[wrong[:5]]} is not {expected.ravel()[wrong[:5]]}"


@pytest.mark.parametrize("dtype", TYPES)
def test_every_element_in_every_slot(stream, dtype):
    bits = np.full((SLOTS, 256, SLOTS), 0x80, np.uint8)  # -0.0: it changes no other element's sign
    for slot in range(SLOTS):
        bits[slot, :, slot] = np.arange(256)
    assert_tree(bits.reshape(-1, SLOTS).view(element_type(dtype).dtype), stream, axis=1)


@pytest.mark.parametrize("dtype", TYPES)
def test_leaves(stream, dtype):
    rng = np.random.default_rng(8)
    bits = rng.integers(0, 256, 5 * LEAF, np.uint8)
    x = bits.view(element_type(dtype).dtype)
    bits[~np.isfinite(x.astype("f4"))] = 0x80
    assert_tree(x, stream)
    bits[LEAF + 1234] = 0xFF
    assert_tree(x, stream)
