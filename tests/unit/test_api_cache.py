"""The one-shot functions' store of bound launches: one user at a time, bounded, and careful with contexts that went."""

import pytest
from fake_driver import FakeDriver

from lowlevel_reduce import api
from lowlevel_reduce.driver import Buffer, Context, binding


class Bound:
    """What the store sees of a bound reduction."""

    def __init__(self, context):
        self.context = context
        self.workspace = Buffer.allocate(256, context)

    def close(self):
        self.workspace.close()


def entry(context):
    """Return an entry whose plan nobody asks for."""
    return api._Entry(None, Bound(context))


@pytest.fixture
def fake():
    driver = FakeDriver()
    binding.register("fake-cache", lambda: driver)
    with binding.use("fake-cache"):
        yield driver


def key_of(context, problem):
    return (binding.selected(), context.id, problem)


def test_what_is_in_use_is_not_given_twice(fake):
    cache = api._Cache()
    with Context.create(0) as context:
        key = key_of(context, "sum")
        assert cache.take(key) is None
        first, second = entry(context), entry(context)
        cache.give(key, first)
        cache.give(key, second)
        assert {id(cache.take(key)), id(cache.take(key))} == {id(first), id(second)}
        assert cache.take(key) is None
        first.bound.close()
        second.bound.close()


def test_the_least_recently_used_goes_first_and_frees_its_workspace(fake, monkeypatch):
    monkeypatch.setattr(api, "MAX_BOUND", 2)
    cache = api._Cache()
    with Context.create(0) as context:
        kept = {name: entry(context) for name in "abc"}
        cache.give(key_of(context, "a"), kept["a"])
        cache.give(key_of(context, "b"), kept["b"])
        cache.give(key_of(context, "a"), cache.take(key_of(context, "a")))
        cache.give(key_of(context, "c"), kept["c"])
        assert kept["b"].bound.workspace.is_closed
        assert not kept["a"].bound.workspace.is_closed
        assert fake.count("cuMemFree") == 1
        kept["a"].bound.close()
        kept["c"].bound.close()


def test_nothing_of_a_context_that_is_gone_is_freed(fake, monkeypatch):
    monkeypatch.setattr(api, "MAX_BOUND", 0)
    context = Context.create(0)
    borrowed = Context.from_handle(context.handle)
    key, old = key_of(borrowed, "sum"), entry(borrowed)
    context.close()
    fake.calls.clear()
    api._Cache().give(key, old)
    assert old.bound.workspace.is_closed
    assert fake.count("cuMemFree") == 0
