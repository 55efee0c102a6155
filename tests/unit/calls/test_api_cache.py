"""The one-shot functions' store of bound launches: one user at a time, bounded, and careful with contexts that went."""

import contextlib
import itertools
import weakref

import pytest
from fake_driver import FakeDriver
from in_threads import in_threads

from lowlevel_reduce.calls import prepared
from lowlevel_reduce.driver import Buffer, Context, Stream, binding
from tests.fuzz.interrupts import acting_at


class Bound:
    """What the store sees of a bound reduction."""

    def __init__(self, context):
        self.context = context
        self.stream = Stream.create(context)
        self.workspace = Buffer.allocate(256, context)
        self.is_free = True

    def close(self):
        self.workspace.close()


class Thread:
    """Whom a launch is lent to."""


def entry(context, lent_to=None):
    """Return an entry whose plan nobody asks for."""
    made = prepared.Entry(None)
    made.bound = Bound(context)
    made.lent_to = None if lent_to is None else weakref.ref(lent_to)
    return made


@pytest.fixture
def fake():
    driver = FakeDriver()
    binding.register("fake-cache", lambda: driver)
    with binding.use("fake-cache"):
        yield driver


def key_of(context, problem):
    return (binding.selected(), context.id, problem)


def test_what_is_in_use_is_not_given_twice(fake):
    cache = prepared.LaunchCache()
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
    monkeypatch.setattr(prepared, "MAX_BOUND", 2)
    cache = prepared.LaunchCache()
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
    monkeypatch.setattr(prepared, "MAX_BOUND", 0)
    context = Context.create(0)
    borrowed = Context.from_handle(context.handle)
    key, old = key_of(borrowed, "sum"), entry(borrowed)
    context.close()
    fake.calls.clear()
    prepared.LaunchCache().give(key, old)
    assert old.bound.workspace.is_closed
    assert fake.count("cuMemFree") == 0


def test_nothing_is_freed_in_another_context_that_has_the_handle_by_now(fake, monkeypatch):
    monkeypatch.setattr(prepared, "MAX_BOUND", 0)
    another = Context.from_handle(fake.cuCtxCreate(0, 0)[1])
    old = entry(another)
    prepared.LaunchCache().give((binding.selected(), another.id - 1, "sum"), old)
    assert old.bound.workspace.is_closed
    assert fake.count("cuMemFree") == 0


def test_what_is_lent_is_its_borrowers_alone_while_that_lives(fake):
    cache, mine, other = prepared.LaunchCache(), Thread(), Thread()
    with Context.create(0) as context:
        key, lent = key_of(context, "sum"), entry(context, lent_to=mine)
        cache.give(key, lent)
        assert cache.take(key, other) is None
        assert cache.take(key) is None
        assert cache.take(key, mine) is lent
        cache.give(key, lent)
        del mine
        assert cache.take(key, other) is lent
        lent.bound.close()


def test_what_its_borrower_is_in_a_call_of_is_not_taken(fake):
    cache, mine = prepared.LaunchCache(), Thread()
    with Context.create(0) as context:
        key, lent = key_of(context, "sum"), entry(context, lent_to=mine)
        lent.bound.is_free = False
        cache.give(key, lent)
        assert cache.take(key, mine) is None, "mine is asked for by a signal's handler"
        lent.bound.is_free = True
        assert cache.take(key, mine) is lent
        lent.bound.close()


def test_a_signals_handler_may_take_and_give_at_any_moment(fake, monkeypatch):
    """Also while this very thread is in the store, and looks at one entry after the other."""
    cache, borrower, seen = prepared.LaunchCache(), prepared.Entry.borrower, []
    with Context.create(0) as context:
        key, first, second = key_of(context, "sum"), entry(context), entry(context)

        def interrupted(self):
            if not seen:
                seen.append("interrupted")
                cache.give(key, cache.take(key))  # the first is the last now
            return borrower(self)

        monkeypatch.setattr(prepared.Entry, "borrower", interrupted)
        cache.give(key, first)
        cache.give(key, second)
        in_threads(lambda: seen.extend(cache.take(key) for _ in range(3)), timeout=20)
        assert seen == ["interrupted", first, second, None]
        first.bound.close()
        second.bound.close()


@pytest.mark.parametrize("others", [False, True])
def test_a_signals_handler_loses_no_entry_at_any_place(fake, others):
    """It makes a call of the same problem, or of another one for which there is nothing, inside of any step."""
    for step in itertools.count():
        cache = prepared.LaunchCache()
        with Context.create(0) as context, contextlib.ExitStack() as undo:
            key, other = key_of(context, "sum"), key_of(context, "max")
            first, closed = entry(context), entry(context)
            for each in (first, closed):
                undo.callback(each.bound.close)
            closed.bound.stream.close()
            cache.give(other, closed)
            seen = []

            def handler(key=other if others else key, context=context, undo=undo, cache=cache, seen=seen):
                mine = cache.take(key)
                if mine is None:
                    mine = entry(context)
                    undo.callback(mine.bound.close)
                cache.give(key, mine)
                seen.append(mine)

            def use(cache=cache, first=first, key=key, other=other):
                cache.give(key, first)
                missing = cache.take(key_of(first.bound.context, "none"))
                assert missing is None
                cache.give(key, cache.take(key))

            over = acting_at(use, step, prepared.__file__.__eq__, handler) >= 0
            found = [one for one in (cache.take(each) for each in (key, key, other, other)) if one is not None]
            assert len(found) == len(set(found)), step
            assert set(found) == {first, *seen}, step
        if over:
            break
    assert step > 50


def test_what_is_lent_is_not_closed_when_it_goes(fake, monkeypatch):
    monkeypatch.setattr(prepared, "MAX_BOUND", 0)
    cache, mine = prepared.LaunchCache(), Thread()
    with Context.create(0) as context:
        key, lent = key_of(context, "sum"), entry(context, lent_to=mine)
        cache.give(key, lent)
        assert cache.take(key, mine) is None
        assert not lent.bound.workspace.is_closed
        lent.bound.close()


@pytest.mark.parametrize("noun", ["stream", "context"])
def test_what_refuses_every_call_is_freed_and_not_given(fake, noun):
    cache = prepared.LaunchCache()
    with Context.create(0) as context:
        given = Context.from_handle(context.handle)
        key, over, good = key_of(context, "sum"), entry(given), entry(context)
        getattr(over.bound, noun).close()
        cache.give(key, good)
        cache.give(key, over)
        del over
        assert fake.count("cuMemFree") == 0
        assert cache.take(key) is good
        assert fake.count("cuMemFree") == 1
        assert cache.take(key) is None
        good.bound.close()


def test_what_goes_after_its_context_was_closed_here_is_freed(fake, monkeypatch):
    monkeypatch.setattr(prepared, "MAX_BOUND", 0)
    with Context.create(0) as context:
        given = Context.from_handle(context.handle)
        key, old = key_of(context, "sum"), entry(given)
        given.close()
        prepared.LaunchCache().give(key, old)
        assert old.bound.workspace.is_closed
        assert fake.count("cuMemFree") == 1
