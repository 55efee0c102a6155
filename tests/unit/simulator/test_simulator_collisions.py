"""Atomic operations that meet at one place: what each finds there, what is counted, and whose memory it is."""

import struct

import numpy as np
import pytest
from ptx_kernel import execute, fault, text

from lowlevel_reduce.simulator import machine, ptx
from lowlevel_reduce.simulator.machine.memory.traffic import wavefronts

PLACE = "rem.u32 %r4, %r0, 3; mul.wide.u32 %rd8, %r4, 4; add.s64 %rd8, %rd8, %rd0; "
OLD = "mul.wide.u32 %rd9, %r0, 4; add.s64 %rd9, %rd9, %rd1; st.global.u32 [%rd9], %r5;"
# Behind a fence each operation may hand on what was done before, so that they are executed one after another.
FENCE = "membar.gl; "
OPERATIONS = {
    "add": "atom.global.add.u32 %r5, [{place}], %r0;",
    "add of floats": "cvt.rn.f32.u32 %f1, %r0; add.f32 %f1, %f1, 0f3DCCCCCD; atom.global.add.f32 %f2, [{place}], %f1; "
    "mov.b32 %r5, %f2;",
    "exchange": "atom.global.exch.b32 %r5, [{place}], %r0;",
    "compare and swap": "sub.u32 %r6, %r0, 3; max.s32 %r6, %r6, 0; atom.global.cas.b32 %r5, [{place}], %r6, %r0;",
    "generic addresses": "atom.max.u32 %r5, [{place}], %r0;",
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_in_a_row_and_one_after_another_are_the_same(operation):
    cells, old = np.zeros(3, np.uint32), np.full(128, 2**32 - 1, np.uint32)
    body = PLACE + "{fence}" + operation.format(place="%rd8") + OLD
    together, counted = execute(body.replace("{fence}", ""), cells, old, threads=128)
    apart, expected = execute(body.replace("{fence}", FENCE), cells, old, threads=128)
    assert [array.tolist() for array in together] == [array.tolist() for array in apart]
    assert 2**32 - 1 not in together[1]
    for name in ("global_loads", "global_load_sectors", "global_stores", "global_store_sectors", "bytes_read",
                 "bytes_written", "atomics", "atomic_collisions"):  # fmt: skip
        assert getattr(counted, name) == getattr(expected, name), name
    # 42 or 43 threads meet at each place; lane by lane they are requests of their own, and so is each store of `old`.
    assert counted.global_stores == expected.global_loads + 4
    assert counted.atomics == 128
    assert counted.atomic_collisions == 128 - 4 * 3


def test_each_finds_what_the_one_before_it_left():
    body = "atom.global.add.u32 %r5, [%rd0], 2; " + OLD
    (cells, old), _ = execute(body, np.full(1, 7, np.uint32), np.zeros(96, np.uint32), threads=96)
    assert cells.tolist() == [7 + 2 * 96]
    assert sorted(old.tolist()) == list(range(7, 7 + 2 * 96, 2))


def test_blocks_do_not_meet_in_their_shared_memory():
    body = (
        "setp.eq.u32 %p0, %r0, 0; mov.u32 %r6, 0; @%p0 st.shared.u32 [s], %r6; bar.sync 0; "
        "atom.shared.add.u32 %r5, [s], 1; mov.u32 %r7, %ctaid.x; mad.lo.u32 %r8, %r7, 64, %r0; "
        "mul.wide.u32 %rd9, %r8, 4; add.s64 %rd9, %rd9, %rd0; st.global.u32 [%rd9], %r5;"
    )
    shared = ".shared .align 4 .b8 s[4];"
    (old,), counters = execute(body, np.zeros(4 * 64, np.uint32), threads=64, blocks=4, declarations=shared)
    assert [sorted(block) for block in old.reshape(4, 64).tolist()] == [list(range(64))] * 4
    assert counters.atomic_collisions == 4 * (64 - 2)


def test_two_addresses_of_one_place_in_shared_memory_do():
    body = (
        "setp.eq.u32 %p0, %r0, 0; mov.u32 %r6, 0; @%p0 st.shared.u32 [s], %r6; bar.sync 0; "
        "mov.u32 %r1, %cluster_ctarank; mov.u32 %r4, s; mapa.shared::cluster.u32 %r5, %r4, %r1; "
        "and.b32 %r7, %r0, 1; setp.eq.u32 %p1, %r7, 0; selp.b32 %r4, %r4, %r5, %p1; "
        "red.relaxed.cluster.shared::cluster.add.u32 [%r4], 1; bar.sync 0; "
        "ld.shared.u32 %r8, [s]; mul.wide.u32 %rd9, %r1, 4; add.s64 %rd9, %rd9, %rd0; @%p0 st.global.u32 [%rd9], %r8;"
    )
    shared = ".shared .align 4 .b8 s[4];"
    (found,), _ = execute(body, np.zeros(2, np.uint32), threads=64, blocks=2, cluster=2, declarations=shared)
    assert found.tolist() == [64, 64]


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_scope_that_is_too_narrow_is_a_race_among_many_too(seed):
    body = "red.relaxed.{}.global.add.u32 [%rd0], 1;"
    (total,), _ = execute(body.format("cta"), np.zeros(1, np.uint32), threads=256, seed=seed)
    assert total.tolist() == [256]
    error = fault(body.format("cta"), np.zeros(1, np.uint32), threads=256, blocks=2, seed=seed)
    assert "data race: updates what warp" in error.reason
    error = fault(body.format("cluster"), np.zeros(1, np.uint32), threads=64, blocks=4, cluster=2, seed=seed)
    assert "data race: updates what warp" in error.reason


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_chain_of_releases_orders_what_came_before(seed):
    body = (
        "mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd8, %r1, 4; add.s64 %rd8, %rd8, %rd0; setp.ne.u32 %p0, %r0, 0; "
        "@%p0 bra END; st.global.u32 [%rd8+4], %r1; atom.{order}.gpu.global.add.u32 %r5, [%rd0], 1; "
        "setp.ne.u32 %p1, %r5, 3; @%p1 bra END; ld.global.u32 %r6, [%rd0+4]; st.global.u32 [%rd0+20], %r6; END:"
    )
    options = {"threads": 32, "blocks": 4, "seed": seed}
    (found,), _ = execute(body.replace("{order}", "acq_rel"), np.zeros(6, np.uint32), **options)
    assert found.tolist() == [4, 0, 1, 2, 3, 0]
    assert "data race: " in fault(body.replace("{order}", "relaxed"), np.zeros(6, np.uint32), **options).reason


def test_sectors_that_thousands_of_warps_read_are_counted_for_each():
    warps, memory = 4200, machine.GlobalMemory()
    address = memory.allocate(128)
    memory.write(address, bytes(128))
    backwards = "mul.wide.u32 %rd8, %r0, 4; sub.s64 %rd8, %rd0, %rd8; ld.global.u32 %r5, [%rd8+124];"
    kernel = ptx.parse(text(backwards)).kernels["k"]
    counters = machine.run(
        machine.Launch(kernel, (warps, 1, 1), (32, 1, 1), None, 0, struct.pack("Q", address), False, warps), memory
    )
    assert (counters.global_loads, counters.global_load_sectors) == (warps, 4 * warps)


def test_sectors_are_counted_in_whatever_order_lanes_touch_them():
    alternating = (
        "and.b32 %r4, %r0, 1; mul.wide.u32 %rd8, %r4, 32; add.s64 %rd8, %rd0, %rd8; ld.global.u32 %r5, [%rd8];"
    )
    _, counters = execute(alternating, np.zeros(16, np.uint32), threads=64)
    assert (counters.global_loads, counters.global_load_sectors) == (2, 4)


def test_what_lanes_share_and_what_is_wide_is_no_conflict():
    """A bank gives one word to any number of lanes, and sixteen bytes are given to a quarter of a warp at a time."""
    store = (
        "mul.lo.u32 %r4, %r0, 16; mov.u32 %r6, s; add.u32 %r6, %r6, %r4; st.shared.v4.u32 [%r6], {%r0, %r0, %r0, %r0};"
    )
    loads = {
        "ld.shared.u32 %r5, [s];": (1, 1, 0),
        "ld.shared.v4.u32 {%r5, %r7, %r8, %r9}, [%r6];": (1, 4, 0),
        "ld.shared.v2.u32 {%r5, %r7}, [%r6];": (1, 4, 2),  # every other pair of banks
    }
    for load, (requests, passes, conflicts) in loads.items():
        _, counters = execute(
            f"{store} bar.sync 0; {load}",
            np.zeros(1, np.uint32),
            threads=32,
            declarations=".shared .align 16 .b8 s[512];",
        )
        counted = counters.shared_requests - 1, counters.shared_wavefronts - 4, counters.bank_conflicts
        assert counted == (requests, passes, conflicts), load


@pytest.mark.parametrize("first", [0, 32, 4, 36])
def test_a_pattern_of_accesses_counts_the_same_in_every_warp_and_again(first):
    threads, local = np.arange(first, first + 8), np.arange(8) * 16
    parts = 1 if first % 8 == 0 else 2  # eight lanes that begin together are served at once
    assert [wavefronts(threads, local, 16) for _ in range(2)] == [(1, parts, parts)] * 2
    assert wavefronts(threads, local * 32, 4) == (1, 8, 1)
