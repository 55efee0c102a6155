"""What requests have in common is remembered: for equal arguments alone, and for arguments that can be remembered."""

import numpy as np
import pytest

from lowlevel_reduce import Operator
from lowlevel_reduce.strategy import column_costs, column_cuts, selection, stubs
from lowlevel_reduce.strategy.selection import request_of


def asked(op, **options):
    return request_of(op, shape=(40, 300), dtype="float32", axis=1, **options)


def test_what_is_resolved_is_remembered():
    first = asked("var", ddof=1)
    for other in (asked("var", ddof=1), request_of("var", shape=7, dtype="float32", ddof=1)):
        assert other.reduction is first.reduction
        assert other.text is first.text


def test_equal_options_of_other_types_are_others():
    """True is refused where 1 is a number, however often 1 was asked for before."""
    for ddof in (1, 1.0, np.float64(1)):
        assert asked("var", ddof=ddof).reduction.constants == asked("var", ddof=1).reduction.constants
        with pytest.raises(TypeError, match="ddof is a real number, not True"):
            asked("var", ddof=True)
    assert asked("argmin", last=1).reduction.label == asked("argmin", last=True).reduction.label
    assert asked("argmin", last=0).reduction.label != asked("argmin", last=1).reduction.label


def test_types_named_in_any_way_are_told_apart():
    named = [
        request_of("sum", shape=5, dtype=dtype).types.element.name for dtype in ("f4", "f8", np.float32, "f2", "i4")
    ]
    assert named == ["float32", "float64", "float32", "float16", "int32"]
    assert [asked("sum", result_dtype=dtype).types.result for dtype in (None, "f8", np.dtype("f4"))] == [
        "float32", "float64", "float32"]  # fmt: skip


def test_operators_of_users_are_told_apart():
    given = {"name": "largest", "combine": "fmaxf(a, b)", "identity": 'nanf("")'}
    plain, absolute = Operator(**given), Operator(**given, map="fabsf(x)")
    assert asked(plain).text != asked(absolute).text
    assert asked(Operator(**given)).text is asked(plain).text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ddof": []}, r"ddof is a real number, not \[\]"),
        ({"accumulate": ["f4"]}, "accumulate is a dtype or 'compensated', not"),
        ({"map": {"x"}}, "a map is CUDA C"),
        ({"where": np.array([True, False])}, "where is True or False"),
    ],
)
def test_what_cannot_be_remembered_is_refused_as_ever(options, message):
    with pytest.raises(TypeError, match=message) as raised:
        asked("sum", **options)
    assert raised.value.__context__ is None or "unhashable" not in str(raised.value.__context__)


def test_a_flag_without_a_hash_is_taken():
    assert asked("argmin", last=np.array(True)).reduction.label == asked("argmin", last=True).reduction.label


def test_what_is_remembered_is_bounded():
    of_columns = (column_cuts.cuts_of, column_costs.block_times, column_cuts.loads_of)
    for function in (selection._resolved, *of_columns, stubs._row_source, stubs._column_source, stubs._whole_sources):
        assert 0 < function.cache_info().maxsize <= 4096
