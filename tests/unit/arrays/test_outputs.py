"""What an array for results must be, by what its view says of it; that asks no driver."""

import numpy as np
import pytest

from lowlevel_reduce.arrays import device_array
from lowlevel_reduce.arrays.exchange import ArrayView

FLOAT32 = np.dtype("float32")


def viewed(monkeypatch, wanted=(2, 3), *, shape=(2, 3), strides=None, dtype=FLOAT32, readonly=False):
    """Return the view of an output for results of a shape."""
    view = ArrayView(4096, shape, strides, dtype, readonly, owner=None)
    monkeypatch.setattr(device_array, "view_array", lambda out, stream: view)
    return device_array.view_output(object(), FLOAT32, wanted, None)


def test_what_fits(monkeypatch):
    for wanted, shape, strides in (((2, 3), (2, 3), None), ((2, 3), (2, 3), (12, 4)), ((), (1, 1), (400, 40))):
        assert viewed(monkeypatch, wanted, shape=shape, strides=strides).shape == shape


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"readonly": True}, ValueError, "out is read-only"),
        ({"dtype": np.dtype("float64")}, TypeError, "out is of float64; the result is float32"),
        ({"shape": (3, 2)}, ValueError, r"out has shape \(3, 2\); the result's is \(2, 3\)"),
        ({"shape": (6,)}, ValueError, r"out has shape \(6,\)"),
        ({"strides": (4, 8)}, ValueError, "not contiguous"),
        ({"strides": (16, 4)}, ValueError, "not contiguous"),
    ],
)
def test_what_does_not(monkeypatch, options, error, message):
    with pytest.raises(error, match=message):
        viewed(monkeypatch, **options)
