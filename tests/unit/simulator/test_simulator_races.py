"""Data races on the simulated machine: each form is caught and named; the same accesses in order are accepted."""

import struct

import numpy as np
import pytest

from lowlevel_reduce.simulator import machine, ptx

HEAD = ".version 8.8\n.target sm_90\n.address_size 64\n"
# %r0 thread, %r1 block, %r2 warp, %r3 lane; %p0 .. %p3: the thread is the first of the block, of warp 1; the block is
# number 0, is number 1; %rd0 global memory: 16 words of zeros.
BEGIN = """
    .reg .pred %p<20>; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .b128 %q<4>;
    .shared .align 16 .b8 s[256];
    ld.param.u64 %rd0, [a];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; shr.u32 %r2, %r0, 5; and.b32 %r3, %r0, 31;
    setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r0, 32; setp.eq.u32 %p2, %r1, 0; setp.eq.u32 %p3, %r1, 1;
    setp.eq.u32 %p4, %r2, 0; setp.eq.u32 %p5, %r2, 1;
    mov.u32 %r9, s; mov.u32 %r10, 7;
"""


def run(body, *, blocks=1, threads=64, cluster=None, resident=8, seed=None):
    """Run a kernel over 16 words of zeros and return them."""
    text = f"{HEAD}.visible .entry k(.param .u64 a)\n{{\n{BEGIN}\n{body}\nret;\n}}\n"
    memory = machine.GlobalMemory()
    a = memory.allocate(64)
    memory.fill(a, 0, 64)
    machine.run(
        machine.Launch(
            kernel=ptx.parse(text).kernels["k"],
            grid=(blocks, 1, 1),
            block=(threads, 1, 1),
            cluster=cluster and (cluster, 1, 1),
            dynamic_shared_bytes=0,
            arguments=struct.pack("Q", a),
            cooperative=False,
            resident_blocks=resident,
            seed=seed,
        ),
        memory,
    )
    return np.frombuffer(memory.read(a, 64), np.uint32)


def race(body, **options):
    """Run a kernel that must be caught at a race; return the fault, and the lines that it and the other stand at."""
    with pytest.raises(machine.KernelFault, match="data race") as caught:
        run(body, **options)
    error = caught.value
    assert error.reason.startswith("data race: ")
    assert f"PTX line {error.line}" in str(error)
    return error


def instruction(error):
    """Return what an error says of the other access."""
    return error.reason.split("(")[-1].split(")")[0]


def by_cases(first, second):
    """Let warp 0 of block 0 do the one thing and warp 0 of block 1 the other, each with one thread."""
    return f"@!%p0 bra END; @%p3 bra OTHER; {first} bra END; OTHER: {second} END:"


# A wait for the second word of global memory to be set, by an access of that kind.
def until(load):
    return f"POLL: {load} %r20, [%rd0+4]; setp.eq.u32 %p10, %r20, 0; @%p10 bra POLL;"


SEEDS = [None, *range(10)]


@pytest.mark.parametrize("seed", SEEDS)
class TestBlock:
    WRITE = "mul.lo.u32 %r4, %r2, 4; add.u32 %r4, %r9, %r4; setp.eq.u32 %p6, %r3, 0; @%p6 st.shared.u32 [%r4], %r2;"
    READ = "@%p0 ld.shared.u32 %r5, [s+4]; @%p0 st.global.u32 [%rd0], %r5;"
    # The same after shared memory was written, so that nothing is uninitialised.
    CLEARED = "mov.u32 %r6, 0; @%p0 st.shared.v2.u32 [s], {%r6, %r6}; bar.sync 0;"

    def test_missing_barrier(self, seed):
        error = race(f"{self.CLEARED}{self.WRITE}{self.READ}", seed=seed)
        assert {error.text, instruction(error)} == {"@%p0 ld.shared.u32 %r5, [s+4]", "@%p6 st.shared.u32 [%r4], %r2"}
        assert error.block == (0, 0, 0)
        reader = error.text.startswith("@%p0 ld")
        assert error.thread == ((0, 0, 0) if reader else (32, 0, 0))
        assert f"warp {1 if reader else 0} of block (0, 0, 0)" in error.reason

    def test_barrier(self, seed):
        assert run(f"{self.CLEARED}{self.WRITE} bar.sync 0; {self.READ}", seed=seed)[0] == 1

    def test_read_before_write(self, seed):
        again = "@%p1 st.shared.u32 [s+4], %r10;"
        race(f"{self.CLEARED}{self.WRITE} bar.sync 0; {self.READ}{again}", seed=seed)
        run(f"{self.CLEARED}{self.WRITE} bar.sync 0; {self.READ} bar.sync 0; {again}", seed=seed)

    def test_two_writes(self, seed):
        error = race("st.shared.u32 [s], %r2;", seed=seed)
        assert error.text == instruction(error)
        race("@%p0 st.shared.u32 [s], %r2; @%p1 st.shared.u32 [s], %r2;", seed=seed)
        run("@%p0 st.shared.u32 [s], %r2; bar.sync 0; @%p1 st.shared.u32 [s], %r2;", seed=seed)

    def test_any_two_warps(self, seed):
        for one, other in ((0, 1), (1, 2), (0, 2)):
            chosen = f"setp.eq.u32 %p6, %r2, {one}; setp.eq.u32 %p7, %r2, {other}; or.pred %p6, %p6, %p7;"
            race(f"{chosen} @%p6 st.shared.u32 [s], %r10;", threads=96, seed=seed)

    def test_a_reader_is_remembered_beside_a_place_that_the_next_had_read_itself(self, seed):
        """One instruction of a warp meets its own earlier read, and that of another warp, which it must not replace."""
        body = """
            @%p1 ld.shared.u32 %r5, [s+4]; @%p0 ld.shared.u32 %r5, [s];
            setp.lt.u32 %p6, %r0, 2; mul.lo.u32 %r6, %r3, 4; add.u32 %r6, %r9, %r6; @%p6 ld.shared.u32 %r5, [%r6];
            @%p0 st.shared.u32 [s+4], %r10;
        """
        race(self.CLEARED + body, seed=seed)

    def test_lanes_of_a_warp_are_one_thread(self, seed):
        run("st.shared.u32 [s], %r3; ld.shared.u32 %r5, [s];", threads=32, seed=seed)

    def test_named_barriers(self, seed):
        # Warp 0 waits for warp 1, which arrives and goes on; warp 2 is not part of it.
        body = """
            {first} @%p5 bar.arrive 3, 64; @%p4 bar.sync 3, 64;
            {second}
        """
        write, read = "@%p1 st.shared.u32 [s], %r10;", "@%p0 ld.shared.u32 %r5, [s]; @%p0 st.global.u32 [%rd0], %r5;"
        assert run(body.format(first=write, second=read), threads=96, seed=seed)[0] == 7
        # Who only arrives does not wait.
        other = "@%p0 st.shared.u32 [s], %r10;"
        race(body.format(first=other, second="@%p1 st.shared.u32 [s], %r10;"), threads=96, seed=seed)
        # What is done after the arrival is not part of it.
        race(body.format(first="", second=f"{write} {other}"), threads=96, seed=seed)
        # Two barriers are not one.
        race(f"{write} @%p5 bar.sync 1, 32; @%p4 bar.sync 2, 32; {other}", seed=seed)

    def test_a_barrier_used_again_forgets_who_met_there_before(self, seed):
        # Warps 0 and 1 meet, then warps 2 and 3, who know that only from a flag that orders nothing.
        body = """
            mov.u32 %r6, 0; @%p0 st.shared.v2.u32 [s], {%r6, %r6}; bar.sync 0;
            setp.gt.u32 %p6, %r2, 1; @%p6 bra LATER; @%p0 st.shared.u32 [s], %r10; bar.sync 1, 64;
            @%p1 st.volatile.shared.u32 [s+4], %r10; bra END;
            LATER: ld.volatile.shared.u32 %r20, [s+4]; setp.eq.u32 %p10, %r20, 0; @%p10 bra LATER;
            bar.sync 1, 64; setp.eq.u32 %p7, %r0, 64; @%p7 ld.shared.u32 %r5, [s]; END:
        """
        assert race(body, threads=128, seed=seed).thread == (64, 0, 0)

    def test_bytes_of_a_word(self, seed):
        own = "mov.u64 %rd2, s; cvt.u64.u32 %rd3, %r2; add.u64 %rd2, %rd2, %rd3;"
        run(f"{own} st.shared.u8 [%rd2], %r2; ld.shared.u8 %h1, [%rd2];", threads=128, seed=seed)
        run("@%p0 st.shared.u16 [s], %h0; @%p1 st.shared.u16 [s+2], %h0;", seed=seed)
        race("@%p0 st.shared.u16 [s], %h0; @%p1 st.shared.u8 [s+1], %h0;", seed=seed)
        race("@%p0 st.shared.u32 [s], %r0; @%p1 st.shared.u8 [s+3], %h0;", seed=seed)
        race("@%p0 st.shared.v4.u32 [s], {%r0, %r0, %r0, %r0}; @%p1 st.shared.u32 [s+12], %r0;", seed=seed)

    def test_every_reader_is_remembered_of_four(self, seed):
        for warp in range(4):
            body = f"""
                @%p0 st.shared.u32 [s], %r10; bar.sync 0; ld.shared.u32 %r5, [s];
                setp.ne.u32 %p6, %r2, {warp}; @%p6 bra END; st.shared.u32 [s], %r0; END:
            """
            race(body, threads=128, seed=seed)

    def test_read_only_tables(self, seed):
        run("@%p0 st.shared.u32 [s], %r10; bar.sync 0; ld.shared.u32 %r5, [s]; ld.shared.u32 %r6, [s];",
            threads=512, seed=seed)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
class TestAtomics:
    def test_atomics_do_not_race(self, seed):
        assert run("red.global.add.u32 [%rd0], 1;", blocks=4, seed=seed)[0] == 256
        body = "mov.u32 %r6, 0; @%p0 st.shared.u32 [s], %r6; bar.sync 0; atom.shared.add.u32 %r5, [s], 1; {} {}"
        read = "@%p0 ld.shared.u32 %r5, [s]; @%p0 st.global.u32 [%rd0], %r5;"
        assert run(body.format("bar.sync 0;", read), threads=128, seed=seed)[0] == 128
        error = race(body.format("", read), threads=128, seed=seed)
        assert "atom.shared.add.u32" in error.reason + error.text

    def test_with_a_plain_write(self, seed):
        race(by_cases("red.global.add.u32 [%rd0], 1;", "st.global.u32 [%rd0], %r10;"), blocks=2, seed=seed)
        race(by_cases("red.global.add.u32 [%rd0], 1;", "ld.global.u32 %r5, [%rd0];"), blocks=2, seed=seed)

    def test_strong_accesses_do_not_race(self, seed):
        for kind in ("relaxed.gpu", "relaxed.sys", "volatile"):
            run(by_cases(f"st.{kind}.global.u32 [%rd0], %r10;", f"ld.{kind}.global.u32 %r5, [%rd0];"),
                blocks=2, seed=seed)  # fmt: skip
            race(by_cases(f"st.{kind}.global.u32 [%rd0], %r10;", "ld.global.u32 %r5, [%rd0];"), blocks=2, seed=seed)
        run("st.relaxed.cta.global.u32 [%rd0], %r10;", seed=seed)

    def test_scopes_that_do_not_hold_the_other(self, seed):
        narrow = by_cases("st.relaxed.cta.global.u32 [%rd0], %r10;", "ld.relaxed.gpu.global.u32 %r5, [%rd0];")
        race(narrow, blocks=2, seed=seed)
        cluster = narrow.replace("cta", "cluster")
        race(cluster, blocks=2, seed=seed)
        run(cluster, blocks=2, cluster=2, seed=seed)
        race(narrow, blocks=2, cluster=2, seed=seed)
        race("@%p0 red.relaxed.cta.global.add.u32 [%rd0], 1;", blocks=2, seed=seed)
        # A later access of wider scope does not stand for a narrower one.
        twice = by_cases(
            "st.relaxed.cta.u32 [%rd0], %r10; st.relaxed.gpu.u32 [%rd0], %r10; st.relaxed.gpu.u32 [%rd0+4], %r10;",
            f"{until('ld.relaxed.gpu.u32')} ld.relaxed.gpu.u32 %r5, [%rd0];",
        )
        assert "st.relaxed.cta" in race(twice, blocks=2, seed=seed).reason
        run(twice.replace("relaxed.cta", "relaxed.gpu"), blocks=2, seed=seed)


# How block 0 tells block 1 that the first word is written: what writes the flag, and what sees it; whether in order.
FLAGS = {
    "release, acquire": ("st.release.gpu.global.u32 [%rd0+4], %r10;", "ld.acquire.gpu.global.u32", "", True),
    "red.release": ("red.release.gpu.global.add.u32 [%rd0+4], 1;", "ld.acquire.gpu.global.u32", "", True),
    "atom.acq_rel": ("atom.acq_rel.gpu.global.exch.b32 %r5, [%rd0+4], %r10;", "ld.acquire.gpu.global.u32", "", True),
    "fences": ("membar.gl; st.volatile.global.u32 [%rd0+4], %r10;", "ld.volatile.global.u32", "membar.gl;", True),
    "fence, atomic": ("fence.acq_rel.gpu; red.global.add.u32 [%rd0+4], 1;", "ld.acquire.gpu.global.u32", "", True),
    "fence.sc": (
        "fence.sc.gpu; st.relaxed.gpu.global.u32 [%rd0+4], %r10;", "ld.relaxed.gpu.global.u32", "fence.sc.gpu;", True,
    ),
    "system": ("membar.sys; st.relaxed.sys.global.u32 [%rd0+4], %r10;", "ld.acquire.sys.global.u32", "", True),
    "no release": ("st.relaxed.gpu.global.u32 [%rd0+4], %r10;", "ld.acquire.gpu.global.u32", "", False),
    "no acquire": ("st.release.gpu.global.u32 [%rd0+4], %r10;", "ld.relaxed.gpu.global.u32", "", False),
    "no fence to write": ("st.volatile.global.u32 [%rd0+4], %r10;", "ld.volatile.global.u32", "membar.gl;", False),
    "no fence to read": ("membar.gl; st.volatile.global.u32 [%rd0+4], %r10;", "ld.volatile.global.u32", "", False),
    "fence too late": ("red.global.add.u32 [%rd0+4], 1; membar.gl;", "ld.acquire.gpu.global.u32", "", False),
    "fence of the block": ("membar.cta; red.global.add.u32 [%rd0+4], 1;", "ld.acquire.gpu.global.u32", "", False),
    "acquire of the block": (
        "membar.gl; red.global.add.u32 [%rd0+4], 1;", "ld.relaxed.gpu.global.u32", "fence.acq_rel.cta;", False,
    ),
    "fence of the cluster": (
        "fence.acq_rel.cluster; red.global.add.u32 [%rd0+4], 1;", "ld.acquire.gpu.global.u32", "", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("flag", "load", "after", "ordered"), FLAGS.values(), ids=FLAGS)
def test_flags(flag, load, after, ordered, seed):
    body = by_cases(
        f"st.global.u32 [%rd0], %r10; {flag}",
        f"{until(load)} {after} ld.global.u32 %r5, [%rd0]; st.global.u32 [%rd0+8], %r5;",
    )
    if ordered:
        assert run(body, blocks=2, seed=seed)[2] == 7
    else:
        error = race(body, blocks=2, seed=seed)
        assert (error.block, error.thread) == ((1, 0, 0), (0, 0, 0))
        assert error.text == "ld.global.u32 %r5, [%rd0]"
        assert "warp 0 of block (0, 0, 0) wrote" in error.reason
        assert instruction(error) == "st.global.u32 [%rd0], %r10"


@pytest.mark.parametrize("seed", SEEDS)
class TestRelease:
    def test_what_comes_after_is_not_released(self, seed):
        body = by_cases(
            "st.release.gpu.global.u32 [%rd0+4], %r10; st.global.u32 [%rd0], %r10;",
            f"{until('ld.acquire.gpu.global.u32')} ld.global.u32 %r5, [%rd0];",
        )
        race(body, blocks=2, seed=seed)
        fenced = "membar.gl; st.global.u32 [%rd0], %r10; st.volatile.global.u32 [%rd0+4], %r10;"
        race(by_cases(fenced, body.partition("OTHER:")[2].partition("END:")[0]), blocks=2, seed=seed)

    def test_a_chain_of_atomics_carries_it_and_a_store_ends_it(self, seed):
        # Blocks 0 and 1 count up with release; block 2 takes the second ticket's count of both.
        body = """
            @!%p0 bra END; setp.eq.u32 %p6, %r1, 2; @%p6 bra LAST;
            mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd0, %rd2; st.global.u32 [%rd2+8], %r10;
            {count} bra END;
            LAST: ld.acquire.gpu.global.u32 %r20, [%rd0+4]; setp.lt.u32 %p10, %r20, 2; @%p10 bra LAST;
            ld.global.u32 %r5, [%rd0+8]; ld.global.u32 %r6, [%rd0+12]; add.u32 %r5, %r5, %r6; st.global.u32 [%rd0], %r5;
            END:
        """
        assert run(body.format(count="red.release.gpu.global.add.u32 [%rd0+4], 1;"), blocks=3, seed=seed)[0] == 14
        mixed = "@%p2 red.release.gpu.global.add.u32 [%rd0+4], 1; @%p3 red.relaxed.gpu.global.add.u32 [%rd0+4], 1;"
        error = race(body.format(count=mixed), blocks=3, seed=seed)
        assert "warp 0 of block (1, 0, 0)" in error.reason

    def test_overwritten_flag(self, seed):
        body = by_cases(
            "st.global.u32 [%rd0], %r10; st.release.gpu.global.u32 [%rd0+8], %r10; st.relaxed.gpu.u32 [%rd0+8], %r0;"
            "st.relaxed.gpu.global.u32 [%rd0+4], %r10;",
            f"{until('ld.relaxed.gpu.global.u32')} ld.acquire.gpu.global.u32 %r6, [%rd0+8]; ld.global.u32 %r5, [%rd0];",
        )
        race(body, blocks=2, seed=seed)
        run(body.replace("st.relaxed.gpu.u32 [%rd0+8], %r0;", ""), blocks=2, seed=seed)

    def test_ticket_on_behalf_of_the_block(self, seed):
        # Each block writes with its second warp; its first thread takes a ticket; the last block in reads all.
        body = """
            mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd0, %rd2; @%p1 st.global.u32 [%rd2+16], %r10;
            {barrier} {before} @%p0 atom.relaxed.gpu.global.inc.u32 %r5, [%rd0], 5; {after}
            @%p0 st.shared.u32 [s], %r5; bar.sync 0; ld.shared.u32 %r5, [s]; setp.ne.u32 %p6, %r5, 5; @%p6 bra END;
            mul.wide.u32 %rd3, %r3, 4; add.u64 %rd3, %rd0, %rd3; setp.lt.u32 %p7, %r3, 6;
            @%p7 ld.global.u32 %r6, [%rd3+16]; END:
        """
        whole = {"barrier": "bar.sync 0;", "before": "@%p0 membar.gl;", "after": "@%p0 membar.gl;"}
        for resident in (2, 8):
            run(body.format(**whole), blocks=6, resident=resident, seed=seed)
            for part in whole:
                error = race(body.format(**{**whole, part: ""}), blocks=6, resident=resident, seed=seed)
                assert "wrote at PTX line" in error.reason

    def test_grid_barrier_passes_everything_on(self, seed):
        # Block 1 hears of block 0's write from block 2 only.
        body = """
            @!%p0 bra END; setp.eq.u32 %p6, %r1, 2; @%p6 bra MIDDLE; @%p3 bra LAST;
            st.global.u32 [%rd0], %r10; st.release.gpu.global.u32 [%rd0+4], %r10; bra END;
            MIDDLE: ld.acquire.gpu.global.u32 %r20, [%rd0+4]; setp.eq.u32 %p10, %r20, 0; @%p10 bra MIDDLE;
            st.{release}.gpu.global.u32 [%rd0+8], %r10; bra END;
            LAST: ld.acquire.gpu.global.u32 %r20, [%rd0+8]; setp.eq.u32 %p10, %r20, 0; @%p10 bra LAST;
            ld.global.u32 %r5, [%rd0]; st.global.u32 [%rd0+12], %r5; END:
        """
        assert run(body.format(release="release"), blocks=3, seed=seed)[3] == 7
        race(body.format(release="relaxed"), blocks=3, seed=seed)

    def test_flags_in_shared_memory(self, seed):
        body = """
            mov.u32 %r6, 0; @%p0 st.shared.v2.u32 [s], {%r6, %r6}; bar.sync 0;
            @%p1 bra WAIT; @!%p0 bra END; st.shared.u32 [s], %r10; st.RELEASE.cta.shared.u32 [s+4], %r10; bra END;
            WAIT: ld.acquire.cta.shared.u32 %r20, [s+4]; setp.eq.u32 %p10, %r20, 0; @%p10 bra WAIT;
            ld.shared.u32 %r5, [s]; st.global.u32 [%rd0], %r5; END:
        """
        assert run(body.replace("RELEASE", "release"), seed=seed)[0] == 7
        race(body.replace("RELEASE", "relaxed"), seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
class TestCluster:
    # Thread 0 of rank 1 writes to rank 0's shared memory, which rank 0 then reads.
    BODY = """
        mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p6, %r4, 0; and.pred %p7, %p6, %p0; not.pred %p8, %p6;
        and.pred %p8, %p8, %p0; mov.u32 %r5, 0; mapa.shared::cluster.u32 %r6, %r9, %r5;
        @%p7 st.shared.u32 [s], %r5;
        barrier.cluster.arrive.{first}.aligned; barrier.cluster.wait.acquire.aligned;
        @%p8 st.shared::cluster.u32 [%r6], %r10;
        barrier.cluster.arrive.{second}.aligned; barrier.cluster.wait.acquire.aligned;
        @%p7 ld.shared.u32 %r7, [s]; @%p7 st.global.u32 [%rd0], %r7;
    """

    def test_cluster_barriers(self, seed):
        for options in ({"blocks": 2}, {"blocks": 2, "threads": 32}):
            body = self.BODY.format(first="release", second="release")
            assert run(body, cluster=2, seed=seed, **options)[0] == 7

    def test_relaxed_arrivals_release_nothing(self, seed):
        error = race(self.BODY.format(first="release", second="relaxed"), blocks=2, cluster=2, seed=seed)
        assert (error.block, error.text) == ((0, 0, 0), "@%p7 ld.shared.u32 %r7, [s]")
        assert "warp 0 of block (1, 0, 0) wrote" in error.reason
        error = race(self.BODY.format(first="relaxed", second="release"), blocks=2, cluster=2, seed=seed)
        assert (error.block, error.text) == ((1, 0, 0), "@%p8 st.shared::cluster.u32 [%r6], %r10")
        assert "warp 0 of block (0, 0, 0) wrote" in error.reason

    def test_a_barrier_of_another_cluster_is_none(self, seed):
        body = """
            and.pred %p6, %p0, %p2; @%p6 st.global.u32 [%rd0], %r10;
            barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
            setp.eq.u32 %p7, %r1, READER; and.pred %p7, %p7, %p0; @%p7 ld.global.u32 %r5, [%rd0];
        """
        run(body.replace("READER", "1"), blocks=4, cluster=2, seed=seed)
        error = race(body.replace("READER", "3"), blocks=4, cluster=2, seed=seed)
        assert error.block in [(0, 0, 0), (3, 0, 0)]

    def test_a_cluster_knows_nothing_of_another(self, seed):
        body = """
            mov.u32 %r4, %clusterid.x; setp.eq.u32 %p6, %r4, 0; @!%p6 bra SECOND;
            bar.sync 0; bar.sync 0; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; bra END;
            SECOND: mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p7, %r5, 0; and.pred %p8, %p0, %p7;
            @%p8 st.global.u32 [%rd0], %r10;
            barrier.cluster.arrive.{release}.aligned; barrier.cluster.wait.aligned;
            setp.eq.u32 %p9, %r5, {reader}; and.pred %p9, %p1, %p9; @%p9 ld.global.u32 %r6, [%rd0]; END:
        """
        for resident in (2, 4):
            options = {"blocks": 4, "cluster": 2, "resident": resident, "seed": seed}
            run(body.format(release="release", reader=1), **options)
            race(body.format(release="relaxed", reader=1), **options)
            race(body.format(release="relaxed", reader=0), **options)

    def test_scope_of_the_cluster(self, seed):
        body = by_cases(
            "st.global.u32 [%rd0], %r10; st.release.{scope}.global.u32 [%rd0+4], %r10;",
            f"{until('ld.acquire.{scope}.global.u32')} ld.global.u32 %r5, [%rd0]; st.global.u32 [%rd0+8], %r5;",
        )
        assert run(body.format(scope="cluster"), blocks=2, cluster=2, seed=seed)[2] == 7
        race(body.format(scope="cluster"), blocks=2, seed=seed)
        race(body.format(scope="cta"), blocks=2, cluster=2, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
class TestBlocks:
    def test_blocks_of_a_grid_are_not_ordered(self, seed):
        error = race("@%p0 st.global.u32 [%rd0], %r10;", blocks=2, seed=seed)
        assert {f"{error.block}", error.reason.split("block ")[1][:9]} == {"(0, 0, 0)", "(1, 0, 0)"}

    def test_nor_is_one_that_starts_where_another_has_exited(self, seed):
        race("@%p0 st.global.u32 [%rd0], %r10;", blocks=5, resident=1, seed=seed)
        race("@%p0 ld.global.u32 %r5, [%rd0]; @%p3 st.global.u32 [%rd0], %r10;", blocks=5, resident=1, seed=seed)
        # The last block hears of what block 3 did, not of what blocks 0 to 2 did, which were in the same slot.
        body = """
            @!%p0 bra END; setp.eq.u32 %p6, %r1, 4; @%p6 bra LAST; setp.eq.u32 %p7, %r1, 3;
            @%p2 st.global.u32 [%rd0], %r10; @%p7 st.release.gpu.global.u32 [%rd0+4], %r10; bra END;
            LAST: ld.acquire.gpu.global.u32 %r20, [%rd0+4]; ld.global.u32 %r5, [%rd0]; END:
        """
        race(body, blocks=5, resident=1, seed=seed)

    def test_shared_memory_of_a_new_block_is_new(self, seed):
        run("@%p0 st.shared.u32 [s], %r10; bar.sync 0; @%p1 ld.shared.u32 %r5, [s];", blocks=9, resident=2, seed=seed)
        run("@%p1 st.release.cta.shared.u32 [s], %r10;", blocks=9, resident=2, seed=seed)

    def test_so_is_what_was_released_there(self, seed):
        body = by_cases(
            "st.global.u32 [%rd0], %r10; st.release.gpu.shared.u32 [s+4], %r10;",
            "mov.u64 %rd2, 0; st.shared.u64 [s], %rd2; ld.acquire.gpu.shared.u32 %r5, [s+4];ld.global.u32 %r6, [%rd0];",
        )
        race(body, blocks=2, resident=1, seed=seed)

    def test_a_new_block_knows_nothing(self, seed):
        body = """
            @%p3 bra RACE; bar.sync 0; bar.sync 0; bar.sync 0; bra END;
            RACE: @%p0 st.shared.u32 [s], %r10; @%p1 st.shared.u32 [s], %r10; END:
        """
        assert race(body, blocks=2, resident=1, seed=seed).block == (1, 0, 0)


def test_two_launches_on_one_memory():
    text = f"{HEAD}.visible .entry k(.param .u64 a)\n{{\n{BEGIN}\n@%p1 st.global.u32 [%rd0], %r10;\nret;\n}}\n"
    memory = machine.GlobalMemory()
    a = memory.allocate(64)
    kernels = [ptx.parse(text.replace("@%p1 st", f"@%p{i} st")).kernels["k"] for i in (0, 1)]
    for kernel in kernels:
        arguments = struct.pack("Q", a)
        machine.run(machine.Launch(kernel, (1, 1, 1), (64, 1, 1), None, 0, arguments, False, 1), memory)
    assert memory.read(a, 4) == struct.pack("I", 7)
