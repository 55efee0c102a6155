"""Which kernels are compiled beforehand: all that a call may come to use, for GPUs that need not be here."""

import random

import pytest
from typer.testing import CliRunner

import lowlevel_reduce as lr
from lowlevel_reduce import driver, layout, prebuilding
from lowlevel_reduce.cli import app
from lowlevel_reduce.cli import prebuild as command
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.plans.segments import _groups_of_a_warp
from lowlevel_reduce.prebuilding import BuildTarget, kernels_of, kernels_of_segments
from lowlevel_reduce.strategy.selection import operator_text, request_of, select
from lowlevel_reduce.strategy.stubs import segment_kernel_sources, with_twins

H200 = BuildTarget.of_architecture("sm_90", 132)
TARGETS = [
    BuildTarget.of_architecture(architecture, multiprocessors)
    for architecture in ("sm_75", "sm_89", "sm_90", "sm_100", "sm_120")
    for multiprocessors in (1, 2, 3, 7, 40, 132, 1000)
]


def lengths_around(itemsize):
    """Return lengths beside every number of leaves up to 100, and others of every size."""
    leaf = 4096 // itemsize
    near = [leaves * leaf + past for leaves in range(1, 100) for past in (-1, 0, 1)]
    rng = random.Random(3)
    return [*near, *(rng.randrange(1, 1 << rng.randrange(1, 37)) for _ in range(300))]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.architecture}-{target.facts.multiprocessors}")
@pytest.mark.parametrize(("op", "dtype"), [("sum", "float32"), ("mean_var", "int8"), ("dot", "float16")])
def test_whole_arrays_of_every_length_are_covered(target, op, dtype):
    prebuilt = set(kernels_of(op, target, dtype=dtype))
    used = set()
    for length in lengths_around(element_type(dtype).itemsize):
        used.update(with_twins(select(request_of(op, shape=length, dtype=dtype), target.facts).sources))
    for shape in ((3, 0), (0, 3), (1, 2, 0, 5), (0, 2, 0)):
        assert set(with_twins(select(request_of(op, shape=shape, dtype=dtype), target.facts).sources)) <= prebuilt
    assert used == prebuilt


def test_of_a_shape_those_that_a_plan_takes_and_no_others():
    kernels = kernels_of("sum", H200, dtype="float32", shape=(4096, 1001), axis=0)
    assert kernels == select(request_of("sum", shape=(4096, 1001), dtype="float32", axis=0), H200.facts).sources
    forced = kernels_of("sum", H200, dtype="float32", shape=1 << 20, strategy="two_pass")
    assert [kernel.entry.rpartition("_float32_")[2] for kernel in forced] == ["first_pass", "second_pass"]
    assert kernels_of("sum", H200, dtype="float32", shape=(0, 4), axis=1) == ()


def test_names_tell_accumulators_and_results_apart():
    """Kernels are shown by them, and several of a wheel's may be of one operator and type."""
    chosen = [{}, {"accumulate": "float32"}, {"accumulate": "compensated"}, {"result_dtype": "float64"}]
    kernels = [kernels_of("sum", H200, dtype="float32", shape=(4096, 1001), axis=0, **options) for options in chosen]
    assert len({kernel.entry for (kernel,) in kernels}) == len(chosen)


def test_the_environments_strategy_counts_as_it_does_for_plans(monkeypatch):
    monkeypatch.setenv("LOWLEVEL_REDUCE_STRATEGY", "cooperative")
    assert {kernel.entry.rpartition("_")[2] for kernel in kernels_of("sum", H200, dtype="float32")} == {"cooperative"}
    rows, anywhere = kernels_of("sum", H200, dtype="float32", shape=(3000, 1000), axis=1)
    assert rows.entry.endswith("short_rows")
    assert anywhere == rows.twin


@pytest.mark.parametrize("segments", [1, 1000, 10_000_000])
@pytest.mark.parametrize("of_a_segment", [1, 4, 100])
def test_segments_of_every_number_are_covered(segments, of_a_segment):
    reduction = request_of("sum", shape=1, dtype="float32")
    text = operator_text(reduction.reduction, reduction.types)
    groups = _groups_of_a_warp(segments * of_a_segment, segments, 4, 132)
    prebuilt = kernels_of_segments("sum", dtype="float32")
    for offsets in ("int32", "int64"):
        assert set(segment_kernel_sources(text, offsets, groups)) <= set(prebuilt)
    assert len(set(prebuilt)) == len(prebuilt) == 6


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"axis": 0}, ValueError, "axis goes with a shape, and none is given"),
        ({"segmented": True, "shape": 5}, ValueError, "none goes with segmented=True"),
        ({"segmented": True, "op": "dot"}, lr.UnsupportedError, "takes two arrays"),
        ({"segmented": True, "axis": 0}, TypeError, "axis"),
        ({"op": "nothing"}, lr.UnsupportedError, "no operator 'nothing'"),
        ({"shape": 1 << 20, "strategy": "rows"}, ValueError, "no strategy 'rows'"),
        ({"shape": 1 << 20, "strategy": 0}, TypeError, "a strategy is a name, not 0"),
        ({"cluster": True}, TypeError, "cluster is an integer, not True"),
        ({"shape": 1 << 20, "cluster": 2.0}, TypeError, "cluster is an integer, not 2.0"),
        ({"block_threads": 256.0}, TypeError, "block_threads is an integer, not 256.0"),
        ({"shape": -1}, ValueError, "-1"),
        ({"into": 5}, TypeError, "path"),
        ({"into": b"x"}, TypeError, "path"),
        ({"into": ""}, ValueError, "empty"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_compiled(arguments, error, words, monkeypatch):
    monkeypatch.setattr(prebuilding, "compile_kernel", lambda *_, **__: pytest.fail("compiled"))
    with pytest.raises(error, match=words):
        lr.prebuild(**{"op": "sum", "dtype": "float32", "target": H200, **arguments})


@pytest.mark.parametrize(
    ("architecture", "multiprocessors", "error", "words"),
    [
        ("sm_90a", 132, ValueError, "spelled like"),
        ("compute_90", 132, ValueError, "spelled like"),
        ("sm_70", 80, lr.UnsupportedError, "7.5 or newer"),
        ("sm_90", 0, ValueError, "a multiprocessor or more"),
        ("sm_90", 1.5, TypeError, "integer"),
    ],
)
def test_targets_that_there_are_not(architecture, multiprocessors, error, words):
    with pytest.raises(error, match=words):
        BuildTarget.of_architecture(architecture, multiprocessors)


def test_with_the_cache_off_a_directory_has_to_be_named(monkeypatch):
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "off")
    with pytest.raises(lr.CacheError, match="name a directory"):
        lr.prebuild(dtype="float32", target=H200)


def test_lengths_stay_within_what_can_be_reduced():
    for itemsize in (1, 2, 4, 8, 16):
        lengths = list(prebuilding._lengths(itemsize))
        assert layout.MAX_BYTES // 4 < max(lengths) * itemsize <= layout.MAX_BYTES


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "multiprocessors", "found"),
    [
        ("H200", None, ("sm_90", 132)),
        ("RTX 4090", None, ("sm_89", 128)),
        ("sm_86", 84, ("sm_86", 84)),
    ],
)
def test_targets_by_name(name, multiprocessors, found):
    target = command.target_of(name, multiprocessors)
    assert (target.architecture, target.facts.multiprocessors, target.output) == (*found, "cubin")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sum", "--for", "H101"], "--for takes H200, A100"),
        (["sum", "--for", "sm_89"], "needs --multiprocessors"),
        (["sum", "--for", "H200", "--multiprocessors", "3"], "goes with an architecture"),
        (["sum", "--for", "H200", "--axis", "0"], "--axis goes with --shape"),
        (["sum", "--for", "H200", "--shape", "4y5"], "sizes with an x between them"),
        (["sum", "--for", "H200", "--shape", "4x5", "--axis", "two"], "--axis takes integers"),
        (["sum", "--for", "H200", "--shape", "4x5", "--segments"], "do not go with --segments"),
        (["sum", "--for", "H200", "--dtype", "int7"], "int7"),
    ],
)
def test_wrong_arguments_of_the_command_are_one_line(arguments, words):
    done = CliRunner().invoke(app.app, ["prebuild", *arguments])
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_a_gpu_the_command_asks_for_one_to_be_named(monkeypatch):
    monkeypatch.setattr(driver, "why_unavailable", lambda: "there is no driver")
    done = CliRunner().invoke(app.app, ["prebuild", "sum"])
    assert (done.exit_code, done.stderr.splitlines()) == (
        2,
        ["NoDriverError: there is no GPU to compile for: name one with --for (there is no driver)"],
    )


def test_the_command_compiles_every_combination_once(monkeypatch):
    asked = []
    monkeypatch.setattr(command, "build_kernels", lambda sources, *_, **__: asked.extend(sources) or ())
    shapes = ["--shape", "4096x1000", "--shape", "1000", "--axis", "0", "--axis", "-1"]
    types = ["--dtype", "float32", "--dtype", "int8"]
    done = CliRunner().invoke(app.app, ["prebuild", "sum", "max", "--for", "H200", *types, *shapes])
    assert done.exit_code == 0, done.output
    expected = {
        kernel
        for op in ("sum", "max")
        for dtype in ("float32", "int8")
        for shape, axis in (((4096, 1000), 0), ((4096, 1000), -1), (1000, 0))
        for kernel in kernels_of(op, H200, dtype=dtype, shape=shape, axis=axis)
    }
    assert set(asked) == expected
    assert len(asked) == len(expected)
