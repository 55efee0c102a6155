"""The benchmarks' arithmetic and reports, with made-up figures: medians, ratios, goals, files, tables. No times."""

import re

import pytest

from benchmarks import run
from benchmarks.measure import figures, records
from benchmarks.measure.figures import OURS, FileError
from benchmarks.measure.runs import load, load_cards, suites_in
from benchmarks.pages import goals, readme_doc, report, tables
from benchmarks.peers import PEERS


def row(cell="2^20", ours=(2.0, 1.0, 3.0), shape=(1 << 20,), size_bytes=4 << 20, **peers):
    entries = {OURS: figures.figure(ours)} if ours else {OURS: {"error": "ReduceError: wrong"}}
    for name, samples in peers.items():
        entries[name] = {"error": samples} if isinstance(samples, str) else figures.figure(samples)
    return figures.row_of(cell, entries, size_bytes=size_bytes, shape=list(shape), op="sum", axis=None, dtype="float32")


def document(rows, suite="flat", **changes):
    content = {"seconds": 1.0, "complete": True, "missing": {"Numba": "numba is not installed"}, "rows": rows}
    conditions = {"device": "NVIDIA H200", "measured": "2026-01-01", "commit": "abc", "packages": {"numpy": "2"}}
    return {"conditions": conditions, "quick": False, "suites": {suite: content}, **changes}


def written(file, document):
    """Write a file of suites as a session does, one of each of which is given whole."""
    records.begin(file, "suites", document["conditions"], quick=document["quick"])
    for suite, content in document["suites"].items():
        end = {key: value for key, value in content.items() if key not in ("rows", "broke_off")}
        broke_off = content.get("broke_off", {}).items()
        records.add(
            file,
            *({"suite": suite, **figures.stored(row)} for row in content["rows"]),
            *({"suite": suite, "cell": cell, "broke_off": error} for cell, error in broke_off),
            {"suite": suite, **end},
        )


def test_a_figure_is_the_median_with_its_spread():
    assert figures.figure([4.0]) == {"us": 4.0, "spread_percent": 0.0, "rounds": 1}
    disturbed = figures.figure([10.0, 10.1, 10.2, 10.3, 10.4, 10.5, 99.0])
    assert (disturbed["us"], disturbed["spread_percent"]) == (10.3, round(100 * (10.5 - 10.1) / 10.3, 2))
    assert figures.figure([3.0, 1.0, 2.0]) == {"us": 2.0, "spread_percent": 100.0, "rounds": 3}


def test_a_ratio_is_the_fastest_peers_time_by_ours():
    made = row(CUB=(5.0,), torch=(3.0, 4.0, 5.0), CuPy="failed")
    assert (made["best_peer"], made["ratio"]) == ("torch", 2.0)
    assert made["gb_per_s"] == round((4 << 20) / 2.0 / 1e3, 1)
    assert figures.median_us(made, "CuPy") is None


@pytest.mark.parametrize("ours", [1.0001, 2.0001, 917.55, 20_000.0001])
def test_a_peer_that_is_faster_by_the_last_digit_is_faster(ours):
    """Everywhere: where goals are judged, where cells are counted, and in the table."""
    made = row("a", (ours,), CUB=(ours - 0.0001,))
    assert not goal_of(NONE_BEHIND).outcome([made]).met
    assert "behind in 1 of 1" in run.summary_of([made])
    assert "| **1.000** |" in tables.line_of(made, [], [tables.own_ratio])


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
    ("record", "message"),
    [
        ({"suite": "round"}, "no suite 'round'"),
        ({"cell": "x", "entries": {}}, "no suite None"),
        ({"suite": "flat", "complete": True}, "neither a row nor an error nor the suite's end"),
        ({"suite": "flat", "entries": {}}, "no cell or no entries"),
        ({"suite": "flat", "cell": "x", "entries": []}, "no cell or no entries"),
        ({"suite": "flat", "cell": "x", "entries": {"a": {}}}, "x: a has neither time nor error"),
    ],
)
def test_a_malformed_record_is_refused(record, message):
    with pytest.raises(FileError, match=message):
        suites_in(records.Document("x.jsonl", {}, {}, [record]))


def test_rows_are_in_the_order_of_their_cells_however_they_were_measured():
    made = [{"suite": "flat", "place": place, **figures.stored(row(str(place)))} for place in (2, 0, 1)]
    rows = suites_in(records.Document("x.jsonl", {}, {}, made))["flat"]["rows"]
    assert rows == [row("0"), row("1"), row("2")]


def test_goals_are_judged_by_their_limits():
    fast = goals.at_least(4.59, 4.5, "TB/s")
    assert (fast.met, fast.margin) == (True, "+2.0 %")
    slow = goals.at_most(150, 120, "ms")
    assert (slow.met, slow.margin) == (False, "-25.0 %")


@pytest.mark.parametrize(
    ("outcome", "reached", "margin"),
    [
        (goals.at_least(4.5007, 4.5, "TB/s"), "4.501 TB/s", "+0.02 %"),
        (goals.at_least(4.50007, 4.5, "TB/s", 0.33), "4.5001 TB/s", "+0.002 %, within a spread of 0.3 %"),
        (goals.at_least(4.499999, 4.5, "TB/s"), "4.499999 TB/s", "-0.00002 %"),
        (goals.at_most(1.0, 1.0, "times"), "1 times", "+0.0 %"),
        (goals.at_least(4.59, 4.5, "TB/s", 1.9), "4.59 TB/s", "+2.0 %"),
        (goals.at_most(0.856, 0.85, "µs", 0.8), "0.856 µs", "-0.7 %, within a spread of 0.8 %"),
    ],
)
def test_a_narrow_verdict_has_the_digits_that_tell_it_and_the_spread_that_is_larger(outcome, reached, margin):
    assert (outcome.reached, outcome.margin) == (reached, margin)


def goal_of(text, suite="flat"):
    (found,) = (goal for goal in goals.GOALS if goal.suite == suite and goal.text.startswith(text))
    return found


NONE_BEHIND = "back to back: no peer faster"
GPU_TO_GPU = "CUB gpu_to_gpu"
"""The goals over many cells, and a row in which each is met."""
OVER_CELLS = [
    (NONE_BEHIND, row("fine", CUB=(4.0,))),
    ("reproducible", row("fine", **{GPU_TO_GPU: (4.0,)})),
    ("not slower than the fastest of those whose", row("fine", **{GPU_TO_GPU: (4.0,)})),
]


@pytest.mark.parametrize(("text", "fine"), OVER_CELLS)
def test_a_cell_in_which_we_failed_fails_the_goals_over_many_cells(text, fine):
    assert goal_of(text).outcome([fine]).met
    broken = row("broken", ours=None, CUB=(4.0,), **{GPU_TO_GPU: (4.0,)})
    outcome = goal_of(text).outcome([fine, broken])
    assert (outcome.met, outcome.reached.split("; ")[-1]) == (False, "failed: broken")
    outcome = goal_of(text).outcome([broken])
    assert (outcome.met, outcome.reached) == (False, "failed: broken")


def test_the_others_are_judged_beside_a_cell_in_which_we_failed():
    late, broken = row("late", (2.0,), CUB=(1.0,)), row("broken", ours=None, CUB=(4.0,))
    reached = goal_of(NONE_BEHIND).outcome([late, broken]).reached
    assert reached.startswith("0.5 times at worst (late); 1 of 1 cells behind")
    forms = [of_mode(row(cell, us, torch=(10.0,)), "host", kind="form") for cell, us in (("a", (30.0,)), ("b", None))]
    outcome = goal_of("every form", "host").outcome(forms)
    assert (outcome.met, outcome.reached) == (False, "3 times torch at worst (a); 1 of 1 above 1.2; failed: b")
    assert not goal_of("every form", "host").outcome([{**forms[0], "ratio": 1.0}, forms[1]]).met


@pytest.mark.parametrize(("text", "fine"), OVER_CELLS[:2])
def test_goals_say_how_many_cells_lack_whom(text, fine):
    lacking = [row(cell, CUB=(8.0,), **{GPU_TO_GPU: "ReduceError: wrong"}) for cell in ("b", "c")]
    fine = {**fine, "entries": {**fine["entries"], GPU_TO_GPU: {"us": 4.0}}}
    assert "; 2 cells without CUB gpu_to_gpu" in goal_of(text).outcome([fine, *lacking]).reached
    if text == NONE_BEHIND:
        assert "; 1 cell without any peer" in goal_of(text).outcome([fine, row("alone")]).reached
        nowhere = [row("b", CUB=(8.0,), Numba="no", CuPy="no")]
        assert goal_of(text).outcome(nowhere).reached.endswith("; without Numba, CuPy")


def test_a_goal_over_all_cells_is_judged_by_the_worst():
    outcome = goal_of(NONE_BEHIND).judge([row("a", (2.0,), CUB=(4.0,)), row("b", (2.0,), CUB=(1.9,))])
    assert not outcome.met
    assert outcome.reached.startswith("0.95 times at worst (b); 1 of 2 cells behind by more than the spread, 1 at all")
    assert outcome.margin == "-5.0 %"
    assert goal_of(NONE_BEHIND).judge([row("a", CUB=(4.0,))]).met


@pytest.mark.parametrize(
    ("ours", "theirs", "late"),
    [((2.0, 2.0), (1.9, 1.9), True), ((2.0, 2.0), (1.85, 1.95), False), ((2.05, 1.95), (1.91, 1.91), False),
     ((2.0, 2.0), (2.0, 2.0), False)],
)  # fmt: skip
def test_who_is_behind_by_less_than_either_spread_is_not_behind(ours, theirs, late):
    made = row("a", ours, CUB=theirs)
    assert (goals.behind(made) > 0) is late
    assert goal_of(NONE_BEHIND).judge([made]).met is not late


def of_mode(made, mode, **facts):
    return {**made, "mode": mode, **facts}


def test_a_goal_about_a_situation_looks_at_its_rows_alone():
    rows = [of_mode(row("a", (2.0,), CUB=(us,)), mode) for mode, us in (("rotated", 4.0), ("after", 1.0))]
    assert goal_of(NONE_BEHIND).judge(rows).met
    assert not goal_of("after its producer").judge(rows).met
    with pytest.raises(FileError, match="no row alone"):
        goal_of("alone").judge(rows)


def test_random_cells_are_as_many_as_the_goal_asks_for_and_of_a_seed_that_is_new():
    goal = goal_of("after its producer", "shapes")
    rows = [of_mode(row(str(i), CUB=(4.0,)), "after", kind="random") for i in range(goals.RANDOM_CELLS)]
    model = of_mode(row("model", (2.0,), CUB=(1.0,)), "after", kind="model")  # which has a goal of its own
    whole, few = goal.outcome([*rows, model]), goal.outcome(rows[1:])
    assert goal.verdict(whole, partial=False) == "met"
    assert goal.verdict(whole, partial=False, used_seed=True) == "met, seed used before"
    assert goal.verdict(few, partial=False) == "met so far"
    assert not goal_of("of models, after its producer", "shapes").outcome([*rows, model]).met


def test_forms_and_new_shapes_have_goals():
    forms = [of_mode(row(cell, (us,), torch=(10.0,)), "host", kind="form") for cell, us in (("a", 11.0), ("b", 30.0))]
    outcome = goal_of("every form", "host").outcome(forms)
    assert (outcome.met, outcome.reached) == (False, "3 times torch at worst (b); 1 of 2 above 1.2")
    assert goal_of("every form", "host").outcome(forms[:1]).met
    new = of_mode(row("new", (20.0,), torch=(10.0,)), "process", kind="new shapes")
    assert goal_of("a new shape", "host").outcome([*forms, new]).met
    new["entries"][OURS] |= {"compilations": 3, "worst_us": 525_000.0}
    outcome = goal_of("no new shape", "host").outcome([*forms, new])
    assert (outcome.met, outcome.reached) == (
        False, "3 compilations in 1 kinds of call; the longest call 525 ms (new)",
    )  # fmt: skip


def test_unaligned_arrays_and_narrow_types_are_compared_with_the_others():
    plain = row("2^20", (2.0,))
    slow = {**row("2^20, from element 1 on", (2.2,)), "shift": 1}
    outcome = goal_of("an array that is not aligned").outcome([plain, slow])
    assert (outcome.met, outcome.reached.split()[0]) == (False, "90.91")
    types = ("float32", "float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
    rows = [row(f"{name} 2^30", (2.0 if name != "int8" else 2.2,)) for name in types]
    outcome = goal_of("16- and 8-bit types", "types").outcome(rows)
    assert (outcome.met, outcome.reached) == (False, "90.91 % at worst (int8)")


ROWS = [row("100,000,000", (90.0,), (10**8,), 4 * 10**8, CUB=(89.0,)), row("2^30", (900.0,), (1 << 30,), 4 << 30)]


def report_of(folder, *arguments):
    status = report.main(["--results", str(folder), "--docs", str(folder), *arguments])
    return status, (folder / "performance.md").read_text(encoding="utf-8") if not status else ""


def test_the_report_quotes_the_newest_full_run(tmp_path, capsys):
    old = [row("2^30", (901.0,), (1 << 30,), 4 << 30, CUB=(1.0,))]
    written(tmp_path / "1-suites.jsonl", document(ROWS))
    older = document(old)
    older["conditions"]["measured"] = "2025-01-01"
    written(tmp_path / "2-suites.jsonl", older)
    written(tmp_path / "3-suites-quick.jsonl", document(old, quick=True))
    status, page = report_of(tmp_path)
    assert status == 0
    where = "| NVIDIA H200 | not recorded | not recorded | not recorded, numpy 2 |"
    assert f"| `1-suites.jsonl` | flat |  | 2026-01-01 | abc {where}" in page
    assert "2-suites" not in page
    assert "| 100,000,000 | 90.00 | 4444 | CUB | **0.989** | 89.00 |" in page
    goal = "back to back: no peer faster by more than the spread"
    assert f"| flat | **{goal}** | **not met** | 0.9889 times at worst (100,000,000); 1 of 1 cells behind" in page
    assert "; 1 cell without any peer | -1.1 % |" in page
    assert "\n\nWhere no other file is named, H200 of `1-suites.jsonl`.\n" in page
    assert f"| types | {goal} | not measured | no run of this suite |  |" in page
    assert page.index("## Goals") < page.index("## Runs") < page.index("## Whole arrays")
    assert "Missing: Numba (numba is not installed)." in page
    assert "Not measured yet." in page
    assert report.main(["--results", str(tmp_path), "--docs", str(tmp_path), "--complete"]) == 2
    assert "no full run of the suite types" in capsys.readouterr().err


def test_who_failed_in_every_cell_is_no_competitor_and_is_said_to_have_failed(tmp_path):
    both = [row("a", CUB=(4.0,), Numba="AttributeError: row_stack"), row("b", Numba="no", **{"cuda.compute": (3.0,)})]
    written(tmp_path / "1-suites.jsonl", document(both))
    page = report_of(tmp_path)[1]
    assert "Competitors, and in how many of 2 rows each was timed: CUB (1), cuda.compute (1)." in page
    assert "Failed wherever they were tried: Numba (2: AttributeError: row_stack)." in page
    assert "| | one tree, µs | GB/s | best peer | ratio | CUB | cuda.compute |\n" in page
    assert "- a, Numba" not in page
    written(tmp_path / "1-suites.jsonl", document([row("a", Numba="no")]))
    page = report_of(tmp_path)[1]
    assert "Competitor" not in page
    assert "commit abc. Failed wherever they were tried: Numba (1: no)." in page


def test_who_was_timed_without_a_graph_is_named(tmp_path):
    """For the page says of all device times that they are those of replays."""
    made = row("a", CUB=(4.0,), Numba=(90.0,))
    made["entries"]["Numba"]["timed"] = "between events, without a graph"
    written(tmp_path / "1-suites.jsonl", document([made, row("b", CUB=(4.0,))]))
    page = report_of(tmp_path)[1]
    assert "\n- a, Numba: between events, without a graph\n" in page
    assert "a, CUB:" not in page


def test_the_readme_lists_whoever_was_timed(tmp_path):
    made = [
        row(cell, CUB=(4.0,), Numba="no", **{"CUB gpu_to_gpu": (9.0,), "torch": (5.0,)}) for cell in readme_doc._LENGTHS
    ]
    whole = document(made)
    whole["conditions"]["nvidia_smi"] = "1.2, 3"
    written(tmp_path / "1-suites.jsonl", whole)
    filled = readme_doc.filled("<!-- measured sums -->\n<!-- end -->", tmp_path)
    assert "Device time of a float32 sum by the one tree, next to the fastest of CUB and PyTorch:\n" in filled


def test_a_figure_of_one_run_is_never_put_over_that_of_another(tmp_path):
    ours_only = [row("100,000,000", (80.0,), (10**8,), 4 * 10**8)]
    written(tmp_path / "1-suites.jsonl", document(ours_only, quick=True))
    other = document([row("100,000,000", (90.0,), (10**8,), 4 * 10**8, CUB=(99.0,))], quick=True)
    other["conditions"]["measured"] = "2025-01-01"
    written(tmp_path / "2-suites.jsonl", other)
    page = report_of(tmp_path)[1]
    goal = "back to back: no peer faster by more than the spread"
    assert f"| flat | {goal} | met so far | 1.1 times at worst (100,000,000)" in page
    assert "H200 of `2-suites.jsonl`." in page


def test_rows_of_another_mode_are_on_no_page(tmp_path):
    rotated, hot, plain = (row("a", CUB=(4.0,)) | {"mode": mode} for mode in ("rotated", "hot", "host"))
    written(tmp_path / "1-suites.jsonl", document([rotated]))
    newer = document([hot])
    newer["conditions"]["measured"] = "2026-02-01"
    written(tmp_path / "2-suites.jsonl", newer)
    assert [suite.file for suite in load(tmp_path)["flat"]] == ["1-suites.jsonl"]
    both = document([], suites={"small": document([hot, plain], "small")["suites"]["small"],
                                "flat": document([rotated, hot])["suites"]["flat"]})  # fmt: skip
    written(tmp_path / "1-suites.jsonl", both)
    suites = load(tmp_path)
    assert [(suite.partial, len(suite.rows)) for suite in suites["small"]] == [(False, 2)]
    assert [(suite.partial, suite.rows) for suite in suites["flat"]] == [(True, [rotated])]


def test_a_partial_run_refutes_and_does_not_confirm(tmp_path):
    fine = document([row("a", CUB=(4.0,))])
    fine["suites"]["flat"]["complete"] = False
    written(tmp_path / "2-suites.jsonl", fine)
    goal = "back to back: no peer faster by more than the spread"
    assert f"| flat | {goal} | met so far |" in report_of(tmp_path)[1]
    slow = document([row("b", (2.0,), CUB=(1.0,))], quick=True)
    slow["conditions"]["measured"] = "2025-01-01"
    written(tmp_path / "1-suites.jsonl", slow)
    page = report_of(tmp_path)[1]
    assert f"| flat | **{goal}** | **not met** | 0.5 times at worst (b)" in page
    assert page.count("a part of the suite's cells") == 2
    full = document([row("c", CUB=(3.0,))])
    full["conditions"]["measured"] = "2024-01-01"
    written(tmp_path / "3-suites.jsonl", full)
    assert f"| flat | {goal} | met | 1.5 times at worst (c)" in report_of(tmp_path)[1]


def test_a_goal_whose_cell_failed_is_not_met(tmp_path):
    written(tmp_path / "1-suites.jsonl", document([row("100,000,000", None, CUB=(4.0,))]))
    page = report_of(tmp_path)[1]
    assert "**back to back: no peer faster by more than the spread** | **not met** | failed: 100,000,000 |" in page
    assert "| alone: no peer faster by more than the spread | not measured | no row alone |" in page


@pytest.mark.slow
def test_the_pictures_are_the_same_for_the_same_rows(tmp_path):
    rows = [*ROWS, row("2^20", CUB=(4.0,))]
    written(tmp_path / "1-suites.jsonl", document(rows))
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "performance-axes.svg").write_text("of another time", encoding="utf-8")
    page = report_of(tmp_path)[1]
    assert "(plots/performance-flat.svg)" in page
    (file,) = (tmp_path / "plots").iterdir()
    svg = file.read_text(encoding="utf-8")
    assert svg.endswith(f"<!-- rows {figures.digest(rows)} -->\n")
    report_of(tmp_path)
    assert file.read_text(encoding="utf-8") == svg


def test_every_contender_of_whole_arrays_is_in_their_picture(tmp_path):
    """CUB in its three ways, and the last of them too, Numba, which two cells have."""
    names = ["CUB", "CUB not_guaranteed", "CUB gpu_to_gpu", *(name for name in PEERS if name != "CUB"), "another"]
    rows = [row(str(n), shape=(n,), size_bytes=4 * n, **dict.fromkeys(names, (4.0,))) for n in (256, 512, 1024)]
    written(tmp_path / "1-suites.jsonl", document(rows))
    report_of(tmp_path)
    svg = (tmp_path / "plots" / "performance-flat.svg").read_text(encoding="utf-8")
    assert [name for name in [OURS, *names] if f">{name}</text>" not in svg] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "holds no"), ("{", "line 1 is no JSON"), ("[]", "no JSON object"), ("{}", "does not begin as")],
)
def test_the_report_fails_clearly(tmp_path, capsys, text, message):
    if text is not None:
        (tmp_path / "1-suites.jsonl").write_text(text, encoding="utf-8")
    assert report.main(["--results", str(tmp_path), "--docs", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "performance.md").exists()


def test_the_committed_page_is_what_the_results_say(capsys):
    assert report.main(["--check"]) == 0, capsys.readouterr().err
    wanted = report.pictures(load_cards(report.RESULTS))
    there = {
        file.name: file.read_text(encoding="utf-8").splitlines()[-1]
        for file in (report.DOCS / "plots").glob("performance-*")
    }
    shown = {name: report.drawn_rows(*each) for name, each in wanted.items()}
    assert there == {name: f"<!-- rows {figures.digest(rows)} -->" for name, rows in shown.items()}


def test_a_cell_that_broke_off_is_named(tmp_path):
    whole = document([row("a", CUB=(4.0,))])
    whole["suites"]["flat"] |= {"complete": False, "left_out": ["b", "c"], "broke_off": {"b": "CudaError: no memory"}}
    written(tmp_path / "1-suites.jsonl", whole)
    assert "Stopped by an error, and so without a row:\n\n- b: CudaError: no memory\n" in report_of(tmp_path)[1]


def test_a_page_that_is_not_what_the_results_say_is_noticed(tmp_path, capsys):
    written(tmp_path / "1-suites.jsonl", document(ROWS))
    report_of(tmp_path)
    assert report_of(tmp_path, "--check")[0] == 0
    written(tmp_path / "1-suites.jsonl", document(ROWS[:1]))
    assert report_of(tmp_path, "--check")[0] == 1
    assert "differs from what the results say" in capsys.readouterr().err


def test_the_readme_quotes_the_newest_complete_run(tmp_path, capsys):
    def document(date, us, cells):
        rows = [figures.row_of(cell, {OURS: figures.figure([us]), "CUB": figures.figure([2 * us])}) for cell in cells]
        at = {"device": "D", "nvidia_smi": "1.2, 3", "packages": {}, "measured": date, "commit": "c"}
        content = {"rows": rows, "missing": {}, "complete": True}
        return {"conditions": at, "quick": False, "suites": {"flat": content}}

    text = "a\n<!-- measured sums -->\nold\n<!-- end -->\nz\n"
    for date, us, cells in (("2026-01-02", 3.0, readme_doc._LENGTHS), ("2026-01-01", 5.0, readme_doc._LENGTHS)):
        written(tmp_path / f"{date}-suites.jsonl", document(date, us, cells))
    wanted = readme_doc.filled(text, tmp_path)
    assert "| 2^8 | 3.00 | 6.00 | 6.00 | CUB |" in wanted
    assert "commit c" in wanted
    assert "old" not in wanted
    assert readme_doc.filled(wanted, tmp_path) == wanted
    with pytest.raises(figures.FileError, match="no complete run of the suite 'operators'"):
        readme_doc.filled("<!-- measured operators -->\n<!-- end -->", tmp_path)
    with pytest.raises(figures.FileError, match="no table 'x'"):
        readme_doc.filled("<!-- measured x -->\n<!-- end -->", tmp_path)
    written(tmp_path / "2026-01-03-suites.jsonl", document("2026-01-03", 3.0, ["2^8"]))
    with pytest.raises(figures.FileError, match="no row has the cell"):
        readme_doc.filled(text, tmp_path)


def headline(folder, logsumexp, call):
    """Return the headline over rows with these competitors, of which the first cell's fastest is CUB's variant."""
    suites = {
        "flat": [row("100,000,000", (88.9,), (10**8,), 4 * 10**8, CUB=(92.5,), **{"CUB not_guaranteed": (91.6,)})],
        "stats": [row("logsumexp 2^14 x 2^14, axis 1", (233.0,), (1 << 14, 1 << 14), 1 << 30, **logsumexp)],
        "host": [row("one-shot", (8.9,), **call)],
    }
    content = {suite: {"seconds": 1.0, "complete": True, "missing": {}, "rows": rows} for suite, rows in suites.items()}
    written(folder / "1-suites.jsonl", document([], suites=content))
    filled = readme_doc.filled("<!-- measured headline -->\n<!-- end -->", folder)
    return " ".join(filled.split("\n")[2:-2])


def test_the_headline_names_the_fastest_of_the_others_in_each_row(tmp_path):
    beside = {"torch": (1901.0,), "torch.compile": (237.2,)}
    assert headline(tmp_path, beside, {"torch": (10.9,), "CuPy": (15.3,)}) == (
        "On one NVIDIA H200, each compared with the fastest competitor in the same run: the sum of 1e8 float32 takes "
        "88.9 µs (4.50 TB/s), against 91.6 for CUB with `not_guaranteed` determinism; `logsumexp` along the rows of a "
        "16384 x 16384 array takes 233.0 µs, against 237.2 for `torch.compile` and 1901 for eager PyTorch; a call to "
        "`lr.sum` costs 8.9 µs of host time, against 10.9 for `torch.sum`."
    )
    other = headline(tmp_path, {"torch": (999.0,)}, {"CuPy": (5.0,)})
    assert "233.0 µs, against 999.0 for eager PyTorch; a call to `lr.sum` costs 8.9 µs of host time" in other
    assert "against 5.0 for `cupy.sum`." in other
    with pytest.raises(FileError, match="has no figure of torch"):
        headline(tmp_path, {"torch.compile": (237.2,)}, {"CuPy": (5.0,)})


def test_the_committed_readme_has_its_headline_from_the_results():
    assert "\n<!-- measured headline -->\n" in readme_doc.PAGE.read_text(encoding="utf-8")


def test_the_committed_readme_is_what_the_results_say(capsys):
    assert readme_doc.main(["--check"]) == 0, capsys.readouterr().err


def test_the_notes_tell_of_every_goal_that_is_not_met():
    """With the figure that the page has: who measures anew says there what has changed."""
    suites = load(report.RESULTS)
    told = (report.RESULTS.parent / "NOTES.md").read_text(encoding="utf-8").partition("\n## Open\n")[2]
    for goal in goals.GOALS:
        verdict, reached, _, file = report.judge(goal, suites.get(goal.suite, []))
        if verdict == "**not met**":
            assert file.strip("`") in told
            figure, shown = reached.split()[0], f"{goal.suite}, {goal.text}: {reached}"
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d])", told), shown


def test_the_notes_tell_of_every_cell_of_the_axes_that_is_more_than_a_little_behind():
    """And what they say of all others is so."""
    told = (report.RESULTS.parent / "NOTES.md").read_text(encoding="utf-8").partition("\n## Open\n")[2]
    (suite,) = load(report.RESULTS)["axes"]
    (section,) = re.findall(rf"\nOf `{re.escape(suite.file)}`, axes:\n(.*?)\nOf `", told, re.DOTALL)
    least = float(re.search(r"all others (\d\.\d+) or more", section)[1])
    behind = {row["cell"]: f"{row['ratio']:.3f}" for row in suite.rows if row["ratio"] < least}
    assert {cell: ratio for cell, ratio in behind.items() if ratio not in section} == {}
