"""The exercises: each starting file fails for the stated reason, each solution passes, and the commands say so."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowlevel_reduce import ReduceError
from lowlevel_reduce.cli.app import app
from lowlevel_reduce.workbench.checking import answer_of, check, number_of
from lowlevel_reduce.workbench.exercises import EXERCISES, exercise
from tests.mutants import catalogue

SOLUTIONS = {each.id: each for each in catalogue.mutants(Path(__file__).parent)}
each_exercise = pytest.mark.parametrize("asked", EXERCISES, ids=lambda asked: asked.file.removesuffix(".cu"))


def solved(folder, number, answer="?"):
    """Write an exercise's file with its solution, and with an answer to its question."""
    asked = exercise(number)
    solution = SOLUTIONS[asked.file.removesuffix(".cu")]
    start = asked.start.read_text(encoding="utf-8")
    assert start.count(solution.old) == 1
    path = folder / asked.file
    text = start.replace(solution.old, solution.new).replace("answer: ?", f"answer: {answer}")
    path.write_text(text, encoding="utf-8")
    return path


def command(*arguments):
    return CliRunner().invoke(app, ["exercise", *map(str, arguments)])


@each_exercise
def test_a_starting_file_fails_for_its_reason(asked):
    outcome = check(asked.start)
    assert outcome.exercise is asked
    assert asked.fails in outcome.reasons
    assert outcome.answer is None
    assert not outcome.solved


@each_exercise
def test_a_solution_passes(asked, tmp_path):
    outcome = check(solved(tmp_path, asked.number), asked.number)
    assert outcome.reasons == ()
    assert outcome.found.value == outcome.found.reference


def test_a_maximum_of_one_sign_alone_is_wrong(tmp_path):
    """Bits of negative floats order the other way round, which an array with a positive element does not show."""
    path = solved(tmp_path, 21)
    path.write_text(path.read_text(encoding="utf-8").replace("if (bits >= 0) atomicMax", "atomicMax").replace(
        "    else atomicMin((unsigned*)result, (unsigned)bits);\n", ""), encoding="utf-8")  # fmt: skip
    (first, *_) = check(path).wrong
    assert first.kind == "wrong maximum"
    assert "not -0.001953125, where all elements are negative; the result is written at 21_largest.cu:" in first.message
    path = solved(tmp_path, 21)
    path.write_text(path.read_text(encoding="utf-8").replace("i < n ?", "i + 1 < n ?"), encoding="utf-8")
    (first, *_) = check(path).wrong
    assert "not 2.0; the result is written" in first.message


@each_exercise
def test_a_question_offers_its_answer_and_gives_nothing_away(asked):
    text = asked.start.read_text(encoding="utf-8")
    offered = re.findall(r"^//   ([a-z])\) ", text, re.MULTILINE)
    assert offered == ["a", "b", "c"]
    assert asked.answer in offered
    assert "// predict: " in text
    assert "// task: " in text
    assert asked.because not in text
    assert text.split("\n")[0].lower().startswith(f"// exercise {asked.number:02}: ")


def test_there_are_enough_of_them_and_each_system_has_some():
    assert [asked.number for asked in EXERCISES] == list(range(1, 22))
    assert set("".join(asked.systems for asked in EXERCISES)) == set("ABCDE")
    assert {f"{name}.cu" for name in SOLUTIONS} == {asked.file for asked in EXERCISES}
    assert len({asked.answer for asked in EXERCISES}) == 3
    with pytest.raises(ReduceError, match="no exercise 99; there are 1 to 21"):
        exercise(99)


@pytest.mark.parametrize(
    ("line", "answer"),
    [("// answer: ?", None), ("// answer: b", "b"), ("//answer: C)", "c"), ("", None), ("// answer: (a)", "a")],
)
def test_answers_are_read_from_the_file(line, answer):
    assert answer_of(f"// exercise 02: x\n{line}\n") == answer


def test_a_file_that_is_no_exercise(tmp_path):
    with pytest.raises(ReduceError, match="is no exercise"):
        number_of("__global__ void sum() {}", tmp_path / "x.cu")


def test_an_exercise_from_start_to_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun = command("start", 3)
    assert begun.exit_code == 0, begun.output
    assert "exercise 03: The barrier that is missing" in begun.output
    assert "python -m lowlevel_reduce exercise check 03_missing_barrier.cu" in begun.output
    again = command("start", 3)
    assert again.exit_code == 2
    assert "is there already" in again.output

    first = command("check")
    assert first.exit_code == 1
    assert "the question is not answered" in first.output
    assert re.search(r"03_missing_barrier\.cu:\d+: race: block 0", first.output)
    assert exercise(3).because not in first.output

    solved(tmp_path, 3, "a")
    wrongly_predicted = command("check", "03_missing_barrier.cu")
    assert wrongly_predicted.exit_code == 1
    assert "predicted a), which is not what happens" in wrongly_predicted.output
    assert "the kernel is right" in wrongly_predicted.output

    solved(tmp_path, 3, "b")
    done = command("check")
    assert done.exit_code == 0
    assert "  solved" in done.output.splitlines()
    assert exercise(3).because in done.output


def test_what_an_exercise_asks_beyond_a_right_sum_is_told_with_its_lines(tmp_path):
    path = tmp_path / exercise(6).file
    path.write_text(exercise(6).start.read_text(encoding="utf-8"), encoding="utf-8")
    done = command("check", path, "--json")
    assert done.exit_code == 1
    (outcome,) = json.loads(done.stdout)
    assert outcome["reasons"] == ["bank_conflicts"]
    assert outcome["found"]["right"]
    assert re.match(r"06_bank_conflicts\.cu:\d+ \(", outcome["missed"][0]["where"][0])


def test_lists(tmp_path, monkeypatch):
    done = command("list")
    assert done.exit_code == 0
    assert max(map(len, done.output.splitlines())) <= 80
    assert "a cluster reduction without atomics" in done.output
    assert len(json.loads(command("list", "--json").stdout)) == len(EXERCISES)
    monkeypatch.chdir(tmp_path)
    nothing = command("check")
    assert nothing.exit_code == 2
    assert "exercise start N" in nothing.output
