"""The page of the suites, of made-up runs: situations, random cells, forms of a call, two kinds of GPU."""

import json

import pytest

from benchmarks.measure import figures, records, runs
from benchmarks.measure.figures import AFTER, ALONE, BACK_TO_BACK, OURS
from benchmarks.pages import readme_doc, report

MODES = (BACK_TO_BACK, AFTER, ALONE)


def row(cell, mode, ours=2.0, peers=None, **facts):
    peers = {"torch": 4.0} if peers is None else peers
    entries = {name: figures.figure([us]) for name, us in {OURS: ours, **peers}.items()}
    return figures.row_of(cell, entries, size_bytes=4 << 20, mode=mode, shape=[1 << 20], **facts)


def write(folder, name, suites, *, device="NVIDIA H200", measured="2026-12-01", seed=7):
    conditions = {"device": device, "measured": measured, "commit": "abc", "packages": {"numpy": "2"},
                  "nvidia_smi": "1.2, 3"}  # fmt: skip
    file = folder / name
    records.begin(file, runs.KIND, conditions, quick=False, seed=seed)
    for suite, rows in suites.items():
        records.add(file, *({"suite": suite, "place": place, **figures.stored(row)} for place, row in enumerate(rows)))
        records.add(file, {"suite": suite, "complete": True, "left_out": [], "missing": {}, "seconds": 1.0})


def page_of(folder):
    assert report.main(["--results", str(folder), "--docs", str(folder)]) == 0
    return (folder / "performance.md").read_text()


def test_situations_have_tables_of_their_own_the_throughput_last(tmp_path):
    rows = [row("2^20", mode, us) for mode, us in zip(MODES, (2.0, 5.0, 8.0), strict=True)]
    write(tmp_path, "1-suites.jsonl", {"flat": rows})
    page = page_of(tmp_path)
    section = page[page.index("## Whole arrays") : page.index("## Types")]
    places = [
        section.index(text) for text in ("**After its producer**.", "**Alone**.", "**Back to back** (a throughput)")
    ]
    assert places == sorted(places)
    assert [line for line in section.splitlines() if line.startswith("| 2^20")] == [
        "| 2^20 | 5.00 | 839 | torch | **0.800** | 4.00 |",
        "| 2^20 | 8.00 | 524 | torch | **0.500** | 4.00 |",
        "| 2^20 | 2.00 | 2097 | torch | 2.00 | 4.00 |",
    ]
    assert (
        "| flat | **alone: no peer faster by more than the spread** | **not met** | 0.5 times at worst (2^20)" in page
    )


def random_rows(many, slowest=0.5):
    """Return random cells in all situations, of which the first is behind by most."""
    return [
        row(f"cell {i}", mode, 4.0 / (slowest + i / many), kind="random")
        for i in range(many)
        for mode in MODES
    ]  # fmt: skip


def test_random_cells_are_summed_up_and_the_worst_are_named(tmp_path):
    model = [row("batch norm: mean_var", mode, kind="model") for mode in MODES]
    write(tmp_path, "1-suites.jsonl", {"shapes": [*random_rows(100), *model]})
    page = page_of(tmp_path)
    section = page[page.index("## Random shapes") : page.index("## Small arrays")]
    assert "100 random cells of seed 7" in section
    assert "| after its producer | 0.51 | 0.60 | 0.75 | 1.00 | 1.24 | 1.39 |" in section
    assert "| 50 of 100 | 50 of 100 |" in section
    assert section.count("| cell 0 |") == len(MODES)
    assert "| cell 19 |" in section
    assert "| cell 20 |" not in section
    assert section.count("| batch norm: mean_var |") == len(MODES)
    assert "(plots/performance-shapes.svg)" in section
    svg = (tmp_path / "plots" / "performance-shapes.svg").read_text()
    assert all(f">{figures.SITUATIONS[mode]}</text>" in svg for mode in MODES)


@pytest.mark.slow
def test_a_seed_that_an_earlier_run_had_confirms_nothing(tmp_path):
    goal = "after its producer: no peer faster by more than the spread in 300 cells of a new seed"
    write(tmp_path, "1-suites.jsonl", {"shapes": random_rows(300, 1.5)})
    assert f"| shapes | {goal} | met |" in page_of(tmp_path)
    write(tmp_path, "2-suites.jsonl", {"shapes": random_rows(300, 1.5)}, measured="2026-12-02")
    assert f"| shapes | {goal} | met, seed used before |" in page_of(tmp_path)
    write(tmp_path, "3-suites.jsonl", {"shapes": random_rows(300, 1.5)}, measured="2026-12-03", seed=8)
    assert f"| shapes | {goal} | met |" in page_of(tmp_path)


def test_two_kinds_of_gpu_stand_side_by_side_and_are_not_compared(tmp_path):
    write(tmp_path, "1-suites.jsonl", {"flat": [row("2^20", BACK_TO_BACK, 2.0)]})
    other = {"flat": [row("2^20", BACK_TO_BACK, 5.0)], "types": [row("int8 2^20", BACK_TO_BACK, 5.0)]}
    write(tmp_path, "2-suites.jsonl", other, device="NVIDIA H100 80GB HBM3", measured="2026-11-30")
    page = page_of(tmp_path)
    assert "| suite | goal | H200 | reached | margin | H100 | reached | margin |" in page
    assert "Where no other file is named, H200 of `1-suites.jsonl`; H100 of `2-suites.jsonl`." in page
    goal = "back to back: no peer faster by more than the spread"
    (line,) = [line for line in page.splitlines() if line.startswith(f"| flat | **{goal}**")]
    assert "| met | 2 times at worst" in line
    assert "| **not met** | 0.8 times at worst" in line
    section = page[page.index("## Whole arrays") : page.index("## Types")]
    assert "`1-suites.jsonl`, one NVIDIA H200," in section
    assert "`2-suites.jsonl`, one NVIDIA H100 80GB HBM3," in section
    assert list(runs.load_cards(tmp_path)) == ["H200", "H100"]
    assert list(runs.load(tmp_path)) == ["flat"]  # of the card that was measured last


@pytest.mark.parametrize(("cards", "told"), [("aa", "2 parts"), ("aba", "3 parts on 2 cards")])
def test_a_run_in_parts_says_on_how_many_cards(tmp_path, cards, told):
    write(tmp_path, "1-suites.jsonl", {"flat": [row("2^20", BACK_TO_BACK)]})
    parts = {"card": cards[0], "parts": [{"card": card} for card in cards[1:]]}
    records.add(tmp_path / "1-suites.jsonl", {"conditions": parts})
    assert f"| NVIDIA H200, {told} |" in page_of(tmp_path)


def test_forms_have_their_driver_calls_and_new_shapes_their_longest_call(tmp_path):
    form = row("sum(x, axis=1)", "host", 200.0, {"torch": 8.0}, kind="form", driver_calls=37)
    new = row("new shapes: sum(x[:n])", "process", 829.0, {"torch": 10.8}, kind="new shapes")
    new["entries"][OURS] |= {"p99_us": 1500.0, "worst_us": 525_000.0, "compilations": 3}
    new["entries"]["torch"] |= {"p99_us": 20.0, "worst_us": 90.0}
    write(tmp_path, "1-suites.jsonl", {"host": [form, new]})
    page = page_of(tmp_path)
    assert "| | one tree, µs | GB/s | best peer | ratio | driver calls | torch |" in page
    assert "| sum(x, axis=1) | 200.00 | 21 | torch | **0.040** | 37 | 8.00 |" in page
    assert "| new shapes: sum(x[:n]) | 829.00, 1,500, 525 ms | 10.80, 20.00, 90.00 | 3 |" in page


def test_competitors_whose_bits_are_reproducible_have_a_ratio_of_their_own(tmp_path):
    peers = {"torch": 1.0, "CUB gpu_to_gpu": 6.0, "torch deterministic": 3.0}
    write(tmp_path, "1-suites.jsonl", {"flat": [row("2^20", BACK_TO_BACK, 2.0, peers)]})
    assert "| 2^20 | 2.00 | 2097 | torch | **0.500** | 1.50 | 1.00 | 6.00 | 3.00 |" in page_of(tmp_path)


def test_what_failed_in_many_cells_is_told_once(tmp_path):
    rows = [row(f"cell {i}", mode) for i in range(5) for mode in MODES]
    for each in rows:
        each["entries"]["CuPy"] = {"error": "ReduceError: wrong"}
    fine = row("fine", BACK_TO_BACK, peers={"CuPy": 4.0})
    write(tmp_path, "1-suites.jsonl", {"axes": [*rows, fine]})
    assert "\n- cell 0; cell 1; cell 2 and 2 more, CuPy: ReduceError: wrong\n" in page_of(tmp_path)
    write(tmp_path, "1-suites.jsonl", {"axes": rows})
    page = page_of(tmp_path)
    assert "Failed wherever they were tried: CuPy (15: ReduceError: wrong)." in page
    assert "and so not timed" not in page


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("OutOfMemoryError: no memory. Tried to allocate 2.00 MiB. GPU 0 has", "OutOfMemoryError: no memory"),
        ("DSLError: \n\x1b[91m\x1b[1merror:\x1b[0m No valid IR.\n  \x1b[91merror:", "DSLError: error: No valid IR"),
        ("AcceleratorError: during capture\nSearch for `cudaError' in", "AcceleratorError: during capture"),
        ("ReduceError: result 0 is 1.5, not 2.0: not timed", "ReduceError: result 0 is 1.5, not 2.0: not timed"),
    ],
)  # fmt: skip
def test_of_an_error_the_first_sentence_is_told(tmp_path, error, told):
    rows = [row(cell, BACK_TO_BACK, peers={"torch": 4.0, "quack": 4.0}) for cell in ("a", "b")]
    rows[0]["entries"]["quack"] = {"error": error}
    write(tmp_path, "1-suites.jsonl", {"axes": rows})
    assert f"\n- a, quack: {told}\n" in page_of(tmp_path)


def test_a_long_table_is_opened_by_a_line_and_a_column_that_nothing_fills_is_left_out(tmp_path):
    plain = [figures.row_of(f"call {i}", {OURS: figures.figure([12_345.6])}, mode="host") for i in range(20)]
    write(tmp_path, "1-suites.jsonl", {"host": plain})
    page = page_of(tmp_path)
    assert "\n| | one tree, µs |\n| --- | --- |\n| call 0 | 12.3 ms |\n" in page
    assert "<details>" not in page
    write(tmp_path, "1-suites.jsonl", {"host": [*plain, row("the last", "host")]})
    page = page_of(tmp_path)
    opened = "\n<details>\n<summary>21 cells</summary>\n\n| | one tree, µs | GB/s | best peer | ratio | torch |\n"
    assert opened in page
    assert page.index("| the last | 2.00 |") < page.index("\n\n</details>\n")


def test_the_kernels_that_were_counted_last_have_a_table(tmp_path):
    write(tmp_path, "1-suites.jsonl", {"flat": [row("2^20", BACK_TO_BACK)]})
    assert "\n## Kernels\n\nNot counted yet.\n" in page_of(tmp_path)
    for name, many in (("2026-12-01-h200-zoo.json", 400), ("2026-12-02-h200-zoo.json", 17)):
        rows = [{"operator": "sum", "dtype": dtype, "kernels": many, "seed": 3, "shapes": 3000} for dtype in "ab"]
        (tmp_path / name).write_text(json.dumps(rows))
    page = page_of(tmp_path)
    assert "3,000 random shapes of seed 3" in page
    assert "`2026-12-02-h200-zoo.json`" in page
    assert "\n| | a | b |\n| --- | --- | --- |\n| sum | 17 | 17 |\n" in page
    for broken in ("[", "[]", '[{"operator": "sum"}]'):
        (tmp_path / "2026-12-03-h200-zoo.json").write_text(broken)
        assert report.main(["--results", str(tmp_path), "--docs", str(tmp_path)]) == 2


def test_the_readme_takes_a_suite_from_another_card_if_the_last_has_none(tmp_path):
    costs = [row("sum float32 2^28", BACK_TO_BACK, 90.0, {})]
    write(tmp_path, "1-suites.jsonl", {"operators": costs}, device="NVIDIA H200", measured="2026-11-30")
    write(tmp_path, "2-suites.jsonl", {"flat": [row("2^20", BACK_TO_BACK)]}, device="NVIDIA H100")
    filled = readme_doc.filled("<!-- measured operators -->\n<!-- end -->", tmp_path)
    assert "| `sum` | 90.0 µs |" in filled
    assert "Measured on one NVIDIA H200," in filled


@pytest.mark.parametrize("mode", [AFTER, BACK_TO_BACK])
def test_the_readme_quotes_what_follows_its_producer_if_that_was_measured(tmp_path, mode):
    modes = MODES if mode == AFTER else (BACK_TO_BACK,)
    us = {BACK_TO_BACK: 88.9, AFTER: 77.7, ALONE: 99.9}
    flat = [row("100,000,000", each, us[each], {"CUB": 92.5}) for each in modes]
    flat += [row(cell, each, us[each], {"CUB": 92.5}) for cell in readme_doc._LENGTHS if cell != "100,000,000"
             for each in modes]  # fmt: skip
    stats = [row("logsumexp 2^14 x 2^14, axis 1", each, us[each], {"torch": 237.2}) for each in modes]
    host = [row("one-shot", "host", 8.9, {"torch": 10.9}), row("sum(x, axis=1)", "host", 205.6, {"torch": 8.0})]
    write(tmp_path, "1-suites.jsonl", {"flat": flat, "stats": stats, "host": host})
    text = "<!-- measured headline -->\n<!-- end --><!-- measured sums -->\n<!-- end -->"
    filled = " ".join(readme_doc.filled(text, tmp_path).split())
    assert f"the sum of 1e8 float32 takes {us[mode]} µs" in filled
    assert ("right after the kernel that wrote the input, each" in filled) is (mode == AFTER)
    assert ("right after the kernel that wrote its input, next" in filled) is (mode == AFTER)
    assert "8.9 µs of host time, against 10.9 for `torch.sum`, and one along an axis 205.6, against 8.0 for" in filled
    assert f"| 2^8 | {us[mode]:.2f} | 92.50 | 92.50 | CUB |" in filled


def section_of_a_source(page):
    return page.partition("## A source's table")[2].partition("\n## ")[0]


def test_a_sources_table_takes_each_cell_from_the_newest_run_that_has_it(tmp_path):
    write(tmp_path, "1-suites.jsonl", {"flat": [row("2^8", BACK_TO_BACK)]})
    assert section_of_a_source(page_of(tmp_path)) == ""
    rows = [row("2^16", mode, us) for mode, us in ((BACK_TO_BACK, 1.0), (AFTER, 2.0))]
    write(tmp_path, "2-suites.jsonl", {"flat": rows}, measured="2026-12-02")
    write(tmp_path, "3-suites.jsonl", {"stats": [row("max 2^20", BACK_TO_BACK, 8.0)]}, device="NVIDIA H100 80GB HBM3")
    write(tmp_path, "4-suites.jsonl", {"flat": [row("2^16", AFTER, peers={"CUB": 1.0})]}, measured="2026-12-04")
    some = tmp_path / "5-suites.jsonl"
    partial = {"stats": [row("max 2^20", AFTER, 9.0)], "flat": [row("2^16", AFTER, 7.0)]}
    write(tmp_path, some.name, partial, measured="2026-12-05")
    some.write_text(some.read_text().replace('"complete":true', '"complete":false'))
    section = section_of_a_source(page_of(tmp_path))
    assert "| what | the source, × PyTorch | H200: one tree, µs | PyTorch, µs | × | H100: one tree, µs |" in section
    assert "| sum, 256 x 256 | 2.12 | 2.00 | 4.00 | 2.00 | – | – | – |" in section
    assert "| max, 1024 x 1024 | 0.16 | 9.00 | 4.00 | 0.44 | 8.00 | 4.00 | 0.50 |" in section
    assert "`2-suites.jsonl` (after the kernel that wrote the input)" in section
    assert "`3-suites.jsonl` (back to back)" in section
