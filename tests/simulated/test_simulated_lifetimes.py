"""What was made in a context, and who ends that: addresses that are used again, and captures that outlive a cache."""

import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.driver import Context, Stream


def at_the_address_of(driver, context, monkeypatch):
    """Return a context that is made, as allocators do, where `context` was, which its owner ends."""
    address = context.handle
    context.close()
    monkeypatch.setattr(driver._state, "new_handle", lambda: address)
    other = Context.create()
    monkeypatch.undo()
    assert other.handle == address
    return other


def test_a_plan_is_not_bound_in_another_context_at_the_address_of_its_own(driver, monkeypatch):
    """Its kernels' grids are for the one that has ended, and what it allocates would never be freed."""
    owner = Context.create()
    plan = lr.plan("sum", shape=200_000, dtype="float32", context=Context.from_handle(owner.handle), strategy="tiles")
    with at_the_address_of(driver, owner, monkeypatch) as other, Stream.create(other) as stream:
        assert stream.context == plan.context
        before = driver.leaks()
        with pytest.raises(ValueError, match="has ended: make it anew"):
            plan.bind(stream)
        assert driver.leaks() == before
