"""The reductions by their names: each asks for its operator, with the options that this has, and no others."""

import importlib
import inspect
import pickle
import re

import pytest

from lowlevel_reduce import functions, operators
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.functions import general, segmented
from lowlevel_reduce.functions.keywords import own_keywords
from lowlevel_reduce.operators import table

FAMILIES = ["exponentials", "extremes", "indices", "moments", "norms", "sums", "truth"]
OPERATORS = {
    **{name: ((), name) for name in functions.__all__ if name not in ("dot", "norm")},
    "dot": (("y",), "dot"),
    "norm": ((), "norm2"),
    "norm of order 1": ((1,), "norm1"),
    "norm of order 2": ((2.0,), "norm2"),
    "norm of order inf": ((float("inf"),), "norm_inf"),
}
EVERYWHERE = {"x", "axis", "keepdims", "out", "stream", "strategy", "allocator"}


def own(name):
    """Return a function's parameters."""
    return inspect.signature(getattr(functions, name)).parameters


@pytest.fixture
def asked(monkeypatch):
    """Return what a function asks `reduce` for, without the options that are as they are by default."""
    usual = inspect.signature(general.reduce).parameters

    def reduce(x, op, **options):
        return x, op, {name: value for name, value in options.items() if value is not usual[name].default}

    for family in FAMILIES:
        monkeypatch.setattr(importlib.import_module(f"lowlevel_reduce.functions.{family}"), "reduce", reduce)
    return lambda name, *arguments, **options: getattr(functions, name)("x", *arguments, **options)


@pytest.mark.parametrize("name", OPERATORS)
def test_each_asks_for_its_operator_with_the_options_as_they_are(asked, name):
    arguments, operator = OPERATORS[name]
    function = name.partition(" ")[0]
    marks = {option: object() for option in own(function) if option not in ("x", "y", "ord", "ddof", "correction")}
    expected = {**marks, **({"second": "y"} if function == "dot" else {})}
    assert asked(function, *arguments, **marks) == ("x", operator, expected)


@pytest.mark.parametrize("name", functions.__all__)
def test_the_axis_stands_behind_the_arrays(asked, name):
    before = {"dot": ("y",), "norm": (2,)}.get(name, ())  # as in numpy.linalg.norm, the order is before the axis
    assert asked(name, *before, 1)[2]["axis"] == 1


@pytest.mark.parametrize("name", ["var", "std", "mean_var"])
def test_the_divisor_by_either_name(asked, name):
    assert asked(name, ddof=1)[2] == asked(name, correction=1)[2] == {"ddof": 1}
    assert asked(name, correction=0)[2] == {}
    with pytest.raises(TypeError, match="pass one of them"):
        asked(name, ddof=1, correction=1)


@pytest.mark.parametrize("name", functions.__all__)
def test_each_has_the_options_of_its_operator_and_no_others(name):
    operator = {"norm": "norm2"}.get(name, name)
    takes = table._TABLE[operator].options
    options = set(own(name)) - EVERYWHERE - {"y", "ord", "correction", "dtype", "accumulate"}
    second = {"second"} if "map" in takes and "ddof" not in takes else set()  # of moments, a map has one array
    assert options == set(takes) | second
    assert ("correction" in own(name)) == ("ddof" in takes)
    assert set(own(name)) >= EVERYWHERE


@pytest.mark.parametrize("name", functions.__all__)
def test_types_may_be_asked_for_where_there_is_a_choice(name):
    made = operators.resolve({"norm": "norm2"}.get(name, name))
    rule = made.rule(element_type("float32"))
    assert ("dtype" in own(name)) == (len(set(rule.results)) > 1)
    assert ("accumulate" in own(name)) == (len(rule.accumulators) > 1)


def described(function):
    """Return the description of each parameter in a docstring."""
    text = inspect.getdoc(function).split("Parameters\n----------\n")[1].split("\n\nReturns\n")[0]
    return dict(re.findall(r"^(\w+) : (.*(?:\n    .*)*)", text, re.M))


def test_every_option_is_described_and_in_the_same_words_everywhere():
    words = {}
    for name in functions.__all__:
        said = described(getattr(functions, name))
        assert list(said) == list(own(name)), name
        for option, text in said.items():
            several = name in ("minmax", "mean_var", "softmax_stats")
            key = {"out": (option, several), "map": (option, "second" in own(name))}.get(option, option)
            assert words.setdefault(key, text) == text, (name, option)


WRONG = {
    "dim": ("sum", {"dim": 0}, "sum has no keyword 'dim': it is axis= here"),
    "keepdim": ("max", {"keepdim": True}, "it is keepdims= here"),
    "input": ("any", {"input": 0}, "it is x= here"),
    "a": ("mean", {"a": 0}, "mean has no keyword 'a': it is x= here"),
    "other": ("dot", {"other": 0}, "it is y= here"),
    "unbiased": ("var", {"unbiased": True}, r"it is ddof= here \(unbiased=True is ddof=1"),
    "correction where there is none": ("mean", {"correction": 1}, "var, std, mean_var have it"),
    "nan where there is none": ("argmax", {"nan": "ignore"}, "max, min|mean, |sum"),
    "p": ("norm", {"p": 1}, "it is ord= here"),
    "slip": ("sum", {"keepdmis": True}, "did you mean keepdims=?"),
    "unknown": ("all", {"qqq": 1}, "it has x, axis, keepdims, out, stream, where, second, map, strategy, allocator"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_keyword_of_others_is_answered_by_ours(case):
    name, options, message = WRONG[case]
    with pytest.raises(TypeError, match=message):
        getattr(functions, name)(*([] if {"a", "input"} & options.keys() else [1]), **options)


def test_reduce_and_segmented_reduce_answer_too():
    with pytest.raises(TypeError, match="reduce has no keyword 'dim': it is axis= here"):
        general.reduce(1, "sum", dim=0)
    with pytest.raises(TypeError, match="segmented_reduce has no keyword 'correction': it is ddof= here"):
        segmented.segmented_reduce(1, [0], "var", correction=1)


def test_each_is_pickled_by_its_name():
    for function in (*map(functions.__dict__.get, functions.__all__), general.reduce, segmented.segmented_reduce):
        assert pickle.loads(pickle.dumps(function)) is function


def test_what_stands_by_position_is_told():
    with pytest.raises(TypeError, match="sum takes x, axis by position, and all else by its keyword: x, axis"):
        functions.sum(1, 0, "float32")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        functions.sum()


def test_an_error_within_a_function_is_not_reworded():
    @own_keywords
    def function(x, *, wanted=None):
        return function(x, want=wanted)

    with pytest.raises(TypeError, match="function has no keyword 'want': did you mean wanted=?") as caught:
        function(1, wanted=2)
    assert caught.value.__cause__ is None

    @own_keywords
    def other(x):
        return len(x)

    with pytest.raises(TypeError, match="^object of type 'int' has no len"):
        other(1)
