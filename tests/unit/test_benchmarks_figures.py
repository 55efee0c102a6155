"""The benchmarks' arithmetic and reports, with made-up figures: medians, ratios, goals, files, tables. No times."""

import json

import pytest

from benchmarks import counters, figures, goals, ladder_doc, report, run
from benchmarks.figures import OURS, FileError


def row(cell="2^20", ours=(2.0, 1.0, 3.0), shape=(1 << 20,), size_bytes=4 << 20, **peers):
    entries = {OURS: figures.figure(ours)} if ours else {OURS: {"error": "ReduceError: wrong"}}
    for name, samples in peers.items():
        entries[name] = {"error": samples} if isinstance(samples, str) else figures.figure(samples)
    return figures.row_of(cell, entries, size_bytes=size_bytes, shape=list(shape), op="sum", axis=None, dtype="float32")


def document(rows, suite="flat", **changes):
    content = {"seconds": 1.0, "missing": {"Numba": "numba is not installed"}, "rows": rows}
    conditions = {"device": "NVIDIA H200", "measured": "2026-01-01", "commit": "abc", "packages": {"numpy": "2"}}
    return {"format": 1, "conditions": conditions, "quick": False, "suites": {suite: content}, **changes}


def test_a_figure_is_the_median_with_its_spread():
    assert figures.figure([3.0, 1.0, 2.0]) == {"us": 2.0, "spread_percent": 100.0, "samples_us": [3.0, 1.0, 2.0]}


def test_a_ratio_is_the_fastest_peers_time_by_ours():
    made = row(CUB=(5.0,), torch=(3.0, 4.0, 5.0), CuPy="failed")
    assert (made["best_peer"], made["ratio"]) == ("torch", 2.0)
    assert made["gb_per_s"] == round((4 << 20) / 2.0 / 1e3, 1)
    assert figures.median_us(made, "CuPy") is None


def test_a_cell_without_a_peer_or_without_us_has_no_ratio():
    assert row()["ratio"] is None
    failed = row(ours=None, CUB=(1.0,))
    assert (failed["ratio"], failed["gb_per_s"], failed["best_peer"]) == (None, None, "CUB")


def test_the_summary_names_the_cells_in_which_a_peer_is_faster():
    text = run.summary_of([row("a", CUB=(8.0,)), row("b", CUB=(1.0,)), row("c", ours=None)])
    assert "x1.414" in text
    assert "behind in 1 of 2: b (0.500)" in text
    assert "FAILED: c" in text


def test_a_line_tells_of_failures():
    assert "CuPy failed" in run.line_of(row(CUB=(4.0,), CuPy="no"))
    assert "FAILED ReduceError: wrong" in run.line_of(row(ours=None))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "no result of benchmarks.run in format 1"),
        ({"conditions": None}, "has no 'conditions'"),
        ({"suites": {"round": {}}}, "no suite 'round'"),
        ({"suites": {"flat": {"rows": []}}}, "does not say what was missing"),
        ({"suites": {"flat": {"missing": {}, "rows": [{"cell": "x"}]}}}, "no cell or no entries"),
        (
            {"suites": {"flat": {"missing": {}, "rows": [{"cell": "x", "entries": {"a": {}}}]}}},
            "neither time nor error",
        ),
    ],
)
def test_a_malformed_file_is_refused(change, message):
    with pytest.raises(FileError, match=message):
        figures.checked_document(document([]) | change, "x.json")


def test_goals_are_judged_by_their_limits():
    fast = goals.at_least(4.59, 4.5, "TB/s")
    assert (fast.met, fast.margin) == (True, "+2.0 %")
    slow = goals.at_most(150, 120, "ms")
    assert (slow.met, slow.margin) == (False, "-25.0 %")


def test_a_goal_over_all_cells_is_judged_by_the_worst():
    goal = next(goal for goal in goals.GOALS if goal.text == "every N: not slower than the fastest peer")
    outcome = goal.judge([row("a", CUB=(4.0,)), row("b", CUB=(1.9,))])
    assert not outcome.met
    assert "(b); 1 of 2 cells below" in outcome.reached
    assert goal.judge([row("a", CUB=(4.0,))]).met
    assert "failed: c" in goal.judge([row("a", CUB=(4.0,)), row("c", ours=None)]).reached


def test_small_lengths_have_a_goal_of_their_own():
    goal = next(goal for goal in goals.GOALS if goal.text.startswith("up to 4 M"))
    large = row("large", shape=(1 << 28,), CUB=(2.1,))
    assert goal.judge([row(CUB=(2.5,)), large]).met
    assert not goal.judge([row(CUB=(2.3,)), large]).met


def test_the_report_quotes_the_newest_thorough_file(tmp_path, capsys):
    rows = [row("100,000,000", (90.0,), (10**8,), 4 * 10**8, CUB=(89.0,)), row("2^30", (900.0,), (1 << 30,), 4 << 30)]
    old = [row("2^30", (901.0,), (1 << 30,), 4 << 30, CUB=(1.0,))]
    (tmp_path / "1-suites.json").write_text(json.dumps(document(rows)))
    older = document(old)
    older["conditions"]["measured"] = "2025-01-01"
    (tmp_path / "2-suites.json").write_text(json.dumps(older))
    (tmp_path / "3-suites-quick.json").write_text(json.dumps(document(old, quick=True)))
    assert report.main(["--results", str(tmp_path), "--docs", str(tmp_path), "--partial"]) == 0
    page = (tmp_path / "performance.md").read_text()
    assert "| 100,000,000 | 90.00 | 4444 | CUB | **0.989** | 89.00 |" in page
    assert "| flat | N = 1e8: at least 4.50 TB/s | **not met** | 4.44 TB/s | -1.2 % |" in page
    assert "| flat | N = 2^30: at least 4.65 TB/s | met |" in page
    assert "Missing: Numba (numba is not installed)." in page
    assert "Not measured yet." in page
    svg = (tmp_path / "plots" / "performance-flat.svg").read_bytes()
    assert report.main(["--results", str(tmp_path), "--docs", str(tmp_path), "--partial"]) == 0
    assert (tmp_path / "plots" / "performance-flat.svg").read_bytes() == svg
    assert report.main(["--results", str(tmp_path), "--docs", str(tmp_path)]) == 2
    assert "has the suite types" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "message"), [(None, "holds no"), ("{", "is no JSON"), ("[]", "no result")])
def test_the_report_fails_clearly(tmp_path, capsys, text, message):
    if text is not None:
        (tmp_path / "1-suites.json").write_text(text)
    assert report.main(["--results", str(tmp_path), "--docs", str(tmp_path), "--partial"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "performance.md").exists()


def test_the_report_says_which_cell_a_goal_lacks(tmp_path, capsys):
    (tmp_path / "1-suites.json").write_text(json.dumps(document([row()])))
    assert report.main(["--results", str(tmp_path), "--docs", str(tmp_path), "--partial"]) == 2
    assert "no row has the cell '100,000,000'" in capsys.readouterr().err


def test_the_ladder_page_is_what_the_records_say(capsys):
    assert ladder_doc.main(["--check"]) == 0, capsys.readouterr().err


def record(rung, us, **changes):
    made = {"rung": rung, "system": "A", "n": 1000, "dtype": "float32", "value": 1.0, "reference": 1.0}
    made |= {"relative_error": 0.0, "correct": True, "expected_correct": True, "microseconds": us}
    return made | {"gb_per_s": 4000.0 / us, "percent_of_peak": 1.0, "counters": None, **changes}


def test_the_ladder_page_takes_its_times_from_the_newest_file(tmp_path):
    page = "x\n<!-- times a-1e8 v6_block_atomic v0_atomic -->\nstale\n<!-- end -->\ny\n"
    assert "Not measured yet." in ladder_doc.filled(page, tmp_path, ladder_doc.COUNTERS)
    for date, us in (("2026-01-01", 9.0), ("2026-01-02", 4.0)):
        records = [record("v0_atomic", 40.0), record("v6_block_atomic", us, correct=False)]
        text = json.dumps({"conditions": {"device": "D", "commit": "c"}, "records": records})
        (tmp_path / f"{date}-h200-ladder-a-1e8.json").write_text(text)
    made = ladder_doc.filled(page, tmp_path, ladder_doc.COUNTERS)
    assert "| `v6_block_atomic` | 4.00 | 1,000.0 | 1.0 | 91 | 10.0 | WRONG |" in made
    assert made.index("`v6_block_atomic`") < made.index("`v0_atomic`")
    assert "stale" not in made
    assert ladder_doc.filled(made, tmp_path, ladder_doc.COUNTERS) == made


def test_a_changed_ladder_page_is_noticed(tmp_path, capsys):
    page = tmp_path / "ladder.md"
    page.write_text(ladder_doc.PAGE.read_text().replace("| `v0_atomic` | 36,966 |", "| `v0_atomic` | 36,967 |"))
    assert ladder_doc.main(["--check", "--page", str(page)]) == 1
    assert "is not what the records say" in capsys.readouterr().err
    assert ladder_doc.main(["--page", str(page)]) == 0
    assert ladder_doc.main(["--check", "--page", str(page)]) == 0


def test_a_ladder_table_of_an_unknown_rung_is_refused(tmp_path):
    with pytest.raises(FileError, match="has no rung v9"):
        ladder_doc.filled("<!-- counters v9 -->\n<!-- end -->\n", tmp_path, ladder_doc.COUNTERS)


def ncu_table(**changes):
    metrics = sorted({part for parts in counters.METRICS.values() for part in parts} | {counters.INSTRUCTIONS})
    values = dict.fromkeys(metrics, "0")
    values[counters.METRICS["global_loads"][0]] = "1,000"
    values[counters.METRICS["global_loads"][1]] = "24"
    values |= changes
    names = ["ID", "Kernel Name", *metrics]
    lines = ["==PROF== Connected", ",".join(f'"{name}"' for name in names), ",".join('""' for _ in names)]
    for number in ("0", "1"):
        cells = [number, "reduce1(const float *, float *)", *(values[name] for name in metrics)]
        lines.append(",".join(f'"{cell}"' for cell in cells))
    return "\n".join(lines)


def test_the_profilers_table_is_added_up_over_launches_and_operations():
    found = counters.profiled(ncu_table(), {"conflicts": ["reduce1"]})
    assert found["conflicts"]["global_loads"] == 2048
    assert found["conflicts"]["bank_conflicts"] == 0


def test_a_profilers_table_that_lacks_something_is_refused():
    with pytest.raises(FileError, match="has no kernel reduce2"):
        counters.profiled(ncu_table(), {"x": ["reduce2"]})
    with pytest.raises(FileError, match="has no l1tex"):
        counters.profiled(ncu_table().replace("op_atom", "op_other"), {"x": ["reduce1"]})
    with pytest.raises(FileError, match="no figure for"):
        counters.profiled(ncu_table(**{counters.INSTRUCTIONS: "n/a"}), {"x": ["reduce1"]})
    with pytest.raises(FileError, match="no table"):
        counters.profiled("==ERROR==", {"x": ["reduce1"]})


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [(100, 100, "agrees"), (102, 100, "agrees"), (103, 100, "+3.0 %"), (0, 0, "agrees"), (5, 0, "+5, profiler 0")],
)
def test_counts_agree_within_two_percent(ours, theirs, said):
    assert counters.compared(ours, theirs) == said
