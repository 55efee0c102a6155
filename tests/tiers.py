"""Which tests a command runs: the tiers check, test, rest, all and soak, and the rule by which a sample is taken.

check
    tests/unit but for what is marked slow.
test
    tests/unit, and of each other folder every test function, with as many cases as show each value of each parameter
    once: each operator, type, strategy, shape and architecture that the folder's tests know. Of the cases that serve
    equally, the one is taken that joins most pairs of values which no test of the run has joined before.
rest
    What `all` runs beyond `test`: the other cases, and those of the sample that went through few of their things.
all
    Everything but what is marked soak. This is what pytest runs by itself.
soak
    What is marked soak alone: endurance, long fuzzing, installations.

A parameter of several things, such as an operator over a type, may name in `factors` the attributes that are what a
sample shows: then each of their values is shown once, and not each object.

A test that goes through many things by itself, kernels or types, takes some of them in the tiers check and test, which
the fixture `few` chooses: the cases of a function take turns, so that together they go through all. A test that
disturbs something at each of its steps disturbs every third there, which the fixture `steps` counts, in turn as well.

The choice depends on the names of the tests alone, so it is the same on every machine, and every process of a run makes
the same.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pytest

TIERS = ("check", "test", "rest", "all", "soak")
NOT_FACTORS = {"machine"}
"""Parameters that say where a test runs, not what it tests."""

STEPS_APART = 3
"""Samples disturb the steps of something so far from each other."""

Value = tuple[str, str]
_T = TypeVar("_T")
_TURN = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=TIERS, default="all", help="which tests to run; CONTRIBUTING.md says what each is"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = set(map(id, chosen(items, config.getoption("tier"))))
    dropped = [item for item in items if id(item) not in kept]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if id(item) in kept]
    for turn, item in turns(items):
        item.stash[_TURN] = turn


@pytest.fixture(scope="session")
def is_sample(request: pytest.FixtureRequest) -> bool:
    """Whether the run takes samples: a test that repeats itself over very many calls then goes through some of them."""
    return request.config.getoption("tier") in ("check", "test")


@pytest.fixture
def few(request: pytest.FixtureRequest, is_sample: bool) -> Callable[[Sequence[_T], int], Sequence[_T]]:
    """Choose what a test goes through: ``few(things, count)`` is all of them, `count` where a run takes samples."""
    turn = request.node.stash[_TURN]
    return lambda things, count: in_turn(things, count, turn) if is_sample else things


@pytest.fixture
def steps(request: pytest.FixtureRequest, is_sample: bool) -> Callable[[], Iterator[int]]:
    """Count the steps at which a test disturbs something: ``steps()`` is all from 0, every third in samples."""
    first = request.node.stash[_TURN] % STEPS_APART
    return lambda: itertools.count(first, STEPS_APART) if is_sample else itertools.count()


def turns(items: Iterable[pytest.Item]) -> list[tuple[int, pytest.Item]]:
    """Return tests with the place of each among the cases of its function."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item.nodeid):
        cases[item.nodeid.split("[")[0]].append(item)
    return [pair for items in cases.values() for pair in enumerate(items)]


def in_turn(things: Sequence[_T], count: int, turn: int) -> Sequence[_T]:
    """Return `count` of the things, from where the turn before ended; behind the last one comes the first."""
    if count >= len(things):
        return things
    return [things[(turn * count + i) % len(things)] for i in range(count)]


def chosen(items: list[pytest.Item], tier: str) -> list[pytest.Item]:
    """Return the tests of a tier."""
    if tier == "soak":
        return [item for item in items if is_marked(item, "soak")]
    items = [item for item in items if not is_marked(item, "soak")]
    if tier == "check":
        return [item for item in items if of_units(item) and not is_marked(item, "slow")]
    if tier == "all":
        return items
    sample = sampled(items)
    return sample if tier == "test" else beyond(sample, items)


def beyond(sample: list[pytest.Item], items: list[pytest.Item]) -> list[pytest.Item]:
    """Return what the sample leaves out: tests, and those in it that it runs in part."""
    whole = {item.nodeid for item in sample if not goes_through_few(item)}
    return [item for item in items if item.nodeid not in whole and not is_marked(item, "skip")]


def sampled(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the sample of the tier test."""
    folders: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        # A test that is skipped here costs nothing, and shows nothing that another would not have to show.
        if not is_marked(item, "skip"):
            folders["/".join(item.nodeid.split("/")[:2])].append(item)
    kept, known = [], set[frozenset[Value]]()
    for folder in folders.values():
        kept += folder if of_units(folder[0]) else covering(folder, known)
    return kept


def covering(items: list[pytest.Item], known: set[frozenset[Value]]) -> list[pytest.Item]:
    """Return tests that show each function and each value; add their pairs of values to those that are known."""
    showing: dict[Value, list[pytest.Item]] = defaultdict(list)
    for item in items:
        for value in shown_by(item):
            showing[value].append(item)
    missing, kept = set(showing), []
    for value in sorted(showing, key=lambda value: (len(showing[value]), value)):  # what few tests show comes first
        if value in missing:
            best = max(showing[value], key=lambda item: worth(item, shown_by(item) & missing, known))
            missing -= shown_by(best)
            known.update(pairs_of(best))
            kept.append(best)
    return kept


def worth(item: pytest.Item, new: set[Value], known: set[frozenset[Value]]) -> tuple[int, int, str]:
    """Return what a case is chosen by: the values that it adds, then its pairs, then a digest of its name."""
    pairs = sum(pair not in known for pair in pairs_of(item))
    return len(new), pairs, hashlib.sha256(item.nodeid.encode()).hexdigest()


def shown_by(item: pytest.Item) -> set[Value]:
    """Return what a test shows: its function, and the values of its parameters."""
    return {("function", item.nodeid.split("[")[0]), *values_of(item)}


def pairs_of(item: pytest.Item) -> list[frozenset[Value]]:
    return [frozenset(pair) for pair in itertools.combinations(values_of(item), 2)]


def values_of(item: pytest.Item) -> list[Value]:
    """Return the values of a test's parameters, by their names."""
    call = getattr(item, "callspec", None)
    if call is None:
        return []
    return [pair for name, value in call.params.items() if name not in NOT_FACTORS for pair in factors_of(name, value)]


def factors_of(name: str, value: object) -> list[Value]:
    """Return what a parameter's value shows: itself, or those of its attributes that it names as its factors."""
    names = getattr(value, "factors", None)
    if not isinstance(names, tuple):
        return [(name, spelled(value))]
    return [(each, spelled(getattr(value, each))) for each in names]


def spelled(value: object) -> str:
    """Return a value's text, the same in every process: objects and functions by their names."""
    name = getattr(value, "__name__", None) or getattr(value, "id", None) or getattr(value, "name", None)
    text = str(name or value)
    return text if " at 0x" not in text else type(value).__name__


def is_marked(item: pytest.Item, mark: str) -> bool:
    return item.get_closest_marker(mark) is not None


def goes_through_few(item: pytest.Item) -> bool:
    """Return whether a test runs in part where a run takes samples."""
    return "is_sample" in getattr(item, "fixturenames", ())  # `few` and `steps` ask for it


def of_units(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/unit/")
