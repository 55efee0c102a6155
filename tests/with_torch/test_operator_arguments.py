"""Arguments of the operators for PyTorch: types, axes and shapes as torch takes them, and what is refused."""

import numpy as np
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


@pytest.mark.parametrize("shape", [(3, 0), (2, 0, 5), (0,)])
def test_gradients_of_norms_without_elements(shape):
    for norm in (lt.rms_norm, lt.layer_norm):
        x, weight = torch.ones(shape, requires_grad=True), torch.ones(shape[-1], requires_grad=True)
        norm(x, weight).sum().backward()
        assert x.grad.shape == x.shape
        assert torch.equal(weight.grad, torch.zeros(shape[-1]))


def test_a_means_gradient_is_rounded_once():
    x = torch.ones(3, 7, dtype=torch.bfloat16, requires_grad=True)
    for mean in (lt.mean, torch.mean):
        x.grad = None
        (mean(x, 1, dtype=torch.float32) * 1.00390625).sum().backward()
        assert (x.grad == torch.tensor(1.00390625 / 7).bfloat16()).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: lt.softmax(x, scale=-1.0), "scale is above 0"),
        (lambda x: lt.log_softmax(x, scale=float("nan")), "scale is above 0"),
        (lambda x: lt.rms_norm(x, eps=-1.0), "eps is 0 or more"),
        (lambda x: lt.layer_norm(x, eps=float("nan")), "eps is 0 or more"),
        (lambda x: lt.softmax(x[0, 0]), "one axis at least"),
    ],
)
def test_what_the_functions_of_arrays_refuse(call, words):
    with pytest.raises(ValueError, match=words):
        call(torch.ones(2, 3))


def test_arrays_of_several_devices_are_refused_where_nothing_is_computed():
    """As a weight that is still without memory, for which torch asks the fake kernel, whatever the rows are."""
    x, weight, target = torch.ones(3, 4), torch.ones(4, device="meta"), torch.zeros(3, dtype=torch.int64, device="meta")
    for call in (
        lambda: lt.rms_norm(x, weight),
        lambda: lt.layer_norm(x, None, weight),
        lambda: lt.rms_norm(x.to("meta"), torch.ones(4)),
        lambda: lt.cross_entropy(x, target),
        lambda: torch.ops.lowlevel_reduce.softmax_backward(x.to("meta"), x, 1.0, False),
    ):
        with pytest.raises(ValueError, match="is on (meta|cpu), the rows on (meta|cpu)"):
            call()
    assert lt.rms_norm(x.to("meta"), weight).shape == (3, 4)


@pytest.mark.parametrize("dim", [np.int64(1), (np.int64(0), 1), torch.Size([0]), [], ()], ids=str)
def test_axes_may_be_numpys_integers(dim):
    x = torch.ones(3, 4)
    torch.testing.assert_close(lt.sum(x, dim), x.sum(dim))
