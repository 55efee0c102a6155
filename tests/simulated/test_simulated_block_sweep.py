"""The sweep over block sizes: waves and their last one follow from the grid and what is resident."""

import pytest

from benchmarks.measure import records
from benchmarks.pages import ladder_doc
from benchmarks.profile import block_sweep
from benchmarks.profile.ladder_counters import COUNTERS
from lowlevel_reduce.ladder import RUNGS


def test_waves_and_the_last_one(context):
    rows = {row.block: row for row in block_sweep.sweep(RUNGS["v2_shared_sequential"], 1 << 20, context, timed=False)}
    assert list(rows) == [32, 64, 128, 256, 512, 1024]
    for block, row in rows.items():
        places = row.resident * context.device.multiprocessor_count
        assert row.grid == (1 << 20) // block
        assert row.waves == pytest.approx(row.grid / places)
        assert 0 < row.last_share <= 1
        assert row.occupancy == row.resident * block / 2048
        assert (row.waves - row.last_share) % 1 == pytest.approx(0, abs=1e-9)
        assert row.registers > 0
        assert row.microseconds is None
    assert rows[32].occupancy < rows[256].occupancy, "there are places for 32 blocks, whatever their size"


def test_the_adapted_block_is_marked(context):
    rows = block_sweep.sweep(RUNGS["one_tile"], 100 * 100, context, timed=False)
    assert [row.block for row in rows if row.adapted] == [128]
    assert {row.grid for row in rows} == {100}


def test_the_command_writes_what_it_prints(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LOWLEVEL_REDUCE_DRIVER", "simulator")
    page = "<!-- sweep one_tile -->\nstale\n<!-- end -->"
    assert "Not measured yet." in ladder_doc.filled(page, tmp_path, COUNTERS)
    file = tmp_path / "2030-01-01-h200-block-sweep.jsonl"
    assert block_sweep.main(["--rung", "reduce7", "one_tile", "--n", "65536", "--json", str(file)]) == 0
    document = records.read(file, "block-sweep")
    assert capsys.readouterr().out.count("reduce7 ") == len(document.records) / 2 == 6
    assert document.facts["n"] == 65536
    lines = ladder_doc.filled(page, tmp_path, COUNTERS).splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == 6
    registers = document.records[-3]["registers"]
    assert f"| `one_tile` | **256** | 256 | {registers} | 100 % | 0.2 | 24 % | - |" in rows, "the one that is adapted"
    assert f"N = 65,536, NVIDIA H200, commit {document.conditions['commit']}: `{file.name}`." in lines
