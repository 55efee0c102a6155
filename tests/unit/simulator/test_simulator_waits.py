"""Waits for asynchronous operations: a missing one is a race, and data arrives at the earliest or at the latest."""

import re

import numpy as np
import pytest
from ptx_kernel import execute, fault, own_places

from lowlevel_reduce.simulator.machine import KernelFault

SHARED = ".shared .align 16 .b8 data[2048]; .shared .align 8 .b64 bar; .shared .align 8 .b64 bar2;"
SEEDS = [None, 0, 1, 2]

SOURCE = np.arange(256, dtype="u4")
START = own_places(16, 16) + "mov.u32 %r1, data; shl.b32 %r2, %r0, 4; add.u32 %r2, %r2, %r1;\n"
START += "st.shared.v4.u32 [%r2], {%r0, %r0, %r0, %r0}; bar.sync 0;\n"
COPY = "cp.async.cg.shared.global [%r2], [%rd10], 16;\n"
SECOND = "cp.async.cg.shared.global [%r2+1024], [%rd10], 16;\n"
COMMIT, WAIT = "cp.async.commit_group;\n", "cp.async.wait_group {};\n"
READ = "ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r2{}]; st.global.v4.u32 [%rd11], {{%r4, %r5, %r6, %r7}};\n"
OWN, OTHER = READ.format(""), READ.format("+1024")
NEIGHBOUR = "xor.b32 %r2, %r2, 512;\n"  # the place of a thread of the other warp
READS = "data race: reads what an asynchronous operation of warp . of block .* wrote at PTX line .*cp.async"
WRITES = "data race: writes what an asynchronous operation of warp . of block .* wrote at PTX line .*cp.async"
EITHER = f"{READS}|data race: writes what warp . of block .* read at PTX line .*ld.shared"


def copied(code, seed=None, threads=64):
    """Run code that copies the source to shared memory and from there to the result, which is returned."""
    found, _ = execute(code, SOURCE, np.zeros_like(SOURCE), threads=threads, declarations=SHARED, seed=seed)
    return found[1]


def race(code, pattern):
    """Check that code commits that race, whenever data arrives and in whatever order the warps run."""
    for seed in SEEDS:
        found = fault(code, SOURCE, np.zeros_like(SOURCE), threads=64, declarations=SHARED, seed=seed)
        assert re.match(pattern, found.reason), found.reason


class TestSmallCopies:
    @pytest.mark.parametrize("wait", [COMMIT + WAIT.format(0), "cp.async.wait_all;\n", COMMIT + "cp.async.wait_all;\n"])
    def test_a_thread_reads_after_its_wait(self, wait):
        for seed in SEEDS:
            assert copied(START + COPY + wait + OWN, seed).tolist() == SOURCE.tolist()

    @pytest.mark.parametrize("wait", ["", COMMIT, COMMIT + WAIT.format(1), WAIT.format(0), COMMIT + "bar.sync 0;\n"])
    def test_a_thread_that_does_not_wait_races_with_its_own_copy(self, wait):
        race(START + COPY + wait + OWN, READS)

    def test_a_wait_leaves_the_last_groups_unfinished(self):
        code = START + COPY + COMMIT + SECOND + COMMIT + WAIT.format(1)
        assert copied(code + OWN).tolist() == SOURCE.tolist()
        race(code + OTHER, READS)
        assert copied(code + "cp.async.wait_all;\n" + OTHER).tolist() == SOURCE.tolist()

    def test_an_empty_group_counts(self):
        assert copied(START + COPY + COMMIT + COMMIT + WAIT.format(1) + OWN).tolist() == SOURCE.tolist()

    def test_neither_the_destination_nor_the_source_is_written_before_the_wait(self):
        race(START + COPY + COMMIT + "st.shared.u32 [%r2+4], %r0;\n", WRITES)
        race(START + COPY + COMMIT + "st.global.u32 [%rd10+4], %r0;\n", WRITES.replace("wrote", "read"))
        race(START + COPY + COMMIT + "cp.async.ca.shared.global [%r2], [%rd10+8], 8;\n", WRITES)
        execute(START + COPY + COMMIT + WAIT.format(0) + "st.shared.u32 [%r2+4], %r0; st.global.u32 [%rd10+4], %r0;",
                SOURCE, SOURCE, threads=64, declarations=SHARED)  # fmt: skip

    def test_other_warps_need_a_barrier_behind_the_wait(self):
        copy, wait, meet = START + COPY + COMMIT, WAIT.format(0), "bar.sync 0;\n"
        expected = np.roll(SOURCE, 128).tolist()
        for seed in SEEDS:
            assert copied(copy + wait + meet + NEIGHBOUR + OWN, seed).tolist() == expected
        race(copy + wait + NEIGHBOUR + OWN, EITHER)
        race(copy + meet + wait + NEIGHBOUR + OWN, READS)
        race(copy + meet + NEIGHBOUR + OWN, READS)

    def test_data_arrives_at_the_earliest_or_at_the_latest(self):
        """Lanes count as one thread, so one lane's wait lets the others read: they see what has arrived for them."""
        code = START + COPY + COMMIT + "setp.eq.u32 %p1, %r0, 0; @%p1 cp.async.wait_group 0;\n" + OWN
        old, new = np.repeat(np.arange(32, dtype="u4"), 4).tolist(), SOURCE[:128].tolist()
        seen = {seed: copied(code, seed, threads=32)[:128].tolist() for seed in [None, *range(8)]}
        late = new[:4] + old[4:]
        assert seen[None] == late
        assert sorted({tuple(values) for values in seen.values()}) == sorted({tuple(late), tuple(new)})

    @pytest.mark.slow
    def test_an_mbarrier_tells_when_copies_have_arrived(self):
        begin = "mov.u32 %r3, bar; setp.ne.u32 %p2, %r0, 0; @!%p2 mbarrier.init.shared.b64 [%r3], 64; bar.sync 0;\n"
        arrive = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r3];\n"
        wait = "W: mbarrier.test_wait.parity.shared.b64 %p1, [%r3], 0; @!%p1 bra W;\n"
        for seed in SEEDS:
            assert copied(START + begin + COPY + arrive + wait + OWN, seed).tolist() == SOURCE.tolist()
            found = copied(START + begin + COPY + arrive + wait + NEIGHBOUR + OWN, seed)
            assert found.tolist() == np.roll(SOURCE, 128).tolist()
        race(START + begin + COPY + arrive + OWN, READS)
        counted = "cp.async.mbarrier.arrive.shared.b64 [%r3]; mbarrier.arrive.shared.b64 _, [%r3];\n"
        assert copied(START + begin + COPY + counted + wait + OWN).tolist() == SOURCE.tolist()


BEGIN = """
    mov.u32 %r1, bar; mov.u32 %r2, data; mov.u32 %r3, bar2; shl.b32 %r8, %r0, 4; add.u32 %r8, %r8, %r2;
    mul.wide.u32 %rd11, %r0, 16; add.s64 %rd11, %rd11, %rd1; setp.ne.u32 %p2, %r0, 0;
    st.shared.v4.u32 [%r8], {%r0, %r0, %r0, %r0};
    @!%p2 mbarrier.init.shared::cta.b64 [%r1], 1; @!%p2 mbarrier.init.shared::cta.b64 [%r3], 1; bar.sync 0;
    @%p2 bra JOIN; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 1024, [%r1]; JOIN:
"""
POLL = "{0}: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r{1}], 0; @!%p1 bra {0};\n"
OF_CLUSTER = POLL.replace(".parity", ".parity.acquire.cluster")
TAKE = "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r8]; st.global.v4.u32 [%rd11], {%r4, %r5, %r6, %r7};\n"


class TestBulkCopies:
    def test_who_has_seen_the_phase_end_reads(self):
        for seed in SEEDS:
            assert copied(BEGIN + POLL.format("W", 1) + TAKE, seed).tolist() == SOURCE.tolist()
            one = BEGIN + "@%p2 bra MEET;" + POLL.format("W", 1) + "MEET: bar.sync 0;" + TAKE
            assert copied(one, seed).tolist() == SOURCE.tolist()  # the others are ordered after who has seen it

    @pytest.mark.parametrize(
        "wait",
        [
            "",
            "bar.sync 0;",
            "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 1;",  # of the phase before
            "setp.gt.u32 %p3, %r0, 31; @%p3 bra PAST;" + POLL.format("W", 1) + "PAST:",  # not the second warp
        ],
    )
    def test_others_race(self, wait):
        race(BEGIN + wait + TAKE, EITHER)

    def test_who_ignores_that_a_test_fails_races(self):
        """With a seed, data may come after the test that looks for it; without one, it comes before the test."""
        code = BEGIN + "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 0;" + TAKE
        reasons = []
        for seed in range(8):
            try:
                assert copied(code, seed, threads=32)[:128].tolist() == SOURCE[:128].tolist()
            except KernelFault as wrong:
                reasons.append(wrong.reason)
        assert 0 < len(reasons) < 8
        assert all(re.match(READS, reason) for reason in reasons)

    def test_another_mbarrier_tells_nothing(self):
        """The second copy comes later, so that the first one has arrived, too: only the order says that it need not."""
        second = """
            @%p2 bra NEXT; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+1024], [%rd0], 512, [%r3]; NEXT:
        """
        assert copied(BEGIN + second + POLL.format("V", 3) + POLL.format("W", 1) + TAKE).tolist() == SOURCE.tolist()
        race(BEGIN + second + POLL.format("V", 3) + TAKE, READS)

    def test_an_arrival_is_no_wait(self):
        race(BEGIN.replace("[%r1], 1;", "[%r1], 65;") + "mbarrier.arrive.shared::cta.b64 %rd5, [%r1];" + TAKE, EITHER)

    def test_groups_of_bulk_copies(self):
        fill = "mov.u32 %r2, data; setp.ne.u32 %p2, %r0, 0; shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r2;"
        fill += "st.shared.u32 [%r3], %r0; bar.sync 0; @%p2 bra END;"
        copy = fill + "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 256; cp.async.bulk.commit_group;"
        overwrite, look = "st.shared.u32 [%r2], 77;", "ld.global.u32 %r4, [%rd1];"
        every, reads = "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;"
        expected = [*range(64), *[0] * 192]
        for seed in SEEDS:
            for code in (copy + every + overwrite + look, copy + reads + overwrite, copy):
                assert copied(code + "END:", seed).tolist() == expected
        race(copy + overwrite + "END:", WRITES.replace("wrote", "read"))
        race(copy + look + "END:", READS)
        race(copy + reads + look + "END:", READS)


class TestStoresToOtherBlocks:
    BEGIN = """
        mov.u32 %r1, bar; mov.u32 %r2, data; mov.u32 %r3, %cluster_ctarank; setp.ne.u32 %p2, %r0, 0; @%p2 bra READY;
        mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 4;
        READY: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; @%p2 bra JOIN;
        xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r5, %r2, %r4; mapa.shared::cluster.u32 %r6, %r1, %r4;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r5], %r3, [%r6]; JOIN:
    """
    MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
    LOOK = "ld.shared.u32 %r7, [%r2]; mul.wide.u32 %rd5, %r3, 4; add.s64 %rd5, %rd5, %rd0; st.global.u32 [%rd5], %r7;\n"

    def test_who_waits_finds_them(self):
        for seed in SEEDS:
            code = self.BEGIN + OF_CLUSTER.format("W", 1) + self.LOOK + self.MEET
            found, _ = execute(code, np.zeros(2, "u4"), blocks=2, cluster=2, declarations=SHARED, seed=seed)
            assert found[0].tolist() == [1, 0]

    def test_who_waits_for_what_the_own_block_does_races(self):
        """The scope of a wait is the block unless it says that it is the cluster."""
        for wait in (POLL, POLL.replace(".parity", ".parity.acquire.cta")):
            code = self.BEGIN + wait.format("W", 1) + self.LOOK + self.MEET
            found = fault(code, np.zeros(2, "u4"), blocks=2, cluster=2, declarations=SHARED)
            assert "data race: reads what an asynchronous operation of warp 0" in found.reason

    def test_a_barrier_of_the_cluster_does_not_bring_them(self):
        for seed in SEEDS:
            code = self.BEGIN + self.MEET + self.LOOK + self.MEET
            found = fault(code, np.zeros(2, "u4"), blocks=2, cluster=2, declarations=SHARED, seed=seed)
            assert "data race: reads what an asynchronous operation of warp 0" in found.reason

    def test_a_block_does_not_exit_before_they_have_arrived(self):
        found = fault(self.BEGIN + self.MEET, np.zeros(2, "u4"), blocks=2, cluster=2, declarations=SHARED)
        assert "exits before what is stored to its shared memory asynchronously has arrived" in found.reason
