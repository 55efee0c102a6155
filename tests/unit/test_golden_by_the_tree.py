"""Golden results by the tree in NumPy: with one tree version, no result changes."""

import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import ELEMENT_TYPES
from lowlevel_reduce.operators import OPERATORS
from tests.golden import __main__ as command
from tests.golden import cases as golden
from tests.golden.draw import additional
from tests.golden.elements import FLOAT_KINDS, INTEGER_KINDS, elements, mask
from tests.golden.layouts import LAYOUTS

VERSION, CASES = golden.read()


@pytest.mark.parametrize("dtype", [element.name for element in ELEMENT_TYPES])
def test_the_tree_gives_what_is_recorded(dtype):
    differing = [
        name
        for name, (case, recorded) in CASES.items()
        if case.dtype == dtype and golden.hashed(golden.by_tree(case)) != recorded
    ]
    assert not differing, "a change of results needs a new tree version: CONTRIBUTING.md"


def test_the_version_is_that_of_the_library():
    assert lr.__tree_version__ == VERSION


def test_no_case_is_missing():
    """Each operator of promised bits with each type, each option, accumulator and layout."""
    cases = [case for case, _ in CASES.values()]
    assert additional(cases) == []
    assert {case.op for case in cases} == {name for name, each in OPERATORS.items() if each.exact} | {*golden.USERS}
    assert {case.layout for case in cases} == {*LAYOUTS}
    assert golden.FILE.stat().st_size < 100_000


def test_the_elements_are_those_that_were_recorded():
    """If this fails, too, other results say nothing of the tree."""
    drawn = [
        elements(element, (3, 50), op=op, kind=kind, length=50, seed=7)
        for element in ELEMENT_TYPES
        for op in ("sum", "prod", "any", "all", "count_nonzero")
        for kind in (FLOAT_KINDS if element.is_float or element.is_complex else INTEGER_KINDS)
    ]
    assert golden.hashed((*drawn, mask((3, 50), 7))) == "b1cc37a2f4b37b62"


def test_a_recorded_hash_is_not_replaced(tmp_path, monkeypatch, capsys):
    few = dict(list(CASES.items())[:3])
    name, (case, recorded) = next(iter(few.items()))
    few[name] = case, recorded[::-1]
    path = tmp_path / "cases.jsonl"
    golden.write(VERSION, few, path)
    monkeypatch.setattr(command, "read", lambda: golden.read(path))
    assert command.main(["--check"]) == 1
    assert name in capsys.readouterr().err
    monkeypatch.setattr(lr, "__tree_version__", VERSION + 1)
    monkeypatch.setattr(command, "FILE", path)
    monkeypatch.setattr(command, "write", lambda version, cases: golden.write(version, cases, path))
    monkeypatch.setattr(command, "additional", lambda known: [])
    assert command.main([]) == 0
    version, renewed = golden.read(path)
    assert version == VERSION + 1
    assert renewed[name] == (case, recorded)
