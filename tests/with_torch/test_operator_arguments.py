"""Arguments of the operators for PyTorch: types, axes and shapes as torch takes them, and what is refused."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import lowlevel_reduce as lr
import lowlevel_reduce.torch as lt

WHOLE = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", [*WHOLE, torch.complex64], ids=str)
def test_a_sum_has_torchs_type(dtype):
    """Of 300 ones, which no type of 8 bits holds."""
    x = torch.ones(2, 300).to(dtype)
    expected = x.sum(1)
    torch.testing.assert_close(lt.sum(x, 1), expected)
    with FakeTensorMode() as mode:
        assert lt.sum(mode.from_tensor(x), 1).dtype == expected.dtype


def test_types_that_are_not_reduced_are_named():
    x = torch.ones(3)
    for call in (
        lambda: lt.sum(x.to(torch.float8_e5m2fnuz)),
        lambda: lt.sum(x, dtype=torch.float8_e5m2fnuz),
        lambda: lt.sum(x, dtype=torch.int16),
        lambda: lt.mean(x.to(torch.int16)),
        lambda: lt.softmax(x.to(torch.complex64)),
    ):
        with pytest.raises(lr.UnsupportedError, match="float8_e5m2fnuz|int16|int64|complex64"):
            call()


@pytest.mark.parametrize("dim", [2, -3, (0, 0), (1, -1)])
def test_axes_that_are_not_there_or_twice_are_refused_in_tracing_too(dim):
    x = torch.ones(3, 4)
    with pytest.raises(ValueError, match="out of bounds|twice"):
        lt.sum(x, dim)
    with FakeTensorMode() as mode, pytest.raises(ValueError, match="out of bounds|twice"):
        lt.mean(mode.from_tensor(x), dim)


def test_a_single_element_has_the_axis_that_torch_says_it_has():
    x = torch.tensor(2.5, requires_grad=True)
    (lt.sum(x, 0) + lt.mean(x, -1)).backward()
    assert x.grad == 2
    x = x.detach()
    with FakeTensorMode() as mode:
        assert lt.sum(mode.from_tensor(x), 0).shape == ()
