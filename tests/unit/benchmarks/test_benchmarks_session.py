"""A measuring session with made-up cells and a clock that only they move: order, budget, files, failures."""

import contextlib
import itertools
from types import SimpleNamespace
from typing import get_args

import pytest

from benchmarks import run
from benchmarks.measure import figures, records, runs
from benchmarks.measure.figures import OURS, row_of
from benchmarks.measure.harness import Mode
from benchmarks.measure.session import MOST_BROKEN, Session, ordered
from benchmarks.suites import SUITES, Cell


class World:
    """The clock, the setting, and what was measured in which order."""

    def __init__(self, file):
        self.now, self.file = 0.0, file
        self.measured, self.prepared, self.shown, self.files = [], [], [], []
        self.missing = {"Numba": "numba is not installed"}

    def prepare(self, cells):
        self.prepared = [cell.name for cell in cells]

    def versions(self):
        return {"cub": "3.0.1"}

    def cell(self, name, *, goal=False, seconds=10.0, takes=None, fails=None, us=1.0):
        def measure(setting):
            assert setting is self
            self.now += seconds if takes is None else takes
            self.measured.append(name)
            if self.file.exists():
                self.files.append(self.suites)
            if fails:
                raise RuntimeError(fails)
            entry = {"error": "ReduceError: wrong"} if us is None else figures.figure([us])
            return [row_of(name, {OURS: entry}, shape=[])]

        return Cell(name, measure, seconds, goal)

    def run(self, cells, budget=None, done=None):
        if done is None:
            records.begin(self.file, runs.KIND, {"device": "D"}, quick=False)
        made = Session(cells, self.file, self, budget_seconds=budget, show=self.shown.append,
                       done=done or {}, clock=lambda: self.now)  # fmt: skip
        made.run(lambda row: f"row {row['cell']}")
        return made

    @property
    def suites(self):
        return runs.suites_in(records.read(self.file, runs.KIND))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "x-suites.jsonl")


def two_suites(world, **changes):
    return {
        "flat": [world.cell("a"), world.cell("b", goal=True, **changes)],
        "host": [world.cell("c", goal=True), world.cell("d")],
    }


def test_without_a_budget_suite_follows_suite(world):
    made = world.run(two_suites(world))
    assert world.measured == world.prepared == ["a", "b", "c", "d"]
    assert world.shown == ["== flat", "row a", "row b", "== host", "row c", "row d"]
    assert [(name, suite["complete"], suite["seconds"]) for name, suite in world.suites.items()] == [
        ("flat", True, 20.0), ("host", True, 20.0),
    ]  # fmt: skip
    assert not made.failed


def test_with_a_budget_what_goals_name_comes_first_and_nothing_is_begun_that_would_not_end(world):
    cells = two_suites(world)
    assert [cell.name for _, cell in ordered(cells)] == ["b", "c", "a", "d"]
    made = world.run(cells, budget=35.0)
    assert world.measured == ["b", "c", "a"]
    assert world.now <= 35.0
    assert made.left_out("host") == ["d"]
    suites = world.suites
    assert [row["cell"] for row in suites["flat"]["rows"]] == ["a", "b"]
    assert (suites["flat"]["complete"], suites["host"]["complete"]) == (True, False)
    assert suites["host"]["left_out"] == ["d"]


def test_a_run_goes_on_where_its_last_part_ended(world):
    """Also if that was cut off: what has no row is measured, and in the end the file is that of one run."""
    world.run(two_suites(world, fails="no memory"), budget=35.0)
    assert world.measured == ["b", "c", "a"]
    lines = world.file.read_text().splitlines()
    world.file.write_text("\n".join(line for line in lines if '"complete"' not in line) + "\n")
    world.measured.clear()
    made = world.run(two_suites(world), done=world.suites)
    assert world.measured == world.prepared == ["b", "d"]
    suites = world.suites
    assert {name: [row["cell"] for row in suite["rows"]] for name, suite in suites.items()} == {
        "flat": ["a", "b"], "host": ["c", "d"],
    }  # fmt: skip
    assert all(suite["complete"] and not suite["broke_off"] for suite in suites.values())
    assert not made.failed
    again = world.run(two_suites(world), done=world.suites)
    assert world.measured == ["b", "d"]
    assert [row["cell"] for row in again.rows("flat")] == ["a", "b"]


def test_the_rows_of_a_cell_are_known_by_its_place_whatever_they_are_called(world):
    def several(setting):
        world.measured.append("processes")
        return [row_of(name, {OURS: figures.figure([1.0])}, shape=[]) for name in ("import", "first result")]

    cells = {"cold": [Cell("processes", several, 1.0)]}
    world.run(cells)
    world.run(cells, done=world.suites)
    assert world.measured == ["processes"]


def test_a_short_cell_is_measured_where_a_long_one_no_longer_is(world):
    world.run({"flat": [world.cell("long", seconds=50.0), world.cell("short", seconds=1.0)]}, budget=20.0)
    assert world.measured == ["short"]


def test_a_cell_that_takes_longer_than_thought_costs_those_after_it(world):
    world.run({"flat": [world.cell("slow", takes=90.0), world.cell("next")]}, budget=60.0)
    assert world.measured == ["slow"]


def test_the_file_has_each_cell_at_once_and_no_suite_is_complete_before_the_end(world):
    world.run(two_suites(world))
    told = [{suite: len(content["rows"]) for suite, content in suites.items()} for suites in world.files]
    assert told == [{}, {"flat": 1}, {"flat": 2}, {"flat": 2, "host": 1}]
    assert not any(content["complete"] for suites in world.files for content in suites.values())
    assert records.read(world.file, runs.KIND).conditions == {"device": "D", "cub": "3.0.1"}
    assert [content["complete"] for content in world.suites.values()] == [True, True]
    assert world.suites["flat"]["missing"] == world.missing


def test_a_run_that_was_cut_short_is_a_part(world):
    world.run(two_suites(world))
    lines = world.file.read_text(encoding="utf-8").splitlines(keepends=True)
    assert not any(suite.partial for found in runs.load(world.file.parent).values() for suite in found)
    world.file.write_text("".join(lines[:-1]))
    assert {name: found[0].partial for name, found in runs.load(world.file.parent).items()} == {
        "flat": False, "host": True,
    }  # fmt: skip


def test_a_cell_that_breaks_off_loses_no_other(world):
    made = world.run(two_suites(world, fails="no kernel image"))
    assert world.measured == ["a", "b", "c", "d"]
    assert "b broke off: RuntimeError: no kernel image" in world.shown
    assert world.suites["flat"]["broke_off"] == {"b": "RuntimeError: no kernel image"}
    assert world.suites["flat"]["complete"] is False
    assert made.failed


def test_a_lost_device_ends_the_session(world):
    world.run({"flat": [world.cell(str(i), fails="context is destroyed") for i in range(MOST_BROKEN + 2)]})
    assert len(world.measured) == MOST_BROKEN
    assert world.suites["flat"]["rows"] == []


def test_a_wrong_result_of_ours_is_a_failure(world):
    assert world.run({"flat": [world.cell("a", us=None)]}).failed


def test_the_list_needs_neither_gpu_nor_file(capsys):
    assert run.main(["--list", "--suite", "flat", "--suite", "cold"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["suite", "flat", "cold", "about"]
    assert lines[1].split()[1] == str(len(SUITES["flat"]()))
    with pytest.raises(SystemExit):
        run.main(["--suite", "flat"])
    assert "--json FILE is needed" in capsys.readouterr().err


def test_patterns_choose_cells_and_mistakes_are_told(capsys):
    assert run.main(["--list", "--suite", "flat", "--suite", "small", "--cell", r"^2\^20", "--cell", "^99,999$"]) == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(line[0], line[1]) for line in table[1:3]] == [("flat", "2"), ("small", "2")]
    for wrong, why in (("(", "no regular expression"), ("no such cell", "no cell has such a name")):
        with pytest.raises(SystemExit):
            run.main(["--list", "--cell", wrong])
        assert why in capsys.readouterr().err


def test_cells_that_were_not_asked_for_are_left_out_and_the_suite_is_not_complete(world, monkeypatch):
    stream = SimpleNamespace(context=SimpleNamespace(device=None))
    monkeypatch.setattr(run, "opened", lambda: contextlib.nullcontext(stream))
    monkeypatch.setattr(run, "conditions", lambda device, commit: {"device": "D", "sources": "s"})
    monkeypatch.setattr(run, "Harness", lambda stream, *rounds: SimpleNamespace(release=lambda: None))
    monkeypatch.setattr(run.suites, "Setting", lambda harness, quick, mode, *_: world if mode == "hot" else None)
    world.harness = SimpleNamespace(release=lambda: None)
    made = {name: lambda *, quick, some=some: some for name, some in two_suites(world).items()}
    monkeypatch.setattr(run.suites, "SUITES", made)
    assert run.main(["--cell", "^b$", "--mode", "hot", "--json", str(world.file)]) == 0
    assert world.measured == world.prepared == ["b"]
    assert list(world.suites) == ["flat"]  # no cell of the other was asked for
    assert (world.suites["flat"]["complete"], world.suites["flat"]["left_out"]) == (False, ["a"])
    (suite,) = runs.load(world.file.parent)["flat"]
    assert suite.partial


def command(world, monkeypatch, device="D", sources="s"):
    """Return `run.main` on a made-up device, with random shapes that take no time."""
    stream = SimpleNamespace(context=SimpleNamespace(device=None))
    monkeypatch.setattr(run, "opened", lambda: contextlib.nullcontext(stream))
    times = itertools.count()
    now = {"device": device, "sources": sources, "card": "c", "nvidia_smi": "n", "load_average": [0.5]}
    monkeypatch.setattr(run, "conditions", lambda _, commit: {**now, "measured": f"at {next(times)}"})
    monkeypatch.setattr(run, "Harness", lambda stream, *rounds: None)
    world.harness = SimpleNamespace(release=lambda: None)
    monkeypatch.setattr(run.suites, "Setting", lambda *_: world)
    seeds = []

    def drawn(*, quick, seed, cells):
        seeds.append(seed)
        return [world.cell(f"{seed}, {i}") for i in range(cells)]

    monkeypatch.setattr(run.shapes, "shapes", drawn)
    return lambda *arguments: run.main(["--suite", "shapes", "--json", str(world.file), *arguments]), seeds


def test_the_file_tells_of_every_part(world, monkeypatch):
    main, _ = command(world, monkeypatch)
    assert main("--cells", "3", "--budget-seconds", "15") == 0
    assert main("--continue", "--budget-seconds", "0") == main("--continue") == 0
    found = records.read(world.file, runs.KIND).conditions
    assert found["measured"] == "at 0"
    part = {"card": "c", "nvidia_smi": "n", "load_average": [0.5]}
    assert found["parts"] == [{**part, "measured": "at 1"}, {**part, "measured": "at 2"}]


def test_the_seed_stands_in_the_file_and_a_later_part_has_it_too(world, monkeypatch):
    main, seeds = command(world, monkeypatch)
    assert main("--cells", "3", "--budget-seconds", "15") == 0
    facts = records.read(world.file, runs.KIND).facts
    assert facts == {"quick": False, "seed": seeds[0], "cells": 3}
    assert main("--continue") == 0
    assert seeds == [facts["seed"]] * 2
    assert world.measured == [f"{seeds[0]}, {i}" for i in range(3)]
    assert world.suites["shapes"]["complete"]
    assert main("--cells", "1", "--seed", "77") == 0
    assert records.read(world.file, runs.KIND).facts["seed"] == seeds[-1] == 77


@pytest.mark.parametrize("other", [{"device": "another"}, {"sources": "changed"}])
def test_a_run_does_not_go_on_on_another_card_or_with_other_sources(world, monkeypatch, other, capsys):
    main, _ = command(world, monkeypatch)
    assert main("--cells", "2", "--budget-seconds", "15") == 0
    before = world.file.read_text()
    main, _ = command(world, monkeypatch, **other)
    with pytest.raises(SystemExit):
        main("--continue")
    assert f"is of the {next(iter(other))}" in capsys.readouterr().err
    assert world.file.read_text() == before


def test_the_table_at_the_end_tells_situations_apart():
    def of(mode, theirs):
        return row_of("a", {OURS: figures.figure([1.0]), "torch": figures.figure([theirs])}, mode=mode)

    head, *lines = run.table({"flat": [of("rotated", 2.0), of("after", 0.5)], "cold": [of("process", 1.0)]})
    assert head.split() == ["suite", "situation", "rows", "mean", "behind", "failed", "worst"]
    assert [line.split() for line in lines] == [
        ["flat", "back", "to", "back", "1", "2.00", "0", "0", "2.000", "a"],
        ["flat", "after", "its", "producer", "1", "0.50", "1", "0", "0.500", "a"],
        ["cold", "process", "1", "1.00", "0", "0", "1.000", "a"],
    ]


def test_the_usage_names_every_suite_and_mode():
    assert f"--suite {'|'.join(SUITES)} ..." in run.__doc__
    assert f"--mode {'|'.join(get_args(Mode))}]" in run.__doc__
