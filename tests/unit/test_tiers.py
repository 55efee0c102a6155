"""The tiers of the tests: what a tier runs, and that its sample shows each class and depends on names alone."""

import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiers

from tests.mutants.catalogue import mutants


class Item:
    """As much of a collected test as tiers look at."""

    def __init__(self, name, *marks, module="tests/gpu/test_x.py", **params):
        self.nodeid = f"{module}::{name}" + (f"[{'-'.join(map(str, params.values()))}]" if params else "")
        self.callspec = SimpleNamespace(params=params)
        self.marks = marks
        self.fixturenames = ("few", "is_sample") if "goes through few" in marks else ()

    def get_closest_marker(self, name):
        found = [mark for mark in self.marks if getattr(mark, "name", mark) == name]
        return found[0] if found else None


ALL = [
    Item("test_quick", module="tests/unit/test_a.py"),
    Item("test_long", "slow", module="tests/unit/test_a.py"),
    Item("test_endless", "soak", module="tests/unit/test_a.py"),
    Item("test_device"),
]


def names(items):
    return [item.nodeid.split("::")[1] for item in items]


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        ("check", ["test_quick"]),
        ("test", ["test_quick", "test_long", "test_device"]),
        ("all", ["test_quick", "test_long", "test_device"]),
        ("soak", ["test_endless"]),
    ],
)
def test_what_a_tier_runs(tier, expected):
    assert names(tiers.chosen(ALL, tier)) == expected


def matrix(function="test_all", **values):
    first, second = values
    return [Item(function, **{first: a, second: b}) for a in values[first] for b in values[second]]


def test_a_sample_shows_each_value_and_each_file():
    items = [
        *matrix(op=["sum", "max", "min"], dtype=["f2", "f4", "f8", "i4"]),
        *(Item(name, module="tests/gpu/test_other.py") for name in ("test_one", "test_two")),
    ]
    kept = tiers.chosen(items, "test")
    assert {item.callspec.params.get("op") for item in kept} == {"sum", "max", "min", None}
    assert {item.callspec.params.get("dtype") for item in kept} == {"f2", "f4", "f8", "i4", None}
    assert len(kept) == 4 + 1, "as many as the longest list of values, and one of the file without any"


def test_a_value_that_is_no_class_comes_with_the_others():
    words = [Item("test_words", module="tests/gpu/test_y.py", message=message) for message in ("no", "never")]
    items = [*matrix(op=["sum", "max"], length=[1, 2, 3, 4, 5]), *words]
    kept = [item.callspec.params for item in tiers.chosen(items, "test")]
    assert sorted(each["op"] for each in kept if "op" in each) == ["max", "sum"]
    assert len({each["length"] for each in kept if "op" in each}) == 2, "other lengths beside other operators"
    assert len(kept) == 2 + 1


def test_what_a_planted_fault_names_is_in_the_sample_and_shows_what_it_shows():
    items = matrix(op=["sum", "max", "min"], length=[1, 2, 3])
    named = ["tests/gpu/test_x.py::test_all[sum-2]", "tests/gpu/test_x.py::test_all[sum-3]"]
    kept = tiers.chosen(items, "test", named)
    assert set(named) < {item.nodeid for item in kept}
    assert sorted(item.callspec.params["op"] for item in kept) == ["max", "min", "sum", "sum"]


def test_of_a_function_that_a_planted_fault_names_with_all_its_cases_one_is_in_the_sample():
    items = [*matrix(op=["sum"], length=[1, 2]), *matrix("test_named", op=["sum"], length=[1, 2])]
    kept = names(tiers.chosen(items, "test", ["tests/gpu/test_x.py::test_named"]))
    assert [name.split("[")[0] for name in kept] == ["test_named"]


def test_the_sample_has_a_test_that_sees_each_planted_fault():
    faults = tiers.planted_faults(tiers.PLANTED)
    assert faults == [fault.tests for fault in mutants()]
    named = tiers.needed(faults)
    assert all(named.intersection(tests) for tests in faults)
    folders = {test.split("/")[1] for test in named}
    assert {"compile", "gpu", "simulated", "unit"} <= folders


def test_of_several_tests_that_see_a_fault_one_is_needed():
    assert tiers.needed([("a", "b"), ("c",)]) == {"a", "c"}
    assert tiers.needed([("a", "b"), ("b",)]) == {"b"}, "another fault needs it"
    assert tiers.needed([("a", "b"), ("b", "a"), ("d", "b")]) == {"a", "d"}


def test_a_slow_test_is_in_the_sample_where_no_other_shows_what_it_shows():
    slow = [Item(f"test_{n}", "slow", op="sum", length=n) for n in range(5)]
    quick = Item("test_quick", op="sum")
    assert names(tiers.chosen([*slow, quick], "test")) == ["test_quick[sum]"]
    assert len(tiers.chosen([*slow, Item("test_quick", op="max")], "test")) == 2


def test_of_the_units_the_slow_ones_are_sampled():
    slow = [Item("test_slow", "slow", module="tests/unit/test_a.py", length=n) for n in range(5)]
    quick = [Item("test_quick", module="tests/unit/test_a.py", length=n) for n in range(5)]
    assert len(tiers.chosen(slow + quick, "test")) == 1 + 5


def test_a_second_toolkit_shows_each_file_and_class_again():
    items = [
        *matrix(op=["sum", "max"], length=[1, 2]),
        *(Item(f"test_{name}", length=5) for name in "abc"),
        *(Item(f"test_{name}", module="tests/gpu/test_y.py") for name in "abc"),
        *(
            Item(f"test_{name}", "bindings", module="tests/gpu/test_driver.py", length=n)
            for name in "ab"
            for n in (1, 2)
        ),
        *(Item(f"test_{name}", module="tests/compile/test_z.py") for name in "abc"),
    ]
    kept = [item.nodeid.split("::")[0] for item in tiers.chosen(items, "test", again=True)]
    taken = {"gpu/test_driver": 2, "gpu/test_x": 2, "gpu/test_y": 1, "compile/test_z": 1}
    assert Counter(kept) == {f"tests/{name}.py": count for name, count in taken.items()}
    left = tiers.chosen(items, "rest", again=True)
    assert len(left) + len(kept) == len(items)


def test_a_value_that_one_function_has_shown_need_not_be_shown_by_the_next():
    items = [
        *matrix(op=["sum", "max"], dtype=["f4", "i4"]),
        *matrix("test_again", op=["sum", "max"], dtype=["f4", "i4"]),
    ]
    assert len(names(tiers.chosen(items, "test"))) == 2


def test_folders_pair_values_in_different_ways():
    values = {"op": ["sum", "max", "min"], "dtype": ["f2", "f4", "f8"]}
    first = matrix(**values)
    second = [Item("test_all", module="tests/compile/test_y.py", **item.callspec.params) for item in first]
    kept = [tuple(item.callspec.params.values()) for item in tiers.chosen(first + second, "test")]
    assert len(set(kept)) == len(kept) == 6


def test_a_test_that_is_skipped_shows_nothing():
    items = [Item("test_a", "skip", op="sum"), Item("test_a", op="max")]
    assert names(tiers.chosen(items, "test")) == ["test_a[max]"]


def test_a_case_of_several_things_shows_each_of_them_once():
    def case(op, dtype):
        return SimpleNamespace(factors=("op", "dtype"), op=op, dtype=dtype, id=f"{op}-{dtype}")

    names_, types = ["sum", "max", "min"], ["f2", "f4", "f8", "i4"]
    items = [Item("test_all", case=case(op, dtype)) for op in names_ for dtype in types]
    kept = [item.callspec.params["case"] for item in tiers.chosen(items, "test")]
    assert {each.op for each in kept} == set(names_)
    assert {each.dtype for each in kept} == set(types)
    assert len(kept) == len(types)
    plain = Item("test_plain", op="sum", dtype="f4")
    assert tiers.shown_by(plain) - {("file", "tests/gpu/test_x.py")} < set(
        itertools.chain.from_iterable(tiers.values_of(item) for item in items)
    ), "the same values, whoever names them"


def test_what_the_sample_leaves_out_is_the_rest_and_what_it_runs_in_part_too():
    items = [
        *ALL,
        *matrix(op=["sum", "max", "min"], dtype=["f2", "f4", "f8", "i4"]),
        Item("test_many", "goes through few", module="tests/gpu/test_y.py"),
        Item("test_other", "goes through few", module="tests/unit/test_a.py"),
        Item("test_skipped", "skip"),
    ]
    everything, sample, rest = (set(names(tiers.chosen(items, tier))) for tier in ("all", "test", "rest"))
    assert rest | sample == everything - {"test_skipped"}
    assert rest & sample == {"test_many", "test_other"}
    assert len(rest - sample) == 12 - 4 + 1, "and the function of a file that others show"


def test_of_a_product_the_rest_has_what_the_seed_draws():
    mark = pytest.mark.drawn("architecture", 2).mark
    cases = [
        (op, architecture) for op in ("sum", "max", "min") for architecture in ("sm_75", "sm_80", "sm_90", "sm_100")
    ]
    items = [Item("test_all", mark, op=op, architecture=architecture) for op, architecture in cases]
    rests = [names(tiers.chosen(items, "rest", seed=seed)) for seed in range(20)]
    sample = set(names(tiers.chosen(items, "test")))
    for rest in rests:
        assert rest == [name for name in names(items) if name in rest], "in their order"
        assert Counter(name.split("-")[0] for name in rest) == {f"test_all[{op}": 2 for op in ("sum", "max", "min")}
        assert sample.isdisjoint(rest)
    assert sample.union(*rests) == set(names(tiers.chosen(items, "all")))
    assert rests[3] == names(tiers.chosen(items[::-1], "rest", seed=3))[::-1]


def test_where_a_test_runs_is_no_value():
    items = [Item("test_a", machine="cuda"), Item("test_a", machine="simulated")]
    assert len(tiers.chosen(items, "test")) == 1


def test_the_cases_of_a_function_take_turns():
    items = [*matrix(op=["sum", "max"], dtype=["f4", "i4"]), Item("test_one")]
    turns = {item.nodeid.split("::")[1]: turn for turn, item in tiers.turns(items[::-1])}
    assert [turns[f"test_all[{case}]"] for case in ("max-f4", "max-i4", "sum-f4", "sum-i4")] == [0, 1, 2, 3]
    assert turns["test_one"] == 0


@pytest.mark.parametrize(("count", "cases"), [(1, 5), (2, 3), (3, 2), (4, 2)])
def test_together_they_go_through_all(count, cases):
    chosen = [tiers.in_turn("abcde", count, turn) for turn in range(cases)]
    assert all(len(set(each)) == count for each in chosen)
    assert {thing for each in chosen for thing in each} == set("abcde")
    assert tiers.in_turn("abcde", 7, 1) == "abcde"


def test_a_run_of_all_tests_takes_all(few, is_sample):
    things = list(range(10))
    assert len(few(things, 4)) == (4 if is_sample else 10)


def test_a_run_of_all_tests_disturbs_every_step_and_a_sample_each_in_some_case(steps, is_sample):
    apart = tiers.STEPS_APART
    assert list(itertools.islice(steps(), 4)) == ([0, apart, 2 * apart, 3 * apart] if is_sample else [0, 1, 2, 3])


def test_a_test_that_a_planted_fault_names_goes_through_all_in_a_sample():
    def asked(nodeid, named):
        node = SimpleNamespace(nodeid=nodeid)
        stash = {tiers._NAMED: frozenset(named)}
        given = SimpleNamespace(node=node, config=SimpleNamespace(stash=stash))
        return tiers.in_part.__wrapped__(given, is_sample=True)

    assert asked("tests/a.py::test_a[1]", ["tests/a.py::test_a[2]"])
    assert not asked("tests/a.py::test_a[1]", ["tests/a.py::test_a[1]"])
    assert not asked("tests/a.py::test_a[1]", ["tests/a.py::test_a"])


def test_the_order_in_which_tests_are_collected_decides_nothing():
    items = matrix(op=["sum", "max", "min"], dtype=["f2", "f4", "f8", "i4"])
    assert set(names(tiers.chosen(items, "test"))) == set(names(tiers.chosen(items[::-1], "test")))


def test_values_are_spelled_alike_in_every_process():
    assert tiers.spelled(np_like := SimpleNamespace(id="v7_cluster")) == "v7_cluster", np_like
    assert tiers.spelled(object()) == "object"
    assert tiers.spelled(Path.exists) == "exists"
    assert tiers.spelled(("sum", "float32")) == "('sum', 'float32')"
