"""Bound launches and threads: a call during a call is refused, and what a call uses is not closed under it."""

import ctypes
import gc
import struct
import sys
import threading
import time
from functools import partial

import pytest
from fake_driver import OK, FakeDriver, in_use
from in_threads import in_threads

from lowlevel_reduce.driver import BoundKernel, Buffer, Context, LaunchConfig, Library, Stream, nodes, turns
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.plans.launch import BoundReduction, DirectReduction, Extents

EXTENTS = Extents(low=0, high=4000, result_bytes=4, result_alignment=4)


class SlowDriver(FakeDriver):
    """A driver whose launches wait until they may go on, and read their arguments only then."""

    def __init__(self):
        super().__init__()
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def cuLaunchKernelEx(self, config, function, pointers, extra):  # noqa: N802
        self.entered.set()
        time.sleep(0)  # other threads run
        assert self.go_on.wait(20)
        table = (ctypes.c_void_p * 2).from_address(pointers)
        words = [struct.unpack_from("<Q", bytes((ctypes.c_uint8 * 8).from_address(one)))[0] for one in table]
        self.launches.append(tuple(words))
        return (OK,)


@pytest.fixture
def fake():
    with in_use(SlowDriver(), "slow") as driver:
        yield driver


@pytest.fixture
def parts(fake):
    with Context.create(0) as context, Stream.create(context) as stream, Library.load(b"\x7fELF") as library:
        yield library.kernel("probe"), stream, Buffer.allocate(256, context)


def kernel_of(parts):
    return BoundKernel(parts[0], LaunchConfig(1, 32), parts[1], "QQQ")


def make(kind, parts):
    if kind == "kernel":
        bound = kernel_of(parts)
        return lambda source, result: bound(source, result, 0), bound
    kinds = {"direct": (DirectReduction, 1), "one": (BoundReduction, 1), "two": (BoundReduction, 2)}
    kind, count = kinds[kind]
    bound = kind([kernel_of(parts) for _ in range(count)], parts[1], parts[2], EXTENTS)
    return bound, bound


KINDS = ["kernel", "direct", "one", "two"]


@pytest.fixture
def held(fake):
    """Run a call on another thread, and hold it inside of the driver for the length of a block."""
    import contextlib

    @contextlib.contextmanager
    def held(call):
        fake.entered.clear()
        fake.go_on.clear()
        thread = threading.Thread(target=call, args=(0xA000, 0xB000))
        thread.start()
        try:
            assert fake.entered.wait(20)
            yield
        finally:
            fake.go_on.set()
            thread.join()

    return held


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_during_a_call_is_refused(fake, parts, held, kind):
    call, _ = make(kind, parts)
    with held(call), pytest.raises(ReduceError, match="in use: another thread is in a call"):
        call(0xC000, 0xD000)
    assert set(fake.launches) == {(0xA000, 0xB000)}, "the refused one touched no argument"
    call(0xC000, 0xD000)
    assert fake.launches[-1] == (0xC000, 0xD000)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_call_uses_is_not_closed_under_it(fake, parts, held, kind):
    call, bound = make(kind, parts)
    stream, context = parts[1], parts[1].context
    with held(call):
        for handle in (stream, context, parts[0].library):
            with pytest.raises(ReduceError, match="cannot be closed: another thread is in a launch"):
                handle.close()
            assert not handle.is_closed
        if kind != "kernel":
            with pytest.raises(ReduceError, match="cannot be closed"):
                bound.close()
            assert not parts[2].is_closed
    assert stream.handle in fake.living("stream")
    call(0xC000, 0xD000)
    assert fake.launches[-1] == (0xC000, 0xD000)
    stream.close()
    assert not fake.living("stream")
    with pytest.raises(ValueError, match="stream is closed"):
        call(0xC000, 0xD000)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_closed_bound_launch_says_so(fake, parts, kind):
    call, bound = make(kind, parts)
    bound.close()
    bound.close()
    assert parts[2].is_closed
    with pytest.raises(ValueError, match="the bound launch is closed"):
        call(0xA000, 0xB000)
    assert not fake.launches


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_refused_close_has_closed_nothing_while_its_error_is_kept(parts, held, kind):
    """Whose traceback keeps all that the refused call held."""
    call, bound = make(kind, parts)
    with held(call):
        with pytest.raises(ReduceError, match="cannot be closed") as refused:
            bound.close()
        with pytest.raises(ReduceError, match="in use: another thread is in a call"):
            call(0xC000, 0xD000)
        assert refused.tb is not None
    call(0xC000, 0xD000)


def test_a_refused_close_of_two_kernels_leaves_both(fake, parts, held):
    kernels = [kernel_of(parts), kernel_of(parts)]
    bound = BoundReduction(kernels, parts[1], parts[2], EXTENTS)
    with held(lambda source, result: kernels[1](source, result, 0)), pytest.raises(ReduceError):
        bound.close()
    bound(0xA000, 0xB000)
    assert len(fake.launches) == 3


def test_a_refused_close_of_a_stream_leaves_all_that_use_it(fake, parts, held):
    kernels = [kernel_of(parts) for _ in range(16)]
    with held(lambda source, result: kernels[7](source, result, 0)), pytest.raises(ReduceError):
        parts[1].close()
    for kernel in kernels:
        kernel(0xA000, 0xB000, 0)
    assert len(fake.launches) == 17


@pytest.mark.parametrize("kind", [DirectReduction, BoundReduction])
def test_a_refused_close_of_a_stream_opens_nothing_that_was_closed(fake, parts, held, kind):
    bound = [kind([kernel_of(parts)], parts[1], Buffer.allocate(256, parts[1].context), EXTENTS) for _ in range(25)]
    closed, busy, others = bound[::2], bound[13], [*bound[1:13:2], *bound[15::2]]
    for launch in closed:
        launch.close()
    for _ in range(2):
        with held(busy), pytest.raises(ReduceError, match="cannot be closed"):
            parts[1].close()
        for launch in closed:
            with pytest.raises(ValueError, match="the bound launch is closed"):
                launch(0xA000, 0xB000)
            assert not launch.is_free
        assert all(launch.is_free for launch in others)
        for launch in others:
            launch(0xA000, 0xB000)
    assert len(fake.launches) == 2 * (1 + len(others))
    parts[1].close()
    for launch in (busy, *others):
        with pytest.raises(ValueError, match="stream is closed"):
            launch(0xA000, 0xB000)


def test_what_is_closed_stays_closed_when_its_object_has_gone(fake):
    lender = Context.create(0)
    context = Context.from_handle(lender.handle)
    stream, library = Stream.create(context), Library.load(b"\x7fELF")
    bound = kernel_of((library.kernel("probe"), stream))
    lender.close()
    del lender
    for gone in (None, context, stream):
        if gone is not None:
            gone.close()
        gc.collect()
        with pytest.raises(ValueError, match="context is closed"):
            bound(0xA000, 0xB000, 0)
    assert not fake.launches
    library.close()


def test_a_kernel_among_several_is_of_their_one_turn(fake, parts, held):
    """Also where it is called alone, or packed for a graph."""
    kernels = [kernel_of(parts), kernel_of(parts)]
    bound = BoundReduction(kernels, parts[1], parts[2], EXTENTS)
    with held(lambda source, result: kernels[1](source, result, 0)):
        for refused in (
            bound,
            lambda *values: kernels[0](*values, 0),
            lambda *values: kernels[0].packed_for(int, *values),
        ):
            with pytest.raises(ReduceError, match="in use"):
                refused(0xC000, 0xD000)
    with pytest.raises(ValueError, match="among several"):
        kernels[1].prebuilt()
    bound(0xC000, 0xD000)
    assert fake.launches == [(0xA000, 0xB000)] + [(0xC000, 0xD000)] * 2


def test_the_arguments_of_a_graphs_node_stay_until_the_driver_has_copied_them(fake, parts):
    bound, copied, refused = kernel_of(parts), [], []

    def other():
        try:
            bound(0xC000, 0xD000, 0)
        except ReduceError as error:
            refused.append(str(error))

    def copies(*arguments):
        in_threads(other)
        table = (ctypes.c_void_p * 2).from_address(int(arguments[-1].kernelParams))
        copied.append(tuple(ctypes.c_uint64.from_address(one).value for one in table))
        return (OK, 0x77)

    fake.cuGraphAddKernelNode = copies
    fake.cuGraphExecKernelNodeSetParams = lambda *arguments: copies(*arguments)[:1]
    node = nodes.add_kernel(parts[1], bound, (0xA000, 0xB000, 0), [])  # of a graph it is asked for the handle alone
    nodes.set_kernel(0x88, node, bound, (0xA008, 0xB008, 0))
    assert copied == [(0xA000, 0xB000), (0xA008, 0xB008)]
    assert len(refused) == 2
    assert not fake.launches
    bound(0xC000, 0xD000, 0)


@pytest.fixture
def exiting(monkeypatch):
    """Return the hook of the interpreter's exit, which has to do with what is made here alone."""
    monkeypatch.setattr(turns, "_turns", turns.Known())
    monkeypatch.setattr(turns, "exiting", False)
    return turns._exit


@pytest.mark.parametrize("kind", KINDS)
def test_the_interpreters_exit_waits_for_a_call_and_lets_no_other_begin(fake, exiting, parts, held, kind):
    call, _ = make(kind, parts)
    with held(call):
        ending = threading.Thread(target=exiting)
        ending.start()
        while not turns.exiting:
            time.sleep(0)
        ending.join(0.05)
        assert ending.is_alive(), "a call is under way"
    ending.join(20)
    assert not ending.is_alive()
    del fake.launches[:]
    with pytest.raises(ValueError, match="the interpreter is exiting"):
        call(0xC000, 0xD000)
    assert not fake.launches


def test_the_interpreters_exit_does_not_wait_for_ever(fake, exiting, parts, held, monkeypatch):
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.01)
    call, _ = make("direct", parts)
    with held(call):
        exiting()
    with pytest.raises(ValueError, match="the interpreter is exiting"):
        call(0xC000, 0xD000)


def test_at_the_interpreters_exit_nothing_is_bound_or_used_and_all_can_be_closed(fake, exiting, parts):
    buffer = Buffer.allocate_async(512, parts[1])
    pointer, stream = buffer.pointer, parts[1].handle
    exiting()
    for use in (
        lambda: kernel_of(parts),
        lambda: turns.Turn(set),
        lambda: Stream.create(parts[1].context),
        lambda: parts[1].handle,
        lambda: buffer.pointer,
    ):
        with pytest.raises(ValueError, match="the interpreter is exiting"):
            use()
    buffer.close()
    assert ("cuMemFreeAsync", (pointer, stream)) in fake.calls
    parts[1].close()
    assert not fake.living("stream")


def test_a_handle_that_is_closed_takes_no_user(parts):
    parts[1].close()
    with pytest.raises(ValueError, match="stream is closed"):
        kernel_of(parts)


@pytest.mark.parametrize("kind", KINDS)
def test_unguarded_threads_never_mix_their_arguments(fake, parts, kind):
    call, _ = make(kind, parts)
    refused, done = [], []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    fake.go_on.clear()  # the first call stays in the driver until another one has met it

    def work(base):
        for i in range(200):
            try:
                call(base + i, base + i + 1)
                done.append(i)
            except ReduceError:
                refused.append(i)
                fake.go_on.set()

    try:
        in_threads(*(partial(work, base) for base in (1000, 100_000, 10_000_000)))
    finally:
        sys.setswitchinterval(interval)
    assert refused, "at least one call met another"
    assert len(fake.launches) == len(done) * (2 if kind == "two" else 1)
    assert all(result == source + 1 for source, result in fake.launches)


def test_what_is_packed_is_what_a_call_passes(parts):
    bound = BoundKernel(parts[0], LaunchConfig(1, 32), parts[1], "QI", constants=(7,))
    table = (ctypes.c_void_p * 2).from_address(bound.packed_for(int, 0xA000))
    assert ctypes.c_uint64.from_address(table[0]).value == 0xA000
    assert ctypes.c_uint32.from_address(table[1]).value == 7
    with pytest.raises(struct.error):
        bound.packed_for(int, 1, 2)
    parts[1].close()
    with pytest.raises(ValueError, match="stream is closed"):
        bound.packed_for(int, 1)
