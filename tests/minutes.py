"""``--minutes``: a run begins no test after so long, and says how many it has not begun.

The files of tests come in an order that the run's seed draws, so that another run leaves out others.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from typing import Any

import pytest

_END = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--minutes", type=float, default=math.inf, help="after them no test is begun; the seed draws which come first"
    )


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {})  # in a process of xdist
    config.stash[_END] = given.get("end", time.time() + 60 * config.option.minutes)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a process of xdist the end of the run, which began before it."""
    node.workerinput["end"] = node.config.stash[_END]


@pytest.hookimpl(trylast=True)  # when the tier has been chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.minutes < math.inf:
        items[:] = in_drawn_order(items, config.option.seed)


@pytest.hookimpl(tryfirst=True)  # before any fixture is made
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > item.config.stash[_END]:
        pytest.skip(f"not begun: the {item.config.option.minutes:g} minutes of this run were over")


def in_drawn_order(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Return the tests with their files in a random order, each file's as they were: they share what is made for it."""
    files = [list(group) for _, group in itertools.groupby(items, key=lambda item: item.nodeid.split("::")[0])]
    random.Random(seed).shuffle(files)
    return [item for file in files for item in file]
