"""The ladder's registry and launch plans: pure, and checked by what must hold of each; no driver, no compiler."""

import itertools
import json
import math
import re

import numpy as np
import pytest

from lowlevel_reduce import ladder
from lowlevel_reduce.compiler import source_root
from lowlevel_reduce.ladder import RUNGS, Record, rung_before, source_diff, timing
from lowlevel_reduce.ladder.data import elements, judge
from lowlevel_reduce.ladder.plans import (
    Atomic,
    Axis,
    Cooperative,
    Passes,
    Pointer,
    Problem,
    Production,
    Shape,
    Transpose,
    TwoKernels,
)
from lowlevel_reduce.ladder.program import stub
from lowlevel_reduce.ladder.registry import BLOCKS, VERSION_VARIABLE, as_switched
from lowlevel_reduce.ladder.timing import copies

SIZES = (0, 1, 31, 255, 256, 257, 1000, 2**16 + 3, 2**24 + 3, 10**8 + 1, 2**33 + 1)
PUBLIC = {
    "A": "v0_atomic v1_shared_interleaved v2_shared_sequential v3_two_loads v3_four_loads v4_float4 v5_warp_shuffle "
    "v6_block_atomic v7_cluster v8_one_tree",
    "B": "atomic shared shuffle",
    "C": "reduce0 modulo_and reduce1 reduce2 reduce3 reduce4 reduce5 reduce6 reduce7 tcu_reduce16 tcu_reduce256",
    "D": "two_stage inner_axis outer_axis permuted_axis one_tile kahan switched float16_narrow "
    "float16_promoted float16_scaled float16_magnitude",
    "E": "race element_atomic warp_serial warp_serial_strided warp_serial_one_loop block_serial "
    "shared_tree_conflicting shared_tree shuffle_warp_atomic shared_shuffle two_pass grid_sync "
    "transpose_conflicting transpose_padded transpose_swizzled",
}
ENTRY = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\(.*\)\s+)?(\w+)\(')
rungs = pytest.mark.parametrize("rung", RUNGS.values(), ids=RUNGS.keys())


def problem(rung, n, block):
    return Problem(n, rung.block or block, rung.entries, resident_blocks=1056)


def shapes(rung):
    return [(n, block, rung.plan.shape(problem(rung, n, block))) for n in SIZES for block in BLOCKS]


@pytest.mark.parametrize("system", PUBLIC)
def test_public_names_in_the_order_of_the_climb(system):
    printed = [rung.id for rung in RUNGS.values() if rung.system == system]
    others = [name for name in printed if not name.endswith("_tuned") and "_max_" not in name]
    assert others == PUBLIC[system].split()


def test_names_and_files_are_told_apart():
    assert all(name == rung.id for name, rung in RUNGS.items())
    assert len({(rung.system, rung.title) for rung in RUNGS.values()}) == len(RUNGS)
    files = {rung.file for rung in RUNGS.values() if not isinstance(rung.plan, Production)}
    there = {f"ladder/{path.name}" for path in (source_root() / "ladder").iterdir()}
    assert files == there, "each file is a rung, and each rung a file"


@rungs
def test_a_file_reads_by_itself(rung):
    if isinstance(rung.plan, Production):
        assert rung.source.is_file()
        return
    text = rung.source.read_text(encoding="utf-8")
    lines = text.splitlines()
    head = next(place for place, line in enumerate(lines) if not line.startswith("//"))
    assert "#include" not in text
    assert len(lines) <= 60
    assert 3 <= head <= 8
    assert max(map(len, lines)) <= 120
    for word in ("Changes:", "Costs:", "Next:"):
        assert word in "\n".join(lines[:head]), f"the head does not say {word}"
    assert tuple(ENTRY.findall(text)) == rung.entries


@rungs
def test_every_launch_is_one_that_a_device_takes(rung):
    for n, block, shape in shapes(rung):
        for step in shape.steps:
            assert step.entry in rung.entries
            assert step.block in BLOCKS
            assert step.block <= (rung.block or block) or rung.id in ("two_stage", "one_tile")
            assert all(extent >= 1 for extent in step.grid)
            assert math.prod(step.grid[1:]) <= 65535
            assert step.grid[0] < 2**31
            assert step.grid[0] % step.cluster == 0
            assert len(step.arguments) == len(step.signature)
            assert (step.cluster > 1) == ("cluster" in rung.needs)
            assert step.cooperative == ("cooperative" in rung.needs)
        assert shape.elements <= n


@rungs
def test_the_workspace_holds_what_is_put_there(rung):
    for _, _, shape in shapes(rung):
        places = [a for step in shape.steps for a in step.arguments if isinstance(a, Pointer)]
        inside = [pointer for pointer in places if pointer.place == "workspace"]
        assert all(pointer.offset_bytes % 16 == 0 for pointer in inside), "partials are read as vectors too"
        assert bool(inside) <= bool(shape.workspace_bytes)
        assert max((pointer.offset_bytes for pointer in inside), default=-1) < shape.workspace_bytes or not inside
    sizes = [shape.workspace_bytes for n, block, shape in shapes(rung) if block == 256]
    assert sizes == sorted(sizes), "it grows with n"


@pytest.mark.parametrize("plan", [Passes(), Passes(4), Passes(2, max_blocks=64), Passes(mean=True, partial_bytes=2)])
def test_passes_hand_their_partials_on(plan):
    for n in SIZES:
        shape = plan.shape(Problem(n, 128, ("k",)))
        left, ranges = n, []
        for step in shape.steps:
            source, target, count = step.arguments
            assert count == left
            covered = step.grid[0] * step.block * plan.per_thread
            assert covered >= left or plan.max_blocks
            left = step.grid[0]
            ranges.append((source, target))
        assert left == 1
        assert ranges[0][0] == Pointer("input")
        assert ranges[-1][1] == Pointer("result")
        assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
        assert all(source != target for source, target in ranges)
        buffers = {}
        for (_, target), step in zip(ranges[:-1], shape.steps, strict=False):
            buffers[target.offset_bytes] = max(buffers.get(target.offset_bytes, 0), step.grid[0] * plan.partial_bytes)
        ends = [start + size for start, size in sorted(buffers.items())]
        starts = sorted(buffers)[1:]
        assert all(end <= start for end, start in zip(ends, starts, strict=False)), "the two buffers do not overlap"
        assert not ends or ends[-1] <= shape.workspace_bytes


def test_a_mean_is_scaled_by_the_threads_of_every_pass():
    shape = Passes(mean=True).shape(Problem(1000, 256, ("k",)))
    assert [step.block for step in shape.steps] == [256, 32]
    assert shape.scale == 256 * 32


def test_atomics_a_warp_a_block_and_a_cluster():
    n = 16384 * 10 + 1
    assert Atomic(4).shape(Problem(n, 256, ("k",))).steps[0].grid == (161,)
    (step,) = Atomic(4, cluster=16).shape(Problem(n, 256, ("k",))).steps
    assert step.grid == (176,)
    assert Atomic(8, 1024).shape(Problem(10**8, 256, ("k",))).steps[0].grid == (1024,)


def test_a_cooperative_grid_fits():
    assert Cooperative().shape(Problem(10**8, 256, ("k",), 700)).steps[0].grid == (700,)
    assert Cooperative().shape(Problem(1000, 256, ("k",), 700)).steps[0].grid == (4,)


def test_the_block_adapts_to_the_length():
    blocks = [TwoKernels(adapted=True).shape(Problem(n, 32, ("a", "b"))).steps[0].block for n in (1, 10**5, 10**8)]
    assert blocks == [64, 256, 1024]


def test_matrices_are_nearly_square():
    assert Axis(inner=True).shape(Problem(1000, 256, ("k",))).shape == (31, 32)
    assert Axis(inner=False).shape(Problem(1000, 256, ("k",))).results == 32
    assert Axis(inner=True).shape(Problem(0, 256, ("k",))).steps == ()
    assert Transpose().shape(Problem(1023, 256, ("k",))).shape == (31, 31)


def test_stubs_say_what_a_form_is_compiled_with():
    assert stub(RUNGS["v7_cluster_tuned"], "float32", 512) == (
        '#define BLOCK 512\n#define LOADS 12\n#define CLUSTER 2\n#include "ladder/v7_cluster.cu"\n'
    )
    assert "#define HALF\n" in stub(RUNGS["two_pass"], "float16", 256)
    assert "HALF" not in stub(RUNGS["float16_narrow"], "float16", 256), "it has no other type"


@pytest.mark.parametrize(("version", "number"), [("v1", 1), ("v2", 2), ("v3", 3), ("", 3)])
def test_the_environment_switches(monkeypatch, version, number):
    monkeypatch.setenv(VERSION_VARIABLE, version)
    chosen = as_switched(RUNGS["switched"])
    assert dict(chosen.constants) == {"VERSION": number}
    assert chosen.plan.per_thread == (4 if number == 3 else 1)
    assert as_switched(RUNGS["shared"]) is RUNGS["shared"]


def test_a_version_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv(VERSION_VARIABLE, "v4")
    with pytest.raises(ValueError, match="v1, v2, v3, not 'v4'"):
        as_switched(RUNGS["switched"])


def test_types():
    assert RUNGS["two_pass"].dtype("float16") == "float16"
    assert RUNGS["tcu_reduce16"].dtype("float32") == "float16"
    with pytest.raises(ValueError, match="v0_atomic takes elements of type float32, not float16"):
        RUNGS["v0_atomic"].dtype("float16")


@rungs
def test_what_a_rung_is_read_beside(rung):
    before = rung_before(rung)
    assert before is None or before.system == rung.system
    diff = source_diff(rung)
    assert {marker for marker, _ in diff} <= set(" +-")
    text = rung.source.read_text(encoding="utf-8").splitlines()
    text = text[next(place for place, line in enumerate(text) if not line.startswith("//")) :]
    assert [line for marker, line in diff if marker != "-"][-len(text) :] == text


def test_a_diff_marks_what_changed():
    diff = source_diff(RUNGS["v2_shared_sequential"])
    assert ("-", "        if (t % (2 * s) == 0) sums[t] += sums[t + s];") in diff
    assert ("+", "        if (t < s) sums[t] += sums[t + s];") in diff
    assert (" ", "    __shared__ float sums[1024];") in diff
    tuned = source_diff(RUNGS["v6_block_atomic_tuned"])
    assert [line for line in tuned if line[0] != " "] == [("-", "#define LOADS 1"), ("+", "#define LOADS 8")]
    assert {marker for marker, _ in source_diff(RUNGS["v0_atomic"])} == {" "}
    assert rung_before(RUNGS["v0_atomic_max_ordered"]) is RUNGS["v0_atomic"], "not the rung that stands before it"
    assert rung_before(RUNGS["v5_warp_shuffle"]) is RUNGS["v4_float4"]


def test_the_elements_are_as_documented():
    x = elements(100_000, "float32", "sum")
    k = x * 256
    assert x.dtype == np.float32
    assert np.array_equal(k, np.rint(k))
    assert set(np.unique(k)) == set(range(-255, 0)) | set(range(1, 256))
    assert np.array_equal(elements(100_000, "float16", "sum").astype(np.float32), x)
    largest = elements(1000, "float32", "max")
    assert largest[-1] == 2.0
    assert largest[:-1].max() < 1


def test_one_lost_element_is_noticed():
    x = elements(10_000, "float32", "sum")
    right = np.array([x.sum(dtype=np.float64)], np.float32)
    assert judge("sum", x, right, Shape((), (10_000,)), "float32").correct
    for lost in (0, 9_999):
        assert not judge("sum", x, right - x[lost], Shape((), (10_000,)), "float32").correct
    assert not judge("sum", x, np.array([np.nan], np.float32), Shape((), (10_000,)), "float32").correct


def test_what_is_exact_is_so_to_the_last_bit():
    x = elements(10_000, "float32", "sum")
    right = np.array([x.sum(dtype=np.float64)], np.float32)
    assert not judge("sum", x, np.nextafter(right, np.float32(np.inf)), Shape((), (10_000,)), "float32").correct


def test_float16_may_be_off_by_its_roundings_and_no_more():
    x = elements(65_539, "float16", "sum")
    shape = RUNGS["float16_narrow"].plan.shape(Problem(65_539, 256, ("float16_narrow",)))
    exact = x.sum(dtype=np.float64)
    assert judge("sum", x, np.array([exact + 0.05], np.float16), shape, "float16").correct
    assert not judge("sum", x, np.array([exact + 5.0], np.float16), shape, "float16").correct


def test_a_maximum_that_nobody_wrote_is_that_of_no_element():
    untouched = np.array([0xFFFFFFFF], np.uint32).view(np.float32)
    assert judge("max", elements(0, "float32", "max"), untouched, Shape((), (0,)), "float32").correct
    assert not judge("max", elements(9, "float32", "max"), untouched, Shape((), (9,)), "float32").correct


def test_an_axis_and_a_transpose_are_compared_element_by_element():
    x = elements(12, "float32", "sum").reshape(3, 4)
    sums = x.sum(axis=1)
    assert judge("inner", x, sums, Shape((), (3, 4)), "float32").correct
    assert not judge("inner", x, sums[::-1], Shape((), (3, 4)), "float32").correct
    assert judge("outer", x, x.sum(axis=0), Shape((), (3, 4)), "float32").correct
    square = x[:, :3]
    assert judge("transpose", square, np.ascontiguousarray(square.T).ravel(), Shape((), (3, 3)), "float32").correct
    assert not judge("transpose", square, np.ascontiguousarray(square).ravel(), Shape((), (3, 3)), "float32").correct


def test_a_record_is_plain_data():
    record = Record(
        rung="a", system="A", n=0, dtype="float32", value=-math.inf, reference=-math.inf, relative_error=0.0,
        correct=True, expected_correct=True, fault="x",
    )  # fmt: skip
    held = record.as_dict()
    assert list(held) == [
        "rung", "system", "n", "dtype", "value", "reference", "relative_error", "correct", "expected_correct",
        "microseconds", "gb_per_s", "percent_of_peak", "counters",
    ]  # fmt: skip
    assert held["value"] is None
    json.dumps(held, allow_nan=False)


def test_inputs_are_rotated_past_the_cache():
    class Device:
        l2_bytes = 60 << 20

    assert copies(400_000_000, Device) == 2
    assert copies(64 << 20, Device) == 4
    assert copies(4096, Device) == 1
    assert copies(0, Device) == 1


@pytest.mark.parametrize(("once", "runs"), [(0.0, 400), (1.0, 400), (100.0, 40), (1e6, 1)])
def test_a_graph_holds_as_many_runs_as_its_time_asks_for(monkeypatch, once, runs):
    asked = []

    def replays_us(run, stream, number, repeat):
        asked.append((number, repeat))
        return once

    monkeypatch.setattr(timing, "_replays_us", replays_us)
    assert timing.device_us(lambda turn: None, None, 5) == once
    assert asked == [(1, 1), (runs, 5)]


def test_everything_public_is_there():
    assert all(hasattr(ladder, name) for name in ladder.__all__)
