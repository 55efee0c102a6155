"""Simulated blocks and warps run in a random order in all tests, so that what is right only in the natural one shows.

Each test's order has a seed of its own, made from the run's and the test's name; ``--seed`` repeats a run's.
"""

import random
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from lowlevel_reduce import simulator


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="of the order of simulated blocks and warps, which else is drawn")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is None:
        given = getattr(config, "workerinput", {})  # in a process of xdist
        config.option.seed = given.get("seed", random.randrange(10**6))
    config.addinivalue_line("markers", "natural_order(reason): simulated blocks and warps run in their natural order")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a process of xdist the seed of the run, since it reads the command line by itself."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"order of simulated blocks and warps: --seed {config.option.seed}"


@pytest.fixture(autouse=True)
def order_of_the_simulated(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test has an order of its own; a test that fails says which."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("natural_order"):
            patch.delenv(simulator.SEED_VARIABLE, raising=False)
        else:
            run = request.config.option.seed
            seed = zlib.crc32(f"{run} {request.node.nodeid}".encode())
            patch.setenv(simulator.SEED_VARIABLE, str(seed))
            text = f"{simulator.SEED_VARIABLE}={seed}, by --seed {run}"
            request.node.add_report_section("setup", "order of simulated blocks and warps", text)
        yield
