"""What the command line shows is what runs: a plan's launches, and the same code with places and without."""

import shutil
from dataclasses import replace

import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.cli import code, mapped, show
from lowlevel_reduce.cli.sass import NoToolError
from lowlevel_reduce.compiler import source_root

WANTED = mapped.Wanted(
    op="sum", shape="4096x1000", axis="0", dtype="float32", strides_bytes=None, accumulate=None, result_dtype=None,
    where=False, initial=False, nan=None, map=None, strategy=None, cluster=None, block_threads=None, target="H200",
    multiprocessors=None, sources=None,
)  # fmt: skip


def test_what_is_shown_is_what_runs(tmp_path):
    found, placed = mapped.shown(WANTED), mapped.shown(WANTED, lines=True)
    with lr.simulator.use("H200"), lr.Context.primary() as context, context.pushed():
        with lr.plan("sum", shape=(4096, 1000), axis=0, dtype="float32", context=context) as plan:
            launches = [(kernel.name, config) for kernel, config in plan.launches]
            assert launches == [(kernel.source.entry, kernel.config) for kernel in found.kernels]
            assert found.selection.workspace_bytes == plan.workspace_bytes
    (ptx,), (ptx_placed,) = (show._listings(each, show.View.ptx) for each in (found, placed))
    assert [line[:2] for line in ptx.lines] == [line[:2] for line in ptx_placed.lines]
    assert any("griddepcontrol.wait" in line.text for line in ptx.lines)
    place = next(line.place for line in ptx_placed.lines if "griddepcontrol.wait" in line.text)
    assert ptx_placed.source(place)[0].startswith("base/ptx_launch.cuh:")
    assert "griddepcontrol.wait" in ptx_placed.source(place)[1]
    try:
        (sass,), (sass_placed,) = (show._listings(each, show.View.sass) for each in (found, placed))
    except NoToolError as error:
        pytest.skip(str(error))
    assert [line[:2] for line in sass.lines] == [line[:2] for line in sass_placed.lines]
    place = next(line.place for line in sass_placed.lines if "ACQBULK" in line.text)
    assert "griddepcontrol.wait" in sass_placed.source(place)[1]
    shutil.copytree(source_root(), tmp_path / "cuda_src")
    header = tmp_path / "cuda_src" / "base/ptx_launch.cuh"
    header.write_text(header.read_text().replace('asm volatile("griddepcontrol.wait;" ::: "memory");', ""))
    changed = mapped.shown(replace(WANTED, sources=str(tmp_path / "cuda_src")))
    (without,) = show._listings(changed, show.View.sass)
    lines = [line.plain for line in code.differences(sass, without)]
    assert any(line.startswith("-") and "ACQBULK" in line for line in lines)
    assert not any(line.startswith("+") and "ACQBULK" in line for line in lines)
