"""Atomics on vectors and halves, votes at barriers, mbarriers, asynchronous copies."""

import ml_dtypes
import numpy as np
import pytest
from ptx_kernel import execute, fault, own_places

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(6)


class TestAtomics:
    @pytest.mark.parametrize(
        ("form", "dtype", "count"),
        [("v2.f32", "f4", 2), ("v4.f32", "f4", 4), ("noftz.f16x2", "f2", 2), ("noftz.v2.f16", "f2", 2),
         ("noftz.v4.f16", "f2", 4), ("noftz.bf16x2", BF16, 2), ("noftz.v8.bf16", BF16, 8), ("noftz.v4.f16x2", "f2", 8)],
    )  # fmt: skip
    @pytest.mark.parametrize("returns", [False, True])
    def test_sums_of_vectors(self, form, dtype, count, returns):
        dtype = np.dtype(dtype)
        values, total = RNG.standard_normal((32, count)).astype(dtype), np.zeros(count, dtype)
        kind = form.split(".")[-1]
        width = dtype.itemsize * (2 if kind.endswith("x2") else 1)
        each = values[0].nbytes // width
        name = {2: "h", 4: "f" if kind == "f32" else "r"}[width]
        registers = [f"%{name}{20 + i}" for i in range(each)]
        olds = [f"%{name}{30 + i}" for i in range(each)]
        vector, old = (f"{{{', '.join(r)}}}" if each > 1 else r[0] for r in (registers, olds))
        code = own_places(values[0].nbytes, 0, values[0].nbytes)
        code += "".join(f"ld.global.b{8 * width} {r}, [%rd10+{i * width}];" for i, r in enumerate(registers))
        op = (
            f"atom.global.add.{form} {old}, [%rd1], {vector};"
            if returns
            else f"red.global.add.{form} [%rd1], {vector};"
        )
        code += op
        if returns:
            code += "".join(f"st.global.b{8 * width} [%rd12+{i * width}], {r};" for i, r in enumerate(olds))
        found, counters = execute(code, values, total, np.zeros_like(values))
        expected, before = np.zeros(count, dtype), []
        for row in values:
            before.append(expected)
            expected = (expected.astype("f8") + row.astype("f8")).astype(dtype)
        assert found[1].tobytes() == expected.tobytes()
        assert counters.atomics == 32
        if returns:
            assert found[2].tobytes() == np.array(before).tobytes()

    @pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
    @pytest.mark.parametrize("name", ["min", "max"])
    def test_extremes(self, kind, name):
        dtype = np.dtype({"s": "i", "u": "u"}[kind[0]] + str(int(kind[1:]) // 8))
        values = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 32, dtype=dtype)
        register = "%r5" if dtype.itemsize == 4 else "%rd5"
        code = own_places(dtype.itemsize) + f"ld.global.{kind} {register}, [%rd10];"
        code += f"red.global.{name}.{kind} [%rd1], {register};"
        found, _ = execute(code, values, values[:1].copy())
        assert found[1][0] == getattr(values, name)()

    @pytest.mark.parametrize(
        ("name", "wrap"),
        [
            ("inc", lambda old, limit: 0 if old >= limit else old + 1),
            ("dec", lambda old, limit: limit if old == 0 or old > limit else old - 1),
        ],
    )
    def test_wrapping(self, name, wrap):
        for start in (0, 3, 50):
            found, _ = execute(f"red.global.{name}.u32 [%rd0], 9;", np.array([start], "u4"))
            expected = start
            for _ in range(32):
                expected = wrap(expected, 9)
            assert found[0][0] == expected

    def test_compare_and_exchange_of_16_and_128_bits(self):
        code = """
            cvt.u16.u32 %h1, %r0; add.u16 %h2, %h1, 1; atom.global.cas.b16 %h3, [%rd0], %h1, %h2;
            cvt.u64.u32 %rd3, %r0; add.u64 %rd4, %rd3, 1; mov.b128 %q0, {%rd3, %rd3}; mov.b128 %q1, {%rd4, %rd4};
            atom.global.cas.b128 %q2, [%rd1], %q0, %q1; mov.u64 %rd5, 7;
            mov.b128 %q3, {%rd3, %rd5}; atom.global.exch.b128 %q0, [%rd2], %q3;
            mov.b128 {%rd6, %rd7}, %q0; mul.wide.u32 %rd10, %r0, 16; add.s64 %rd10, %rd10, %rd2;
            st.global.v2.u64 [%rd10+16], {%rd6, %rd7};
        """
        chain = np.zeros((33, 2), "u8")
        found, _ = execute(code, np.zeros(1, "u2"), np.zeros(2, "u8"), chain)
        assert found[0][0] == 32  # each thread finds what the one before it left
        assert found[1].tolist() == [32, 32]
        assert found[2].tolist() == [[31, 7], [0, 0]] + [[i, 7] for i in range(31)]


class TestTogether:
    def test_votes_at_barriers(self):
        code = (
            own_places(12)
            + """
            and.b32 %r1, %r0, 3; setp.eq.u32 %p1, %r1, 0; bar.red.popc.u32 %r2, 0, %p1;
            setp.lt.u32 %p2, %r0, 96; barrier.cta.red.and.aligned.pred %p3, 0, %p2; selp.u32 %r3, 1, 0, %p3;
            bar.red.or.pred %p4, 1, !%p2; selp.u32 %r4, 1, 0, %p4;
            st.global.u32 [%rd10], %r2; st.global.u32 [%rd10+4], %r3; st.global.u32 [%rd10+8], %r4;
        """
        )
        for threads, every, some in ((96, 1, 0), (128, 0, 1)):
            for seed in (None, 0, 1):
                found, _ = execute(code, np.zeros((threads, 3), "u4"), threads=threads, seed=seed)
                assert found[0].tolist() == [[threads // 4, every, some]] * threads

    def test_part_of_a_block_votes(self):
        code = (
            own_places(4)
            + """
            mov.u32 %r2, 77; setp.lt.u32 %p1, %r0, 64; @!%p1 bra END; setp.lt.u32 %p2, %r0, 5;
            bar.red.popc.u32 %r2, 3, 64, %p2; END: st.global.u32 [%rd10], %r2;
        """
        )
        found, _ = execute(code, np.zeros(128, "u4"), threads=128)
        assert found[0].tolist() == [5] * 64 + [77] * 64

    @pytest.mark.parametrize("name", ["min", "max"])
    @pytest.mark.parametrize("form", ["", ".abs", ".NaN", ".abs.NaN"])
    def test_reduction_of_floats(self, name, form):
        values = RNG.standard_normal(64).astype("f4")
        values[40] = np.nan
        code = (
            own_places(4, 4)
            + f"""
            ld.global.f32 %f1, [%rd10]; redux.sync.{name}{form}.f32 %f2, %f1, -1; st.global.f32 [%rd11], %f2;
        """
        )
        found, _ = execute(code, values, np.zeros(64, "f4"), threads=64)
        kept = abs(values) if "abs" in form else values
        function = getattr(np, name if "NaN" in form else f"nan{name}")
        expected = np.repeat([function(kept[:32]), function(kept[32:])], 32)
        assert np.array_equal(found[1], expected, equal_nan=True)

    def test_election(self):
        code = (
            own_places(8)
            + """
            setp.lt.u32 %p1, %r0, 5; mov.u32 %r1, 99; mov.u32 %r2, 0; @%p1 bra END;
            elect.sync %r1|%p2, 0xffffffe0; selp.u32 %r2, 1, 0, %p2;
            END: st.global.v2.u32 [%rd10], {%r1, %r2};
        """
        )
        found, _ = execute(code, np.zeros((32, 2), "u4"))
        assert found[0].tolist() == [[99, 0]] * 5 + [[5, 1]] + [[5, 0]] * 26

    def test_cluster_arrivals_and_waits_take_turns(self):
        arrive, wait = "barrier.cluster.arrive.aligned; ", "barrier.cluster.wait.aligned; "
        execute((arrive + wait) * 3, np.zeros(1), blocks=4, cluster=2)
        for body, reason in ((arrive + arrive + wait, "arrives again"), (arrive + wait + wait, "has not arrived")):
            assert reason in fault(body, np.zeros(1), blocks=4, cluster=2).reason


SHARED = ".shared .align 16 .b8 data[1024]; .shared .align 8 .b64 bar; .shared .align 8 .b64 bar2;"
WAIT = "WAIT{0}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1], {1}; @!%p1 bra WAIT{0};"


class TestMbarriers:
    @pytest.mark.parametrize("seed", [None, 0, 1])
    def test_phases(self, seed):
        """Three rounds in which each thread reads what its neighbour wrote; the barrier is all that orders them."""
        code = (
            own_places(12)
            + """
            mov.u32 %r1, bar; mov.u32 %r2, data; setp.ne.u32 %p2, %r0, 0;
            @!%p2 mbarrier.init.shared::cta.b64 [%r1], 64; bar.sync 0;
            shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r2; add.u32 %r4, %r0, 1; and.b32 %r4, %r4, 63;
            shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r2; mov.u32 %r5, 1;
        """
        )
        for i in range(3):
            code += f"""
                mul.lo.u32 %r6, %r0, {i + 1}; st.shared.u32 [%r3+{256 * i}], %r6;
                mbarrier.arrive.shared::cta.b64 %rd5, [%r1];
                W{i}: mbarrier.test_wait.shared::cta.b64 %p1, [%r1], %rd5; @!%p1 bra W{i};
                ld.shared.u32 %r7, [%r4+{256 * i}]; st.global.u32 [%rd10+{4 * i}], %r7;
            """
        found, _ = execute(code, np.zeros((64, 3), "u4"), threads=64, declarations=SHARED, seed=seed)
        assert found[0].tolist() == [[(t + 1) % 64 * (i + 1) for i in range(3)] for t in range(64)]

    def test_counts_are_checked(self):
        start = "mov.u32 %r1, bar; setp.ne.u32 %p2, %r0, 0; @!%p2 mbarrier.init.shared.b64 [%r1], {}; bar.sync 0;"
        late = start.format(33) + "mbarrier.arrive.shared.b64 _, [%r1], 2;"
        assert "expects nobody" in fault(late, np.zeros(1), declarations=SHARED).reason
        assert "for 0 arrivals" in fault(start.format(0), np.zeros(1), declarations=SHARED).reason
        never = start.format(33) + "mbarrier.arrive.shared.b64 _, [%r1];" + WAIT.format("A", 0)
        assert "deadlock" in fault(never, np.zeros(1), declarations=SHARED).reason

    def test_dropping_and_pending_counts(self):
        code = """
            mov.u32 %r1, bar; mbarrier.init.shared.b64 [%r1], 3; mbarrier.arrive_drop.shared.b64 %rd5, [%r1];
            mbarrier.arrive.noComplete.shared.b64 %rd6, [%r1], 1; mbarrier.pending_count.b64 %r3, %rd6;
            mbarrier.arrive.shared.b64 %rd7, [%r1]; mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;
            selp.u32 %r4, 1, 0, %p1; mbarrier.arrive.shared.b64 %rd8, [%r1], 2;
            mbarrier.test_wait.shared.b64 %p2, [%r1], %rd8; selp.u32 %r5, 1, 0, %p2;
            mbarrier.inval.shared.b64 [%r1]; st.global.v2.u32 [%rd0], {%r3, %r4}; st.global.u32 [%rd0+8], %r5;
        """
        assert execute(code, np.zeros(4, "u4"), threads=1, declarations=SHARED)[0][0].tolist() == [2, 1, 1, 0]


class TestCopies:
    def test_small_copies(self):
        source = RNG.integers(0, 1 << 32, (32, 4), dtype=np.uint64).astype("u4")
        code = (
            own_places(16, 16)
            + """
            mov.u32 %r1, data; shl.b32 %r2, %r0, 4; add.u32 %r2, %r2, %r1; and.b32 %r3, %r0, 15; add.u32 %r3, %r3, 1;
            cp.async.cg.shared.global.L2::128B [%r2], [%rd10], 16, %r3; cp.async.commit_group; cp.async.wait_group 0;
            cp.async.ca.shared.global [%r2+512], [%rd10], 4; cp.async.wait_all; bar.sync 0;
            ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r2]; st.global.v4.u32 [%rd11], {%r4, %r5, %r6, %r7};
            ld.shared.u32 %r8, [%r2+512];
        """
        )
        found, counters = execute(code, source, np.zeros_like(source), declarations=SHARED)
        expected = source.view("u1").reshape(32, 16).copy()
        for lane in range(32):
            expected[lane, lane % 16 + 1 :] = 0
        assert found[1].view("u1").reshape(32, 16).tolist() == expected.tolist()
        assert counters.instructions_by_class["memory"] == 10
        assert "uninitialised" in fault(code.replace("[%r2+512], [%rd10]", "[%r2+508], [%rd10]"), source,
                                        np.zeros_like(source), declarations=SHARED).reason  # fmt: skip

    def test_bulk_copies_there_and_back(self):
        source = RNG.integers(0, 1 << 32, 256, dtype=np.uint64).astype("u4")
        code = (
            """
            mov.u32 %r1, bar; mov.u32 %r2, data; setp.ne.u32 %p2, %r0, 0; @%p2 bra JOIN;
            mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster;
            mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 1024;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 512, [%r1];
            mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r1], 0; selp.u32 %r9, 1, 0, %p3; st.global.u32 [%rd3], %r9;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+512], [%rd0+512], 512, [%r1];
            JOIN: bar.sync 0;
        """
            + WAIT.format("A", 0)
            + """
            @%p2 bra END; fence.proxy.async.shared::cta;
            cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 1024;
            cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2], [%r2], 1024;
            cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; END:
        """
        )
        start = np.arange(256, dtype="u4")
        found, _ = execute(code, source, np.zeros_like(source), start, np.ones(1, "u4"), declarations=SHARED)
        assert found[1].tolist() == source.tolist()
        assert found[2].tolist() == (source + start).tolist()
        assert found[3][0] == 0  # half of the bytes do not end the phase
        for wrong in ("[%r2], [%rd0], 520", "[%r2+8], [%rd0], 512"):
            bad = code.replace("[%r2], [%rd0], 512", wrong)
            arrays = (source, np.zeros_like(source), start, np.ones(1, "u4"))
            assert "multiples of 16" in fault(bad, *arrays, declarations=SHARED).reason

    def test_a_bulk_copy_to_several_blocks(self):
        source = RNG.integers(0, 1 << 32, 64, dtype=np.uint64).astype("u4")
        code = (
            """
            mov.u32 %r1, bar; mov.u32 %r2, data; mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %ctaid.x;
            setp.ne.u32 %p2, %r0, 0; setp.ne.u32 %p3, %r3, 1; @%p2 bra READY;
            mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
            READY: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
            mov.u16 %h1, 0xd; @%p2 bra JOIN; @%p3 bra TWO;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
                [%r2], [%rd0], 256, [%r1], %h1; bra JOIN;
            TWO: setp.ne.u32 %p4, %r3, 3; @%p4 bra JOIN; mapa.shared::cluster.u32 %r5, %r2, 1;
            mapa.shared::cluster.u32 %r6, %r1, 1;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd0], 256, [%r6];
            JOIN: bar.sync 0;
        """
            + WAIT.format("A", 0)
            + """
            shl.b32 %r7, %r0, 2; add.u32 %r7, %r7, %r2; ld.shared.u32 %r8, [%r7]; shl.b32 %r9, %r4, 6;
            add.u32 %r9, %r9, %r0; mul.wide.u32 %rd5, %r9, 4; add.s64 %rd5, %rd5, %rd1; st.global.u32 [%rd5], %r8;
            barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        """
        )
        found, _ = execute(code, source, np.zeros(256, "u4"), threads=64, blocks=4, cluster=4, declarations=SHARED)
        assert found[1].reshape(4, 64).tolist() == [source.tolist()] * 4

    def test_stores_and_reductions_that_tell_an_mbarrier(self):
        code = (
            """
            mov.u32 %r1, bar; mov.u32 %r2, data; mov.u32 %r3, %cluster_ctarank; setp.ne.u32 %p2, %r0, 0; @%p2 bra READY;
            mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 144;
            st.shared.u32 [%r2+128], 100;
            READY: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
            setp.gt.u32 %p3, %r0, 7; @%p3 bra JOIN; xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r5, %r2, %r4;
            mapa.shared::cluster.u32 %r6, %r1, %r4; shl.b32 %r7, %r0, 4; add.u32 %r7, %r7, %r5;
            mad.lo.u32 %r8, %r3, 1000, %r0;
            st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r7], {%r8, %r8, %r3, %r0}, [%r6];
            setp.gt.u32 %p4, %r0, 3; @%p4 bra JOIN;
            red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r5+128], %r0, [%r6];
            JOIN: bar.sync 0;
        """
            + WAIT.format("A", 0)
            + """
            mov.u32 %r9, %ctaid.x; mul.lo.u32 %r9, %r9, 132; cvt.u64.u32 %rd5, %r9; add.s64 %rd5, %rd5, %rd0;
            shl.b32 %r10, %r0, 2; add.u32 %r11, %r10, %r2; ld.shared.u32 %r12, [%r11]; cvt.u64.u32 %rd6, %r10;
            add.s64 %rd6, %rd6, %rd5; st.global.u32 [%rd6], %r12; ld.shared.u32 %r13, [%r2+128];
            st.global.u32 [%rd5+128], %r13; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        """
        )
        found, _ = execute(code, np.zeros((2, 33), "u4"), blocks=2, cluster=2, declarations=SHARED)
        for block in range(2):
            other = 1 - block
            rows = [[1000 * other + lane, 1000 * other + lane, other, lane] for lane in range(8)]
            assert found[0][block].tolist() == [*(value for row in rows for value in row), 100 + 0 + 1 + 2 + 3]

    def test_hints_change_nothing(self):
        code = """
            createpolicy.fractional.L2::evict_last.b64 %rd5, 0f3F800000; prefetch.global.L2 [%rd0];
            ld.global.L2::cache_hint.u32 %r1, [%rd0], %rd5; applypriority.global.L2::evict_normal [%rd0], 128;
            discard.global.L2 [%rd0], 128; add.u32 %r1, %r1, 1; st.global.L2::cache_hint.u32 [%rd0], %r1, %rd5;
            red.global.add.L2::cache_hint.u32 [%rd0], %r1, %rd5; cp.async.bulk.prefetch.L2.global [%rd0], 128;
        """
        assert execute(code, np.array([5], "u4"), threads=1)[0][0][0] == 12
