"""``prebuild --wheel``: what it builds by default and on request, and what it refuses; and what info shows of it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowlevel_reduce.cli import app, info, wheel
from lowlevel_reduce.compiler.installed import PackState
from lowlevel_reduce.kernel_wheel import building
from lowlevel_reduce.kernel_wheel.building import WheelReport
from lowlevel_reduce.kernel_wheel.choice import ARCHITECTURES, chosen


@pytest.fixture
def asked(monkeypatch):
    """What was to be built; nothing is."""
    seen = []

    def build_wheel(into, architectures, choice, *, kernels_in, each):
        seen.append((into, tuple(architectures), tuple(choice), kernels_in))
        each(2)
        each(2)
        return WheelReport(into / "some.whl", 3 << 20, {"sm_90": 2}, {"sm_90": 2048})

    monkeypatch.setattr(wheel, "build_wheel", build_wheel)
    return seen


def prebuild(*arguments):
    return CliRunner().invoke(app.app, ["prebuild", *arguments])


def test_without_operators_it_is_the_documented_choice(asked):
    done = prebuild("--wheel", "dist", "--json")
    assert done.exit_code == 0, done.output
    assert asked == [(Path("dist"), ARCHITECTURES, tuple(chosen()), None)]
    assert json.loads(done.stdout) == {
        "wheel": "dist/some.whl",
        "bytes": 3 << 20,
        "kernels": {"sm_90": 2},
        "pack_bytes": {"sm_90": 2048},
    }


def test_operators_types_and_architectures_are_those_that_are_named(asked):
    long = "folder" * 20
    done = prebuild(
        *("sum", "max", "--dtype", "int8", "--dtype", "float16"),
        *("--for", "H200", "--for", "sm_89", "--wheel", f"{long}/dist", "--into", "kept"),
    )
    assert done.exit_code == 0, done.output
    pairs = (("sum", "int8"), ("sum", "float16"), ("max", "int8"), ("max", "float16"))
    assert asked == [(Path(long, "dist"), ("sm_90", "sm_89"), pairs, Path("kept"))]
    assert done.stdout.splitlines()[-1] == f"{long}/dist/some.whl: 3.0 MiB"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--wheel", "dist", "--dtype", "float32"], "--dtype goes with operators"),
        (["sum", "--wheel", "dist", "--segments"], "do not go with --wheel"),
        (["sum", "--wheel", "dist", "--accumulate", "float32"], "do not go with --wheel"),
        (["sum", "--wheel", "dist", "--for", "H101"], "--for takes H200"),
        ([], "which operators?"),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments, words, asked):
    done = prebuild(*arguments)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert words in done.stderr
    assert not asked


def test_without_hatchling_nothing_is_compiled(monkeypatch):
    monkeypatch.setattr(building.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(building, "compile_kernel", lambda *_, **__: pytest.fail("compiled"))
    done = prebuild("sum", "--wheel", "dist", "--for", "sm_90")
    assert done.exit_code == 2
    assert "pip install hatchling" in done.stderr


def test_info_shows_each_pack_and_the_architecture_that_is_missing():
    packs = [PackState("sm_80", 7, 4096, None), PackState("sm_90", 0, 10, "it is truncated")]
    facts = info.gather()
    facts["kernels"] = {
        "directory": "/site",
        "version": "1",
        "unavailable": None,
        "packs": [pack._asdict() for pack in packs],
    }
    table, *_ = info.render(facts)
    info._add_installed(table, facts["kernels"], {"sm_80", "sm_89"})
    cells = list(table.columns[1].cells)
    assert "sm_80: 7 kernels, 4,096 bytes" in cells
    assert "sm_90: it is truncated" in cells
    assert "sm_89: none, which this machine's GPU needs" in cells
