"""Random problems, drawn from the seed alone within their limits; and cases of any axes and strides."""

import functools
import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.measure import problems, shapes
from benchmarks.measure.problems import BLOCK, LAG, Case, check
from benchmarks.suites import shapes as suite
from lowlevel_reduce import ReduceError
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.strategy.selection import request_of


@functools.cache
def many():
    """Return 1,500 problems; to draw them when the file is collected would cost every process of every run a second."""
    return [shapes.drawn(5, number) for number in range(1500)]


def test_a_problem_is_a_function_of_its_seed_and_number():
    again = [shapes.drawn(5, number) for number in (1400, 3, 77)]
    assert again == [many()[1400], many()[3], many()[77]]
    assert shapes.drawn(6, 3) != many()[3]


def test_names_tell_problems_apart():
    assert len({shapes.named(case) for case in many()}) == len(set(many()))


def share_of(kinds, wanted):
    """Return the kinds whose share is farther from what is written down than chance allows."""
    total = sum(kinds.values())
    return {
        kind: kinds[kind] / total
        for kind, part in wanted.items()
        if abs(kinds[kind] - part * total) > 5 * math.sqrt(total * part * (1 - part))
    }


def test_shares_are_those_that_are_written_down():
    assert share_of(Counter(case.dtype for case in many()), shapes.TYPES) == {}
    assert share_of(Counter(len(case.shape) for case in many()), shapes.DIMENSIONS) == {}
    floats = [case for case in many() if not case.dtype.startswith("int")]
    assert share_of(Counter(case.op for case in floats), shapes.OF_FLOATS) == {}
    integers = [case for case in many() if case.dtype.startswith("int")]
    assert share_of(Counter(case.op for case in integers), shapes.OF_INTEGERS) == {}


def test_sizes_are_between_4_kb_and_2_gb_in_memory_too():
    sizes = [case.size * numpy_dtype(case.dtype).itemsize for case in many()]
    assert min(sizes) >= shapes.LEAST_BYTES
    assert max(case.array_bytes for case in many()) <= shapes.MOST_BYTES
    middle = math.sqrt(shapes.LEAST_BYTES * shapes.MOST_BYTES)
    assert 0.45 < np.mean([size < middle for size in sizes]) < 0.55


def test_every_kind_of_layout_and_axes_is_there():
    strided = [case for case in many() if case.strides is not None]
    assert any(0 in case.strides for case in strided)
    assert any(case.shift for case in many())
    assert any(sorted(case.strides, reverse=True) != list(case.strides) and 0 not in case.strides for case in strided)
    assert any(1 not in case.strides and 0 not in case.strides for case in strided)
    assert any(len(case.axes) > 1 and len(case.axes) < len(case.shape) for case in many())
    assert not any(len(case.axes) > 1 and case.axis is not None for case in many() if case.op == "argmax")
    assert {case.axis for case in many() if len(case.shape) == 2} == {None, 0, 1}


def test_no_two_elements_share_memory_but_those_that_are_broadcast():
    for case in many():
        if case.size <= 1 << 14 and case.rows <= 64:
            there = np.concatenate([case.row(index) for index in range(case.rows)])
            copies = math.prod(n for n, stride in zip(case.shape, case.element_strides, strict=True) if not stride)
            assert len(np.unique(there)) * copies == case.size, shapes.named(case)
            assert (there.min(), there.max()) == (case.shift, case.shift + case.span - 1)


def test_a_type_and_an_operator_may_be_given():
    cases = [shapes.drawn_layout(5, number, "dot", "int8") for number in range(20)]
    assert {(case.op, case.dtype) for case in cases} == {("dot", "int8")}
    same = [shapes.drawn_layout(5, number, "sum", "uint8") for number in range(20)]
    assert [replace(case, op="dot", dtype="int8") for case in same] == cases


STRIDED = [
    Case("sum", (3, 4, 5), (0, 2)),
    Case("sum", (3, 4, 5), 1, strides=(1, 3, 12)),
    Case("sum", (7, 9), None, strides=(18, 2), shift=3),
    Case("sum", (4, 6), 1, strides=(0, 2)),
    Case("sum", (4, 6), (), strides=(6, 1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", STRIDED)
def test_rows_of_any_axes_and_strides_are_numpys(case):
    memory = np.arange(case.span) + case.shift
    view = np.lib.stride_tricks.as_strided(memory, case.shape, [8 * stride for stride in case.element_strides])
    rows = np.moveaxis(view, case.axes, range(-len(case.axes), 0)).reshape(case.rows, -1)
    for index, right in enumerate(rows):
        np.testing.assert_array_equal(case.row(index), right)
        assert [case.number(index, position) for position in range(len(right))] == right.tolist()
        np.testing.assert_array_equal(case.places(index), np.bincount(right, minlength=BLOCK))


@pytest.mark.slow
def test_long_rows_are_counted_by_their_places_in_the_block(monkeypatch):
    """What that gives is what adding up the row itself gives."""
    case = Case("sum", (3, BLOCK + 5, 2), (1, 2), strides=(2 * BLOCK + 7, 2, 1))
    planes = [np.asarray([problems.pattern("float32").at(case.row(i)).sum() for i in range(3)], np.float32)]
    assert problems._is_long(case)
    monkeypatch.setattr(Case, "row", None)
    check(case, planes, exact=True)
    with pytest.raises(ReduceError, match="not timed"):
        check(case, [planes[0] + 1], exact=True)


@pytest.mark.parametrize("strides", [None, (1, 4), (8, 2)])
def test_dot_products_and_indices_of_strided_arrays_are_checked(strides):
    case = Case("dot", (4, 4), None, strides=strides)
    memory = problems.pattern("float32")
    numbers = case.row(0)
    dot = float(memory.at(numbers) @ memory.at(numbers + LAG))
    check(case, [np.asarray([dot], np.float32)], exact=True)
    with pytest.raises(ReduceError, match="not timed"):
        check(case, [np.asarray([dot + 1], np.float32)], exact=True)
    best = int(memory.at(numbers).argmax())
    check(replace(case, op="argmax"), [np.asarray([best])], exact=True)
    with pytest.raises(ReduceError, match="not timed"):
        check(replace(case, op="argmax"), [np.asarray([int(memory.at(numbers).argmin())])], exact=True)


def test_what_is_read_is_counted_once():
    """However often an element is used; and what lies between the elements is not."""
    assert Case("sum", (4, 6), 1, strides=(0, 2)).moved_bytes == 4 * (6 + 4)
    assert Case("sum", (4, 6), 1, strides=(0, 2)).array_bytes == 4 * 11
    assert Case("dot", (4, 6), (0, 1)).moved_bytes == 2 * 4 * 24 + 4


def test_the_suite_has_the_random_problems_of_a_seed_and_those_of_models():
    cells = suite.shapes(seed=5, cells=40)
    cases = {cell.case for cell in cells}
    assert cases >= set(many()[:40])
    assert cases >= set(suite.MODELS.values())
    assert len({cell.name for cell in cells}) == len(cells) == 40 + len(suite.MODELS)
    assert [cell.name for cell in cells] == [cell.name for cell in suite.shapes(seed=5, cells=40)]
    types = [cell.case.dtype for cell in cells]
    assert [dtype for dtype, _ in itertools.groupby(types)] == list(dict.fromkeys(types))
    assert {cell.name for cell in suite.shapes(quick=True, seed=5)} <= {cell.name for cell in suite.shapes(seed=5)}


def test_what_models_reduce_can_be_checked_and_planned():
    for case in suite.MODELS.values():
        assert case.op == "argmax" or problems.reduced(case.op, np.asarray([1.0, 2.0]), np.asarray([1, 1]))
        assert request_of(case.op, shape=case.shape, dtype=case.dtype, axis=case.axis).problem.rows == case.rows
