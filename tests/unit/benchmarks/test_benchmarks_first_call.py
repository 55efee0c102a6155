"""The table of first calls: medians, ratios, and which kernel is furthest from its goal."""

import ast
import os
import zipfile
from pathlib import Path

import pytest

from benchmarks.profile import first_call
from benchmarks.profile.first_call import KERNELS, Line, compiled_lines, lines_of, table
from benchmarks.suites.cold_scripts import CALLS


def processes(first, second):
    calls = {name: 2e-3 * place for place, name in enumerate(CALLS, 1)}
    both = zip(first, second, strict=True)
    return [{"first result": 1e-3 * a, "second operator": 1e-3 * b, "context": 0.1 / a, **calls} for a, b in both]


FOUND = {
    "empty": processes([30, 10, 20], [5, 4, 9]),
    "wheel": processes([8, 7, 9], [1, 1, 1]),
    "meanwhile": processes([22, 22, 22], [1, 1, 1]),
    "warmed": [{"warm-up": 2.0, "new shape": 3e-5}] * 3,
}


def test_medians_are_compared_with_the_goals():
    lines = lines_of({**FOUND, "CuPy": processes([10, 14, 50], [2, 3, 4])})
    seen = [(line.ours, line.theirs, line.goal, line.is_met) for line in lines[:4]]
    assert seen == [
        (pytest.approx(20), pytest.approx(14), 1.5, True),
        (pytest.approx(8), pytest.approx(14), 1.0, True),
        (pytest.approx(5), pytest.approx(3), 1.0, False),
        (pytest.approx(1), pytest.approx(3), 1.0, True),
    ]
    # The median of the sums: not the sum of the medians, 25 and 21.1.
    assert (lines[4].ours, lines[4].theirs, lines[4].goal) == (pytest.approx(25), pytest.approx(21.14, abs=0.01), 1.5)
    assert [(line.ours, line.is_met) for line in lines[5:7]] == [(pytest.approx(2), True), (pytest.approx(4), True)]
    meanwhile, *warmed = lines[5 + len(CALLS) :]
    assert (meanwhile.ratio, meanwhile.goal) == (pytest.approx(1.1), None)
    assert [line.ours for line in warmed] == [pytest.approx(2000), pytest.approx(0.03)]


def test_without_the_competitor_nothing_is_met_or_missed():
    lines = lines_of(FOUND)
    assert [line.is_met for line in lines] == [None] * (8 + len(CALLS))
    assert table(lines)[2].endswith("| | | | 1.5 |  |")


def test_the_worst_kernel_of_each_kind_is_named():
    def kernel(whole, seconds, headers=0.03):
        return {"whole": whole, "seconds": seconds, "headers": headers}

    families = {
        "sum": {"block": kernel(True, 0.06), "tiles": kernel(True, 0.09), "rows": kernel(False, 0.1),
                "columns": kernel(False, 0.12, 0.06)},
        "max": {"block": kernel(True, 0.12), "rows": kernel(False, 0.11), "alone": kernel(False, 9.0)},
    }  # fmt: skip
    whole, others, of_sum, op, of_op = compiled_lines(families)
    assert (whole.what, whole.is_met) == ("sum compiled, whole arrays, at worst tiles", False)
    assert (others.what, others.ratio, others.is_met) == (
        "sum compiled, others, at worst rows",
        pytest.approx(3.33, abs=0.01),
        True,
    )
    assert of_sum.ours == pytest.approx(370)
    assert (op.what, op.ratio, op.is_met) == ("max compiled, at worst block", pytest.approx(2), False)
    assert of_op.what == "max compiled, its 3 kernels"


def test_a_line_says_whether_its_goal_is_met():
    rows = table([Line("a", 3.0, 2.0, 1.5), Line("b", 3.1, 2.0, 1.5), Line("c", 3.0, None, None)])
    assert rows[2:] == [
        "| a | 3.0 | CuPy | 2.0 | 1.50 | 1.5 | met |",
        "| b | 3.1 | CuPy | 2.0 | 1.55 | 1.5 | **not met** |",
        "| c | 3.0 | | | |  |  |",
    ]


def test_what_a_process_runs_is_python():
    for text in (KERNELS, *(call for calls in CALLS.values() for call in calls)):
        ast.parse(text)
    assert set(first_call.MOST_OF_HEADERS) == {"whole", "others"}


def test_processes_take_a_part_of_the_kernels_each(monkeypatch):
    def alone(script, times, byte_code, **variables):
        first, _, rest = script.partition("\n")
        ops, part, processes, times = ast.literal_eval(first.partition(" = ")[2])
        assert (ops, processes, times, rest) == (first_call.FAMILIES, first_call.PROCESSES, 3, KERNELS)
        return [{op: {f"kernel {part}": {"seconds": part}} for op in first_call.FAMILIES}]

    monkeypatch.setattr(first_call, "alone", alone)
    found = first_call.compiled(3, "")
    assert list(found) == list(first_call.FAMILIES)
    assert found["argmax"] == {f"kernel {part}": {"seconds": part} for part in range(first_call.PROCESSES)}


def test_a_given_wheel_is_what_its_processes_have(tmp_path, monkeypatch):
    wheel, seen = tmp_path / "kernels.whl", []
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("lowlevel_reduce_kernels/__init__.py", "")

    def alone(script, times, byte_code, PYTHONPATH="", **variables):  # noqa: N803 - the variable's name
        seen.append((Path(PYTHONPATH.partition(os.pathsep)[0]) / "lowlevel_reduce_kernels/__init__.py").exists())
        return [{"compiler": False}]

    monkeypatch.setattr(first_call, "alone", alone)
    first_call.measured(1, "", with_cupy=False, wheel=wheel)
    assert seen == [False, True, False, False]
