"""The reductions by their names: each asks for the operator of its name, with the options as they are."""

import pytest

from lowlevel_reduce import functions

OPERATORS = {
    **{name: ((), name) for name in functions.__all__ if name not in ("dot", "norm")},
    "norm": ((), "norm2"),
    "norm of order 1": ((1,), "norm1"),
    "norm of order 2": ((2.0,), "norm2"),
    "norm of order inf": ((float("inf"),), "norm_inf"),
}


@pytest.fixture
def asked(monkeypatch):
    """Return what a function asks `reduce` for."""
    monkeypatch.setattr(functions, "reduce", lambda x, op, **options: (x, op, options))
    return lambda name, *arguments, **options: getattr(functions, name)("x", *arguments, **options)


@pytest.mark.parametrize("name", OPERATORS)
def test_each_asks_for_its_operator(asked, name):
    arguments, operator = OPERATORS[name]
    assert asked(name.partition(" ")[0], *arguments, axis=1) == ("x", operator, {"axis": 1})


def test_the_second_array_of_a_dot_product(asked):
    assert asked("dot", "y", axis=0) == ("x", "dot", {"second": "y", "axis": 0})
