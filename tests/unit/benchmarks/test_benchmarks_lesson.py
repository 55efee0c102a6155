"""The figures of docs/lesson.md, docs/sources.md and docs/rungs.md come from the files and follow them."""

import json

import pytest

from benchmarks.measure import records
from benchmarks.measure.figures import FileError
from benchmarks.pages import lesson_doc, roofline, rungs_doc
from benchmarks.profile import copies
from benchmarks.profile.ladder_counters import COUNTERS


@pytest.fixture
def ladder(tmp_path):
    """A run of system A on an H200 in which every rung takes as many microseconds as its place says."""
    file = tmp_path / "2026-01-02-h200-ladder-a-1e8.jsonl"
    records.begin(file, "ladder", {"device": "NVIDIA H200", "commit": "0"}, run="a-1e8")
    for place, name in enumerate(roofline.LADDER, 1):
        figures = {"microseconds": 100.0 * place, "gb_per_s": 4000.0 / place, "percent_of_peak": 83.1 / place}
        records.add(file, {"rung": name, "n": 100_000_000, "dtype": "float32", **figures})
    return file


def test_a_roof_is_the_lower_of_two():
    gpu = roofline.Gpu("one", 100, 2.0, 1000.0)
    assert gpu.gops_per_s == 25_600
    assert gpu.ridge == 25.6


def test_where_rungs_stand_is_counted_and_measured(ladder):
    (_, timed) = roofline.newest(ladder.parent)["NVIDIA H200"]
    first, *_, last = roofline.standings(timed)
    counted = {each["rung"]: each for each in json.loads(COUNTERS.read_text(encoding="utf-8"))["records"]}
    told = counted["v0_atomic"]["counters"]
    assert first.intensity == (counted["v0_atomic"]["n"] - 1) / (told["bytes_read"] + told["bytes_written"])
    assert first.issued == 32 * told["instructions"] / told["bytes_read"]
    assert last.microseconds == 100.0 * len(roofline.LADDER)
    table = lesson_doc.filled("<!-- standings -->\n<!-- end -->", ladder.parent)
    assert "| [`v1_shared_interleaved`](rungs.md#v1_shared_interleaved) | 0.248 | 34.3 | 20 | 41.5 |" in table
    assert "reached on NVIDIA H200: `2026-01-02-h200-ladder-a-1e8.jsonl`" in table


def test_the_newest_run_of_each_gpu_counts(ladder):
    older = ladder.with_name("2026-01-01-h200-ladder-a-1e8.jsonl")
    older.write_bytes(ladder.read_bytes())
    other = ladder.with_name("2026-01-03-h100-ladder-a-1e8.jsonl")
    other.write_text(ladder.read_text(encoding="utf-8").replace("NVIDIA H200", "NVIDIA H100"), encoding="utf-8")
    assert {name: file for name, (file, _) in roofline.newest(ladder.parent).items()} == {
        "NVIDIA H200": ladder.name,
        "NVIDIA H100": other.name,
    }
    page = rungs_doc.made(ladder.parent)
    assert page.count(f"(`{ladder.name}`)") == page.count(f"(`{other.name}`)") == len(roofline.LADDER)
    assert older.name not in page


def test_a_rung_without_counters_is_refused(ladder, tmp_path):
    document = json.loads(COUNTERS.read_text(encoding="utf-8"))
    document["records"] = [each for each in document["records"] if each["rung"] != "v4_float4"]
    file = tmp_path / "counters.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(FileError, match="no counters of v4_float4"):
        lesson_doc.filled("<!-- standings -->\n<!-- end -->", ladder.parent, file)


@pytest.mark.slow
def test_plots_are_drawn_anew_where_they_show_something_else(ladder, tmp_path, capsys):
    arguments = ["--plots", str(tmp_path), "--results", str(ladder.parent)]
    assert roofline.main([*arguments, "--check"]) == 1
    assert "climb.svg shows other figures" in capsys.readouterr().err
    assert roofline.main(arguments) == 0
    drawn = (tmp_path / "climb.svg").read_text(encoding="utf-8")
    assert "1,400 µs" in drawn
    assert roofline.main([*arguments, "--check"]) == 0
    ladder.write_text(ladder.read_text(encoding="utf-8").replace("1400.0", "1500.0"), encoding="utf-8")
    assert roofline.main([*arguments, "--check"]) == 1
    ladder.unlink()
    assert roofline.main(arguments) == 2


def test_copies_are_told_once_they_are_measured(tmp_path, monkeypatch, capsys):
    assert "Not measured yet." in lesson_doc.filled("<!-- copies -->\n<!-- end -->", tmp_path)
    file = tmp_path / "2026-01-01-h200-copies.jsonl"
    records.begin(file, "copies", {"device": "NVIDIA H200"})
    records.add(file, *({"name": name, "n": 1024, "us": 10.0 + k} for k, name in enumerate(copies.NAMES)))
    table = lesson_doc.filled("<!-- copies -->\n<!-- end -->", tmp_path)
    assert "| 1,024 | 10.0 | 11.0 | 12.0 | 13.0 | 14.0 | 15.0 |" in table
    assert "NVIDIA H200, times on the host: `2026-01-01-h200-copies.jsonl`." in table
