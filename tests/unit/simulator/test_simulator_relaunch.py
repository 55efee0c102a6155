"""Launches of a kernel that was launched before: they use the same bound instructions, and nothing else of it."""

import gc
import struct
import weakref

import numpy as np
import pytest

from lowlevel_reduce.simulator import machine, ptx
from lowlevel_reduce.simulator.machine.control import decoded
from lowlevel_reduce.simulator.ptx import module

WORDS = 8
KERNEL = """.version 8.8\n.target sm_90\n.address_size 64
.global .align 4 .u32 seven = 7;
.visible .entry k(.param .u64 out, .param .u32 given)
{
    .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
    .extern .shared .align 4 .b8 s[];
    ld.param.u64 %rd0, [out]; ld.param.u32 %r10, [given];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %nctaid.x;
    mov.u32 %r4, %dynamic_smem_size;
    mad.lo.s32 %r5, %r1, %r2, %r0;
    mul.wide.u32 %rd1, %r5, 32; add.s64 %rd2, %rd0, %rd1;
    add.u32 %r6, %r6, %r5;            // never written before: zero, and not what an earlier launch left there
    mov.u64 %rd3, seven; ld.global.u32 %r7, [%rd3];
    shfl.sync.bfly.b32 %r8, %r10, 1, 31, -1;
    setp.lt.u32 %p0, %r4, 4;
    @%p0 bra skip;
    mov.u32 %r11, s; shl.b32 %r12, %r0, 2; add.u32 %r11, %r11, %r12;
    st.shared.u32 [%r11], %r5;
    xor.b32 %r13, %r12, 128; mov.u32 %r14, s; add.u32 %r14, %r14, %r13;
    ld.shared.u32 %r9, [%r14];
skip:
    st.global.v4.u32 [%rd2], {%r1, %r2, %r3, %r4};
    st.global.v4.u32 [%rd2+16], {%r6, %r7, %r8, %r10};
    ret;
}
"""


def launched(kernel, blocks, threads, *, given, dynamic=0, resident=64, seed=None):
    memory = machine.GlobalMemory()
    size = 4 * WORDS * blocks * threads
    out = memory.allocate(size)
    arguments = struct.pack("QI", out, given)
    shape = ((blocks, 1, 1), (threads, 1, 1), None, dynamic, arguments, False, resident, seed)
    counters = machine.run(machine.Launch(kernel, *shape), memory)
    return np.frombuffer(memory.read(out, size), np.uint32).reshape(-1, WORDS), counters


@pytest.fixture
def kernel():
    """The kernel, which no other test has launched."""
    module._parsed.cache_clear()
    ptx.parse.cache_clear()
    return ptx.parse(KERNEL).kernels["k"]


def test_each_launch_sees_its_own_geometry_arguments_and_zeros(kernel):
    shapes = [(3, 64), (1, 32), (5, 96), (40, 512), (2, 40), (1, 64)]
    for given, (blocks, threads) in enumerate(shapes, 100):
        for seed in (None, 7):
            found, counters = launched(kernel, blocks, threads, given=given, seed=seed)
            thread = np.arange(blocks * threads)
            columns = [thread // threads, threads, blocks, 0, thread, 7, given, given]
            assert (found == np.stack(np.broadcast_arrays(*columns), axis=1)).all()
            warps = blocks * -(-threads // 32)
            assert counters.global_stores == 2 * warps
            assert counters.instructions_by_class["memory"] == 5 * warps


def test_a_fault_is_told_of_the_launch_that_commits_it(kernel):
    launched(kernel, 2, 64, given=1)
    for _ in range(2):
        with pytest.raises(machine.KernelFault, match="uninitialised|data race") as caught:
            launched(kernel, 2, 64, given=1, dynamic=256)
        assert caught.value.text == "ld.shared.u32 %r9, [%r14]"
        assert launched(kernel, 2, 64, given=5)[0][:, 6].tolist() == [5] * 128


def test_instructions_are_bound_once_and_memory_is_not_kept(kernel, monkeypatch):
    bound = []
    add = decoded.DECODERS["add"]
    monkeypatch.setitem(decoded.DECODERS, "add", lambda *given: bound.append(given) or add(*given))
    for threads in (32, 1000, 64):
        launched(kernel, 1, threads, given=1)
    assert len(bound) == len(set(bound)) == 2
    flight = bound[0][1]
    for name in ("launch", "memory", "races", "shared"):
        assert not hasattr(flight, name)


def test_a_kernel_for_two_architectures_is_parsed_and_bound_once(kernel):
    other = ptx.parse(KERNEL.replace("sm_90", "sm_120a"))
    assert other.target == "sm_120a"
    assert ptx.parse(KERNEL).target == "sm_90"
    assert other.kernels["k"] is kernel
    assert ptx.parse(KERNEL.replace("= 7", "= 8")).kernels["k"] is not kernel


def test_what_is_kept_is_bounded(kernel, monkeypatch):
    launched(kernel, 1, 32, given=1)
    assert id(kernel) in decoded._kept
    monkeypatch.setattr(decoded, "KEPT_BYTES", 0)
    launched(kernel, 1, 32, given=1)
    assert not decoded._kept


@pytest.mark.parametrize("blocks", [1, 80], ids=["no longer kept", "too small for the next launch"])
def test_what_is_dropped_leaves_nothing_to_the_garbage_collector(monkeypatch, blocks):
    guarded = KERNEL.replace("skip:\n", "skip:\n    @%p0 mov.u32 %r10, %r10;\n")  # a step that refers to what holds it
    kernel = ptx.parse(guarded).kernels["k"]
    gc.disable()
    try:
        launched(kernel, 1, 32, given=1)
        dropped = weakref.ref(decoded._kept[id(kernel)])
        if blocks == 1:
            monkeypatch.setattr(decoded, "KEPT_BYTES", 0)
        launched(kernel, blocks, 64, given=1)
        assert dropped() is None
    finally:
        gc.enable()
