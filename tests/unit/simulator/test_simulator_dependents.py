"""Launches that may start before the one ahead has ended: what they touch before their wait is checked."""

import struct

import pytest
from ptx_kernel import text

from lowlevel_reduce.simulator import machine, ptx
from lowlevel_reduce.simulator.machine.races.prerequisites import MOST_RUNNING

WAIT, LET_IN = "griddepcontrol.wait;\n", "griddepcontrol.launch_dependents;\n"
PLACES = "".join(f"mul.wide.u32 %rd{10 + i}, %r0, 4; add.s64 %rd{10 + i}, %rd{10 + i}, %rd{i};\n" for i in range(2))
READ, OTHER_READ = (
    "ld.global.u32 %r5, [%rd10]; add.u32 %r5, %r5, 1;\n",
    "ld.global.u32 %r6, [%rd11]; add.u32 %r6, %r6, 1;\n",
)
WRITE, OTHER_WRITE = "st.global.u32 [%rd10], %r0;\n", "st.global.u32 [%rd11], %r0;\n"
ADD = "red.global.add.u32 [%rd10], 1;\n"
PREFETCH = "{ .reg .u32 x; ld.volatile.global.u32 x, [%rd10]; }\n"
EARLY = "of the earlier kernel k, before griddepcontrol.wait"


class Device:
    """A device's memory with two arrays of 64 words, and the launches on it, each with the attribute."""

    def __init__(self):
        self.memory = machine.GlobalMemory()
        self.arrays = [self.memory.allocate(256) for _ in range(2)]
        for address in self.arrays:
            self.memory.write(address, bytes(256))

    def launch(self, body, *before, seed=None):
        """Run a kernel of two warps that may start before those whose traces are given; return its trace."""
        trace = machine.Trace(before)
        launch = machine.Launch(
            kernel=ptx.parse(text(PLACES + body, arrays=2)).kernels["k"],
            grid=(1, 1, 1),
            block=(64, 1, 1),
            cluster=None,
            dynamic_shared_bytes=0,
            arguments=struct.pack("2Q", *self.arrays),
            cooperative=False,
            resident_blocks=1,
            seed=seed,
            trace=trace,
        )
        machine.run(launch, self.memory)
        return trace

    def chain(self, *bodies):
        """Run kernels one after the other, each in front of the end of the one before."""
        traces = []
        for body in bodies:
            traces.append(self.launch(body, *traces[-1:]))
        return traces


def reason(*bodies):
    """Return why the last of some kernels, one after the other, is wrong."""
    device = Device()
    traces = device.chain(*bodies[:-1])
    with pytest.raises(machine.KernelFault) as caught:
        device.launch(bodies[-1], *traces[-1:])
    return caught.value.reason


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        (WRITE, READ, "reads what warp 0 of block (0, 0, 0) wrote at PTX line"),
        (ADD, READ, "reads what warp 0 of block (0, 0, 0) updated"),
        (WRITE, WRITE, "writes what warp 0 of block (0, 0, 0) wrote"),
        (READ, WRITE, "writes what warp 0 of block (0, 0, 0) read"),
        (READ, ADD, "updates what warp 0 of block (0, 0, 0) read"),
        (WRITE + LET_IN, READ, "reads what"),  # what it wrote before it let others in need not be visible either
        (WRITE, READ + WAIT, "reads what"),
    ],
)
def test_what_comes_before_the_wait_is_a_race(first, second, what):
    found = reason(first, second)
    assert found.startswith(f"data race: {what}")
    assert found.endswith(EARLY)
    Device().chain(first, WAIT + second)


@pytest.mark.parametrize(
    ("first", "second"), [(READ, READ), (WRITE, OTHER_READ), (WRITE, OTHER_WRITE), (WRITE, PREFETCH)]
)
def test_what_does_not_conflict_is_none(first, second):
    Device().chain(first, second)


def test_without_the_attribute_nothing_is_early():
    device = Device()
    device.launch(WRITE)
    device.launch(READ)


def test_others_are_ordered_after_who_has_waited():
    one = "setp.gt.u32 %p1, %r0, 31; @%p1 bra PAST; griddepcontrol.wait; PAST:\n"
    Device().chain(WRITE, one + "bar.sync 0;\n" + READ)
    for order in (one + READ, "bar.sync 0;\n" + one + READ):
        assert reason(WRITE, order).endswith(EARLY)


def test_a_kernel_that_waits_for_nobody_breaks_the_chain():
    """The third kernel's wait is for the second, which may have ended while the first is still running."""
    broken = "and no kernel in between waits for it"
    assert reason(WRITE, OTHER_WRITE, WAIT + READ).endswith(broken)
    assert reason(WRITE, OTHER_WRITE, WAIT, WAIT + READ).endswith(broken)
    Device().chain(WRITE, WAIT + OTHER_WRITE, WAIT + READ)


def test_who_lets_others_in_before_it_waits_lets_them_in_before_its_own_prerequisites_end():
    assert reason(WRITE, LET_IN + WAIT, READ).endswith(EARLY)
    Device().chain(WRITE, WAIT + LET_IN, READ)
    Device().chain(WRITE, WAIT, READ)
    Device().chain(WRITE, LET_IN + WAIT, WAIT + READ)


def test_the_host_may_wait_too():
    device = Device()
    first, second = device.chain(WRITE, OTHER_WRITE)
    first.finish()
    assert not device.launch(READ, first).early
    second.finish()
    assert not device.launch(READ, second).early


def test_what_no_launch_can_meet_any_more_is_not_kept():
    device = Device()
    traces = device.chain(WRITE, *[LET_IN + WAIT + WRITE] * 8)
    kept = (traces[-1].own, *traces[-1].awaited, *traces[-1].unawaited)
    assert len(kept) == 1 + MOST_RUNNING


def test_copies_are_early_too():
    copy = """
        .shared .align 16 .b8 data[256]; mov.u32 %r1, data; shl.b32 %r2, %r0, 2; add.u32 %r2, %r2, %r1;
        cp.async.ca.shared.global [%r2], [%rd10], 4; cp.async.wait_all;
    """
    assert reason(WRITE, copy).startswith("data race: reads what warp 0")
    Device().chain(WRITE, WAIT + copy)
