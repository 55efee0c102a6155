"""`batch_invariant` on tensors of the CPU: blocks that overlap, and what torch's own functions are like otherwise."""

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
