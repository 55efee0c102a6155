"""The simulated machine on small kernels: memory, control flow, warps, barriers, residency, counters."""

import re
import struct

import numpy as np
import pytest

from lowlevel_reduce.simulator import machine, ptx
from lowlevel_reduce.simulator.ptx.code import UnknownInstruction

HEAD = ".version 8.8\n.target sm_90\n.address_size 64\n"
REGISTERS = (
    ".reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<40>; .reg .f32 %f<40>; .reg .b64 %rd<40>; "
    ".reg .f64 %fd<40>; .reg .b128 %q<4>;"
)
# Thread i of the grid gets the address of its own 8-byte place in the second parameter's array in %rd9.
OWN_PLACE = """
    ld.param.u64 %rd0, [a];
    ld.param.u64 %rd1, [b];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mad.lo.s32 %r3, %r1, %r2, %r0;
    mul.wide.u32 %rd8, %r3, 8;
    add.s64 %rd9, %rd1, %rd8;
"""


def kernel(body, declarations=""):
    body = f"{REGISTERS}\n{declarations}\n{OWN_PLACE}\n{body}"
    text = f"{HEAD}.visible .entry k(.param .u64 a, .param .u64 b)\n{{\n{body}\n}}\n"
    return ptx.parse(text).kernels["k"]


def run(
    body, source=b"", *, blocks=1, threads=32, cluster=None, resident=8, seed=None, declarations="", dynamic=0,
    cooperative=False,
):  # fmt: skip
    """Run a kernel with `a` and `b` the addresses of input and output; return the output's words and the counters."""
    memory = machine.GlobalMemory()
    a = memory.allocate(max(len(source), 1))
    b = memory.allocate(8 * blocks * threads)
    if source:
        memory.write(a, source)
    memory.fill(b, 0, 8 * blocks * threads)
    launch = machine.Launch(
        kernel=kernel(body, declarations),
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        cluster=cluster and (cluster, 1, 1),
        dynamic_shared_bytes=dynamic,
        arguments=struct.pack("QQ", a, b),
        cooperative=cooperative,
        resident_blocks=resident,
        seed=seed,
    )
    counters = machine.run(launch, memory)
    return np.frombuffer(memory.read(b, 8 * blocks * threads), np.uint64), counters


def fault(body, source=b"", **options):
    with pytest.raises(machine.KernelFault) as caught:
        run(body, source, **options)
    error = caught.value
    assert error.kernel == "k"
    for part in ("k, ", f"block {error.block}", f"thread {error.thread}", f"line {error.line}", error.text):
        assert part in str(error)
    return error


class TestMemory:
    @pytest.mark.parametrize("access", ["ld.global.u32 %r4, [%rd2]", "st.global.u32 [%rd2], %r4",
                                        "atom.global.add.u32 %r4, [%rd2], 1"])  # fmt: skip
    @pytest.mark.parametrize("address", ["-4", "0x8000700000001000"])
    def test_addresses_of_the_upper_half(self, address, access):
        error = fault(f"mov.u64 %rd2, {address}; {access}; ret;", bytes(4))
        assert f"{int(address, 0) % 2**64:#x}, " in error.reason
        assert "past the end of the allocation" in error.reason

    def test_allocations_are_apart_aligned_and_not_reused(self):
        memory = machine.GlobalMemory()
        first, second = memory.allocate(5), memory.allocate(7, alignment=1024)
        assert first % 256 == second % 1024 == 0
        assert second >= first + 5 + 256
        assert memory.allocate(256) >= second + 7 + 256
        memory.free(first)
        assert memory.allocate(5) > second
        assert memory.find(first + 4).freed
        assert memory.find(first + 5) is None
        assert memory.find(second).size_bytes == 7
        with pytest.raises(ValueError, match="freed before"):
            memory.free(first)

    def test_host_copies(self):
        memory = machine.GlobalMemory()
        a, b = memory.allocate(8), memory.allocate(8)
        memory.write(a, bytes(range(8)))
        memory.copy(b + 1, a, 7)
        memory.fill(b, 255, 1)
        assert memory.read(b, 8) == bytes([255, 0, 1, 2, 3, 4, 5, 6])
        memory.copy(a + 1, a, 7)
        assert memory.read(a, 8) == bytes([0, 0, 1, 2, 3, 4, 5, 6])
        with pytest.raises(ValueError, match="one allocation"):
            memory.write(a + 1, bytes(8))

    @pytest.mark.parametrize(
        ("body", "size", "reason"),
        [
            ("add.s64 %rd2, %rd0, %rd8; ld.global.u64 %rd3, [%rd2];", 8 * 31, "past the end of the allocation"),
            ("ld.global.u32 %r4, [%rd0+2];", 8, "misaligned"),
            ("ld.global.v2.u32 {%r4, %r5}, [%rd0+4];", 64, "misaligned"),
            ("mov.u64 %rd2, 64; st.global.u32 [%rd2], %r0;", 8, "outside all allocations"),
            ("ld.global.u32 %r4, [%rd0];", 0, "outside|past|uninitialised"),
            ("ld.shared.u32 %r4, [s];", 8, "uninitialised bytes of shared"),
            ("mov.u32 %r4, s; st.shared.u32 [%r4+128], %r0;", 8, "outside the 128 bytes of shared"),
            ("mov.u32 %r4, s; st.shared.u32 [%r4+2], %r0;", 8, "misaligned"),
            ("trap;", 8, "traps"),
        ],
    )
    def test_faults(self, body, size, reason):
        error = fault(body + "ret;", bytes(size), declarations=".shared .align 4 .b8 s[128];")
        assert re.search(reason, error.reason), error.reason

    def test_the_first_offender_is_named(self):
        body = "add.s64 %rd2, %rd0, %rd8;\nld.global.u64 %rd3, [%rd2];\nret;"
        error = fault(body, bytes(8 * 35), blocks=2)
        assert (error.block, error.thread) == ((1, 0, 0), (3, 0, 0))
        assert error.text == "ld.global.u64 %rd3, [%rd2]"

    def test_uninitialised_and_freed_memory(self):
        memory = machine.GlobalMemory()
        a, b = memory.allocate(256), memory.allocate(256)
        memory.fill(a, 1, 100)
        arguments = struct.pack("QQ", a, b)
        launch = machine.Launch(
            kernel("mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd0, %rd2; ld.global.u32 %r4, [%rd3]; ret;"),
            *((1, 1, 1), (32, 1, 1), None, 0, arguments, False, 1),
        )
        with pytest.raises(machine.KernelFault, match="uninitialised") as caught:
            machine.run(launch, memory)
        assert caught.value.thread == (25, 0, 0)
        memory.free(a)
        with pytest.raises(machine.KernelFault, match="freed allocation"):
            machine.run(launch, memory)

    def test_generic_and_local_addresses(self):
        body = """
            mov.u64 %rd2, s; cvta.shared.u64 %rd3, %rd2; mul.wide.u32 %rd4, %r0, 4; add.s64 %rd3, %rd3, %rd4;
            st.u32 [%rd3], %r0;
            ld.shared.u32 %r5, [s+12];
            mov.u64 %rd5, l; st.local.u32 [%rd5+4], %r0; cvta.local.u64 %rd6, %rd5; ld.u32 %r6, [%rd6+4];
            add.s32 %r7, %r5, %r6; st.u32 [%rd9], %r7; ret;
        """
        output, _ = run(body, declarations=".shared .align 4 .b8 s[128]; .local .align 8 .b8 l[8];")
        assert output.tolist() == [3 + i for i in range(32)]

    def test_wide_accesses(self):
        body = (
            "ld.global.b128 %q0, [%rd0]; mov.b128 {%rd2, %rd3}, %q0; add.s64 %rd4, %rd2, %rd3; "
            "st.global.u64 [%rd9], %rd4; ret;"
        )
        output, counters = run(body, struct.pack("QQ", 5, 1 << 40), threads=1)
        assert output.tolist() == [(1 << 40) + 5]
        assert (counters.bytes_read, counters.bytes_written) == (16, 8)

    def test_dynamic_shared_memory(self):
        body = "mov.u32 %r4, d; st.shared.u32 [%r4], %r0; ld.shared.u32 %r5, [d]; st.global.u32 [%rd9], %r5; ret;"
        extern = ".shared .align 4 .b8 s[4]; .extern .shared .align 16 .b8 d[];"
        assert run(body, threads=1, dynamic=4, declarations=extern)[0].tolist() == [0]
        assert "shared memory" in fault(body, threads=1, dynamic=0, declarations=extern).reason


class TestControlFlow:
    def test_divergence_reconverges(self):
        body = """
            and.b32 %r4, %r0, 1; setp.eq.s32 %p1, %r4, 0; mov.u32 %r5, 10;
            @%p1 bra EVEN; mov.u32 %r5, 20;
            EVEN: add.s32 %r6, %r5, %r0; st.global.u32 [%rd9], %r6; ret;
        """
        output, counters = run(body)
        assert output.tolist() == [i + (20 if i % 2 else 10) for i in range(32)]
        assert (counters.branches, counters.divergent_branches) == (1, 1)
        assert counters.global_stores == 1  # one request: the warp was whole again

    def test_loops_of_different_lengths(self):
        body = """
            mov.u32 %r4, 0; mov.u32 %r5, 0;
            LOOP: add.s32 %r4, %r4, %r5; add.s32 %r5, %r5, 1; setp.le.u32 %p1, %r5, %r0; @%p1 bra LOOP;
            st.global.u32 [%rd9], %r4; ret;
        """
        output, _ = run(body, threads=100)
        assert output.tolist() == [i * (i + 1) // 2 for i in range(100)]

    def test_guarded_instructions_and_scopes(self):
        body = """
            mov.u32 %r4, 7;
            { .reg .pred p; .reg .b32 t; setp.lt.u32 p, %r0, 4; mov.u32 t, 9; @!p mov.u32 %r4, t; }
            { .reg .pred p; setp.eq.u32 p, %r0, 0; @p add.s32 %r4, %r4, 1; }
            st.global.u32 [%rd9], %r4; ret;
        """
        assert run(body)[0].tolist() == [8, 7, 7, 7] + [9] * 28

    def test_pollers_do_not_starve_whom_they_wait_for(self):
        body = """
            setp.ne.u32 %p1, %r1, 0; @%p1 bra PRODUCE;
            POLL: ld.relaxed.gpu.global.u32 %r4, [%rd0]; setp.lt.u32 %p2, %r4, 96; @%p2 bra POLL;
            st.global.u32 [%rd9], %r4; ret;
            PRODUCE: red.relaxed.gpu.global.add.u32 [%rd0], 1; ret;
        """
        for seed in (None, 0, 1):
            output, counters = run(body, bytes(4), blocks=4, seed=seed)
            assert output[:32].tolist() == [96] * 32
            assert counters.atomics == 96

    @pytest.mark.parametrize("seed", [None, 0])
    def test_a_poll_that_nobody_answers(self, seed):
        error = fault(
            "POLL: ld.global.u32 %r4, [%rd0]; setp.eq.u32 %p1, %r4, 0; @%p1 bra POLL; ret;", bytes(4), seed=seed
        )
        assert "deadlock" in error.reason

    def test_a_long_computation_is_no_deadlock(self):
        body = """
            mov.u32 %r4, 0; LOOP: add.s32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 3000; @%p1 bra LOOP;
            st.global.u32 [%rd9], %r4; ret;
        """
        assert run(body, threads=1)[0].tolist() == [3000]

    def test_residency(self):
        # All blocks wait for the last one: that needs all of them at once.
        body = """
            mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd0, %rd2; mov.u32 %r4, 1; st.relaxed.gpu.u32 [%rd2], %r4;
            POLL: ld.relaxed.gpu.u32 %r5, [%rd0+20]; setp.eq.u32 %p2, %r5, 0; @%p2 nanosleep.u32 100; @%p2 bra POLL;
            ret;
        """
        run(body, bytes(24), blocks=6, resident=6)
        assert "deadlock" in fault(body, bytes(24), blocks=6, resident=5).reason

    def test_many_blocks_in_few_slots(self):
        for seed in (None, 3):
            output, _ = run("st.global.u32 [%rd9], %r3; ret;", blocks=300, threads=40, resident=7, seed=seed)
            assert output.tolist() == list(range(12000))

    def test_unknown_instructions(self):
        with pytest.raises(UnknownInstruction, match=r"PTX line \d+: .*'wgmma.fence.sync.aligned'"):
            run("wgmma.fence.sync.aligned; ret;")
        with pytest.raises(UnknownInstruction, match="add.weird.s32"):
            run("add.weird.s32 %r1, %r2, %r3; ret;")

    def test_impossible_launches(self):
        with pytest.raises(ValueError, match="threads"):
            run("ret;", threads=2000)
        with pytest.raises(ValueError, match="clusters"):
            run("ret;", blocks=3, cluster=2)
        with pytest.raises(ValueError, match="hold no cluster"):
            run("ret;", blocks=4, cluster=4, resident=3)
        run("ret;", blocks=4, resident=4, cooperative=True)
        with pytest.raises(ValueError, match="a cooperative grid of 5 blocks does not fit: 4 are resident"):
            run("ret;", blocks=5, resident=4, cooperative=True)


class TestWarps:
    @pytest.mark.parametrize(
        ("form", "expected"),
        [
            ("bfly.b32 %r4|%p1, %r0, 1, 31", [i ^ 1 for i in range(32)]),
            ("idx.b32 %r4|%p1, %r0, 5, 31", [5] * 32),
            ("idx.b32 %r4|%p1, %r0, 1, 0x181f", [i // 8 * 8 + 1 for i in range(32)]),
            ("up.b32 %r4|%p1, %r0, 3, 0", [max(i - 3, 0) if i >= 3 else i for i in range(32)]),
            ("down.b32 %r4|%p1, %r0, 3, 31", [i + 3 if i < 29 else i for i in range(32)]),
        ],
    )
    def test_shuffles(self, form, expected):
        output, _ = run(f"shfl.sync.{form}, 0xffffffff; st.global.u32 [%rd9], %r4; ret;")
        assert output.tolist() == expected

    def test_lanes_that_left_the_path_are_awaited(self):
        # Half of the lanes go a longer way; the shuffle still sees all of them.
        body = """
            setp.lt.u32 %p1, %r0, 16; mov.u32 %r5, %r0; @%p1 bra SHUFFLE_A;
            add.s32 %r5, %r5, 100; add.s32 %r5, %r5, 100;
            SHUFFLE_A: shfl.sync.bfly.b32 %r4, %r5, 16, 31, -1;
            st.global.u32 [%rd9], %r4; ret;
        """
        assert run(body, seed=1)[0].tolist() == [i + 216 for i in range(16)] + list(range(16))

    def test_lanes_that_come_back_later_are_awaited(self):
        # The longer way lies behind the shuffle, so that the lanes on the shorter one come there first.
        body = """
            setp.lt.u32 %p1, %r0, 16; mov.u32 %r5, %r0; @%p1 bra LONG;
            SHUFFLE_B: shfl.sync.bfly.b32 %r4, %r5, 16, 31, -1;
            st.global.u32 [%rd9], %r4; ret;
            LONG: add.s32 %r5, %r5, 100; bra SHUFFLE_B;
        """
        for seed in (None, 1):
            assert run(body, seed=seed)[0].tolist() == list(range(16, 32)) + [i + 100 for i in range(16)]

    def test_warp_barrier_in_both_branches(self):
        body = """
            setp.lt.u32 %p1, %r0, 16; @%p1 bra LEFT;
            bar.warp.sync -1; bra.uni DONE;
            LEFT: bar.warp.sync -1;
            DONE: st.global.u32 [%rd9], %r0; ret;
        """
        assert run(body)[0].tolist() == list(range(32))

    def test_shuffle_faults(self):
        assert "does not take part" in fault("shfl.sync.idx.b32 %r4, %r0, 20, 31, -1; ret;", threads=16).reason
        halves = "setp.lt.u32 %p1, %r0, 16; @!%p1 ret; shfl.sync.idx.b32 %r4, %r0, 20, 31, 0xffff; ret;"
        assert "lane 20, which does not take part" in fault(halves).reason
        assert "lacks its lane" in fault("shfl.sync.idx.b32 %r4, %r0, 0, 31, 1; ret;").reason

    def test_shuffles_apart_wait_for_ever(self):
        body = """
            setp.lt.u32 %p1, %r0, 16; @%p1 bra LEFT;
            shfl.sync.bfly.b32 %r4, %r0, 1, 31, -1; ret;
            LEFT: shfl.sync.bfly.b32 %r4, %r0, 1, 31, -1; ret;
        """
        assert "deadlock" in fault(body).reason

    def test_votes_matches_and_reductions(self):
        body = """
            setp.lt.u32 %p1, %r0, 3; vote.sync.ballot.b32 %r4, %p1, -1; vote.sync.any.pred %p2, %p1, -1;
            vote.sync.all.pred %p3, %p1, -1; selp.u32 %r5, 256, 0, %p2; selp.u32 %r6, 512, 0, %p3;
            redux.sync.max.u32 %r7, %r0, -1; activemask.b32 %r8; popc.b32 %r8, %r8;
            shr.u32 %r10, %r0, 4; match.any.sync.b32 %r11, %r10, -1; popc.b32 %r11, %r11;
            add.s32 %r9, %r4, %r5; add.s32 %r9, %r9, %r6; add.s32 %r9, %r9, %r7; add.s32 %r9, %r9, %r8;
            add.s32 %r9, %r9, %r11; st.global.u32 [%rd9], %r9; ret;
        """
        assert run(body)[0].tolist() == [7 + 256 + 31 + 32 + 16] * 32

    def test_halves_of_a_warp_vote_apart(self):
        """All lanes execute the instruction together, each with the member mask of its half."""
        body = """
            setp.lt.u32 %p1, %r0, 16; selp.u32 %r4, 0x0000FFFF, 0xFFFF0000, %p1; and.b32 %r5, %r0, 1;
            setp.eq.u32 %p2, %r5, 0; vote.sync.ballot.b32 %r6, %p2, %r4; st.global.u32 [%rd9], %r6; ret;
        """
        assert run(body)[0].tolist() == [0x00005555] * 16 + [0x55550000] * 16


class TestBarriers:
    def test_block_barrier(self):
        body = """
            mov.u32 %r4, s; shl.b32 %r5, %r0, 2; add.s32 %r6, %r4, %r5; st.shared.u32 [%r6], %r0; bar.sync 0;
            sub.s32 %r7, 252, %r5; add.s32 %r7, %r7, %r4; ld.shared.u32 %r8, [%r7]; st.global.u32 [%rd9], %r8; ret;
        """
        for seed in (None, 0, 1):
            output, counters = run(body, threads=64, seed=seed, declarations=".shared .align 4 .b8 s[256];")
            assert output.tolist() == list(range(63, -1, -1))
            assert counters.barriers >= 2
            assert counters.bank_conflicts == 0

    def test_divergent_barrier(self):
        error = fault("setp.lt.u32 %p1, %r0, 32; @%p1 ret; bar.sync 0; ret;", threads=64)
        assert "barrier of its block" in error.reason
        assert error.thread == (32, 0, 0)

    CLUSTER = """
        mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, s; barrier.cluster.arrive.relaxed.aligned;
        barrier.cluster.wait.acquire.aligned;
        setp.ne.u32 %p1, %r0, 0; @%p1 bra JOIN;
        shl.b32 %r6, %r4, 2; mapa.shared::cluster.u32 %r7, %r5, 0; add.s32 %r7, %r7, %r6;
        st.shared::cluster.u32 [%r7], %r1;
        JOIN: barrier.cluster.arrive.release.aligned;
        setp.ne.u32 %p2, %r4, 0; @%p2 ret;
        barrier.cluster.wait.acquire.aligned;
        and.b32 %r8, %r0, 3; shl.b32 %r8, %r8, 2; add.s32 %r8, %r8, %r5; ld.shared.u32 %r9, [%r8];
        st.global.u32 [%rd9], %r9; ret;
    """

    @pytest.mark.parametrize("seed", [None, 0, 1])
    def test_cluster(self, seed):
        output, _ = run(self.CLUSTER, blocks=8, cluster=4, seed=seed, declarations=".shared .align 4 .b8 s[16];")
        assert output.reshape(8, 32)[0].tolist() == [0, 1, 2, 3] * 8
        assert output.reshape(8, 32)[4].tolist() == [4, 5, 6, 7] * 8

    def test_a_block_that_comes_late_is_awaited(self):
        body = """
            mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p1, %r4, 0; @%p1 bra LATE;
            ARRIVE: barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
            ld.global.u32 %r6, [%rd0]; st.global.u32 [%rd9], %r6; ret;
            LATE: mov.u32 %r5, 7; add.u32 %r5, %r5, 1; add.u32 %r5, %r5, 1; st.global.u32 [%rd0], %r5; bra ARRIVE;
        """
        for seed in (None, 0, 1):
            assert run(body, bytes(4), blocks=2, cluster=2, seed=seed)[0].tolist() == [9] * 64

    def test_shared_memory_of_a_block_that_has_exited(self):
        body = """
            mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p1, %r4, 0; @%p1 ret;
            mov.u32 %r5, s; mapa.shared::cluster.u32 %r6, %r5, 0; st.shared::cluster.u32 [%r6], %r0; ret;
        """
        error = fault(body, blocks=2, cluster=2, declarations=".shared .align 4 .b8 s[16];")
        assert "block 0 of the cluster is used, and that block has exited" in error.reason
        assert error.block == (1, 0, 0)


class TestAtomics:
    @pytest.mark.parametrize(
        ("form", "start", "end"),
        [
            ("add.u32 %r4, [%rd0], 3", 5, 5 + 96),
            ("max.u32 %r4, [%rd0], %r0", 7, 31),
            ("min.s32 %r4, [%rd0], %r0", 7, 0),
            ("inc.u32 %r4, [%rd0], 9", 0, 32 % 10),
            ("dec.u32 %r4, [%rd0], 9", 0, (0 - 32) % 10),
            ("exch.b32 %r4, [%rd0], %r0", 7, 31),
            ("cas.b32 %r4, [%rd0], 7, 11", 7, 11),
            ("or.b32 %r4, [%rd0], %r0", 64, 95),
            ("xor.b32 %r4, [%rd0], %r0", 1, 1),
        ],
    )
    def test_on_one_word(self, form, start, end):
        body = (
            f"atom.relaxed.gpu.global.{form}; st.global.u32 [%rd9], %r4; ld.global.u32 %r5, [%rd0]; "
            "st.global.u32 [%rd9+4], %r5; ret;"
        )
        output, counters = run(body, struct.pack("I", start))
        assert int(output[0]) & 0xFFFFFFFF == start
        assert (output >> np.uint64(32)).tolist() == [end] * 32
        assert counters.atomics == 32

    def test_float_sum_follows_the_lanes(self):
        body = (
            "cvt.rn.f32.u32 %f1, %r0; add.rn.f32 %f1, %f1, 0f3DCCCCCD; red.global.add.f32 [%rd0], %f1; "
            "ld.global.f32 %f2, [%rd0]; st.global.f32 [%rd9], %f2; ret;"
        )
        expected = np.float32(0)
        for i in range(32):
            expected += np.float32(i) + np.float32(0.1)
        assert run(body, bytes(4))[0][0] == expected.view(np.uint32)

    @pytest.mark.parametrize(
        ("form", "start", "value", "total"),
        [("red.global.add.f32 [%rd0], %f1", 1, 1, 0), ("red.add.f32 [%rd0], %f1", 1, 1, 0),
         ("red.global.add.v2.f32 [%rd0], {%f1, %f1}", 1, 1, 0), ("red.shared.add.f32 [s], %f1", 1, 1, 2),
         ("cvta.shared.u64 %rd5, %rd4; red.add.f32 [%rd5], %f1", 1, 1, 2),
         ("red.global.add.f32 [%rd0], %f1", 0x80000001, 0x80000001, 0x80000000),
         ("red.global.add.f32 [%rd0], %f1", 0x80800001, 0x00800000, 0x80000000)],
    )  # fmt: skip
    def test_global_memory_adds_no_subnormal_floats(self, form, start, value, total):
        """As RED.E.ADD.F32.FTZ does; in shared memory the threads add."""
        place = "shared.b32 %r4, [s]" if "shared" in form else "global.b32 %r4, [%rd0]"
        body = (
            f"mov.u32 %r5, s; cvt.u64.u32 %rd4, %r5; st.shared.b32 [s], {start:#x}; mov.b32 %f1, {value:#x}; {form}; "
            f"ld.{place}; st.global.u32 [%rd9], %r4; ret;"
        )
        output, _ = run(body, struct.pack("2I", start, start), threads=1, declarations=".shared .align 8 .b8 s[8];")
        assert int(output[0]) == total


class TestCountedBarriers:
    @pytest.mark.parametrize(("threads", "awaited"), [(96, 64), (128, 64), (64, 48)])
    def test_more_threads_than_a_barrier_awaits(self, threads, awaited):
        """A GPU lets those go that come first, and the rest waits for others: of 96 threads 32 for ever."""
        error = fault(f"bar.sync 1, {awaited}; ret;", threads=threads)
        assert error.reason == f"more threads come to barrier 1 than {awaited}"


class TestClusters:
    @pytest.mark.parametrize(("cluster", "explicit"), [(None, 0), (1, 1), (2, 1)])
    def test_a_launch_without_clusters_says_so(self, cluster, explicit):
        body = "mov.pred %p1, %is_explicit_cluster; selp.u32 %r4, 1, 0, %p1; st.global.u32 [%rd9], %r4; ret;"
        assert set(run(body, blocks=2, cluster=cluster)[0].tolist()) == {explicit}


# Accesses to shared memory: the instruction, bytes from a thread's to the next one's, and what is counted: passes over
# the banks, and how many of them are due to conflicts.
ACCESSES = {
    "a word each": ("st.shared.u32 [%r5], %r4;", 4, (1, 0)),
    "every second word": ("st.shared.u32 [%r5], %r4;", 8, (2, 1)),
    "one word for all": ("ld.shared.u32 %r4, [%r5];", 0, (1, 0)),
    "two bytes each": ("ld.shared.u16 %h1, [%r5];", 2, (1, 0)),  # two threads read the same word
    "8 bytes each": ("st.shared.v2.u32 [%r5], {%r4, %r4};", 8, (2, 0)),  # half a warp at a time
    "8 bytes, 8 apart": ("st.shared.v2.u32 [%r5], {%r4, %r4};", 16, (4, 2)),
    "16 bytes each": ("st.shared.v4.u32 [%r5], {%r4, %r4, %r4, %r4};", 16, (4, 0)),  # a quarter of a warp at a time
    "16 bytes, 16 apart": ("st.shared.v4.u32 [%r5], {%r4, %r4, %r4, %r4};", 32, (8, 4)),
    "16 bytes, a line apart": ("st.shared.v4.u32 [%r5], {%r4, %r4, %r4, %r4};", 128, (32, 28)),
    "the same 16 bytes": ("ld.shared.v4.u32 {%r4, %r7, %r8, %r9}, [%r5];", 0, (4, 0)),
}


class TestCounters:
    @pytest.mark.parametrize(("access", "stride", "counted"), ACCESSES.values(), ids=ACCESSES)
    def test_wavefronts(self, access, stride, counted):
        """Lanes that access one word are served at once, and wide accesses a part of the warp at a time."""
        body = f"mul.lo.u32 %r5, %r0, {stride}; mov.u32 %r6, s; add.s32 %r5, %r5, %r6; mov.u32 %r4, 7; {access} ret;"
        written = "setp.eq.u32 %p1, %r0, 0; mov.u32 %r6, s; mov.u32 %r4, 0;" + "".join(
            f"@%p1 st.shared.v4.u32 [%r6+{place}], {{%r4, %r4, %r4, %r4}};" for place in range(0, 64, 16)
        )
        loads = access.startswith("ld")
        _, counters = run((written if loads else "") + body, declarations=".shared .align 16 .b8 s[4096];")
        requests, passes = (4, 4) if loads else (0, 0)  # those of the writes before
        assert counters.shared_requests == requests + 1
        assert (counters.shared_wavefronts - passes, counters.bank_conflicts) == counted

    def test_sectors_and_conflicts(self):
        body = """
            mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd0, %rd2; ld.global.u32 %r4, [%rd3];
            mul.wide.u32 %rd2, %r0, 64; add.s64 %rd3, %rd0, %rd2; ld.global.u32 %r4, [%rd3];
            shl.b32 %r5, %r0, 7; mov.u32 %r6, s; add.s32 %r5, %r5, %r6; st.shared.u32 [%r5], %r4; ret;
        """
        _, counters = run(body, bytes(2048), declarations=".shared .align 4 .b8 s[4096];")
        assert (counters.global_loads, counters.global_load_sectors) == (2, 4 + 32)
        assert (counters.shared_requests, counters.shared_wavefronts, counters.bank_conflicts) == (1, 32, 31)
        assert counters.instructions == sum(counters.instructions_by_class.values())
        twice = counters + counters
        assert twice.global_loads == 4
        assert twice.instructions_by_class["memory"] == 2 * counters.instructions_by_class["memory"]
