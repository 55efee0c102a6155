"""Which kernels are compiled beforehand: all that a call may come to use, for GPUs that need not be here."""

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import lowlevel_reduce as lr
from lowlevel_reduce import driver, prebuilding, simulator
from lowlevel_reduce.cli import app
from lowlevel_reduce.cli import prebuild as command
from lowlevel_reduce.kernel_wheel.building import _members
from lowlevel_reduce.kernel_wheel.choice import chosen
from lowlevel_reduce.plans.segments import _groups_of_a_warp
from lowlevel_reduce.prebuilding import BuildTarget, kernels_of_segments
from lowlevel_reduce.rowops import plan as row_plans
from lowlevel_reduce.rowops.family import BUILT_IN, row_family
from lowlevel_reduce.strategy.family import family_of
from lowlevel_reduce.strategy.selection import operator_text, request_of
from lowlevel_reduce.strategy.stubs import segment_kernel_sources

H200 = BuildTarget.of_architecture("sm_90")


def built(monkeypatch):
    """Return a list of the kernels that are to be compiled from now on, instead of compiling them."""
    asked = []
    monkeypatch.setattr(prebuilding, "build_kernels", lambda sources, *_, **__: asked.extend(sources) or ())
    return asked


@pytest.mark.parametrize("options", [{}, {"accumulate": "compensated"}, {"result_dtype": "float64"}, {"where": True}])
def test_the_whole_family_is_made(options, monkeypatch):
    asked = built(monkeypatch)
    lr.prebuild("sum", dtype="float32", target=H200, **options)
    assert asked == list(family_of("sum", dtype="float32", compute_capability=(9, 0), **options))
    assert len(asked) > 15


def test_names_tell_accumulators_and_results_apart():
    """Kernels are shown by them, and several of a wheel's may be of one operator and type."""
    chosen = [{}, {"accumulate": "float32"}, {"accumulate": "compensated"}, {"result_dtype": "float64"}]
    names = [
        {kernel.entry for kernel in family_of("sum", dtype="float32", compute_capability=(9, 0), **options)}
        for options in chosen
    ]
    assert len(set.union(*names)) == sum(map(len, names))


def test_row_operations_are_made_for_all_their_calls(monkeypatch):
    asked = built(monkeypatch)
    for name in BUILT_IN:
        lr.prebuild(name, dtype="bfloat16", target=H200)
        assert len(asked) % 6 == 0
        assert asked == list(row_family(name, dtype="bfloat16"))
        asked.clear()
    own = lr.RowOperation("own", write={"out": "x + 1"})
    lr.prebuild(own, dtype="float64", target=H200)
    assert len({kernel.entry for kernel in asked}) == 6
    with pytest.raises(TypeError, match="a row operation is compiled for all its calls, without accumulate"):
        lr.prebuild("softmax", dtype="float32", target=H200, accumulate="float32")
    with pytest.raises(ValueError, match="no row operation 'sum'"):
        row_family("sum", dtype="float32")


def test_the_command_takes_row_operations(monkeypatch):
    asked = []
    monkeypatch.setattr(command, "build_kernels", lambda sources, target, **_: asked.extend(sources) or ())
    done = CliRunner().invoke(app.app, ["prebuild", "layer_norm", "--dtype", "float16", "--for", "H200"])
    assert done.exit_code == 0, done.output
    assert asked == list(row_family("layer_norm", dtype="float16"))
    done = CliRunner().invoke(app.app, ["prebuild", "softmax", "--for", "H200", "--segments"])
    assert done.exit_code == 2
    assert "a row operation is compiled for all its calls, without segments" in done.stderr


def test_the_wheel_has_row_operations():
    pairs = list(chosen())
    assert ("rms_norm", "bfloat16") in pairs
    made = _members([("sum", "float32"), ("softmax", "bfloat16")], "sm_90")
    assert {each.label for each in made} == {"sum", "softmax"}
    assert [each.source for each in made if each.label == "softmax"] == list(row_family("softmax", dtype="bfloat16"))


class AskedError(Exception):
    """A kernel was asked for."""


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_calls_of_row_operations_load_is_among_them(name, monkeypatch):
    x, w, target = np.ones((2, 8), ml_dtypes.bfloat16), np.ones(8, ml_dtypes.bfloat16), np.zeros(2, int)
    row = np.ones(2, np.float32)
    given = {
        "rms_norm": (w,), "layer_norm": (w, w), "group_norm": (2, w, w), "cross_entropy": (target,),
        "log_prob": (target,), "softmax_backward": (x,), "log_softmax_backward": (x,),
        "rms_norm_backward": (x, row, w), "layer_norm_backward": (x, row, row, w),
        "group_norm_backward": (x, row[:, None], row[:, None], 1, w),
    }  # fmt: skip
    arguments = (row, x, target, row) if name == "cross_entropy_backward" else (x, *given.get(name, ()))
    loaded = []

    def load(source, _):
        loaded.append(source)
        raise AskedError

    monkeypatch.setattr(row_plans, "load_kernel", load)
    with simulator.use("H200"), pytest.raises(AskedError):
        getattr(lr, name)(*arguments)
    assert loaded[0] in row_family(name, dtype="bfloat16")


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
        ({"shape": 5, "axis": 0}, TypeError, "of all shapes are compiled: axis, shape goes with a plan"),
        ({"strategy": "two_pass"}, TypeError, "strategy goes with a plan"),
        ({"segmented": True, "op": "dot"}, lr.UnsupportedError, "takes two arrays"),
        ({"segmented": True, "axis": 0}, TypeError, "axis goes with a plan"),
        ({"op": "nothing"}, lr.UnsupportedError, "no operator 'nothing'"),
        ({"nothing": 1}, TypeError, "nothing"),
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
    ("architecture", "error", "words"),
    [
        ("sm_90a", ValueError, "spelled like"),
        ("compute_90", ValueError, "spelled like"),
        ("sm_70", lr.UnsupportedError, "7.5 or newer"),
        (90, TypeError, "a string, not 90"),
    ],
)
def test_targets_that_there_are_not(architecture, error, words):
    with pytest.raises(error, match=words):
        BuildTarget.of_architecture(architecture)


def test_with_the_cache_off_a_directory_has_to_be_named(monkeypatch):
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "off")
    with pytest.raises(lr.CacheError, match="name a directory"):
        lr.prebuild(dtype="float32", target=H200)


# -- the command ------------------------------------------------------------------------------------------------------


def test_targets_by_name_are_architectures_each_once():
    found = command.targets_of(["H200", "RTX 4090", "sm_86", "sm_90"])
    assert found == tuple(map(BuildTarget, ("sm_90", "sm_89", "sm_86")))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sum", "--for", "H101"], "--for takes H200, A100"),
        (["sum", "--for", "sm_70"], "7.5 or newer"),
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
    monkeypatch.setattr(command, "build_kernels", lambda sources, target, **_: asked.append((target, *sources)) or ())
    types = ["--dtype", "float32", "--dtype", "int8"]
    done = CliRunner().invoke(app.app, ["prebuild", "sum", "max", "--for", "H200", "--for", "sm_89", *types])
    assert done.exit_code == 0, done.output
    for (target, *sources), architecture in zip(asked, ("sm_90", "sm_89"), strict=True):
        assert target.architecture == architecture
        assert sources == [
            kernel
            for op in ("sum", "max")
            for dtype in ("float32", "int8")
            for kernel in family_of(op, dtype=dtype, compute_capability=target.compute_capability)
        ]


@pytest.mark.parametrize("gone", ["--shape", "--axis", "--multiprocessors"])
def test_a_shape_is_nothing_to_the_command(gone):
    done = CliRunner().invoke(app.app, ["prebuild", "sum", "--for", "H200", gone, "4"])
    assert done.exit_code == 2
    assert "No such option" in done.stderr
