"""For all tests: tiers, kept kernels, the switch of tests/gpu, hypothesis without a deadline, quick collections."""

import gc
import itertools
import os
from collections.abc import Iterator

import kept
import pytest
from hypothesis import settings

from lowlevel_reduce.driver import binding, why_unavailable
from lowlevel_reduce.plans import array, loading
from lowlevel_reduce.plans.base import BasePlan
from lowlevel_reduce.simulator.driver import launches

pytest_plugins = ["at_once", "minutes", "seeds", "tiers"]

settings.register_profile("no deadline", deadline=None)  # no test asserts a time
settings.load_profile("no deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--simulated",
        action="store_true",
        help="where there is a GPU, run tests/gpu on the simulated one too; where there is none, that is done anyway",
    )


def pytest_report_header(config: pytest.Config) -> str:
    with binding.use("cuda"):
        reason = why_unavailable()
    return "GPU: " + ("there is one" if reason is None else f"none, so tests/gpu run on a simulated one: {reason}")


def pytest_sessionstart(session: pytest.Session) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        kept.forget_the_oldest()


_COLLECTED = pytest.StashKey[frozenset[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[_COLLECTED] = frozenset(item.nodeid for item in items)  # before any is deselected


@pytest.fixture(scope="session")
def collected(request: pytest.FixtureRequest) -> frozenset[str]:
    """The names of all tests in the files of this run, also of those that it does not run."""
    if any("::" in argument for argument in request.config.args):
        pytest.skip("pytest was given single tests, so it knows no file's tests")
    return request.config.stash[_COLLECTED]


launches.MOST_THREADS = 1 << 14  # whose registers are in the processor's caches

# Kernels that are parsed and bound are many small objects, of which few are garbage before the test ends.
gc.set_threshold(50_000, 20, 100)

_TESTS_BETWEEN_COLLECTIONS = 500
_tests = itertools.count(1)
_load_twins, _load_beside = BasePlan.load_twins, loading.load_beside


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the garbage collector pass over what was there before a test: many tests call it, and all takes it seconds.

    What is garbage by now is collected first, which takes no time, because only the last test's objects are looked at.
    What was passed over and has become garbage since, such as the simulated driver of a module, is collected every few
    hundred tests: it may be some GB.

    A plan compiles its kernels for arrays at any address when it is made, and most tests never use them: here they wait
    until they are needed, but in tests marked as being about that.
    """
    loads = item.get_closest_marker("loads_twins") is not None
    setattr(BasePlan, "load_twins", _load_twins if loads else lambda self: None)  # noqa: B010 - mypy minds an assignment
    setattr(array, "load_beside", _load_beside if loads else lambda *_: lambda: None)  # noqa: B010
    if next(_tests) % _TESTS_BETWEEN_COLLECTIONS == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def kept_kernels() -> Iterator[None]:
    """What these tests compile is kept between runs; without NVRTC they are skipped and say so."""
    with pytest.MonkeyPatch.context() as patch:
        kept.use_kept_kernels(patch)
        yield
