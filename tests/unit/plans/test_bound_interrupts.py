"""Bound launches and interrupts: whatever comes between two steps of a call or a closing, by chance a signal's handler.

A trace function stands for it: it acts before any bytecode that a test names, so that every place is tried, in order.
"""

import contextlib
import functools
import itertools
import struct
import threading
from pathlib import Path

import interrupts
import pytest
from fake_driver import FakeDriver, in_use
from in_threads import in_threads

from lowlevel_reduce.driver import BoundKernel, Buffer, Context, LaunchConfig, Library, Stream, turns
from lowlevel_reduce.driver import bound_kernel as kernel_module
from lowlevel_reduce.driver import handle as handle_module
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.plans import launch as bound_module
from lowlevel_reduce.plans.launch import BoundReduction, DirectReduction, Extents
from tests.fuzz import memory_faults

EXTENTS = Extents(low=0, high=4000, result_bytes=4, result_alignment=4)
KINDS = ["kernel", "direct", "one", "two", "packed"]
FILES = {str(Path(module.__file__)) for module in (bound_module, kernel_module, turns, handle_module)}


at_step = functools.partial(interrupts.at_step, files=FILES)
interrupted = functools.partial(interrupts.interrupted, files=FILES)


class World:
    """A context, a stream and a library on a driver of their own, and launches of them."""

    def __init__(self, undo, fake):
        self.fake = fake
        self.context = undo.enter_context(Context.create(0))
        self.stream = undo.enter_context(Stream.create(self.context))
        self.library = undo.enter_context(Library.load(b"\x7fELF"))
        self.workspace = Buffer.allocate(256, self.context)

    def kernel(self):
        return BoundKernel(self.library.kernel("probe"), LaunchConfig(1, 32), self.stream, "QQQ")

    def bind(self, kind):
        """Return a call, and what is bound."""
        if kind == "kernel":
            kernel = self.kernel()
            return lambda source, result: kernel(source, result, 0), kernel
        if kind == "packed":
            kernel = self.kernel()
            return lambda source, result: kernel.packed_for(lambda _: kernel._launch(), source, result, 0), kernel
        kinds = {"direct": (DirectReduction, 1), "one": (BoundReduction, 1), "two": (BoundReduction, 2)}
        cls, count = kinds[kind]
        made = cls([self.kernel() for _ in range(count)], self.stream, self.workspace, EXTENTS)
        return made, made

    def seen(self):
        """Return the addresses of the launches, and forget them."""
        words = [
            tuple(struct.unpack_from("<Q", slot)[0] for slot in slots[:2]) for _, _, slots, _ in self.fake.launches
        ]
        self.fake.launches.clear()
        return words


@pytest.fixture
def fake():
    driver = FakeDriver()
    driver.arguments = 3
    with in_use(driver, "interrupted"):
        yield driver


@pytest.fixture
def make(fake, monkeypatch):
    """Return what makes worlds, of which the last one is closed when the next is made."""
    # Their own: an exception before the last bytecode of a `with`, or the first of a `try`, where Python looks for no
    # signals, leaves a lock held and a number raised.
    monkeypatch.setattr(turns, "_lock", threading.RLock())
    monkeypatch.setattr(turns, "_thread", turns._Thread())
    with contextlib.ExitStack() as undo:

        def make():
            undo.close()
            fake.launches.clear()
            return World(undo, fake)

        yield make


def once(kind):
    """Return how many launches a call makes."""
    return 2 if kind == "two" else 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_between_any_two_steps_of_a_call_loses_nothing(make, kind):
    world = make()
    call, _ = world.bind(kind)
    for step in itertools.count():
        if interrupted(lambda: call(0xA000, 0xB000), step) is None:
            break
        world.seen()
        call(0xC000, 0xD000)
        assert world.seen() == [(0xC000, 0xD000)] * once(kind), step
    assert step > 15
    world.stream.close()
    with pytest.raises(ValueError, match="stream is closed"):
        call(0xA000, 0xB000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_loses_nothing_even_while_its_traceback_is_kept(make, kind):
    world, kept = make(), []
    call, _ = world.bind(kind)
    for step in itertools.count():
        kept.append(interrupted(lambda: call(0xA000, 0xB000), step, signals_only=True))
        if kept[-1] is None:
            break
        world.seen()
        call(0xC000, 0xD000)
        assert world.seen() == [(0xC000, 0xD000)] * once(kind), step
    assert step > 2
    world.stream.close()


# Not all bytecodes of the callers: an exception just before the end of an `except` block, where Python looks for no
# signals, leaves that block's own one, with its traceback, as the one that is being handled.
@pytest.mark.parametrize("options", [{"signals_only": True}, {"files": {turns.__file__}}])
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_of_the_recovery_loses_nothing(make, kind, options):
    world = make()
    call, bound = world.bind(kind)
    for step in itertools.count():
        bound._turn.idle.pop()
        if interrupted(lambda: call(0xA000, 0xB000), step, **options) is None:
            break
        world.seen()
        call(0xC000, 0xD000)
        assert world.seen() == [(0xC000, 0xD000)] * once(kind), step
    assert step > 10


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_handlers_call_during_a_call_is_refused_or_done(make, kind, lost):
    world, outcomes = make(), set()
    call, bound = world.bind(kind)

    def nested():
        try:
            call(0xC000, 0xD000)
            outcomes.add("done")
        except ReduceError:
            outcomes.add("refused")

    for step in itertools.count():
        if lost:
            bound._turn.idle.pop()
        if not at_step(lambda: call(0xA000, 0xB000), step, nested, signals_only=True):
            break
        seen = world.seen()
        assert seen.count((0xA000, 0xB000)) == once(kind), step
        assert len(bound._turn.idle) == 1, step
    assert outcomes == {"done", "refused"}


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("what", ["stream", "bound"])
@pytest.mark.parametrize("kind", ["direct", "one", "two"])
def test_what_a_handler_closes_during_a_call_is_launched_into_no_more(make, kind, what, lost):
    outcomes = set()
    for step in itertools.count():
        world = make()
        call, bound = world.bind(kind)
        target = world.stream if what == "stream" else bound
        if lost:
            bound._turn.idle.pop()

        def close(world=world, target=target):
            try:
                target.close()
                outcomes.add(f"closed before {len(world.seen())}")
            except ReduceError:
                outcomes.add("refused")

        try:
            reached = at_step(functools.partial(call, 0xA000, 0xB000), step, close, signals_only=True)
        except ValueError:
            assert not world.fake.launches
        else:
            if not reached:
                break
    assert outcomes >= {"refused", "closed before 0"}
    assert outcomes <= {"refused", "closed before 0", f"closed before {once(kind)}"}


@pytest.mark.parametrize("what", ["stream", "bound"])
def test_a_call_of_two_kernels_is_closed_before_the_first_or_after_the_last(make, what):
    """Whatever a thread closes at whichever step of another one's call: all of the call is launched, or nothing."""
    outcomes = set()
    for step in itertools.count():
        world = make()
        call, bound = world.bind("two")
        target = world.stream if what == "stream" else bound

        def close(target=target):
            try:
                in_threads(target.close)
                outcomes.add("closed")
            except ReduceError:
                outcomes.add("refused")

        try:
            reached = at_step(lambda call=call: call(0xA000, 0xB000), step, close)
        except ValueError:
            assert not world.fake.launches, step
        else:
            assert world.seen() == [(0xA000, 0xB000)] * 2, step
            if not reached:
                break
    assert outcomes == {"closed", "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["stream", "library", "context", "bound"])
def test_an_interrupted_close_is_done_or_can_be_done_again(make, what):
    for step in itertools.count():
        world = make()
        call, bound = world.bind("two")
        target = bound if what == "bound" else getattr(world, what)
        over = interrupted(target.close, step) is None
        if over or (what != "bound" and target.is_closed):
            with pytest.raises(ValueError, match="is closed"):
                call(0xA000, 0xB000)
        target.close()
        with pytest.raises(ValueError, match="is closed"):
            call(0xA000, 0xB000)
        assert not world.seen() or not over
        if over:
            break
    assert step > 30


def test_an_interrupted_close_that_would_be_refused_leaves_all_as_it_was(make):
    world = make()
    calls = [world.bind(kind) for kind in ("direct", "two", "kernel")]
    for step in itertools.count():
        turn = calls[1][1]._turn
        item = turn.idle.pop()  # as another thread's call
        over = False
        try:
            over = interrupted(world.stream.close, step, signals_only=True) is None
        except ReduceError:
            over = True
        turn.idle.append(item)
        del item
        for call, _ in calls:
            call(0xC000, 0xD000)
        if over:
            break
    assert step > 10
    assert not world.stream.is_closed


def test_launches_may_be_bound_and_go_while_the_exit_goes_through_them(make, monkeypatch):
    """By a signal's handler, which comes where another thread may come, too."""
    for step in itertools.count():
        monkeypatch.setattr(turns, "_turns", turns.Known())
        monkeypatch.setattr(turns, "exiting", False)
        kept = [turns.Turn(set) for _ in range(5)]

        def act(kept=kept):
            del kept[1:3]
            with contextlib.suppress(ValueError):
                kept.extend([turns.Turn(set), turns.Turn(set)])

        if not at_step(turns._exit, step, act, signals_only=True):
            break
        for turn in kept:
            with pytest.raises(ValueError, match="the interpreter is exiting"):
                turn.retake(None)
    assert step > 20


@pytest.mark.skipif(memory_faults.why_not() is not None, reason=str(memory_faults.why_not()))
def test_a_turn_that_goes_without_memory_is_taken_again():
    """What an exception takes from a call is known to be nobody's, though nothing can be allocated as it goes."""
    import _testcapi

    turn = turns.Turn(set)
    item = turn.idle.pop()
    try:
        _testcapi.set_nomemory(0)
        del item
    finally:
        _testcapi.remove_mem_hooks()
    assert turn.is_free
    item = turn.retake("a launch")
    assert turn.idle == []
    turn.idle.append(item)
    assert turn.is_free
