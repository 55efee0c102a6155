"""Shapes and strides: what is one contiguous run, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowlevel_reduce import UnsupportedError, layout


@given(st.lists(st.integers(0, 5), max_size=4), st.sampled_from([1, 2, 4, 8]))
def test_contiguous_arrays_are_one_row(shape, itemsize):
    array = np.empty(shape, f"V{itemsize}")
    problem = layout.whole_array(shape, itemsize, array.strides)
    assert problem == layout.Problem(1, array.size, 1) == layout.whole_array(shape, itemsize)


@given(st.lists(st.integers(0, 4), max_size=3), st.data())
def test_agrees_with_numpys_contiguity(shape, data):
    slices = tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1]))) for _ in shape)
    order = data.draw(st.permutations(range(len(shape))))
    array = np.empty(shape, np.float32)[slices].transpose(order)
    if array.flags.c_contiguous:
        assert layout.whole_array(array.shape, 4, array.strides).length == array.size
    else:
        with pytest.raises(UnsupportedError, match="not contiguous"):
            layout.whole_array(array.shape, 4, array.strides)


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        ((3, -1), ValueError, "negative length"),
        ((2**40, 2**40), ValueError, "can be reduced"),
        ((2**38 + 1,), ValueError, "can be reduced"),
        ((2.0,), TypeError, "integers"),
        ((True,), TypeError, "integers"),
    ],
)
def test_refusals(shape, error, message):
    with pytest.raises(error, match=message):
        layout.whole_array(shape, 4)
