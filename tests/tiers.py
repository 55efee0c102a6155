"""Which tests a command runs: the tiers check, test, rest, all and soak, and the rule by which a sample is taken.

check
    tests/unit but for what is marked slow.
test
    What check runs, and a sample of each folder's other tests, of tests/unit those that are slow. In it are

    - of every planted fault in `tests/mutants/lists` one of the tests that it names, the first if no other fault needs
      one of them, and of a function that it names with all its cases one case,
    - every value of each parameter that says what is reduced, how and where: operator, type, strategy, kernel, axis,
      architecture (`CLASSES`),
    - of every file a test at least.

    Of the tests that serve equally, the one is taken that has most values which no test of the run has shown before,
    is not marked slow, and joins most pairs of values that are new. Other values, such as lengths, offsets and
    messages, and functions that no fault names come with those that are taken; the rest has them all.
rest
    What `all` runs beyond `test`: the other cases, and those of the sample that went through few of their things. Of a
    function marked ``drawn(parameter, count)``, whose cases are a product, it has for each combination of the other
    parameters so many values of that one, which the run's seed draws: other ones in another run.
all
    Everything but what is marked soak. This is what pytest runs by itself.
soak
    What is marked soak alone: endurance, long fuzzing, installations.

A parameter of several things, such as an operator over a type, may name in `factors` the attributes that are what a
sample shows: then each of their values is shown once, and not each object.

A test that goes through many things by itself, kernels or types, takes some of them in the tiers check and test, which
the fixture `few` chooses: the cases of a function take turns, so that together they go through all. A test that
disturbs something at each of its steps disturbs every third there, which the fixture `steps` counts, in turn as well.
Tests that a planted fault names go through all there, too.

With ``--again`` the sample is that of a second toolkit behind a first one. It shows nothing for the sake of a planted
fault, but each function of the files that are marked `bindings`. Another compiler may break the code of a kind of
kernel, an operator or a type, and other bindings a call of the driver, which those files make function by function;
what a fault of Python or of a kernel's source does, the first toolkit has shown.

The choice depends on the names of the tests and on the lists of planted faults alone, and of the rest on the run's
seed, so it is the same on every machine, and every process of a run makes the same.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

TIERS = ("check", "test", "rest", "all", "soak")
NOT_FACTORS = {"machine"}
"""Parameters that say where a test runs, not what it tests."""

CLASSES = {
    *("op", "variant", "dtype", "accumulate", "result"),
    *("strategy", "configuration", "mapping", "kind", "kernel", "role", "rung"),
    *("axis", "architecture", "capability"),
}
"""Parameters whose values are all in a sample: they say what is reduced, how and where."""

PLANTED = Path(__file__).parent / "mutants" / "lists"

STEPS_APART = 3
"""Samples disturb the steps of something so far from each other."""

Value = tuple[str, str]
_T = TypeVar("_T")
_TURN = pytest.StashKey[int]()
_NAMED = pytest.StashKey[frozenset[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=TIERS, default="all", help="which tests to run; CONTRIBUTING.md says what each is"
    )
    parser.addoption(
        "--again", action="store_true", help="the sample is that of a second toolkit: what it may break by itself"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    again = config.getoption("again")
    faults = [] if again else planted_faults(PLANTED)
    config.stash[_NAMED] = frozenset(itertools.chain.from_iterable(faults))
    tier, seed = config.getoption("tier"), config.getoption("seed")
    kept = set(map(id, chosen(items, tier, needed(faults), again=again, seed=seed)))
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
def in_part(request: pytest.FixtureRequest, is_sample: bool) -> bool:
    """Whether a test that goes through many things takes some: in samples, and if no planted fault names it."""
    named: frozenset[str] = request.config.stash[_NAMED]
    return is_sample and not is_named(request.node, named)


@pytest.fixture
def few(request: pytest.FixtureRequest, in_part: bool) -> Callable[[Sequence[_T], int], Sequence[_T]]:
    """Choose what a test goes through: ``few(things, count)`` is all of them, `count` where a run takes samples."""
    turn = request.node.stash[_TURN]
    return lambda things, count: in_turn(things, count, turn) if in_part else things


@pytest.fixture
def steps(request: pytest.FixtureRequest, in_part: bool) -> Callable[[], Iterator[int]]:
    """Count the steps at which a test disturbs something: ``steps()`` is all from 0, every third in samples."""
    first = request.node.stash[_TURN] % STEPS_APART
    return lambda: itertools.count(first, STEPS_APART) if in_part else itertools.count()


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


def planted_faults(lists: Path) -> list[tuple[str, ...]]:
    """Return of each fault in the lists the tests of which it says that they see it."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(lists.glob("*.txt")))
    entries = itertools.chain.from_iterable(re.split("^## ", text, flags=re.MULTILINE)[1:] for text in texts)
    return [tuple(re.findall("^by: (.+)$", entry, flags=re.MULTILINE)) for entry in entries]


def needed(faults: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """Return names of tests that see all faults: where several see one, such as others need, or the first."""
    names = set[str]()
    for tests in sorted(faults, key=lambda tests: len(tests) > 1):  # those that have no choice first
        if names.isdisjoint(tests):
            names.add(tests[0])
    return frozenset(names)


def chosen(
    items: list[pytest.Item], tier: str, named: Collection[str] = frozenset(), *, again: bool = False, seed: int = 0
) -> list[pytest.Item]:
    """Return the tests of a tier, of the rest those that the seed draws."""
    if tier == "soak":
        return [item for item in items if is_marked(item, "soak")]
    items = [item for item in items if not is_marked(item, "soak")]
    if tier == "check":
        return [item for item in items if of_units(item) and not is_marked(item, "slow")]
    if tier == "all":
        return items
    sample = sampled(items, named, again=again)
    return sample if tier == "test" else drawn(beyond(sample, items), seed)


def beyond(sample: list[pytest.Item], items: list[pytest.Item]) -> list[pytest.Item]:
    """Return what the sample leaves out: tests, and those in it that it runs in part."""
    whole = {item.nodeid for item in sample if not goes_through_few(item)}
    return [item for item in items if item.nodeid not in whole and not is_marked(item, "skip")]


def drawn(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Return the tests without those cases of functions marked `drawn` that the seed does not draw."""
    beside: dict[object, list[pytest.Item]] = defaultdict(list)
    counts: dict[object, int] = {}
    for item in items:
        mark = item.get_closest_marker("drawn")
        if mark is not None:
            name, count = mark.args
            key: object = (item.nodeid.split("[")[0], *(value for value in values_of(item) if value[0] != name))
            beside[key].append(item)
            counts[key] = count
    left_out = set[int]()
    for key, cases in beside.items():
        cases.sort(key=lambda item: hashlib.sha256(f"{seed} {item.nodeid}".encode()).hexdigest())
        left_out.update(map(id, cases[counts[key] :]))
    return [item for item in items if id(item) not in left_out]


def sampled(
    items: list[pytest.Item], named: Collection[str] = frozenset(), *, again: bool = False
) -> list[pytest.Item]:
    """Return the sample of the tier test."""
    folders: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        # A test that is skipped here costs nothing, and shows nothing that another would not have to show.
        if not is_marked(item, "skip"):
            folders["/".join(item.nodeid.split("/")[:2])].append(item)
    kept, known = [], set[frozenset[Value]]()
    for folder in folders.values():
        quick = [item for item in folder if of_units(item) and not is_marked(item, "slow")]
        others = [item for item in folder if not of_units(item) or is_marked(item, "slow")]
        kept += quick + covering(others, known, named, again=again)
    return kept


def covering(
    items: list[pytest.Item], known: set[frozenset[Value]], named: Collection[str] = frozenset(), *, again: bool = False
) -> list[pytest.Item]:
    """Return tests that show each file and each class; add their pairs of values to those that are known.

    Those that are named are among them, whatever they show.
    """
    shown = {item: shown_by(item, named, again=again) for item in items}
    showing: dict[Value, list[pytest.Item]] = defaultdict(list)
    for item, values in shown.items():
        for value in values:
            showing[value].append(item)
    kept = [item for item in items if item.nodeid in named]
    missing = set(showing).difference(*(shown[item] for item in kept))
    known.update(pair for item in kept for pair in pairs_of(item))
    for value in sorted(showing, key=lambda value: (len(showing[value]), value)):  # what few tests show comes first
        if value in missing:
            best = max(showing[value], key=lambda item: worth(item, shown[item] & missing, known))
            missing -= shown[best]
            known.update(pairs_of(best))
            kept.append(best)
    return kept


def worth(item: pytest.Item, new: set[Value], known: set[frozenset[Value]]) -> tuple[int, bool, int, str]:
    """Return what a test is chosen by: the values that it adds, whether it is quick, its pairs, its name's digest."""
    pairs = sum(pair not in known for pair in pairs_of(item))
    return len(new), not is_marked(item, "slow"), pairs, hashlib.sha256(item.nodeid.encode()).hexdigest()


def shown_by(item: pytest.Item, named: Collection[str] = frozenset(), *, again: bool = False) -> set[Value]:
    """Return what a test shows: its file, and those of its parameters' values that are classes.

    It shows its function, too, if that is named with all its cases; and if another version of the bindings is tried,
    where its file is about them.
    """
    file, function = item.nodeid.split("::")[0], item.nodeid.split("[")[0]
    places = [("file", file)]
    if function in named or (again and is_marked(item, "bindings")):
        places.append(("function", function))
    return {*places, *(value for value, is_class in _values(item) if is_class)}


def pairs_of(item: pytest.Item) -> list[frozenset[Value]]:
    """Return the pairs of a test's values, and each with itself, so that a new one counts where it has no partner."""
    return [frozenset(pair) for pair in itertools.combinations_with_replacement(values_of(item), 2)]


def values_of(item: pytest.Item) -> list[Value]:
    """Return the values of a test's parameters, by their names."""
    return [value for value, _ in _values(item)]


def _values(item: pytest.Item) -> list[tuple[Value, bool]]:
    """Return the values of a test's parameters, each with whether a sample has to show it."""
    call = getattr(item, "callspec", None)
    if call is None:
        return []
    return [pair for name, value in call.params.items() if name not in NOT_FACTORS for pair in factors_of(name, value)]


def factors_of(name: str, value: object) -> list[tuple[Value, bool]]:
    """Return what a parameter's value is: itself, or those of its attributes that it names as its factors."""
    names = getattr(value, "factors", None)
    if not isinstance(names, tuple):
        return [((name, spelled(value)), name in CLASSES)]
    return [((each, spelled(getattr(value, each))), True) for each in names]


def spelled(value: object) -> str:
    """Return a value's text, the same in every process: objects and functions by their names."""
    name = getattr(value, "__name__", None) or getattr(value, "id", None) or getattr(value, "name", None)
    text = str(name or value)
    return text if " at 0x" not in text else type(value).__name__


def is_marked(item: pytest.Item, mark: str) -> bool:
    return item.get_closest_marker(mark) is not None


def is_named(item: pytest.Item, named: Collection[str]) -> bool:
    """Return whether a test is named, by itself or with the other cases of its function."""
    return item.nodeid in named or item.nodeid.split("[")[0] in named


def goes_through_few(item: pytest.Item) -> bool:
    """Return whether a test runs in part where a run takes samples."""
    return "is_sample" in getattr(item, "fixturenames", ())  # `few` and `steps` ask for it


def of_units(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/unit/")
