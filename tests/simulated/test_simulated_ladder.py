"""Every rung of the ladder on a simulated GPU: right, and with the counters that are the reason for the next rung."""

import dataclasses

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.driver import Buffer, occupancy
from lowlevel_reduce.ladder import RUNGS, iterate, run, rung_resources
from lowlevel_reduce.ladder.data import elements
from lowlevel_reduce.ladder.launches import ReadyRung
from lowlevel_reduce.ladder.program import kernel_source
from lowlevel_reduce.ladder.registry import VERSION_VARIABLE
from lowlevel_reduce.plans.loading import load_kernel

N = 2**16 + 3
WHOLE = 2**16
RIGHT = [rung for rung in RUNGS.values() if rung.expected_correct]
right_rungs = pytest.mark.parametrize("rung", RIGHT, ids=lambda rung: rung.id)
lengths = pytest.mark.parametrize("n", [WHOLE, N])


def one(context, name, n, **options):
    (record,) = run([RUNGS[name]], n=n, context=context, **options)
    return record


def counters(context, name, n=N, **options):
    record = one(context, name, n, **options)
    assert record.correct
    return record.counters


@right_rungs
def test_right_at_an_odd_length(context, rung):
    (record,) = run([rung], n=N, context=context)
    assert record.correct, record
    assert record.relative_error == 0 or record.rung in ("float16_narrow", "float16_scaled", "float16_magnitude")
    assert (record.microseconds, record.gb_per_s, record.percent_of_peak) == (None, None, None)
    assert record.counters["instructions"] > 0


@right_rungs
@pytest.mark.parametrize("n", [0, 1, 255, 1000])
def test_right_at_small_lengths(context, rung, n):
    for block in (32, 256, 1024):
        (record,) = run([rung], n=n, block=block, context=context)
        assert record.correct, (block, record)


@pytest.mark.parametrize("n", [5003, N])
@pytest.mark.parametrize("rung", [rung for rung in RIGHT if len(rung.dtypes) > 1], ids=lambda rung: rung.id)
def test_right_in_float16(context, rung, n):
    (record,) = run([rung], n=n, dtype="float16", context=context)
    assert record.correct
    assert record.dtype == "float16"


@pytest.mark.parametrize("rung", ["shared", "shuffle"])
def test_the_buffers_of_three_passes_take_turns(driver, context, rung):
    assert one(context, rung, N, block=32).correct
    assert [launch.grid for launch in driver.launches] == [(1025, 1, 1), (17, 1, 1), (1, 1, 1)]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_race_is_wrong(context, dtype):
    record = one(context, "race", 1000, dtype=dtype)
    assert not record.correct
    assert not record.expected_correct
    # Either the simulator noticed the race, or the sum lacks what was overwritten.
    assert (record.value is None and "race" in record.fault) or record.value != record.reference
    assert one(context, "race", 1).expected_correct, "nobody to race with"


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_the_switch(context, version, monkeypatch):
    monkeypatch.setenv(VERSION_VARIABLE, version)
    loads = {"v1": (1000, 4), "v2": (1000, 4), "v3": (1000, 16)}[version]
    found = counters(context, "switched", n=1000)
    assert found["bytes_read"] >= 4 * loads[0]
    assert (found["global_loads"] < 16) == (version == "v3"), "one request for four elements"
    assert (found["barriers"] > 40) == (version == "v1"), "one barrier a step"


@lengths
def test_v1_diverges_in_every_warp_and_v2_in_the_last(context, n):
    interleaved, sequential = (counters(context, f"v{i}_shared_{how}", n) for i, how in
                               ((1, "interleaved"), (2, "sequential")))  # fmt: skip
    assert interleaved["divergent_branches"] > 5 * sequential["divergent_branches"]
    assert interleaved["global_load_sectors"] == sequential["global_load_sectors"], "they read the same"


def test_the_grid_of_one_lane_a_warp_may_be_smaller_than_the_input(context):
    n = 1024 * 32 + 77  # three elements for some lanes, two for the others
    for name in ("warp_serial_strided", "warp_serial_one_loop"):
        record = one(context, name, n, block=32)
        assert record.correct
        assert record.counters["atomics"] == 1024


def test_a_row_of_one_tile_has_as_many_threads_as_it_needs(context):
    found = {n: counters(context, "one_tile", n) for n in (40 * 40, 100 * 100)}
    assert found[40 * 40]["barriers"] == 40 * 2, "64 threads for 40 elements"
    assert found[100 * 100]["barriers"] == 100 * 4
    assert one(context, "one_tile", 514 * 514).correct, "a row that is longer than the longest tile"


def test_a_transpose_before_the_sums_reads_and_writes_the_matrix_once_more(context):
    moved, straight = counters(context, "permuted_axis", 128 * 128), counters(context, "outer_axis", 128 * 128)
    assert moved["bytes_read"] == 2 * straight["bytes_read"]
    assert moved["bytes_written"] == straight["bytes_written"] + 4 * 128 * 128
    assert moved["bank_conflicts"] == 0


def test_scaling_keeps_from_overflow_what_float16_cannot_hold(context, stream):
    """65,504 is the largest float16: twice 40,000 passes it, though as much negative follows."""
    values = np.repeat(np.array([40_000.0, -40_000.0], np.float16), 64)
    assert np.isinf(reduced_in_float16(context, stream, "float16_narrow", values)), "infinity stays"
    assert reduced_in_float16(context, stream, "float16_magnitude", values) == 0.0
    assert reduced_in_float16(context, stream, "float16_magnitude", values[:60] / 40) == 60_000.0


def reduced_in_float16(context, stream, name, values):
    """Run a rung over these elements by one block of 32 threads, where each thread adds up a few."""
    rung = dataclasses.replace(RUNGS[name], plan=dataclasses.replace(RUNGS[name].plan, max_blocks=1))
    ready = ReadyRung(rung, values.size, "float16", 32, stream)
    try:
        with Buffer.allocate(values.nbytes, context) as buffer:
            buffer.copy_from(values)
            ready.run(buffer.pointer)
            return float(ready.result()[0])
    finally:
        ready.close()


@lengths
def test_strided_indices_meet_in_banks(context, n):
    assert counters(context, "reduce1", n)["bank_conflicts"] > 10_000
    assert counters(context, "reduce2", n)["bank_conflicts"] == 0
    assert counters(context, "shared_tree_conflicting", n)["bank_conflicts"] > 10_000
    assert counters(context, "shared_tree", n)["bank_conflicts"] == 0


# Blocks of 1024 elements leave a partial each, and a second pass: 64 of them, or 65 and three elements of a tail.
@pytest.mark.parametrize(
    ("n", "scalar_requests", "vector_requests", "sectors"),
    [(WHOLE, 2048 + 2, 512 + 1, 8192 + 8), (N, 2049 + 3, 513 + 2, 8193 + 9)],
)
def test_v4_has_a_quarter_of_the_requests_of_v3_for_the_same_sectors(
    context, n, scalar_requests, vector_requests, sectors
):
    scalar, vector = counters(context, "v3_four_loads", n), counters(context, "v4_float4", n)
    assert (scalar["global_loads"], vector["global_loads"]) == (scalar_requests, vector_requests)
    assert scalar["global_load_sectors"] == vector["global_load_sectors"] == sectors


@lengths
@pytest.mark.parametrize(
    ("rung", "each", "times"),
    [
        ("v0_atomic", 1, 1), ("v6_block_atomic", 1024, 1), ("v7_cluster", 16384, 1),
        ("v6_block_atomic_tuned", 16384, 1), ("v7_cluster_tuned", 49152, 1),
        ("warp_serial", 256, 8), ("block_serial", 256, 1), ("element_atomic", 1, 1), ("shuffle_warp_atomic", 256, 8),
        ("warp_serial_strided", 256, 8),
    ],
)  # fmt: skip
def test_one_atomic_an_element_a_block_a_cluster(context, rung, n, each, times):
    assert counters(context, rung, n)["atomics"] == -(-n // each) * times


@pytest.mark.natural_order("how many swap depends on what those before them have left")
@lengths
def test_the_maxima_have_the_atomics_of_the_sums_or_look_before_they_swap(context, n):
    for name, atomics in (("v0_atomic", n), ("v6_block_atomic", -(-n // 1024)), ("v7_cluster", -(-n // 16384))):
        ordered, swapped = (counters(context, f"{name}_max_{way}", n) for way in ("ordered", "cas"))
        assert ordered["atomics"] == atomics
        assert swapped["atomics"] <= 2 * atomics
        # An atomic is counted among the loads; who finds a larger maximum looks, and does not swap.
        looks, elements = (found["global_loads"] - found["atomics"] for found in (swapped, ordered))
        assert looks > elements, "it looks before it swaps"


@lengths
def test_shuffles_need_one_barrier_a_block(context, n):
    steps, shuffles = counters(context, "shared_tree", n), counters(context, "shared_shuffle", n)
    assert shuffles["barriers"] == -(-n // 256) * 8, "one, counted by each of 8 warps"
    assert steps["barriers"] == 9 * shuffles["barriers"]


@pytest.mark.parametrize("name", ["T4"])
def test_a_cooperative_grid_is_what_the_device_holds_and_strides_over_the_rest(context, stream, name):
    held = load_kernel(kernel_source(RUNGS["grid_sync"], "grid_sync", "float32", 32), context.device.architecture)
    resident = occupancy.max_cooperative_blocks(held.kernel, 32, context=context)
    assert resident < N // 32, "or nothing is shown"
    ready = ReadyRung(RUNGS["grid_sync"], N, "float32", 32, stream)
    assert [step.grid for step in ready.shape.steps] == [(resident,)]
    ready.close()
    assert counters(context, "grid_sync", block=32)["atomics"] == resident, "an arrival a block"


@pytest.mark.parametrize(
    "rung",
    [
        "warp_serial",
        "block_serial",
        "shared_tree_conflicting",
        "shared_tree",
        "shared_shuffle",
        "two_pass",
        "grid_sync",
    ],
)
def test_half_the_bytes_are_half_the_sectors_of_as_many_requests(context, rung):
    single, half = (counters(context, rung, WHOLE, dtype=dtype) for dtype in ("float32", "float16"))
    assert half["global_loads"] == single["global_loads"]
    assert half["atomics"] == single["atomics"]
    assert single["global_load_sectors"] - half["global_load_sectors"] == WHOLE // 16


@lengths
def test_a_tile_is_read_without_conflicts_once_it_is_padded_or_swizzled(context, n):
    conflicting = counters(context, "transpose_conflicting", n)
    padded, swizzled = counters(context, "transpose_padded", n), counters(context, "transpose_swizzled", n)
    assert conflicting["bank_conflicts"] == WHOLE // 32 * 31, "every column of 32 in one bank"
    assert padded["bank_conflicts"] == swizzled["bank_conflicts"] == 0
    assert padded["global_store_sectors"] == conflicting["global_store_sectors"] == WHOLE // 8


def test_a_tile_of_float16_has_no_conflicts_either(context):
    for name in ("transpose_padded", "transpose_swizzled"):
        assert counters(context, name, dtype="float16")["bank_conflicts"] == 0


@pytest.mark.parametrize("name", ["T4"])
def test_what_a_device_lacks_is_said_before_anything_runs(context, name):
    assert name in context.device.name
    for rung, words in (("v7_cluster", "clusters"), ("tcu_reduce16", "tensor cores")):
        with pytest.raises(lr.UnsupportedError, match=f"rung {rung} cannot run: .*{name} has no .*{words}"):
            iterate([RUNGS["v0_atomic"], RUNGS[rung]], n=10, context=context)


def test_bad_input_is_refused_by_the_call_and_not_by_the_first_record(driver, context):
    rungs = [RUNGS["v0_atomic"]]
    for options, message in (
        ({"n": -1}, "n is a number of elements"),
        ({"n": 1, "block": 96}, "a block has 32, 64, 128, 256, 512, 1024 threads, not 96"),
        ({"n": 1, "repeat": 0}, "repeat is 1 or more"),
        ({"n": 1, "dtype": "int8"}, "float32 or float16, not int8"),
        ({"n": 1, "dtype": "float16"}, "v0_atomic takes elements of type float32"),
    ):
        with pytest.raises(ValueError, match=message):
            iterate(rungs, context=context, **options)
    for options, message in (
        ({"n": 1.5}, "n is a number of elements, not 1.5"),
        ({"n": True}, "n is a number of elements, not True"),
        ({"n": 1, "block": 256.0}, "a block's threads are an integer, not 256.0"),
        ({"n": 1, "repeat": 1.5}, "repeat is an integer, not 1.5"),
        ({"n": 1, "dtype": np.dtype("float32")}, "named by a text"),
        ({"n": 1, "stream": 0}, "a bare integer is not taken for a stream"),
    ):
        with pytest.raises(TypeError, match=message):
            iterate(rungs, context=context, **options)
    with pytest.raises(TypeError, match="what is run is a Rung, not str"):
        iterate(["v0_atomic"], n=1, context=context)
    with pytest.raises(TypeError, match="the context is a Context, not NoneType"):
        iterate(rungs, n=1, context=None)
    with pytest.raises(lr.UnsupportedError, match="tells no time"):
        iterate(rungs, n=1, context=context, timed=True)
    assert not driver.launches


def test_a_stream_of_another_context_or_a_default_one_is_refused_by_the_call(driver, context):
    rungs = [RUNGS["v0_atomic"]]
    with pytest.raises(ValueError, match="not a default one"):
        iterate(rungs, n=1, context=context, stream=lr.Stream.legacy(context))
    with lr.Context.create(0) as other, lr.Stream.create(other) as foreign:
        with pytest.raises(ValueError, match=f"the stream is of context {other.handle:#x}"):
            iterate(rungs, n=1, context=context, stream=foreign)
    assert not driver.launches


def alive(driver):
    """Return what lives, but for libraries: loaded kernels are kept for the next run."""
    return {kind: count for kind, count in driver.leaks().items() if kind != "libraries"}


def test_records_come_one_by_one_and_nothing_is_left(driver, context):
    before = alive(driver)
    names = ["v2_shared_sequential", "v6_block_atomic", "two_pass"]
    records = iterate([RUNGS[name] for name in names], n=999, context=context)
    assert next(records).rung == names[0]
    assert {launch.kernel for launch in driver.launches} == {names[0]}
    assert [record.rung for record in records] == names[1:]
    assert alive(driver) == before


def test_abandoned_halfway_nothing_is_left_either(driver, context):
    before = alive(driver)
    records = iterate([RUNGS["v2_shared_sequential"], RUNGS["v6_block_atomic"]], n=999, context=context)
    next(records)
    assert alive(driver) != before, "the input is kept for the next rung"
    records.close()
    assert alive(driver) == before


@pytest.mark.parametrize("rung", ["v1_shared_interleaved", "v6_block_atomic", "v8_one_tree", "two_pass", "grid_sync"])
def test_a_run_can_be_captured_and_replayed(context, stream, rung):
    values = elements(5000, "float32", "sum")
    ready = ReadyRung(RUNGS[rung], values.size, "float32", 256, stream)
    with lr.Buffer.allocate(values.nbytes, context) as source:
        source.copy_from(values)
        with lr.Graph.capture(stream) as graph:
            ready.run(source.pointer)
            ready.run(source.pointer)
        with graph, graph.instantiate() as executable:
            for _ in range(2):
                ready.poison()
                executable.launch(stream)
                assert ready.result()[0] == values.sum(dtype=np.float64)
    ready.close()


def test_a_stream_of_the_callers_is_used_and_kept(context, stream):
    assert one(context, "grid_sync", 1000, stream=stream).correct
    stream.synchronize()


def test_a_kernel_that_drops_its_tail_is_noticed(context):
    short = dataclasses.replace(RUNGS["v2_shared_sequential"], plan=dataclasses.replace(RUNGS["shared"].plan))
    (record,) = run([short], n=1000, context=context)
    assert not record.correct, "half as many blocks as the kernel needs"


@pytest.mark.parametrize("name", ["H200"])
@pytest.mark.parametrize("rung", ["v1_shared_interleaved", "v8_one_tree", "two_pass", "tcu_reduce16"])
def test_resources_are_those_of_the_machine_code(context, name, rung):
    facts = rung_resources(RUNGS[rung], context)
    assert len(facts) == (2 if rung == "two_pass" else 1)
    for entry, held in facts.items():
        assert held.registers > 8, entry
        assert held.spill_bytes == 0
        assert held.cubin.startswith(b"\x7fELF")
    if rung == "v1_shared_interleaved":
        assert facts[rung].shared_bytes >= 4096
