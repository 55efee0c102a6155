"""Contexts, streams, events, memory, libraries and graphs over a fake driver: who releases what, when, and where."""

# ruff: noqa: PT012 - the block under test is what is tested

import ctypes
import gc
import itertools
import logging
import sys
import threading
import weakref

import numpy as np
import pytest
from cuda.bindings import driver as cu
from fake_driver import FakeDriver, in_use
from in_threads import in_threads

from lowlevel_reduce.driver import (
    Buffer,
    Context,
    Device,
    Event,
    Graph,
    Library,
    PointerInfo,
    Stream,
    binding,
    current,
    pointer_info,
)
from lowlevel_reduce.errors import CudaError, ReduceError, UnsupportedError
from tests.fuzz.interrupts import acting_at


@pytest.fixture
def fake():
    with in_use(FakeDriver()) as driver:
        yield driver


@pytest.fixture
def context(fake):
    with Context.create() as context:
        yield context


MAKERS = {
    "context": lambda context: Context.create(1),
    "stream": Stream.create,
    "event": Event.create,
    "memory": lambda context: Buffer.allocate(16, context),
    "library": lambda context: Library.load(b"\x7fELF"),
}


@pytest.mark.parametrize("noun", MAKERS)
def test_close_releases_once(fake, context, noun):
    before = fake.living(noun)
    made = MAKERS[noun](context)
    assert len(fake.living(noun) - before) == 1
    made.close()
    assert fake.living(noun) == before
    calls = len(fake.calls)
    made.close()
    assert len(fake.calls) == calls
    assert made.is_closed
    with pytest.raises(ValueError, match="is closed"):
        _ = made.handle


@pytest.mark.parametrize("noun", MAKERS)
def test_with_closes_also_after_an_error(fake, context, noun):
    before = fake.living(noun)
    made = MAKERS[noun](context)  # kept, so that no finalizer does it
    with pytest.raises(KeyError), made:
        raise KeyError
    assert made.is_closed
    assert fake.living(noun) == before


@pytest.mark.parametrize("noun", MAKERS)
def test_the_finalizer_releases(fake, context, noun):
    before = fake.living(noun)
    made = MAKERS[noun](context)
    del made
    gc.collect()
    assert fake.living(noun) == before
    assert fake.stack == []


@pytest.mark.parametrize("code", [cu.CUresult.CUDA_ERROR_DEINITIALIZED, cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS])
@pytest.mark.parametrize("noun", MAKERS)
def test_a_finalizer_never_raises_but_says_what_went_wrong(fake, context, noun, code, caplog):
    made = MAKERS[noun](context)
    for name in ("cuCtxDestroy", "cuStreamDestroy", "cuEventDestroy", "cuMemFree", "cuLibraryUnload"):
        fake.fails[name] = code
    with caplog.at_level(logging.WARNING):
        del made
        gc.collect()
    fake.fails.clear()
    gone = code == cu.CUresult.CUDA_ERROR_DEINITIALIZED
    assert [r.name for r in caplog.records] == ([] if gone else ["lowlevel_reduce"])
    assert fake.capture_mode == cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


def test_close_itself_does_raise(fake, context):
    stream = Stream.create(context)
    fake.fails["cuStreamDestroy"] = cu.CUresult.CUDA_ERROR_DEINITIALIZED
    with pytest.raises(CudaError, match="DEINITIALIZED"):
        stream.close()
    stream.close()


def test_a_finalizer_relaxes_a_capture_around_it(fake, context):
    buffer, before = Buffer.allocate(16, context), fake.capture_mode
    fake.calls.clear()
    del buffer
    names = [name for name, _ in fake.calls]
    assert names[0] == names[-1] == "cuThreadExchangeStreamCaptureMode"
    assert fake.capture_mode == before
    assert "cuMemFree" in names


@pytest.mark.parametrize("name", ["cuCtxPushCurrent", "cuCtxPopCurrent"])
def test_a_push_or_pop_of_a_release_that_is_refused_is_tried_again(fake, context, name, caplog):
    buffer = Buffer.allocate(16, context)
    routine, refusals = getattr(fake, name), [(cu.CUresult.CUDA_ERROR_UNKNOWN, None)]
    setattr(fake, name, lambda *args: refusals.pop() if refusals else routine(*args))
    with caplog.at_level(logging.WARNING):
        del buffer
    assert (fake.living("memory"), fake.stack, refusals) == (set(), [], [])
    assert [name in record.getMessage() for record in caplog.records] == [True]


def test_a_handle_is_released_by_the_driver_that_made_it(fake, context):
    other = FakeDriver()
    binding.register("other", lambda: other)
    stream = Stream.create(context)
    with binding.use("other"):
        stream.close()
    assert fake.count("cuStreamDestroy") == 1
    assert other.calls == []


@pytest.mark.parametrize("kind", [Context, Stream, Event])
def test_a_borrowed_handle_keeps_its_owner_and_is_never_destroyed(fake, kind):
    class Owner:
        pass

    owner = Owner()
    alive = weakref.ref(owner)
    borrowed = kind.from_handle(0x77, owner=owner)
    del owner
    gc.collect()
    assert alive() is borrowed.owner
    assert borrowed.is_borrowed
    borrowed.close()
    gc.collect()
    assert alive() is None
    assert not {"cuCtxDestroy", "cuStreamDestroy", "cuEventDestroy"} & {name for name, _ in fake.calls}
    with pytest.raises(ValueError, match="closed"):
        _ = borrowed.handle


def test_a_borrowed_pointer_is_never_freed(fake, context):
    buffer = Buffer.from_pointer(0x7000, 8, context=context, owner=fake)
    buffer.close()
    assert fake.count("cuMemFree") == 0
    with pytest.raises(ValueError, match="closed"):
        _ = buffer.pointer


# contexts


def test_making_a_context_leaves_what_is_current(fake):
    with Context.primary() as outer, outer.pushed():
        made = Context.create(1)
        Context.primary(1).close()
        assert fake.stack == [outer.handle]
        made.close()


def test_primary_is_retained_and_released(fake):
    context = Context.primary(1)
    assert fake.retained == {0: 0, 1: 1}
    context.close()
    context.close()
    assert fake.retained == {0: 0, 1: 0}


def test_current_is_borrowed(fake, context):
    assert Context.current() is None
    with context.pushed():
        current = Context.current()
        assert current == context
        current.close()
    assert fake.count("cuCtxDestroy") == 0


def test_contexts_compare_by_handle_while_open(fake, context):
    borrowed = Context.from_handle(context.handle)
    number = hash(borrowed)
    assert borrowed == context
    assert number == hash(context)
    borrowed.close()
    assert borrowed != context
    assert borrowed == borrowed
    assert hash(borrowed) == number


def test_no_current_context_means_the_primary_one(fake):
    with Context.current_or_primary(1) as chosen:
        assert chosen.device == Device(1)
        assert fake.retained[1] == 1
    assert fake.retained[1] == 0


def test_pushed_restores_after_an_error(fake, context):
    with Context.primary() as outer, outer.pushed():
        with pytest.raises(KeyError), context.pushed():
            assert fake.stack[-1] == context.handle
            raise KeyError
        assert fake.stack == [outer.handle]


def test_a_thread_keeps_the_pushes_of_so_many_contexts(fake, monkeypatch):
    monkeypatch.setattr(current, "_MOST_CONTEXTS", 3)
    contexts = [Context.create(0) for _ in range(7)]
    for context in contexts:
        with context.pushed():
            assert current.current_handle() == context.handle
        assert 0 < len(current._thread.push) <= 3


def test_a_push_that_is_refused_is_told(fake, context, monkeypatch):
    monkeypatch.setattr(fake, "cuCtxPushCurrent", lambda _: (cu.CUresult.CUDA_ERROR_INVALID_CONTEXT,))
    with pytest.raises(CudaError, match="cuCtxPushCurrent"), context.pushed():
        pass


def test_pushed_does_not_push_what_is_current(fake, context):
    with context.pushed():
        fake.calls.clear()
        with context.pushed():
            pass
        assert {name for name, _ in fake.calls} == {"cuCtxGetCurrent"}
    assert fake.stack == []


def test_pushed_is_for_one_block_at_a_time(fake, context):
    pushed = context.pushed()
    with pushed:
        with pytest.raises(ReduceError, match="under way"), pushed:
            pytest.fail("entered twice")
        assert fake.stack == [context.handle]
    assert fake.stack == []
    with pushed:  # one after the other is fine
        assert fake.stack == [context.handle]
    assert fake.stack == []


def test_pushed_belongs_to_one_thread(fake, context):
    with context.pushed():
        seen = in_threads(Context.current)
    assert seen == [None]


def leave_another(fake, context, other):
    fake.cuCtxPushCurrent(other.handle)


def leave_two_others(fake, context, other):
    fake.cuCtxPushCurrent(other.handle)
    fake.cuCtxPushCurrent(other.handle)


def leave_the_same(fake, context, other):
    fake.cuCtxPushCurrent(context.handle)


def take_it_off(fake, context, other):
    fake.cuCtxPopCurrent()


def replace_it(fake, context, other):
    fake.cuCtxSetCurrent(other.handle)


@pytest.mark.parametrize("damage", [leave_another, leave_two_others, leave_the_same, take_it_off, replace_it])
@pytest.mark.parametrize("outer", [False, True])
def test_an_unbalanced_block_is_put_right_and_reported(fake, context, damage, outer):
    with Context.create(1) as other, Context.primary() as before:
        stack = [before.handle] if outer else []
        fake.stack[:] = stack
        with pytest.raises(ReduceError, match="did not match"), context.pushed():
            damage(fake, context, other)
        assert fake.stack == stack
        with pytest.raises(KeyError), context.pushed():
            damage(fake, context, other)
            raise KeyError
        assert fake.stack == stack
        fake.stack.clear()


@pytest.mark.parametrize("damage", [leave_another, leave_two_others, take_it_off])
def test_an_unbalanced_block_over_the_current_context(fake, context, damage):
    with Context.create(1) as other, context.pushed():
        with pytest.raises(ReduceError, match="did not match"), context.pushed():
            damage(fake, context, other)
        assert fake.stack == [context.handle]


def test_what_lay_below_is_there_again(fake, context):
    """The block took off more than its own context: the one before it is put back on top of what is left."""
    with Context.create(1) as below, Context.primary() as before:
        fake.stack[:] = [below.handle, before.handle]
        with pytest.raises(ReduceError, match="did not match"), context.pushed():
            fake.cuCtxPopCurrent()
            fake.cuCtxPopCurrent()
        assert fake.stack == [below.handle, before.handle]
        fake.stack.clear()


def test_a_driver_that_no_longer_says_what_is_current_keeps_nothing_pushed(fake, context):
    refusal = cu.CUresult.CUDA_ERROR_UNKNOWN
    with Context.primary() as outer, outer.pushed():
        with pytest.raises(CudaError, match="cuCtxGetCurrent"), context.pushed():
            fake.fails["cuCtxGetCurrent"] = refusal
        assert fake.stack == [outer.handle]
        fake.fails.clear()
        popped = fake.cuCtxPopCurrent

        def pop():
            fake.fails["cuCtxGetCurrent"] = refusal
            return popped()

        fake.cuCtxPopCurrent = pop  # it says so no more once it has popped
        current._thread.driver = None  # whose functions are asked for anew
        with pytest.raises(CudaError, match="cuCtxGetCurrent"), context.pushed():
            pass
        assert fake.stack == [outer.handle]
        fake.fails.clear()
        del fake.cuCtxPopCurrent
        current._thread.driver = None


@pytest.mark.parametrize("inside", [False, True])
def test_an_interrupt_at_any_place_of_a_push_and_its_pop_keeps_nothing_pushed(fake, context, inside, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: None)  # of an interrupt in what goes

    def block():
        with context.pushed():
            if inside:
                raise KeyError

    with Context.primary() as outer, outer.pushed():
        for step in itertools.count():
            try:
                over = acting_at(block, step, current.__file__.__eq__) >= 0
            except KeyboardInterrupt:
                over = False
            except KeyError:
                over = True
            assert fake.stack == [outer.handle], step
            if over:
                break
        assert step > 10


def test_an_interrupt_as_an_inner_block_ends_leaves_the_stack_to_the_outer_one(fake, context, monkeypatch):
    """What was current at first is pushed again within, as for a wait between streams of two devices.

    Where the interrupt comes before the first line of the inner end, that one is still there when the outer one pops.
    """
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: None)

    def block(outer):
        with context.pushed(), outer.pushed():
            pass

    with Context.primary() as outer, outer.pushed():
        for step in itertools.count():
            caught = None
            try:
                over = acting_at(lambda: block(outer), step, current.__file__.__eq__) >= 0
            except KeyboardInterrupt as error:
                over, caught = False, error
            left = list(fake.stack)
            del caught
            assert fake.stack == [outer.handle], step
            # The outermost end alone may have to wait for the traceback to go.
            assert left in ([outer.handle], [outer.handle, context.handle]), step
            if over:
                break
        assert step > 20


def test_a_block_that_ends_before_one_within_it_is_told_of(fake, context):
    with Context.primary() as outer, outer.pushed():
        first, second = context.pushed(), outer.pushed()
        first.__enter__()
        second.__enter__()
        for block, message in ((first, "a push and its pop did not match"), (second, "ended after one around it")):
            with pytest.raises(ReduceError, match=message):
                block.__exit__(None, None, None)
            assert fake.stack == [outer.handle]
        del first, second
        assert fake.stack == [outer.handle]


def test_the_multiprocessors_are_the_contexts(fake, context):
    assert context.multiprocessor_count == 66
    fake.missing.add("cuCtxGetDevResource")
    assert context.multiprocessor_count == 132
    fake.missing.clear()
    fake.fails["cuCtxGetDevResource"] = cu.CUresult.CUDA_ERROR_NOT_SUPPORTED
    assert context.multiprocessor_count == 132
    fake.fails["cuCtxGetDevResource"] = cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(CudaError):
        _ = context.multiprocessor_count


def test_what_a_destroyed_context_held_is_not_released_again(fake):
    context = Context.create()
    stream, event, buffer = Stream.create(context), Event.create(context), Buffer.allocate(4, context)
    context.close()
    fake.calls.clear()
    for left in (stream, event, buffer):
        left.close()
    assert fake.calls == []


def test_a_child_keeps_its_context(fake):
    stream = Stream.create(Context.create())
    gc.collect()
    assert fake.count("cuCtxDestroy") == 0
    del stream
    gc.collect()
    assert [name for name, _ in fake.calls if "Destroy" in name] == ["cuStreamDestroy", "cuCtxDestroy"]


# devices


def test_a_device_is_a_value(fake):
    assert Device(1) == Device(1) != Device(0)
    assert len({Device(0), Device(0), Device(1)}) == 2
    assert Device.all() == (Device(0), Device(1))
    device = Device(0)
    assert (device.name, device.architecture, device.multiprocessor_count) == ("Fake GPU", "sm_90", 132)
    assert device.peak_bandwidth == pytest.approx(4.917e12, rel=1e-3)


def test_an_attribute_is_asked_once(fake):
    for _ in range(3):
        assert Device(0).attribute("multiprocessor_count") == 132
    assert fake.count("cuDeviceGetAttribute") == 1


def test_attributes_are_each_devices_own(fake):
    fake.cuDeviceGetAttribute = lambda attribute, device: (0, 100 + int(device))
    assert [Device(ordinal).multiprocessor_count for ordinal in (0, 1, 0)] == [100, 101, 100]


def test_what_is_no_device_or_no_attribute(fake):
    for ordinal in (-1, 2):
        with pytest.raises(ValueError, match=rf"no device {ordinal}: there are 2"):
            Device(ordinal)
    with pytest.raises(TypeError):
        Device("0")
    with pytest.raises(ValueError, match="no device attribute 'SPEED'"):
        Device(0).attribute("speed")


# streams and events


def test_stream_of(fake, context):
    class Foreign:
        def __cuda_stream__(self):
            return 0, 0x55

    class Newer:
        def __cuda_stream__(self):
            return 1, 0x55

    stream, foreign = Stream.create(context), Foreign()
    assert Stream.of(stream) is stream
    taken = Stream.of(foreign)
    assert (taken.handle, taken.owner, taken.__cuda_stream__()) == (0x55, foreign, (0, 0x55))
    with pytest.raises(TypeError, match="from_handle"):
        Stream.of(stream.handle)
    with pytest.raises(TypeError, match="__cuda_stream__"):
        Stream.of("stream")
    with pytest.raises(TypeError, match="version 1"):
        Stream.of(Newer())


def test_the_context_of_a_stream(fake, context):
    made = Stream.create(context)
    assert made.context is context
    assert Stream.from_handle(made.handle).context == context
    assert Stream.legacy(context).context is context
    with pytest.raises(ReduceError, match="none is current"):
        _ = Stream.per_thread().context
    with context.pushed():
        assert Stream.per_thread().context == context
    assert [Stream.from_handle(h).is_default for h in (0, 1, 2, 3)] == [True, True, True, False]


def test_the_null_stream_is_the_legacy_one(fake, context):
    null, legacy = Stream.from_handle(0, context=context), Stream.legacy(context)
    assert null.is_same(legacy)
    assert legacy.is_same(null)
    assert not null.is_same(Stream.per_thread(context))
    assert not Stream.create(context).is_same(null)


def test_a_default_streams_number_is_its_contexts(fake, context):
    fake.cuStreamGetId = lambda handle: (0, fake.stack[-1])
    legacy, made = Stream.legacy(), Stream.create(context)
    with Context.create(1) as other:
        for each in (context, other, context):
            with each.pushed():
                assert legacy.id == each.handle
                assert made.id == context.handle
    assert fake.count("cuStreamGetId") == 4, "a stream of its own is asked once"


class NoneForUnknown(cu.CUstreamAttrValue):
    """Reads a policy as bindings up to 12.9.4 do: None where later ones raise."""

    @property
    def syncPolicy(self):  # noqa: N802 - the bindings' name
        try:
            return super().syncPolicy
        except ValueError:
            return None


@pytest.mark.parametrize("bindings", [cu.CUstreamAttrValue, NoneForUnknown])
@pytest.mark.parametrize(
    ("word", "policy"),
    [
        (1, "auto"),
        (2, "spin"),
        (3, "yield"),
        (4, "blocking_sync"),
        (-1, "auto"),
        (0, "auto"),
        (5, "auto"),
        (99, "auto"),
    ],
)
def test_any_word_of_the_driver_is_a_synchronization_policy(fake, context, bindings, word, policy):
    fake.stream_attribute = bindings()
    ctypes.c_int.from_address(int(fake.stream_attribute.getPtr())).value = word
    assert Stream.create(context).synchronization_policy == policy


def test_a_priority_outside_the_range(fake, context):
    Stream.create(context, priority=-5).close()
    for priority in (1, -6):
        with pytest.raises(ValueError, match=r"-5 \(greatest\) to 0"):
            Stream.create(context, priority=priority)


@pytest.mark.parametrize("make", [Stream.create, Stream.legacy])
def test_a_stream_works_in_its_own_context(fake, context, make):
    stream = make(context)
    stream.synchronize()
    event = stream.record()
    stream.wait(event)
    assert stream.query() is False
    assert fake.stack == []


def test_events_are_recorded_in_streams_of_others_too(fake, context):
    class Foreign:
        def __init__(self, stream):
            self.stream = stream

        def __cuda_stream__(self):
            return 0, self.stream.handle

    with Stream.create(context) as stream, Stream.create(context) as other:
        event = Event.create(context)
        event.record(Foreign(stream))
        other.follow(Foreign(stream))
        recorded = [args[1] for name, args in fake.calls if name == "cuEventRecord"]
        assert recorded == [stream.handle, stream.handle]


def test_one_handle_is_not_taken_for_another(fake, context):
    """The driver would take the number of a buffer for that of an event."""
    buffer, stream, event = Buffer.allocate(16, context), Stream.create(context), Event.create(context)
    before = len(fake.calls)
    for wrong in (stream, buffer, 5, None):
        with pytest.raises(TypeError, match="an Event, not"):
            stream.wait(wrong)
        with pytest.raises(TypeError, match="an Event, not"):
            event.elapsed_ms(wrong)
    for wrong in (stream, buffer, 0, 5):
        with pytest.raises(TypeError, match="an Event, not"):
            stream.record(wrong)
    for wrong in (event, buffer, 5, None):
        with pytest.raises(TypeError, match="stream"):
            event.record(wrong)
        with pytest.raises(TypeError, match="stream"):
            stream.follow(wrong)
    for make in (
        lambda wrong: Stream.from_handle(0x55, context=wrong),
        Stream.legacy,
        Stream.per_thread,
        lambda wrong: Event.from_handle(0x55, context=wrong),
        lambda wrong: Buffer.from_pointer(0x55, 16, context=wrong),
    ):
        for wrong in (0, context.handle, Device(0), stream):
            with pytest.raises(TypeError, match="the context is a Context, not"):
                make(wrong)
    assert [name for name, _ in fake.calls[before:] if name != "cuDeviceGetCount"] == []


def test_elapsed_needs_timing(fake, context):
    timed, untimed = Event.create(context), Event.create(context, timing=False)
    assert timed.elapsed_ms(since=Event.create(context)) == 1.5
    for late, early in ((timed, untimed), (untimed, timed)):
        with pytest.raises(ValueError, match="timing=False"):
            late.elapsed_ms(early)


def test_what_is_not_ready_is_no_error(fake, context):
    fake.cuEventQuery = fake.cuStreamQuery
    stream, event = Stream.create(context), Event.create(context)
    assert not stream.query()
    assert not event.query()
    for name in ("cuStreamQuery", "cuEventQuery"):
        fake.fails[name] = cu.CUresult.CUDA_SUCCESS
    assert stream.query()
    assert event.query()
    fake.fails["cuEventQuery"] = cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(CudaError):
        event.query()


@pytest.mark.parametrize(("options", "flags"), [({}, 0), ({"timing": False}, 2), ({"blocking_sync": True}, 1)])
def test_events_have_what_was_asked_for(fake, context, options, flags):
    Event.create(context, **options)
    assert [arguments for name, arguments in fake.calls if name == "cuEventCreate"] == [(flags,)]


# memory


def test_a_buffer_of_no_bytes_allocates_nothing(fake, context):
    for buffer in (
        Buffer.allocate(0, context),
        Buffer.pinned(0, context),
        Buffer.allocate_async(0, Stream.create(context)),
        Buffer.from_pointer(0, 0, context=context),
    ):
        assert (buffer.pointer, buffer.size_bytes) == (0, 0)
        buffer.copy_from(b"")
        buffer.fill(1)
        buffer.close()
    assert fake.living("memory") == set()
    assert fake.count("cuMemcpyAsync") == 0


def test_sizes_are_checked(fake, context):
    with pytest.raises(ValueError, match="-1"):
        Buffer.allocate(-1, context)
    with pytest.raises(TypeError, match="float"):
        Buffer.allocate(1.0, context)
    with pytest.raises(ValueError, match="not the address"):
        Buffer.from_pointer(0, 4)
    for address in (1.5, True, "5", float("nan"), None):
        with pytest.raises(TypeError, match="address is an integer"):
            Buffer.from_pointer(address, 4)
    sized = Buffer.from_pointer(np.uint64(8), np.uint64(4))
    assert (type(sized.pointer), type(sized.size_bytes)) == (int, int)
    for byte in (1.5, True, "5"):
        with pytest.raises(TypeError, match="a byte is an integer"):
            sized.fill(byte)
    with pytest.raises(ValueError, match='"pinned"'):
        Buffer.from_pointer(8, 4, kind="shared")


def test_copies_there_and_back(fake, context):
    buffer, back = Buffer.allocate(16, context), np.zeros(4, np.int32)
    values = np.arange(4, dtype=np.int32)
    buffer.copy_from(values)
    buffer.copy_to(back)
    np.testing.assert_array_equal(back, values)
    other = Buffer.allocate(16, context)
    other.copy_from(buffer)
    other.copy_to(back, size_bytes=8)
    other.fill(0xFF)
    other.copy_to(back[2:], size_bytes=4)
    np.testing.assert_array_equal(back, [0, 1, -1, 3])
    text = bytearray(16)
    buffer.copy_to(text)
    assert text == values.tobytes()
    assert fake.stack == []


def test_a_copy_without_a_stream_waits_and_one_with_it_does_not(fake, context):
    buffer, stream = Buffer.allocate(4, context), Stream.create(context)
    buffer.copy_from(b"1234")
    assert fake.count("cuStreamSynchronize") == 1
    buffer.copy_from(b"1234", stream=stream)
    buffer.fill(0, stream=stream)
    assert fake.count("cuStreamSynchronize") == 1
    used = [args[-1] for name, args in fake.calls if name in ("cuMemcpyAsync", "cuMemsetD8Async")]
    assert used == [1, stream.handle, stream.handle]


def test_byte_counts_are_exact(fake, context):
    buffer = Buffer.allocate(16, context)
    with pytest.raises(ValueError, match="source has 12 bytes, the destination 16"):
        buffer.copy_from(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="17 bytes exceed"):
        buffer.copy_from(np.zeros(32, np.uint8), size_bytes=17)
    with pytest.raises(ValueError, match="destination 4"):
        buffer.copy_to(np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="0 to 255"):
        buffer.fill(256)
    assert fake.count("cuMemcpyAsync") == 0


def test_what_cannot_be_copied(fake, context):
    buffer = Buffer.allocate(16, context)
    with pytest.raises(ValueError, match="contiguous"):
        buffer.copy_from(np.zeros(8, np.float32)[::2])
    with pytest.raises(ValueError, match="read-only"):
        buffer.copy_to(bytes(16))
    with pytest.raises(TypeError):
        buffer.copy_from([1, 2, 3, 4])
    buffer.close()
    with pytest.raises(ValueError, match="closed"):
        buffer.copy_from(bytes(16))


def test_a_host_view_shares_and_keeps_pinned_memory(fake, context):
    buffer = Buffer.pinned(8, context)
    view = buffer.host_view()
    buffer.fill(7)
    assert view.tolist() == [7] * 8
    alive = weakref.ref(buffer)
    del buffer
    gc.collect()
    assert alive() is not None
    del view
    gc.collect()
    assert alive() is None
    assert fake.count("cuMemFreeHost") == 1
    with pytest.raises(ValueError, match="no host view"):
        Buffer.allocate(8, context).host_view()


def test_stream_ordered_memory_is_freed_in_order(fake, context):
    first, second = Stream.create(context), Stream.create(context)
    streams = []
    for close in (lambda b: b.close(), lambda b: b.close(stream=second)):
        buffer = Buffer.allocate_async(4, first)
        close(buffer)
        streams.append(fake.calls[-2][1][-1])
    assert streams == [first.handle, second.handle]
    with pytest.raises(ValueError, match="stream's order"):
        Buffer.allocate(4, context).close(stream=first)


def test_a_stream_is_not_destroyed_while_memory_is_freed_in_its_order(fake, context, monkeypatch):
    """In another thread: NVIDIA's driver ends the process at the handle of a stream that has gone."""
    stream = Stream.create(context)
    memory = Buffer.allocate_async(4, stream)
    asked, closing = fake.cuStreamIsCapturing, []

    def asking(handle):
        if not closing:
            closing.append(threading.Thread(target=stream.close))
            closing[0].start()
            closing[0].join(0.2)  # it would be done by then
        return asked(handle)

    monkeypatch.setattr(fake, "cuStreamIsCapturing", asking, raising=False)
    memory.close()
    closing[0].join()
    names = [name for name, _ in fake.calls]
    assert names.index("cuMemFreeAsync") < names.index("cuStreamDestroy")


def test_memory_that_was_freed_is_freed_in_no_other_order(fake):
    """Whatever has been closed since."""
    with Context.create(0) as context, Stream.create(context) as stream:
        buffer = Buffer.allocate_async(4, stream)
        buffer.close()
    fake.calls.clear()
    buffer.close(stream=Stream.legacy())
    assert not fake.calls


def test_stream_ordered_memory_outlives_its_stream(fake, context):
    stream = Stream.create(context)
    buffer = Buffer.allocate_async(4, stream)
    stream.close()
    buffer.close()
    assert [name for name, _ in fake.calls[-4:]] == [
        "cuCtxPushCurrent",
        "cuCtxSynchronize",
        "cuMemFree",
        "cuCtxPopCurrent",
    ]


def test_pointer_info(fake, context):
    buffer = Buffer.allocate(16, context)
    info = pointer_info(buffer.pointer)
    assert (info.kind, info.context_handle, info.device_ordinal) == ("device", None, 1)
    assert (info.base, info.size_bytes) == (buffer.pointer, 16)
    unknown = pointer_info(0x10)
    assert (unknown.kind, unknown.device_ordinal, unknown.size_bytes) == ("unregistered", None, 0)
    # Host memory that was mapped through the driver's virtual memory belongs to device -1, the CPU.
    fake.cuPointerGetAttributes = lambda *asked: (0, [1, cu.CUcontext(0x99), 0x7000, 64, False])
    fake.cuPointerGetAttribute = lambda *asked: (0, -1)
    assert pointer_info(0x7000) == PointerInfo("host", 0x99, None, 0x7000, 64)
    for memory_type, is_managed in ((2, True), (4, False)):
        answer = (0, [memory_type, cu.CUcontext(0x99), 0x7000, 64, is_managed])
        fake.cuPointerGetAttributes = lambda *asked, answer=answer: answer
        assert pointer_info(0x7000).kind == "managed"
    del fake.cuPointerGetAttributes, fake.cuPointerGetAttribute
    fake.fails["cuPointerGetAttributes"] = cu.CUresult.CUDA_ERROR_INVALID_VALUE
    assert pointer_info(0x10) == unknown
    fake.fails["cuPointerGetAttributes"] = cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(CudaError):
        pointer_info(0x10)
    with pytest.raises(ValueError, match="64-bit"):
        pointer_info(-1)


# libraries and graphs


def test_a_missing_kernel_lists_the_known(fake):
    library = Library.load(b"\x7fELF", name="study")
    with pytest.raises(ValueError, match="library 'study' has no kernel 'prob'; it has probe"):
        library.kernel("prob")
    fake.missing.add("cuLibraryGetKernelCount")
    with pytest.raises(ValueError, match="cannot be listed"):
        library.kernel("prob")
    fake.fails["cuLibraryGetKernel"] = cu.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(CudaError):
        library.kernel("probe")


def test_a_kernel_of_a_closed_library(fake):
    library = Library.load(b"\x7fELF", name="study")
    kernel = library.kernel("probe")
    assert kernel.registers(0) == 40
    library.close()
    with pytest.raises(ValueError, match="library 'study' of kernel 'probe' is closed"):
        kernel.registers(0)
    with pytest.raises(ValueError, match="closed"):
        _ = kernel.function


def test_a_kernel_keeps_its_library(fake):
    kernel = Library.load(b"\x7fELF").kernel("probe")
    gc.collect()
    assert fake.count("cuLibraryUnload") == 0
    del kernel
    gc.collect()
    assert fake.count("cuLibraryUnload") == 1


def test_kernel_options(fake):
    kernel = Library.load(b"\x7fELF").kernel("probe")
    kernel.allow_non_portable_cluster(0)
    assert kernel.allows_non_portable_cluster(0)
    kernel.set_max_dynamic_shared_bytes(232448, 0)
    assert kernel.max_dynamic_shared_bytes(0) == 232448
    with pytest.raises(UnsupportedError, match="232449 bytes of dynamic and 0 of static"):
        kernel.set_max_dynamic_shared_bytes(232449, 0)
    with pytest.raises(ValueError, match="'COLOUR'"):
        kernel.attribute("COLOUR", 0)


def test_what_is_no_cubin(fake):
    with pytest.raises(TypeError, match="str"):
        Library.load("cubin")
    with pytest.raises(ValueError, match="no cubin"):
        Library.load(b"")


def test_a_capture_gives_a_graph(fake, context):
    stream = Stream.create(context)
    with Graph.capture(stream) as graph:
        assert fake.capturing == stream.handle
        with pytest.raises(ValueError, match="has not ended"):
            graph.instantiate()
    assert graph.node_count == 3
    with graph, graph.instantiate() as executable:
        executable.launch(stream)
    assert fake.living("graph") == fake.living("executable") == set()
    assert fake.stack == []


def test_memory_of_a_graph_is_freed_in_its_capture(fake, context):
    stream = Stream.create(context)
    before = Buffer.allocate_async(4, stream)
    with Graph.capture(stream) as graph:
        Buffer.allocate_async(4, stream).close()
        assert fake.count("cuMemFreeAsync") == 1, "which makes a node of it"
        before.close()
        before.close()
        assert fake.count("cuMemFreeAsync") == 1
    assert fake.count("cuMemFreeAsync") == 2
    graph.close()


def test_the_addresses_of_a_graphs_memory(fake, context):
    """The driver knows them only once the graph runs."""
    stream = Stream.create(context)
    with Graph.capture(stream) as graph:
        buffer = Buffer.allocate_async(4, stream)
        first = buffer.pointer
        del fake.memory[first]
        info = PointerInfo("device", None, 0, first, 4)
        assert [pointer_info(first + i) for i in (0, 3)] == [info, info]
        assert [pointer_info(first + i).kind for i in (-1, 4)] == ["unregistered"] * 2
        buffer.close()
        assert pointer_info(first).kind == "unregistered"
    graph.close()


def test_a_failed_capture_is_ended_and_thrown_away(fake, context):
    stream = Stream.create(context)
    with pytest.raises(KeyError), Graph.capture(stream) as graph:
        raise KeyError
    assert fake.capturing is None
    assert fake.living("graph") == set()
    with pytest.raises(ValueError, match="thrown away"):
        _ = graph.handle
    fake.fails["cuStreamEndCapture"] = cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    with pytest.raises(KeyError), Graph.capture(stream):
        raise KeyError
    with pytest.raises(CudaError, match="INVALIDATED"), Graph.capture(stream):
        pass
    assert fake.stack == []


def test_what_cannot_be_captured(fake, context):
    with pytest.raises(ValueError, match="legacy"):
        Graph.capture(Stream.legacy(context))
    with pytest.raises(ValueError, match="'thread_local'"):
        Graph.capture(Stream.create(context), mode="local")


def test_the_collector_or_a_signals_handler_may_close_a_handle_at_any_moment(fake, context):
    """Also while this very thread is closing another one, and halts what uses that."""
    first, second = Stream.create(context), Event.create(context)

    class User:
        def halt(self, reason):
            second.close()
            return True

        def resume(self):
            raise AssertionError("it stays closed")

    user = User()
    first.serve(user)
    in_threads(first.close, timeout=20)
    assert first.is_closed
    assert second.is_closed


def test_nothing_is_freed_in_a_primary_context_that_others_ended_and_made_anew(fake, monkeypatch):
    """Its handle is the same, and so may be the addresses in it: its number tells."""
    numbers = {"now": 1}
    monkeypatch.setattr(fake, "cuCtxGetId", lambda handle: (cu.CUresult.CUDA_SUCCESS, numbers["now"]), raising=False)
    ours, others = Context.primary(0), Context.primary(0)
    kept, lost = Buffer.allocate(16, ours), Buffer.allocate(16, ours)
    ours.close()
    kept.close()
    assert fake.count("cuMemFree") == 1
    others.close()
    with Context.primary(0):
        numbers["now"] = 2
        lost.close()
    assert fake.count("cuMemFree") == 1


@pytest.mark.parametrize("kind", [Stream, Event])
def test_what_was_made_in_a_borrowed_context_is_not_touched_when_its_owner_has_ended_that(fake, kind):
    owner = Context.create()
    made = kind.create(Context.from_handle(owner.handle))
    owner.close()
    fake.calls.clear()
    made.close()
    assert not [name for name, _ in fake.calls if name.endswith("Destroy")]


@pytest.mark.parametrize("kind", [Stream, Event])
def test_nor_when_another_one_is_at_its_address(fake, monkeypatch, kind):
    numbers = {"now": 1}
    monkeypatch.setattr(fake, "cuCtxGetId", lambda handle: (cu.CUresult.CUDA_SUCCESS, numbers["now"]), raising=False)
    handle = fake.cuCtxCreate(0, 0)[1]  # by others
    fake.stack.clear()
    made, lost = (kind.create(Context.from_handle(handle)) for _ in range(2))
    made.close()
    numbers["now"] = 2
    lost.close()
    assert len([name for name, _ in fake.calls if name.endswith("Destroy")]) == 1


@pytest.mark.parametrize("refused", ["cuCtxGetId", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxGetState"])
def test_what_was_made_in_a_primary_context_is_freed_even_if_its_release_was_refused(fake, refused):
    """Others may keep that context: what is not freed then would be lost to all."""
    others, ours = Context.primary(0), Context.primary(0)
    kept = Buffer.allocate(16, ours)
    fake.fails[refused] = cu.CUresult.CUDA_ERROR_UNKNOWN
    with pytest.raises(CudaError, match=refused):
        ours.close()
    fake.fails.clear()
    assert fake.count("cuDevicePrimaryCtxRelease") == 1
    kept.close()
    assert fake.count("cuMemFree") == 1
    others.close()
