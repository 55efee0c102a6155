"""Interrupts of what makes and releases handles: whatever is made is released, once, at the latest by the next call."""

import contextlib
import functools
import gc
import sys
from pathlib import Path

import interrupts
import pytest
from fake_driver import FakeDriver

from lowlevel_reduce import Allocator, driver
from lowlevel_reduce.arrays import allocator as allocator_module
from lowlevel_reduce.driver import Buffer, Context, Event, Graph, Library, Stream, binding, owned, turns
from lowlevel_reduce.driver.handle import relaxed, within
from lowlevel_reduce.driver.registered import page_locked
from tests.fuzz import memory_faults

FILES = {str(path) for path in Path(driver.__file__).parent.glob("*.py")} | {allocator_module.__file__}

DESTROYERS = {
    "cuCtxDestroy": 0,
    "cuStreamDestroy": 0,
    "cuEventDestroy": 0,
    "cuMemFree": 0,
    "cuMemFreeHost": 0,
    "cuMemHostUnregister": 0,
    "cuMemFreeAsync": 0,
    "cuLibraryUnload": 0,
    "cuGraphExecDestroy": 0,
}


class Driver(FakeDriver):
    """That of the other tests, which takes no time to begin, and destroys a context as the real one does."""

    def cuInit(self, flags):  # noqa: N802 - the driver's name
        return (0,)

    def cuCtxDestroy(self, handle):  # noqa: N802
        if self.stack and self.stack[-1] == int(handle):
            self.stack.pop()
        return super().cuCtxDestroy(handle)

    def cuDevicePrimaryCtxRelease(self, device):  # noqa: N802
        if self.retained[device] == 1:
            del self.alive[0xA0 + device]
        return super().cuDevicePrimaryCtxRelease(device)

    def cuGraphCreate(self, flags):  # noqa: N802
        return 0, self._make("graph")


class World:
    """A context and a stream on a driver of their own, and what counts what is released."""

    def __init__(self):
        self.fake = Driver()
        binding.register("interrupted", lambda: self.fake)
        self.lent, self.returned = [], []

    def __enter__(self):
        self.use = binding.use("interrupted")
        self.use.__enter__()
        self.context = Context.create(1)  # of the device whose memory this driver has
        self.stream = Stream.create(self.context)
        self.before = dict(self.fake.alive), dict(self.fake.retained)
        self.fake.calls.clear()
        return self

    def __exit__(self, *error):
        self.stream.close()
        self.context.close()
        self.use.__exit__(*error)

    def allocator(self):
        def alloc(size_bytes, stream):
            self.fake.stack.append(self.context.handle)
            self.lent.append(self.fake._allocate(size_bytes)[1])
            self.fake.stack.pop()
            return self.lent[-1]

        def free(pointer, size_bytes, stream):
            self.returned.append(pointer)
            assert self.fake._kill("memory", pointer)[0] == 0, "freed twice"

        return Allocator(alloc, free)

    def graph(self):
        with Graph.create(self.context) as graph:
            return graph.instantiate()

    def next_call(self):
        """Do what anybody does next: make a handle of one's own, and close it."""
        Event.create(self.context).close()

    def check(self, step):
        assert (self.fake.alive, self.fake.retained) == self.before, step
        released = [(name, args[0]) for name, args in self.fake.calls if name in DESTROYERS]
        assert len(set(released)) == len(released), f"released twice after step {step}"
        assert self.lent == self.returned, step
        assert len(set(self.returned)) == len(self.returned), step


MAKERS = {
    "context": lambda world: Context.create(0),
    "primary": lambda world: Context.primary(0),
    "stream": lambda world: Stream.create(world.context),
    "event": lambda world: Event.create(world.context),
    "memory": lambda world: Buffer.allocate(16, world.context),
    "pinned": lambda world: Buffer.pinned(16, world.context),
    "registered": lambda world: page_locked(16, world.context),
    "stream-ordered": lambda world: Buffer.allocate_async(16, world.stream),
    "library": lambda world: Library.load(b"\x7fELF"),
    "executable": World.graph,
    "allocator": lambda world: world.allocator().allocate(16, world.stream),
}


@pytest.fixture(autouse=True)
def own_thread(monkeypatch):
    """An exception before a `with` has begun, where Python looks for no signals, leaves a lock held."""
    monkeypatch.setattr(turns, "_lock", type(turns._lock)())
    monkeypatch.setattr(turns, "_thread", turns._Thread())


@pytest.fixture
def in_callbacks(monkeypatch):
    """Errors of weak references' callbacks, which Python cannot raise, in place of their printing."""
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: seen.append(error.exc_type))
    return seen


@pytest.mark.parametrize("signals_only", [False, True])
@pytest.mark.parametrize("noun", MAKERS)
def test_an_interrupted_finalizer_is_tried_again(noun, in_callbacks, signals_only, steps):
    for step in steps():
        with World() as world:
            made = [MAKERS[noun](world)]
            over = not interrupts.at_step(
                made.clear, step, interrupts.interrupt, files=FILES, signals_only=signals_only
            )
            assert in_callbacks == ([] if over else [KeyboardInterrupt])
            in_callbacks.clear()
            if not over:
                world.next_call()
            world.check(step)
            if signals_only:  # within the bytecodes of a `finally` Python looks for no signals
                assert world.fake.stack == [], step
                assert world.fake.capture_mode.value == 0, step
        if over:
            break
    assert step > (25 if signals_only else 100)


def _in_a_context(world):
    within(binding.selected(), world.context.handle, list)


def _in_a_mode(world):
    del world
    relaxed(binding.selected(), list)


@pytest.mark.parametrize("work", [_in_a_context, _in_a_mode])
def test_what_is_held_for_a_while_is_given_back_before_anybody_sees_the_interrupt(work, steps):
    """Whoever catches it has the traceback still, and with that all frames: nothing may wait for these to go."""
    files = FILES | {contextlib.__file__}  # where the end of a generator's block would be
    for step in steps():
        with World() as world:
            error = interrupts.interrupted(functools.partial(work, world), step, files=files, signals_only=True)
            assert world.fake.stack == [], step
            assert world.fake.capture_mode.value == 0, step
        if error is None:
            break
    assert step > 15


@pytest.mark.parametrize("then", ["close", "forget"])
@pytest.mark.parametrize("noun", MAKERS)
def test_an_interrupted_close_releases_once(noun, then, steps):
    for step in steps():
        with World() as world:
            made = MAKERS[noun](world)
            over = interrupts.interrupted(made.close, step, files=FILES) is None
            world.fake.stack.clear()
            if then == "close":
                made.close()
                assert made.is_closed
            else:
                del made
                world.next_call()
            world.check(step)
        if over:
            break
    assert step > 40


@pytest.mark.parametrize("noun", MAKERS)
def test_a_block_whose_end_is_interrupted_has_closed(noun, steps):
    """Also while others keep the object, as launches keep their stream: nobody would close it again."""
    for step in steps():
        with World() as world:
            made = MAKERS[noun](world)

            def block(made=made):
                with made:
                    pass

            over = interrupts.interrupted(block, step, files=FILES, signals_only=True) is None
            assert made.is_closed, step
            world.check(step)
            assert world.fake.stack == [], step
        if over:
            break
    assert step > 15


@pytest.mark.slow
@pytest.mark.parametrize("noun", MAKERS)
def test_what_is_made_has_an_owner_from_the_first(noun, steps):
    """Interrupted anywhere from before the driver's call to the return of the handle."""
    for step in steps():
        with World() as world:
            kept = []  # of which nothing is released while steps are counted
            make = functools.partial(MAKERS[noun], world)
            over = interrupts.interrupted(lambda make=make, kept=kept: kept.append(make()), step, files=FILES) is None
            kept.clear()
            gc.collect()
            world.fake.stack.clear()
            world.next_call()
            world.check(step)
        if over:
            break
    assert step > 40


@pytest.mark.skipif(memory_faults.why_not() is not None, reason=str(memory_faults.why_not()))
@pytest.mark.parametrize("before", [0, 1, 30])
def test_that_an_object_has_gone_is_noted_without_memory(before, monkeypatch):
    """C code notes of 16 objects that they have gone, as many as the collector may find at once; also of later ones."""
    import _testcapi

    monkeypatch.setattr(owned, "due", type(owned.due)())
    with World() as world:
        for _ in range(before):
            Event.create(world.context)  # goes at once
    assert not owned.due
    marks = iter([object()] * 16)
    append = owned.due.append
    try:
        _testcapi.set_nomemory(0)
        for mark in marks:
            append(mark)
    finally:
        _testcapi.remove_mem_hooks()
        noted = len(owned.due)
        owned.due.clear()
    assert noted == 16


def test_what_is_forgotten_leaves_what_others_are_due():
    """One that is closed while others, which an interrupt has left, are still to be released."""
    with World() as world:
        kept = [Event.create(world.context) for _ in range(3)]
        marks = [each._owned for each in kept]
        owned.due.extend(marks)
        marks[1].forget()
        assert list(owned.due) == [marks[0], marks[2]]
        marks[1].forget()  # a second time it is not there
        assert list(owned.due) == [marks[0], marks[2]]
        owned.due.clear()
        kept[1].close()
