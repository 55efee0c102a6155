"""The list of mutants follows the code, and its page the list; the tool tells who is killed from who survives."""

import re

import pytest

from tests.mutants.catalogue import ROOT, ListError, areas, mutants
from tests.mutants.copies import Copy, files
from tests.mutants.runner import ERROR, GONE, KILLED, SURVIVED, TIMED_OUT, run

PAGE = ROOT / "docs" / "reliability.md"
LEAST = 150

CODE = """\
def larger(a, b):
    return a if a >= b else b
"""
TESTS = """\
import pytest
from code_of_a_test import larger

def test_one():
    assert larger(2, 1) == 2

@pytest.mark.parametrize("b", [1, 3])
def test_several(b):
    assert larger(2, b) >= b

def test_that_fails_anyhow():
    assert larger(1, 2) == 3
"""
LIST = """\
# what a test of the tool changes

## killed
in: code_of_a_test.py
why: the smaller one is returned
by: test_it.py::test_one
- >=
+ <=

## killed-by-one-of-several
in: code_of_a_test.py
why: the first one is returned
by: test_it.py::test_several
- a if a >= b else b
+ a

## survived
in: code_of_a_test.py
why: the second of two equal ones is returned, which nobody sees
by: test_it.py::test_one
- >=
+ >

## gone
in: code_of_a_test.py
why: its text is in the code no more
by: test_it.py::test_one
- return a < b
+ return a > b

## twice
in: code_of_a_test.py
why: nobody knows which is meant
by: test_it.py::test_one
- b
+ a

## for-ever
in: code_of_a_test.py
why: it does not end
by: test_it.py::test_one
-     return a
+     while True: pass
+     return a

## no-python
in: code_of_a_test.py
why: no test can say anything of it
by: test_it.py::test_one
- def larger(a, b):
+ def larger(a, b)

## failing-before
in: code_of_a_test.py
why: its test fails without it
by: test_it.py::test_that_fails_anyhow
- def larger(a, b):
+ def larger(b, a):

## without-a-test
in: code_of_a_test.py
why: its test is nowhere
by: test_it.py::test_that_is_nowhere
- def larger(a, b):
+ def larger(b, a):
"""


def test_every_text_is_in_the_code_once():
    assert [f"{each.id} in {each.file}" for each in mutants() if each.places(ROOT) != 1] == []


def test_there_are_many_in_every_area():
    found = mutants()
    assert len(found) >= LEAST
    assert {each.area for each in found} == set(areas())


def test_tests_are_where_the_list_says():
    """Even of files of which this run has no tests; what is behind a bracket is known only when these are collected."""
    names = {test.partition("[")[0] for each in mutants() for test in each.tests}
    lost = []
    for name in sorted(names):
        path, *parts = name.split("::")
        text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        if not text or not all(re.search(rf"^\s*(def|class) {part}\b", text, re.MULTILINE) for part in parts):
            lost.append(name)
    assert lost == []


def test_parameters_are_those_that_the_list_names(collected):
    """In the files of this run: a mutant whose test has other parameters by now is one that no test sees."""
    paths = {name.partition("::")[0] for name in collected}
    named = {test for each in mutants() for test in each.tests if "[" in test and test.partition("::")[0] in paths}
    if not any("[simulated" in name for name in collected):  # on a real GPU, alone
        named = {name for name in named if "[simulated" not in name}
    assert sorted(named - collected) == []


def test_the_page_counts_what_the_list_has():
    text = PAGE.read_text(encoding="utf-8")
    found = mutants()
    rows = dict(re.findall(r"^\| ([\w-]+) \|[^|]*\| (\d+) \|", text, re.MULTILINE))
    assert rows == {area: str(sum(each.area == area for each in found)) for area in areas()}
    assert re.findall(r"^\| \*\*all\*\* \| \| (\d+) \|", text, re.MULTILINE) == [str(len(found))]
    assert re.findall(r"of (\d+) mutants are killed", text) == [str(len(found))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("## a\nin: f\nwhy: w\nby: t\n- x\n+ x\n", "a changes nothing"),
        ("## a\nin: f\nwhy: w\n- x\n+ y\n", "a has no line 'by'"),
        ("## a\nin: f\nwhy: w\nby: t\n- x\n\n## a\nin: f\nwhy: w\nby: t\n- y\n", "several mutants are called a"),
        ("## a\nin: f\nsee: w\n", "list.txt:3: 'see: w'"),
        ("- x\n", "list.txt:1: '- x'"),
    ],
)
def test_a_list_that_is_not_written_as_it_should_be(tmp_path, text, said):
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(ListError, match=re.escape(said)):
        mutants(tmp_path)


@pytest.fixture
def tree(tmp_path):
    """Return a tree with code, tests and the list of their mutants."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "code_of_a_test.py").write_text(CODE)
    (root / "test_it.py").write_text(TESTS)
    (root / "list.txt").write_text(LIST)
    (root / ".venv").mkdir()
    (root / ".venv" / "of_an_environment.py").write_text("")
    return root


def test_the_files_of_a_tree_without_git(tree):
    assert files(tree) == ["code_of_a_test.py", "list.txt", "test_it.py"]


def test_a_mutant_is_taken_out_again(tree, tmp_path):
    copy = Copy(tmp_path / "copy", files(tree), tree)
    path, killed = copy.tree / "code_of_a_test.py", mutants(tree)[0]
    before = path.stat().st_mtime_ns
    with copy.changed(killed):
        assert path.read_text() == CODE.replace(">=", "<=")
        assert int(path.stat().st_mtime) != before // 10**9  # what is compiled is told apart by whole seconds
    assert (path.read_text(), path.stat().st_mtime_ns) == (CODE, before)
    assert (tree / "code_of_a_test.py").read_text() == CODE


@pytest.mark.slow
def test_what_a_run_finds_out(tree):
    endless = [each for each in mutants(tree) if each.id == "for-ever"]
    found = run([each for each in mutants(tree) if each not in endless], jobs=2, timeout_s=300, root=tree)
    found += run(endless, jobs=1, timeout_s=3, root=tree)
    assert {each.id: each.word for each in found} == {
        "killed": KILLED,
        "killed-by-one-of-several": KILLED,
        "survived": SURVIVED,
        "gone": GONE,
        "twice": GONE,
        "for-ever": TIMED_OUT,
        "no-python": ERROR,
        "failing-before": ERROR,
        "without-a-test": ERROR,
    }
    assert next(each.how for each in found if each.id == "killed") == "assert 1 == 2"


@pytest.mark.slow
def test_a_budget_that_is_spent_leaves_the_rest(tree):
    assert run(mutants(tree)[:3], jobs=1, timeout_s=300, budget_s=0.0, root=tree) == []
