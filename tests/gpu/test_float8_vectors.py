"""8-bit floats, which are converted in pairs: every element in every slot of a vector, bit for bit."""

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type

pytestmark = pytest.mark.usefixtures("without_elements")

SLOTS, LEAF = 16, 4096
TYPES = ["float8_e4m3fn", "float8_e5m2"]
OPERATORS = ["sum", "norm1", "norm2", "sum_squares", "norm_inf", "prod"]


def assert_tree(x, stream, op, axis=None):
    found = lr.reduce(lr.DeviceArray.from_numpy(x, stream), op, axis=axis, stream=stream).numpy()
    expected = lr.tree.reduce(x, op, axis=axis)
    wrong = np.flatnonzero(found.view(f"u{found.itemsize}") != expected.view(f"u{found.itemsize}"))
    assert not wrong.size, f"{wrong[:5]}: {found.ravel()[wrong[:5]]} is not {expected.ravel()[wrong[:5]]}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", OPERATORS)
def test_every_element_in_every_slot(stream, op, dtype):
    neutral = np.array(1 if op == "prod" else -0.0, element_type(dtype).dtype)  # -0.0 changes no other element's sign
    bits = np.full((SLOTS, 256, SLOTS), neutral.view(np.uint8), np.uint8)
    for slot in range(SLOTS):
        bits[slot, :, slot] = np.arange(256)
    assert_tree(bits.reshape(-1, SLOTS).view(element_type(dtype).dtype), stream, op, axis=1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", OPERATORS)
def test_leaves(stream, op, dtype):
    rng = np.random.default_rng(8)
    bits = rng.integers(0, 256, 5 * LEAF, np.uint8)
    x = bits.view(element_type(dtype).dtype)
    bits[~np.isfinite(x.astype("f4"))] = 0x80
    assert_tree(x.reshape(-1, SLOTS), stream, op, axis=1)
    if op == "prod":  # of factors that both types have, and whose logarithms' mean is nearly zero
        x[:] = rng.choice([0.875, -0.875, 1.25, -1.25], x.size, p=[0.313, 0.313, 0.187, 0.187]).astype(x.dtype)
    assert_tree(x, stream, op)
    bits[LEAF + 1234] = 0xFF
    assert_tree(x, stream, op)
