"""`batch_invariant` on tensors of the CPU: blocks that overlap, and what torch's own functions are like otherwise."""

import contextlib

import pytest
import torch

import lowlevel_reduce.torch as lt


def drawn(dtype=torch.float32, shape=(3, 200)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(dtype)


def is_replaced():
    x = drawn()
    return torch.equal(torch.softmax(x, -1), lt.softmax(x))


def test_blocks_end_in_any_order():
    """As those of two threads do: the first one's end must not take away what the second one's functions need."""
    whole = torch.arange(6).reshape(2, 3)
    first, second = lt.batch_invariant("cpu"), lt.batch_invariant("cpu")
    first.__enter__()
    second.__enter__()
    try:
        first.__exit__(None, None, None)
        assert is_replaced()
        assert whole.sum(1).tolist() == [3, 12]
    finally:
        second.__exit__(None, None, None)
    assert not is_replaced()
    assert whole.sum(1).tolist() == [3, 12]


def test_an_error_in_a_block_within_another_ends_that_one_alone():
    with lt.batch_invariant("cpu"):
        with pytest.raises(ZeroDivisionError), lt.batch_invariant("cpu"):
            _ = 1 / 0
        assert is_replaced()
    assert not is_replaced()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rms_norm_has_the_eps_of_torchs(dtype):
    """That of float32 for types of 16 bits, whatever torch's documentation says: small rows tell them apart."""
    x, f = drawn(dtype) * 1e-2, torch.nn.functional
    expected = f.rms_norm(x, (200,))
    with lt.batch_invariant("cpu"):
        torch.testing.assert_close(f.rms_norm(x, (200,)), expected)


@pytest.mark.parametrize("inside", [True, False], ids=["in the block", "behind the block"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm", "group_norm"])
def test_gradients_of_norms(norm, dtype, inside):
    f = torch.nn.functional
    tolerances = {"rtol": 1e-5, "atol": 1e-5} if dtype.itemsize > 2 else {"rtol": 2e-2, "atol": 2e-2}

    def found(replaced):
        x, weight = drawn(dtype).requires_grad_(), drawn(dtype, (200,)).requires_grad_()
        with contextlib.ExitStack() as stack:
            if replaced:
                stack.enter_context(lt.batch_invariant("cpu"))
            y = getattr(f, norm)(x, 25 if norm == "group_norm" else (200,), weight)
            if inside:
                (y.double() ** 2).mean().backward()
        if not inside:
            (y.double() ** 2).mean().backward()
        return y, x.grad, weight.grad

    torch.testing.assert_close(found(True), found(False), **tolerances)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_what_torch_makes_contiguous_is_contiguous(name):
    """Programs ask for a view of it, and what is traced expects it."""

    def found():
        x = drawn(shape=(4, 5, 6)).requires_grad_()
        y = getattr(torch, name)(x, 0)
        (dx,) = torch.autograd.grad((y * y).sum(), x)  # as the function gives it: x.grad would be a copy
        return y.view(-1), dx.view(-1)

    with lt.batch_invariant("cpu"):
        got = found()
    torch.testing.assert_close(got, found())
