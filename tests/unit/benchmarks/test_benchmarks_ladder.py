"""The ladder's page: tables, figures and claims as the records say, and counters that are not stale. Nothing is run."""

import contextlib
import json
import re
import types

import pytest

from benchmarks.measure import records
from benchmarks.measure.figures import FileError
from benchmarks.pages import ladder_doc, roofline
from benchmarks.profile import ladder, ladder_counters
from lowlevel_reduce.compiler.sources import SourceTree
from lowlevel_reduce.ladder import RUNGS

COUNTERS = ladder_counters.COUNTERS


def test_the_ladder_page_is_what_the_records_say(capsys):
    assert ladder_doc.main(["--check"]) == 0, capsys.readouterr().err


def record(rung, us, **changes):
    made = {"rung": rung, "system": "A", "n": 1000, "dtype": "float32", "value": 1.0, "reference": 1.0}
    made |= {"relative_error": 0.0, "correct": True, "expected_correct": True, "microseconds": us}
    return made | {"gb_per_s": us and 4000.0 / us, "percent_of_peak": 1.0, "counters": None, **changes}


def written(file, found, kind="ladder"):
    records.begin(file, kind, {"device": "D", "commit": "c"})
    records.add(file, *found)


def test_the_ladder_page_takes_its_times_from_the_newest_file(tmp_path):
    page = "x\n<!-- times a-1e8 v6_block_atomic v0_atomic -->\nstale\n<!-- end -->\ny\n"
    assert "Not measured yet." in ladder_doc.filled(page, tmp_path, COUNTERS)
    for date, us in (("2026-01-01", 9.0), ("2026-01-02", 4.0)):
        found = [record("v0_atomic", 40.0), record("v6_block_atomic", us, correct=False)]
        written(tmp_path / f"{date}-h200-ladder-a-1e8.jsonl", found)
    made = ladder_doc.filled(page, tmp_path, COUNTERS)
    assert "| `v6_block_atomic` | 4.00 | 1,000.0 | 1.0 | 91 | 10.0 | WRONG |" in made
    assert made.index("`v6_block_atomic`") < made.index("`v0_atomic`")
    assert "stale" not in made
    assert ladder_doc.filled(made, tmp_path, COUNTERS) == made


def test_a_speed_up_is_over_the_first_rung_that_is_meant_to_be_right_and_every_type_is_named(tmp_path):
    found = [
        record("race", 5.0, correct=False, expected_correct=False),
        record("atomic", 40.0),
        record("tcu_reduce16", 10.0, dtype="float16"),
    ]
    written(tmp_path / "2026-01-01-h200-ladder-e-2p24.jsonl", found)
    made = ladder_doc.filled("<!-- times e-2p24 -->\n<!-- end -->\n", tmp_path, COUNTERS)
    cells = {line.split(" | ")[0]: line.split(" | ") for line in made.splitlines() if line.startswith("| `")}
    assert [cells[f"| `{rung}`"][5] for rung in ("race", "atomic", "tcu_reduce16")] == ["8.0", "1.0", "4.0"]
    assert cells["| `atomic`"][4] == "133.74 ms", "a source that gives no %, but a time"
    assert "N = 1,000 float32 and float16, D, commit c" in made
    some = ladder_doc.filled("<!-- times e-2p24 atomic -->\n<!-- end -->\n", tmp_path, COUNTERS)
    assert "N = 1,000 float32, D" in some


@pytest.mark.parametrize("run", ladder.RUNS, ids=lambda run: run.name)
def test_every_run_has_its_table_and_a_file_fills_it(tmp_path, run):
    rungs = [rung.id for rung in RUNGS.values() if rung.system == run.system]
    found = [record(rung, 7.0, n=run.n, dtype=run.dtype) for rung in rungs]
    name = f"2030-01-01-h200-ladder-{run.name}.jsonl"
    written(tmp_path / name, found)
    tables = re.findall(
        rf"<!-- times {run.name}(?: [^>]*)? -->\n.*?<!-- end -->\n",
        ladder_doc.PAGE.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert tables, "the page has a place for it"
    for table in tables:
        made = ladder_doc.filled(table, tmp_path, COUNTERS)
        assert f"N = {run.n:,} {run.dtype}, D, commit c: `{name}`." in made
        assert "| 7.00 |" in made


def test_a_changed_ladder_page_is_noticed(tmp_path, capsys):
    page = tmp_path / "ladder.md"
    page.write_text(
        ladder_doc.PAGE.read_text(encoding="utf-8").replace("| `v0_atomic` | 36,966 |", "| `v0_atomic` | 36,967 |")
    )
    assert ladder_doc.main(["--check", "--page", str(page)]) == 1
    assert "differs from what the results say" in capsys.readouterr().err
    assert ladder_doc.main(["--page", str(page)]) == 0
    assert ladder_doc.main(["--check", "--page", str(page)]) == 0


def test_a_rung_without_a_record_is_shown_as_not_measured(measured):
    made = measured("<!-- times a-1e8 v0_atomic v5_warp_shuffle -->\n<!-- end -->\n")
    rows = [line for line in made.splitlines() if line.startswith("| `")]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| `v0_atomic`", "400.00"],
        ["| `v5_warp_shuffle`", "not measured yet"],
    ]
    whole = measured("<!-- times a-1e8 -->\n<!-- end -->\n")
    assert "| `v4_float4` | not measured yet | - |" in whole
    assert "| `reduce0`" not in whole, "it is of another system"
    with pytest.raises(FileError, match="has no rung v9"):
        measured("<!-- times a-1e8 v9 -->\n<!-- end -->\n")


def test_a_ladder_table_of_an_unknown_rung_is_refused(tmp_path):
    with pytest.raises(FileError, match="has no rung v9"):
        ladder_doc.filled("<!-- counters v9 -->\n<!-- end -->\n", tmp_path, COUNTERS)


@pytest.fixture
def measured(tmp_path):
    found = [record("v0_atomic", 400.0), record("v6_block_atomic", 200.0), record("v7_cluster", 1500.25)]
    found.append(record("v8_one_tree", None))
    written(tmp_path / "2026-01-01-h200-ladder-a-1e8.jsonl", found)
    rows = [{"name": "tiles", "us": 89.193}, {"name": "twice", "us": 1.0}, {"name": "twice", "us": 2.0}]
    written(tmp_path / "2026-01-01-h200-foundation.jsonl", rows, "foundation")
    return lambda page: ladder_doc.filled(page, tmp_path, COUNTERS)


@pytest.mark.parametrize(
    ("figure", "shown"),
    [
        ("us a-1e8 v0_atomic", "400.0"),
        ("us a-1e8 v7_cluster", "1,500"),
        ("percent a-1e8 v0_atomic", "1.0"),
        ("ratio a-1e8 v0_atomic v6_block_atomic", "2.00"),
        ("ns a-1e8 v0_atomic 200000", "2.00"),
        ("row foundation tiles", "89.2"),
    ],
)
def test_a_figure_in_a_sentence_is_that_of_the_records(measured, figure, shown):
    page = f"It takes <!-- {figure} -->stale<!-- . --> µs, <!-- {figure} -->and<!-- . -->."
    made = measured(page)
    assert made == f"It takes <!-- {figure} -->{shown}<!-- . --> µs, <!-- {figure} -->{shown}<!-- . -->."
    assert measured(made) == made


def test_a_counter_in_a_sentence_is_that_of_the_simulator(tmp_path):
    counted = {"v0_atomic": {"atomics": 65539, "barriers": 0}, "v6_block_atomic": {"atomics": 65}, "race": None}
    found = [record(rung, None, counters=counters) for rung, counters in counted.items()]
    file = tmp_path / "counters.json"
    file.write_text(json.dumps({"nvrtc": "12.9", "records": found}), encoding="utf-8")

    def shown(words):
        return ladder_doc.filled(f"<!-- counted {words} -->stale<!-- . -->", tmp_path, file)

    assert shown("v0_atomic atomics") == "<!-- counted v0_atomic atomics -->65,539<!-- . -->"
    assert ">1,008<" in shown("v0_atomic atomics v6_block_atomic atomics")
    assert ">0.00<" in shown("v6_block_atomic atomics v0_atomic atomics")
    for words, message in (
        ("v9 atomics", "has no rung v9"),
        ("race atomics", "race has no atomics"),
        ("v0_atomic atomics v0_atomic barriers", "v0_atomic has no barriers"),
        ("v0_atomic sectors", "v0_atomic has no sectors"),
    ):
        with pytest.raises(FileError, match=message):
            shown(words)


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ("us b-2p24 atomic", "there is no run b-2p24"),
        ("us a-1e8 v9", "has no rung v9"),
        ("us a-1e8 v8_one_tree", "v8_one_tree has no time"),
        ("row foundation none", "just one row 'none'"),
        ("row foundation twice", "just one row 'twice'"),
        ("row shapes tiles", "just one row 'tiles'"),
    ],
)
def test_a_figure_that_nobody_measured_is_refused(measured, figure, message):
    with pytest.raises(FileError, match=message):
        measured(f"<!-- {figure} -->1<!-- . -->")


def test_a_claim_is_held_against_the_times(measured):
    page = "<!-- claim a-1e8 v6_block_atomic < v0_atomic < v7_cluster -->faster"
    assert measured(page) == page
    with pytest.raises(FileError, match=r"says v0_atomic < v6_block_atomic; .* says v0_atomic 400.00, v6_block_atomic"):
        measured("<!-- claim a-1e8 v0_atomic < v6_block_atomic -->slower")


def test_the_page_claims_what_its_sentences_need():
    text = ladder_doc.PAGE.read_text(encoding="utf-8")
    assert len(ladder_doc._CLAIM.findall(text)) >= 20
    assert len(ladder_doc._FIGURE.findall(text)) >= 65


def test_the_committed_counters_are_those_of_the_sources(capsys):
    assert ladder_counters.main(["--check"]) == 0, capsys.readouterr().err


def test_counters_of_other_sources_are_stale(tmp_path, capsys):
    document = json.loads(COUNTERS.read_text(encoding="utf-8"))
    assert [record["rung"] for record in document["records"]] == list(document["digests"])
    document["digests"]["reduce1"] = "0"
    file = tmp_path / "counters.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    assert ladder_counters.main(["--check", "--file", str(file)]) == 1
    assert "stale: reduce1 changed" in capsys.readouterr().err
    file.write_text("[]", encoding="utf-8")
    assert ladder_counters.main(["--check", "--file", str(file)]) == 2
    assert "holds no counters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda text: f"// more\n{text}", True),
        (lambda text: text.replace("__syncthreads()", "__syncwarp()", 1), False),
    ],
)
def test_a_comment_makes_no_counter_stale_and_code_does(tmp_path, monkeypatch, change, same):
    rung = ladder_counters.RUNGS["reduce1"]
    was = ladder_counters._digest(rung)
    target = tmp_path / rung.file
    target.parent.mkdir(parents=True)
    target.write_text(change(rung.source.read_text(encoding="utf-8")))
    monkeypatch.setattr(ladder_counters, "source_tree", lambda: SourceTree(tmp_path))
    assert (ladder_counters._digest(rung) == was) is same


def test_a_run_of_another_gpu_is_asked_for_by_its_name(tmp_path):
    """A newer file of an H100 leaves the text, which tells of an H200, as it is."""
    for name, us in (("2026-01-01-h200-ladder-a-1e8", 2.0), ("2026-01-02-h100-ladder-a-1e8", 3.0)):
        records.begin(tmp_path / f"{name}.jsonl", "ladder", {"device": name, "commit": "0"})
        records.add(tmp_path / f"{name}.jsonl", {"rung": "v0_atomic", "n": 1, "dtype": "float32", "microseconds": us})

    def told(run):
        return ladder_doc.filled(f"<!-- us {run} v0_atomic -->?<!-- . -->", tmp_path, COUNTERS)

    assert told("a-1e8") == "<!-- us a-1e8 v0_atomic -->2.0<!-- . -->"
    assert told("h100:a-1e8") == "<!-- us h100:a-1e8 v0_atomic -->3.0<!-- . -->"
    with pytest.raises(FileError, match="no run b200:a-1e8"):
        told("b200:a-1e8")
    assert "Not measured yet." in ladder_doc.filled("<!-- times b200:a-1e8 -->\n<!-- end -->", tmp_path, COUNTERS)


BESIDE = "<!-- beside a-1e8 h200,h100 v0_atomic v6_block_atomic v8_one_tree -->\nstale\n<!-- end -->\n"


def of_a_gpu(folder, gpu, device, **us):
    file = folder / f"2026-01-01-{gpu}-ladder-a-1e8.jsonl"
    records.begin(file, "ladder", {"device": device, "commit": gpu})
    records.add(file, *(record(rung, time, correct=rung != "v6_block_atomic") for rung, time in us.items()))


def test_a_table_has_two_gpus_beside_each_other(tmp_path):
    assert "Not measured yet." in ladder_doc.filled(BESIDE, tmp_path, COUNTERS)
    of_a_gpu(tmp_path, "h200", "NVIDIA H200", v0_atomic=1500.25, v6_block_atomic=4.0, v8_one_tree=None)
    made = ladder_doc.filled(BESIDE, tmp_path, COUNTERS)
    assert "| `v0_atomic` | 1,500.25 | 2.7 | 1.0 | - | - | - | 1.5 % |" in made
    assert "N = 1,000. H200: NVIDIA H200, commit h200, `2026-01-01-h200-ladder-a-1e8.jsonl`; H100: not measured" in made
    of_a_gpu(tmp_path, "h100", "NVIDIA H100 80GB HBM3", v0_atomic=2000.0, v8_one_tree=5.0)
    made = ladder_doc.filled(BESIDE, tmp_path, COUNTERS)
    assert [line for line in made.splitlines() if line.startswith("|")] == [
        "| rung | H200, µs | GB/s | % of its peak | H100, µs | GB/s | % of its peak | source |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| `v0_atomic` | 1,500.25 | 2.7 | 1.0 | 2,000.00 | 2.0 | 1.0 | 1.5 % |",
        "| `v6_block_atomic` | 4.00 WRONG | 1,000.0 | 1.0 | - | - | - | 91 % |",
        "| `v8_one_tree` | - | - | - | 5.00 | 800.0 | 1.0 | - |",
    ]
    assert made.rstrip().splitlines()[-3].endswith("commit h100, `2026-01-01-h100-ladder-a-1e8.jsonl`.")
    assert "stale" not in made
    assert ladder_doc.filled(made, tmp_path, COUNTERS) == made
    whole = ladder_doc.filled("<!-- beside a-1e8 h200,h100 -->\n<!-- end -->\n", tmp_path, COUNTERS)
    assert [line.split("`")[1] for line in whole.splitlines() if line.startswith("| `")] == [
        "v0_atomic", "v6_block_atomic", "v8_one_tree",
    ]  # fmt: skip
    with pytest.raises(FileError, match="no rung v9"):
        ladder_doc.filled("<!-- beside a-1e8 h100 v9 -->\n<!-- end -->\n", tmp_path, COUNTERS)


def test_the_page_has_an_h100_beside_the_h200():
    (words,) = re.findall(r"<!-- beside a-1e8 ([^>]+) -->", ladder_doc.PAGE.read_text(encoding="utf-8"))
    assert words.split() == ["h200,h100", *roofline.LADDER]


def test_a_file_is_called_by_the_gpu_and_not_by_its_memory(tmp_path, monkeypatch):
    """The name of an H100 ends with that of its memory, HBM3."""
    device = types.SimpleNamespace(name="NVIDIA H100 80GB HBM3")
    context = types.SimpleNamespace(device=device)
    monkeypatch.setattr(ladder, "opened", lambda: contextlib.nullcontext(types.SimpleNamespace(context=context)))
    monkeypatch.setattr(ladder, "conditions", lambda *_: {"device": device.name})
    monkeypatch.setattr(ladder, "RUNGS", {})
    monkeypatch.setattr(ladder, "iterate", lambda *_, **__: ())
    assert ladder.main(["--json", str(tmp_path), "--date", "2030-01-01"]) == 0
    written = {file.name for file in tmp_path.iterdir()}
    assert written == {f"2030-01-01-h100-ladder-{run.name}.jsonl" for run in ladder.RUNS}
    assert all(ladder_doc._files(tmp_path, f"h100:{run.name}") for run in ladder.RUNS)
