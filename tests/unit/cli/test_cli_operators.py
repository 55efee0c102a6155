"""The table of operators is that of the operators, and the README's is the same."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowlevel_reduce.cli import operators
from lowlevel_reduce.cli.app import app
from lowlevel_reduce.dtypes import ELEMENT_TYPES
from lowlevel_reduce.operators import OPERATORS

README = Path(__file__).resolve().parents[3] / "README.md"


def test_every_operator_is_in_one_line():
    names = [name for line in operators.lines() for name in line.names]
    assert sorted(names) == sorted(OPERATORS)
    assert len({(line.arrays, line.cells) for line in operators.lines()}) == len(operators.lines())


def test_every_type_has_a_class():
    assert {operators._class_of(element) for element in ELEMENT_TYPES} == set(operators.CLASSES)


@pytest.mark.parametrize(
    ("name", "arrays", "of", "cell"),
    [
        ("sum", 1, "float32", "float64 8"),
        ("sum", 1, "8- and 16-bit floats", "float32 4"),
        ("max", 1, "signed, bool", "int32 4, int64 8, uint32 4"),
        ("max", 1, "complex", ""),
        ("argmax", 1, "float32", "int32 12"),
        ("mean_var", 1, "float32", "float64 16"),
        ("dot", 2, "complex", "complex128 16"),
    ],
)
def test_what_an_operator_accumulates_in(name, arrays, of, cell):
    (found,) = (entry for entry in operators.as_objects() if entry["operator"] == name)
    assert (found["arrays_read"], found["accumulators"][of]) == (arrays, cell)


def test_the_readme_has_this_table():
    text = README.read_text(encoding="utf-8")
    table = text.split("<!-- operators -->\n\n")[1].split("\n\n<!-- end -->")[0]
    assert table == operators.markdown(), "print it with python -m lowlevel_reduce operators --markdown"


def test_the_command_prints_it_for_people_and_programs():
    run = CliRunner().invoke
    assert "logsumexp softmax_stats" in run(app, ["operators"]).stdout
    assert run(app, ["operators", "--markdown"]).stdout == operators.markdown() + "\n"
    assert json.loads(run(app, ["operators", "--json"]).stdout) == operators.as_objects()
