"""The soak's counts: a tally has a fuzzer's, a page has them all, and a writer of it leaves the others' parts."""

import contextlib
import ctypes
import gc
import sys
import weakref
from collections import Counter
from types import CodeType, FrameType, ModuleType, SimpleNamespace

import numpy as np
import pytest

from lowlevel_reduce.driver import Stream
from tests.fuzz import array_faults, endurance, lost_references, memory_faults
from tests.fuzz.tally import Tally
from tests.reliability import write_section
from tests.soak import page
from tests.soak.kinds import GROUPS, KINDS, Kind


def test_a_tally_counts_and_is_read_again():
    tally = Tally("kind", 3)
    tally.accept(4)
    tally.refuse(ValueError("no"))
    tally.check()
    tally.lose("a wrong result")
    with pytest.raises(AssertionError, match="kind, seed 3: 1 lost, the first: a wrong result"):
        tally.check()
    assert (tally.tried, tally.accepted, tally.refused) == (5, 4, {"ValueError": 1})
    assert Tally.from_record(tally.record()) == tally


def test_kinds_are_told_apart_and_counted_as_something():
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert {kind.group for kind in KINDS} == set(GROUPS)
    assert all(kind.count_of(1) == kind.count for kind in KINDS)
    assert all(kind.count_of(0) == kind.least >= 1 for kind in KINDS)


def test_the_page_says_what_was_tried_and_lost():
    kinds = [Kind("one", "faults", 10, ""), Kind("two", "faults", 10, ""), Kind("three", "launches", 10, "")]
    tallies = {"one": Tally("one", 1, 1000, 400, Counter(CudaError=600)), "three": Tally("three", 1, 7, 7)}
    assert page.summary(kinds, tallies) == "1,000 faults, 7 launches; lost: nothing."
    text = page.text(kinds, tallies, {"two": "there is no such thing here"}, "(now).")
    assert "| one | 1,000 | 400 | 600 | 0 | 0 |" in text
    assert "- two were not tried: there is no such thing here" in text
    tallies["three"].lose("a block")
    text = page.text(kinds, tallies, {}, "(now).")
    assert "1,000 faults, 7 launches; lost: 1. (now)." in text
    assert "- lost: three, seed 1: a block" in text


def test_writers_of_the_page_leave_each_others_sections(tmp_path):
    path = tmp_path / "page.md"
    write_section(path, "first", "one\n")
    write_section(path, "second", "two\n")
    write_section(path, "first", "three\n")
    text = path.read_text()
    assert text.startswith("# Reliability\n")
    assert "one" not in text
    assert text.index("three") < text.index("two")
    write_section(path, "second", "two\n")
    assert path.read_text() == text


@pytest.mark.skipif(memory_faults.why_not() is not None, reason=str(memory_faults.why_not()))
def test_what_the_interpreter_loses_is_told_from_what_the_library_loses():
    """A handle in a list that a failing ``list(values)`` of CPython 3.11 keeps, and one that a table refers to."""
    import _testcapi

    stream, other = Stream.from_handle(1), Stream.from_handle(2)
    number = id(stream)
    values, table = [stream], SimpleNamespace(kept=[(other,)])
    del stream, other
    for allocation in range(2):
        try:
            _testcapi.set_nomemory(allocation, allocation + 1)
            list(values)
        except MemoryError:
            _testcapi.remove_mem_hooks()
        _testcapi.remove_mem_hooks()
    lost = sys.getrefcount(values) > 2
    mark = weakref.ref(values.pop() if not lost else values[0])
    del values
    found = [id(each) for each in lost_references.orphans()]
    assert (number in found) == lost == (mark() is not None)
    assert id(table.kept[0][0]) not in found


@pytest.mark.skipif(memory_faults.why_not() is not None, reason=str(memory_faults.why_not()))
def test_code_outlives_functions_that_there_was_no_memory_to_make():
    """CPython 3.12 and 3.13.0 let go of the code once too often, and free it where nobody else holds it."""
    import _testcapi

    def making():
        return lambda: 7

    held = memory_faults.held_code(5)
    (code,) = (each for each in making.__code__.co_consts if isinstance(each, CodeType))
    assert sum(each is code for each in held) == 5
    before = sys.getrefcount(code)
    for _ in range(4):
        with contextlib.suppress(MemoryError):
            try:
                _testcapi.set_nomemory(0, 1)
                making()
            finally:
                _testcapi.remove_mem_hooks()
    lost = before - sys.getrefcount(code)
    assert lost in (0, 4)
    assert making()() == 7
    for _ in range(lost):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))


def test_a_frame_that_the_interpreter_has_lost_is_told_from_one_that_somebody_keeps():
    def left():
        stream = Stream.from_handle(1)
        return sys._getframe(), id(stream)

    frame, number = left()
    assert number not in [id(each) for each in lost_references.orphans()]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(frame))
    kept = weakref.ref(frame.f_locals["stream"])
    del frame
    assert number in [id(each) for each in lost_references.orphans()]
    (frame,) = (each for each in gc.get_referrers(kept()) if isinstance(each, FrameType))
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(frame))
    del frame
    gc.collect()
    assert kept() is None


@pytest.fixture
def keeping(monkeypatch):
    """A module of the library with a store that has a bound, as the module says, and one without."""
    module = ModuleType("lowlevel_reduce.keeping")
    module.bounded, module.free, module.BOUNDS = {}, {}, {"bounded": 256}
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    ("bounded", "free", "found"),
    [
        (200, 60, []),
        (256, 0, []),
        (257, 0, ["bounded has 257 items after 7 calls, and is to have 256 at most"]),
        (0, 100, ["free has 100 items, and had 0, after 7 calls"]),
    ],
)
def test_a_store_with_a_bound_may_be_filled_and_another_not(keeping, bounded, free, found):
    grown = endurance.Grown()
    keeping.bounded.update(dict.fromkeys(range(bounded)))
    keeping.free.update(dict.fromkeys(range(free)))
    said = [each for each in grown.found(7) if "keeping" in each]
    assert said == [f"lowlevel_reduce.keeping.{each}" for each in found]


def test_arrays_have_no_memory_where_they_are_refused_it():
    asked, empty = [], []

    def has_memory():
        asked.append(0)
        return not empty

    with array_faults.asking(has_memory):
        kept = np.full(3, 7)
        empty.append(True)
        with pytest.raises(MemoryError):
            np.empty(1000)
        empty.clear()
        grown = np.append(kept, 8)
    assert len(asked) >= 3
    before = len(asked)
    assert np.full(4, 9).sum() == 36, "afterwards nobody is asked"
    assert len(asked) == before
    assert list(grown) == [7, 7, 7, 8], "what was allocated there is used, and freed, elsewhere"
